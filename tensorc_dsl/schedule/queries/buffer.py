"""Queries about a buffer, `x.shape`, and about the elements that a block accesses below a loop: `b.region(A, l)`,
`b.working_set(l)`."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import reduce

from tensorc_dsl.ir.expr import ONE, ZERO, Expr, Var, add, constant, loads, mul, sub, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, For, Program
from tensorc_dsl.proof.sets.constants import preparation
from tensorc_dsl.proof.sets.regions import Region, inner_ranges, open_limits, required_region
from tensorc_dsl.proof.sets.sets import bindings
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, simplify
from tensorc_dsl.schedule import motion
from tensorc_dsl.schedule.nests import the_block, the_buffer
from tensorc_dsl.schedule.query import nominal, query
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, refusal


@refusal(
    "E0381",
    "`{loop}` is not around `{block}`",
    help="the loops around it are: {loops}",
    at="loop",
)
def NOT_AROUND(*focus: str, loop: str, block: str, loops: str) -> None: ...
@refusal(
    "E0385",
    "how much of `{buffer}` an iteration of `{loop}` touches is open: {extent} elements",
    help="bind the size in the task, or ask `is_open` of the buffer first",
    at="loop",
)
def OPEN_REGION(*focus: str, buffer: str, loop: str, extent: str) -> None: ...


_LARGEST_TILE = 1 << 20


@query
def region(program: Program, block: BlockRef, buffer: BufferRef, loop: LoopRef) -> tuple[int, ...]:
    """The sizes of the box of a buffer that it reads or writes in one iteration of a loop around it.

    All are 0 for a buffer that it does not access. Refused if one is not a number.
    """
    around, b, outside = _at(program, block, loop)
    name = the_buffer(program, buffer).name
    return _box(program, (block, loop), name, _touched(b).get(name, ()), (around, b, outside))


@query
def is_region_open(program: Program, block: BlockRef, buffer: BufferRef, loop: LoopRef) -> bool:
    """Whether a copy of what it accesses in an iteration has an open size: `region` is not a number, as where data select an
    element along an open dimension, or along such a dimension the box is as long as that can be, or not a fixed distance
    from each of its parts.
    """
    place = _at(program, block, loop)
    x = the_buffer(program, buffer)
    accesses = _touched(place[1]).get(x.name, ())
    box = _region(accesses, x.shape, place)
    parts = [_region((at,), x.shape, place) for at in accesses] if len(accesses) > 1 else []
    for d, ((low, n), size) in enumerate(zip(box, x.shape, strict=True)):
        length, most = constant(n), bounds(size, {})[1]
        if length is None:
            return True
        if constant(size) is None and (
            (most is not None and length >= most)
            or any(constant(simplify(sub(low, part[d][0]), {})) is None for part in parts)
        ):
            return True
    return False


@query
def nominal_region(program: Program, block: BlockRef, buffer: BufferRef, loop: LoopRef) -> tuple[int, ...]:
    """As `region`, at the nominal sizes of open dimensions, as in `l.nominal_extent`."""
    return region(nominal(program), block, buffer, loop)


@query
def working_set(program: Program, block: BlockRef, loop: LoopRef) -> int:
    """The number of bytes that it reads and writes in one iteration of a loop around it: the boxes of all its buffers.

    If they fit a cache, the loops inside do not fetch them again. Refused if this is not a number.
    """
    place = _at(program, block, loop)
    return sum(
        math.prod(_box(program, (block, loop), name, accesses, place)) * program.buffer(name).dtype.bytes
        for name, accesses in _touched(place[1]).items()
    )


@query
def fitting_tile(program: Program, block: BlockRef, loop: LoopRef, sizes: tuple[int, ...], capacity: int) -> int:
    """The largest tile of a loop around it for which the data that it reads fit into `capacity` bytes; 0 if none does.

    `sizes` are the tiles of the loops outside of that one, outermost first; other loops are fixed. Each buffer counts
    with the box that a tile accesses, as a copy of it would: that around all places where it is read, which are farther
    apart in some tiles than in others. At most 2^20.
    """
    around, b, outside = _at(program, block, loop)
    tiles = dict(zip((x.var for x in outside[:-1]), sizes, strict=False))
    stored = {s.buffer for s in b.body}
    reads = {name: at for name, at in _touched(b).items() if name not in stored}
    # Where a tile begins is a variable whose name no loop has. A larger tile, of which there are fewer, takes no less.
    numbers = {f"{v}'": interval for v, interval in extent_ranges(around).items()}
    starts: dict[str, Expr] = {x.var: add(Var(f"{x.var}'"), Var(x.var)) for x in around}

    def fits(last: int) -> bool:
        ranges = {x.var: (0, (last if x.var == loop.name else tiles.get(x.var, 1)) - 1) for x in around}
        used = 0
        for name, accesses in reads.items():
            buffer = program.buffer(name)
            places = [tuple(substitute(i, bindings(b)) for i in indices) for indices in accesses]
            if len(places) > 1:
                places = [tuple(substitute(i, starts) for i in indices) for indices in places]
            at = [(indices, ranges) for indices in places]
            extents = [constant(n) for _, n in required_region(at, numbers if len(places) > 1 else {}, buffer.shape)]
            # A buffer without a known size may be small: a bound for all sizes counts it as one element.
            used += math.prod(n or 1 for n in extents) * buffer.dtype.bytes
        return used <= capacity

    return bisect_left(range(1, _LARGEST_TILE + 1), True, key=lambda n: not fits(n))


@query
def is_straight(program: Program, block: BlockRef, buffer: BufferRef, loops: tuple[LoopRef, ...]) -> bool:
    """Whether these loops read a box of a buffer, each element once: each of them moves the read by one element along a
    dimension of its own, or not at all. The outputs of a convolution with a stride do not, and neither do its outputs and
    its window together.
    """
    b = the_block(program, block)[1]
    found = _touched(b).get(the_buffer(program, buffer).name, ())
    moved: list[int] = []
    for at in found:
        subscripts = [substitute(i, bindings(b)) for i in at]
        for loop in loops:
            later: dict[str, Expr] = {loop.name: add(Var(loop.name), ONE)}
            steps = [simplify(sub(substitute(i, later), i), {}) for i in subscripts]
            if any(step not in (ZERO, ONE) for step in steps):
                return False
            moved += (d for d, step in enumerate(steps) if step == ONE)
            if len(set(moved)) < len(moved):
                return False
    return len(found) <= 1


BlockInTile = tuple[tuple[For, ...], Block, tuple[For, ...]]
"""The loops around a block, the block, and those of the loops that are fixed."""


def _at(program: Program, block: BlockRef, loop: LoopRef) -> BlockInTile:
    around, b = the_block(program, block)
    position = next((n for n, x in enumerate(around) if x.var == loop.name), None)
    if position is None:
        names = ", ".join(x.var for x in around) or "none"
        raise NOT_AROUND(program, block.name, loop=loop.name, block=block.name, loops=names)
    return around, b, around[: position + 1]


def _touched(b: Block) -> dict[str, tuple[tuple[Expr, ...], ...]]:
    """The subscripts at which the block accesses each buffer, without duplicates."""
    found: dict[str, dict[tuple[Expr, ...], None]] = {}
    for s in b.body:
        found.setdefault(s.buffer, {})[s.indices] = None
        for e in (s.value, *s.indices):
            for x in loads(e):
                found.setdefault(x.buffer, {})[x.indices] = None
    return {name: tuple(accesses) for name, accesses in found.items()}


def _region(accesses: tuple[tuple[Expr, ...], ...], shape: tuple[Expr, ...], place: BlockInTile) -> Region:
    """The box of a buffer of this shape that the accesses have in an iteration of the fixed loops."""
    around, b, outside = place
    if not accesses:
        return ((ZERO, ZERO),) * len(shape)
    inner = inner_ranges(around, {x.var for x in outside})
    at = [(tuple(substitute(i, bindings(b)) for i in indices), inner) for indices in accesses]
    return required_region(at, extent_ranges(outside), shape, open_limits(outside))


def _box(
    program: Program,
    refs: tuple[BlockRef, LoopRef],
    buffer: str,
    accesses: tuple[tuple[Expr, ...], ...],
    place: BlockInTile,
) -> tuple[int, ...]:
    extents = [size for _, size in _region(accesses, program.buffer(buffer).shape, place)]
    sizes = tuple(n for e in extents if (n := constant(e)) is not None)
    if len(sizes) < len(extents):
        block, loop = refs
        extent = format_expr(reduce(mul, extents))
        raise OPEN_REGION(program, block.name, loop.name, buffer=buffer, loop=loop.name, extent=extent)
    return sizes


# Questions about a buffer: `x.shape`.


@refusal("E0382", "a dimension of `{buffer}` is `{extent}`, not a number", help="ask `{buffer}.is_open` first")
def OPEN_SHAPE(*focus: str, buffer: str, extent: str) -> None: ...


@query
def name(program: Program, buffer: BufferRef) -> str:
    """Its name."""
    return the_buffer(program, buffer).name


@query
def dtype(program: Program, buffer: BufferRef) -> str:
    """The type of an element: "f32"."""
    return str(the_buffer(program, buffer).dtype)


@query
def scope(program: Program, buffer: BufferRef) -> str:
    """Its memory: "global", or "local" to an iteration."""
    return the_buffer(program, buffer).scope


@query
def is_open(program: Program, buffer: BufferRef) -> bool:
    """Whether a dimension is open, so that its size is not a number."""
    return any(constant(e) is None for e in the_buffer(program, buffer).shape)


@query
def shape(program: Program, buffer: BufferRef) -> tuple[int, ...]:
    """The sizes of its dimensions; refused if one is open."""
    sizes: list[int] = []
    for e in the_buffer(program, buffer).shape:
        size = constant(e)
        if size is None:
            raise OPEN_SHAPE(program, buffer=buffer.name, extent=format_expr(e))
        sizes.append(size)
    return tuple(sizes)


@query
def nominal_shape(program: Program, buffer: BufferRef) -> tuple[int, ...]:
    """The sizes of its dimensions at the nominal sizes of open ones, as in `l.nominal_extent`."""
    return shape(nominal(program), buffer)


@query
def bytes_per_element(program: Program, buffer: BufferRef) -> int:
    """The size of an element in bytes."""
    return the_buffer(program, buffer).dtype.bytes


@query
def bytes(program: Program, buffer: BufferRef) -> int:  # noqa: A001 - what the language calls it
    """The size of all elements in bytes; refused if a dimension is open."""
    return math.prod(shape(program, buffer)) * bytes_per_element(program, buffer)


@query
def is_param(program: Program, buffer: BufferRef) -> bool:
    """Whether it is an argument of the kernel, an input or an output."""
    return motion.is_param(program, the_buffer(program, buffer).name)


@query
def is_constant(program: Program, buffer: BufferRef) -> bool:
    """Whether it is the same in many calls: a constant input, or computed in advance from constant inputs alone."""
    b = the_buffer(program, buffer)
    return b.constant or b.name in preparation(program).fixed


@query
def writers(program: Program, buffer: BufferRef) -> tuple[BlockRef, ...]:
    """The blocks that write it, in the order of the text."""
    return tuple(BlockRef(b.name) for _, b in motion.writers(program, the_buffer(program, buffer).name))


@query
def readers(program: Program, buffer: BufferRef) -> tuple[BlockRef, ...]:
    """The blocks that read it, in the order of the text."""
    return tuple(BlockRef(b.name) for _, b in motion.readers(program, the_buffer(program, buffer).name))
