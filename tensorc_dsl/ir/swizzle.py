"""Orders of elements in the memory of a block of a GPU that keep the rows of a tile in different banks.

The memory has 32 banks of 4 bytes, and gives one word of each at a time: a line of 128 bytes. Rows that are whole lines apart
begin in one bank, so reads of a column are serialized. A swizzle permutes the units of a line by bits of the line's
number, as CUTLASS's `Swizzle<bits, log2(unit), shift>` does, with the bits that the distance of the rows needs. Then as many
neighbouring rows as a line has units have the same unit in different banks, whatever their distance. A request for a whole
line still gets a whole line.
"""

from __future__ import annotations

from tensorc_dsl.ir.expr import Expr, add, floordiv, floormod, index, mul, xor
from tensorc_dsl.ir.node import node

LINE = 128
"""The bytes that all banks together give at a time."""

UNITS = (16, 32, 64)
"""The bytes that may stay adjacent: at least those of the widest access, at most half a line."""


@node
class Swizzle:
    """The place of element i is i, but `bits` bits of the number i / `unit` are those of i with as many bits of itself,
    from `shift` bits further up, added without carry."""

    unit: int
    bits: int
    shift: int

    @property
    def line(self) -> int:
        """The elements among which units change places; a buffer has a multiple of them."""
        return self.unit << self.bits

    @property
    def period(self) -> int:
        """The elements after which the permutations of lines repeat."""
        return self.unit << self.bits + self.shift


def swizzle_of(unit: int, distance: int, size: int) -> Swizzle | None:
    """The swizzle for rows that many elements of `size` bytes apart; None if they are in different banks as they are.

    `unit` divides the distance, and is a power of two.
    """
    units = distance // unit
    factor = (units & -units).bit_length() - 1
    whole = (LINE // (unit * size)).bit_length() - 1
    return Swizzle(unit, min(whole, factor), max(whole, factor)) if factor > 0 else None


def swizzled(terms: dict[Expr, int], constant: int, s: Swizzle) -> Expr:
    """The place of the element with number `constant` plus the sum of the atoms by their factors.

    What moves by whole lines stays outside of the permutation, and what moves by whole periods outside of its choice. So
    accesses a constant apart share what both are computed from.
    """
    moved, kept = _parted(terms, constant, s.line)
    chosen, _ = _parted(terms, constant, s.period)
    row = floormod(floordiv(chosen, index(s.unit << s.shift)), index(1 << s.bits))
    place = mul(xor(floordiv(moved, index(s.unit)), row), index(s.unit))
    return add(add(place, floormod(moved, index(s.unit))), kept)


def _parted(terms: dict[Expr, int], constant: int, n: int) -> tuple[Expr, Expr]:
    """The sum in two parts, the second of which is a multiple of `n`."""
    inside, outside = index(constant % n), index(constant - constant % n)
    for e, c in terms.items():
        part = mul(e, index(c))
        inside, outside = (inside, add(outside, part)) if c % n == 0 else (add(inside, part), outside)
    return inside, outside
