"""How much work a program is, for rates: operations on values, and bytes of its parameters."""

from __future__ import annotations

from math import prod

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Binary, Call, Expr, Load, Select, children, constant, dtype_of
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.reference.evaluate import shape_of


def flops(program: Program) -> int:
    """The operations of an unscheduled program: each `+ - * / % min max` and each maths function on values is 1.

    Index arithmetic, comparisons and conversions are free; integers count like floats. A matrix product is 2*M*N*K. Of a
    conditional the dearer branch counts. Raises ValueError while a dimension is open.
    """
    total = 0
    for b in blocks(program):
        extents = [constant(it.extent) for it in b.iters]
        if any(n is None for n in extents):
            raise ValueError(f"an extent of block {b.name} is open")
        total += prod(n for n in extents if n is not None) * sum(_operations(s.value) for s in b.body)
    return total


def _operations(e: Expr) -> int:
    if isinstance(e, Load):
        return 0
    own = 1 if isinstance(e, Call) or (isinstance(e, Binary) and dtype_of(e) != INDEX) else 0
    parts = [_operations(c) for c in children(e)]
    if isinstance(e, Select):
        return parts[0] + max(parts[1:])
    return own + sum(parts)


def bytes_moved(program: Program) -> int:
    """The bytes of all parameters, once each: what a kernel has to read and write at the least."""
    return sum(p.dtype.bytes * prod(shape_of(p)) for p in program.params)
