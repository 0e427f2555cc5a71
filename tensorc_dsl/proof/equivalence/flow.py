"""Array dataflow: for each read, exactly which write it sees.

The last write before a read is found as by Feautrier ("Dataflow analysis of array and scalar references", 1991): the
last one in lexicographic order among those that access the element earlier. Updates that commute are not followed one by
one. A read sees them as a `Total`: the value that the last other write left, and the set of all updates since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeVar

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import ONE, Compare, Expr, Load, Var
from tensorc_dsl.ir.program import IterKind
from tensorc_dsl.proof.equivalence.code import Accumulation, Code, Statement, Undecided, common_loops
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.isl import renew
from tensorc_dsl.proof.sets.sets import mapping, points

# Removes divisions from maps between instances that do not affect what they map.
#
# A copy through a layout with `i / 2 * 2 + j` and `i % 2` maps each instance to itself, but the map, composed of the layout
# and its inverse, is full of divisions, and the time of the integer set library is exponential in these. So a map is
# simplified at every step from a read to its write, and no query is made about one that stays too intricate.


M = TypeVar("M", "isl.Map", "isl.Set")

INTRICATE = 48
"""The number of divisions in one piece of a map at which a question about it can take minutes. Maps of usual programs have
fewer than 10."""

SEVERAL = 4
"""The number of divisions up to which a map is left as it is."""

CASES = 32
"""The number of cases up to which a map is taken case by case."""

HULL = 4
"""The budget for the equalities of a swizzled layout, as a multiple of that of other questions."""


def plain(m: isl.Map) -> isl.Map:
    """An equal map, with fewer divisions if its equalities or the shape of its domain imply them."""
    if divisions(m) == 0:
        return m
    parts: list[isl.Map] = []
    for piece in m.get_basic_maps():
        renew(HULL)
        part = isl.Map.from_basic_map(piece)
        equalities = part.affine_hull()  # of a map: that of a piece breaks the piece, an error of isl
        for found in map(isl.Map.from_basic_map, (equalities.remove_divs(), equalities)):
            if divisions(found) < divisions(part) and found.is_single_valued():
                # Contains `part`, and nothing else on its domain.
                part = found.intersect_domain(_plain_set(part.domain()))
                break
        parts.append(part)
    renew()
    return joined(reduce(isl.Map.union, parts))


def _plain_set(s: isl.Set) -> isl.Set:
    if divisions(s) == 0:
        return s
    found = isl.Set.from_basic_set(s.simple_hull().remove_divs())
    return found if found.is_subset(s) else s


def joined(m: M) -> M:
    """An equal map or set, of fewer pieces if isl can join some. Nothing depends on it: where that takes too many operations,
    it is `m`.
    """
    renew()
    try:
        return m.coalesce()
    except isl.Error:
        renew()
        return m


def last_of(m: isl.Map) -> isl.Map:
    """The greatest image of each point in lexicographic order. isl 2026.2.2 fails at some maps with redundant
    constraints, "affine expression involves some of the domain dimensions", and not at equal ones without.
    """
    try:
        return m.lexmax()
    except isl.Error:
        renew()
        return m.remove_redundancies().lexmax()


def first_of(m: isl.Map) -> isl.Map:
    """The least image of each point; see `last_of`."""
    try:
        return m.lexmin()
    except isl.Error:
        renew()
        return m.remove_redundancies().lexmin()


def convex(m: isl.Map) -> isl.Map:
    """An equal map, of one piece if its convex hull is soon found to be equal to it. isl joins two pieces if one constraint
    of each tells them apart; windows that are cut off at a border and lie in tiles have more.
    """
    if m.n_basic_map() < 2:
        return m
    renew()
    try:
        hull = isl.Map.from_basic_map(m.convex_hull())
        return hull if hull.is_subset(m) else m
    except isl.Error:
        renew()
        return m


def in_cases(m: isl.Map) -> isl.Map:
    """An equal map whose pieces have one value each of those coordinates of its range that leaves fewer divisions: where a
    range of steps begins is a quotient of its number, and of each range it is a number. Divisions that few numbers decide
    take isl longer than as many pieces.
    """
    if divisions(m) <= SEVERAL:
        return m
    renew()
    try:
        cases, points = [m], m.range()
        for k in range(points.dim(isl.dim_type.set)):
            low, high = points.dim_min_val(k), points.dim_max_val(k)
            if not (low.is_int() and high.is_int()):
                continue
            values = range(low.to_python(), high.to_python() + 1)
            if len(values) * len(cases) > CASES:
                continue
            fixed = (c.fix_val(isl.dim_type.out, k, isl.Val(v)) for c in cases for v in values)
            found = [c for c in fixed if not c.is_empty()]
            if max(map(divisions, found)) < max(map(divisions, cases)):
                cases = found
        return reduce(isl.Map.union, cases)
    except isl.Error:
        renew()
        return m


def at_points(m: isl.Map, domain: isl.Set, others: isl.Set) -> isl.Map:
    """A map that is equal to `m` between these sets, and says less of other points where that saves divisions."""
    if divisions(m) <= SEVERAL:
        return m
    renew()
    try:
        return m.gist_domain(domain).gist_range(others)
    except isl.Error:
        renew()
        return m


def within(m: isl.Map, other: isl.Map) -> bool:
    """Whether all of `m` is seen to lie in `other`; not if that takes too many operations."""
    renew()
    try:
        return m.is_subset(other)
    except isl.Error:
        renew()
        return False


def divisions(m: isl.Map | isl.Set) -> int:
    """The largest number of divisions, or other existentially quantified values, in one piece."""
    pieces = m.get_basic_maps() if isinstance(m, isl.Map) else m.get_basic_sets()
    return max((p.dim(isl.dim_type.div) for p in pieces), default=0)


def require_simple(*maps: isl.Map) -> None:
    """Raises Undecided where a question about the maps could take too long."""
    if any(divisions(m) > INTRICATE for m in maps):
        raise Undecided("subscripts go through too many divisions")


@frozen(eq=False)
class Total:
    """The value of a reduction. Its instances are those of `at`: the write that it starts from, or a read before its end."""

    kind: str
    at: Statement
    start: tuple[tuple[Statement, isl.Map], ...]
    """For each statement that it may start from, the map from an instance of the total to an instance of the statement."""
    terms: tuple[tuple[Statement, isl.Map], ...]
    """For each statement that updates it, the map from an instance of the total to all of its updates."""
    finished: bool
    totals: tuple[tuple[Total, isl.Map], ...] = ()
    """For each total that is a term itself, the map from an instance of this one to all of its instances."""


@frozen(eq=False)
class Seen:
    """A source that a read may see, with the map from instances of the reader to instances of the source."""

    source: Statement | Total
    instances: isl.Map


@frozen(eq=False)
class Pairs:
    """Pairs of two points, as instances of `at`."""

    at: Statement
    made: isl.Map
    """The map from a first point to the pairs that it is in."""
    first: isl.Map
    second: isl.Map


class Flow:
    """The sources of a program's reads. Raises NotAffine for subscripts that are not affine."""

    def __init__(self, code: Code, scales: Mapping[str, str]) -> None:
        """With the kinds of linear recurrences and segmented scans, each with that of its products."""
        self.code = code
        self._scales = scales
        self._seen: dict[tuple[int, tuple[str, ...], str, tuple[Expr, ...]], tuple[Seen, ...]] = {}
        self._follows: dict[tuple[int, tuple[str, ...], str, tuple[Expr, ...]], tuple[isl.Map, isl.Map] | None] = {}
        self._started: dict[int, tuple[tuple[Statement, isl.Map], ...]] = {}
        self._totals: dict[tuple[int, str], Total] = {}
        self._chains: dict[int, Total | None] = {}
        self._made = 0

    def seen(self, reader: Statement, read: Load) -> tuple[Seen, ...]:
        """The sources of a read of a written buffer. For instances without a source, the element is not written."""
        key = (reader.number, reader.names, read.buffer, read.indices)
        if key not in self._seen:
            self._seen[key] = self._find(reader, read)
        return self._seen[key]

    def chain(self, s: Statement) -> Total | None:
        """The value of a step of a running reduction as the total of the terms so far; None if not each step reads what the
        one before has stored.

        Theorem: the value at step `t` is the first term if `t` is 0, else the value at `t - 1` combined with one more. If all
        steps see that value, it combines the terms of all steps up to `t`, each of which is one instance. If each step also
        scales the value before by a factor, and this distributes, the term of step `j` is scaled by the factors of all steps
        from `j + 1` to `t`. If steps may begin anew, it is left out where one of these does.
        """
        if s.number not in self._chains:
            self._chains[s.number] = self._chain(s)
        return self._chains[s.number]

    def _chain(self, s: Statement) -> Total | None:
        if s.runs is None or self.code.writers[s.store.buffer] != [s]:
            return None
        values = [e for _, _, e in s.iters]
        columns = [e for _, kind, e in s.iters if kind is not IterKind.SCAN]
        if not mapping(s.names, values).intersect_domain(s.domain).is_injective():
            return None
        same = equal(s, columns)
        before, up_to = (compared(s, s.runs.step, how).intersect(same) for how in ("b = a - 1", "b <= a"))
        later = s.domain.intersect(points(s.names, [Compare(">=", s.runs.step, ONE)]))
        for seen in self.seen(s, s.runs.read):
            of_later = seen.instances.intersect_domain(later)
            if of_later.is_empty():
                continue
            if seen.source is not s or not within(of_later, before):
                return None
            later = later.subtract(of_later.domain())
        if not later.is_empty():
            return None
        scale, reset = s.runs.scale, s.runs.reset
        if scale is None and reset is None:
            term = replace(s, accumulates=Accumulation(s.runs.kind, s.runs.term))
            return Total(s.runs.kind, s, (), ((term, up_to),), finished=True)
        later = compared(s, s.runs.step, "b > a").intersect(same)
        scaled = self.pairs(s, up_to)
        factors = scaled.first.apply_range(up_to).intersect(scaled.second.apply_range(later))
        by = scale.kind if scale else self._scales[s.runs.kind]
        passed = (*((scale.term,) if scale else ()), *((reset,) if reset else ()))
        parts = (s.runs.term, scaled.second), *((e, factors) for e in passed)
        product = Total(
            by,
            scaled.at,
            (),
            tuple((replace(s, accumulates=Accumulation(by, e)), m) for e, m in parts),
            True,
        )
        return Total(s.runs.kind, s, (), (), finished=True, totals=((product, scaled.made),))

    def pairs(self, s: Statement, m: isl.Map) -> Pairs:
        """The pairs of an instance of a statement and what a map has for it, as instances of a statement that is nowhere."""
        made = s.domain.identity().flat_range_product(m)
        both, n = made.range(), len(s.names)
        self._made += 1
        names = (*s.names, *(f"q{self._made}_{k}'" for k in range(both.dim(isl.dim_type.set) - n)))
        at = replace(s, names=names, domain=both, accumulates=None, runs=None)
        first = both.identity().project_out(isl.dim_type.out, n, len(names) - n)
        return Pairs(at, made, first, both.identity().project_out(isl.dim_type.out, 0, n))

    def follows_writes(self, reader: Statement, read: Load, asked: isl.Set) -> bool:
        """Theorem: the read has a source at each instance to compare, if writes that stand before it in the text write
        all elements that it reads there, in the same iteration of the loops around both.

        This compares elements, of which writes cover boxes. The sources of mirrored or strided reads have no such form.
        """
        key = (reader.number, reader.names, read.buffer, read.indices)
        if key not in self._follows:
            element = self.code.touched(reader, read.buffer, read.indices)
            written = isl.Map.empty(element.get_space())
            for w in self.code.writers.get(read.buffer, []):
                if w.number < reader.number and w.accumulates is None:
                    outer = range(common_loops(w, reader))
                    shared = [mapping(x.names, [Var(x.names[k]) for k in outer]) for x in (reader, w)]
                    of_iteration = shared[1].reverse().apply_range(self.code.written(w))
                    written = written.union(shared[0].apply_range(of_iteration))
            self._follows[key] = None if within(element, written) else (element, written)
        rest = self._follows[key]
        # Beyond a border, which the instances leave out, a read may be anywhere.
        return rest is None or within(rest[0].intersect_domain(asked), rest[1])

    def _find(self, reader: Statement, read: Load) -> tuple[Seen, ...]:
        element = self.code.touched(reader, read.buffer, read.indices)
        writers = self.code.writers.get(read.buffer, [])
        kinds = list(dict.fromkeys(s.accumulates.kind for s in writers if s.accumulates))
        plain = [
            Seen(w, m)
            for w, m in self._last(reader, element, [s for s in writers if len(kinds) != 1 or not s.accumulates])
        ]
        if len(kinds) == 1:
            return tuple(x for seen in plain for x in self._since(seen, kinds[0], reader))
        # If the last write is an update, the read sees the total of its kind.
        out: list[Seen] = []
        for seen in plain:
            assert isinstance(seen.source, Statement)
            if seen.source.accumulates is None:
                out.append(seen)
        for kind in kinds:
            latest = [x.instances.domain() for x in plain if _kind(x.source) == kind]
            for w, m in self._last(reader, element, [s for s in writers if _kind(s) != kind]):
                for domain in latest:
                    if not (own := m.intersect_domain(domain)).is_empty():
                        out += self._since(Seen(w, own), kind, reader)
        return tuple(out)

    def _since(self, seen: Seen, kind: str, reader: Statement) -> Iterator[Seen]:
        """The total of a kind that a read sees, if its last write of another kind is `seen`."""
        w, m = seen.source, seen.instances
        assert isinstance(w, Statement)
        total = self._total(w, kind)
        if all(m.apply_range(t).intersect(self._not_before(u, reader)).is_empty() for u, t in total.terms):
            yield Seen(total, m)
            return
        terms = tuple((u, m.apply_range(t).intersect(self.code.before(u, reader).reverse())) for u, t in total.terms)
        yield Seen(Total(kind, reader, ((w, m),), terms, finished=False), m.domain().identity())

    def _total(self, start: Statement, kind: str) -> Total:
        """The value that a write leaves, with all updates of a kind until the next write of another kind."""
        key = (start.number, kind)
        if key not in self._totals:
            updates = [u for u in self.code.writers[start.store.buffer] if _kind(u) == kind]
            terms = [(u, m.reverse()) for u in updates for w, m in self._starts(u) if w is start]
            same = start.domain.identity()
            self._totals[key] = Total(kind, start, ((start, same),), tuple(terms), finished=True)
        return self._totals[key]

    def _starts(self, update: Statement) -> tuple[tuple[Statement, isl.Map], ...]:
        """The last write of another kind before each instance of an update."""
        if update.number not in self._started:
            others = [s for s in self.code.writers[update.store.buffer] if _kind(s) != _kind(update)]
            self._started[update.number] = self._last(update, self.code.written(update), others)
        return self._started[update.number]

    def _last(
        self, reader: Statement, element: isl.Map, writers: Sequence[Statement]
    ) -> tuple[tuple[Statement, isl.Map], ...]:
        """For each instance of the reader, the last instance of the writers that writes the element before it."""
        found: list[tuple[Statement, isl.Map]] = []
        for w in writers:
            renew()
            earlier = element.apply_range(self.code.written(w).reverse())
            earlier = earlier.intersect(self.code.before(w, reader).reverse())
            if earlier.is_empty():
                continue
            if not earlier.is_single_valued():
                earlier = last_of(earlier)
            found.append((w, joined(earlier)))
        out: list[tuple[Statement, isl.Map]] = []
        for k, (w, m) in enumerate(found):
            for j, (v, n) in enumerate(found):
                if j == k or m.domain().is_disjoint(n.domain()):
                    continue
                # Composed: of the product of both maps with the order of all pairs, isl does not find an end.
                later = m.apply_range(self.code.before(w, v)).intersect(n).domain()
                m = m.subtract_domain(joined(later.remove_redundancies()) if later.n_basic_set() > 1 else later)
            if not m.is_empty():
                # There are pieces with a constraint `1 >= 0`: where those are joined, isl 2026.2.2 ends the process.
                out.append((w, plain(joined(m.remove_redundancies() if m.n_basic_map() > 1 else m))))
        return tuple(out)

    def _not_before(self, update: Statement, reader: Statement) -> isl.Map:
        """The map from the instances of the reader to the instances of the update that are not earlier."""
        later = self.code.before(reader, update)
        if reader is update:
            later = later.union(isl.Map.identity(later.get_space()))
        return later


def equal(s: Statement, values: Sequence[Expr]) -> isl.Map:
    """The map between instances of a statement at which the values are equal."""
    found = mapping(s.names, values).intersect_domain(s.domain)
    return found.apply_range(found.reverse())


def compared(s: Statement, value: Expr, how: str) -> isl.Map:
    """The map from instances with a value `a` to instances with a value `b` as `how` says."""
    found = mapping(s.names, [value]).intersect_domain(s.domain)
    return found.apply_range(isl.Map(f"{{ [a] -> [b] : {how} }}")).apply_range(found.reverse())


def _kind(source: Statement | Total) -> str | None:
    """The kind of the updates that a statement or total belongs to; None for other statements."""
    return source.accumulates.kind if isinstance(source, Statement) and source.accumulates else None


@frozen(eq=False)
class At:
    """An expression in a statement; its instances are those of the statement."""

    statement: Statement
    expr: Expr


Node = At | Total
Key = tuple[int, tuple[str, ...], int]
Sources = tuple[tuple[Node, isl.Map], ...]
"""Nodes that have a node's value, with maps from its instances to theirs."""


def place(node: Node) -> Statement:
    return node.statement if isinstance(node, At) else node.at


def key(node: Node) -> Key:
    return (node.statement.number, node.statement.names, id(node.expr)) if isinstance(node, At) else (-1, (), id(node))


@frozen(eq=False)
class Term:
    """Some terms of a total: one for each point of a path. The term's value is that of `node` at the point's `leaf`."""

    node: Node
    path: isl.Map
    """The map from an instance of the total to points that identify its terms."""
    leaf: isl.Map
    """The map from such a point to the instance of the node."""
    update: tuple[Statement, isl.Map] | None
    """The statement that combines the term, and the map to its instance."""


@dataclass(slots=True)
class Terms:
    """All terms of a node, as a reduction of one kind."""

    found: list[Term] = field(default_factory=list[Term])
    whole: bool = False
    """Whether what an update adds is one term, although it is a reduction of that kind itself."""
