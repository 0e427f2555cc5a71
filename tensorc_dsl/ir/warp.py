"""Where the lanes of a warp have the operands of an instruction: in registers, or at addresses that they give.

The layout of a fragment goes from elements to places, `(i, j) -> (lane: …, reg: …)`. That of an operand in memory goes from
places to elements, `layout "shared" (lane, element) -> (i: …, j: …)`: a lane gives the address of the element with number 0,
and the others are adjacent to it. A lane that gives several addresses counts them: `(lane, address, element)`.

Instructions of a warpgroup, four warps, count these too: `(warp: …, lane: …, reg: …)`. They get descriptors of operands in
shared memory, whose layouts begin with `shared.`: `layout "shared.a" (i, k) -> (line: i, element: k, swizzle: 128)` says that
the elements of each line are adjacent, and which bytes of it a swizzle permutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count, product
from math import prod

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import ZERO, Binary, Expr, Var, add, constant, fold, free_vars, index, loads, mul
from tensorc_dsl.ir.identity import by_first
from tensorc_dsl.ir.program import Buffer, Intrinsic, IterKind, Layout

LANES = 32
"""The lanes of a warp."""

WARPS = 4
"""The warps of a warpgroup."""

GROUP = WARPS * LANES
"""The lanes of a warpgroup."""

MEMORY = ("global", "shared")
"""The scopes of operands in memory: anywhere, and in the shared memory of a block."""

LANE, ADDRESS, ELEMENT = "lane", "address", "element"
"""What the parameters of the layout of an operand in memory count."""

WARP, LINE, SWIZZLE = "warp", "line", "swizzle"
"""The warp of a lane in its group; the line of an element of an operand with a descriptor, and the bytes of its swizzle."""

SWIZZLES = (0, 32, 64, 128)
"""The bytes of a line whose units of 16 bytes a descriptor says are permuted; without, a line has one unit."""

UNIT, LINES = 16, 8
"""The bytes that no swizzle parts, and the lines that repeat in the memory that a descriptor describes."""

REGISTER_BITS = 32
"""The size of the registers that hold elements of at most as many bits."""


@frozen
class Held:
    """An operand as the lanes of a warp have it. `elements[lane]` are its elements by row-major number, in the lane's order.

    They are in registers, or at `addresses` addresses, equally many at each. A warpgroup has the lanes of four warps.
    """

    operand: Buffer
    elements: tuple[tuple[int, ...], ...]
    addresses: int = 0

    @property
    def count(self) -> int:
        """The elements of a lane."""
        return len(self.elements[0])

    @property
    def adjacent(self) -> int:
        """The adjacent elements at each address."""
        return self.count // self.addresses

    @property
    def registers(self) -> int:
        """The registers of a lane."""
        return self.count * self.operand.dtype.bits // max(REGISTER_BITS, self.operand.dtype.bits)

    def only(self, registers: Sequence[int]) -> Held:
        """The part of the operand that is in some registers, in their order."""
        each = self.count // self.registers
        numbers = [r * each + n for r in registers for n in range(each)]
        return replace(self, elements=tuple(tuple(own[n] for n in numbers) for own in self.elements))


@frozen
class Described:
    """An operand in shared memory of which an instruction gets a descriptor: the line of each element by row-major number,
    its number in the line, and the bytes of the swizzle, one of `SWIZZLES`. `deep` lines follow each other along the sum."""

    operand: Buffer
    lines: tuple[int, ...]
    numbers: tuple[int, ...]
    swizzle: int
    deep: bool

    @property
    def width(self) -> int:
        """The bytes of a line that are adjacent to those of the next line."""
        return max(self.swizzle, UNIT)


def is_fragment(scope: str) -> bool:
    """Whether what is declared to be there is spread over registers of lanes."""
    return scope.partition(".")[0] not in MEMORY


def is_described(scope: str) -> bool:
    """Whether what is declared to be there is in memory, and an instruction gets a descriptor of it."""
    return scope not in MEMORY and not is_fragment(scope)


def is_tma(i: Intrinsic) -> bool:
    """Whether an instruction moves a tile of an array, of which it gets a tensor map: a scope that begins with `global.`."""
    return any(_is_described_global(b) for b in i.operands)


def is_tma_store(i: Intrinsic) -> bool:
    """Whether an instruction stores a tile of an array from shared memory, by a tensor map of the array."""
    return any(_is_described_global(b) and b.name == i.store.buffer for b in i.operands)


def _is_described_global(b: Buffer) -> bool:
    return is_described(b.scope) and b.scope.partition(".")[0] == "global"


def lane_of(warp: Expr, lane: Expr) -> Expr:
    """The number of a lane in its warpgroup."""
    return add(mul(warp, index(LANES)), lane)


def layout_of(i: Intrinsic, b: Buffer) -> Layout | None:
    """The layout that an instruction declares for where an operand is."""
    return next((x for x in i.layouts if x.name == b.scope), None)


def held(i: Intrinsic, b: Buffer) -> Held | None:
    """Where the lanes of a warp have an operand; None if its layout does not say so."""
    layout = layout_of(i, b)
    if layout is None or is_described(b.scope):
        return None
    return addressed(layout, b) if b.scope in MEMORY else _registers(layout, b)


@by_first(64)
def described(i: Intrinsic, b: Buffer) -> Described | None:
    """The operand as its descriptor has it; None if its layout does not say so, or says what no descriptor can."""
    layout = layout_of(i, b)
    if layout is None or not is_described(b.scope):
        return None
    every, places = points(b.shape), dict(layout.places)
    swizzle = constant(places.get(SWIZZLE, ZERO))
    if set(places) != {LINE, ELEMENT, SWIZZLE} or len(layout.params) != len(b.shape) or swizzle not in SWIZZLES:
        return None
    values = dict(zip(layout.params, zip(*every, strict=True), strict=True))
    lines, numbers = (column(places[name], values, len(every)) for name in (LINE, ELEMENT))
    at = [(x, y) for x, y in zip(lines, numbers, strict=True) if x is not None and y is not None]
    sizes = (max((x for x, _ in at), default=0) + 1, max((y for _, y in at), default=0) + 1)
    whole = sizes[0] % LINES == 0 and sizes[1] * b.dtype.bytes % UNIT == 0
    if not whole or len(at) != len(every) or set(at) != set(product(*map(range, sizes))):
        return None
    return Described(b, tuple(x for x, _ in at), tuple(y for _, y in at), swizzle, _is_deep(i, b, places[LINE], layout))


def _is_deep(i: Intrinsic, b: Buffer, line: Expr, layout: Layout) -> bool:
    indices = next((x.indices for x in loads(i.store.value) if x.buffer == b.name), ())
    sums = {Var(a.name) for a in i.axes if a.kind is IterKind.REDUCE}
    return any(p in free_vars(line) and e in sums for p, e in zip(layout.params, indices, strict=False))


def points(shape: tuple[Expr, ...]) -> list[tuple[int, ...]]:
    """The subscripts of all elements, in row-major order."""
    return list(product(*(range(constant(n) or 0) for n in shape)))


def column(e: Expr, values: Mapping[str, Sequence[int]], length: int) -> Sequence[int | None]:
    """The values of an index expression at each point; None where it divides by 0 or is not arithmetic."""
    match e:
        case Var(name=name):
            return values[name]
        case Binary(op=op, lhs=a, rhs=b):
            pairs = zip(column(a, values, length), column(b, values, length), strict=True)
            return [None if x is None or y is None else fold(op, x, y) for x, y in pairs]
        case _:
            return [constant(e)] * length


@lru_cache(maxsize=256)
def _registers(layout: Layout, b: Buffer) -> Held | None:
    every, places = points(b.shape), dict(layout.places)
    if set(places) - {WARP} != {LANE, "reg"} or len(layout.params) != len(b.shape):
        return None
    values = dict(zip(layout.params, zip(*every, strict=True), strict=True))
    warps, lanes, numbers = (column(places.get(name, ZERO), values, len(every)) for name in (WARP, LANE, "reg"))
    if not all(x is not None and 0 <= x < LANES for x in lanes):
        return None
    at = [(LANES * (w or 0) + (x or 0), n) for w, x, n in zip(warps, lanes, numbers, strict=True)]
    width = GROUP if WARP in places else LANES
    each = len(every) // width
    if b.dtype.bits < REGISTER_BITS and each * b.dtype.bits % REGISTER_BITS:
        return None
    found = {place: n for n, place in enumerate(at)}
    if set(found) != set(product(range(width), range(each))) or len(found) != len(every):
        return None
    return Held(b, tuple(tuple(found[lane, r] for r in range(each)) for lane in range(width)))


def addressed(layout: Layout, b: Buffer) -> Held | None:
    """The operand by a layout of memory; None if it does not reach each element, and no other.

    There are as many addresses, and as many elements at each, as are inside of the operand for all lanes.
    """
    if layout.params not in ((LANE, ELEMENT), (LANE, ADDRESS, ELEMENT)) or len(layout.places) != len(b.shape):
        return None
    shape = [constant(n) or 0 for n in b.shape]

    def row(address: int, element: int) -> tuple[int, ...] | None:
        """The element of each lane; None if one is outside."""
        values = {LANE: range(LANES), ADDRESS: [address] * LANES, ELEMENT: [element] * LANES}
        at = [column(e, values, LANES) for _, e in layout.places]
        if any(x is None or not 0 <= x < n for c, n in zip(at, shape, strict=True) for x in c):
            return None
        numbers = [0] * LANES
        for c, n in zip(at, shape, strict=True):
            numbers = [m * n + (x or 0) for m, x in zip(numbers, c, strict=True)]
        return tuple(numbers)

    most = prod(shape)
    many = ADDRESS in layout.params
    addresses = next(n for n in count() if n == (most if many else 1) or row(n, 0) is None)
    each = next(n for n in count() if n == most or any(row(a, n) is None for a in range(addresses)))
    if not addresses or not each:
        return None
    rows = [row(a, e) for a in range(addresses) for e in range(each)]
    found = tuple(tuple(r[lane] for r in rows if r is not None) for lane in range(LANES))
    return Held(b, found, addresses) if len({x for one in found for x in one}) == most else None
