"""Compares declarations of `ldmatrix` and `mma` with their definition in PTX.

An instruction that is not known is taken as declared. One that is known has its fragments where the vendor's manual has them,
so a `.trans` that is missing, or a layout with a wrong factor, is found without a GPU.

PTX ISA 9.2, section 9.7.14.5: "Matrix Fragments for mma.m16n8k16", "ldmatrix", and those of the other shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorc_dsl.ir.expr import Load, Var, constant, loads
from tensorc_dsl.ir.program import Intrinsic
from tensorc_dsl.ir.warp import LANES, REGISTER_BITS, Held

_ROW_BITS = 128
"""The size of a row of a matrix that `ldmatrix` moves."""

_LDMATRIX = re.compile(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?(\.shared(?:::cta)?)?\.b16")
_MMA = re.compile(r"mma\.sync\.aligned\.m(8|16)n8k(\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+)")

_TYPES = {
    "s8": "i8", "u8": "u8", "s32": "i32", "f16": "f16", "bf16": "bf16", "tf32": "f32", "f32": "f32", "f64": "f64",
    "e4m3": "f8e4m3", "e5m2": "f8e5m2",
}  # fmt: skip
"""The types of elements, by what PTX calls them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Why a text does not do what its declaration says."""

    why: str
    repair: str


def difference(i: Intrinsic, opcode: str, operands: Sequence[Held]) -> Difference | None:
    """The difference of a known instruction from its declaration; None if there is none, or if it is not known."""
    if m := _LDMATRIX.fullmatch(opcode):
        return _ldmatrix(i, int(m[1]), m[2] is not None, m[3] is not None, operands)
    if m := _MMA.fullmatch(opcode):
        return _mma(i, int(m[1]), int(m[2]), m.groups()[2:], operands)
    return None


def _numbers(i: Intrinsic, h: Held) -> Callable[[int], dict[str, int]]:
    """From the number of an element of an operand to the values of the indices of the effect."""
    names = next(x.indices for x in _accesses(i) if x.buffer == h.operand.name)
    sizes = [constant(n) or 0 for n in h.operand.shape]

    def values(number: int) -> dict[str, int]:
        out: dict[str, int] = {}
        for name, n in reversed(list(zip(names, sizes, strict=True))):
            assert isinstance(name, Var)  # every subscript of an instruction is an index
            out[name.name] = number % n
            number //= n
        return out

    return values


def _accesses(i: Intrinsic) -> tuple[Load, ...]:
    return (Load(i.store.buffer, i.store.indices, i.operands[0].dtype), *loads(i.store.value))


def _ldmatrix(i: Intrinsic, many: int, turned: bool, shared: bool, operands: Sequence[Held]) -> Difference | None:
    """Lane 8 m + r gives the address of row r of the m-th matrix, of 16 bytes; each lane receives 4 bytes of each matrix.

    Elements of 16 bits may be turned; others keep their rows.
    """
    if [bool(h.addresses) for h in operands] != [False, True]:
        return Difference("it takes a fragment and the addresses of rows", "write `ldmatrix… D, [S];`")
    to, source = operands
    if not shared or source.operand.scope != "shared":
        return Difference(
            "its addresses are within shared memory", f'write `.shared`, and `in "shared"` for `{source.operand.name}`'
        )
    bits = to.operand.dtype.bits
    row = _ROW_BITS // bits if bits in (8, 16, 32) else 0
    if (
        not row
        or to.count != row // 4 * many
        or source.adjacent != row
        or source.addresses != 1
        or (turned and bits != 16)
    ):
        turn = ", and turns those of 16 bits alone" if turned else ""
        return Difference(
            f"x{many} moves {many} matrices of 8 rows of 16 bytes, a row at each address{turn}",
            f"it has {128 * many} bytes; `{to.operand.name}` has {LANES * to.count * bits // 8}",
        )
    why = _misread(i, to, source, turned)
    if why is None:
        return None
    if bits == 16 and _misread(i, to, source, not turned) is None:
        return Difference(why, f"write it {'without' if turned else 'with'} `.trans`")
    return Difference(why, f'mend the layouts "{to.operand.scope}" and "{source.operand.scope}"')


def _misread(i: Intrinsic, to: Held, source: Held, turned: bool) -> str | None:
    """The first element that a lane does not receive where the layout has it; None if all are there."""
    stored, read = _numbers(i, to), _numbers(i, source)
    for lane in range(LANES):
        for n in range(to.count):
            packed = source.adjacent // 4
            matrix, row, column = n // packed, lane // 4, packed * (lane % 4) + n % packed
            if turned:
                row, column = column, row
            wanted = stored(to.elements[lane][n])
            found = read(source.elements[8 * matrix + row][column])
            if found != wanted:
                return f"lane {lane} has {_shown(found)} as its element {n}, and {_shown(wanted)} by the layout"
    return None


def _mma(i: Intrinsic, rows: int, depth: int, types: Sequence[str], operands: Sequence[Held]) -> Difference | None:
    """Rows are shared by groups of four lanes, and each lane has adjacent elements of them, a register full."""
    if len(operands) != 4 or any(h.addresses for h in operands) or len(i.axes) != 3:
        return Difference("it takes four fragments", "write `mma… C, A, B, C;`")
    c, a, b, old = operands
    wanted, given = (_TYPES.get(x, x) for x in types), [h.operand.dtype.name for h in (c, a, b, old)]
    if (of := list(wanted)) != given:
        return Difference(
            f"its operands are of {', '.join(of)}, those of `desc` of {', '.join(given)}", "let both be the same"
        )
    m, n = (x.name for x in i.axes[:2])
    k = i.axes[2].name
    sizes, extents = [rows, 8, depth], [x.extent for x in i.axes]
    about = f"it is a product of {rows} x 8 x {depth}"
    if any(x % size for x, size in zip(extents, sizes, strict=True)) or old != c:
        return Difference(about, "let the sizes of `desc` be those of the opcode")
    counts = [h.count * LANES for h in (c, a, b)]
    if extents != sizes and counts != [rows * 8, rows * depth, 8 * depth]:
        return Difference(
            about, "let the sizes of `desc` be those of the opcode, or give it a part, `{C0, C1, C2, C3}`"
        )
    packed = max(1, REGISTER_BITS // a.operand.dtype.bits)
    step = rows // 8

    def left(group: int, part: int, register: int, e: int) -> dict[str, int]:
        return {m: group + 8 * (register % step), k: packed * part + e + 4 * packed * (register // step)}

    def right(group: int, part: int, register: int, e: int) -> dict[str, int]:
        return {k: packed * part + e + 4 * packed * register, n: group}

    def sums(group: int, part: int, register: int, e: int) -> dict[str, int]:
        return {m: group + 8 * register, n: 2 * part + e}

    start = {**_start(i, a), **_start(i, b)}
    return _placed(i, c, 2, sums, start) or _placed(i, a, packed, left, start) or _placed(i, b, packed, right, start)


def _start(i: Intrinsic, h: Held) -> dict[str, int]:
    """The indices of the first element of a part of a fragment."""
    return _numbers(i, h)(h.elements[0][0])


def _placed(
    i: Intrinsic,
    h: Held,
    packed: int,
    place: Callable[[int, int, int, int], dict[str, int]],
    start: dict[str, int],
) -> Difference | None:
    """The first element of a fragment that is not where it should be: by group of lanes, lane in it, register and part.

    `start` has the first indices of the product.
    """
    values = _numbers(i, h)
    for lane in range(LANES):
        for number in range(h.count):
            found = place(lane // 4, lane % 4, number // packed, number % packed)
            found = {name: v + start[name] for name, v in found.items()}
            wanted = values(h.elements[lane][number])
            if found != wanted:
                name = h.operand.name
                return Difference(
                    f"lane {lane} has {_shown(found)} as element {number} of `{name}`, and {_shown(wanted)} by the layout",
                    f'mend the layout "{h.operand.scope}", or the order of operands',
                )
    return None


def _shown(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(values.items()))
