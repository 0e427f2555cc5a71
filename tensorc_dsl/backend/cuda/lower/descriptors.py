"""The descriptors of operands in shared memory that an instruction takes as a whole: where they begin, and how they lie.

Eight lines of 16, 32, 64 or 128 bytes follow each other; the next eight are at a distance, and what is beyond the width of a
line at another one. Both distances follow from the strides of the buffer, and each element is checked to be where they say.
The instruction permutes units of 16 bytes itself, by bits of the address: so the buffer has to have the same swizzle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.affine.simplify import bounds, is_multiple, simplify
from tensorc_dsl.backend.cuda.lower.collectives import accesses_of, dimension_of
from tensorc_dsl.backend.cuda.lower.kernels import tma_in
from tensorc_dsl.ir.expr import ZERO, Expr, floordiv, floormod, index, substitute
from tensorc_dsl.ir.memo import by_first
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.swizzle import Swizzle
from tensorc_dsl.ir.warp import LINES, UNIT, Described, described, points
from tensorc_dsl.lower.bounds import stride
from tensorc_dsl.lower.flat import Collective, Flat, LowerError

ALIGNMENT = LINES * 128
"""The alignment in bytes of buffers with descriptors: that of eight of the longest lines, in which swizzles repeat."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An operand in shared memory: its first element, the bytes between groups of eight lines, and those to what is beyond
    the width of a line."""

    operand: Described
    buffer: str
    first: Expr
    groups: int
    beyond: int

    @property
    def unit(self) -> Expr:
        """The number of the unit of 16 bytes in the buffer with which it begins: see `require_described`."""
        return simplify(floordiv(self.first, index(UNIT // self.operand.operand.dtype.bytes)), {})


def descriptors_of(s: Collective) -> dict[str, Descriptor]:
    """The descriptors of operands in shared memory that an instruction takes. Raises LowerError if none says how one lies."""
    out: dict[str, Descriptor] = {}
    for b, x in accesses_of(s):
        d = described(s.intrinsic, b)
        if d is not None and b.scope.partition(".")[0] == "shared":
            at = x.indices[0]
            dims = [dimension_of(b.name, n) for n in range(len(b.shape))]
            steps = [stride(at, v) for v in dims]
            out[b.name] = _descriptor(s, d, x.buffer, substitute(at, dict.fromkeys(dims, ZERO)), steps)
    return out


def _descriptor(s: Collective, d: Described, buffer: str, first: Expr, steps: list[int | None]) -> Descriptor:
    size = d.operand.dtype.bytes
    known = tuple(n for n in steps if n is not None)
    if len(known) == len(steps) and (found := _distances(d, known)) is not None:
        return Descriptor(d, buffer, first, *found)
    raise LowerError(
        f"{s.intrinsic.name} takes `{d.operand.name}` in lines of {d.width} bytes, eight of them in a row, and those of"
        f" `{buffer}` are not so: its elements are {' and '.join('…' if n is None else str(n) for n in steps)} apart; let the"
        f" rows of `{buffer}` have {d.width // size} elements"
    )


@by_first(64)
def _distances(d: Described, steps: tuple[int, ...]) -> tuple[int, int] | None:
    """The bytes between groups of eight lines, and those to what is beyond the width of a line, where an operand has these
    strides; None if its elements are elsewhere."""
    size = d.operand.dtype.bytes
    places = {
        (line, number * size): size * sum(x * n for x, n in zip(point, steps, strict=True))
        for line, number, point in zip(d.lines, d.numbers, points(d.operand.shape), strict=True)
    }
    groups, beyond = places.get((LINES, 0), 0), places.get((0, d.width), 0)
    if min(groups, beyond) >= 0 == groups % UNIT == beyond % UNIT and all(
        place == line % LINES * d.width + line // LINES * groups + at % d.width + at // d.width * beyond
        for (line, at), place in places.items()
    ):
        return groups, beyond
    return None


def require_described(s: Collective, orders: Mapping[str, Swizzle], ranges: Ranges) -> None:
    """Raises LowerError unless the buffers of descriptors are permuted as these say, and operands begin where they can."""
    for d in descriptors_of(s).values():
        size, width = d.operand.operand.dtype.bytes, d.operand.width
        name, operand = s.intrinsic.name, d.operand.operand.name
        found, wanted = orders.get(d.buffer), swizzle_of(d.operand)
        if found != wanted:
            has = (
                "none"
                if found is None
                else f"one of {found.bits} bits in units of {found.unit} and {found.shift} further up"
            )
            how = (
                f"`storage_swizzle` it in units of {UNIT // size} elements, with rows of {width // size}"
                if wanted is not None
                else "leave its rows as they are"
            )
            raise LowerError(
                f"{name} takes `{operand}` with a swizzle of {d.operand.swizzle} bytes, and `{d.buffer}` has {has}; {how}"
            )
        atom = simplify(floormod(d.first, index(LINES * width // size)), ranges)
        low, high = bounds(atom, ranges)
        length = min(width, (max(d.operand.numbers) + 1) * size)
        if (
            low is None
            or high is None
            or high * size + length > width
            or not is_multiple(d.first, UNIT // size, ranges)
        ):
            raise LowerError(
                f"{name} takes `{operand}` from element `{format_expr(simplify(d.first, ranges))}` of `{d.buffer}` on, which"
                f" is not known to be in the first of {LINES} lines of {width} bytes, at a multiple of {UNIT} bytes; let"
                f" tiles have a multiple of {LINES} lines"
            )


def swizzle_of(d: Described) -> Swizzle | None:
    """The swizzle of a buffer that a descriptor speaks of."""
    size = d.operand.dtype.bytes
    bits = (d.width // UNIT).bit_length() - 1
    return Swizzle(UNIT // size, bits, 3) if bits else None


def require_whole_lines(body: Sequence[Flat], orders: Mapping[str, Swizzle], ranges: Ranges) -> None:
    """Raises LowerError unless each tile is, in shared memory, as the machine writes it."""
    for s in tma_in(tuple(body)):
        require_described(s, orders, ranges)
        for d in descriptors_of(s).values():
            if max(d.operand.lines) >= LINES and d.groups != LINES * d.operand.width:
                raise LowerError(
                    f"{s.intrinsic.name} stores lines of {d.operand.width} bytes one behind the other, and those of"
                    f" `{d.buffer}` are apart; let a tile be of adjacent rows of `{d.buffer}`"
                )


def targets_of(body: Sequence[Flat]) -> Iterator[str]:
    """The buffers to which tiles are copied."""
    return (d.buffer for s in tma_in(tuple(body)) for d in descriptors_of(s).values())
