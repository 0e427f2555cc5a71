"""Matches the terms of two reductions one to one.

Terms are matched by their signatures: what they compute from the inputs, subscripts included. If several terms of one
result have the same signature (a sum of ones, or of values that contain other reductions), terms with the same fingerprint
are tried, then those with equal reduction iterators of the same names. The search need not be trusted: the matching is
checked to be one to one, and parts that signatures leave open become obligations. A failed obligation of a guess refutes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.budget import renew
from tensorc_dsl.affine.sets import mapping
from tensorc_dsl.diagnostic import Note, problem
from tensorc_dsl.ir.program import IterKind
from tensorc_dsl.validate.code import Statement
from tensorc_dsl.validate.facts import ExampleSizes, Refuted, Undecided, at, example, point, written_by
from tensorc_dsl.validate.plain import require_simple
from tensorc_dsl.validate.terms import IDEMPOTENT, Term, Terms, is_neutral, operator
from tensorc_dsl.validate.values import TAKEN, Node, Signature, Values, place


@problem("E0806", "{what} of the reduction by `{operator}` that makes {element}{sizes}")
def TERMS(*, what: str, operator: str, element: str, sizes: ExampleSizes) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Nodes that must be equal at `pairs` of instances; `guessed` if another matching might be right instead."""

    a: Node
    b: Node
    pairs: isl.Map
    guessed: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The terms of one signature; points of different parts of one side never coincide."""

    term: Term
    path: isl.Map
    point: isl.Map
    """The map from a point among all terms of the side to the point of the term's own path."""
    signature: isl.Map
    """The map from a point to the subscripts."""


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
    starts = left.starts | right.starts
    ours, theirs = (_by_signature(x.found, kind, starts, v, v.signature) for x, v in ((left, a), (right, b)))
    if any(
        TAKEN in text for text in ours.keys() ^ theirs.keys()
    ):  # the other side may have a choice instead of a gather
        ours, theirs = (_by_signature(x.found, kind, starts, v, v.broad_signature) for x, v in ((left, a), (right, b)))
    for text in dict.fromkeys([*ours, *theirs]):
        question = _Question(kind, pairs, a, b, s, t)
        yield from question.matched(text, ours.get(text, []), theirs.get(text, []))


def _by_signature(
    terms: Sequence[Term], kind: str, starts: Collection[str], values: Values, told: Callable[[Node], Signature]
) -> dict[str, list[_Part]]:
    width = max((t.path.dim(isl.dim_type.out) for t in terms), default=0)
    found: dict[str, list[_Part]] = {}
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
            declared = [f"{c.value}" for c in case.constants]  # neutral because the file says so
            if not is_neutral(kind, *case.constants) and not (len(declared) == 1 and declared[0] in starts):
                found.setdefault(case.text, []).append(_Part(term, part, point, signature))
        if not unsigned.is_empty():
            values.require_all_written(term.node, unsigned.range().apply(leaf))
            raise Undecided("what a term of a reduction reads is not understood")
    return found


def _union(maps: Sequence[isl.Map]) -> isl.Map:
    out = maps[0]
    for m in maps[1:]:
        out = out.union(m)
    return out


@dataclass(slots=True)
class _Question:
    kind: str
    pairs: isl.Map
    a: Values
    b: Values
    s: Statement
    t: Statement

    def matched(self, text: str, ours: list[_Part], theirs: list[_Part]) -> Iterator[Match]:
        renew()
        first = self.pairs.domain_map().apply_range(_union([p.path for p in ours])) if ours else None
        second = self.pairs.range_map().apply_range(_union([p.path for p in theirs])) if theirs else None
        if first is not None and first.is_empty():
            first = None
        if second is not None and second.is_empty():
            second = None
        if first is None and second is None:
            return
        if TAKEN in text and (first is None or second is None):
            raise Undecided(
                "a term of a reduction has other elements that data decide, or is made of them in another way"
            )
        if second is None:
            assert first is not None
            raise self._unmatched("a term is missing", first, ours, self.a)
        if first is None:
            raise self._unmatched("there is a term too many", second, theirs, self.b)
        require_simple(first, second, *(p.signature for p in (*ours, *theirs)))
        equal = _union([p.signature for p in ours]).apply_range(_union([p.signature for p in theirs]).reverse())
        together = first.range_product(second).intersect_range(equal.wrap())
        self._complete(first, second, together, ours, theirs)
        # Equal terms may be matched in any one-to-one way, or in any way at all if terms may be repeated. If signatures
        # leave equality open, equal iterators decide.
        free = operator(self.kind) in IDEMPOTENT
        guessed = False
        if not (free and "…" not in text) and not _one_to_one(first, second, equal):
            for relation in (self._told, self._named):
                finer = relation(ours, theirs)
                if finer is not None and _covered(first, second, finer := equal.intersect(finer)):
                    if free or _one_to_one(first, second, finer):
                        equal, guessed = finer, relation == self._named
                        break
            else:
                raise self._ambiguous() if free else self._too_often(first, together, ours, theirs)
            together = first.range_product(second).intersect_range(equal.wrap())
        if "…" in text:
            points = together.range().unwrap()
            for p in ours:
                for q in theirs:
                    x, y = p.point.apply_range(p.term.leaf), q.point.apply_range(q.term.leaf)
                    own = points.intersect_domain(p.path.range()).intersect_range(q.path.range())
                    yield Match(p.term.node, q.term.node, x.reverse().apply_range(own).apply_range(y), guessed)

    def _complete(
        self, first: isl.Map, second: isl.Map, together: isl.Map, ours: list[_Part], theirs: list[_Part]
    ) -> None:
        rest = first.subtract(together.range_factor_domain())
        if not rest.is_empty():
            raise self._unmatched("a term is missing", rest, ours, self.a)
        rest = second.subtract(together.range_factor_range())
        if not rest.is_empty():
            raise self._unmatched("there is a term too many", rest, theirs, self.b)

    def _told(self, ours: list[_Part], theirs: list[_Part]) -> isl.Map | None:
        """Terms with the same fingerprint: the map from points of the original to points of the scheduled program."""
        found: list[isl.Map] = []
        for p in ours:
            for q in theirs:
                for x in self.a.fingerprint(p.term.node):
                    for y in self.b.fingerprint(q.term.node):
                        if x.text == y.text:
                            one, other = (
                                part.point.apply_range(part.term.leaf).apply_range(case.subscripts)
                                for part, case in ((p, x), (q, y))
                            )
                            found.append(one.apply_range(other.reverse()))
        return _union(found) if found else None

    def _named(self, ours: list[_Part], theirs: list[_Part]) -> isl.Map | None:
        """Terms with equal reduction iterators: the map from points of the original to points of the scheduled program."""
        found: list[isl.Map] = []
        for p in ours:
            for q in theirs:
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

    def _ambiguous(self) -> Exception:
        return Undecided("equal terms of a reduction cannot be told apart, so they are not matched one to one")

    def _too_often(self, first: isl.Map, together: isl.Map, ours: list[_Part], theirs: list[_Part]) -> Exception:
        equal = _union([p.signature for p in ours])
        told_apart = first.apply_range(equal).range_product(first).intersect_range(equal.reverse().wrap())
        if not told_apart.uncurry().is_single_valued():
            return self._ambiguous()
        by_ours = together.uncurry()
        again = by_ours.subtract(by_ours.lexmin()).curry().range_factor_range()
        return self._unmatched("a term comes more than once: one", again, theirs, self.b)

    def _unmatched(self, what: str, rest: isl.Map, parts: list[_Part], side: Values) -> Exception:
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


def _covered(first: isl.Map, second: isl.Map, equal: isl.Map) -> bool:
    """Whether each point of either side has a counterpart."""
    together = first.range_product(second).intersect_range(equal.wrap())
    return first.is_subset(together.range_factor_domain()) and second.is_subset(together.range_factor_range())


def _one_to_one(first: isl.Map, second: isl.Map, equal: isl.Map) -> bool:
    """Whether each point of either side has at most one counterpart, for each pair of instances."""
    for x, y, e in ((first, second, equal), (second, first, equal.reverse())):
        renew()
        if not x.range_product(y).intersect_range(e.wrap()).uncurry().is_single_valued():
            return False
    return True
