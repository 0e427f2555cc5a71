"""`split_scan`: scan chunks that do not wait for each other, and combine each with what comes before it."""

from __future__ import annotations

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import I64, limits
from tensorc_dsl.ir.expr import (
    ONE,
    Compare,
    Expr,
    Select,
    Var,
    add,
    ceildiv,
    constant,
    dtype_of,
    floordiv,
    floormod,
    free_vars,
    index,
    loads,
    mul,
    sub,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer, Iter, IterKind, Program, Stmt, fresh, used_names
from tensorc_dsl.ir.reductions import FoldOp, combine, identity
from tensorc_dsl.proof.sets.linear_forms import TRUE, logic
from tensorc_dsl.proof.sets.running import Scale
from tensorc_dsl.proof.sets.simplify import extent_ranges, iter_ranges, simplify
from tensorc_dsl.schedule.accumulation import NO_RUNNING, OUT_OF_RANGE, Nest, the_running
from tensorc_dsl.schedule.nests import NO_BLOCK, NOT_SERIAL
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal("E0645", "the {extent} steps of `{block}` cannot be cut into chunks of {length}", at="length")
def NO_CHUNKS(*focus: str, block: str, extent: str, length: int, repair: str) -> None: ...


@primitive(NO_BLOCK, NOT_SERIAL, NO_RUNNING, NO_CHUNKS, OUT_OF_RANGE)
def split_scan(
    program: Program, block: BlockRef, length: int, in_range: bool = False, *, sums: bool = False
) -> Rewrite[tuple[BlockRef, ...]]:
    """`<block>_chunk` scans each chunk of `length` steps separately, `<block>_carry` the totals of the chunks.

    for t: Y[t] = Y[t-1] + e[t]   ->   for c, s: Y_chunk[c, s] = Y_chunk[c, s-1] + e[c*length + s]
                                       for c: Y_carry[c] = Y_carry[c-1] + Y_chunk[c, length-1]
                                       for t: Y[t] = Y_carry[t/length - 1] + Y_chunk[t/length, t%length]

    The two blocks are scans, which may be cut again; `block` computes each element for itself. Steps beyond the last one add
    the neutral value. With `sums=true` another block, `<block>_sum`, reduces each chunk, and the carries are of its
    results: they do not wait for the chunks' scans, which can then be computed where they are used.

    The step combines the value before with one term, by `+`, `*`, `min`, `max`, `and` or `or`; floats count as associative.
    It may scale the value before by a factor: `Y[t] = f[t]*Y[t-1] + e[t]`, or by `+` under `min` and `max` of floats. What
    comes before a chunk is then scaled by the product of the chunk's factors so far, which the block `<block>_factor`
    computes: for each step, or once for all chunks if the factor is the same in all steps. With `sums=true`,
    `<block>_sum` is a scan, and `<block>_factor_sum` the product of all factors of a chunk where they differ.

    A step may begin anew, in an arm of a choice without the value before: `Y[t] = x[t] if F[t] else Y[t-1] + e[t]`. The block
    `<block>_reset` computes for each step whether one of its chunk has begun anew so far, and with `sums=true`
    `<block>_reset_sum` whether any step does. Where one has, nothing that comes before the chunk is read, so NaN and
    infinities of another segment stay there. The other arms may scale the value before, or keep it.

    Products of floats that the steps do not form have to stay in the range of their type: with a factor of 0.1, a chunk of 64
    steps scales by 0.1^64, which f32 does not have, and 0 times infinity is NaN. It is proved for constant factors. For
    others, and for running products, `in_range` says it of the inputs; the program has it as an annotation, and `verify`
    names it. So it is with sums under `min` and `max`. Terms that are added up may leave it as those of a reduction.
    The result is the list of the blocks that are made, from 2 to 7, in this order: `<block>_chunk`, `<block>_carry`,
    `<block>_sum`, `<block>_factor`, `<block>_factor_sum`, `<block>_reset`, `<block>_reset_sum`.
    In Halide and TVM nothing does this; in CUDA's libraries: `DeviceScan` of CUB.  Cases: tests/primitives/split_scan.md
    """
    used = used_names(program)
    n = the_running(program, block, used)
    _require_chunks(program, n, n.steps.extent, length)
    cut = _cut(n, length)
    op, name, scope = n.scan.op, n.block.name, program.buffer(n.element.buffer).scope
    v, c, s, size = Var(n.scan.steps), cut.chunk, cut.step, index(length)

    chunk = n.stage(f"{name}_chunk", scope, cut.chunks, size)
    carry = n.stage(f"{name}_carry", scope, cut.full)
    passed = [_passed(n, cut, x, scope, apart=sums) for x in n.scan.passed]
    # What a chunk begins with: its first step exists, but has the form of others, so that a chunk can be cut again.
    start = cut.while_there(n.added(Compare("<", c, ONE), cut.number), op)
    term, alone = (cut.while_there(n.at(e, cut.number), op) for e in (n.scan.added, n.scan.alone))
    each = [x.alive for x in passed]
    scanned = n.nest(chunk, cut.iters, n.scanned(chunk, s, (c, s), start, term, each, alone))
    made, before, ends = [chunk, carry], [scanned], n.read(chunk, c, index(length - 1))
    if sums:
        whole = replace(cut.iters[0], extent=cut.full)
        total = n.stage(f"{name}_sum", scope, cut.full, *((size,) if passed else ()))
        if not passed:
            added = n.added(Compare("<", cut.number, ONE), cut.number)
            ends = n.read(total, c)
            reduced = (whole, replace(cut.iters[1], kind=IterKind.REDUCE))
            summed = n.nest(total, reduced, combine(op, ends, added), identity(op, n.element.dtype))
        else:
            # A step of a reduction has no place for the factors of later steps.
            ends = n.read(total, c, index(length - 1))
            term, alone = (n.at(e, cut.number) for e in (n.scan.added, n.scan.alone))
            each = [x.each for x in passed]
            summed = n.nest(total, (whole, cut.iters[1]), n.scanned(total, s, (c, s), start, term, each, alone))
        made, before = [*made, total], [summed]
    carried = n.carried(carry, c, cut.full, ends, [x.of_chunk for x in passed])
    here = n.read(chunk, floordiv(v, size), floormod(v, size))
    far = n.read(carry, sub(floordiv(v, size), ONE))
    so_far = [x.so_far(floordiv(v, size), floormod(v, size)) for x in passed]
    value = Select(Compare("<", v, size), here, n.after(far, here, so_far))
    stmts = (*(s for x in passed for s in x.stmts), *before, carried, *((scanned,) if sums else ()))
    factors = [b for x in passed if x.scale is n.scan.scale for b in x.buffers]
    products = factors or [x for x in made if x != carry]
    made += [b for x in passed for b in x.buffers]
    result = n.mapped(program, value, stmts)
    result = replace(result, buffers=(*result.buffers, *made))
    result = n.regrouped(program, result, "split_scan", products, in_range=in_range)
    return Rewrite(result, tuple(BlockRef(x.name) for x in made))


@frozen
class _Cut:
    """The steps of a scan as chunks."""

    iters: tuple[Iter, Iter]
    """The number of a chunk, and of a step in it."""
    number: Expr
    """The number of that step among all."""
    chunks: Expr
    full: Expr
    """How many chunks have all their steps."""
    exists: Expr

    @property
    def chunk(self) -> Var:
        return Var(self.iters[0].name)

    @property
    def step(self) -> Var:
        return Var(self.iters[1].name)

    def while_there(self, e: Expr, op: FoldOp) -> Expr:
        """The expression for steps that exist, and the neutral value for others."""
        if op == "or" and not loads(e):
            return logic(True, self.exists, e)
        return e if self.exists == TRUE else Select(self.exists, e, identity(op, dtype_of(e)))


def _cut(n: Nest, length: int) -> _Cut:
    extent, size, ranges = n.steps.extent, index(length), extent_ranges(n.around)
    taken = {it.name for it in n.block.iters}
    c, s = (fresh(f"{n.scan.steps}_{k}", taken) for k in range(2))
    chunks = simplify(ceildiv(extent, size), ranges)
    iters = (Iter(c, IterKind.SPATIAL, chunks, Var(c)), Iter(s, IterKind.SCAN, size, Var(s)))
    number = add(mul(Var(c), size), Var(s))
    exists = simplify(Compare("<", number, extent), iter_ranges(iters))
    return _Cut(iters, number, chunks, simplify(floordiv(extent, size), ranges), exists)


@frozen
class _Passed:
    """What the steps of a chunk do to the value before it: the products of their factors, or whether one begins anew."""

    scale: Scale
    each: Expr
    """What the step `_Cut.number` does, where it does not begin anew."""
    alive: Expr
    """The same, and for steps beyond the last one nothing."""
    nest: Nest
    varies: bool
    """Whether it depends on the step."""
    of_chunk: Expr
    """What all steps of a chunk do."""
    buffers: tuple[Buffer, ...]
    stmts: tuple[Stmt, ...]

    def so_far(self, chunk: Expr, step: Expr) -> Expr:
        """What the steps of a chunk do up to one of them."""
        buffer = self.buffers[0]
        return self.nest.read(buffer, *((chunk, step) if self.varies else (step,)))


def _passed(n: Nest, cut: _Cut, scale: Scale, scope: str, *, apart: bool) -> _Passed:
    """With `apart` what a chunk does is not waited for by what its steps do."""
    of = n.only(scale.factor)
    t = dtype_of(scale.factor)
    is_reset = scale is not n.scan.scale
    name = f"{n.block.name}_{'reset' if is_reset else 'factor'}"
    c, s, (chunk, step) = cut.chunk, cut.step, cut.iters
    varies = n.scan.steps in free_vars(scale.factor)
    factor, one = n.at(scale.factor, cut.number), identity(scale.op, t)
    each = factor if is_reset else n.at(n.scan.unless_reset(scale.factor), cut.number)
    alive = cut.while_there(each, scale.op) if varies else each
    iters, places = ((chunk, step), (c, s)) if varies else ((step,), (s,))
    made = of.stage(name, scope, *(it.extent for it in iters), dtype=t)
    # The first step of all has no value before it.
    first = Select(Compare("<", c, ONE), one, n.at(scale.factor, mul(c, step.extent))) if varies else factor
    back = of.read(made, *places[:-1], sub(s, ONE))
    following = combine(scale.op, back, cut.while_there(factor, scale.op) if varies else factor)
    product = of.nest(made, iters, Select(Compare("<", s, ONE), first, following))
    if not (apart and varies):
        end = of.read(made, *places[:-1], sub(step.extent, ONE))
        return _Passed(scale, each, alive, of, varies, end, (made,), (product,))
    total = of.stage(f"{name}_sum", scope, cut.full, dtype=t)
    reduced = (replace(chunk, extent=cut.full), replace(step, kind=IterKind.REDUCE))
    of_step = Select(Compare("<", cut.number, ONE), one, factor)
    summed = of.nest(total, reduced, combine(scale.op, of.read(total, c), of_step), one)
    return _Passed(scale, each, alive, of, varies, of.read(total, c), (made, total), (product, summed))


def _require_chunks(program: Program, n: Nest, extent: Expr, length: int) -> None:
    most = constant(extent)
    if most is not None and most < 3:
        repair = "leave a scan of so few steps as it is"
    elif length < 2 or (most is not None and length >= most):
        repair = "choose a length from 2 on" if most is None else f"choose a length from 2 to {most - 1}"
    elif length > limits(I64)[1] // 2:
        repair = "choose a length whose steps can be counted in 64 bits"
    else:
        return
    name = n.block.name
    raise NO_CHUNKS(program, name, block=name, extent=format_expr(extent), length=length, repair=repair)
