"""Where the lanes of a warp have the operands of an instruction: in registers, or at addresses that they give.

The layout of a fragment goes from elements to places, `(i, j) -> (lane: …, reg: …)`. That of an operand in memory goes from
places to elements, `layout "shared" (lane, element) -> (i: …, j: …)`: a lane gives the address of the element with number 0,
and the others are adjacent to it. A lane that gives several addresses counts them: `(lane, address, element)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from math import prod

from tensorc_dsl.ir.expr import Binary, Expr, Var, constant, fold
from tensorc_dsl.ir.program import Buffer, Intrinsic, Layout

LANES = 32
"""The lanes of a warp."""

MEMORY = ("global", "shared")
"""The scopes of operands in memory: anywhere, and in the shared memory of a block."""

LANE, ADDRESS, ELEMENT = "lane", "address", "element"
"""What the parameters of the layout of an operand in memory count."""

REGISTER_BITS = 32
"""The size of the registers that hold elements of at most as many bits."""


@dataclass(frozen=True, slots=True)
class Held:
    """An operand as the lanes of a warp have it. `elements[lane]` are its elements by row-major number, in the lane's order.

    They are in registers, or at `addresses` addresses, equally many at each.
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


def layout_of(i: Intrinsic, b: Buffer) -> Layout | None:
    """The layout that an instruction declares for where an operand is."""
    return next((x for x in i.layouts if x.name == b.scope), None)


def held(i: Intrinsic, b: Buffer) -> Held | None:
    """Where the lanes of a warp have an operand; None if its layout does not say so."""
    layout = layout_of(i, b)
    if layout is None:
        return None
    return addressed(layout, b) if b.scope in MEMORY else _registers(layout, b)


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


def _registers(layout: Layout, b: Buffer) -> Held | None:
    every, places = points(b.shape), dict(layout.places)
    if set(places) != {LANE, "reg"} or len(layout.params) != len(b.shape):
        return None
    values = dict(zip(layout.params, zip(*every, strict=True), strict=True))
    at = list(zip(*(column(places[name], values, len(every)) for name in (LANE, "reg")), strict=True))
    each = len(every) // LANES
    if b.dtype.bits < REGISTER_BITS and each * b.dtype.bits % REGISTER_BITS:
        return None
    numbers = {place: n for n, place in enumerate(at)}
    if set(numbers) != set(product(range(LANES), range(each))) or len(numbers) != len(every):
        return None
    return Held(b, tuple(tuple(numbers[lane, r] for r in range(each)) for lane in range(LANES)))


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
