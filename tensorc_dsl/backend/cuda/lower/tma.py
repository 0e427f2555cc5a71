"""Tiles of arrays that one thread copies to shared memory or back, and what they have in all."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tensorc_dsl.affine.instruction import Match
from tensorc_dsl.affine.tensor_maps import array_of, dimensions_of
from tensorc_dsl.backend.cuda.lower.kernels import tma_in
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.program import Buffer, Intrinsic, LoopKind
from tensorc_dsl.ir.warp import described, is_tma_store
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, TensorMap, TmaTile


def tile_of(i: Intrinsic, match: Match, array: Buffer) -> TmaTile:
    """The tile that an instruction copies."""
    there = array_of(i, match)
    (here,) = (x for x in match.tiles if x is not there)
    along, lines = dimensions_of(there), described(i, here.operand)
    assert along is not None and lines is not None  # as `no_tensor_map` and `tma_difference` ask
    sizes = [1] * len(array.shape)
    for n, extent in zip(along, there.operand.shape, strict=True):
        sizes[n] = constant(extent) or 0
    own = TensorMap(array.name, array.dtype, array.shape, tuple(sizes), lines.swizzle)
    return TmaTile(own, there.origin, is_tma_store(i))


def loaded_bytes(body: Sequence[Flat]) -> int | None:
    """The bytes of the tiles that statements load; None if these are not whole loops of a known length around loads."""
    total = 0
    for s in body:
        if isinstance(s, Collective) and s.tile is not None and not s.tile.stores:
            total += bytes_of(s.tile)
        elif isinstance(s, Loop) and constant(s.begin) == 0 and s.kind in (LoopKind.SERIAL, LoopKind.UNROLLED):
            inner, count = loaded_bytes(s.body), constant(s.end)
            if inner is None or count is None:
                return None
            total += count * inner
        else:
            return None
    return total


def only_stores(body: Sequence[Flat]) -> bool:
    """Whether statements are loops and conditions around TMA stores."""
    return all(
        s.tile is not None and s.tile.stores
        if isinstance(s, Collective)
        else isinstance(s, Loop | If) and only_stores(s.body)
        for s in body
    )


def bytes_of(tile: TmaTile) -> int:
    """The bytes of a tile."""
    return prod(tile.map.sizes) * tile.map.dtype.bytes


def maps_of(bodies: Sequence[Sequence[Flat]]) -> tuple[TensorMap, ...]:
    """The different tensor maps of tiles, in their order."""
    return tuple(dict.fromkeys(s.tile.map for body in bodies for s in tma_in(tuple(body)) if s.tile is not None))
