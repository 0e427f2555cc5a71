"""`storage_align`: add space between the rows of a buffer."""

from __future__ import annotations

from tensorc_dsl.ir.program import ALIGN, OFFSET, Program
from tensorc_dsl.schedule.motion import copy_step, is_param
from tensorc_dsl.schedule.nests import NO_BUFFER, noted, replace_buffer, the_buffer
from tensorc_dsl.schedule.step import BufferRef, Rewrite, primitive, refusal


@refusal(
    "E0634",
    "the rows of `{buffer}` lie where the caller put them",
    help="align those of a copy: `{copy}` makes one",
    at="buffer",
)
def OF_CALLER(*focus: str, buffer: str, copy: str) -> None: ...
@refusal(
    "E0635",
    "{reason}",
    help="name a dimension from 0 to {last}, a factor of at least 1, and an offset from 0 up to the factor",
)
def BAD_PITCH(*focus: str, reason: str, last: int) -> None: ...


@primitive(NO_BUFFER, OF_CALLER, BAD_PITCH)
def storage_align(program: Program, buffer: BufferRef, axis: int, factor: int, offset: int = 0) -> Rewrite[None]:
    """Neighbours along dimension `axis` are `n * factor + offset` elements apart, for the least n that leaves room.

    buffer T: f32[64, 64]   ->   buffer T: f32[64, 64] @("align.0", 32) @("offset.0", 4)

    Here rows are 68 elements apart instead of 64, so that the elements of a column are in different banks of a memory, or
    sets of a cache. Subscripts do not change. A later call for the same dimension replaces the first; a factor of 1 removes
    the padding. In TVM: `storage_align`.  Cases: tests/primitives/storage_align.md
    """
    old = the_buffer(program, buffer)
    if is_param(program, old.name):
        raise OF_CALLER(program, buffer=old.name, copy=copy_step(program, old.name))
    last = len(old.shape) - 1
    for wrong, reason in (
        (not 0 <= axis <= last, f"`{old.name}` has no dimension {axis}"),
        (factor < 1, f"rows cannot lie a multiple of {factor} elements apart"),
        (not 0 <= offset < factor, f"an offset of {offset} is no remainder by {factor}"),
    ):
        if wrong:
            raise BAD_PITCH(program, old.name, reason=reason, last=last)
    pitch = {f"{ALIGN}.{axis}": factor if factor > 1 else None, f"{OFFSET}.{axis}": offset or None}
    return Rewrite(replace_buffer(program, old.name, (noted(old, pitch),)), None)
