"""Reductions as sets of terms: partial totals and copies are taken apart, neutral initial values are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tensorc_dsl.affine import isl
from tensorc_dsl.ir.expr import Binary, Call, Const, Expr, Logic
from tensorc_dsl.ir.numbers import highest, lowest
from tensorc_dsl.validate.code import PAIR, Statement
from tensorc_dsl.validate.flow import Total
from tensorc_dsl.validate.plain import joined
from tensorc_dsl.validate.values import At, Node, Values, place, step_of

IDEMPOTENT = ("min", "max", "and", "or", "argmin", "argmax")
"""Kinds of reductions in which a term may be repeated."""


STEPS = 64
"""The number of steps from one value to the next after which following a value counts as endless."""


@dataclass(frozen=True, slots=True, eq=False)
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
    starts: set[str] = field(default_factory=set[str])
    """Initial values of declared reductions, which are neutral because the file says so."""


def operator(kind: str) -> str:
    return kind.split(" ", 1)[0]


def is_neutral(kind: str, *constants: Const) -> bool:
    """Whether combining a term with these constants changes nothing."""
    match operator(kind), constants:
        case "+" | "or", (c,):
            return c.value == 0
        case "*" | "and", (c,):
            return c.value == 1
        case "max", (c,):
            return c.value == lowest(c.dtype)
        case "min", (c,):
            return c.value == highest(c.dtype)
        case "argmax" | "argmin" as arg, (value, position):
            return is_neutral(arg[3:], value) and position.value == highest(position.dtype)
        case _:
            return False


def terms_of(node: Node, kind: str, values: Values, domain: isl.Set) -> Terms:
    """The node's value at `domain` as a reduction of that kind; any other value is a single term."""
    out = Terms()
    same = joined(domain).identity()  # the domain was joined case by case, and the map is used squared
    _collect(Term(node, same, same, None), kind, values, out)
    return out


def _collect(t: Term, kind: str, values: Values, out: Terms) -> None:
    if t.path.is_empty():
        return
    node = t.node
    if isinstance(node, Total):
        if node.kind != kind:
            out.found.append(t)
            return
        for s, m in node.start:
            _start(_further(t, At(s, s.store.value), m, None), kind, values, out)
        for u, m in node.terms:
            assert u.accumulates is not None
            _collect(_further(t, At(u, u.accumulates.term), m, u), kind, values, out)
        return
    steps = values.steps(node)
    if steps is not None:
        values.require_written(node, t.leaf.intersect_domain(t.path.range()).range())
        for n, m in steps:
            leaf = t.leaf.apply_range(m)
            _collect(replace(t, node=n, path=t.path.intersect_range(leaf.domain()), leaf=leaf), kind, values, out)
        return
    match node.expr:
        case Const() as c if is_neutral(kind, c):
            pass
        case Binary() | Logic() if (step := step_of(node)) is not None and step[0] == kind:
            for operand in step[1]:
                _collect(replace(t, node=operand), kind, values, out)
        case Binary(op="*") if (found := values.corrected(node, kind)) is not None:
            for n, m in found:
                assert isinstance(n, At)
                _collect(_further(t, n, m, n.statement), kind, values, out)
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


def _partial(s: Statement, args: tuple[Expr, ...], kind: str, values: Values) -> Iterator[tuple[Total, isl.Map]]:
    """The totals of this kind that the arguments of `PAIR` form together, with maps: partial results, not new terms."""
    ends = [[(n, m) for n, m in _ends(At(s, a), values) if isinstance(n, Total)] for a in args]
    if len(args) == 1:
        yield from ((total, m) for total, m in ends[0] if total.kind == kind)
        return
    if len(args) != 2 or operator(kind) not in ("argmin", "argmax"):
        return
    for best, m in ends[0]:
        for position, n in ends[1]:
            # The value and the position of one block's updates since one start: the `argmax` of a part.
            blocks = [[x.at.block, *(u.block for u, _ in x.terms)] for x in (best, position)]
            if position.kind == kind and all(a is b for a, b in zip(*blocks, strict=False)) and m.is_equal(n):
                yield position, n


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


def _start(t: Term, kind: str, values: Values, out: Terms) -> None:
    """Record an initial value that a declared reducer calls neutral; other initial values are terms, unless neutral."""
    if isinstance(t.node, At) and isinstance(t.node.expr, Const) and not t.path.is_empty():
        if operator(kind) not in ("+", "*", "max", "min", "and", "or"):
            out.starts.add(f"{t.node.expr.value}")
            return
    _collect(t, kind, values, out)


def _further(t: Term, node: Node, m: isl.Map, update: Statement | None) -> Term:
    """One term for each instance that `m` gives for an instance of the node of `t`."""
    step = t.leaf.intersect_domain(t.path.range()).apply_range(m)
    if step.is_injective():  # the new instance alone determines the term
        same = step.range().identity()
        return Term(node, t.path.apply_range(step), same, (update, same) if update else t.update)
    longer = step.domain().identity().flat_range_product(step)
    path = t.path.apply_range(longer)
    points = path.range()
    skip = step.dim(isl.dim_type.in_)
    leaf = points.identity().project_out(isl.dim_type.out, 0, skip)
    return Term(node, path, leaf, (update, leaf) if update else t.update)
