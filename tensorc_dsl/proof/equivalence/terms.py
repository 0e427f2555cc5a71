"""Reductions as sets of terms: partial totals and copies are expanded, neutral initial values are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL, highest, lowest
from tensorc_dsl.ir.expr import Binary, Call, Const, Expr, Load, Logic, Not, Select, loads
from tensorc_dsl.proof.equivalence.code import (
    PAIR,
    UNLESS,
    Accumulation,
    Refuted,
    Statement,
    Undecided,
    combined,
    kind_of_value,
)
from tensorc_dsl.proof.equivalence.flow import (
    At,
    Flow,
    Key,
    Node,
    Term,
    Terms,
    Total,
    convex,
    first_of,
    joined,
    key,
    place,
)
from tensorc_dsl.proof.equivalence.values import Case, Signature, Values, step_of
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.isl import renew
from tensorc_dsl.proof.sets.linear_forms import TRUE
from tensorc_dsl.proof.sets.sets import NotAffine, mapping

# How many points sets have that depend on others, such as the terms of each result.


def counts(terms: isl.Map) -> isl.PwAff | None:
    """How many points each element of the domain has; None unless that is found as sums and products of lengths of intervals,
    all but one of which are numbers in a product.
    """
    total: isl.PwAff | None = None
    for piece in joined(terms).make_disjoint().get_basic_maps():
        renew()
        found = _count(isl.Map.from_basic_map(piece))
        if found is None:
            return None
        total = found if total is None else total.union_add(found)
    return total


def _count(terms: isl.Map) -> isl.PwAff | None:
    into, out = isl.dim_type.in_, isl.dim_type.out
    for d in reversed(range(1, terms.dim(out))):
        if terms.project_out(out, d + 1, terms.dim(out) - d - 1).project_out(out, 0, d).is_single_valued():
            terms = terms.project_out(out, d, 1)
    width, n = terms.dim(out), terms.dim(into)
    for d in reversed(range(width)):
        one = terms.move_dims(into, n, out, d + 1, width - d - 1).move_dims(into, n, out, 0, d)
        if not one.range().is_bounded():
            return None
        low, high = one.dim_min(0), one.dim_max(0)
        from_low = isl.Map.from_pw_aff(low).apply_range(isl.Map("{ [a] -> [b] : b >= a }"))
        up_to_high = isl.Map.from_pw_aff(high).apply_range(isl.Map("{ [a] -> [b] : b <= a }"))
        if not from_low.intersect(up_to_high).is_equal(one):
            continue
        length = high.sub(low).add_constant_val(isl.Val(1)).coalesce()
        if width == 1:
            return length
        if length.n_piece() > 1:  # such as rows of which the last one is shorter
            parts = [
                one.intersect_domain(where).move_dims(out, 0, into, n, d).move_dims(out, d + 1, into, n, width - d - 1)
                for where, _ in length.get_pieces()
            ]
            found = [counts(x) for x in parts]
            if all(x is not None for x in found):
                return reduce(isl.PwAff.union_add, (x for x in found if x is not None))
        elif length.is_cst() and (rest := counts(terms.project_out(out, d, 1))) is not None:
            return rest.scale_val(length.max_val())
    return None


# Joins terms of a reduction that are instances of one expression, so that their number does not grow with each stage.
#
# A scan whose rounds double is `B2[t] = B1[t - 2] + B1[t]` with `B1[t] = X[t - 1] + X[t]`: each round has twice as many
# paths from a value to its terms. They all end at instances of one expression, `X`, and no two at the same. So they are the
# instances of one map, `t -> [j] : t - 4 < j <= t`. A term of a linear recurrence is a product. Products are joined if each
# has one instance of a common factor, and no two have the same.


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


@frozen(eq=False)
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


IDEMPOTENT = ("min", "max", "and", "or", "argmin", "argmax")
"""Kinds of reductions in which a term may be repeated."""


STEPS = 64
"""The number of steps from one value to the next after which following a value counts as endless."""


def operator(kind: str) -> str:
    return kind.split(" ", 1)[0]


def is_neutral(kind: str, *constants: Const) -> bool:
    """Whether combining a term with these constants changes nothing; a single one is of the value that the kind is about."""
    if (found := combined(kind)) is not None:
        n, identity = found
        return constants in (identity, identity[n : n + 1])
    match operator(kind), constants:
        case "+" | "or", (c,):
            return c.value == 0
        case "*" | "and", (c,):
            return c.value == 1
        case "max", (c,):
            return c.value == lowest(c.dtype)
        case "min", (c,):
            return c.value == highest(c.dtype)
        case _:
            return False


def terms_of(node: Node, kind: str, values: Values, domain: isl.Set, whole: bool = False) -> Terms:
    """The node's value at `domain` as a reduction of that kind; any other value is a single term. What an update adds is
    expanded if it is a reduction of that kind itself, unless it is left `whole`.
    """
    out = Terms(whole=whole)
    same = joined(domain).identity()  # the domain was joined case by case, and the map is used squared
    _collect(Term(node, same, same, None), kind, values, out)
    if (times := values.scales.get(kind)) is not None:
        out.found = [replace(t, node=as_product(t.node, times)) for t in out.found]
    return out


def _collect(t: Term, kind: str, values: Values, out: Terms) -> None:
    if t.path.is_empty():
        return
    node = t.node
    if not out.whole and (stage := _of_stage(node, kind, values)) is not None:
        out.found += _inner(t, stage.found)
        return
    _take_apart(t, kind, values, out)


def _inner(t: Term, found: Iterable[Term]) -> Iterator[Term]:
    """The terms `found` of the node of a term, at the instances of that."""
    for x in found:
        further = _further(t, x.node, x.path, None)
        if not further.path.is_empty():
            update = x.update and (x.update[0], further.leaf.apply_range(x.update[1]))
            yield replace(further, leaf=further.leaf.apply_range(x.leaf), update=update)


def _of_stage(node: Node, kind: str, values: Values) -> Terms | None:
    """The terms of what a statement stores, at all of its instances, if running reductions are totals: all that read it take
    these. None for other nodes, and if some instance is not understood.
    """
    if not values.chains or isinstance(node, Total) or node.expr is not node.statement.store.value:
        return None
    known = values.stages.get(k := (key(node), kind))
    if known is None and k not in values.stages:
        values.stages[k] = None  # a value inside its own value
        s, found = node.statement, Terms()
        same = s.domain.identity()
        try:
            _take_apart(Term(node, same, same, None), kind, values, found)
        except (Refuted, Undecided):
            return None  # maybe at instances that are not compared
        times = values.scales.get(kind)
        if times is None:
            found.found = joint_sums(found.found)
        else:
            all_of = [replace(t, node=as_product(t.node, times)) for t in found.found]
            found.found = joint_products(s, times, all_of, values.flow, lambda t: _factors(t, times, values))
        known = values.stages[k] = found
    return known


def _factors(t: Term, kind: str, values: Values) -> list[Term]:
    """The factors of a term that is a product, at the instances that it has."""
    return terms_of(t.node, kind, values, t.leaf.intersect_domain(t.path.range()).range()).found


def _take_apart(t: Term, kind: str, values: Values, out: Terms) -> None:
    node = t.node
    if isinstance(node, Total):
        if node.kind != kind:
            _collect_product(t, node, kind, values, out)
            return
        for s, m in node.start:
            _collect(_further(t, At(s, s.store.value), m, None), kind, values, out)
        for u, m in node.terms:
            assert u.accumulates is not None
            term = _further(t, At(u, u.accumulates.term), m, u)
            if out.whole and not term.path.is_empty():
                out.found.append(term)
            elif not out.whole:
                _collect(term, kind, values, out)
        for total, m in node.totals:
            _collect(_further(t, total, m, None), kind, values, out)
        return
    steps = values.steps(node)
    if steps is not None:
        values.require_written(node, t.leaf.intersect_domain(t.path.range()).range())
        for n, m in steps:
            renew()
            leaf = t.leaf.apply_range(m)
            _collect(replace(t, node=n, path=t.path.intersect_range(leaf.domain()), leaf=leaf), kind, values, out)
        return
    step = step_of(node)
    match node.expr:
        case Const() as c if is_neutral(kind, c):
            pass
        case Binary() | Logic() if step is not None and step[0] == kind:
            for operand in step[1]:
                _collect(replace(t, node=operand), kind, values, out)
        case Binary(op="*") if (found := values.corrected(node, kind)) is not None:
            for n, m in found:
                assert isinstance(n, At)
                _collect(_further(t, n, m, n.statement), kind, values, out)
        case Binary() | Logic() if step is not None and step[0] == values.scales.get(kind):
            s = node.statement
            factors = ((replace(s, accumulates=Accumulation(step[0], x.expr)), s.domain.identity()) for x in step[1])
            product = Total(step[0], s, (), tuple(factors), finished=True)
            _collect_product(replace(t, node=product), product, kind, values, out)
        case Select() if (parts := _begins(node, kind, values)) is not None:
            alone, others = parts
            _collect(replace(t, node=alone), kind, values, out)
            for product in others:
                _collect_product(replace(t, node=product), product, kind, values, out)
        case Call(function=f, args=(e,)) if f == UNLESS:
            asked = t.leaf.intersect_domain(t.path.range()).range()
            out.found += _inner(t, _conditions(At(node.statement, e), values, asked))
        case Call(function=f, args=args) if f == PAIR:
            for total, instances in _partial(node.statement, args, kind, values):
                leaf = t.leaf.apply_range(instances)
                part = t.path.intersect_range(leaf.domain())
                t = replace(t, path=t.path.subtract_range(leaf.domain()))
                _collect(replace(t, node=total, path=part, leaf=leaf), kind, values, out)
            if not t.path.is_empty():
                out.found.append(t)
        case _:
            out.found.append(t)


def _begins(node: At, kind: str, values: Values) -> tuple[At, list[Total]] | None:
    """The term that a choice by data has in both cases, as `x` in `x if reset else before op x`, and the others as products
    with the factor `UNLESS` it begins anew; None for other choices.
    """
    s, by = node.statement, values.scales.get(kind)
    if by is None or not isinstance(node.expr, Select):
        return None
    cond, a, b = node.expr.cond, node.expr.then, node.expr.other
    for alone, both, reset in ((a, b, cond), (b, a, Not(cond))):
        operands = _operands(At(s, both), kind)
        own = next((x for x in operands if x.expr == alone), None)
        others = [x for x in operands if x is not own]
        # Of inputs alone it is one term, that a step adds or begins with.
        made = any(y.buffer in values.code.writers for x in others for y in loads(x.expr))
        if own is not None and made:
            factor = Accumulation(by, values.unless(At(s, reset)).expr)
            same = s.domain.identity()
            return own, [
                Total(
                    by,
                    s,
                    (),
                    tuple((replace(s, accumulates=f), same) for f in (factor, Accumulation(by, x.expr))),
                    True,
                )
                for x in others
            ]
    return None


def _operands(node: At, kind: str) -> list[At]:
    """The operands of a chain of one operation."""
    step = step_of(node)
    return [node] if step is None or step[0] != kind else [x for operand in step[1] for x in _operands(operand, kind)]


def _conditions(cond: At, values: Values, domain: isl.Set) -> list[Term]:
    """The factors `UNLESS` that one of a condition is, for each of the conditions that it joins by `or`."""
    out: list[Term] = []
    for t in terms_of(cond, f"or {BOOL}", values, domain).found:
        node = t.node
        # In a program with recurrences of conditions each is a product.
        if isinstance(node, Total) and len(node.terms) == 1 and not node.totals and not node.start:
            ((u, m),) = node.terms
            if u.accumulates is not None and m.is_equal(u.domain.identity()):
                node = At(u, u.accumulates.term)
        if not isinstance(node, At):
            same = joined(domain).identity()
            return [Term(values.unless(cond), same, same, None)]
        out.append(replace(t, node=values.unless(node), update=None))
    return out


def _always(product: Total, values: Values) -> isl.Set:
    """The instances of a product with a factor `UNLESS` of what is true: those have no term."""
    out = isl.Set.empty(product.at.domain.get_space())
    for u, m in product.terms:
        assert u.accumulates is not None
        if isinstance(e := u.accumulates.term, Call) and e.function == UNLESS:
            for t in _conditions(At(u, e.args[0]), values, m.range()):
                if isinstance(t.node, At) and t.node.expr == Call(UNLESS, (TRUE,)):
                    there = t.path.intersect_range(t.leaf.domain()).domain()
                    out = out.union(m.intersect_range(there).domain())
    return out


def _collect_product(t: Term, product: Total, kind: str, values: Values, out: Terms) -> None:
    """The terms of a product: itself, or the products of a factor's terms with the others, if that is a sum and this
    distributes.
    """
    if not (none := _always(product, values)).is_empty():
        t = replace(t, path=t.path.subtract_range(t.leaf.intersect_range(none).domain()))
    if t.path.is_empty():
        return
    parts = [*((At(u, u.accumulates.term), m) for u, m in product.terms if u.accumulates), *product.totals]
    if product.kind == values.scales.get(kind):
        sums = [(n, m) for n, m in parts if m.is_single_valued() and _is_sum(n, kind, values, set())]
        if len(sums) == 1:
            ((whole, places),) = sums
            inner = Terms()
            asked = t.leaf.intersect_domain(t.path.range()).range()
            same = joined(asked.apply(places)).identity()
            _collect(Term(whole, same, same, None), kind, values, inner)
            others = [(n, m) for n, m in parts if n is not whole]
            for term in inner.found:
                renew()
                of = values.flow.pairs(product.at, places.apply_range(term.path))
                one = of.second.apply_range(term.leaf)
                rest = tuple((as_product(n, product.kind), of.first.apply_range(m)) for n, m in others)
                whole_term = (as_product(term.node, product.kind), one)
                scaled = Total(product.kind, of.at, (), (), finished=True, totals=(whole_term, *rest))
                _collect_product(_further(t, scaled, of.made, None), scaled, kind, values, out)
            return
    out.found.append(t)


def _is_sum(node: Node, kind: str, values: Values, met: set[Key]) -> bool:
    """Whether the value is a reduction of that kind, or a product of one, at some instance."""
    if isinstance(node, Total):
        return node.kind == kind
    if key(node) in met:
        return False
    met.add(key(node))
    steps = values.steps(node)
    if steps is not None:
        return any(_is_sum(n, kind, values, met) for n, _ in steps)
    if _begins(node, kind, values) is not None:
        return True
    step = step_of(node)
    if step is None or step[0] not in (kind, values.scales[kind]):
        return False
    return step[0] == kind or any(_is_sum(x, kind, values, met) for x in step[1])


def fingerprint(term: Term, values: Values, counted: bool = False) -> Signature:
    """That of a term's node, as `Values.fingerprint`; of a product what factors it has, with the least subscripts of each,
    and if they are `counted` how many there are.
    """
    node = term.node
    if not isinstance(node, Total) or node.kind not in values.scales.values():
        return values.fingerprint(node)
    by_text: dict[str, isl.Map] = {}
    numbers: dict[str, isl.PwAff | None] = {}
    asked = term.leaf.intersect_domain(term.path.range()).range()
    for t in _factors(term, node.kind, values):
        for case in values.signature(t.node):
            subscripts = t.leaf.apply_range(case.subscripts)
            found = t.path.apply_range(subscripts)
            by_text[case.text] = found.union(by_text[case.text]) if case.text in by_text else found
            if counted:
                more = counts(t.path.intersect_domain(asked).intersect_range(subscripts.domain()))
                so_far = numbers.get(case.text)
                if more is None or case.text not in numbers:
                    numbers[case.text] = more
                elif so_far is not None:
                    numbers[case.text] = so_far.union_add(more)
    out = [Case("", isl.Map.from_domain(asked))]
    for text, found in sorted(by_text.items()):
        renew()
        least, there = first_of(found.intersect_domain(asked)), found.domain()
        if (count := numbers.get(text)) is not None:
            text, least = f"{text} counted", least.flat_range_product(isl.Map.from_pw_aff(count))
        more = [Case(f"{c.text} {text}", c.subscripts.flat_range_product(least)) for c in out]
        rest = [Case(c.text, c.subscripts.subtract_domain(there)) for c in out]
        out = [c for c in (*more, *rest) if not c.subscripts.is_empty()]
    return tuple(out)


def _partial(s: Statement, args: tuple[Expr, ...], kind: str, values: Values) -> Iterator[tuple[Total, isl.Map]]:
    """The totals of this kind that the arguments of `PAIR` form together, with maps: partial results, not new terms."""
    found = combined(kind)
    if found is None:
        return
    own, _ = found
    ends = [[(n, m) for n, m in _ends(At(s, a), values) if isinstance(n, Total)] for a in args]
    for first, m in ends[0]:
        blocks = [first.at.block, *(u.block for u, _ in first.terms)]
        together: list[Total] = []
        for k, some in enumerate(ends):
            # The values of one block's updates since one start: the reduction of a part.
            alike = (
                x
                for x, n in some
                if x.kind == kind_of_value(kind, k)
                and n.is_equal(m)
                and [x.at.block, *(u.block for u, _ in x.terms)] == blocks
            )
            together += [x for x in (next(alike, None),) if x is not None]
        if len(together) == len(args):
            yield together[own], m


def _ends(node: Node, values: Values) -> list[tuple[Node, isl.Map]]:
    """The nodes that the node's value is a copy of, case by case; none if the chain of copies does not end."""
    out: list[tuple[Node, isl.Map]] = []
    todo: list[tuple[Node, isl.Map]] = [(node, place(node).domain.identity())]
    for _ in range(STEPS):
        if not todo:
            return out
        n, m = todo.pop()
        steps = values.steps(n)
        if steps is None:
            out.append((n, m))
        else:
            todo += [(k, m.apply_range(x)) for k, x in steps if not m.apply_range(x).is_empty()]
    return []


def _further(t: Term, node: Node, m: isl.Map, update: Statement | None) -> Term:
    """One term for each instance that `m` gives for an instance of the node of `t`."""
    step = t.leaf.intersect_domain(t.path.range()).apply_range(m)
    own = t.update

    def updated(leaf: isl.Map, before: isl.Map) -> tuple[Statement, isl.Map] | None:
        # What combines the term still does where no other statement is named; its instances are told by the points before.
        return (update, leaf) if update else own and (own[0], before.apply_range(own[1]))

    if step.is_injective():  # the new instance alone determines the term
        same = step.range().identity()
        return Term(node, t.path.apply_range(step), same, updated(same, step.reverse()))
    # The domain of a product is that of both: here that of `step`, whose pieces are not paired with each other.
    longer = isl.Set.universe(step.domain().get_space()).identity().flat_range_product(step)
    path = t.path.apply_range(longer)
    points = path.range()
    skip = step.dim(isl.dim_type.in_)
    leaf = points.identity().project_out(isl.dim_type.out, 0, skip)
    before = points.identity().project_out(isl.dim_type.out, skip, step.dim(isl.dim_type.out))
    return Term(node, path, leaf, updated(leaf, before))
