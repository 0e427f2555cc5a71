"""PTX's instructions: the assembly of a declared one, compared with the definition of those that are known.

A word of the text that is no opcode, number or name with dots or `%` is an operand. One in a fragment stands for the lane's
registers of it, `{r0, r1}`, elements of less than 32 bits packed, the first one lowest; with a number, `C1`, for that
register alone. One in memory stands for the address that the lane gives, or for that with the number; one with a descriptor
for this.

An instruction that is not known is taken as declared. One that is known has its operands where the vendor's manual has them,
so a `.trans` that is missing, or a layout with a wrong factor, is found without a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod

from tensorc_dsl.base.diagnostic import Diagnostic, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir.expr import Load, Var, constant, loads
from tensorc_dsl.ir.program import Buffer, Intrinsic, IterKind, TileAxis
from tensorc_dsl.ir.warp import (
    GROUP,
    LANES,
    MEMORY,
    REGISTER_BITS,
    SWIZZLES,
    Described,
    Held,
    described,
    held,
    is_described,
    is_tma,
    is_tma_store,
    points,
)
from tensorc_dsl.syntax.names import near

# `cp.async.bulk.tensor`, the copy of a tile of an array to shared memory or back.
#
# One thread starts it, and it is asynchronous: lowering places the waits for it and makes the map of the array. So an
# instruction with an operand in a scope that begins with `global.` has one of these two texts, and no other.
#
# PTX ISA 9.2, sections 9.7.9.27: "Data Movement and Conversion Instructions: Tensor copy", and 5.5: "Tensors"; the CUDA
# driver's interface, `cuTensorMapEncodeTiled`, for the limits of tiles.


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


# `wgmma.mma_async`, the product of a warpgroup.
#
# It is the only instruction that takes descriptors, is asynchronous to the threads that start it, and needs four warps:
# lowering decides when they may access its operands. So an instruction with such operands has this text, and no other. Its
# left factor has a descriptor too, or is in registers.
#
# PTX ISA 9.2, section 9.7.15: "Asynchronous Warpgroup Level Matrix Instructions", "Register Fragments and Shared Memory
# Matrix Layouts"; the layouts of sums are those of `CLayout_64xN` in CUTLASS, and of left factors in registers those of
# `ALayout_64x16` and `ALayout_64x32`.


OPCODE = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.f32\.(\w+)\.(\w+)")

_FACTOR_TYPES = {"f16": "f16", "bf16": "bf16", "e4m3": "f8e4m3", "e5m2": "f8e5m2"}
"""The types of factors, by what PTX calls them."""

_DEPTH = 256
"""The bits of a row of the left factor."""

_ENDING = re.compile(r"\s*,\s*(\w+)\s*,\s*1\s*,\s*1\s*((?:,\s*[01]\s*)*)")
"""What follows the operands: whether the old sums count, no changed signs, and of each operand with a descriptor whether its
lines are along k. Those of 8 bits always have them along the sum, without a number.
"""

FORM = "{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma… C, A, B, p, 1, 1, 0, 0; }"


def sums_in_few_bits(code: str) -> bool:
    """Whether the sums of an instruction have `SUM_BITS`, and not those of f32. The manual does not say so."""
    found = OPCODE.search(code)
    return found is not None and found[3] in ("e4m3", "e5m2")


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
    wanted = ("f32", *(_FACTOR_TYPES.get(x, x) for x in (m[3], m[4])))
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


@frozen
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


# `ldmatrix` and `mma`.
#
# PTX ISA 9.2, section 9.7.14.5: "Matrix Fragments for mma.m16n8k16", "ldmatrix", and those of the other shapes.


_ROW_BITS = 128
"""The size of a row of a matrix that `ldmatrix` moves."""

_LDMATRIX = re.compile(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?(\.shared(?:::cta)?)?\.b16")
_MMA = re.compile(r"mma\.sync\.aligned\.m(8|16)n8k(\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+)")

_MMA_TYPES = {
    "s8": "i8", "u8": "u8", "s32": "i32", "f16": "f16", "bf16": "bf16", "tf32": "f32", "f32": "f32", "f64": "f64",
    "e4m3": "f8e4m3", "e5m2": "f8e5m2",
}  # fmt: skip
"""The types of elements, by what PTX calls them."""


@frozen
class Difference:
    """Why a text does not do what its declaration says."""

    why: str
    repair: str


def mma_difference(i: Intrinsic, opcode: str, operands: Sequence[Held]) -> Difference | None:
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
    wanted, given = (_MMA_TYPES.get(x, x) for x in types), [h.operand.dtype.name for h in (c, a, b, old)]
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


# The text of an instruction, with the operands that it names, and whether these are what it needs.


_OTHER = re.compile(r"[^\w\s.,;:\[\]{}%+\-]")
"""What no text may have: it stands between quotes, and `$` and `@` have meanings of their own."""

_WORD = re.compile(r"[%.\w]+")

_DECLARED = re.compile(r"\.reg\s+\.\w+\s+([\w\s,]+)")


@problem(
    "E0674",
    "the text has a `{mark}`, which has no place in it",
    help="write opcodes, operands, numbers and `.,;:[]{{}}%+-`",
)
def OTHER_MARK(*, mark: str) -> None: ...
@problem("E0674", "there is no operand `{name}`")
def UNKNOWN_WORD(*, name: str) -> None: ...
@problem("E0674", "the text does not name `{name}`", help="each operand that the effect stores or reads takes part")
def NOT_NAMED(*, name: str) -> None: ...
@problem("E0674", "`{name}` is beyond the {count} {what} that a lane has of it", help="they are counted from 0")
def NO_SUCH(*, name: str, count: int, what: str) -> None: ...
@problem(
    "E0674",
    'no layout says where the lanes of a warp have `{name}`, which is in "{scope}"',
    help='say it for each of its elements, `layout "{scope}" ({params}) -> ({places})`, for lanes 0 to {last}; {what}',
)
def NOT_IN_LANES(*, name: str, scope: str, params: str, places: str, last: int, what: str) -> None: ...
@problem(
    "E0674",
    'no layout says how a descriptor has `{name}`, which is in "{scope}"',
    help='say it for each of its elements, `layout "{scope}" ({params}) -> (line: …, element: …, swizzle: …)`: lines are '
    "eight or a multiple, of whole units of 16 bytes, and a swizzle has {swizzles} bytes",
)
def NOT_DESCRIBED(*, name: str, scope: str, params: str, swizzles: str) -> None: ...
@problem("E0674", "two lanes store one element of `{name}`", help="a lane stores what no other one does")
def STORED_TWICE(*, name: str) -> None: ...
@problem("E0674", "`{opcode}` does something else: {why}")
def OPCODE_DIFFERS(*, opcode: str, why: str, repair: str) -> None: ...


@frozen
class Ref:
    """An operand in a text: all its registers or its first address (no number), or one of them."""

    name: str
    number: int | None = None


@frozen
class Line:
    """A statement of a text: braces before it, the opcode, and what follows it. At the end there may be braces alone."""

    braces: str
    opcode: str
    rest: tuple[str | Ref, ...]

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The operands, in order."""
        return tuple(x for x in self.rest if isinstance(x, Ref))


def lines_of(i: Intrinsic, code: str) -> tuple[Line, ...]:
    """The statements of a text with their operands. A word that names none is left as a `Ref` of that name.

    Registers that the text declares, `{ .reg .b32 t; … }`, are its own.
    """
    names = {b.name for b in i.operands}
    own = {name for m in _DECLARED.finditer(code) for name in re.findall(r"\w+", m[1])}
    return tuple(_line(part.strip(), names, own - names) for part in code.split(";") if part.strip())


def _line(text: str, names: set[str], own: set[str]) -> Line:
    braces = re.match(r"[{}\s]*", text)
    assert braces is not None  # it matches nothing, too
    opcode, _, rest = text[braces.end() :].partition(" ")
    out: list[str | Ref] = []
    end = 0
    for m in _WORD.finditer(rest):
        word = m[0]
        if re.match(r"[A-Za-z_]\w*$", word) and word not in own:
            out += [rest[end : m.start()], _ref(word, names)]
            end = m.end()
    return Line(braces[0], opcode, (*out, rest[end:]))


def _ref(word: str, names: set[str]) -> Ref:
    plain = word.rstrip("0123456789")
    if word in names or plain not in names:
        return Ref(word)
    return Ref(plain, int(word[len(plain) :]))


def assembly_faults(i: Intrinsic, code: str, span: Span) -> Iterator[Diagnostic]:
    """What is wrong with a text for GPUs."""
    if mark := _OTHER.search(code):
        yield OTHER_MARK(span, mark=mark[0])
        return
    operands = {b.name: b for b in i.operands}
    lines = lines_of(i, code)
    used = dict.fromkeys(x.name for line in lines for x in line.refs)
    unknown = [name for name in used if name not in operands]
    for name in unknown:
        yield UNKNOWN_WORD(span, near(name, operands, f"declare `{name}` first"), name=name)
    for name in dict.fromkeys((i.store.buffer, *(x.buffer for x in loads(i.store.value)))):
        if name not in used:
            yield NOT_NAMED(span, name=name)
    places = {name: held(i, operands[name]) or described(i, operands[name]) for name in used if name in operands}
    for name, place in places.items():
        if place is None:
            yield _nowhere(operands[name], span)
        elif (
            isinstance(place, Held)
            and name == i.store.buffer
            and len({e for one in place.elements for e in one}) < len(place.elements) * place.count
        ):
            yield STORED_TWICE(span, name=name)
    found = {name: place for name, place in places.items() if place is not None}
    for x in dict.fromkeys(x for line in lines for x in line.refs if x.name in found):
        place = found[x.name]
        if isinstance(place, Described):
            continue
        count = place.addresses or place.registers
        if x.number is not None and x.number >= count:
            what = "addresses" if place.addresses else "registers"
            yield NO_SUCH(span, name=f"{x.name}{x.number}", count=count, what=what)
    if len(found) == len(used) == len(operands):
        warps = {name: x for name, x in found.items() if isinstance(x, Held) and len(x.elements) < GROUP}
        if len(warps) == len(found):
            yield from _other_mma_meanings(i, lines, warps, span)
        else:
            known = tma_difference if is_tma(i) else wgmma_difference
            other = known(i, [_plain(x) for x in lines if x.opcode], found)
            if other is not None:
                yield OPCODE_DIFFERS(span, opcode=lines[-1].opcode or lines[-2].opcode, why=other[0], repair=other[1])


def _plain(line: Line) -> str:
    """A statement as text, without braces."""
    rest = (x if isinstance(x, str) else f"{x.name}{'' if x.number is None else x.number}" for x in line.rest)
    return f"{line.opcode} {''.join(rest)}".strip()


def _other_mma_meanings(
    i: Intrinsic, lines: tuple[Line, ...], found: dict[str, Held], span: Span
) -> Iterator[Diagnostic]:
    for line in lines:
        operands = _groups(line, found)
        other = None if operands is None else mma_difference(i, line.opcode, operands)
        if other is not None:
            yield OPCODE_DIFFERS(span, opcode=line.opcode, why=other.why, repair=other.repair)


def _groups(line: Line, found: dict[str, Held]) -> tuple[Held, ...] | None:
    """The operands of a statement: a whole one, or registers of one in braces, `{C0, C1}`; None if others take part."""
    out: list[Held] = []
    inside: list[Ref] | None = None
    for x in line.rest:
        if isinstance(x, Ref):
            if inside is not None:
                inside.append(x)
            elif x.number is None:
                out.append(found[x.name])
            else:
                return None
            continue
        if re.search(r"[A-Za-z_]", x):
            return None
        for brace in re.findall(r"[{}]", x):
            if brace == "{":
                inside = []
                continue
            names = {y.name for y in inside or ()}
            numbers = [y.number for y in inside or () if y.number is not None]
            if len(names) != 1 or len(numbers) != len(inside or ()):
                return None
            whole = found[names.pop()]
            if whole.addresses or max(numbers) >= whole.registers:
                return None
            out.append(whole.only(numbers))
            inside = None
    return tuple(out)


def _nowhere(b: Buffer, span: Span) -> Diagnostic:
    dims = "ijkl"[: len(b.shape)]
    if is_described(b.scope):
        swizzles = ", ".join(map(str, SWIZZLES))
        return NOT_DESCRIBED(span, name=b.name, scope=b.scope, params=", ".join(dims), swizzles=swizzles)
    inward = b.scope in MEMORY
    return NOT_IN_LANES(
        span,
        name=b.name,
        scope=b.scope,
        params="lane, element" if inward else ", ".join(dims),
        places=", ".join(f"{d}: …" for d in dims) if inward else "lane: …, reg: …",
        last=LANES - 1,
        what="a lane gives the address of element 0, and the others are adjacent"
        if inward
        else "every lane has equally many, counted from 0",
    )
