"""`transform_layout`: store a buffer's elements in another order."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.dtypes import limits
from tensorc_dsl.ir.expr import (
    ZERO,
    Const,
    Expr,
    Select,
    Var,
    conjunction,
    constant,
    free_vars,
    substitute,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    Iter,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    blocks,
    replace_stmt,
    used_names,
)
from tensorc_dsl.ir.reductions import is_whole_update
from tensorc_dsl.proof.sets.digits import Inverse, inverted, is_injective, size_of
from tensorc_dsl.proof.sets.regions import full_domain
from tensorc_dsl.proof.sets.simplify import iter_ranges, simplify, simplify_where
from tensorc_dsl.schedule.motion import copy_step, is_param, own_buffers, read_indices, top_statement, writers
from tensorc_dsl.schedule.nests import NO_BUFFER, map_accesses, nest_over, replace_buffer, stmt_name, the_buffer
from tensorc_dsl.schedule.step import BufferRef, IndexMap, Rewrite, primitive, refusal


@refusal(
    "E0374",
    "cannot change the layout of `{buffer}`: the caller passes it",
    help="change that of a copy: `{copy}` makes one",
    at="buffer",
)
def PARAMETER(*focus: str, buffer: str, copy: str) -> None: ...
@refusal(
    "E0375",
    "`{layout}` is no layout for `{buffer}`: {reason}",
    help="map the {rank} indices of `{buffer}`, as `(i, j) -> (j / 16, i, j % 16)` does for two",
    at="layout",
)
def WRONG_MAP(*focus: str, layout: str, buffer: str, reason: str, rank: int) -> None: ...
@refusal(
    "E0376",
    "`{layout}` may put two elements of `{buffer}` in one place",
    help="keep the remainder beside each quotient, as in `(j / 16, j % 16)`",
    at="layout",
)
def NOT_INJECTIVE(*focus: str, layout: str, buffer: str) -> None: ...
@refusal(
    "E0377",
    "the layout of `{buffer}` needs sizes that are numbers; dimension {dimension} is `{extent}`",
    help="give `{extent}` one size in the task, or keep its index, alone or as quotient and remainder: `(j / 16, j % 16)`",
    at="layout",
)
def OPEN_SHAPE(*focus: str, buffer: str, dimension: int, extent: str) -> None: ...
@refusal(
    "E0378",
    "cannot run `{block}` in the order of the new layout: {reason}",
    help="change the layout before scheduling `{block}`, or pass `reorder_block=false` to keep its loops",
    at="buffer",
)
def NOT_FREE(*focus: str, block: str, reason: str) -> None: ...
@refusal(
    "E0638",
    "cannot fill the padding of `{buffer}` with {value}: {reason}",
    help="leave out `pad_value`, unless a later step shall read the padding",
    at="pad_value",
)
def NO_FILL(*focus: str, buffer: str, value: float, reason: str) -> None: ...


@primitive(NO_BUFFER, PARAMETER, OPEN_SHAPE, WRONG_MAP, NOT_INJECTIVE, NOT_FREE, NO_FILL)
def transform_layout(
    program: Program, buffer: BufferRef, layout: IndexMap, *, reorder_block: bool = True, pad_value: float = 0
) -> Rewrite[None]:
    """Element `[i, j]` of the buffer is stored at `layout(i, j)`; all accesses follow.

    for k, j: P[k, j] = B[k, j]  ->  for jo, k, ji: P[jo, k, ji] = B[k, jo*32 + ji]      (k, j) -> (j / 32, k, j % 32)
    … P[k, j] …                      … P[j / 32, k, j % 32] …

    The new shape is the box of all new places; places without an old element are padding, which is never read. With
    `reorder_block` the block that fills the buffer runs in the order of the new layout, and fills the padding with
    `pad_value`; without it the padding is never written.
    `xor` in a layout swizzles: with `(i, j) -> (i, xor(j / 8, i % 8) * 8 + j % 8)` the elements of a column are in
    different banks of a memory. A dimension of an open size stays as it is, or becomes quotient and remainder.
    In TVM: `transform_layout`, with `transform_block_layout`; in Exo: `rearrange_dim`, `divide_dim`.
    Cases: tests/primitives/transform_layout.md
    """
    old = the_buffer(program, buffer)
    if is_param(program, old.name):
        raise PARAMETER(program, buffer=old.name, copy=copy_step(program, old.name))
    shape = _new_shape(program, old, layout)
    fill = _fill(program, old, pad_value, reorder_block)
    back = inverted(layout.params, layout.results, old.shape, tuple(Var(f"v{d}") for d in range(len(shape))))
    sizes = [n for e in old.shape if (n := constant(e)) is not None]
    if len(sizes) < len(old.shape) and back is None:
        raise _open(program, old)
    if back is None and not is_injective(layout.params, layout.results, sizes):
        raise NOT_INJECTIVE(program, buffer=old.name, layout=_text(layout))
    new = replace(old, shape=shape, annotations=())
    result, done = program, ""
    if reorder_block:
        nest, done, stmt = _reordered(program, old, new, layout, back, fill)
        result = replace_stmt(program, nest, (stmt,))
    for b in blocks(program):
        if b.name != done and (old.name in own_buffers(b) or read_indices(b, old.name)):
            placed = _placed(b, old.name, layout)
            if is_whole_update(b) and not is_whole_update(placed):
                text, reason = _text(layout), f"`{b.name}` updates it together with another buffer, at the same indices"
                raise WRONG_MAP(program, b.name, buffer=old.name, layout=text, rank=len(old.shape), reason=reason)
            result = replace_stmt(result, b.name, (placed,))
    return Rewrite(replace_buffer(result, old.name, (new,)), None)


def _text(layout: IndexMap) -> str:
    return f"({', '.join(layout.params)}) -> ({', '.join(map(format_expr, layout.results))})"


def _open(program: Program, old: Buffer) -> Exception:
    d, e = next((d, e) for d, e in enumerate(old.shape) if constant(e) is None)
    return OPEN_SHAPE(program, buffer=old.name, dimension=d, extent=format_expr(e))


def _new_shape(program: Program, old: Buffer, layout: IndexMap) -> tuple[Expr, ...]:
    rank = len(old.shape)

    def refuse(reason: str) -> Exception:
        return WRONG_MAP(program, buffer=old.name, layout=_text(layout), rank=rank, reason=reason)

    params = layout.params
    if len(params) != rank or len(set(params)) != len(params):
        raise refuse(f"it takes ({', '.join(params)}), the buffer has {rank} indices")
    unknown = sorted(frozenset[str]().union(*map(free_vars, layout.results)) - set(params))
    if unknown:
        raise refuse(f"`{unknown[0]}` is not a parameter of it")
    opened = {p for p, e in zip(params, old.shape, strict=True) if constant(e) is None}
    shape: list[Expr] = []
    for r in layout.results:
        size = size_of(r, params, old.shape)
        if size is None and free_vars(r) & opened:
            raise _open(program, old)
        if size is None:
            raise refuse(f"`{format_expr(r)}` is not an index from 0 up to a known size")
        shape.append(size)
    return tuple(shape)


def _placed(b: Block, buffer: str, layout: IndexMap) -> Block:
    """The block with its accesses in the new layout."""
    ranges = iter_ranges(b.iters)

    def placed(indices: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        values = dict(zip(layout.params, indices, strict=True))
        return buffer, tuple(simplify(substitute(r, values), ranges) for r in layout.results)

    return map_accesses(b, buffer, placed)


def _reordered(
    program: Program, old: Buffer, new: Buffer, layout: IndexMap, back: Inverse | None, fill: Const
) -> tuple[str, str, Stmt]:
    """The outermost statement of the nest that fills the buffer, its block, and the nest in the new order."""
    found = writers(program, old.name)
    if len(found) != 1:
        names = " and ".join(f"`{b.name}`" for _, b in found) or "no block"
        raise NOT_FREE(program, *(b.name for _, b in found), block=old.name, reason=f"{names} fills `{old.name}`")
    around, b = found[0]

    def refuse(reason: str) -> Exception:
        return NOT_FREE(program, b.name, block=b.name, reason=reason)

    names = tuple(i.name for i in b.body[0].indices if isinstance(i, Var))
    if len(b.body) != 1 or b.init or any(it.kind is not IterKind.SPATIAL for it in b.iters):
        raise refuse("it needs more than one step for an element")
    if len(names) != len(old.shape) or len(set(names)) != len(names) or {it.name for it in b.iters} != set(names):
        raise refuse("its subscripts are not its iterators, each once")
    if tuple({it.name: it for it in b.iters}[n].extent for n in names) != old.shape:
        raise refuse(f"it does not fill all of `{old.name}`")
    if any(x.kind is not LoopKind.SERIAL or x.annotations or len(x.body) != 1 for x in around):
        raise refuse("its loops hold other blocks, or are not plain `for` loops any more")
    if read_indices(b, old.name) or not full_domain(around, b):
        raise refuse("it does not run once for each of its elements")
    if back is None:
        raise refuse(f"cannot tell which element `{_text(layout)}` puts at a place")
    iters = tuple(Iter(f"v{d}", IterKind.SPATIAL, n, ZERO) for d, n in enumerate(new.shape))
    at = tuple(Var(it.name) for it in iters)
    ranges = iter_ranges(iters)
    values = {n: simplify(e, ranges) for n, e in zip(names, back.values, strict=True)}
    kept = conjunction(simplify_where(back.inside, ranges))
    value = simplify(substitute(b.body[0].value, values), ranges)
    if kept is not None:
        value = Select(kept, value, fill)
    block = Block(b.name, iters, (Store(new.name, at, value),), annotations=b.annotations)
    used = used_names(replace_stmt(program, stmt_name(top_statement(around, b)), ()))
    return stmt_name(top_statement(around, b)), b.name, nest_over(block, [(ZERO, n) for n in new.shape], (), used)


def _fill(program: Program, old: Buffer, value: float, written: bool) -> Const:
    """The value of the padding in the buffer's element type."""

    def refuse(reason: str) -> Exception:
        return NO_FILL(program, buffer=old.name, value=value, reason=reason)

    t = old.dtype
    if value and not written:
        raise refuse("with `reorder_block=false` nothing is written there")
    if t.is_float:
        return Const(float(value), t)
    if t.kind == "bool":
        if value:
            raise refuse("its elements are bool")
        return Const(False, t)
    low, high = limits(t)
    if not low <= value <= high or value != int(value):
        raise refuse(f"its elements are {t}")
    return Const(int(value), t)
