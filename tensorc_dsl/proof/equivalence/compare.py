"""Compares two programs value by value, by working off proof obligations.

An obligation says that node `a` of the original and node `b` of the scheduled program have equal values at all pairs of
instances in a map. It is proved by descending into both at once: through copies, into the operands of equal operations,
into matched terms of reductions, to equal elements of the inputs. A pair in progress counts as proved, as in
Verdoolaege, Janssens and Bruynooghe, "Equivalence checking of static affine programs using widening to handle recurrences"
(2012). This is an induction over time, since a value depends on earlier ones only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum, auto
from heapq import heappop, heappush

from tensorc_dsl.base.diagnostic import Note, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Cast, Const, Expr, Load, children, dtype_of, index, loads, substitute
from tensorc_dsl.ir.program import FINITE, IterKind
from tensorc_dsl.proof.equivalence.code import (
    Code,
    ExampleSizes,
    Refuted,
    Statement,
    TooMany,
    Undecided,
    at,
    example,
    label,
    written_by,
)
from tensorc_dsl.proof.equivalence.corrected_sums import without_masked
from tensorc_dsl.proof.equivalence.flow import (
    At,
    Key,
    Node,
    Total,
    first_of,
    joined,
    key,
    place,
    require_simple,
    within,
)
from tensorc_dsl.proof.equivalence.match import match
from tensorc_dsl.proof.equivalence.terms import is_neutral, operator, terms_of
from tensorc_dsl.proof.equivalence.values import Values, gathers, is_index, step_of
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.isl import renew
from tensorc_dsl.proof.sets.linear_forms import data_in, outermost, with_values
from tensorc_dsl.proof.sets.sets import NotAffine, mapping
from tensorc_dsl.proof.sets.simplify import simplify

# The obligation for two nodes: the pairs of instances at which their values have to be equal, from all readers.


@frozen(eq=False)
class Obligation:
    """The claim that `a` and `b` have equal values at `pairs`, a map from instances of `a` to instances of `b`."""

    a: Node
    b: Node
    pairs: isl.Map


FEW = 4
"""The pieces that may be added before pieces are joined."""


class Asked:
    """Obligations about the same nodes, as one. Raises TooMany beyond so many `pieces`, if there is a limit.

    Joining compares each piece with each other one. So it waits until there are a quarter more than it left before.
    """

    def __init__(self, first: Obligation, pieces: int | None) -> None:
        self._first = first
        self._limit = pieces
        self._pairs = first.pairs
        self._left = first.pairs.n_basic_map()
        self._check()

    def add(self, pairs: isl.Map) -> None:
        self._pairs = self._pairs.union(pairs)
        count = self._pairs.n_basic_map()
        if count > self._left + max(FEW, self._left // 4) or (self._limit is not None and count > self._limit):
            self._join()
            self._check()

    def together(self) -> Obligation:
        """The claim about all pairs."""
        if self._pairs.n_basic_map() > self._left:
            self._join()
        return replace(self._first, pairs=self._pairs)

    def _join(self) -> None:
        self._pairs = joined(self._pairs)
        self._left = self._pairs.n_basic_map()

    def _check(self) -> None:
        if self._limit is not None and self._pairs.n_basic_map() > self._limit:
            raise TooMany(f"a question falls into more than {self._limit} pieces")


# Pairs the data of two elements whose subscripts depend on data, so that the elements can be compared for each value.
#
# `W[min(max(index(I[n]), 0), 9)]` is the value of one of ten nodes. Once `index(I[n])` of one program is known to equal
# some `index(J[m])` of the other, both elements are compared for every value x of the datum: the first is then the element
# `W[min(max(x, 0), 9)]`.


@frozen
class Shared:
    """Data of one value, and the data of another one in the same places that they must equal.

    If one list is longer, the other value has no counterpart: then the values must be equal for each number.
    """

    ours: tuple[Cast, ...]
    theirs: tuple[Cast, ...]
    guessed: bool
    """Whether the values may be equal though these data are not, or though these are not the right pairs."""


def shared_data(a: At, b: At, pairs: isl.Map, original: Values, scheduled: Values) -> list[Shared]:
    """The ways to compare two values that depend on data, the best first; none if they differ.

    Data without a counterpart may have no effect: then the value is the same for each of their numbers.
    """
    ours, theirs = deciding(a), deciding(b)
    told = _partners(a, ours, b, pairs, original, scheduled)
    if ours and len(told) == len(ours):
        return [Shared(ours, tuple(y for y, _ in told.values()), not all(sure for _, sure in told.values()))]
    back = _partners(b, theirs, a, pairs.reverse(), scheduled, original)
    if theirs and len(back) == len(theirs):
        return [Shared(tuple(x for x, _ in back.values()), theirs, not all(sure for _, sure in back.values()))]
    found: list[Shared] = []
    if ours:
        alone = (x for x in ours if x not in told)
        found.append(Shared((*told, *alone), tuple(y for y, _ in told.values()), guessed=True))
    if theirs:
        alone = (y for y in theirs if y not in back)
        found.append(Shared(tuple(x for x, _ in back.values()), (*back, *alone), guessed=True))
    inputs = original.is_input_read(a) and scheduled.is_input_read(b)
    ours, theirs = ours or outermost((a.expr,)), theirs or outermost((b.expr,))
    types = [[dtype_of(d.operand) for d in data] for data in (ours, theirs)]
    if types[0] == types[1]:  # the data in the same places, which a message reports
        guessed = not inputs and any(len(data_in(x.expr)) > 1 for x in (a, b))
        found.append(Shared(ours, theirs, guessed))
    return found


def deciding(node: Node) -> tuple[Cast, ...]:
    """The data on which the element of a node depends; none for other nodes."""
    return tuple(dict.fromkeys(outermost(children(node.expr)))) if gathers(node) else ()


def _partners(
    a: At, wanted: tuple[Cast, ...], b: At, pairs: isl.Map, of_a: Values, of_b: Values
) -> dict[Cast, tuple[Cast, bool]]:
    """The wanted data of `a` that equal data of `b`, each with its counterpart and whether the equality is certain."""
    found: dict[Cast, tuple[Cast, bool]] = {}
    for x in wanted:
        for y in data_in(b.expr):
            told = _told_equal(At(a.statement, x.operand), At(b.statement, y.operand), pairs, of_a, of_b)
            if told is not None and dtype_of(x.operand) == dtype_of(y.operand):
                found[x] = y, told
                break
    return found


def _told_equal(a: At, b: At, pairs: isl.Map, of_a: Values, of_b: Values) -> bool | None:
    """Whether signatures show that both are equal: True, False if they leave something open, None if they differ."""
    rest, everything = pairs, True
    for x in of_a.signature(a):
        for y in of_b.signature(b):
            if x.text == y.text:
                everything &= "…" not in x.text
                rest = rest.subtract(x.subscripts.apply_range(y.subscripts.reverse()))
    return everything if rest.is_empty() else None


class Lifted:
    """Nodes of one program with variables for data; the same question returns the same node."""

    def __init__(self, values: Values) -> None:
        self._code = values.code
        self._nodes: dict[tuple[Key, tuple[Cast, ...]], At] = {}
        self._kept: list[At] = []

    def at(self, node: Node, data: Sequence[Cast]) -> Node:
        """The node with a variable in place of each of the data."""
        if isinstance(node, Total) or not data:
            return node
        k = key(node), tuple(data)
        if k not in self._nodes:
            statement, values = self._code.lifted(node.statement, data)
            self._kept.append(node)  # keys contain ids, so the object must stay alive
            self._nodes[k] = At(statement, with_values(node.expr, values))
        return self._nodes[k]


def at_all_numbers(pairs: isl.Map, a: Statement, b: Statement) -> isl.Map:
    """The pairs of instances for each value of the data, with equal values on both sides for the data that both have."""
    before, after = (pairs.dim(side) for side in (isl.dim_type.in_, isl.dim_type.out))
    shared = min(len(a.names) - before, len(b.names) - after)
    numbers = a.domain.project_out(isl.dim_type.set, before + shared, len(a.names) - before - shared)
    both = pairs.flat_product(numbers.project_out(isl.dim_type.set, 0, before).identity())
    of_a, of_b = (
        s.domain.identity().project_out(isl.dim_type.out, n, len(s.names) - n)
        for s, n in ((a, before + shared), (b, after + shared))
    )
    return of_a.apply_range(both).apply_range(of_b.reverse())


# Pairs the updates of a short reduction with the terms of an expression in which it is written out, in their order.
#
# Such a pairing is one to one, so the two are equal if all of its pairs are. Matching terms by what they are made of would
# do, too, but takes apart the sums in terms as well, of which a pipeline of stencils has thousands.


MOST = 64
"""The largest number of updates that are paired: longer reductions are not written out."""


def in_order(total: Total, written: At) -> list[tuple[At, isl.Map, At]] | None:
    """For each update of a total, in their order, its term, the map from the total's instances to it, and its counterpart.

    None if the expression does not have the form of all updates in their order. The instances that are asked for are often
    many pieces, in which a first update is hard to find; all of them are one.
    """
    domain = total.at.domain
    neutral = all(isinstance(s.store.value, Const) and is_neutral(total.kind, s.store.value) for s, _ in total.start)
    if not neutral or len(total.terms) != 1:
        return None
    (update, instances) = total.terms[0]
    rest = instances.intersect_domain(domain)
    steps: list[isl.Map] = []
    while not rest.is_empty():
        renew()
        first = first_of(rest)
        if len(steps) == MOST or not domain.is_subset(first.domain()):
            return None
        steps.append(first)
        rest = rest.subtract(first)
    if not steps or update.accumulates is None:
        return None
    term, node = At(update, update.accumulates.term), written
    out: list[tuple[At, isl.Map, At]] = []
    for step in reversed(steps[1:]):
        found = step_of(node)
        if found is None or found[0] != total.kind:
            return None
        node, last = found[1]
        out.append((term, step, last))
    return [*out, (term, steps[0], node)]


@problem(
    "E0805",
    "the programs compute different values{sizes}",
    help="let both compute this element from the same values",
)
def DIFFERENT(*, sizes: ExampleSizes) -> None: ...


ATTEMPTS = 3
"""The nesting depth of attempts, which take time and may be unnecessary."""

PIECES = 2
"""The number of pieces up to which a map of pairs is taken as it is."""

PATIENCE = 12
"""The number of times that an obligation may grow before it is widened to all of its pairs."""


class Shortcut(Enum):
    """A claim that suffices and is quickly proved or refuted. If a proof with it fails, less may be true and do."""

    IN_ORDER = auto()
    """The terms of a reduction that is written out are those of the reduction in their order."""
    NAMED = auto()
    """Statements compute the same where their iterators have the same values, or where they write the same element, and not
    only where that is needed."""
    JOINED = auto()
    """More elements are compared than are needed: those of one function in place of many pieces of it."""
    WHOLE = auto()
    """What the updates of two reductions add is compared as a whole, where it is a reduction or made by a scan itself."""


class Comparison:
    """The obligations between an original and a scheduled program. `prove` raises Refuted, Undecided or NotAffine.

    It may take the shortcuts in `allowed`; `taken` has those that it has taken.
    """

    def __init__(
        self,
        original: Values,
        scheduled: Values,
        allowed: Collection[Shortcut],
        depth: int = 0,
        pieces: int | None = None,
    ) -> None:
        self._allowed = allowed
        self._pieces = pieces
        """The pieces of an obligation at most, if that is limited."""
        self.taken: set[Shortcut] = set()
        self._depth = depth
        self.original = original
        self.scheduled = scheduled
        self._known: dict[tuple[Key, Key], isl.Map] = {}
        self._grown: dict[tuple[Key, Key], int] = {}
        self._kept: list[Node] = []
        self._same: dict[tuple[str, int, tuple[str, ...], int, tuple[str, ...]], isl.Map | None] = {}
        self._lifted = Lifted(original), Lifted(scheduled)
        self._widened = set[tuple[Key, Key]]()
        """What was widened already: each recurrence is, once."""
        self._guess = ""
        """The reason why a failed obligation refutes nothing; empty if it does."""

    def prove(self, first: Obligation) -> None:
        todo = {(key(first.a), key(first.b)): Asked(first, self._pieces)}
        order = [_rank(first, 0)]
        count = 0
        while order:
            *_, a, b = heappop(order)
            try:
                for o in self._step(self._simpler(todo.pop((a, b)).together())):
                    # Of whole stages at once: what several readers ask for in pieces is hard to join.
                    o = self._simpler(o) if is_whole(o.a) and is_whole(o.b) else o
                    k = key(o.a), key(o.b)
                    if k in todo:
                        todo[k].add(o.pairs)
                    else:
                        todo[k] = Asked(o, self._pieces)
                        heappush(order, _rank(o, count := count + 1))
            except Refuted as e:
                if self._guess:
                    raise Undecided(self._guess) from e
                raise

    def _simpler(self, o: Obligation) -> Obligation:
        return self._joined(self._named(o))

    def _named(self, o: Obligation) -> Obligation:
        """An obligation that `o` follows from, for all instances of two statements with the same values of iterators, or that
        write the same element of a buffer, if it has several pieces that lie there, or leads back to earlier instances.
        """
        several = o.pairs.n_basic_map() > 1 or is_recurrence(o.a)
        if Shortcut.NAMED in self._allowed and is_whole(o.a) and is_whole(o.b) and several:
            for by, found in (("iterators", self._same_iterators), ("element", self._same_element)):
                s, t = place(o.a), place(o.b)
                k = by, s.number, s.names, t.number, t.names
                if k not in self._same:
                    renew()
                    self._same[k] = found(s, t)
                if (same := self._same[k]) is not None and within(o.pairs, same):
                    self.taken.add(Shortcut.NAMED)
                    return replace(o, pairs=same)
        return o

    def _same_iterators(self, s: Statement, t: Statement) -> isl.Map | None:
        """The map between instances with the same values of iterators; None if they have different ones."""
        steps = self.original.code.in_order and not s.accumulates
        ours, theirs = ({n: e for n, kind, e in x.iters if steps or kind is not IterKind.REDUCE} for x in (s, t))
        if ours.keys() != theirs.keys():
            return None
        one, other = (mapping(x.names, [of[n] for n in ours]) for x, of in ((s, ours), (t, theirs)))
        return one.apply_range(other.reverse()).intersect_domain(s.domain).intersect_range(t.domain)

    def _same_element(self, s: Statement, t: Statement) -> isl.Map | None:
        """The map between instances that write the same element of a buffer; None if they write different ones. A stage keeps
        its name when what writes it becomes a copy, whose iterators are new.
        """
        if self.original.code.in_order and any(kind is IterKind.REDUCE for x in (s, t) for _, kind, _ in x.iters):
            return None  # a step of a sum writes the same element as all others
        ours, theirs = (x.code.shapes.get(y.store.buffer) for x, y in ((self.original, s), (self.scheduled, t)))
        homes = self.original.code.homes[s.store.buffer], self.scheduled.code.homes[t.store.buffer]
        if s.store.buffer != t.store.buffer or ours != theirs or any(homes):
            return None
        return self.original.code.written(s).apply_range(self.scheduled.code.written(t).reverse())

    def _joined(self, o: Obligation) -> Obligation:
        """An obligation that `o` follows from, of one piece, if it has many and is soon found to lie in the graph of one
        affine function."""
        if Shortcut.JOINED in self._allowed and is_whole(o.a) and o.pairs.n_basic_map() > PIECES:
            renew()
            try:
                graph = _graph(o)
            except isl.Error:
                renew()
                return o
            if graph is not None:
                self.taken.add(Shortcut.JOINED)
                return replace(o, pairs=graph)
        return o

    def _step(self, o: Obligation) -> list[Obligation]:
        """The obligations from which `o` follows."""
        renew()
        pairs = self._new(o)
        if pairs is None:
            return []
        a, b = o.a, o.b
        # Loads first, so that values of whole statements are compared: recurrences lead back to those. But where a step of a
        # recurrence hands on the value of the one before, as at the border of a stencil, both sides take that step together.
        # So too where a choice between reads was inlined into the other side: it leads to whole statements.
        waits = (is_own(a) and not is_load(b)) or (is_whole(a) and not is_load(a) and not is_whole(b))
        if (not waits and (is_load(a) or not is_load(b))) or self.scheduled.steps(b) is None:
            steps = self.original.steps(a)
            if steps is not None:
                self.original.require_written(a, pairs.domain())
                return [Obligation(n, b, m.reverse().apply_range(pairs)) for n, m in steps]
        steps = self.scheduled.steps(b)
        if steps is not None:
            self.scheduled.require_written(b, pairs.range())
            return [Obligation(a, n, pairs.apply_range(m)) for n, m in steps]
        if gathers(a) or gathers(b):
            return self._gathered(a, b, pairs)
        if isinstance(a, Total) or isinstance(b, Total):
            return self._totals(a, b, pairs)
        return self._operations(a, b, pairs)

    def _new(self, o: Obligation) -> isl.Map | None:
        """The pairs that have not been compared before; None if there are none."""
        if o.pairs.is_empty():
            return None
        require_simple(o.pairs)
        k = key(o.a), key(o.b)
        known = self._known.get(k)
        if known is None:
            self._kept += [o.a, o.b]
            self._known[k] = o.pairs
            return o.pairs
        new = o.pairs.subtract(known)
        if new.is_empty():
            return None
        self._grown[k] = self._grown.get(k, 0) + 1
        if self._grown[k] >= PATIENCE and k not in self._widened and is_whole(o.a) and is_whole(o.b):
            self._widened.add(k)
            self._guess = "a recurrence is not understood: its invariant was guessed, and does not hold"
            hull = isl.Map.from_basic_map(known.union(o.pairs).affine_hull())
            new = hull.intersect_domain(place(o.a).domain).intersect_range(place(o.b).domain)
        elif self._grown[k] > 3 * PATIENCE:
            raise Undecided("a recurrence is not understood: what it needs keeps growing")
        self._known[k] = joined(known.union(new))
        return new

    def _operations(self, a: At, b: At, pairs: isl.Map) -> list[Obligation]:
        x, y = a.expr, b.expr
        if is_index(x) and is_index(y):
            return self._subscripts(a, b, (x,), (y,), pairs)
        if dtype_of(x) == dtype_of(y) == INDEX and not loads(x) and not loads(y):
            pairs = self._unequal_numbers(a, b, pairs)
            if pairs.is_empty():
                return []
        if label(x) != label(y) or len(children(x)) != len(children(y)) or dtype_of(x) != dtype_of(y):
            raise self._different(a, b, pairs)
        if isinstance(x, Load) and isinstance(y, Load) and all(map(is_index, (*x.indices, *y.indices))):
            return self._subscripts(a, b, x.indices, y.indices, pairs)
        # The same number needs no pairs, of which a long expression has many.
        together = [
            (p, q) for p, q in zip(children(x), children(y), strict=True) if not (isinstance(p, Const) and p == q)
        ]
        return [Obligation(At(a.statement, p), At(b.statement, q), pairs) for p, q in together]

    def _unequal_numbers(self, a: At, b: At, pairs: isl.Map) -> isl.Map:
        """The pairs without those at which both numbers are affine, once the loops that have a single value there are
        numbers, and are equal: a product of two loops, and the number that it is where a step has written it out.
        """
        for piece in map(isl.Map.from_basic_map, pairs.get_basic_maps()):
            renew()
            x, y = fixed(a, piece.domain()), fixed(b, piece.range())
            if is_index(x) and is_index(y):
                ours, theirs = self.original.subscripts(a.statement, (x,)), self.scheduled.subscripts(b.statement, (y,))
                if piece.is_subset(ours.apply_range(theirs.reverse())):
                    pairs = pairs.subtract(piece)
        return pairs

    def _gathered(self, a: Node, b: Node, pairs: isl.Map) -> list[Obligation]:
        """For elements that depend on data: the data are equal, and the elements are equal for each value of the data."""
        ways: list[Shared] = []
        if isinstance(a, At) and isinstance(b, At):
            ways = shared_data(a, b, pairs, self.original, self.scheduled)
        if not ways:  # all elements that the data may select may have one value
            if all(v.is_input_read(n) for n, v in ((a, self.original), (b, self.scheduled)) if gathers(n)):
                raise self._different(a, b, pairs)
            ways = [Shared(deciding(a), () if gathers(a) else deciding(b), guessed=True)]
        for shared in ways[:-1] if self._depth < ATTEMPTS else ():
            if self._proves(self._at_shared(a, b, pairs, shared)):
                return []
        if ways[-1].guessed:
            self._guess = "the data that decide an element were found by a guess, and do not all agree"
        return self._at_shared(a, b, pairs, ways[-1])

    def _proves(self, all_of: list[Obligation]) -> bool:
        """Whether all of the obligations can be proved; the state of the comparison is unchanged."""
        attempt = Comparison(self.original, self.scheduled, self._allowed, self._depth + 1, self._pieces)
        try:
            for o in all_of:
                attempt.prove(o)
        except (Refuted, Undecided, NotAffine):
            return False
        finally:
            self.taken |= attempt.taken
        return True

    def _at_shared(self, a: Node, b: Node, pairs: isl.Map, shared: Shared) -> list[Obligation]:
        x, y = self._lifted[0].at(a, shared.ours), self._lifted[1].at(b, shared.theirs)
        rest = [Obligation(x, y, at_all_numbers(pairs, place(x), place(y)))]
        for p, q in zip(shared.ours, shared.theirs, strict=False):
            assert isinstance(a, At)  # only expressions have data
            assert isinstance(b, At)
            rest.append(Obligation(At(a.statement, p.operand), At(b.statement, q.operand), pairs))
        return rest

    def _subscripts(self, a: At, b: At, x: tuple[Expr, ...], y: tuple[Expr, ...], pairs: isl.Map) -> list[Obligation]:
        pieces = [isl.Map.from_basic_map(p) for p in pairs.get_basic_maps()]
        for i, j in zip(x, y, strict=True):
            ours, theirs = self.original.subscripts(a.statement, (i,)), self.scheduled.subscripts(b.statement, (j,))
            equal = ours.apply_range(theirs.reverse())
            for piece in pieces:  # each is a small question; all of them at once may be too large for isl
                renew()
                if not piece.is_subset(equal):
                    raise self._different(a, b, piece.subtract(equal))
        return []

    def _totals(self, a: Node, b: Node, pairs: isl.Map) -> list[Obligation]:
        found = self._written_out(a, b, pairs) if Shortcut.IN_ORDER in self._allowed else []
        if found:
            self.taken.add(Shortcut.IN_ORDER)
            return found
        if Shortcut.WHOLE in self._allowed and isinstance(a, Total) and isinstance(b, Total):
            try:
                found = self._matched(a, b, pairs, whole=True)
            except (Refuted, Undecided, NotAffine):
                pass
            else:
                self.taken.add(Shortcut.WHOLE)
                return found
        return self._matched(a, b, pairs)

    def _matched(self, a: Node, b: Node, pairs: isl.Map, whole: bool = False) -> list[Obligation]:
        """The obligations of two reductions whose terms are matched one to one."""
        kind = a.kind if isinstance(a, Total) else b.kind if isinstance(b, Total) else ""
        finite = (FINITE, True) in self.scheduled.code.program.annotations
        left = without_masked(terms_of(a, kind, self.original, pairs.domain(), whole), kind, self.original, finite)
        right = without_masked(terms_of(b, kind, self.scheduled, pairs.range(), whole), kind, self.scheduled, finite)
        alone = all(t.node is n for found, n in ((left, a), (right, b)) for t in found.found)
        if alone and len(left.found) == len(right.found) == 1:
            raise self._different(a, b, pairs)
        rest = list(match(left, right, kind, pairs, self.original, self.scheduled, place(a), place(b)))
        if any(m.guessed for m in rest):
            self._guess = "equal terms of a reduction were matched by a guess, and do not all agree"
        return [Obligation(m.a, m.b, m.pairs) for m in rest]

    def _written_out(self, a: Node, b: Node, pairs: isl.Map) -> list[Obligation]:
        """Obligations that suffice for a reduction to equal an expression of its terms; none if it has another form."""
        if isinstance(a, Total) and isinstance(b, At):
            found = in_order(a, b) or []
            return [Obligation(x, y, m.reverse().apply_range(pairs)) for x, m, y in found]
        if isinstance(a, At) and isinstance(b, Total):
            found = in_order(b, a) or []
            return [Obligation(y, x, pairs.apply_range(m)) for x, m, y in found]
        return []

    def _different(self, a: Node, b: Node, pairs: isl.Map) -> Refuted:
        s, t = place(a), place(b)
        (x, y), sizes = example(pairs.wrap(), [len(s.names), len(t.names)])
        notes = (
            Note(self.original.which, _told(a, self.original.code, s, x)),
            Note(self.scheduled.which, _told(b, self.scheduled.code, t, y)),
        )
        return Refuted(DIFFERENT(None, notes, sizes=sizes), sizes)


def _graph(o: Obligation) -> isl.Map | None:
    """The graph of an affine function that the pairs lie in, where they are; None if there is none. Raises isl.Error."""
    # Without strides: the even ones of two neighbours are a function too, but not one that was meant.
    graph = isl.Map.from_basic_map(o.pairs.affine_hull().remove_divs())
    if not graph.is_single_valued() and not graph.is_injective():
        return None
    # Not beyond the pairs to compare: another function holds there if a border begins.
    near = isl.Set.from_basic_set(o.pairs.domain().remove_divs().simple_hull())
    return graph.intersect_domain(near.intersect(place(o.a).domain)).intersect_range(place(o.b).domain)


def _rank(o: Obligation, count: int) -> tuple[int, int, int, Key, Key]:
    """What sorts the last statements first, and of two obligations the older: what a stage has to show for all that read it
    is asked of it at once.
    """
    return -place(o.a).number, -place(o.b).number, count, key(o.a), key(o.b)


def fixed(node: At, instances: isl.Set) -> Expr:
    """The expression of a node with numbers in place of the loops that have one value at all of these instances."""
    hull = isl.Set.from_basic_set(instances.affine_hull())
    values: dict[str, Expr] = {}
    for k, name in enumerate(node.statement.names):
        if not (value := hull.plain_get_val_if_fixed(isl.dim_type.set, k)).is_nan():
            values[name] = index(int(str(value)))
    return simplify(substitute(node.expr, values), {})


def is_load(node: Node) -> bool:
    return isinstance(node, At) and isinstance(node.expr, Load)


def is_own(node: Node) -> bool:
    """Whether the node reads the buffer that its statement stores into."""
    return isinstance(node, At) and isinstance(node.expr, Load) and node.expr.buffer == node.statement.store.buffer


def is_recurrence(node: Node) -> bool:
    """Whether the statement of the node reads what its other instances store."""
    s = place(node)
    return bool(s.iters) and any(x.buffer == s.store.buffer for x in loads(s.store.value))


def is_whole(node: Node) -> bool:
    """Whether the node has a value at every instance: it is under no condition of a choice."""
    return isinstance(node, Total) or node.expr is node.statement.store.value


def _told(node: Node, code: Code, s: Statement, values: tuple[int, ...]) -> str:
    what = f"`{code.told(s, node.expr)}`" if isinstance(node, At) else f"a reduction by `{operator(node.kind)}`"
    return f"{what}, in {at(s, values)}, which writes {written_by(code, s, values)}"
