"""Cuts the steps of all tiles, in one row, into ranges of equal length.

Tile `t` has the steps `t*S` to `t*S + S - 1` of the row, and range `g` has those from `g*q` to `g*q + q - 1`. So a range has
steps of some tiles that follow each other, of the first and the last of them a part only, and a tile has parts in some
ranges that follow each other. Step `y` is that of number `y % S` of tile `y / S`, and in the range `y / q`, so each step of
each tile is in exactly one range.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tensorc_dsl.ir.expr import ZERO, Binary, Compare, Expr, add, floordiv, floormod, index, mul, sub


@dataclass(frozen=True, slots=True)
class EqualRanges:
    """`count` ranges of `length` steps over `tiles` tiles of `steps` steps; the last may have fewer, and none is empty."""

    tiles: int
    steps: int
    length: int

    @property
    def count(self) -> int:
        return -(-self.tiles * self.steps // self.length)

    @property
    def tiles_of_range(self) -> int:
        """The most tiles of which a range has steps: it begins at most `steps - d` steps inside of one, since all ranges
        begin at multiples of the common divisor `d` of both lengths."""
        late = self.steps - gcd(self.steps, self.length)
        return min(self.tiles, (late + self.length - 1) // self.steps + 1)

    @property
    def ranges_of_tile(self) -> int:
        """The most ranges that have steps of one tile."""
        late = self.length - gcd(self.steps, self.length)
        return min(self.count, (late + self.steps - 1) // self.length + 1)

    def first_tile(self, g: Expr) -> Expr:
        """The first tile of which a range has steps."""
        return floordiv(mul(g, index(self.length)), index(self.steps))

    def has_tile(self, g: Expr, p: Expr) -> tuple[Expr, ...]:
        """The conditions under which the range has steps of the tile that is `p` behind its first one."""
        begun = Compare("<", mul(p, index(self.steps)), self._end(g))
        exists = Compare("<", add(self.first_tile(g), p), index(self.tiles))
        # A whole last range ends where the tiles do, so it begins no tile that does not exist.
        return (begun,) if self.count * self.length == self.tiles * self.steps else (begun, exists)

    def first_step(self, g: Expr, p: Expr) -> Expr:
        """The first step that the range has of that tile: others than the first tile are begun by the range."""
        return Binary("max", sub(self._begin(g), mul(p, index(self.steps))), ZERO)

    def has_step(self, g: Expr, p: Expr, n: Expr) -> tuple[Expr, ...]:
        """The conditions under which the range has more than `n` steps of that tile, if it has one: the tile has as many from
        the first one on, and so has the range."""
        before = mul(p, index(self.steps))
        own = Compare("<", n, index(self.length))
        left = Compare("<", add(n, self._begin(g)), add(before, index(self.steps)))
        if self.tiles_of_range == 1:
            return own, left
        return own, Compare("<", add(n, before), self._end(g)), left

    def first_range(self, t: Expr) -> Expr:
        """The first range that has steps of a tile."""
        return floordiv(mul(t, index(self.steps)), index(self.length))

    def has_range(self, t: Expr, c: Expr) -> Expr:
        """The condition under which the range that is `c` behind the first one has steps of the tile."""
        begin = mul(add(self.first_range(t), c), index(self.length))
        return Compare("<", begin, mul(add(t, index(1)), index(self.steps)))

    def place(self, t: Expr, c: Expr) -> tuple[Expr, Expr]:
        """That range, and how far the tile is behind its first one."""
        g = add(self.first_range(t), c)
        return g, sub(t, self.first_tile(g))

    def _begin(self, g: Expr) -> Expr:
        """Where the range begins, in steps of its first tile."""
        return floormod(mul(g, index(self.length)), index(self.steps))

    def _end(self, g: Expr) -> Expr:
        """Where the range ends, in steps from the beginning of its first tile."""
        return add(self._begin(g), index(self.length))
