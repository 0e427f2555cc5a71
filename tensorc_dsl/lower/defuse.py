"""Take fused loops apart again where only their parts are used: `f` with `f / n` and `f % n` becomes two loops.

Subscripts then stay linear, guards on a part can be cut off, and no division runs in a loop. A vectorized loop keeps its
innermost part as the vector when that is still wide; otherwise it stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.affine.simplify import simplify
from tensorc_dsl.ir.expr import Binary, Expr, Var, add, children, constant, index, mul, substitute
from tensorc_dsl.ir.program import Block, For, LoopKind, Program, Stmt, fresh, used_names

_NARROWEST_VECTOR = 4


def defuse(program: Program) -> Program:
    """The same instances in the same order, with fused loops split where their uses ask for it."""
    used = used_names(program)
    return replace(program, body=_stmts(program.body, {}, {}, used))


def _stmts(
    body: tuple[Stmt, ...], values: dict[str, Expr], ranges: dict[str, tuple[int, int]], used: set[str]
) -> tuple[Stmt, ...]:
    return tuple(_block(s, values, ranges) if isinstance(s, Block) else _loop(s, values, ranges, used) for s in body)


def _block(b: Block, values: dict[str, Expr], ranges: dict[str, tuple[int, int]]) -> Block:
    if not values:
        return b
    return replace(
        b,
        iters=tuple(replace(it, binding=simplify(substitute(it.binding, values), ranges)) for it in b.iters),
        where=tuple(simplify(substitute(c, values), ranges) for c in b.where),
    )


def _loop(s: For, values: dict[str, Expr], ranges: dict[str, tuple[int, int]], used: set[str]) -> For:
    extent = constant(s.extent)
    cuts = _cuts(s, extent) if extent is not None else []
    if extent is None or not cuts:
        inner = ranges if extent is None else {**ranges, s.var: (0, extent - 1)}
        return replace(s, body=_stmts(s.body, values, inner, used))
    names: list[str] = []
    value: Expr = index(0)
    inner = dict(ranges)
    sizes: list[int] = []
    top = extent
    for cut in (*reversed(cuts), 1):
        name = fresh(f"{s.var}_{len(names)}", used)
        names.append(name)
        sizes.append(top // cut)
        inner[name] = (0, top // cut - 1)
        value = add(value, mul(Var(name), index(cut)))
        top = cut
    body = _stmts(s.body, {**values, s.var: value}, inner, used)
    for name, size in reversed(list(zip(names, sizes, strict=True))):
        outer_of_vector = s.kind is LoopKind.VECTORIZED and name != names[-1]
        body = (For(name, index(size), body, LoopKind.UNROLLED if outer_of_vector else s.kind, s.annotations),)
    loop = body[0]
    assert isinstance(loop, For)  # there is at least one part
    return loop


def _cuts(s: For, extent: int) -> list[int]:
    """The strides, ascending, at which the uses of the loop's variable cut it; none when they do not nest."""
    found: set[int] = set()
    for b in _blocks(s.body):
        for e in (*(it.binding for it in b.iters), *b.where):
            _collect(e, s.var, found)
    cuts = sorted(c for c in found if 1 < c < extent)
    if not cuts or any(b % a for a, b in zip(cuts, [*cuts[1:], extent], strict=True)):
        return []
    if s.kind is LoopKind.VECTORIZED and cuts[0] < _NARROWEST_VECTOR:
        return []
    return cuts


def _blocks(body: tuple[Stmt, ...]) -> list[Block]:
    return [b for s in body for b in ([s] if isinstance(s, Block) else _blocks(s.body))]


def _collect(e: Expr, var: str, found: set[int]) -> int | None:
    """The stride of `e` when it is `var` under a chain of divisions by constants, else None; fills `found`."""
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
