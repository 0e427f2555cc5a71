"""Writes the descriptor of an operand in shared memory, as `wgmma` takes it.

PTX ISA 9.2, section 9.7.15: "Matrix Descriptor Format". Addresses and distances are in units of 16 bytes.
"""

from __future__ import annotations

from tensorc_dsl.backend.cuda.lower.descriptors import Descriptor
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.scope import Scalar
from tensorc_dsl.ir.warp import UNIT

_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""What a descriptor calls the bytes of a swizzle."""

_FIELD = (1 << 14) - 1
"""The largest number of an address or a distance."""


def write_descriptor(f: Function, d: Descriptor, base: str, units: Scalar) -> tuple[str, int]:
    """The low and the high 32 bits of the descriptor of an operand that begins so many units, of 64 bits, behind an address
    of 32 bits within shared memory. The high ones are the same for all operands of a kind.

    Units are added to that of the buffer, as in CUTLASS: then the descriptors of a loop are a constant apart. The sum is
    within the 14 bits of an address, since shared memory has less than 256 KB.
    """
    leading, stride = d.beyond, d.groups
    if d.operand.deep and not d.operand.swizzle:  # both are named after the dimension of rows or columns there
        leading, stride = stride, leading
    first = f.cached(f"and i32 {f.cached(f'lshr i32 {base}, {UNIT.bit_length() - 1}')}, {_FIELD}")
    low = f.cached(f"or i32 {first}, {(leading // UNIT & _FIELD) << 16}")
    behind = f.op(f"trunc i64 {units} to i32")
    return f.op(f"add i32 {low}, {behind}"), stride // UNIT & _FIELD | _MODES[d.operand.swizzle] << 30
