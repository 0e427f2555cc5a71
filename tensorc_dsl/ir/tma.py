"""What PTX says of `cp.async.bulk.tensor`, the copy of a tile of an array to shared memory, beside what a declaration says.

One thread starts it, and it runs beside all: lowering knows what its bytes are waited for by, and the map of the array. So an
instruction with an operand in a scope that begins with `global.` has this text, and no other.

PTX ISA 9.2, sections 9.7.9.27: "Data Movement and Conversion Instructions: Tensor copy", and 5.5: "Tensors"; the CUDA
driver's interface, `cuTensorMapEncodeTiled`, for the limits of tiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tensorc_dsl.ir.expr import Load, Var, constant
from tensorc_dsl.ir.program import Intrinsic
from tensorc_dsl.ir.warp import Described, Held, points

OPCODE = re.compile(
    r"cp\.async\.bulk\.tensor\.([1-5])d\.shared::cluster\.global(?:\.tile)?\.mbarrier::complete_tx::bytes"
)

WIDEST = 256
"""The most elements of a tile along a dimension."""

_FORM = "write `cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes [{}], [{}];`"


def tma_difference(
    i: Intrinsic, statements: Sequence[str], operands: Mapping[str, Held | Described]
) -> tuple[str, str] | None:
    """Why the text of an instruction with a tensor map is not the copy that `i` declares, and a repair; None if it is.

    `statements` are those of the text, with operands by name and without braces.
    """
    value, stored = i.store.value, i.store.buffer
    if not isinstance(value, Load) or len(i.operands) != 2:
        return "TMA copies a tile as it is", "let the effect store elements of one operand"
    to, source = operands[stored], operands[value.buffer]
    rank = len(source.operand.shape)
    form = _FORM.format(rank, stored, value.buffer)
    if len(statements) != 1 or (m := OPCODE.match(statements[0])) is None or int(m[1]) != rank:
        return f"a tensor map is for one copy of a tile of {rank} dimensions", form
    if statements[0][m.end() :].strip() != f"[{stored}], [{value.buffer}]":
        return f"its operands are `{statements[0][m.end() :].strip()}`", form
    if (
        not isinstance(to, Described)
        or not isinstance(source, Described)
        or to.operand.scope.partition(".")[0] != "shared"
    ):
        return "it copies from global to shared memory, and both have lines", "declare `in` a scope `shared.…`"
    if source.swizzle:
        return (
            "the elements of an array are in plain order",
            f'write `swizzle: 0` in the layout "{source.operand.scope}"',
        )
    return _lines(i, value, to, source)


def _lines(i: Intrinsic, value: Load, to: Described, source: Described) -> tuple[str, str] | None:
    """Lines have the bytes of the swizzle, follow each other in the order of the array, and are the same on both sides."""
    size = to.operand.dtype.bytes
    length = (max(to.numbers) + 1) * size
    if length != to.width:
        return (
            f"lines of `{to.operand.name}` have {length} bytes, and those of its swizzle {to.width}",
            "let a line have as many bytes as the swizzle, or 16 without one",
        )
    extents = [constant(n) or 0 for n in source.operand.shape]
    if max(extents) > WIDEST:
        return f"a tile has {max(extents)} elements along a dimension", f"let it have up to {WIDEST}"
    number = {name: n for n, name in enumerate(_names(value.indices))}
    turned = [number[name] for name in _names(i.store.indices)]
    at = dict(zip(points(source.operand.shape), zip(source.lines, source.numbers, strict=True), strict=True))
    for point, line, element in zip(points(to.operand.shape), to.lines, to.numbers, strict=True):
        theirs = tuple(point[turned.index(n)] for n in range(len(extents)))
        count = 0
        for x, n in zip(theirs[:-1], extents[:-1], strict=True):
            count = count * n + x
        if at[theirs] != (count, theirs[-1]):
            return (
                f"`{source.operand.name}` has lines along its last dimension, in the order of the others",
                f'mend the layout "{source.operand.scope}"',
            )
        if (line, element) != at[theirs]:
            return (
                f"a line of `{to.operand.name}` is not the line of `{source.operand.name}` that it is copied from",
                f'mend the layout "{to.operand.scope}"',
            )
    return None


def _names(indices: Sequence[object]) -> list[str]:
    return [e.name for e in indices if isinstance(e, Var)]
