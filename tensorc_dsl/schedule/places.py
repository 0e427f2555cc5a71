"""Finds the loops, blocks and buffers that a step names, with the refusals that all steps over loops share."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    LoopKind,
    Program,
    Stmt,
    blocks,
    find_block,
    find_loop,
    is_scattered,
)
from tensorc_dsl.schedule.refs import BlockRef, BufferRef, LoopRef
from tensorc_dsl.schedule.refusal import ScheduleRefusal, refusal


@refusal(
    "E0310",
    "cannot {step} `{loop}`: it is already {kind}",
    help="{repair}",
    at="loop",
)
def NOT_SERIAL(*focus: str, step: str, loop: str, kind: str, repair: str) -> None: ...
@refusal(
    "E0320",
    "`{loop}` is named twice",
    help="name each loop once, in the order they shall have",
    at="loop",
    label="the second time",
)
def REPEATED(*focus: str, loop: str) -> None: ...
@refusal(
    "E0340",
    "there is no loop `{loop}` at this point",
    help="a step that replaces a loop gives the new ones; name those",
    at="loop",
)
def NO_LOOP(*focus: str, loop: str) -> None: ...
@refusal(
    "E0341",
    "there is no block `{block}` at this point",
    help="the blocks here are: {blocks}",
    at="block",
)
def NO_BLOCK(*focus: str, block: str, blocks: str) -> None: ...
@refusal(
    "E0352",
    "there is no buffer `{buffer}` at this point",
    help="the buffers here are: {buffers}",
    at="buffer",
)
def NO_BUFFER(*focus: str, buffer: str, buffers: str) -> None: ...


def the_loop(program: Program, ref: LoopRef) -> tuple[tuple[For, ...], For]:
    """The loops around the loop, and the loop. Raises ScheduleRefusal if there is none of that name (any more)."""
    try:
        return find_loop(program, ref.name)
    except KeyError:
        raise NO_LOOP(program, loop=ref.name) from None


def refuse_repeated(program: Program, loops: Sequence[LoopRef]) -> None:
    """Refuse loops of which one is named twice."""
    names = [x.name for x in loops]
    for n, name in enumerate(names):
        if name in names[:n]:
            raise REPEATED(program, name, loop=name)


def the_block(program: Program, ref: BlockRef) -> tuple[tuple[For, ...], Block]:
    """The loops around the block, and the block. Raises ScheduleRefusal if there is none of that name (any more)."""
    try:
        return find_block(program, ref.name)
    except KeyError:
        names = sorted(b.name for b in blocks(program))
        raise NO_BLOCK(program, block=ref.name, blocks=", ".join(names)) from None


def the_statement(program: Program, ref: LoopRef | BlockRef) -> tuple[tuple[For, ...], Stmt]:
    """The loops around the loop or block, and it. Raises ScheduleRefusal if there is none of that name (any more)."""
    return the_loop(program, ref) if isinstance(ref, LoopRef) else the_block(program, ref)


def the_buffer(program: Program, ref: BufferRef) -> Buffer:
    """The buffer of that name. Raises ScheduleRefusal if there is none (any more)."""
    try:
        return program.buffer(ref.name)
    except KeyError:
        names = ", ".join(b.name for b in (*program.params, *program.buffers))
        raise NO_BUFFER(program, buffer=ref.name, buffers=names) from None


def mode_of(loop: For) -> str:
    """How a loop runs: its kind, or "scattered"."""
    return "scattered" if is_scattered(loop) else str(loop.kind)


def not_serial(program: Program, loop: For, step: str) -> ScheduleRefusal:
    """The refusal of a step that would take apart or move a loop that has a kind."""
    kind = mode_of(loop)
    facts = {"kind": kind, "repair": f"{step} `{loop.var}` first, then make a loop {kind}"}
    return NOT_SERIAL(program, loop.var, step=step, loop=loop.var, **facts)


def require_serial(program: Program, loop: For, step: str) -> None:
    """Refuse a loop that is parallel, vectorized, unrolled, pipelined or scattered for a step that takes it apart."""
    if mode_of(loop) != LoopKind.SERIAL:
        raise not_serial(program, loop, step)


def require_no_kind(program: Program, loop: For, step: str) -> None:
    """Refuse a loop that already has a kind for a step that gives it one."""
    if (kind := mode_of(loop)) != LoopKind.SERIAL:
        repair = "a loop has one kind; choose another loop"
        raise NOT_SERIAL(program, loop.var, step=step, loop=loop.var, kind=kind, repair=repair)
