"""Boxes of arrays that one thread copies to shared memory: what a tensor map can say of them, and how they lie there.

A map has the sizes and strides of an array and of a box, so each dimension of a box is one of the array's. A box comes to
lie as it is, line by line, and the machine permutes units of 16 bytes by bits of the address: so the buffer has to have the
swizzle that the declaration states, and a box begins with eight whole lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from tensorc_dsl.affine.instruction import Tile
from tensorc_dsl.affine.simplify import is_multiple
from tensorc_dsl.backend.cuda.lower.kernels import boxes_in
from tensorc_dsl.ir.expr import ONE, ZERO, constant, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer, Intrinsic, LoopKind
from tensorc_dsl.ir.warp import UNIT, described
from tensorc_dsl.lower.flat import Box, Collective, Flat, Loop, LowerError, TensorMap

MOST_DIMENSIONS = 5
"""The most dimensions of a tensor map."""


def box_of(i: Intrinsic, to: Tile, source: Tile, array: Buffer) -> Box:
    """The box that an instruction copies. Raises LowerError if no tensor map can say what it is."""
    if array.scope != "global":
        raise LowerError(f'{i.name} copies a box of an array, and `{array.name}` is in "{array.scope}"; read an array')
    rank = len(array.shape)
    moved = [[n for n, step in enumerate(steps) if step != ZERO] for steps in source.steps]
    along = [own[0] for own in moved if len(own) == 1]
    straight = len(along) == len(moved) and all(steps[n] == ONE for steps, n in zip(source.steps, along, strict=True))
    if not straight or sorted(set(along)) != along or along[-1] != rank - 1:
        raise LowerError(
            f"{i.name} copies a box, and `{source.operand.name}` is none of `{array.name}`: each dimension has to be one of"
            " the array, in its order and with steps of 1, and the last one its last; split and reorder the loops so, or"
            " copy by threads"
        )
    if rank > MOST_DIMENSIONS:
        raise LowerError(
            f"{i.name} takes arrays of up to {MOST_DIMENSIONS} dimensions, and `{array.name}` has {rank}; copy by threads"
        )
    size = array.dtype.bytes
    for n in range(1, rank):
        row = reduce(mul, array.shape[n:], ONE)
        if not is_multiple(row, UNIT // size, {}):
            raise LowerError(
                f"{i.name} takes arrays whose rows are multiples of {UNIT} bytes apart, and those of `{array.name}` are"
                f" `{format_expr(row)}` elements of {size} bytes apart; pad them to a multiple of {UNIT // size}, or copy by"
                " threads"
            )
    sizes = [1] * rank
    for n, extent in zip(along, source.operand.shape, strict=True):
        sizes[n] = constant(extent) or 0
    lines = described(i, to.operand)
    assert lines is not None  # as `box_difference` asks
    return Box(TensorMap(array.name, array.dtype, array.shape, tuple(sizes), lines.swizzle), source.origin)


def fetched_bytes(body: Sequence[Flat]) -> int | None:
    """The bytes of the boxes that statements copy; None if these are not whole loops of a known length around boxes."""
    total = 0
    for s in body:
        if isinstance(s, Collective) and s.box is not None:
            total += prod(s.box.map.sizes) * s.box.map.dtype.bytes
        elif isinstance(s, Loop) and constant(s.begin) == 0 and s.kind in (LoopKind.SERIAL, LoopKind.UNROLLED):
            inner, count = fetched_bytes(s.body), constant(s.end)
            if inner is None or count is None:
                return None
            total += count * inner
        else:
            return None
    return total


def maps_of(bodies: Sequence[Sequence[Flat]]) -> tuple[TensorMap, ...]:
    """The different tensor maps of boxes, in their order."""
    return tuple(dict.fromkeys(s.box.map for body in bodies for s in boxes_in(tuple(body)) if s.box is not None))
