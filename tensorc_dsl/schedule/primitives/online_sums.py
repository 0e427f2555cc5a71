"""`online_sums`: sum exponentials relative to the maximum so far, and correct the sums when it changes.

It is no module over a reducer of two values, `(m, s)`. All values of a reducer have the subscripts of one stage, and in
attention the sum of products has columns that the maximum has not; stages between maximum and sums have no place; and either
side of a reducer may have the larger maximum, so each term takes two exponentials instead of one, which is half as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Select,
    Var,
    add,
    ceildiv,
    constant,
    dtype_of,
    floordiv,
    index,
    mul,
    sub,
    substitute,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    FINITE,
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    Program,
    Stmt,
    Store,
    fresh,
    replace_stmt,
    used_names,
)
from tensorc_dsl.ir.reductions import combine, identity
from tensorc_dsl.proof.sets.linear_forms import TRUE, Ranges
from tensorc_dsl.proof.sets.reductions import Exponential, Extreme, outermost_finite
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, is_multiple, iter_ranges, simplify
from tensorc_dsl.schedule.match_online_softmax import (
    Nest,
    NotFresh,
    Reduction,
    Relative,
    Sources,
    Stage,
    Sum,
    adds_nothing_behind,
    exchanged,
    last_term,
    reduction,
    with_padded_terms,
)
from tensorc_dsl.schedule.motion import is_param, readers, top_statement
from tensorc_dsl.schedule.nests import NO_BLOCK, computes_the_same, stem, the_block
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal(
    "E0668",
    "no sums can be kept relative to `{block}`: {reason}",
    help="{repair}",
    at="block",
)
def NO_SUMS(*focus: str, block: str, reason: str, repair: str) -> None: ...
@refusal(
    "E0669",
    "the {extent} steps of `{block}` have no parts of {length}",
    help="{repair}",
    at="length",
)
def NO_LENGTH(*focus: str, block: str, extent: str, length: int, repair: str) -> None: ...


@primitive(NO_BLOCK, NO_SUMS, NO_LENGTH)
def online_sums(
    program: Program, block: BlockRef, length: int, finite: bool = False, padded: bool = False
) -> Rewrite[tuple[BlockRef, ...]]:
    """Sums of exponentials relative to the maximum `block` are made part by part, relative to the maximum so far.

    for j: m = max(m, x[j])        ->   for p, j: m_part[p] = max(m_part[p], x[p*length + j])
    for j: s += exp(x[j] - m)           for p: m_run[p] = max(m_run[p-1], m_part[p])
                                        for p, j: s_part[p] += exp(x[p*length + j] - m_run[p])
                                        for p: s_run[p] = s_run[p-1] * exp(m_run[p-1] - m_run[p]) + s_part[p]
                                        s = s_run[last] * exp(m_run[last] - m)

    The scans need no finished maximum: `merge` joins their loops, and `compute_at` moves all stages there, so that the terms
    are read once. The result are the scans, that of the maximum first. All sums over its terms are changed whose terms are an
    exponential `exp((x[j] - m) * c)` times other factors, also through stages that map elements; other readers of a stage
    or of the maximum read it as before. With a `min` the differences are reversed or `c` is negative.

    Parts in which a mask leaves nothing of a row are skipped: if each `x` behind a condition `j <= f(i)` is -inf, the scans
    of row `i` end with the part of its last term, so loops end where no row has terms. It is done if the result is proved
    to be the same, and each sum adds nothing there: its terms are exponentials alone, or stand under that condition.
    Others, `exp(-inf - m) * v`, are 0 if `v` is finite, and NaN if not. With `finite` the author says that each `v` is, and
    the program has it as an annotation, so `verify` names it.

    With `padded`, steps that are no whole parts are followed by others, of which the maximum has its identity, exponentials
    are 0, and other factors zeros, so that tiles of instructions are whole. It is left out where a sum has other subscripts.

    Where the maximum so far is infinite, the shift is the least finite number: rows of -inf give NaN as before.
    The law is exp(p) * exp(q) = exp(p + q); floats count as real numbers.
    In Halide and TVM nothing does this; in CUDA: FlashAttention (Dao et al., 2022), after Milakov and Gimelshein (2018).
    Cases: tests/primitives/online_sums.md
    """
    around, b = the_block(program, block)

    def refuse(reason: str, repair: str) -> Exception:
        return NO_SUMS(program, b.name, block=b.name, reason=reason, repair=repair)

    try:
        peak = reduction(around, b)
    except NotFresh as e:
        raise refuse(f"it {e}", "take a reduction by `max` or `min`, before other steps change it") from None
    if peak.fold not in ("max", "min") or not dtype_of(peak.term).is_float:
        raise refuse("it is no `max` or `min` of floats", "take the maximum that the sums' terms read")
    op: Extreme = "max" if peak.fold == "max" else "min"
    relative = Relative(program, peak, op)
    if not relative.sums:
        raise refuse(
            f"no sum over its terms has an exponential `exp((x - {peak.target.buffer}) * c)` of them as a factor",
            "take this step before others change the sums, or stage the values that both read",
        )
    _require_parts(program, peak, length)
    if padded and not is_multiple(peak.counts.extent, length, {}):
        more = with_padded_terms(program, peak, relative, length)
        if more is not None:
            program = more
            peak = reduction(*the_block(program, block))
            relative = Relative(program, peak, op)
    whole = _Change(program, peak, op, relative, length).result()
    if any(s.mask for s in relative.sums) and not computes_the_same(program, whole.program):
        raise refuse(
            "a sum has a condition, and it is not proved that the terms of the maximum are infinite where that fails",
            "let the maximum and the sum read values that the same condition makes infinite, in rows with a term",
        )
    last = last_term(program, peak, op)
    exact = last is not None and all(adds_nothing_behind(last, peak, relative, s) for s in relative.sums)
    if last is None or not (exact or finite):
        return whole
    ended = _Change(program, peak, op, relative, length, last).result()
    if not exact:
        noted = tuple(sorted({**dict(program.annotations), FINITE: True}.items()))
        ended = Rewrite(replace(ended.program, annotations=noted), ended.results)
    return ended if computes_the_same(program, ended.program) else whole


def _require_parts(program: Program, peak: Reduction, length: int) -> None:
    extent = peak.counts.extent
    low, most = bounds(extent, {})[0], constant(extent)
    if low is None or low < 1:
        repair = "give the task sizes from 1 up, as in `N=1..4096`"
    elif most == 1:
        repair = "leave a single step as it is"
    elif length < 1 or (most is not None and length >= most):
        repair = "choose a length from 1 on" if most is None else f"choose a length from 1 to {most - 1}"
    else:
        return
    name = peak.block.name
    raise NO_LENGTH(program, name, block=name, extent=format_expr(extent), length=length, repair=repair)


class _Change:
    """The new nests and buffers. Where a buffer has a value for each part, its first dimension counts the parts."""

    def __init__(
        self,
        program: Program,
        peak: Reduction,
        op: Extreme,
        relative: Relative,
        length: int,
        last_term: Expr | None = None,
    ) -> None:
        """With `last_term`, over the iterators of the maximum, the scans of a row end with the part that has it."""
        self._program, self._peak, self._relative = program, peak, relative
        self._used = used_names(program)
        self._buffers: list[Buffer] = []
        stages = relative.needed()
        taken = {it.name for n in (peak, *relative.sums, *stages) for it in n.block.iters}
        self._p, n = Var(fresh("vp", taken)), Var(fresh("vn", taken))
        self._length, extent = index(length), peak.counts.extent
        self._count = simplify(ceildiv(extent, self._length), {})
        ranges = iter_ranges(peak.spatial)
        whole = simplify(sub(self._count, ONE), {})
        self._last = whole if last_term is None else _limited(floordiv(last_term, self._length), whole, ranges)
        self._ends = last_term is not None
        self._here = add(mul(self._p, self._length), n)
        self._steps = Iter(n.name, IterKind.REDUCE, self._length, n)
        self._ranges = extent_ranges((For(self._p.name, self._count, ()), For(n.name, self._length, ())))
        self._exists = simplify(Compare("<", self._here, extent), self._ranges)
        self._outside = outermost_finite(op, dtype_of(peak.term))
        self._run = self._made("run", peak)
        self._factors: list[tuple[Exponential, Buffer, Buffer]] = []
        for form in (x.form for x in relative.sums):
            if not any(form.agrees(f) for f, _, _ in self._factors):
                self._factors.append((form, self._made("step", peak), self._made("last", peak, of_parts=False)))
        self._moved = {s.target.buffer: self._made("run", s, of_parts=False) for s in stages}

    def result(self) -> Rewrite[tuple[BlockRef, ...]]:
        """The program with the sums in parts, and the scans."""
        result, scans = self._program, [self._run]
        gone = {s.block.name for s in self._relative.sums}
        unread: set[str] = set()
        for s in reversed(self._relative.needed()):
            old = s.target.buffer
            if {b.name for _, b in readers(self._program, old)} <= gone and not is_param(self._program, old):
                gone.add(s.block.name)
                unread.add(old)
                result = self._put(result, s, self._stage(s))
            else:
                result = self._put(result, s, self._stage(s), top_statement(s.loops, s.block))
        for s in self._relative.sums:
            scans.append(self._made("run", s))
            result = self._put(result, s, *self._sum(s, scans[-1]))
        result = self._put(result, self._peak, *self._maximum())
        buffers = (*(x for x in result.buffers if x.name not in unread), *self._buffers)
        return Rewrite(replace(result, buffers=buffers), tuple(BlockRef(x.name) for x in scans))

    def _maximum(self) -> Iterator[Stmt]:
        """The maxima of parts, that so far, the whole one, and the factors of sums for the changes of the shift."""
        peak, row, p = self._peak, self._peak.target.indices, self._p
        part = self._made("part", peak)
        yield self._in_parts(peak, part, peak.term)
        yield self._scan(peak, row, self._run, part, lambda old: combine(peak.fold, old, _read(part, p, *row)))
        yield self._whole(peak, _read(self._run, self._last, *row))
        before = self._shift(sub(p, ONE), row)
        if self._ends:
            # A part reads the maximum before from here, so that one place is enough for the maximum so far.
            old = self._made("old", peak)
            start = identity(peak.fold, old.dtype)
            value = Select(Compare("<", p, ONE), start, self._so_far(sub(p, ONE), row))
            yield self._nest(old, (self._parts(IterKind.SPATIAL), *peak.spatial), (p, *row), value)
            before = combine(peak.fold, _read(old, p, *row), self._outside)
        for form, step, last in self._factors:
            factor = form.of(before, self._shift(p, row))
            value = Select(Compare("<", p, ONE), Const(1.0, step.dtype), factor)
            yield self._nest(step, (self._parts(IterKind.SPATIAL), *peak.spatial), (p, *row), value)
            so_far = combine(peak.fold, _read(self._run, self._last_of(row), *row), self._outside)
            yield self._nest(last, peak.spatial, row, form.of(so_far, peak.target))

    def _sum(self, s: Sum, run: Buffer) -> Iterator[Stmt]:
        """A sum in parts, the corrected sum so far, and the whole one."""
        at, p = s.target.indices, self._p
        part = self._made("part", s)
        step, last = next((step, last) for f, step, last in self._factors if f.agrees(s.form))
        changed, rest = (_in_type(x, run.dtype) for x in (_read(step, p, *s.row), _read(last, *s.row)))
        yield self._in_parts(s, part, self._relative_to_run(s.term, s.sources))
        yield self._scan(
            s, s.row, run, part, lambda old: Binary("+", Binary("*", old, changed), _read(part, p, *at))
        )  # fmt: skip
        yield self._whole(s, Binary("*", _read(run, self._last_of(s.row), *at), rest))

    def _stage(self, s: Stage) -> Stmt:
        """A stage relative to the maximum so far."""
        value = self._relative_to_run(s.block.body[0].value, s.sources)
        return self._nest(self._moved[s.target.buffer], s.block.iters, s.target.indices, value)

    def _relative_to_run(self, e: Expr, sources: Sources) -> Expr:
        def change(x: Expr) -> Expr | None:
            if x not in sources:
                return None
            if isinstance(x, Load):
                return replace(x, buffer=self._moved[x.buffer].name)
            place, form = sources[x]
            return form.of(form.value, self._shift(floordiv(place.count, self._length), place.row))

        return exchanged(e, change)

    def _shift(self, part: Expr, row: tuple[Expr, ...]) -> Expr:
        """The maximum so far where it is finite, or at least not the infinity that it starts from."""
        return combine(self._peak.fold, self._so_far(part, row), self._outside)

    def _so_far(self, part: Expr, row: tuple[Expr, ...]) -> Load:
        """The maximum of all parts up to this one. Behind the last part of a row it is that of the last."""
        return _read(self._run, Binary("min", part, self._last_of(row)) if self._ends else part, *row)

    def _parts(self, kind: IterKind) -> Iter:
        return Iter(self._p.name, kind, self._count, self._p)

    def _in_parts(self, n: Reduction, part: Buffer, term: Expr) -> Stmt:
        """The reduction of each part; beyond the last step it has the neutral value."""
        start = identity(n.fold, part.dtype)
        here = simplify(substitute(term, {n.counts.name: self._here}), self._ranges)
        value = here if self._exists == TRUE else Select(self._exists, here, start)
        at = (self._p, *n.target.indices)
        iters = (self._parts(IterKind.SPATIAL), *n.spatial, self._steps)
        return self._nest(part, iters, at, combine(n.fold, _read(part, *at), value), start)

    def _last_of(self, row: tuple[Expr, ...]) -> Expr:
        """The number of the last part of a row."""
        return substitute(self._last, self._peak.by_target(row))

    def _until(self, row: tuple[Expr, ...]) -> Expr | None:
        """The condition for a part of a row not to be skipped; None if none is."""
        return Compare("<=", self._p, self._last_of(row)) if self._ends else None

    def _scan(
        self, n: Reduction, row: tuple[Expr, ...], run: Buffer, part: Buffer, step: Callable[[Expr], Expr]
    ) -> Stmt:
        at, p = n.target.indices, self._p
        value = Select(Compare("<", p, ONE), _read(part, p, *at), step(_read(run, sub(p, ONE), *at)))
        return self._nest(run, (self._parts(IterKind.SCAN), *n.spatial), (p, *at), value, where=self._until(row))

    def _whole(self, n: Reduction, value: Expr) -> Stmt:
        """The block of the reduction, which keeps its name and stores this value."""
        stmt: Stmt = replace(n.block, iters=n.spatial, init=(), body=(replace(n.block.body[0], value=value),))
        for loop in reversed(n.loops):
            if Var(loop.var) != n.counts.binding:
                stmt = replace(loop, body=(stmt,))
        return stmt

    def _made(self, what: str, n: Nest, of_parts: bool = True) -> Buffer:
        """A new buffer with the elements that a nest stores, or those of each part."""
        shape = self._program.buffer(n.target.buffer).shape
        name = fresh(f"{n.block.name}_{what}", self._used)
        made = Buffer(name, n.target.dtype, (self._count, *shape) if of_parts else shape)
        self._buffers.append(made)
        return made

    def _nest(
        self,
        made: Buffer,
        iters: Sequence[Iter],
        at: tuple[Expr, ...],
        value: Expr,
        start: Expr | None = None,
        where: Expr | None = None,
    ) -> Stmt:
        """New loops over the iterators, around a block that stores the value where a condition over them holds."""
        loops = [For(fresh(stem(it.name, k), self._used), it.extent, ()) for k, it in enumerate(iters)]
        bound = tuple(replace(it, binding=Var(x.var)) for it, x in zip(iters, loops, strict=True))
        body = (Store(made.name, at, value),)
        inits = () if start is None else (Store(made.name, at, start),)
        guards = () if where is None else (substitute(where, {it.name: it.binding for it in bound}),)
        stmt: Stmt = Block(made.name, bound, body, inits, where=guards)
        for loop in reversed(loops):
            stmt = replace(loop, body=(stmt,))
        return stmt

    def _put(self, program: Program, n: Nest, *stmts: Stmt) -> Program:
        """The program with other statements in the place of a nest."""
        return replace_stmt(program, n.loops[0].var if n.loops else n.block.name, stmts)


def _limited(part: Expr, last: Expr, ranges: Ranges) -> Expr:
    """The part, or the first or the last one if it may lie before or behind."""
    low, high = bounds(part, ranges)
    if low is None or low < 0:
        part = Binary("max", part, ZERO)
    most = constant(last)
    inside = high is not None and most is not None and high <= most
    return simplify(part if inside else Binary("min", part, last), ranges)


def _read(b: Buffer, *indices: Expr) -> Load:
    return Load(b.name, indices, b.dtype)


def _in_type(e: Expr, t: DType) -> Expr:
    return e if dtype_of(e) == t else Cast(e, t)
