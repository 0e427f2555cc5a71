"""Questions about a loop: `l.extent`."""

from __future__ import annotations

from tensorc_dsl.ir.expr import constant, free_vars
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import PERSISTENT, Block, For, IterKind, LoopKind, Program, walk
from tensorc_dsl.schedule.nests import mode_of, the_loop
from tensorc_dsl.schedule.patterns import first, found, name_of
from tensorc_dsl.schedule.query import nominal, query
from tensorc_dsl.schedule.step import BlockPattern, BlockRef, LoopPattern, LoopRef, refusal


@refusal("E0383", "the extent of `{loop}` is `{extent}`, not a number", help="ask `{loop}.is_open` first")
def OPEN_EXTENT(*focus: str, loop: str, extent: str) -> None: ...


LETTERS = {IterKind.SPATIAL: "S", IterKind.REDUCE: "R", IterKind.SCAN: "C"}
"""The letters for kinds of iterators in structure strings and queries."""


@query
def name(program: Program, loop: LoopRef) -> str:
    """Its name."""
    return the_loop(program, loop)[1].var


@query
def is_open(program: Program, loop: LoopRef) -> bool:
    """Whether its extent is open, so that it is not a number."""
    return constant(the_loop(program, loop)[1].extent) is None


@query
def extent(program: Program, loop: LoopRef) -> int:
    """The number of its iterations; refused if that is open."""
    found = the_loop(program, loop)[1].extent
    count = constant(found)
    if count is None:
        raise OPEN_EXTENT(program, loop.name, loop=loop.name, extent=format_expr(found))
    return count


@query
def nominal_extent(program: Program, loop: LoopRef) -> int:
    """The number of its iterations at the nominal sizes of open dimensions: the largest size that the task is timed at, as
    far as it says so, else the largest that there is, else 1024. As `extent` if that is a number.
    """
    return extent(nominal(program), loop)


@query
def largest_divisor(program: Program, loop: LoopRef, limit: int) -> int:
    """The largest number up to `limit` that divides its extent: its largest perfect tile. Refused if that is open."""
    count = extent(program, loop)
    return next((n for n in range(min(limit, count), 1, -1) if count % n == 0), 1)


@query
def tiles(program: Program, loop: LoopRef, size: int) -> int:
    """The number of tiles of `size` iterations that it has, the last of which may be a part of one; 0 for a `size` below 1.
    Refused if its extent is open. Unlike a quotient of the two, it is no formula over what drew the size.
    """
    return -(-extent(program, loop) // size) if size > 0 else 0


@query
def kind(program: Program, loop: LoopRef) -> str:
    """The kind of the iterators that use it: "S" spatial only, "R" reductions, "C" scans, "M" several kinds."""
    kinds = {
        LETTERS[it.kind]
        for _, s in walk(the_loop(program, loop)[1].body)
        if isinstance(s, Block)
        for it in s.iters
        if loop.name in free_vars(it.binding)
    }
    return kinds.pop() if len(kinds) == 1 else "M" if kinds else "S"


@query
def mode(program: Program, loop: LoopRef) -> str:
    """How it runs: "serial", "parallel", "vectorized", "unrolled", "pipelined", "bound" or "scattered"."""
    return mode_of(the_loop(program, loop)[1])


@query
def axis(program: Program, loop: LoopRef) -> str:
    """The axis that it is bound to: "block.x"; the empty string if it is not bound."""
    return the_loop(program, loop)[1].axis or ""


@query
def is_serial(program: Program, loop: LoopRef) -> bool:
    """Whether it runs in order, all of it: it is not parallel, vectorized, unrolled, pipelined, bound or scattered."""
    return mode_of(the_loop(program, loop)[1]) == LoopKind.SERIAL


@query
def is_persistent(program: Program, loop: LoopRef) -> bool:
    """Whether a fixed number of blocks take its iterations in turn, as `persist` has it."""
    return (PERSISTENT, True) in the_loop(program, loop)[1].annotations


@query
def depth(program: Program, loop: LoopRef) -> int:
    """The number of loops around it."""
    return len(the_loop(program, loop)[0])


@query
def around(program: Program, loop: LoopRef) -> tuple[LoopRef, ...]:
    """The loops around it, outermost first."""
    return tuple(LoopRef(x.var) for x in the_loop(program, loop)[0])


@query
def after(program: Program, loop: LoopRef) -> tuple[LoopRef, ...]:
    """The loops behind it in the same body, in the order of the text; for a loop that was cut, its tail."""
    around, found = the_loop(program, loop)
    body = around[-1].body if around else program.body
    return tuple(LoopRef(s.var) for s in body[body.index(found) + 1 :] if isinstance(s, For))


@query
def blocks(program: Program, loop: LoopRef) -> tuple[BlockRef, ...]:
    """The blocks below it, in the order of the text."""
    return tuple(BlockRef(s.name) for _, s in walk(the_loop(program, loop)[1].body) if isinstance(s, Block))


@query
def children(program: Program, loop: LoopRef) -> tuple[LoopRef, ...]:
    """The loops directly inside it, in the order of the text."""
    return tuple(LoopRef(s.var) for s in the_loop(program, loop)[1].body if isinstance(s, For))


@query
def find_loop(program: Program, loop: LoopRef, pattern: LoopPattern) -> LoopRef:
    """The first loop below it that is like a pattern, `for _ in 8 { … C += _ … }`; refused if there is none."""
    return LoopRef(first(program, the_loop(program, loop)[1].body, pattern))


@query
def find_loops(program: Program, loop: LoopRef, pattern: LoopPattern) -> tuple[LoopRef, ...]:
    """All loops below it that are like a pattern, in the order of the text."""
    return tuple(LoopRef(name_of(s)) for s in found(the_loop(program, loop)[1].body, pattern))


@query
def find_block(program: Program, loop: LoopRef, pattern: BlockPattern) -> BlockRef:
    """The first block below it that is like a pattern, `_ = exp(_)`; refused if there is none."""
    return BlockRef(first(program, the_loop(program, loop)[1].body, pattern))


@query
def find_blocks(program: Program, loop: LoopRef, pattern: BlockPattern) -> tuple[BlockRef, ...]:
    """All blocks below it that are like a pattern, in the order of the text."""
    return tuple(BlockRef(name_of(s)) for s in found(the_loop(program, loop)[1].body, pattern))
