"""The sizes that rules assume where a dimension is open."""

from __future__ import annotations

from tensorc_dsl.ir.bind import bind
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.memo import by_identity
from tensorc_dsl.ir.program import Program

UNLIMITED = 1024
"""The nominal size of a dimension that has no largest one (or four times its least size, if that is more)."""


def nominal_size(d: Dim) -> int:
    """The largest size that a dimension is timed at, as far as the task says, else its largest."""
    if d.at:
        return max(d.at)
    return max(UNLIMITED, 4 * d.low) if d.high is None else d.high


@by_identity(256)
def nominal(program: Program) -> Program:
    """The program with each open dimension at its nominal size; the program itself if none is open."""
    return bind(program, {d.name: nominal_size(d) for d in program.dims})
