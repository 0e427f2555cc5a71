"""Vectors that are made of others in registers: transposed tiles, and those of a stencil that lie between two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function, Piece, Place, Value, element, in_memory, vector_type
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import Expr, Load, Logic, Select, children, constant, loads
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.target import CACHE_LINE
from tensorc_dsl.lower.flat import Loop, store_loads, stride

# Makes vectors that lie between two others out of these: those of a stencil, which reads its neighbours along a row.
#
# A vector as long as a line of the cache that does not begin at one lies in two, and takes two loads. If the vectors before
# and behind it are loaded in any case, it is the end of the one and the beginning of the other: one instruction on
# registers. Nothing else is loaded, so no load leaves an array.
#
# It is done where a statement reads the buffer that it writes, as a step of a stencil over time does. What several rows of
# an input share is loaded once in any case, and where operations are what limits, as in a dilation, exchanging lanes took
# longer.


Rows = dict[tuple[tuple[str, int], ...], dict[int, list[Place]]]
"""For each row, the part of the subscript that is no number, the loads by that number."""


def shifted(e: Expressions, s: Store, pieces: tuple[Piece, ...]) -> dict[Place, Value]:
    """The values of loads of a store, by load and piece, of rows of which some are made out of others; written here.

    The lanes of a vectorized loop run at once: what one of them loads is not what another one stores.
    """
    out: dict[Place, Value] = {}
    by_offset = {at.offset: at for at in pieces}
    for row in _rows(e, s, pieces).values():
        ((load, _), *_) = next(iter(row.values()))
        width = CACHE_LINE // load.dtype.bytes
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
    """The loads of whole lines of the buffer that is stored to, as far as they happen in any case."""
    rows: Rows = defaultdict(lambda: defaultdict(list))
    for load in dict.fromkeys(x for x in always(s.value) if x.buffer == s.buffer):
        for at in pieces:
            i = load.indices[0]
            if at.mask is None and at.width * load.dtype.bytes == CACHE_LINE and not loads(i) and e.stride(i, at) == 1:
                terms, number = e.split(e.form(i), at)
                rows[tuple(sorted(terms))][number].append((load, at.offset))
    return rows


def _between(row: dict[int, list[Place]], first: int, width: int) -> set[int]:
    """The vectors that lie between two of those at multiples of the width behind `first`."""
    shifts = {p: (p - first) % width for p in row}
    return {p for p, k in shifts.items() if k and p - k in row and p - k + width in row}


def _joined(f: Function, low: Value, high: Value, shift: int) -> Value:
    """The lanes of two vectors that follow each other, without the first `shift` of them."""
    places = ", ".join(f"i32 {shift + k}" for k in range(low.lanes))
    return f.value(low.dtype, f"shufflevector {low.typed}, {high.typed}, <{low.lanes} x i32> <{places}>", low.lanes)


# Transposes tiles in registers: rows are loaded as vectors, exchanged between registers, and stored as vectors.
#
# If a vectorized loop runs down the columns of its input, and an unrolled loop directly around it along the rows, both
# together access a tile, each row of which is one load. Transposing n × n elements takes log2 n steps, in each of which
# pairs of registers exchange half of their elements (Eklundh, A fast computer method for matrix transposing, 1972).
# Elements of 8 or 16 bits are transposed in squares of 16 bytes, several of which lie side by side in a vector.


_SQUARE = 16
"""The bytes of a row of a square of short elements: those that an instruction interleaves with another row."""


@frozen
class Turn:
    """A nest that reads `loads` along the unrolled loop `along` and stores along the vectorized loop `across`.

    `rows` and `lanes` are the values of the two loops; `pitch` is the distance of stored rows in elements.
    """

    along: Loop
    across: Loop
    rows: range
    lanes: range
    store: Store
    pitch: int
    loads: tuple[Load, ...]


def turned(s: Loop) -> Turn | None:
    """The nest as a tile to be transposed. None if it reads no columns, or if its order might matter.

    Tiles are written one after the other, so no two iterations may store to one element, and stored elements may not be read.
    """
    (across,) = s.body if len(s.body) == 1 else (None,)
    if not isinstance(across, Loop) or s.kind is not LoopKind.UNROLLED or across.kind is not LoopKind.VECTORIZED:
        return None
    rows, lanes = _values(s), _values(across)
    (store,) = across.body if len(across.body) == 1 else (None,)
    if not isinstance(store, Store) or rows is None or lanes is None:
        return None
    pitch = stride(store.indices[0], s.var)
    if stride(store.indices[0], across.var) != 1 or pitch is None or abs(pitch) < len(lanes):
        return None
    if any(x.buffer == store.buffer for x in store_loads(store)):
        return None
    loads = tuple(dict.fromkeys(x for x in always(store.value) if _is_column(x, s.var, across.var)))
    return Turn(s, across, rows, lanes, store, pitch, loads) if loads else None


def _values(s: Loop) -> range | None:
    begin, end = constant(s.begin), constant(s.end)
    return None if begin is None or end is None else range(begin, end)


def _is_column(x: Load, along: str, across: str) -> bool:
    return stride(x.indices[0], across) not in (None, 0, 1) and stride(x.indices[0], along) == 1


def write_turned(e: Expressions, s: Turn, width: int, write: Callable[[Store, Piece], None]) -> None:
    """Write the tile in square pieces of `width` elements; `write` writes their stores.

    Pieces of short elements alone are as wide as a vector, and a square high.
    """
    along, across = s.along.var, s.across.var
    if s.pitch == len(s.lanes) < width:
        _write_narrow(e, s, width)
        return
    short = s.store.value.dtype.bytes if isinstance(s.store.value, Load) and s.store.value.dtype.bytes < 4 else None
    side, lanes = (width, width) if short is None else (_SQUARE // short, width * 4 // short)
    with e.scope.bound({across: s.lanes.start}):
        for offset in range(0, len(s.lanes), lanes):
            at = Piece(across, offset, min(lanes, len(s.lanes) - offset))
            for first in s.rows[::side]:
                count = min(side, s.rows.stop - first)
                with e.scope.bound({along: first}):
                    columns = {x: _columns(e, x, at, count) for x in s.loads}
                for k in range(count):
                    e.made = {(x, at.offset): values[k] for x, values in columns.items()}
                    with e.scope.bound({along: first + k}):
                        write(s.store, at)
                e.made = {}


def _write_narrow(e: Expressions, s: Turn, width: int) -> None:
    """Write rows narrower than a vector, stored without gaps: vectors run along the input, and are stored interleaved."""
    along, across = s.along.var, s.across.var
    for first in s.rows[::width]:
        at = Piece(along, 0, min(width, s.rows.stop - first))
        columns: list[Value] = []
        for k in s.lanes:
            with e.scope.bound({along: first, across: k}):
                columns.append(e.f.splat(e.value(s.store.value, at), at.width))
        with e.scope.bound({along: first, across: s.lanes.start}):
            e.put(_interleaved(e.f, columns), s.store.buffer, s.store.indices[0], at)


def _columns(e: Expressions, x: Load, at: Piece, count: int) -> list[Value]:
    """The loads of a piece's lanes in each of `count` iterations along the rows, starting at the current one."""
    lanes = list(range(at.width))
    if e.stride(x.indices[0], at) == count < at.width:  # rows narrower than a vector, without gaps
        kind = vector_type(in_memory(x.dtype), count * at.width)
        whole = e.f.op(f"load {kind}, ptr {e.pointer(x.buffer, x.indices[0], at)}, align {x.dtype.bytes}")
        found = [_picked(e.f, kind, whole, "poison", [k + count * n for n in lanes]) for k in range(count)]
        return [e.from_memory(ref, x.dtype, at.width) for ref in found]
    if x.dtype.bytes < 4 and count <= _SQUARE // x.dtype.bytes < at.width:
        return _squares(e, x, at, count)
    size = 1 << (max(count, at.width) - 1).bit_length()
    wide = vector_type(in_memory(x.dtype), size)
    rows = ["poison"] * size
    for k in lanes:
        rows[k] = _row(e, x, Piece(at.var, at.offset + k, 1), count, size)
    half = size // 2
    while half:
        for k in range(size):
            if not k & half:
                rows[k], rows[k + half] = _exchanged(e.f, wide, (rows[k], rows[k + half]), size, half)
        half //= 2
    found = [_picked(e.f, wide, row, "poison", lanes) for row in rows[:count]]
    return [e.from_memory(ref, x.dtype, at.width) for ref in found]


def _squares(e: Expressions, x: Load, at: Piece, count: int) -> list[Value]:
    """As `_columns`, of elements shorter than 32 bits: squares of 16 bytes lie side by side in vectors of `at.width` lanes.

    Each step interleaves the elements of rows that are half a square apart, in each square. It rotates the bits of the row
    and the column of an element by one, so that the two have changed places after as many steps as either has bits.
    """
    side = _SQUARE // x.dtype.bytes
    squares = -(-at.width // side)
    one, wide = vector_type(in_memory(x.dtype), side), vector_type(in_memory(x.dtype), side * squares)
    rows: list[str] = []
    for k in range(side):
        whole = "poison"
        for n in range(squares):
            lane = k + n * side
            if lane < at.width:
                part = _row(e, x, Piece(at.var, at.offset + lane, 1), count, side)
                spread = _picked(
                    e.f, one, part, "poison", [m - n * side if m // side == n else -1 for m in range(side * squares)]
                )
                kept = [m + side * squares if m // side == n else m for m in range(side * squares)]
                whole = spread if n == 0 else _picked(e.f, wide, whole, spread, kept)
        rows.append(whole)
    half = side // 2
    for _ in range(half.bit_length()):
        pairs = [(rows[k], rows[k + half]) for k in range(half)]
        rows = [_mixed(e.f, wide, pair, side, squares, begin) for pair in pairs for begin in (0, half)]
    found = [_picked(e.f, wide, row, "poison", list(range(at.width))) for row in rows[:count]]
    return [e.from_memory(ref, x.dtype, at.width) for ref in found]


def _mixed(f: Function, kind: str, pair: tuple[str, str], side: int, squares: int, begin: int) -> str:
    """Half of the elements of each square of two vectors, from the position `begin`, in turns."""
    lanes = side * squares
    return _picked(
        f, kind, *pair, [n * side + begin + k // 2 + k % 2 * lanes for n in range(squares) for k in range(side)]
    )


def _row(e: Expressions, x: Load, at: Piece, count: int, size: int) -> str:
    """`count` elements from a lane on, in a vector of `size` of them."""
    kind = vector_type(in_memory(x.dtype), count)
    row = e.f.op(f"load {kind}, ptr {e.pointer(x.buffer, x.indices[0], at)}, align {x.dtype.bytes}")
    return _picked(e.f, kind, row, "poison", [*range(count), *[-1] * (size - count)])


def _exchanged(f: Function, kind: str, pair: tuple[str, str], size: int, half: int) -> tuple[str, str]:
    """Two rows as blocks of `half` elements, with every second block of the first swapped with the preceding block of the
    second."""
    low = [k if not k & half else size + k - half for k in range(size)]
    high = [k + half if not k & half else size + k for k in range(size)]
    return _picked(f, kind, *pair, low), _picked(f, kind, *pair, high)


def _interleaved(f: Function, parts: list[Value]) -> Value:
    """The first lanes of all vectors, then their second lanes, and so on."""
    n = parts[0].lanes
    ref, kind = parts[0].ref, parts[0].type
    for k, p in enumerate(parts[1:], 1):
        more = _picked(f, p.type, p.ref, "poison", [*range(n), *[-1] * (n * (k - 1))])
        ref = _picked(f, kind, ref, more, list(range(n * (k + 1))))
        kind = vector_type(element(p.dtype), n * (k + 1))
    places = [n * c + k for k in range(n) for c in range(len(parts))]
    return Value(parts[0].dtype, _picked(f, kind, ref, "poison", places), len(places))


def _picked(f: Function, kind: str, a: str, b: str, places: list[int]) -> str:
    """Elements of two vectors by position, where the second vector follows the first; -1 stands for any value."""
    picked = ", ".join(f"i32 {k}" if k >= 0 else "i32 poison" for k in places)
    return f.op(f"shufflevector {kind} {a}, {kind} {b}, <{len(places)} x i32> <{picked}>")
