"""Writes the descriptor of an operand in shared memory, as `wgmma` takes it.

PTX ISA 9.2, section 9.7.15: "Matrix Descriptor Format". Addresses and distances are in units of 16 bytes.
"""

from __future__ import annotations

from tensorc_dsl.backend.cuda.lower.descriptors import Descriptor
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.ir.warp import UNIT

_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""What a descriptor calls the bytes of a swizzle."""

_FIELD = (1 << 14) - 1
"""The largest number of an address or a distance."""


def write_descriptor(f: Function, d: Descriptor, address: str) -> str:
    """The descriptor, of 64 bits, of an operand at an address of 64 bits within shared memory."""
    leading, stride = d.beyond, d.groups
    if d.operand.deep and not d.operand.swizzle:  # both are named after the dimension of rows or columns there
        leading, stride = stride, leading
    fixed = (leading // UNIT & _FIELD) << 16 | (stride // UNIT & _FIELD) << 32 | _MODES[d.operand.swizzle] << 62
    units = f.op(f"lshr i64 {address}, {UNIT.bit_length() - 1}")
    signed = fixed - (1 << 64) if fixed >> 63 else fixed
    return f.op(f"or i64 {f.op(f'and i64 {units}, {_FIELD}')}, {signed}")
