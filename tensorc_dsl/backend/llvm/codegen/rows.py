"""Whether outputs are stored row by row, so that their lines may go past the caches in pieces."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.affine.form import Context
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.ir.expr import Const
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, Kernel, Loop, body_of

ROW = 1024
"""The fewest bytes of a row. Where it begins within a line, a part of a line is stored alone at both of its ends, which takes
as long as three whole lines."""


def in_rows(kernel: Kernel) -> bool:
    """Whether each store to a streamed output is one of a vectorized loop over at least `ROW` adjacent bytes."""
    return _in_rows(kernel.body, {p.name: p.dtype.bytes for p in kernel.params if p.name in kernel.streamed}, None)


def _in_rows(body: tuple[Flat, ...], sizes: Mapping[str, int], around: Loop | None) -> bool:
    for s in body:
        if isinstance(s, Store):
            if s.buffer in sizes and (around is None or not _is_row(s, around, sizes[s.buffer])):
                return False
        elif not _in_rows(body_of(s), sizes, s if isinstance(s, Loop) else around):
            return False
    return True


def _is_row(s: Store, loop: Loop, size: int) -> bool:
    match loop.begin, loop.end:
        case Const(value=int(begin)), Const(value=int(end)) if loop.kind is LoopKind.VECTORIZED:
            adjacent = linear(s.indices[0], Context({})).terms.get(loop.var) == 1
            return adjacent and (end - begin) * size >= ROW
        case _:
            return False
