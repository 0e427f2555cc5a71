"""Queries about the program as a whole: `p.blocks`."""

from __future__ import annotations

from tensorc_dsl.ir import program as ir
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.patterns import first, found, name_of
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.refs import BlockPattern, BlockRef, BufferRef, LoopPattern, LoopRef


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
