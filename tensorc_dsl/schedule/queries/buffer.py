"""Questions about a buffer: `x.shape`."""

from __future__ import annotations

import math

from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.sets.constants import preparation
from tensorc_dsl.schedule import motion
from tensorc_dsl.schedule.nests import the_buffer
from tensorc_dsl.schedule.query import nominal, query
from tensorc_dsl.schedule.refs import BlockRef, BufferRef
from tensorc_dsl.schedule.refusal import refusal


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
