"""What an instruction that copies a tile asks of the array: a tensor map has to be able to say what the box is.

A map has the sizes and distances of an array and of a tile, so each dimension of a tile is one of the array's, and rows are
whole units of 16 bytes apart. What is outside of the array is zero, so a copy may fill in that, and nothing else.
"""

from __future__ import annotations

from tensorc_dsl.affine.filling import is_inside
from tensorc_dsl.affine.instruction import Match, Mismatch, Tile
from tensorc_dsl.affine.rows import uneven_row
from tensorc_dsl.affine.simplify import bounds
from tensorc_dsl.ir.expr import ONE, ZERO
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer, Intrinsic, Program
from tensorc_dsl.ir.warp import UNIT

MOST_DIMENSIONS = 5
"""The most dimensions of a tensor map."""

LONGEST = 2**31 - 1
"""The most elements along a dimension whose numbers an instruction can name: they are signed, of 32 bits."""


def source_of(i: Intrinsic, match: Match) -> Tile:
    """The operand that is in an array."""
    (source,) = (t for t in match.tiles if t.operand.name != i.store.buffer)
    return source


def no_tensor_map(program: Program, i: Intrinsic, match: Match) -> Mismatch | None:
    """A mismatch unless a tensor map can say what the nest copies."""
    source = source_of(i, match)
    array = program.buffer(source.buffer)
    rank = len(array.shape)
    if array.scope != "global":
        return Mismatch(
            f'{i.name} loads a tile of an array, and `{array.name}` is in "{array.scope}"', "copy it from an array"
        )
    if rank > MOST_DIMENSIONS:
        return Mismatch(
            f"{i.name} takes arrays of up to {MOST_DIMENSIONS} dimensions, and `{array.name}` has {rank}",
            "copy by threads",
        )
    along = dimensions_of(source)
    if along is None or sorted(set(along)) != along or along[-1] != rank - 1:
        return Mismatch(
            f"`{source.operand.name}` of {i.name} is no tile of `{array.name}`: each dimension has to be one of the array, in"
            " its order and with steps of 1, and the last one its last",
            "split and reorder the loops so, or copy by threads",
        )
    if any((bounds(n, {})[0] or 0) < 1 for n in array.shape):
        return Mismatch(
            f"{i.name} takes arrays that have elements, and `{array.name}` may have none",
            "let its sizes be at least 1, or copy by threads",
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
            f"pad them to a multiple of {UNIT // size}, or copy by threads",
        )
    return _other_zeros(array, match)


def dimensions_of(source: Tile) -> list[int] | None:
    """The dimension of the array along which each dimension of a tile lies; None if one moves along several, or by steps
    other than 1."""
    moved = [[n for n, step in enumerate(steps) if step != ZERO] for steps in source.steps]
    straight = all(len(own) == 1 and steps[own[0]] == ONE for steps, own in zip(source.steps, moved, strict=True))
    return [own[0] for own in moved] if straight else None


def _other_zeros(array: Buffer, match: Match) -> Mismatch | None:
    if match.filling is None or is_inside(match.filling.copied, array.shape, dict(match.filling.extents)):
        return None
    return Mismatch(
        f"it is not known to store zeros where it is outside of `{array.name}`, and only there",
        "let it fill in what is outside of the array and nothing else",
    )
