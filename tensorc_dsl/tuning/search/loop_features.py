"""Describes the loop nests of a scheduled program to a model: the same number of features for every structure."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2, prod
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    COMPARISONS,
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    constant,
    dtype_of,
    loads,
)
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.program import Block, Buffer, For, LoopKind, Program, Store, is_scattered, walk
from tensorc_dsl.ir.target import CACHE_LINE, Target
from tensorc_dsl.reference.work import operations

# The loop nests of a scheduled program in numbers: what each of them computes, and how far its accesses reach.
#
# Every subscript is evaluated at a few points: where all loop variables are 0, where one of them is 1, and where one has
# its last value. The differences are the distances in elements between iterations of each loop, so that every subscript
# counts, affine or not. An access whose subscripts read data is taken to move at random.


Points = NDArray[np.int64]


@frozen
class Touch:
    """One access of a block, over the loops of its nest, outermost first.

    `steps` are the distances in elements between the first two iterations of each loop, `spans` those between its first and
    its last one. Where `is_random`, data choose the elements.
    """

    buffer: str
    scope: str
    dtype: DType
    size: int
    writes: bool
    steps: tuple[int, ...]
    spans: tuple[int, ...]
    is_random: bool

    def run(self, loops: list[int], extents: tuple[int, ...]) -> int:
        """How many elements the iterations of the loops touch side by side."""
        run = 1
        for step, extent in sorted((abs(self.steps[k]), extents[k]) for k in loops if self.steps[k]):
            if step > run:
                break
            run += (extent - 1) * step
        return run

    def distinct(self, loops: list[int], extents: tuple[int, ...]) -> int:
        """About how many elements the iterations of the loops touch: exact for tiles, an upper bound for windows."""
        moving = [k for k in loops if self.spans[k]]
        if self.is_random:
            return min(self.size, prod(extents[k] for k in loops))
        reach = sum(abs(self.spans[k]) for k in moving) + 1
        return max(1, min(self.size, reach, prod(extents[k] for k in moving)))


@frozen
class Nest:
    """A block with the loops around it. `operations` are those of one instance of the block."""

    block: Block
    loops: tuple[For, ...]
    extents: tuple[int, ...]
    operations: int
    touches: tuple[Touch, ...]

    @property
    def instances(self) -> int:
        return prod(self.extents)


def nests(program: Program) -> tuple[Nest, ...]:
    """The nests of a program without open dimensions, in text order."""
    program = resolved(program)
    buffers = {b.name: b for b in (*program.params, *program.buffers)}
    return tuple(_nest(around, s, buffers) for around, s in walk(program.body) if isinstance(s, Block))


def _nest(around: tuple[For, ...], block: Block, buffers: dict[str, Buffer]) -> Nest:
    # Of a scattered loop one iteration runs, which the data choose.
    extents = tuple(1 if is_scattered(loop) else number(loop.extent) for loop in around)
    count = len(extents)
    points = np.zeros((count, 2 * count + 1), dtype=np.int64)
    for k, extent in enumerate(extents):
        points[k, 1 + k] = min(1, extent - 1)
        points[k, 1 + count + k] = extent - 1
    env: dict[str, Points] = {loop.var: points[k] for k, loop in enumerate(around)}
    env |= {it.name: _value(it.binding, env, 2 * count + 1) for it in block.iters}
    scattered = {s.buffer for s in block.body} if any(map(is_scattered, around)) else frozenset[str]()
    touches: dict[tuple[object, ...], Touch] = {}
    for s in block.body:
        for access, writes in _accesses(s):
            touch = _touch(access, writes, buffers[access.buffer], env, count)
            if access.buffer in scattered:
                touch = replace(touch, is_random=True)
            touches.setdefault((touch.buffer, touch.writes, touch.steps, touch.spans), touch)
    work = sum(sum(operations(s.value).values()) for s in block.body)
    return Nest(block, around, extents, max(1, work), tuple(touches.values()))


def _accesses(s: Store) -> list[tuple[Load, bool]]:
    stored = Load(s.buffer, s.indices, dtype_of(s.value))
    read = [x for e in (*s.indices, s.value) for x in loads(e)]
    return [(stored, True), *((x, False) for x in read if (x.buffer, x.indices) != (s.buffer, s.indices))]


def _touch(access: Load, writes: bool, buffer: Buffer, env: dict[str, Points], count: int) -> Touch:
    shape = [number(n) for n in buffer.shape]
    flat = np.zeros(2 * count + 1, dtype=np.int64)
    for index, stride in zip(access.indices, [prod(shape[k + 1 :]) for k in range(len(shape))], strict=True):
        flat = flat + _value(index, env, len(flat)) * stride
    away = (flat[1:] - flat[0]).tolist()
    is_random = any(loads(i) for i in access.indices)
    return Touch(
        buffer.name, buffer.scope, buffer.dtype, max(1, prod(shape)), writes,
        tuple(away[:count]), tuple(away[count:]), is_random,
    )  # fmt: skip


def number(e: Expr) -> int:
    """The value of a size. Raises ValueError while a dimension is open."""
    value = constant(e)
    if value is None:
        raise ValueError("a dimension is open")
    return value


_LARGEST = 2**63 - 1


def _value(e: Expr, env: dict[str, Points], count: int) -> Points:
    """A subscript or condition at all points; data read as 0."""
    match e:
        case Const(value=v):
            return np.full(count, min(int(v), _LARGEST), dtype=np.int64)
        case Var(name=name):
            return env[name]
        case Binary(op=op, lhs=a, rhs=b):
            return _binary(op, _value(a, env, count), _value(b, env, count))
        case Select(cond=c, then=a, other=b):
            return np.where(_value(c, env, count) != 0, _value(a, env, count), _value(b, env, count))
        case Cast(operand=a):
            return _value(a, env, count)
        case Compare(op=op, lhs=a, rhs=b):
            x, y = _value(a, env, count), _value(b, env, count)
            return COMPARISONS[op](x, y).astype(np.int64)
        case Logic(op=op, lhs=a, rhs=b):
            x, y = _value(a, env, count), _value(b, env, count)
            return x & y if op == "and" else x | y
        case Not(operand=a):
            return 1 - _value(a, env, count)
        case Load() | Call() | Bitcast():
            return np.zeros(count, dtype=np.int64)
        case Dim():
            raise ValueError("a dimension is open")
        case _:
            assert_never(e)


def _binary(op: str, a: Points, b: Points) -> Points:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "min":
            return np.minimum(a, b)
        case "max":
            return np.maximum(a, b)
        case "xor":
            return a ^ b
        case _:
            safe = np.where(b == 0, 1, b)
            return a // safe if op == "/" else a % safe


# Describes a scheduled program to a model: the same number of features for every structure.
#
# Each nest is put on the roofline of the target: its vector operations, and the bytes that its accesses move into each
# level of the caches if every level keeps what the largest suffix of the loops that fits into it touches (Wolf & Lam, PLDI
# 1991, section 3; a tile model as in Halide's autoscheduler, Adams et al., SIGGRAPH 2019, section 4). The program has the
# sums; the two nests that take longest by this model are described one by one. All numbers are logarithms to base 2, shares
# or ratios, and comparable between shapes of one computation.


Array = NDArray[np.float64]

FLOPS_PER_CYCLE = 2.0
"""Vector operations that a core starts in a cycle: two on today's wide ones. It scales one column against others only."""

BYTES_PER_CYCLE = (64.0, 32.0, 12.0, 6.0)
"""Into registers from the first cache, from the second, from the third and from memory: the order of magnitude of a core."""

DESCRIBED = 2
"""How many nests are described one by one."""

_OF_PROGRAM = (
    "operations", "compute", "l1", "l2", "l3", "memory", "time", "recomputed", "nests", "regions", "local bytes",
    "global bytes", "threads", "grid", "tensorized", "bound by memory",
)  # fmt: skip

_OF_NEST = (
    "share", "lanes", "vector waste", "unit", "broadcast", "strided", "unrolled", "accumulators", "loads per fma", "folded",
    "run", "tile bytes", "fits l1", "fits l2", "fits l3", "l1 per op", "l2 per op", "memory per op", "tasks", "imbalance",
    "task", "body",
)  # fmt: skip

COLUMNS = (*_OF_PROGRAM, *(f"{name} of nest {n}" for n in range(1, DESCRIBED + 1) for name in _OF_NEST))
"""The names of the numbers, in their order."""


@frozen
class _Cost:
    """A nest on the roofline: cycles of one thread by what bounds them (compute, the four levels), and the nest's numbers."""

    nest: Nest
    compute: float
    levels: tuple[float, ...]
    numbers: tuple[float, ...]

    @property
    def cycles(self) -> float:
        return max(self.compute, *self.levels)


def loop_features(program: Program, target: Target) -> Array:
    """A number for each of `COLUMNS`, for a program without open dimensions."""
    costs = sorted((_cost(n, target) for n in nests(program) if all(n.extents)), key=lambda c: -c.cycles)
    total = sum(c.cycles for c in costs) or 1.0
    out = [*_of_program(program, costs)]
    for n in range(DESCRIBED):
        if n < len(costs):
            out += [costs[n].cycles / total, *costs[n].numbers]
        else:
            out += [0.0] * len(_OF_NEST)
    return np.array(out)


def _of_program(program: Program, costs: list[_Cost]) -> list[float]:
    work = sum(c.nest.instances * c.nest.operations for c in costs)
    least = max((c.nest.instances * c.nest.operations for c in costs), default=1)
    compute = sum(c.compute for c in costs)
    levels = [sum(c.levels[k] for c in costs) for k in range(4)]
    time = sum(c.cycles for c in costs)
    bytes_ = {True: 0, False: 0}
    for b in resolved(program).buffers:
        bytes_[b.scope == "global"] += b.dtype.bytes * prod(map(number, b.shape))
    threads = max((prod(_extents(c.nest, LoopKind.BOUND, True)) for c in costs), default=1)
    grid = max((prod(_extents(c.nest, LoopKind.BOUND, False)) for c in costs), default=1)
    tensorized = sum(c.nest.instances for c in costs if any(x.kind is LoopKind.TENSORIZED for x in c.nest.loops))
    bound = sum(c.cycles for c in costs if c.levels[3] >= c.compute)
    return [
        _log(work), _log(compute), *map(_log, levels), _log(time), _log(work / max(1, least)), float(len(costs)),
        float(len(program.body)), _log(1 + bytes_[False]), _log(1 + bytes_[True]), _log(threads), _log(grid),
        tensorized / max(1, sum(c.nest.instances for c in costs)), bound / max(time, 1.0),
    ]  # fmt: skip


def _extents(nest: Nest, kind: LoopKind, threads: bool) -> list[int]:
    return [
        e for x, e in zip(nest.loops, nest.extents, strict=True)
        if x.kind is kind and x.axis is not None and x.axis.counts_threads is threads
    ]  # fmt: skip


def _log(x: float) -> float:
    return log2(max(x, 1e-9))


def _cost(nest: Nest, target: Target) -> _Cost:
    extents, count = nest.extents, len(nest.extents)
    kinds = [x.kind for x in nest.loops]
    bits = max((t.dtype.bits for t in nest.touches), default=32)
    width = max(1, target.vector_bits // bits)
    vector = [k for k in range(count) if kinds[k] in (LoopKind.VECTORIZED, LoopKind.TENSORIZED)]
    lanes = prod(extents[k] for k in vector) if vector else 1
    useful = lanes / (ceil(lanes / width) * width)
    tasks = prod(extents[k] for k in range(count) if kinds[k] in (LoopKind.PARALLEL, LoopKind.BOUND))
    share = ceil(tasks / target.cores) / tasks
    work = nest.instances * nest.operations * share
    compute = work / (width * useful * FLOPS_PER_CYCLE)
    caches = (0, target.l1, target.l2, max(1, target.l3 // target.cores))
    footprints = _footprints(nest)
    depths = [next((d for d in range(count + 1) if footprints[d][1] <= c), count) for c in caches[1:]]
    levels = (
        _moved(nest, _registers(kinds)) * share / BYTES_PER_CYCLE[0],
        *(_moved(nest, d) * share / b for d, b in zip(depths, BYTES_PER_CYCLE[1:], strict=True)),
    )
    tile = list(range(_registers(kinds), count))
    written = next((t for t in nest.touches if t.writes), None)
    accumulators = 0.0 if written is None else written.distinct(tile, extents) / width
    loaded = sum(t.distinct(tile, extents) for t in nest.touches if not t.writes) / width
    body = prod(extents[k] for k in tile) / (width * useful)
    folded = 1
    for k in range(_registers(kinds) - 1, -1, -1):
        if written is None or written.spans[k] or kinds[k] is not LoopKind.SERIAL:
            break
        folded *= extents[k]
    classes = [_class(t, vector) for t in nest.touches]
    runs = [t.run(list(range(depths[0], count)), extents) * t.dtype.bytes for t in nest.touches]
    per_op = [x / max(work, 1.0) for x in levels]
    numbers = (
        _log(lanes), 1 - useful, *(float(classes.count(c)) for c in (1, 0, 2)),
        _log(prod(extents[k] for k in range(count) if kinds[k] is LoopKind.UNROLLED)),
        min(accumulators / target.vector_registers, 8.0), min(loaded / max(body, 1e-9), 8.0), _log(folded),
        _log(min(runs, default=1)), _log(footprints[_registers(kinds)][0]),
        *(_log(prod(extents[d:])) for d in depths),
        *(_log(1e-6 + x) for x in (per_op[1], per_op[2], per_op[3])),
        _log(tasks), share * tasks / max(1.0, tasks / target.cores) - 1.0, _log(work / max(1, ceil(tasks / target.cores))),
        _log(body),
    )  # fmt: skip
    return _Cost(nest, compute, levels, numbers)


def _registers(kinds: list[LoopKind]) -> int:
    """The depth below which all loops are vectorized or unrolled: their data are in registers."""
    depth = len(kinds)
    while depth and kinds[depth - 1] in (LoopKind.VECTORIZED, LoopKind.UNROLLED, LoopKind.TENSORIZED):
        depth -= 1
    return depth


def _class(t: Touch, vector: list[int]) -> int:
    """0 where all lanes read one element, 1 where they read neighbours, else 2."""
    steps = {abs(t.steps[k]) for k in vector}
    return 2 if t.is_random and vector else 0 if steps <= {0} else 1 if min(steps - {0}) == 1 else 2


def _footprints(nest: Nest) -> list[tuple[float, float]]:
    """(bytes, bytes of whole lines) that the loops from each depth on touch; the last is one instance."""
    out: list[tuple[float, float]] = []
    for d in range(len(nest.extents) + 1):
        loops = list(range(d, len(nest.extents)))
        dense = whole = 0.0
        for t in nest.touches:
            elements, lines = _lines(t, loops, nest.extents)
            dense += elements * t.dtype.bytes
            whole += lines * CACHE_LINE
        out.append((dense, whole))
    return out


def _lines(t: Touch, loops: list[int], extents: tuple[int, ...]) -> tuple[float, float]:
    """The elements that the iterations of the loops touch, and the cache lines that those lie in."""
    elements = t.distinct(loops, extents)
    run = 1 if t.is_random else min(elements, t.run(loops, extents))
    return elements, elements / run * max(1.0, run * t.dtype.bytes / CACHE_LINE)


def _moved(nest: Nest, depth: int) -> float:
    """Bytes that come in from the next level where a level keeps what the loops from `depth` on touch.

    What the loop just outside does not move stays.
    """
    total = 0.0
    loops = list(range(depth, len(nest.extents)))
    for t in nest.touches:
        times = prod(nest.extents[:depth])
        for k in range(depth - 1, -1, -1):
            if t.spans[k]:
                break
            times //= nest.extents[k]
        total += times * _lines(t, loops, nest.extents)[1] * CACHE_LINE * (1 + t.writes)
    return total
