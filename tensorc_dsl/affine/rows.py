"""The distances of rows in memory, for what accesses whole units of bytes."""

from __future__ import annotations

from functools import reduce

from tensorc_dsl.affine.simplify import is_multiple
from tensorc_dsl.ir.expr import ONE, Expr, mul
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.ir.warp import UNIT


def uneven_row(array: Buffer) -> Expr | None:
    """The elements between neighbours along a dimension, if these are not known to be a multiple of 16 bytes apart; None if
    all are, those along the last dimension aside."""
    for n in range(1, len(array.shape)):
        row = reduce(mul, array.shape[n:], ONE)
        if not is_multiple(row, UNIT // array.dtype.bytes, {}):
            return row
    return None
