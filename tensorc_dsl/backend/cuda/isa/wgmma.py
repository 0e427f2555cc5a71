"""Compares declarations of `wgmma.mma_async`, the product of a warpgroup, with its definition in PTX.

It is the only instruction that takes descriptors, is asynchronous to the threads that start it, and needs four warps:
lowering decides when they may access its operands. So an instruction with such operands has this text, and no other. Its
left factor has a descriptor too, or is in registers.

PTX ISA 9.2, section 9.7.15: "Asynchronous Warpgroup Level Matrix Instructions", "Register Fragments and Shared Memory Matrix
Layouts"; the layouts of sums are those of `CLayout_64xN` in CUTLASS, and of left factors in registers those of
`ALayout_64x16` and `ALayout_64x32`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tensorc_dsl.ir.expr import Load, Var, loads
from tensorc_dsl.ir.program import Intrinsic, IterKind, TileAxis
from tensorc_dsl.ir.warp import GROUP, LANES, REGISTER_BITS, Described, Held, points

OPCODE = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.f32\.(\w+)\.(\w+)")

_TYPES = {"f16": "f16", "bf16": "bf16", "e4m3": "f8e4m3", "e5m2": "f8e5m2"}
"""The types of factors, by what PTX calls them."""

_DEPTH = 256
"""The bits of a row of the left factor."""

_ENDING = re.compile(r"\s*,\s*(\w+)\s*,\s*1\s*,\s*1\s*((?:,\s*[01]\s*)*)")
"""What follows the operands: whether the old sums count, no changed signs, and of each operand with a descriptor whether its
lines are along k. Those of 8 bits always have them along the sum, without a number.
"""

FORM = "{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma… C, A, B, p, 1, 1, 0, 0; }"


def wgmma_difference(
    i: Intrinsic, statements: Sequence[str], operands: Mapping[str, Held | Described]
) -> tuple[str, str] | None:
    """Why the text of an instruction with descriptors is not the product that `i` declares, and a repair; None if it is.

    `statements` are those of the text, with operands by name and without braces.
    """
    ours = [s for s in statements if not s.startswith(".reg")]
    if len(ours) != 2 or (m := OPCODE.match(ours[1])) is None:
        return "descriptors and fragments of four warps are for one `wgmma.mma_async`", f"write `{FORM}`"
    names = (i.store.buffer, *(x.buffer for x in loads(i.store.value) if x.buffer != i.store.buffer))
    rest = ours[1][m.end() :].strip()
    ending = _ENDING.fullmatch(rest[len(", ".join(names)) :]) if rest.startswith(", ".join(names)) else None
    if ending is None or len(names) != 3:
        return f"its operands are `{rest}`", f"write `{FORM}`"
    if ours[0] != f"setp.eq.b32 {ending[1]}, 0, 0":
        return f"it adds to the old sums where `{ending[1]}` is true, which `{ours[0]}` does not say", f"write `{FORM}`"
    c, a, b = (operands[n] for n in names)
    if not isinstance(c, Held) or not isinstance(b, Described):
        return (
            "its sums are in registers of four warps, its right factor has a descriptor, and its left factor is in either",
            f"write `{FORM}`",
        )
    turned = re.findall("[01]", ending[2])
    wanted = 0 if m[3] in ("e4m3", "e5m2") else 1 + isinstance(a, Described)
    if len(turned) != wanted:
        which = f"with {wanted} of the last two numbers" if wanted else "without the last two numbers"
        return f"its operands are `{rest}`", f"write `{FORM}`, {which}"
    types = (c.operand.dtype.name, a.operand.dtype.name, b.operand.dtype.name)
    wanted = ("f32", *(_TYPES.get(x, x) for x in (m[3], m[4])))
    if types != wanted:
        return f"its types are {', '.join(wanted)}, those of `desc` are {', '.join(types)}", "let both be the same"
    if m[3] != m[4] and not {m[3], m[4]} <= {"e4m3", "e5m2"}:
        return f"it has no factors of {m[3]} and {m[4]}", "let both be of one type"
    rows, columns, depth = axes = _axes(i, a.operand.name)
    sizes = [64, int(m[1]), _DEPTH // a.operand.dtype.bits]
    if [x.extent for x in axes] != sizes or int(m[2]) != sizes[2] or int(m[1]) % 8 or not 8 <= int(m[1]) <= 256:
        return f"it is a product of {' x '.join(map(str, sizes))}", "let the sizes of `desc` be those of the opcode"
    return (
        _lanes(c, _at(i, c.operand.name), rows, columns, ("row", "column"), 2)
        or (
            _lanes(a, _at(i, a.operand.name), rows, depth, ("row", "term"), REGISTER_BITS // a.operand.dtype.bits)
            if isinstance(a, Held)
            else _factor(i, a, rows, depth, turned[0] if turned else None)
        )
        or _factor(i, b, columns, depth, turned[-1] if turned else None)
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    """Rows, columns or depth of a product, as one index or as several that count it together."""

    parts: tuple[TileAxis, ...]

    @property
    def extent(self) -> int:
        return prod(x.extent for x in self.parts)

    def of(self, values: Mapping[str, int]) -> int:
        """The number of a row, column or product that has these indices."""
        number = 0
        for x in self.parts:
            number = number * x.extent + values[x.name]
        return number

    def __str__(self) -> str:
        inner = [prod(y.extent for y in self.parts[n + 1 :]) for n in range(len(self.parts))]
        return " + ".join(x.name if n == 1 else f"{x.name} * {n}" for x, n in zip(self.parts, inner, strict=True))


def _axes(i: Intrinsic, left: str) -> tuple[_Axis, _Axis, _Axis]:
    """Rows, which are of the left operand, columns, which are not, and the depth."""
    own = {*_at(i, left)}
    spatial = [x for x in i.axes if x.kind is IterKind.SPATIAL]
    rows, columns = ([x for x in spatial if (x.name in own) == of_left] for of_left in (True, False))
    return _Axis(tuple(rows)), _Axis(tuple(columns)), _Axis(tuple(x for x in i.axes if x not in spatial))


def _at(i: Intrinsic, name: str) -> tuple[str, ...]:
    """The indices with which the effect accesses an operand."""
    every = (Load(i.store.buffer, i.store.indices, i.operands[0].dtype), *loads(i.store.value))
    return tuple(e.name for e in next(x.indices for x in every if x.buffer == name) if isinstance(e, Var))


@lru_cache(maxsize=64)
def _lanes(
    x: Held, names: tuple[str, ...], rows: _Axis, along: _Axis, called: tuple[str, str], adjacent: int
) -> tuple[str, str] | None:
    """Four lanes have a row, each `adjacent` elements of it after the other: sums two, a factor those of a register. Every
    second such group of a lane is of the eighth row after. The same sums are those of several instructions."""
    every = points(x.operand.shape)
    if len(x.elements) != GROUP:
        return f"`{x.operand.name}` is spread over four warps", "count them: `(warp: …, lane: …, reg: …)`"
    for lane, own in enumerate(x.elements):
        for n, number in enumerate(own):
            warp, one = divmod(lane, LANES)
            group, last = divmod(n, adjacent)
            wanted = (16 * warp + one // 4 + 8 * (group % 2), adjacent * (4 * (group // 2) + one % 4) + last)
            values = dict(zip(names, every[number], strict=True))
            found = (rows.of(values), along.of(values))
            if found != wanted:
                first, other = (f"{called[0]} {r}, {called[1]} {k}" for r, k in (wanted, found))
                return (
                    f"lane {one} of warp {warp} has {first} as element {n}, and {other} by the layout",
                    f'mend the layout "{x.operand.scope}"',
                )
    return None


def _factor(i: Intrinsic, x: Described, outer: _Axis, depth: _Axis, turned: str | None) -> tuple[str, str] | None:
    """Lines are rows of the left, or columns of the right operand; or, if it is turned, they are the depth. None is for a
    type that cannot be turned."""
    names = _at(i, x.operand.name)
    line, number = (depth, outer) if turned == "1" else (outer, depth)
    every = [dict(zip(names, point, strict=True)) for point in points(x.operand.shape)]
    here = list(zip(x.lines, x.numbers, strict=True))
    if here == [(line.of(values), number.of(values)) for values in every]:
        return None
    other = here == [(number.of(values), line.of(values)) for values in every]
    can = other and turned is not None
    repair = f"write {1 - int(turned or 0)} for `{x.operand.name}`" if can else f'mend the layout "{x.operand.scope}"'
    return f"`{x.operand.name}` has lines along the sum, `(line: {line}, element: {number})`" if turned == "1" else (
        f"the lines of `{x.operand.name}` are not along the sum, `(line: {line}, element: {number})`"
    ), repair
