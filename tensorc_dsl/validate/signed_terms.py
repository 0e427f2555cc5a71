"""The terms of a reduction, grouped by their signatures: what they compute from the inputs, subscripts included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.budget import renew
from tensorc_dsl.affine.sets import NotAffine, mapping
from tensorc_dsl.ir.expr import Expr, loads
from tensorc_dsl.validate.facts import Undecided
from tensorc_dsl.validate.nodes import At, Node, Term, place
from tensorc_dsl.validate.terms import is_neutral
from tensorc_dsl.validate.values import Signature, Values


@dataclass(frozen=True, slots=True, eq=False)
class SignedTerms:
    """Instances of a term that have one signature; points of different parts of one side never coincide."""

    term: Term
    path: isl.Map
    point: isl.Map
    """The map from a point among all terms of the side to the point of the term's own path."""
    signature: isl.Map
    """The map from a point to the subscripts."""


def by_signature(
    terms: Sequence[Term], kind: str, starts: Collection[str], values: Values, told: Callable[[Node], Signature]
) -> dict[str, list[SignedTerms]]:
    """The terms by the texts of their signatures, which `told` gives for a node, case by case.

    Terms that are neutral for a reduction of the kind are left out, and so are constants in `starts`: the file declares them
    as neutral. Raises Undecided if a term has no signature.
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
            declared = [f"{c.value}" for c in case.constants]  # neutral because the file says so
            if not is_neutral(kind, *case.constants) and not (len(declared) == 1 and declared[0] in starts):
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


def whole_elements(p: SignedTerms) -> tuple[tuple[str, ...], isl.Map]:
    """The buffer that terms are whole elements of, and the map from points to these; none for other terms."""
    s, leaf = place(p.term.node), p.point.apply_range(p.term.leaf)
    if not isinstance(p.term.node, At) or p.term.node.expr is s.store.value:
        with suppress(NotAffine):
            return (s.store.buffer,), leaf.apply_range(mapping(s.names, s.store.indices))
    return (), leaf
