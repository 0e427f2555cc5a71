"""What an instruction that copies a tile requires of the array: a tensor map has to be able to express the box.

A map has the sizes and distances of an array and of a tile, so each dimension of a tile is one of the array's, and rows are
whole units of 16 bytes apart. What is outside of the array is loaded as zero and not stored, so a load may fill in that, and
a store may leave it out, and nothing else.
"""

from __future__ import annotations

from tensorc_dsl.affine.filling import is_inside
from tensorc_dsl.affine.instruction import Match, Mismatch, Tile
from tensorc_dsl.affine.rows import uneven_row
from tensorc_dsl.affine.simplify import bounds
from tensorc_dsl.ir.expr import ONE, ZERO
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer, Intrinsic, Program
from tensorc_dsl.ir.warp import UNIT, is_tma_store

MOST_DIMENSIONS = 5
"""The most dimensions of a tensor map."""

LONGEST = 2**31 - 1
"""The most elements along a dimension whose numbers an instruction can name: they are signed, of 32 bits."""


def array_of(i: Intrinsic, match: Match) -> Tile:
    """The operand that is in an array."""
    (array,) = (t for t in match.tiles if (t.operand.name == i.store.buffer) == is_tma_store(i))
    return array


def no_tensor_map(program: Program, i: Intrinsic, match: Match) -> Mismatch | None:
    """A mismatch unless a tensor map can say what the nest copies."""
    tile, stores = array_of(i, match), is_tma_store(i)
    array, other = program.buffer(tile.buffer), f"{'store' if stores else 'copy'} by threads"
    rank = len(array.shape)
    if array.scope != "global":
        return Mismatch(
            f'{i.name} {"stores" if stores else "loads"} a tile of an array, and `{array.name}` is in "{array.scope}"',
            f"copy it {'to' if stores else 'from'} an array",
        )
    if rank > MOST_DIMENSIONS:
        return Mismatch(
            f"{i.name} takes arrays of up to {MOST_DIMENSIONS} dimensions, and `{array.name}` has {rank}",
            other,
        )
    if array.strides:
        return Mismatch(
            f"{i.name} takes dense arrays, and `{array.name}` has strides [{', '.join(map(format_expr, array.strides))}]",
            f"declare `{array.name}` without strides, or {other}",
        )
    along = dimensions_of(tile)
    if along is None or sorted(set(along)) != along or along[-1] != rank - 1:
        return Mismatch(
            f"`{tile.operand.name}` of {i.name} is no tile of `{array.name}`: each dimension has to be one of the array, in"
            " its order and with steps of 1, and the last one its last",
            f"split and reorder the loops so, or {other}",
        )
    if any((bounds(n, {})[0] or 0) < 1 for n in array.shape):
        return Mismatch(
            f"{i.name} takes arrays that have elements, and `{array.name}` may have none",
            f"let its sizes be at least 1, or {other}",
        )
    if any((bounds(n, {})[0] or 0) > LONGEST for n in array.shape):
        return Mismatch(
            f"{i.name} takes arrays of up to {LONGEST} elements along a dimension, and `{array.name}` has more",
            "copy by threads",
        )
    if (row := uneven_row(array)) is not None:
        size = array.dtype.bytes
        return Mismatch(
            f"{i.name} takes arrays whose rows are multiples of {UNIT} bytes apart, and those of `{array.name}` are"
            f" `{format_expr(row)}` elements of {size} bytes apart",
            f"pad them to a multiple of {UNIT // size}, or {other}",
        )
    return _other_elements(array, match, stores)


def dimensions_of(source: Tile) -> list[int] | None:
    """The dimension of the array along which each dimension of a tile lies; None if one moves along several, or by steps
    other than 1."""
    moved = [[n for n, step in enumerate(steps) if step != ZERO] for steps in source.steps]
    straight = all(len(own) == 1 and steps[own[0]] == ONE for steps, own in zip(source.steps, moved, strict=True))
    return [own[0] for own in moved] if straight else None


def _other_elements(array: Buffer, match: Match, stores: bool) -> Mismatch | None:
    f = match.filling
    if f is None or is_inside(f.copied, array.shape, dict(f.extents), f.given):
        return None
    what, which = ("leave out what", "that") if stores else ("store zeros where it", "there")
    return Mismatch(
        f"it is not known to {what} is outside of `{array.name}`, and only {which}",
        f"let it {'leave out' if stores else 'fill in'} what is outside of the array and nothing else",
    )
