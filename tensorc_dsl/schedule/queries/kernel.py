"""Queries about the kernel of a block, a statement at the top of the program: the resources of a block of threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tensorc_dsl.ir import program as ir
from tensorc_dsl.ir.expr import Expr, constant
from tensorc_dsl.ir.node import by_first
from tensorc_dsl.ir.program import Axis, Buffer, For, Program, Stmt, walk
from tensorc_dsl.proof.sets.accesses import accesses, home, touched_in
from tensorc_dsl.proof.sets.dependence import versions
from tensorc_dsl.proof.sets.regions import inner_ranges, open_limits, required_region
from tensorc_dsl.proof.sets.simplify import extent_ranges
from tensorc_dsl.schedule.nests import the_block
from tensorc_dsl.schedule.patterns import first, found, name_of
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.refs import BlockPattern, BlockRef, BufferRef, LoopPattern, LoopRef
from tensorc_dsl.schedule.refusal import refusal
from tensorc_dsl.schedule.stale import pitched


@refusal(
    "E0399",
    "how much of `{buffer}` a block of threads needs is open: `{block}` is in the same kernel",
    help="give `{buffer}` a size, or move its uses together below loops of known extents",
)
def OPEN_BUFFER(*focus: str, buffer: str, block: str) -> None: ...


_WARP = 32
"""The number of lanes in a warp."""

_WORD = 4
"""The number of bytes in a register."""


@query
def threads(program: Program, block: BlockRef) -> int:
    """The number of threads in a block of its kernel: the product of the axes that count threads. 1 if none is bound."""
    return _threads(x for _, x in walk((_kernel(program, block),)) if isinstance(x, For))


@query
def shared_bytes(program: Program, block: BlockRef) -> int:
    """The bytes that all "shared" buffers of its kernel take for a block of threads.

    The space between rows counts, and a buffer in a pipeline counts once for each stage from the first that accesses it to
    the last. Refused if this is not a number.
    """
    found = _private(program, block, lambda scope: scope.split(".")[0] == "shared")
    return sum(elements * b.dtype.bytes for b, elements, _ in found)


@query
def registers(program: Program, block: BlockRef) -> int:
    """The number of registers of 32 bits that a block of threads needs for its "local" buffers and fragments.

    Only buffers count: a compiler needs more registers, for addresses and intermediate values. Refused if this is not
    a number.
    """
    found = _private(program, block, lambda scope: scope.split(".")[0] != "shared")
    return sum(-(-elements * b.dtype.bytes // _WORD) * _units(around) for b, elements, around in found)


def _kernel(program: Program, block: BlockRef) -> Stmt:
    around, b = the_block(program, block)
    return around[0] if around else b


def _threads(loops: Iterable[For]) -> int:
    """The threads that the loops count, in dimensions or as warps of 32 lanes, whether the lanes are bound or not."""
    sizes = {x.axis: constant(x.extent) or 1 for x in loops if x.axis is not None and x.axis.counts_threads}
    grouped = {a: n for a, n in sizes.items() if a.level != "thread"}
    if grouped:
        grouped[Axis.LANE] = _WARP
    return max(math.prod(grouped.values()), math.prod(n for a, n in sizes.items() if a.level == "thread"))


def _units(around: Iterable[For]) -> int:
    """The number of copies of a buffer in a block of threads, if the buffer is private to an iteration of these loops.

    A buffer that is private to a warp is distributed over its lanes.
    """
    return math.prod(constant(x.extent) or 1 for x in around if x.axis is not None and x.axis.counts_threads)


def _private(
    program: Program, block: BlockRef, wanted: Callable[[str], bool]
) -> list[tuple[Buffer, int, tuple[For, ...]]]:
    """The buffers of the kernel in wanted scopes, each with the elements of one copy and the loops it is private to."""
    kernel = _kernel(program, block)
    out: list[tuple[Buffer, int, tuple[For, ...]]] = []
    for b in program.buffers:
        if b.scope == "global" or not wanted(b.scope) or b.name not in touched_in(kernel):
            continue
        around = home(program, b) or ()
        sizes = _box(around[-1] if around else kernel, b.name, b.shape, tuple((x.var, x.extent) for x in around))
        if any(n is None for n in sizes):
            raise OPEN_BUFFER(program, block.name, b.name, buffer=b.name, block=block.name)
        out.append((b, pitched(b, [n or 0 for n in sizes]) * (versions(around[-1], b.name) if around else 1), around))
    return out


@by_first(512)
def _box(inner: Stmt, buffer: str, shape: tuple[Expr, ...], around: tuple[tuple[str, Expr], ...]) -> list[int | None]:
    """The sizes of the box of a buffer's elements for one iteration of the loops `around`, the last of which is `inner`; if
    there are none, in the whole statement. Cached, since rules query it often and steps change few buffers."""
    outer = tuple(For(v, n, ()) for v, n in around)
    stmts = inner.body if around and isinstance(inner, For) else (inner,)
    names = {v for v, _ in around}
    at = [(x.indices, inner_ranges(x.loops, names)) for x in accesses(outer, stmts, frozenset((buffer,)))]
    return [constant(n) for _, n in required_region(at, extent_ranges(outer), shape, open_limits(outer))]


# Queries about the program as a whole: `p.blocks`.


@query
def root(program: Program) -> Program:
    """The program itself, for steps that may take a block, a loop or the whole program."""
    return program


@query
def name(program: Program) -> str:
    """The name of the task."""
    return program.name


@query
def blocks(program: Program) -> tuple[BlockRef, ...]:
    """All blocks, in the order of the text."""
    return tuple(BlockRef(b.name) for b in ir.blocks(program))


@query
def inputs(program: Program) -> tuple[BufferRef, ...]:
    """The arguments that are only read."""
    return tuple(BufferRef(b.name) for b in program.inputs)


@query
def outputs(program: Program) -> tuple[BufferRef, ...]:
    """The arguments that are written."""
    return tuple(BufferRef(b.name) for b in program.outputs)


@query
def find_loop(program: Program, pattern: LoopPattern) -> LoopRef:
    """The first loop in the program that is like a pattern, `for _ in 8 { … C += _ … }`; refused if there is none."""
    return LoopRef(first(program, program.body, pattern))


@query
def find_loops(program: Program, pattern: LoopPattern) -> tuple[LoopRef, ...]:
    """All loops in the program that are like a pattern, in the order of the text."""
    return tuple(LoopRef(name_of(s)) for s in found(program.body, pattern))


@query
def find_block(program: Program, pattern: BlockPattern) -> BlockRef:
    """The first block in the program that is like a pattern, `_ = exp(_)`; refused if there is none."""
    return BlockRef(first(program, program.body, pattern))


@query
def find_blocks(program: Program, pattern: BlockPattern) -> tuple[BlockRef, ...]:
    """All blocks in the program that are like a pattern, in the order of the text."""
    return tuple(BlockRef(name_of(s)) for s in found(program.body, pattern))
