"""Tiles of arrays that one thread copies to shared memory, and what they have in all."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tensorc_dsl.affine.instruction import Match
from tensorc_dsl.affine.tensor_maps import dimensions_of, source_of
from tensorc_dsl.backend.cuda.lower.kernels import tma_in
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.program import Buffer, Intrinsic, LoopKind
from tensorc_dsl.ir.warp import described
from tensorc_dsl.lower.flat import Collective, Flat, Loop, TensorMap, TmaTile


def tile_of(i: Intrinsic, match: Match, array: Buffer) -> TmaTile:
    """The tile that an instruction copies."""
    source, to = source_of(i, match), match.tile(i.store.buffer)
    along, lines = dimensions_of(source), described(i, to.operand)
    assert along is not None and lines is not None  # as `no_tensor_map` and `tma_difference` ask
    sizes = [1] * len(array.shape)
    for n, extent in zip(along, source.operand.shape, strict=True):
        sizes[n] = constant(extent) or 0
    return TmaTile(TensorMap(array.name, array.dtype, array.shape, tuple(sizes), lines.swizzle), source.origin)


def loaded_bytes(body: Sequence[Flat]) -> int | None:
    """The bytes of the tiles that statements copy; None if these are not whole loops of a known length around tiles."""
    total = 0
    for s in body:
        if isinstance(s, Collective) and s.tile is not None:
            total += prod(s.tile.map.sizes) * s.tile.map.dtype.bytes
        elif isinstance(s, Loop) and constant(s.begin) == 0 and s.kind in (LoopKind.SERIAL, LoopKind.UNROLLED):
            inner, count = loaded_bytes(s.body), constant(s.end)
            if inner is None or count is None:
                return None
            total += count * inner
        else:
            return None
    return total


def maps_of(bodies: Sequence[Sequence[Flat]]) -> tuple[TensorMap, ...]:
    """The different tensor maps of tiles, in their order."""
    return tuple(dict.fromkeys(s.tile.map for body in bodies for s in tma_in(tuple(body)) if s.tile is not None))
