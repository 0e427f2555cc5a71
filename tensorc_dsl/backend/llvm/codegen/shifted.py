"""Makes vectors that lie between two others out of these: those of a stencil, which reads its neighbours along a row.

A vector as long as a line of the cache that does not begin at one lies in two, and takes two loads. If the vectors before and
behind it are loaded in any case, it is the end of the one and the beginning of the other: one instruction on registers.
Nothing else is loaded, so no load leaves an array.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tensorc_dsl.backend.llvm.codegen.body import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.scope import Piece, Place
from tensorc_dsl.backend.llvm.codegen.values import Value
from tensorc_dsl.ir.expr import Expr, Load, Logic, Select, children, loads
from tensorc_dsl.ir.program import Store

LINE = 64
"""The size in bytes of a cache line. Of shorter vectors only some lie in two lines."""

Rows = dict[tuple[str, tuple[tuple[str, int], ...]], dict[int, list[Place]]]
"""For each row, a buffer and the part of the subscript that is no number, the loads by that number."""


def shifted(e: Expressions, s: Store, pieces: tuple[Piece, ...]) -> dict[Place, Value]:
    """The values of loads of a store, by load and piece, of rows of which some are made out of others; written here.

    The lanes of a vectorized loop run at once: what one of them loads is not what another one stores.
    """
    out: dict[Place, Value] = {}
    by_offset = {at.offset: at for at in pieces}
    for row in _rows(e, s, pieces).values():
        ((load, _), *_) = next(iter(row.values()))
        width = LINE // load.dtype.bytes
        begins = {p % width for p, ((x, at), *_) in row.items() if e.is_multiple(x.indices[0], by_offset[at], width)}
        first = max(range(width), key=lambda k: (k in begins, len(_between(row, k, width)), -k))
        between = _between(row, first, width)
        if not between:
            continue
        whole = {p: e.load(x, by_offset[at]) for p, ((x, at), *_) in row.items() if p not in between}
        for p, places in row.items():
            if p in between:
                shift = (p - first) % width
                value = _joined(e.f, whole[p - shift], whole[p - shift + width], shift)
            else:
                value = whole[p]
            out.update(dict.fromkeys(places, value))
    return out


def always(e: Expr) -> Iterator[Load]:
    """The loads that happen for any data."""
    match e:
        case Load():
            yield e
        case Select(cond=x) | Logic(lhs=x):
            yield from always(x)
        case _:
            for part in children(e):
                yield from always(part)


def _rows(e: Expressions, s: Store, pieces: tuple[Piece, ...]) -> Rows:
    """The loads of whole lines that happen in any case."""
    rows: Rows = defaultdict(lambda: defaultdict(list))
    for load in dict.fromkeys(always(s.value)):
        for at in pieces:
            i = load.indices[0]
            if at.mask is None and at.width * load.dtype.bytes == LINE and not loads(i) and e.stride(i, at) == 1:
                terms, number = e.split(e.form(i), at)
                rows[load.buffer, tuple(sorted(terms))][number].append((load, at.offset))
    return rows


def _between(row: dict[int, list[Place]], first: int, width: int) -> set[int]:
    """The vectors that lie between two of those at multiples of the width behind `first`."""
    shifts = {p: (p - first) % width for p in row}
    return {p for p, k in shifts.items() if k and p - k in row and p - k + width in row}


def _joined(f: Function, low: Value, high: Value, shift: int) -> Value:
    """The lanes of two vectors that follow each other, without the first `shift` of them."""
    places = ", ".join(f"i32 {shift + k}" for k in range(low.lanes))
    return f.value(low.dtype, f"shufflevector {low.typed}, {high.typed}, <{low.lanes} x i32> <{places}>", low.lanes)
