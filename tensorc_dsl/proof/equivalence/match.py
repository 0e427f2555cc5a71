"""Matches the terms of two reductions one to one.

Terms are matched by their signatures: what they compute from the inputs, subscripts included. If several terms of one
result have the same signature (a sum of ones, or of values that contain other reductions), terms with the same fingerprint
are tried, then those with equal reduction iterators of the same names, then the matching of the other terms of the same
reduction, continued: of a row with a mask the terms in it tell which iterations are the same, and those outside, all equal,
follow them. At last those are tried that read the same elements. Terms that are equal throughout need only be as many, and
where signatures leave parts open, each must be equal to each. The search need not be trusted: the matching is checked to be
one to one, and parts that signatures leave open become obligations. A failed obligation of a guess refutes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tensorc_dsl.base.diagnostic import Note, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import Expr, loads
from tensorc_dsl.ir.program import IterKind
from tensorc_dsl.proof.equivalence.code import (
    ExampleSizes,
    Refuted,
    Statement,
    Undecided,
    at,
    example,
    point,
    written_by,
)
from tensorc_dsl.proof.equivalence.flow import (
    At,
    Node,
    Term,
    Terms,
    at_points,
    first_of,
    in_cases,
    place,
    require_simple,
)
from tensorc_dsl.proof.equivalence.terms import IDEMPOTENT, counts, fingerprint, is_neutral, operator
from tensorc_dsl.proof.equivalence.values import TAKEN, Signature, Values
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.isl import renew
from tensorc_dsl.proof.sets.sets import NotAffine, mapping

# The terms of a reduction, grouped by their signatures: what they compute from the inputs, subscripts included.


@frozen(eq=False)
class SignedTerms:
    """Instances of a term that have one signature; points of different parts of one side never coincide."""

    term: Term
    path: isl.Map
    point: isl.Map
    """The map from a point among all terms of the side to the point of the term's own path."""
    signature: isl.Map
    """The map from a point to the subscripts."""


def by_signature(
    terms: Sequence[Term], kind: str, values: Values, told: Callable[[Node], Signature]
) -> dict[str, list[SignedTerms]]:
    """The terms by the texts of their signatures, which `told` gives for a node, case by case.

    Terms that are neutral for a reduction of the kind are left out. Raises Undecided if a term has no signature.
    """
    width = max((t.path.dim(isl.dim_type.out) for t in terms), default=0)
    found: dict[str, list[SignedTerms]] = {}
    for n, term in enumerate(terms):
        own = term.path.dim(isl.dim_type.out)
        names = [f"p{k}" for k in range(own)]
        head = [str(n)] if len(terms) > 1 else []
        padded = ", ".join([*head, *names, *("0" for _ in range(width - own))])
        tag = isl.Map(f"{{ [{', '.join(names)}] -> [{padded}] }}")
        point = tag.reverse()
        leaf = point.apply_range(term.leaf)
        path = term.path.apply_range(tag)
        unsigned = path
        for case in told(term.node):
            renew()
            signature = leaf.apply_range(case.subscripts)
            part = path.intersect_range(signature.domain())
            if part.is_empty():
                continue
            unsigned = unsigned.subtract(part)
            if not is_neutral(kind, *case.constants):
                found.setdefault(case.text, []).append(SignedTerms(term, part, point, signature))
        if not unsigned.is_empty():
            values.require_all_written(term.node, unsigned.range().apply(leaf))
            raise Undecided("what a term of a reduction reads is not understood")
    return found


def elements_read(p: SignedTerms) -> tuple[tuple[str, ...], isl.Map]:
    """The buffers that terms read, as far as their subscripts are affine, and the map from points to these subscripts."""
    leaf = p.point.apply_range(p.term.leaf)
    if not isinstance(p.term.node, At):
        return (), leaf
    names, indices = p.term.node.statement.names, list[Expr]()
    read: list[str] = []
    for buffer, i in ((x.buffer, i) for x in loads(p.term.node.expr) for i in x.indices):
        with suppress(NotAffine):
            mapping(names, [i])
            indices.append(i)
            read.append(buffer)
    return tuple(read), leaf.apply_range(mapping(names, indices))


def terms_of_whole_elements(p: SignedTerms) -> tuple[tuple[str, ...], isl.Map]:
    """The buffer that terms are whole elements of, and the map from points to these; none for other terms."""
    s, leaf = place(p.term.node), p.point.apply_range(p.term.leaf)
    if not isinstance(p.term.node, At) or p.term.node.expr is s.store.value:
        with suppress(NotAffine):
            return (s.store.buffer,), leaf.apply_range(mapping(s.names, s.store.indices))
    return (), leaf


@problem(
    "E0806",
    "{what} of the reduction by `{operator}` that makes {element}{sizes}",
    help="let the loops of the reduction give each term once",
)
def TERMS(*, what: str, operator: str, element: str, sizes: ExampleSizes) -> None: ...


SEVERAL = 4
"""The pieces of a map beyond which a hull of them is tried first."""

_OPENED = re.compile(r"…((?:\+|\*|min|max|and|or) \w+)")
"""The kinds of the reductions in a signature that operations may stand for."""


@frozen(eq=False)
class Match:
    """Nodes that must be equal at `pairs` of instances; `guessed` if another matching might be right instead."""

    a: Node
    b: Node
    pairs: isl.Map
    guessed: bool


def match(
    left: Terms,
    right: Terms,
    kind: str,
    pairs: isl.Map,
    a: Values,
    b: Values,
    s: Statement,
    t: Statement,
) -> Iterator[Match]:
    """The obligations that remain after all terms are matched, for nodes that signatures do not determine.

    Raises Refuted if a term has no counterpart or too many, Undecided if no matching is found.
    """

    def by(told: Callable[[Values], Callable[[Node], Signature]]) -> list[dict[str, list[SignedTerms]]]:
        return [by_signature(x.found, kind, v, told(v)) for x, v in ((left, a), (right, b))]

    ours, theirs = by(lambda v: v.signature)
    apart = ours.keys() ^ theirs.keys()
    if any(TAKEN in text for text in apart):  # the other side may have a choice instead of a gather
        ours, theirs = by(lambda v: v.broad_signature)
        apart = ours.keys() ^ theirs.keys()
    if any("…" in text for text in apart):  # or operations instead of a reduction, or a scan whose loop is cut
        opened = frozenset(k for text in apart for k in _OPENED.findall(text))
        # Or what a stage computes instead of the element of the stage that data select.
        taken = [opened | {TAKEN}] if any(TAKEN in text for text in apart) else []
        for kinds in (opened, *taken):
            one, other = by(lambda v, kinds=kinds: partial(v.broad_signature, kinds=kinds))
            if one.keys() == other.keys():
                ours, theirs = one, other
                break
    sides = _Sides(kind, pairs, a, b, s, t)
    asked = [sides.question(text, ours.get(text, []), theirs.get(text, [])) for text in dict.fromkeys([*ours, *theirs])]
    known: list[isl.Map] = []
    for question in sorted((q for q in asked if q is not None), key=lambda q: not q.is_told):
        yield from question.matched(known)


def _union(maps: Sequence[isl.Map]) -> isl.Map:
    out = maps[0]
    for m in maps[1:]:
        out = out.union(m)
    return out


@frozen
class _Sides:
    """Two reductions."""

    kind: str
    pairs: isl.Map
    a: Values
    b: Values
    s: Statement
    t: Statement

    def question(self, text: str, ours: list[SignedTerms], theirs: list[SignedTerms]) -> _Question | None:
        """How the terms of one signature are matched; None without terms. Each has a counterpart on the other side.

        Raises Refuted if one has none.
        """
        renew()
        first = self.pairs.domain_map().apply_range(_union([p.path for p in ours])) if ours else None
        second = self.pairs.range_map().apply_range(_union([p.path for p in theirs])) if theirs else None
        if first is not None and first.is_empty():
            first = None
        if second is not None and second.is_empty():
            second = None
        if first is None and second is None:
            return None
        if TAKEN in text and (first is None or second is None):
            raise Undecided(
                "a term of a reduction has other elements that data decide, or is made of them in another way"
            )
        if second is None:
            assert first is not None
            raise self.unmatched("a term is missing", first, ours, self.a)
        if first is None:
            raise self.unmatched("there is a term too many", second, theirs, self.b)
        require_simple(first, second, *(p.signature for p in (*ours, *theirs)))
        one, other = (_union([p.signature for p in parts]) for parts in (ours, theirs))
        q = _Question(self, "…" not in text, ours, theirs, first, second, one, other)
        q.require_counterparts()
        return q

    def unmatched(self, what: str, rest: isl.Map, parts: list[SignedTerms], side: Values) -> Exception:
        """The error for unmatched terms: `rest` maps pairs of instances to points of these terms."""
        n, m = len(self.s.names), len(self.t.names)
        part, own = next((p, x) for p in parts if not (x := rest.intersect_range(p.path.range())).is_empty())
        (x, _, chosen), sizes = example(own.wrap(), [n, m, own.dim(isl.dim_type.out)])
        leaf = point(chosen).apply(part.point.apply_range(part.term.leaf))
        source = place(part.term.node)
        (values,), _ = example(leaf, [len(source.names)])
        note = Note(f"the term of {side.which}", at(source, values))
        element = written_by(self.a.code, self.s, x)
        return Refuted(
            TERMS(None, (note,), what=what, operator=operator(self.kind), element=element, sizes=sizes), sizes
        )


@dataclass(slots=True)
class _Question:
    """The terms of one signature. `whole` says that it leaves nothing open of what they compute."""

    sides: _Sides
    whole: bool
    ours: list[SignedTerms]
    theirs: list[SignedTerms]
    first: isl.Map
    """The map from pairs of instances to points of the original, and `second` that to points of the scheduled program."""
    second: isl.Map
    one: isl.Map
    """The map from points of the original to subscripts, and `other` that from points of the scheduled program."""
    other: isl.Map
    equal: isl.Map = field(init=False)
    is_told: bool = field(init=False)
    """Whether no further relation is needed to match the terms."""

    def __post_init__(self) -> None:
        self.equal = self.one.apply_range(self.other.reverse())
        self.first, self.second = in_cases(self.first), in_cases(self.second)
        # Of points that no pair has nothing is asked.
        self.equal = at_points(self.equal, self.first.range(), self.second.range())
        self.is_told = (self.whole and self._free) or _one_to_one(self.first, self.second, self.equal)

    @property
    def _free(self) -> bool:
        """Whether terms may be repeated."""
        return operator(self.sides.kind) in IDEMPOTENT

    def require_counterparts(self) -> None:
        """Raises Refuted if a term has no counterpart."""
        together = self._together(self.equal)
        rest = self.first.subtract(together.range_factor_domain())
        if not rest.is_empty():
            raise self.sides.unmatched("a term is missing", rest, self.ours, self.sides.a)
        rest = self.second.subtract(together.range_factor_range())
        if not rest.is_empty():
            raise self.sides.unmatched("there is a term too many", rest, self.theirs, self.sides.b)

    def matched(self, known: list[isl.Map]) -> Iterator[Match]:
        """The obligations after the terms are matched. `known` has the matchings of other terms, and gets this one."""
        renew()
        equal, guessed = self.equal, False
        # Equal terms may be matched in any one-to-one way, or in any way at all if terms may be repeated. If signatures
        # leave equality open, equal iterators decide.
        if not self.is_told:
            repeated: isl.Map | None = None
            for relation in (
                self._told, self._counted, self._named, lambda: _union(known) if known else None, self._read, self._made
            ):  # fmt: skip
                finer = relation()
                if finer is None or not _covered(self.first, self.second, finer := equal.intersect(finer)):
                    continue
                if _one_to_one(self.first, self.second, finer):
                    equal, guessed = finer, relation != self._told
                    break
                if self._free and repeated is None:
                    # Terms may be repeated, but what is told of them may leave out what data select: the next relation says.
                    equal = repeated = finer
                    guessed = relation != self._told
            else:
                if repeated is None:
                    # As many equal terms on both sides are matched in any way, if each is equal to each.
                    if not self._as_many():
                        raise self._ambiguous() if self._free else self._too_often()
                    if self.whole:
                        return
                    guessed = True
        points = self._together(equal).range().unwrap()
        for p in self.ours:
            for q in self.theirs:
                own = points.intersect_domain(p.path.range()).intersect_range(q.path.range())
                if own.is_empty():
                    continue
                known.append(isl.Map.from_basic_map(own.affine_hull()))
                if not self.whole:
                    x, y = p.point.apply_range(p.term.leaf), q.point.apply_range(q.term.leaf)
                    yield Match(p.term.node, q.term.node, x.reverse().apply_range(own).apply_range(y), guessed)

    def _together(self, equal: isl.Map) -> isl.Map:
        return self.first.range_product(self.second).intersect_range(equal.wrap())

    def _as_many(self) -> bool:
        """Whether each result has as many of these terms on both sides."""
        one, other = (
            counts(x.domain_product(told.reverse()).flatten_domain())
            for x, told in ((self.first, self.one), (self.second, self.other))
        )
        if one is None or other is None:
            return False
        return one.domain().is_equal(other.domain()) and one.ne_set(other).is_empty()

    def _counted(self) -> isl.Map | None:
        """Terms with the same fingerprint, and as many of each factor."""
        return self._told(counted=True)

    def _told(self, counted: bool = False) -> isl.Map | None:
        """Terms with the same fingerprint: the map from points of the original to points of the scheduled program."""
        ours, theirs = (
            [
                (case.text, p.point.apply_range(p.term.leaf).apply_range(case.subscripts))
                for p in parts
                for case in fingerprint(p.term, side, counted)
            ]
            for parts, side in ((self.ours, self.sides.a), (self.theirs, self.sides.b))
        )
        found = [x.apply_range(y.reverse()) for one, x in ours for other, y in theirs if one == other]
        return _union(found) if found else None

    def _named(self) -> isl.Map | None:
        """Terms with equal reduction iterators: the map from points of the original to points of the scheduled program."""
        found: list[isl.Map] = []
        for p in self.ours:
            for q in self.theirs:
                if p.term.update is None or q.term.update is None:
                    return None
                (u, x), (v, y) = p.term.update, q.term.update
                names = [n for n, k, _ in u.iters if k is IterKind.REDUCE]
                values = {n: e for n, _, e in v.iters}
                if not all(n in values for n in names):
                    return None
                own = {n: e for n, _, e in u.iters}
                one = p.point.apply_range(x).apply_range(mapping(u.names, [own[n] for n in names]))
                other = q.point.apply_range(y).apply_range(mapping(v.names, [values[n] for n in names]))
                found.append(one.apply_range(other.reverse()))
        return _union(found)

    def _read(self) -> isl.Map | None:
        """Terms that read the same elements of buffers of one name, one after another: what a scan makes of its own earlier
        elements has no other signature.
        """
        return self._alike(elements_read)

    def _made(self) -> isl.Map | None:
        """Terms that are the same elements of buffers of one name, such as those of a stage that is an output as well."""
        return self._alike(terms_of_whole_elements)

    def _alike(self, told: Callable[[SignedTerms], tuple[tuple[str, ...], isl.Map]]) -> isl.Map | None:
        """The map from points of the original to points of the scheduled program of which the same is told. A buffer of
        another rank has other elements.
        """
        ours, theirs = ([told(p) for p in parts] for parts in (self.ours, self.theirs))
        found = [
            x.apply_range(y.reverse())
            for one, x in ours
            for other, y in theirs
            if one and one == other and x.range().get_space() == y.range().get_space()
        ]
        return _union(found) if found else None

    def _ambiguous(self) -> Exception:
        return Undecided("equal terms of a reduction cannot be told apart, so they are not matched one to one")

    def _too_often(self) -> Exception:
        told_apart = (
            self.first.apply_range(self.one).range_product(self.first).intersect_range(self.one.reverse().wrap())
        )
        if not told_apart.uncurry().is_single_valued():
            return self._ambiguous()
        by_ours = self._together(self.equal).uncurry()
        again = by_ours.subtract(first_of(by_ours)).curry().range_factor_range()
        return self.sides.unmatched("a term comes more than once: one", again, self.theirs, self.sides.b)


def _covered(first: isl.Map, second: isl.Map, equal: isl.Map) -> bool:
    """Whether each point of either side has a counterpart."""
    together = first.range_product(second).intersect_range(equal.wrap())
    return first.is_subset(together.range_factor_domain()) and second.is_subset(together.range_factor_range())


def _one_to_one(first: isl.Map, second: isl.Map, equal: isl.Map) -> bool:
    """Whether each point of either side has at most one counterpart, for each pair of instances."""
    for x, y, e in ((first, second, equal), (second, first, equal.reverse())):
        renew()
        if not _is_single_valued(x.range_product(y).intersect_range(e.wrap()).uncurry()):
            return False
    return True


def _is_single_valued(m: isl.Map) -> bool:
    """Whether the map gives each point one at most. isl compares all pairs of its pieces, and conditions joined by `or` make
    many; mostly what all pieces have in common decides.
    """
    return (
        m.n_basic_map() > SEVERAL and isl.Map.from_basic_map(m.unshifted_simple_hull()).is_single_valued()
    ) or m.is_single_valued()
