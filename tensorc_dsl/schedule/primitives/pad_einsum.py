"""`pad_einsum`: round the extents of a block up, with padded copies of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    ceildiv,
    children,
    conjunction,
    constant,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    fresh,
    replace_stmt,
    used_names,
)
from tensorc_dsl.ir.reductions import Combination, identity
from tensorc_dsl.proof.sets.reductions import NotApart, constant_value, parts_of
from tensorc_dsl.proof.sets.simplify import bounds, is_multiple, ranges_below, simplify
from tensorc_dsl.schedule.accumulation import spatial
from tensorc_dsl.schedule.copies import NOT_FILLED, require_defined
from tensorc_dsl.schedule.motion import fills, own_buffers, read_indices, writers
from tensorc_dsl.schedule.nests import NO_BLOCK, copy_nest, map_accesses, nest_over, the_block
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal(
    "E0660",
    "{padding} is no padding for `{block}`: {reason}",
    help="give a positive integer per iterator, 1 where the extent stays: {iterators}",
    at="padding",
)
def NO_FACTORS(*focus: str, padding: str, block: str, reason: str, iterators: str) -> None: ...
@refusal("E0661", "cannot pad `{block}`: {reason}", at="block")
def NOT_PLAIN(*focus: str, block: str, reason: str, repair: str) -> None: ...
@refusal(
    "E0662",
    "padding `{iterator}` would change what `{block}` reduces: a step over zeros {what}",
    help="pad the elements only, with 1 for `{iterator}`, or split it with `partial=true`",
    at="block",
)
def NOT_KEPT(*focus: str, iterator: str, block: str, what: str) -> None: ...


@primitive(NO_BLOCK, NO_FACTORS, NOT_PLAIN, NOT_KEPT, NOT_FILLED)
def pad_einsum(program: Program, block: BlockRef, padding: tuple[int, ...]) -> Rewrite[None]:
    """The extent of each iterator is the next multiple of its number in `padding`.

    for i in 5, k in 6: C[i] += A[i, k]   ->   for v0 in 8, v1 in 8: A_pad[v0, v1] = A[v0, v1] if inside else 0
                                               for i in 8, k in 8: C_pad[i] += A_pad[i, k]
                                               for ax0 in 5: C[ax0] = C_pad[ax0]

    Inputs with padded subscripts are read from copies with zeros around them, as far as windows reach. Outputs with
    padded subscripts go to a larger buffer, whose inside is copied out. A reduction step over zeros must be proved to
    change nothing.
    In TVM: `pad_einsum`.  Cases: tests/primitives/pad_einsum.md
    """
    around, b = the_block(program, block)
    new = _extents(program, b, padding)
    if not new:
        return Rewrite(program, None)
    _check_nest(program, around, b)
    shapes = _shapes(program, b, new)
    for it in spatial(b):
        if it.name in new and any(Var(it.name) not in st.indices for st in b.body):
            reason = f"`{it.name}` is no subscript of what it writes"
            raise _not_plain(program, b, reason, "pad the other iterators only, with 1 for this one")
    _check_steps(program, b, new)
    for name in sorted(own_buffers(b) & shapes.keys()):
        others = [w.name for _, w in writers(program, name) if w.name != b.name]
        if others or not fills(around, b, program.buffer(name)):
            reason = f"`{others[0]}` writes `{name}` too" if others else f"it may not write every element of `{name}`"
            raise _not_plain(program, b, reason, f"pad a block that writes each element of `{name}`")
        if read_indices(b, name) and not b.init:
            reason = f"it goes on with what is in `{name}`"
            raise _not_plain(program, b, reason, "pad a block that starts by itself, before `decompose_reduction`")

    used = used_names(program)
    inner = replace(b, iters=tuple(replace(it, extent=new.get(it.name, it.extent)) for it in b.iters))
    before: list[Stmt] = []
    behind: list[Stmt] = []
    buffers: list[Buffer] = []
    for name, shape in shapes.items():
        old = program.buffer(name)
        padded = Buffer(fresh(f"{name}_pad", used), old.dtype, shape)
        buffers.append(padded)
        inner = map_accesses(inner, name, lambda indices, to=padded.name: (to, indices))
        if name in own_buffers(b):
            behind.append(copy_nest(fresh(f"{name}_crop", used), name, padded, [(ZERO, e) for e in old.shape], used))
        else:
            before.append(_copy_in(old, padded, padded.name, used))
    extents = {it.binding.name: it.extent for it in inner.iters if isinstance(it.binding, Var)}
    nest: Stmt = inner
    for x in reversed(around):
        nest = replace(x, extent=extents[x.var], body=(nest,))
    result = replace_stmt(program, around[0].var, (*before, nest, *behind))
    result = replace(result, buffers=(*result.buffers, *buffers))
    for name, padded in zip(shapes, buffers, strict=True):
        if name not in own_buffers(b) and writers(program, name):
            require_defined(result, program, name, padded.name)
    return Rewrite(result, None)


def _extents(program: Program, b: Block, padding: tuple[int, ...]) -> dict[str, Expr]:
    """The new extents of the padded iterators."""

    def refuse(reason: str) -> Exception:
        text = f"[{', '.join(map(str, padding))}]"
        names = ", ".join(it.name for it in b.iters)
        return NO_FACTORS(program, b.name, block=b.name, padding=text, reason=reason, iterators=names)

    if len(padding) != len(b.iters):
        raise refuse(f"it has {len(b.iters)} iterators")
    small = [n for n in padding if n < 1]
    if small:
        raise refuse(f"{small[0]} is not positive")
    return {
        it.name: simplify(mul(ceildiv(it.extent, index(n)), index(n)), {})
        for it, n in zip(b.iters, padding, strict=True)
        if not is_multiple(it.extent, n, {})
    }


def _not_plain(program: Program, b: Block, reason: str, repair: str) -> Exception:
    return NOT_PLAIN(program, b.name, block=b.name, reason=reason, repair=repair)


def _check_nest(program: Program, around: Sequence[For], b: Block) -> None:
    """Refuse unless the block stands alone in one loop per iterator."""
    bound = sorted(it.binding.name for it in b.iters if isinstance(it.binding, Var))
    extents = {x.var: x.extent for x in around}
    alone = all(len(x.body) == 1 and x.kind is LoopKind.SERIAL for x in around)
    whole = all(isinstance(it.binding, Var) and extents.get(it.binding.name) == it.extent for it in b.iters)
    if b.where or not alone or not whole or bound != sorted(extents) or len(bound) != len(b.iters):
        raise _not_plain(program, b, "its loops are not its iterators any more", "pad first, then split and move")
    if any(it.kind is IterKind.SCAN for it in b.iters):
        raise _not_plain(program, b, "it is a scan, whose steps follow one another", "pad the blocks around it")
    for s in (*b.init, *b.body):
        for x in _parts(s.value):
            if isinstance(x, Binary) and x.op in ("/", "%") and dtype_of(x).is_integer and loads(x.rhs):
                reason = f"`{format_expr(x)}` would divide by padding"
                raise _not_plain(program, b, reason, "divide in a block of its own, before or after this one")


def _parts(e: Expr) -> Iterator[Expr]:
    yield e
    for c in children(e):
        yield from _parts(c)


def _shapes(program: Program, b: Block, new: dict[str, Expr]) -> dict[str, tuple[Expr, ...]]:
    """The padded shape of each buffer that is accessed with padded iterators.

    A padded iterator is the subscript of a whole dimension. One that is spatial may also be part of a subscript of an
    input, as in a window: what is read further on goes to elements of the output that are cropped.
    """
    found: list[tuple[str, tuple[Expr, ...]]] = []
    for s in (*b.init, *b.body):
        found.append((s.buffer, s.indices))
        found += [(x.buffer, x.indices) for e in (s.value, *s.indices) for x in loads(e)]
    extents = {it.name: it.extent for it in b.iters}
    reach = ranges_below((it.name, new.get(it.name, it.extent)) for it in b.iters)
    reduced = {it.name for it in b.iters if it.kind is IterKind.REDUCE and it.name in new}
    own = own_buffers(b)
    windows: dict[tuple[str, int], int] = {}
    out: dict[str, dict[int, Expr]] = {}
    for name, indices in dict.fromkeys(found):
        shape = program.buffer(name).shape
        for d, (i, size) in enumerate(zip(indices, shape, strict=True)):
            if not free_vars(i) & new.keys():
                continue
            text = f"{name}[{', '.join(map(format_expr, indices))}]"
            whole = isinstance(i, Var) and extents[i.name] == size
            low, high = bounds(i, reach)
            if not whole and name not in own and free_vars(i).isdisjoint(reduced) and constant(size) is not None:
                if low is not None and low >= 0 and high is not None:
                    windows[name, d] = max(windows.get((name, d), 0), high + 1)
                    continue
            if not isinstance(i, Var) or not whole:
                reason = f"`{text}` has `{format_expr(i)}` where a padded iterator must stand for the whole dimension"
                raise _not_plain(program, b, reason, "pad the other iterators only, with 1 for this one")
            if out.setdefault(name, {}).setdefault(d, new[i.name]) != new[i.name]:
                reason = f"it reads `{name}` with paddings that differ"
                raise _not_plain(program, b, reason, f"pad the iterators of `{name}` alike")
    for (name, d), most in windows.items():
        made = constant(out.get(name, {}).get(d, program.buffer(name).shape[d]))
        if made is None or (most > made and d in out.get(name, {})):
            reason = f"it reads `{name}` with paddings that differ"
            raise _not_plain(program, b, reason, f"pad the iterators of `{name}` alike")
        if most > made:
            out.setdefault(name, {})[d] = index(most)
    return {n: tuple(p.get(d, e) for d, e in enumerate(program.buffer(n).shape)) for n, p in out.items()}


def _check_steps(program: Program, b: Block, new: dict[str, Expr]) -> None:
    """Refuse unless a step with a padded reduction iterator beyond its extent, for which all elements that it reads with
    this iterator are 0, leaves the result unchanged.
    """
    padded = [it.name for it in b.iters if it.kind is IterKind.REDUCE and it.name in new]
    if not padded:
        return
    try:
        parts = parts_of(b)
    except NotApart as e:
        raise _not_plain(program, b, f"it {e}", e.repair) from None
    for name in padded:

        def zeros(e: Expr, name: str = name) -> Expr:
            return zero(e.dtype) if isinstance(e, Load) and Var(name) in e.indices else _absorbed(e)

        for part in parts:
            if isinstance(part.kind, Combination) and part.kind.reducer.picks:
                raise NOT_KEPT(program, b.name, block=b.name, iterator=name, what="has a position like any other")
            for value, start in zip(part.values, part.start, strict=True):
                given = rewrite_expr(value, zeros)
                made = constant_value(given)
                if made is None or made != start.value:
                    what = f"counts as `{format_expr(given)}`, not as `{format_expr(start)}`"
                    raise NOT_KEPT(program, b.name, block=b.name, iterator=name, what=what)


def _absorbed(e: Expr) -> Expr:
    """The expression; 0 for a product of integers with 0, whatever the other factor is, and false for `and` with false.

    A product of floats with 0 is NaN where the other one is infinite.
    """
    match e:
        case Binary(op="*") if not dtype_of(e).is_float and any(constant_value(x) == 0 for x in (e.lhs, e.rhs)):
            return zero(dtype_of(e))
        case Logic(op="and") if any(constant_value(x) is False for x in (e.lhs, e.rhs)):
            return zero(dtype_of(e))
        case _:
            return e


def zero(t: DType) -> Const:
    """The value of padding."""
    return identity("or" if t.kind == "bool" else "+", t)


def _copy_in(old: Buffer, new: Buffer, block: str, used: set[str]) -> Stmt:
    """A nest that fills the new buffer with the old one, surrounded by zeros."""
    iters = tuple(Iter(f"v{d}", IterKind.SPATIAL, e, ZERO) for d, e in enumerate(new.shape))
    at = tuple(Var(it.name) for it in iters)
    cuts = [Compare("<", v, e) for v, e, n in zip(at, old.shape, new.shape, strict=True) if e != n]
    inside = conjunction(tuple(cuts))
    assert inside is not None  # some dimension is padded
    value = Select(inside, Load(old.name, at, old.dtype), zero(old.dtype))
    return nest_over(Block(block, iters, (Store(new.name, at, value),)), [(ZERO, e) for e in new.shape], (), used)
