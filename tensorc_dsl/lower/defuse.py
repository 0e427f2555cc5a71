"""Splits fused loops again if only their parts are used: `f` with `f / n` and `f % n` becomes two loops.

Subscripts then stay linear, guards on a part can be cut off, and no loop contains a division. A vectorized loop keeps its
innermost part as the vector if that is still wide; otherwise it stays as it is.
"""

from __future__ import annotations

from itertools import pairwise

from tensorc_dsl.ir.expr import Binary, Expr, Var, add, children, constant, floordiv, free_vars, index, mul, substitute
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import (
    Block,
    For,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    fresh,
    is_scattered,
    used_names,
    with_body,
)
from tensorc_dsl.proof.sets.coverage import may_be_empty
from tensorc_dsl.proof.sets.linear_forms import Interval
from tensorc_dsl.proof.sets.simplify import extent_ranges, is_multiple, simplify

_NARROWEST_VECTOR = 4


def defuse(program: Program) -> Program:
    """The program with the same instances in the same order, and fused loops split at the strides of their uses."""
    used = used_names(program)
    return replace(program, body=_stmts(program.body, {}, {}, used))


def _stmts(
    body: tuple[Stmt, ...], values: dict[str, Expr], ranges: dict[str, Interval], used: set[str]
) -> tuple[Stmt, ...]:
    return tuple(_block(s, values, ranges) if isinstance(s, Block) else _loop(s, values, ranges, used) for s in body)


def _block(b: Block, values: dict[str, Expr], ranges: dict[str, Interval]) -> Block:
    if not values:
        return b
    # A loop of at most one iteration may have none, where `init` runs: a reduction keeps the names of loops that count it.
    counted = {v: (0, 1) if r == (0, 0) else r for v, r in ranges.items()} if may_be_empty(b) else ranges
    known = {kind: counted if kind is IterKind.REDUCE else ranges for kind in IterKind}
    return replace(
        b,
        iters=tuple(replace(it, binding=simplify(substitute(it.binding, values), known[it.kind])) for it in b.iters),
        where=tuple(simplify(substitute(c, values), ranges) for c in b.where),
    )


def _loop(s: For, values: dict[str, Expr], ranges: dict[str, Interval], used: set[str]) -> For:
    cuts = [] if is_scattered(s) else _cuts(s)  # data choose an iteration of the whole loop
    if not cuts:
        return with_body(s, _stmts(s.body, values, {**ranges, **extent_ranges((s,))}, used))
    value: Expr = index(0)
    inner = dict(ranges)
    parts: list[For] = []
    top = s.extent
    for cut in (*reversed(cuts), 1):
        name = fresh(f"{s.var}_{len(parts)}", used)
        parts.append(For(name, simplify(floordiv(top, index(cut)), ranges), ()))
        value = add(value, mul(Var(name), index(cut)))
        top = index(cut)
    inner |= extent_ranges(parts)
    body = _stmts(s.body, {**values, s.var: value}, inner, used)
    for part in reversed(parts):
        outer_of_vector = s.kind is LoopKind.VECTORIZED and part is not parts[-1]
        kind = LoopKind.UNROLLED if outer_of_vector else s.kind
        body = (For(part.var, part.extent, body, kind, s.annotations),)
    loop = body[0]
    assert isinstance(loop, For)  # there is at least one part
    return loop


def _cuts(s: For) -> list[int]:
    """The strides, ascending, at which the uses of the loop's variable cut it; none if they are not nested."""
    found: set[int] = set()
    for b in _blocks(s.body):
        for e in (*(it.binding for it in b.iters), *b.where):
            if s.var in free_vars(e):
                _collect(e, s.var, found)
    extent = constant(s.extent)
    cuts = sorted(c for c in found if c > 1 and (extent is None or c < extent))
    if not cuts or any(b % a for a, b in pairwise(cuts)) or not is_multiple(s.extent, cuts[-1], {}):
        return []
    if s.kind is LoopKind.VECTORIZED and cuts[0] < _NARROWEST_VECTOR:
        return []
    return cuts


def _blocks(body: tuple[Stmt, ...]) -> list[Block]:
    return [b for s in body for b in ([s] if isinstance(s, Block) else _blocks(s.body))]


def _collect(e: Expr, var: str, found: set[int]) -> int | None:
    """The stride of `e` if it is `var` under a chain of divisions by constants, else None. Adds strides to `found`."""
    if isinstance(e, Var):
        return 1 if e.name == var else None
    if isinstance(e, Binary) and e.op in ("/", "%") and (c := constant(e.rhs)) is not None and c > 0:
        stride = _collect(e.lhs, var, found)
        if stride is None:
            return None
        found.add(stride * c)
        return stride * c if e.op == "/" else stride
    for part in children(e):
        _collect(part, var, found)
    return None
