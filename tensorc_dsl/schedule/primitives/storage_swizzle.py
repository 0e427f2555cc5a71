"""`storage_swizzle`: keep the rows of a buffer in different banks, without space between them."""

from __future__ import annotations

from tensorc_dsl.ir.annotations import UNITS
from tensorc_dsl.ir.program import SWIZZLE, Program
from tensorc_dsl.schedule.nests import NO_BUFFER, noted, replace_buffer, the_buffer
from tensorc_dsl.schedule.step import BufferRef, Rewrite, primitive, refusal

_SCOPES = ("shared", "shared.dyn")


@refusal(
    "E0690",
    '`{buffer}` is in "{scope}", and only the memory of a block has banks',
    help="swizzle a copy in shared memory: `read_at` or `set_scope` puts one there",
    at="buffer",
)
def NO_BANKS(*focus: str, buffer: str, scope: str) -> None: ...
@refusal(
    "E0691",
    "{reason}",
    help="name one of the dimensions before the last, and units of 16, 32 or 64 bytes: {units} elements",
)
def BAD_SWIZZLE(*focus: str, reason: str, units: str) -> None: ...


@primitive(NO_BUFFER, NO_BANKS, BAD_SWIZZLE)
def storage_swizzle(program: Program, buffer: BufferRef, axis: int, unit: int) -> Rewrite[None]:
    """Neighbours along dimension `axis` are in different banks of shared memory; `unit` adjacent elements stay adjacent.

    buffer T: f16[64, 64] in "shared"   ->   buffer T: f16[64, 64] in "shared" @("swizzle.0", 8)

    The units of each line of 128 bytes are permuted by an exclusive or with bits of the line's number, with the bits that
    the distance of the neighbours needs: here the unit u of row i is at the place of `xor(u, i % 8)`. It takes no memory,
    and a request for whole lines is as fast as without it, where space between rows (`storage_align`) makes it slower.
    Subscripts do not change, and neither does what is proved about them: lowering permutes all accesses alike, last.
    Accesses of up to `unit` elements at once stay whole. Rows that are no multiple of `unit` apart have no code for a GPU.
    A later call replaces the first. In CUTLASS: `Swizzle`.
    Cases: tests/primitives/storage_swizzle.md
    """
    old = the_buffer(program, buffer)
    if old.scope not in _SCOPES:
        raise NO_BANKS(program, old.name, buffer=old.name, scope=old.scope)
    last, size = len(old.shape) - 1, old.dtype.bytes
    fitting = [n // size for n in UNITS]
    for wrong, reason in (
        (not 0 <= axis < last, f"neighbours along dimension {axis} of `{old.name}` are no rows"),
        (unit not in fitting, f"{unit} elements of `{old.name}` have {unit * size} bytes"),
    ):
        if wrong:
            units = ", ".join(map(str, fitting))
            raise BAD_SWIZZLE(program, old.name, reason=reason, units=units)
    earlier = dict.fromkeys(k for k, _ in old.annotations if k.split(".")[0] == SWIZZLE)
    return Rewrite(replace_buffer(program, old.name, (noted(old, {**earlier, f"{SWIZZLE}.{axis}": unit}),)), None)
