"""Evaluates an unscheduled program with NumPy in float64, int64 and uint64: the reference that kernels are compared with.

It is independent of lowering and code generation. A block is evaluated over whole boxes of its instances: an access is a
strided view if it is linear and proved in bounds, else a gather; a sum of products is a matrix product. The steps of a scan,
and those of a reduction by a declared reducer, run one after another; of a scan the steps are kept that are still to be read.
A block that stores a part of its buffer, or stores it in another order than that of its dimensions, is evaluated into an
array of its own shape, whose memory is that part of the buffer's array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.arrays import Array, wide_dtype, widen, wrap
from tensorc_dsl.ir.dtypes import BOOL, INDEX, DType, consecutive, limits
from tensorc_dsl.ir.expr import (
    BinaryOp,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    LogicOp,
    Not,
    Select,
    Var,
    constant,
    dtype_of,
    factors_of,
    free_vars,
    loads,
    rewrite_expr,
)
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    IterKind,
    Program,
    Store,
    blocks,
    fresh,
    replace_stmt,
    used_names,
    walk,
)
from tensorc_dsl.ir.reductions import Combination, Fold, Update, identity, is_whole_update, update_of
from tensorc_dsl.ir.sizes import SizeError, evaluate_size
from tensorc_dsl.reference.values import (
    Alive,
    Box,
    EvaluateError,
    Values,
    alive_steps,
    decided_parts,
    form,
    linear_parts,
    reference_arithmetic,
)


@frozen
class Part:
    """The elements of `buffer` that a block stores: the first one, and the distances of neighbours, in elements."""

    buffer: Buffer
    shape: tuple[int, ...]
    first: int
    strides: tuple[int, ...]

    def of(self, whole: Array) -> Array:
        """That part of an array."""
        rest = whole.reshape(-1)[self.first :]
        return as_strided(rest, self.shape, tuple(n * whole.itemsize for n in self.strides))


@frozen
class Parts:
    """A program in which every block stores all of a buffer, and of which buffers of others these are parts."""

    program: Program
    parts: Mapping[str, Part]

    def arrays(self, dtype: type[np.float64] | None = None) -> dict[str, Array]:
        """Arrays for the parts and for the buffers that consist of them, zeros; of a type, or of each buffer's own."""
        wholes = {p.buffer.name: p.buffer for p in self.parts.values()}
        out = {n: np.zeros(_shape(b), dtype or wide_dtype(b.dtype)) for n, b in wholes.items()}
        return out | {name: p.of(out[p.buffer.name]) for name, p in self.parts.items()}


def parts_of(program: Program) -> Parts:
    """The program with buffers for the parts. Raises EvaluateError unless the parts of a buffer are all of it, each element
    once."""
    parts: dict[str, Part] = {}
    made, used = program, used_names(program)
    for b in blocks(program):
        if not _is_plain(b, program):
            made = _with_own_buffers(made, b, parts, used)
    seen: dict[str, Array] = {}
    for p in parts.values():
        places = p.of(whole := seen.setdefault(p.buffer.name, np.zeros(_shape(p.buffer), bool)))
        before = np.count_nonzero(whole)
        places[...] = True
        if np.count_nonzero(whole) - before != np.prod(p.shape, dtype=int):
            raise EvaluateError(f"blocks do not store each element of {p.buffer.name} once")
    for name, whole in seen.items():
        if not whole.all() or any(s.buffer == name for b in blocks(made) for s in b.body):
            raise EvaluateError(f"blocks do not store all of {name}, each element once")
    return Parts(made, parts)


def _is_plain(b: Block, program: Program) -> bool:
    """Whether the block stores all of its buffers in the order of their dimensions; that of a scan is looked at elsewhere."""
    own = {it.name: it.extent for it in b.iters if it.kind is not IterKind.REDUCE}
    if any(it.kind is IterKind.SCAN for it in b.iters):
        return True
    for s in b.body:
        names = [i.name for i in s.indices if isinstance(i, Var)]
        if len(names) != len(s.indices) or sorted(names) != sorted(own):
            return False
        if tuple(map(_number, map(own.__getitem__, names))) != _shape(program.buffer(s.buffer)):
            return False
    return True


def _with_own_buffers(program: Program, b: Block, parts: dict[str, Part], used: set[str]) -> Program:
    spatial = [it for it in b.iters if it.kind is not IterKind.REDUCE]
    shape = tuple(_number(it.extent) for it in spatial)
    box = Box(tuple(it.name for it in spatial), (0,) * len(shape), shape)
    at = tuple(Var(it.name) for it in spatial)
    moved: dict[str, tuple[str, tuple[Expr, ...]]] = {}
    for s in b.body:
        name = fresh(f"{b.name}_part", used)
        parts[name] = _part(program.buffer(s.buffer), s, box)
        moved[s.buffer] = name, s.indices
        own = Buffer(name, program.buffer(s.buffer).dtype, tuple(it.extent for it in spatial))
        program = replace(program, buffers=(*program.buffers, own))

    def load(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer in moved and moved[e.buffer][1] == e.indices:
            return Load(moved[e.buffer][0], at, e.dtype)
        return e

    def store(s: Store) -> Store:
        return Store(moved[s.buffer][0], at, rewrite_expr(s.value, load))

    new = replace(b, body=tuple(map(store, b.body)), init=tuple(map(store, b.init)))
    return replace_stmt(program, b.name, (new,))


def _part(buffer: Buffer, s: Store, box: Box) -> Part:
    sizes, unit, first = _shape(buffer), 1, 0
    strides = [0] * len(box.size)
    for i, size in zip(reversed(s.indices), reversed(sizes), strict=True):
        linear = form(i, box)
        if linear is None:
            raise EvaluateError(f"a block does not store each element of {buffer.name} once")
        ends = [f * (n - 1) for f, n in zip(linear.factors, box.size, strict=True)]
        low, high = (linear.constant + sum(pick(0, e) for e in ends) for pick in (min, max))
        if box.volume and not 0 <= low <= high < size:
            raise EvaluateError(f"a block stores outside of {buffer.name}")
        first += unit * linear.constant
        strides = [t + unit * f for t, f in zip(strides, linear.factors, strict=True)]
        unit *= size
    return Part(buffer, box.size, first, tuple(strides))


def _shape(b: Buffer) -> tuple[int, ...]:
    return tuple(map(_number, b.shape))


def _number(e: Expr) -> int:
    return evaluate_size(e, {})


# Sums of products of arrays that broadcast, by BLAS if possible.


_EXACT = 2**53
"""The largest integer up to which all integers are exact in float64."""


def contract(factors: Sequence[Array], reduce: Sequence[int], size: Sequence[int]) -> Array:
    """The product of at most two arrays, summed over the axes `reduce`, which keep length 1.

    `size` has the length of each axis. If all factors have length 1 on a reduced axis, its terms are equal, and their
    number counts.
    """
    repeats = prod(size[a] for a in reduce if all(f.shape[a] == 1 for f in factors))
    done: list[Array] = []
    for k, f in enumerate(factors):
        # Axes that only this factor depends on are summed before the product.
        own = tuple(
            a for a in reduce if f.shape[a] > 1 and all(g.shape[a] == 1 for g in (*factors[:k], *factors[k + 1 :]))
        )
        done.append(f.sum(axis=own, keepdims=True) if own else f)
    out = done[0] if len(done) == 1 else _product(done[0], done[1], reduce)
    return out * out.dtype.type(repeats) if repeats != 1 else out


def _product(a: Array, b: Array, reduce: Sequence[int]) -> Array:
    axes = range(a.ndim)
    both = [x for x in axes if a.shape[x] > 1 and b.shape[x] > 1]
    shared = [x for x in both if x in reduce]
    if not shared:
        return a * b
    batch = [x for x in both if x not in reduce]
    rows = [x for x in axes if a.shape[x] > 1 and x not in both]
    columns = [x for x in axes if b.shape[x] > 1 and x not in both]
    rest_a = [x for x in axes if a.shape[x] == 1]
    rest_b = [x for x in axes if b.shape[x] == 1]
    lengths = tuple(a.shape[x] for x in batch)
    k = prod(a.shape[x] for x in shared)
    left = a.transpose(*batch, *rows, *shared, *rest_a).reshape(*lengths, -1, k)
    right = b.transpose(*batch, *shared, *columns, *rest_b).reshape(*lengths, k, -1)
    out = _matmul(left, right, k)
    order = [*batch, *rows, *columns]
    shape = [*lengths, *(a.shape[x] for x in rows), *(b.shape[x] for x in columns)]
    rest = [x for x in axes if x not in order]
    full = out.reshape(*shape, *(1 for _ in rest))
    return full.transpose(*np.argsort([*order, *rest]).tolist())


def _matmul(a: Array, b: Array, k: int) -> Array:
    if a.dtype.kind == "f":
        return np.matmul(a, b)
    if _largest(a) * _largest(b) * k < _EXACT:
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    return np.matmul(a, b)


def _largest(a: Array) -> int:
    """The largest magnitude; `np.abs` of the least i64 is negative."""
    return max(int(a.max(initial=0)), -int(a.min(initial=0)))


# Evaluates a sum over matches by its terms: `C[v] = sum[i] (V[i] if X[i] == v else 0)` takes each term once.
#
# Only the plainest form is recognised here, a number of the data equal to an iterator; other sums are evaluated in full. So
# this does not rely on the proofs by which schedules are found right.


@frozen
class Matches:
    """Terms `value`, which count where all of `conditions` hold, at the numbers `places` along some axes."""

    value: Expr
    conditions: tuple[Expr, ...]
    places: tuple[tuple[int, Expr], ...]


def matches(update: Fold, box: Box, spatial: Sequence[int]) -> Matches | None:
    """The terms of a reduction if data say to which elements they belong; None for others."""
    if update.op not in ("+", "min", "max"):
        return None
    found = _term(update.value, identity(update.op, dtype_of(update.value)))
    if found is None:
        return None
    value, conditions = found
    places: dict[int, Expr] = {}
    rest: list[Expr] = []
    for c in conditions:
        place = _place(c, box, spatial)
        if place is None or place[0] in places:
            rest.append(c)
        else:
            places[place[0]] = place[1]
    chosen = {box.names[a] for a in places}
    if not chosen or any(free_vars(e) & chosen for e in (value, *rest, *places.values())):
        return None
    return Matches(value, tuple(rest), tuple(places.items()))


def _term(e: Expr, neutral: Const) -> tuple[Expr, tuple[Expr, ...]] | None:
    """A value and conditions without which the term is neutral; None if it has none."""
    match e:
        case Select(cond=c, then=a, other=b) if b == neutral:
            return a, _parts(c)
        case Select(cond=Not(operand=c), then=a, other=b) if a == neutral:
            return b, _parts(c)
        case Select(cond=Compare(op="!=", lhs=x, rhs=y), then=a, other=b) if a == neutral:
            return b, (Compare("==", x, y),)
        case Cast(operand=c, dtype=t) if dtype_of(c) == BOOL and t not in (BOOL, INDEX) and neutral.value == 0:
            return Const(1.0 if t.is_float else 1, t), _parts(c)
        case _:
            return None


def _parts(cond: Expr) -> tuple[Expr, ...]:
    match cond:
        case Logic(op="and", lhs=a, rhs=b):
            return (*_parts(a), *_parts(b))
        case _:
            return (cond,)


def _place(cond: Expr, box: Box, spatial: Sequence[int]) -> tuple[int, Expr] | None:
    """An axis and the data that are equal to it; None unless the type of the comparison has each position once."""
    if not isinstance(cond, Compare) or cond.op != "==":
        return None
    for own, data in ((cond.lhs, cond.rhs), (cond.rhs, cond.lhs)):
        x = own.operand if isinstance(own, Cast) else own
        if isinstance(x, Var) and x.name in box.names and not free_vars(data) & {x.name}:
            axis = box.names.index(x.name)
            if axis in spatial and box.start[axis] == 0 and box.size[axis] - 1 <= _last(dtype_of(own)):
                return axis, data
    return None


def _last(t: DType) -> int:
    return -1 if t == BOOL else limits(t)[1] if t.is_integer else consecutive(t)


@frozen
class Placed:
    """Some terms: those where `alive` holds in the box `part`, at the positions `at` for each dimension of the result."""

    part: Box
    alive: Array
    at: tuple[Array, ...]

    def of(self, terms: Array) -> Array:
        """Those terms of all of the box."""
        return np.broadcast_to(terms, self.part.size)[self.alive]


def placed(values: Values, m: Matches, box: Box, limit: int, axes: Sequence[int]) -> Iterator[Placed]:
    """The terms of the box, of at most `limit` at once, for a result whose dimensions are the axes `axes`."""
    chosen = dict(m.places)
    once = Box(box.names, box.start, tuple(1 if a in chosen else n for a, n in enumerate(box.size)))
    for part in once.chunks(range(len(box.size)), limit):
        alive = np.ones(part.size, bool)
        for c in m.conditions:
            alive &= values.value(c, part, None)
        at: dict[int, Array] = {}
        for axis, data in m.places:
            found = values.value(data, part, None)
            inside = (found >= 0) & (found < box.size[axis])
            at[axis] = np.where(inside, found, 0).astype(np.int64)
            alive &= inside & (at[axis] == found)
        if alive.any():
            whole = (at[a] if a in at else values.value(Var(box.names[a]), part, None) for a in axes)
            yield Placed(part, alive, tuple(np.broadcast_to(w, part.size)[alive] for w in whole))


FACTOR_LIMIT = 16 * 2**20
"""The largest number of elements of one factor of a product: 128 MB if it has to be copied for BLAS."""
CHUNK_LIMIT = 2**17
"""The largest number of elements of a box that is evaluated node by node: several temporaries of 1 MB each, in a cache."""

_REDUCE: dict[BinaryOp | LogicOp, Callable[..., Array]] = {
    "+": np.add.reduce, "*": np.multiply.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce,
    "and": np.logical_and.reduce, "or": np.logical_or.reduce,
}  # fmt: skip


def evaluate(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of an unscheduled program, by name, in `wide_dtype` of their types. Raises EvaluateError."""
    program = resolved(program)
    nests, made = unscheduled_nests(program), parts_of(program)
    if made.parts:
        nests = unscheduled_nests(made.program)
    arrays = bind_inputs(program, inputs) | made.arrays()
    with np.errstate(all="ignore"):
        alive = alive_steps(made.program, nests)
        for together in nests:
            run_nest([Evaluation(made.program, arrays, alive, b) for b in together])
    return {p.name: arrays[p.name] for p in program.outputs}


def run_nest(together: Sequence[Evaluation]) -> None:
    """Evaluate a block, or those of one scan, step after step."""
    for e in together:
        e.begin()
    if len(together) == 1:
        together[0].advance()
        return
    (axis,) = together[0].scan
    for step in range(together[0].box.size[axis]):
        for e in together:
            e.at_step(step)
            e.advance()


def shape_of(b: Buffer) -> tuple[int, ...]:
    """The shape as numbers. Raises EvaluateError if a dimension is open."""
    return _numbers(b.shape, f"a dimension of {b.name}")


def _numbers(extents: Iterable[Expr], which: str) -> tuple[int, ...]:
    """The extents as numbers, for which there may be sums of numbers in the text. Raises EvaluateError if one is open."""
    try:
        return tuple([evaluate_size(e, {}) if (n := constant(e)) is None else n for e in extents])
    except SizeError:
        raise EvaluateError(f"{which} is open: `ir.sizes.bind` gives it a size") from None


def bind_inputs(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs widened, by name. Raises EvaluateError if one is missing, unknown or of another shape."""
    wanted = {p.name: p for p in program.inputs}
    if unknown := set(inputs) - {p.name for p in program.params}:
        raise EvaluateError(f"program {program.name} has no parameter {min(unknown)!r}")
    out: dict[str, Array] = {}
    for name, p in wanted.items():
        if name not in inputs:
            raise EvaluateError(f"input {name!r} of program {program.name} is missing")
        if inputs[name].shape != shape_of(p):
            raise EvaluateError(f"input {name!r} has shape {inputs[name].shape}, the program wants {shape_of(p)}")
        out[name] = widen(inputs[name], p.dtype)
    return out


def unscheduled_blocks(program: Program) -> list[Block]:
    """The blocks in order. EvaluateError unless each stands in a perfect nest of its own, bound one to one, or in one below
    the loop of a scan that it is a part of.
    """
    return [b for together in unscheduled_nests(program) for b in together]


def unscheduled_nests(program: Program) -> list[tuple[Block, ...]]:
    """The blocks in order, those together that make one scan. EvaluateError as of `unscheduled_blocks`."""
    out: list[tuple[Block, ...]] = []
    for top in program.body:
        found = [(around, s) for around, s in walk((top,)) if isinstance(s, Block)]
        for around, s in found:
            _check_unscheduled(around, s, alone=len(found) == 1)
        out.append(tuple(s for _, s in found))
    return out


def _check_unscheduled(around: tuple[For, ...], s: Block, *, alone: bool) -> None:
    names = [it.binding.name for it in s.iters if isinstance(it.binding, Var)]
    extents = {loop.var: loop.extent for loop in around}
    bound = {it.binding.name: it.extent for it in s.iters if isinstance(it.binding, Var)}
    perfect = all(len(loop.body) == 1 for loop in around[0 if alone else 1 :])
    if s.where or not perfect or len(names) != len(s.iters) or len(bound) != len(names) or bound != extents:
        raise EvaluateError(f"block {s.name} is scheduled; only an unscheduled program has a reference")
    scans = [it.binding for it in s.iters if it.kind is IterKind.SCAN]
    if (scans or not alone) and (len(scans) != 1 or scans[0] != Var(around[0].var)):
        raise EvaluateError(f"block {s.name} is a scan that does not run in its outermost loop")
    if len(s.body) != 1 and not is_whole_update(s):
        raise EvaluateError(f"block {s.name} stores {len(s.body)} values; an unscheduled block stores one")


def _combined(op: BinaryOp | LogicOp, a: Array, b: Array, t: DType) -> Array:
    match op:
        case "and":
            return a & b
        case "or":
            return a | b
        case _:
            return reference_arithmetic(op, a, b, t)


class Evaluation(Values):
    """The evaluation of one block. `arrays` holds the buffers computed so far, steps of those in `alive`; those of the block
    are added."""

    def __init__(self, program: Program, arrays: dict[str, Array], alive: Mapping[str, Alive], block: Block) -> None:
        super().__init__(block.name, arrays, alive)
        self.block = block
        self.buffers = tuple(program.buffer(s.buffer) for s in block.body)
        self.buffer = self.buffers[0]
        names = tuple(it.name for it in block.iters)
        sizes = _numbers((it.extent for it in block.iters), f"an extent of block {block.name}")
        self.box = Box(names, (0,) * len(names), sizes)
        self.reduce = [a for a, it in enumerate(block.iters) if it.kind is IterKind.REDUCE]
        self.scan = [a for a, it in enumerate(block.iters) if it.kind is IterKind.SCAN]
        self.spatial = [a for a in range(len(names)) if a not in self.reduce]
        self.update = self._update()
        self.axes = self._store_axes(block.body[0])

    def _update(self) -> Update | None:
        if not self.block.is_reduction:
            return None
        update = update_of(self.block)
        if update is None:
            raise EvaluateError(f"block {self.block.name} is not the update of a reduction")
        if len(self.block.init) != len(self.block.body):
            raise EvaluateError(f"block {self.block.name} does not say where its reduction starts")
        return update

    def _store_axes(self, s: Store) -> list[int]:
        """The axis that each subscript of the store is: an unscheduled block stores `C[vi, vj]`, each element once. A scan
        that runs back stores `C[n - 1 - vi, vj]`.
        """
        axes = [self.box.names.index(i.name) if isinstance(i, Var) else self._backwards(i) for i in s.indices]
        if sorted(axes) != self.spatial:
            raise EvaluateError(f"block {self.block.name} does not store each element once")
        for other, b in zip(self.block.body, self.buffers, strict=True):
            if other.indices != s.indices or shape_of(b) != tuple(self.box.size[a] for a in axes):
                raise EvaluateError(f"block {self.block.name} does not store all of {b.name}")
        return axes

    def _backwards(self, subscript: Expr) -> int:
        """The axis of a scan that a subscript runs along from its end, as `1 - vi - 1` does where an open size is 1 now; -1
        for other subscripts.
        """
        linear = form(subscript, self.box)
        if linear is None:
            return -1
        for a in self.scan:
            turned = tuple(-1 if n == a else 0 for n in range(len(self.box.size)))
            if (linear.factors, linear.constant) == (turned, self.box.size[a] - 1):
                return a
        return -1

    def begin(self) -> None:
        """Add the block's buffers to `arrays`, as they are before its first instance."""
        self.arrays.update((b.name, out) for b, out in zip(self.buffers, self.start(), strict=True))

    def advance(self) -> None:
        """Run the instances of the box, which are all, or one step of a scan."""
        if not self.box.volume:
            return
        if self.in_order:
            for part in self.steps():
                values = [self.value(s.value, part, None) for s in self.block.body]
                for s, value in zip(self.block.body, values, strict=True):
                    self.put(s.buffer, part, value)
            return
        if self.update is None:
            for part in self.pieces(self.box):
                self.put(self.buffer.name, part, self.value(self.block.body[0].value, part, None))
        elif isinstance(self.update, Fold):
            self._reduce(self.arrays[self.buffer.name], self.update)
        else:
            outs = [self.arrays[b.name] for b in self.buffers]
            for part in self.box.chunks(range(len(self.box.size)), CHUNK_LIMIT):
                self._best(outs, self.update, part)

    def at_step(self, step: int) -> None:
        """Leave one step of the scan in the box."""
        (axis,) = self.scan
        self.box = Box(
            self.box.names,
            tuple(step if a == axis else n for a, n in enumerate(self.box.start)),
            tuple(1 if a == axis else n for a, n in enumerate(self.box.size)),
        )

    def start(self) -> list[Array]:
        """The block's arrays before its first instance: the initial values of a reduction, else uninitialised."""
        outs = [
            self.arrays[b.name] if b.name in self.arrays else np.empty(self.kept_shape(b), wide_dtype(b.dtype))
            for b in self.buffers
        ]
        size = tuple(1 if a in self.reduce else n for a, n in enumerate(self.box.size))
        spatial = Box(self.box.names, self.box.start, size)
        by_name = {b.name: out for b, out in zip(self.buffers, outs, strict=True)}
        for s in self.block.init if self.reduce else ():
            by_name[s.buffer][...] = self.stored(self.value(s.value, spatial, None), spatial)
        return outs

    def kept_shape(self, b: Buffer) -> tuple[int, ...]:
        """The shape of the array that holds the buffer, or the steps of it that are read."""
        shape = shape_of(b)
        return self.alive[b.name].shape(shape) if b.name in self.alive else shape

    def region(self, part: Box) -> tuple[slice, ...]:
        """The places of the elements that the instances of a part store."""
        indices = self.block.body[0].indices
        found = [
            own if isinstance(i, Var) else slice(n - own.start - 1, n - own.stop - 1 if own.stop < n else None, -1)
            for i, own, n in zip(indices, part.slices(self.axes), shape_of(self.buffer), strict=True)
        ]
        if self.buffer.name in self.alive:
            kept = self.alive[self.buffer.name]
            place = kept.place(indices, part)
            assert place is not None, "a scan stores within its buffer"
            found[kept.axis] = slice(place, place + 1)
        return tuple(found)

    def pieces(self, box: Box) -> Iterator[Box]:
        """The parts of a box that are evaluated one after another, node by node."""
        for part in decided_parts([s.value for s in self.block.body], box):
            yield from part.chunks(range(len(box.size)), CHUNK_LIMIT)

    # --- step by step ------------------------------------------------------------------------------------------------

    @property
    def in_order(self) -> bool:
        """Whether the instances are evaluated in the order of a scan or of a reduction."""
        return (bool(self.scan) and self.update is None) or (
            isinstance(self.update, Combination) and not self.update.reducer.picks
        )

    def steps(self) -> Iterator[Box]:
        """The instances of each step, in order; the caller stores all values of a step before it continues."""
        ordered = self.scan if self.update is None else self.reduce
        for at in product(*(range(self.box.size[a]) for a in ordered)):
            start, size = list(self.box.start), list(self.box.size)
            for a, value in zip(ordered, at, strict=True):
                start[a], size[a] = start[a] + value, 1
            step = Box(self.box.names, tuple(start), tuple(size))
            yield from self.pieces(step)

    def put(self, buffer: str, part: Box, value: Array) -> None:
        self.arrays[buffer][self.region(part)] = self.stored(value, part)

    # --- reductions at once ------------------------------------------------------------------------------------------

    def _reduce(self, out: Array, update: Fold) -> None:
        if (found := matches(update, self.box, self.spatial)) is not None:
            add = {"+": np.add, "min": np.minimum, "max": np.maximum}[update.op]
            for some in placed(self, found, self.box, CHUNK_LIMIT, self.axes):
                add.at(out, some.at, some.of(self.value(found.value, some.part, some.alive)))
            out[...] = wrap(out, self.buffer.dtype)
            return
        for part in self.parts(update):
            step = self.reduced(update, part)
            region = self.region(part)
            target = self.stored(step, part)
            out[region] = _combined(update.op, out[region], target, self.buffer.dtype)

    def _best(self, outs: Sequence[Array], update: Combination, part: Box) -> None:
        """Update the positions and best values with the instances of one part."""
        positions, best = outs
        region = self.region(part)
        where, value = (np.broadcast_to(self.value(e, part, None), part.size) for e in update.values)
        new, first = best_of(update, value, where, tuple(self.reduce))
        new, first = self.stored(new, part), self.stored(first, part)
        pair = np.stack([best[region], new]), np.stack([positions[region], first])
        best[region], positions[region] = (x[0] for x in best_of(update, *pair, (0,)))

    def parts(self, update: Fold) -> list[Box]:
        """The parts of the box, each of which is evaluated at once."""
        factors = self.product(update)
        if factors is None:
            return list(self.box.chunks(range(len(self.box.size)), CHUNK_LIMIT))
        out = linear_parts([i for f in factors for x in loads(f) for i in x.indices], self.box)
        for f in factors:
            axes = [a for a, n in enumerate(self.box.names) if n in free_vars(f)]
            limit = FACTOR_LIMIT if _is_stored(f) else CHUNK_LIMIT
            out = [chunk for part in out for chunk in part.chunks(axes, limit)]
        return [chunk for part in out for chunk in part.chunks(self.spatial, FACTOR_LIMIT)]

    def product(self, update: Fold) -> list[Expr] | None:
        """The factors of a sum of products in which at most two factors are arrays; None for other updates."""
        if update.op != "+":
            return None
        # Integers may be wrapped once at the end, since reduction modulo 2^n is compatible with sums and products.
        factors = factors_of(update.value)
        return factors if sum(1 for f in factors if free_vars(f)) <= 2 else None

    def reduced(self, update: Fold, part: Box) -> Array:
        """The reduction over one part; the reduced axes have length 1."""
        factors = self.product(update)
        if factors is not None:
            return self.sum_of_products([self.value(f, part, None) for f in factors], part)
        full = np.broadcast_to(self.value(update.value, part, None), part.size)
        return wrap(_REDUCE[update.op](full, axis=tuple(self.reduce), keepdims=True), self.buffer.dtype)

    def sum_of_products(self, factors: list[Array], part: Box) -> Array:
        """The sum of the product of `factors` over one part. At most two factors are arrays, the others single numbers."""
        arrays = [f for f in factors if f.size > 1]
        scale = np.ones((1,) * len(part.size), factors[0].dtype)
        for f in factors:
            if f.size == 1:
                scale = scale * f
        return contract(arrays or [scale], self.reduce, part.size) * (scale if arrays else scale.dtype.type(1))

    def stored(self, value: Array, part: Box) -> Array:
        """The value in the order of the buffer's dimensions; `value` broadcasts over the box, reduced axes have length 1."""
        size = tuple(1 if a in self.reduce else n for a, n in enumerate(part.size))
        return (
            np.broadcast_to(value, size).transpose(*self.axes, *self.reduce).reshape([part.size[a] for a in self.axes])
        )


def _is_stored(f: Expr) -> bool:
    """Whether a factor is an array, or one in a wider type: small parts of either would have BLAS begin anew for each."""
    return isinstance(f.operand if isinstance(f, Cast) else f, Load)


def best_of(update: Combination, value: Array, position: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """The least or greatest value over `axes`, or NaN if there is one, and its lowest position; the axes keep length 1."""
    least = np.minimum if update.reducer.name == "argmin" else np.maximum
    best = least.reduce(value, axis=axes, keepdims=True)
    same = (value == best) | (np.isnan(value) & np.isnan(best))
    last = np.iinfo(position.dtype).max
    return best, np.where(same, position, last).min(axis=axes, keepdims=True)
