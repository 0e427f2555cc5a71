"""Queries about the program as a whole: `p.blocks`."""

from __future__ import annotations

from tensorc_dsl.ir import program as ir
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.query import query
from tensorc_dsl.schedule.refs import BlockRef, BufferRef


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
