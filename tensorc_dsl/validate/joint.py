"""Joins terms of a reduction that are instances of one expression, so that their number does not grow with each stage.

A scan whose rounds double is `B2[t] = B1[t - 2] + B1[t]` with `B1[t] = X[t - 1] + X[t]`: each round has twice as many paths
from a value to its terms. They all end at instances of one expression, `X`, and no two at the same. So they are the
instances of one map, `t -> [j] : t - 4 < j <= t`. A term of a linear recurrence is a product. Products are joined if each has
one instance of a common factor, and no two have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tensorc_dsl.affine import isl
from tensorc_dsl.affine.budget import renew
from tensorc_dsl.affine.sets import NotAffine, mapping
from tensorc_dsl.ir.expr import Call, Load
from tensorc_dsl.validate.code import UNLESS, Accumulation, Statement
from tensorc_dsl.validate.flow import Flow, Total
from tensorc_dsl.validate.nodes import At, Key, Node, Term, key
from tensorc_dsl.validate.plain import convex, joined


def as_product(node: Node, kind: str) -> Total:
    """A value as a product of that kind, so that all terms of a linear recurrence have one form."""
    if isinstance(node, Total):
        same = node.at.domain.identity()
        return node if node.kind == kind else Total(kind, node.at, (), (), finished=True, totals=((node, same),))
    s = node.statement
    factor = replace(s, accumulates=Accumulation(kind, node.expr))
    return Total(kind, s, (), ((factor, s.domain.identity()),), finished=True)


def joint_sums(terms: Sequence[Term]) -> list[Term]:
    """The same terms, of which those with one node are joined if they are different instances of it."""
    groups: dict[Key, tuple[Node, isl.Map]] = {}
    out: list[Term] = []
    for t in terms:
        # Each is made case by case, and the rounds of a scan multiply the cases.
        path = joined(t.path)
        leaf = joined(t.leaf.intersect_domain(path.range()))
        renew()
        k, ends = key(t.node), path.apply_range(leaf)
        if not _told_by(path, leaf) or (k in groups and not groups[k][1].is_disjoint(ends)):
            out.append(t)
        else:
            groups[k] = t.node, ends if k not in groups else joined(groups[k][1].union(ends))
    for node, found in groups.values():
        ends = _window(node, found)
        out.append(Term(node, ends, ends.range().identity(), None))
    return out


def _window(node: Node, ends: isl.Map) -> isl.Map:
    """The same map from instances to those of a node, of one piece if it is a window of elements that the node reads.

    The instances may be digits of the element: a window is one interval of elements, and in digits it is cut off at tiles.
    """
    if ends.n_basic_map() > 1 and isinstance(node, At) and isinstance(node.expr, Load):
        s = node.statement
        with suppress(NotAffine):
            element = mapping(s.names, node.expr.indices).intersect_domain(s.domain)
            if element.is_injective():
                return convex(ends.apply_range(element)).apply_range(element.reverse())
    return convex(ends)


@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """Terms that are products: for each factor the map from a point of the path to all its instances."""

    path: isl.Map
    factors: dict[Key, tuple[Node, isl.Map]]


def joint_products(
    s: Statement, kind: str, terms: Sequence[Term], flow: Flow, factors_of: Callable[[Term], Sequence[Term]]
) -> list[Term]:
    """The same terms of a statement's value, of which products with a common factor are joined.

    `factors_of` has the factors of a term, as terms over the instances of its node.
    """
    out: list[Term] = []
    products: list[tuple[Term, _Product]] = []
    for t in terms:
        found = _flat(t, factors_of(t))
        if found is None:
            out.append(t)
        else:
            products.append((t, found))
    # The factors that are alone in some term: that of its own step, which no factor scales yet.
    alone = {k for _, p in products for k, (n, _) in p.factors.items() if not _is_unless(n) and _is_alone(p, k)}
    groups: dict[Key, _Product] = {}
    for t, p in products:
        renew()
        base = next((k for k in p.factors if k in alone and _is_one(p, k)), None)
        labelled = None if base is None else _labelled(p, base)
        if base is None or labelled is None or (base in groups and not groups[base].path.is_disjoint(labelled.path)):
            out.append(t)
        else:
            groups[base] = labelled if base not in groups else _union(groups[base], labelled)
    return [*out, *(_term(s, kind, p, flow) for p in groups.values())]


def _term(s: Statement, kind: str, p: _Product, flow: Flow) -> Term:
    of = flow.pairs(s, p.path)
    terms: list[tuple[Statement, isl.Map]] = []
    totals: list[tuple[Total, isl.Map]] = []
    for n, m in p.factors.values():
        if isinstance(n, At):
            terms.append((replace(n.statement, accumulates=Accumulation(kind, n.expr)), m))
        else:
            totals.append((as_product(n, kind), m))
    product = Total(kind, of.at, (), tuple(terms), finished=True, totals=tuple(totals))
    return Term(product, of.made, of.made.range().identity(), None)


def _told_by(path: isl.Map, leaf: isl.Map) -> bool:
    """Whether no two points of an instance have the same leaf."""
    if leaf.is_injective():
        return True
    return path.domain_map().range_product(path.range_map().apply_range(leaf)).is_injective()


def _flat(t: Term, factors: Sequence[Term]) -> _Product | None:
    """A term as a product of leaves; None if a leaf comes more than once."""
    points = t.path.range()
    found: dict[Key, tuple[Node, isl.Map]] = {}
    for x in factors:
        renew()
        path = t.leaf.intersect_domain(points).apply_range(x.path)
        if path.is_empty():
            continue
        k, ends = key(x.node), path.apply_range(x.leaf)
        if not _told_by(path, x.leaf) or (k in found and not found[k][1].is_disjoint(ends)):
            return None
        found[k] = x.node, ends if k not in found else joined(found[k][1].union(ends))
    return _Product(t.path, found) if found else None


def _is_one(p: _Product, k: Key) -> bool:
    ends = p.factors[k][1]
    return ends.is_single_valued() and p.path.range().is_subset(ends.domain())


def _is_unless(node: Node) -> bool:
    return isinstance(node, At) and isinstance(node.expr, Call) and node.expr.function == UNLESS


def _is_alone(p: _Product, k: Key) -> bool:
    rest = p.path.range()
    for other, (_, ends) in p.factors.items():
        if other != k:
            rest = rest.subtract(ends.domain())
    return not rest.is_empty() and _is_one(p, k)


def _labelled(p: _Product, base: Key) -> _Product | None:
    """The product with instances of the base, beside those of the sum, as points; None if two points have the same."""
    ends = p.factors[base][1]
    to_pair = p.path.domain_map().flat_range_product(p.path.range_map().apply_range(ends))  # of [instance -> point]
    if not to_pair.is_injective():
        return None
    of_pair = to_pair.reverse().apply_range(p.path.range_map())
    factors = {k: (n, of_pair.apply_range(m)) for k, (n, m) in p.factors.items()}
    return _Product(p.path.apply_range(ends), factors)


def _union(p: _Product, q: _Product) -> _Product:
    factors = dict(p.factors)
    for k, (n, m) in q.factors.items():
        factors[k] = n, joined(factors[k][1].union(m)) if k in factors else m
    return _Product(joined(p.path.union(q.path)), factors)
