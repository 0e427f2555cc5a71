"""The definition in PTX of `cp.async.bulk.tensor`, the copy of a tile of an array to shared memory or back. Declarations are
compared with it.

One thread starts it, and it is asynchronous: lowering places the waits for it and makes the map of the array. So an
instruction with an operand in a scope that begins with `global.` has one of these two texts, and no other.

PTX ISA 9.2, sections 9.7.9.27: "Data Movement and Conversion Instructions: Tensor copy", and 5.5: "Tensors"; the CUDA
driver's interface, `cuTensorMapEncodeTiled`, for the limits of tiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tensorc_dsl.ir.expr import Load, Var, constant
from tensorc_dsl.ir.program import Intrinsic
from tensorc_dsl.ir.warp import Described, Held, is_tma_store, points

LOAD = re.compile(
    r"cp\.async\.bulk\.tensor\.([1-5])d\.shared::cluster\.global(?:\.tile)?\.mbarrier::complete_tx::bytes"
)

STORE = re.compile(r"cp\.async\.bulk\.tensor\.([1-5])d\.global\.shared::cta(?:\.tile)?\.bulk_group")

WIDEST = 256
"""The most elements of a tile along a dimension."""

_FORM = {
    LOAD: "write `cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes [{}], [{}];`",
    STORE: "write `cp.async.bulk.tensor.{}d.global.shared::cta.bulk_group [{}], [{}];`",
}


def tma_difference(
    i: Intrinsic, statements: Sequence[str], operands: Mapping[str, Held | Described]
) -> tuple[str, str] | None:
    """Why the text of an instruction with a tensor map is not the copy that `i` declares, and a repair; None if it is.

    `statements` are those of the text, with operands by name and without braces.
    """
    value, stored = i.store.value, i.store.buffer
    if not isinstance(value, Load) or len(i.operands) != 2:
        return "TMA copies a tile as it is", "let the effect store elements of one operand"
    pair = (operands[stored], _names(i.store.indices)), (operands[value.buffer], _names(value.indices))
    (tile, here), (array, there) = reversed(pair) if is_tma_store(i) else pair
    if (
        not isinstance(tile, Described)
        or not isinstance(array, Described)
        or tile.operand.scope.partition(".")[0] != "shared"
    ):
        return "it copies between global and shared memory, and both have lines", "declare `in` a scope `shared.…`"
    rank, opcode = len(operands[stored].operand.shape), STORE if is_tma_store(i) else LOAD
    form = _FORM[opcode].format(rank, stored, value.buffer)
    if len(statements) != 1 or (m := opcode.match(statements[0])) is None or int(m[1]) != rank:
        return f"a tensor map is for one copy of a tile of {rank} dimensions", form
    if statements[0][m.end() :].strip() != f"[{stored}], [{value.buffer}]":
        return f"its operands are `{statements[0][m.end() :].strip()}`", form
    if array.swizzle:
        return (
            "the elements of an array are in plain order",
            f'write `swizzle: 0` in the layout "{array.operand.scope}"',
        )
    return _lines(tile, here, array, there)


def _lines(tile: Described, here: list[str], array: Described, there: list[str]) -> tuple[str, str] | None:
    """Lines have the bytes of the swizzle, follow each other in the order of the array, and are the same on both sides.
    `here` and `there` are the axes of the dimensions of both."""
    size = tile.operand.dtype.bytes
    length = (max(tile.numbers) + 1) * size
    if length != tile.width:
        return (
            f"lines of `{tile.operand.name}` have {length} bytes, and those of its swizzle {tile.width}",
            "let a line have as many bytes as the swizzle, or 16 without one",
        )
    extents = [constant(n) or 0 for n in array.operand.shape]
    if max(extents) > WIDEST:
        return f"a tile has {max(extents)} elements along a dimension", f"let it have up to {WIDEST}"
    number = {name: n for n, name in enumerate(there)}
    turned = [number[name] for name in here]
    at = dict(zip(points(array.operand.shape), zip(array.lines, array.numbers, strict=True), strict=True))
    for point, line, element in zip(points(tile.operand.shape), tile.lines, tile.numbers, strict=True):
        theirs = tuple(point[turned.index(n)] for n in range(len(extents)))
        count = 0
        for x, n in zip(theirs[:-1], extents[:-1], strict=True):
            count = count * n + x
        if at[theirs] != (count, theirs[-1]):
            return (
                f"`{array.operand.name}` has lines along its last dimension, in the order of the others",
                f'mend the layout "{array.operand.scope}"',
            )
        if (line, element) != at[theirs]:
            return (
                f"a line of `{tile.operand.name}` is not the line of `{array.operand.name}` that it is a copy of",
                f'mend the layout "{tile.operand.scope}"',
            )
    return None


def _names(indices: Sequence[object]) -> list[str]:
    return [e.name for e in indices if isinstance(e, Var)]
