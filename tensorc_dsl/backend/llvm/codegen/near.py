"""Lanes of a load that lie near each other at distances that are no numbers, such as those of a row that is resized.

The subscript grows along the row by whole quotients, `(x * 1917 + 7) / 1437`. Its value in lane 0 is a scalar. The distances
of the other lanes from it are small, so they are 32-bit numbers: of a floor division by `n`, `(r + d) / n`, where `r` is what
lane 0 leaves of `n`, and `d` the distance in the dividend. The elements from lane 0 to the last lane are loaded as vectors,
and an exchange of lanes puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.scope import Piece, Scalar
from tensorc_dsl.backend.llvm.codegen.values import Value, constant_value, in_memory, mangled, vector_type
from tensorc_dsl.ir.dtypes import BOOL, I32, INDEX, DType
from tensorc_dsl.ir.expr import Binary, Expr, Load, Var, add, constant, dtype_of, free_vars, index, loads, substitute

MOST = 4
"""The most vectors that are loaded for one. A gather takes about as long as 16 loads, and each further pair of vectors one
exchange and one choice."""

LIMIT = 1 << 31

_EXCHANGES = {
    (1, 64): ("qi.512", "avx512vbmi"),
    (2, 32): ("hi.512", "avx512bw"),
    (4, 8): ("d.256", "avx512vl"),
    (4, 16): ("d.512", "avx512f"),
    (8, 4): ("q.256", "avx512vl"),
    (8, 8): ("q.512", "avx512f"),
}
"""By bytes of an element and number of lanes: the exchange of lanes between two vectors, and the feature that it needs."""

_NARROW = ("avx512bw", "avx512vl")
"""What loads of narrow elements under a mask need. They become as wide as the lanes are."""


@lru_cache(maxsize=4096)
def growth(e: Expr, var: str, steps: int) -> tuple[int, int] | None:
    """The least and the greatest change of a subscript where `var` grows by `steps`; None if they are not known."""
    if var not in free_vars(e):
        return 0, 0
    match e:
        case Var():
            return steps, steps
        case Binary(op="+" | "-" as op, lhs=a, rhs=b):
            x, y = growth(a, var, steps), growth(b, var, steps)
            if x is None or y is None:
                return None
            return (x[0] + y[0], x[1] + y[1]) if op == "+" else (x[0] - y[1], x[1] - y[0])
        case Binary(op="*", lhs=a, rhs=b):
            x, c = growth(a, var, steps), constant(b)
            if x is None or c is None:
                return None
            return (x[0] * c, x[1] * c) if c >= 0 else (x[1] * c, x[0] * c)
        case Binary(op="/", lhs=a, rhs=b):
            x, n = growth(a, var, steps), constant(b)
            return None if x is None or n is None or n <= 0 else (x[0] // n, -(-x[1] // n))
        case _:
            return None


def vectors_of(e: Load, at: Piece, features: frozenset[str]) -> int | None:
    """The number of vectors that the lanes of a load are in, wherever it begins; None if that is not known or too many."""
    subscript, bytes_ = e.indices[0], _bytes(e.dtype, at.width)
    exchange = _EXCHANGES.get((bytes_, at.width))
    needs = (exchange[1], *(_NARROW if bytes_ > e.dtype.bytes else ())) if exchange else ()
    if exchange is None or not features.issuperset(needs) or not _is_small(subscript, at.var, at.width):
        return None
    step, whole = growth(subscript, at.var, 1), growth(subscript, at.var, at.width - 1)
    if step is None or whole is None or step[0] < 0:
        return None
    count = whole[1] // at.width + 1
    return count if count <= MOST else None


def _bytes(t: DType, lanes: int) -> int:
    """The bytes of a lane while lanes are exchanged."""
    return next((b for b, n in _EXCHANGES if n == lanes and b >= t.bytes), t.bytes)


def _is_small(e: Expr, var: str, lanes: int) -> bool:
    """Whether the distances from lane to lane, and all that they are computed from, are known to be 32-bit numbers."""
    if var not in free_vars(e):
        return True
    whole, step = growth(e, var, lanes - 1), growth(e, var, 1)
    if loads(e) or whole is None or step is None or max(map(abs, whole)) >= LIMIT:
        return False
    match e:
        case Binary(op="/", lhs=a, rhs=b):
            return _is_dividend(a, b, var, lanes)
        case Binary(lhs=a, rhs=b):
            return _is_small(a, var, lanes) and _is_small(b, var, lanes)
        case _:
            return True


def _is_dividend(a: Expr, b: Expr, var: str, lanes: int) -> bool:
    """Whether `a` grows, and `n` with its distances is a 32-bit number for a divisor `b` = `n`."""
    n, step, whole = constant(b), growth(a, var, 1), growth(a, var, lanes - 1)
    if n is None or step is None or whole is None or not 0 < n < LIMIT:
        return False
    return step[0] >= 0 and whole[1] + n < LIMIT and _is_small(a, var, lanes)


def is_counted(e: Binary, at: Piece) -> bool:
    """Whether a quotient or remainder of lanes can be counted from that of lane 0."""
    if e.op not in ("/", "%") or dtype_of(e) != INDEX or at.var not in free_vars(e.lhs) or loads(e):
        return False
    return _is_dividend(e.lhs, e.rhs, at.var, at.width)


def counted(f: Function, at_first: Callable[[Expr], Scalar], e: Binary, at: Piece) -> Value:
    """A quotient or remainder of lanes. `at_first` writes the value of an expression that all lanes share."""
    n = constant(e.rhs)
    assert n is not None
    if e.op == "%":
        rest = f.value(I32, f"urem {_dividend(f, at_first, e.lhs, n, at).typed}, splat (i32 {n})", at.width)
        return _widened(f, rest)
    first = f.splat(Value(INDEX, str(at_first(_first(e, at)))), at.width)
    more = _widened(f, distances(f, at_first, e, at))
    return f.value(INDEX, f"add nsw {first.typed}, {more.ref}", at.width)


def distances(f: Function, at_first: Callable[[Expr], Scalar], e: Expr, at: Piece) -> Value:
    """How far each lane's subscript is from that of lane 0, as 32-bit numbers."""
    zero = constant_value(I32, 0, at.width)
    if at.var not in free_vars(e):
        return zero
    match e:
        case Var():
            return Value(I32, f"<{', '.join(f'i32 {k}' for k in range(at.width))}>", at.width)
        case Binary(op="/", lhs=a, rhs=b):
            n = constant(b)
            assert n is not None
            return f.value(I32, f"udiv {_dividend(f, at_first, a, n, at).typed}, splat (i32 {n})", at.width)
        case Binary(op=op, lhs=a, rhs=b):
            x = distances(f, at_first, a, at)
            y = constant_value(I32, constant(b) or 0, at.width) if op == "*" else distances(f, at_first, b, at)
            if op != "*" and y == zero:
                return x
            word = {"+": "add", "-": "sub", "*": "mul"}[op]
            return f.value(I32, f"{word} {x.typed}, {y.ref}", at.width)
        case _:
            raise AssertionError(e)


def _dividend(f: Function, at_first: Callable[[Expr], Scalar], a: Expr, n: int, at: Piece) -> Value:
    """What lane 0 leaves of `n`, plus the distances."""
    rest = at_first(Binary("%", _first(a, at), index(n)))
    first = Value(I32, str(rest) if isinstance(rest, int) else f.cached(f"trunc i64 {rest} to i32"))
    more = distances(f, at_first, a, at)
    return f.value(I32, f"add nuw {f.splat(first, at.width).typed}, {more.ref}", at.width)


def _first(e: Expr, at: Piece) -> Expr:
    """The expression in lane 0."""
    return substitute(e, {at.var: add(Var(at.var), index(at.offset))})


def _widened(f: Function, v: Value) -> Value:
    return f.value(INDEX, f"zext {v.typed} to {vector_type('i64', v.lanes)}", v.lanes)


def pick_near(
    f: Function, place: Callable[[int], str], read: Callable[[str], str], dtype: DType, places: Value, count: int
) -> str:
    """Write loads of `count` vectors and the choice of the lanes at `places`. `place(n)` is the address n elements from lane
    0, and `read` writes a load. Elements behind the last lane are not read.
    """
    lanes, size = places.lanes, _bytes(dtype, places.lanes) * 8
    kind = vector_type(in_memory(dtype), lanes)
    bits, wide = (vector_type(f"i{n}", lanes) for n in (dtype.bytes * 8, size))

    def turned(how: str, ref: str, before: str, after: str) -> str:
        return ref if before == after else f.cached(f"{how} {before} {ref} to {after}")

    last = f.splat(f.lane(places, lanes - 1), lanes)
    load = f"llvm.masked.load.{mangled(dtype, lanes)}.p0"
    loaded: list[str] = []
    for at in range(0, count * lanes, lanes):
        here = f"<{', '.join(f'i32 {at + k}' for k in range(lanes))}>"
        mask = f.value(BOOL, f"icmp ule {places.type} {here}, {last.ref}", lanes)
        f.module.declare(kind, load, ("ptr", "i32", mask.type, kind))
        ref = read(f"call {kind} @{load}(ptr {place(at)}, i32 {dtype.bytes}, {mask.typed}, {kind} zeroinitializer)")
        loaded.append(turned("zext", turned("bitcast", ref, kind, bits), bits, wide))

    order = turned("zext" if size > 32 else "trunc", places.ref, places.type, wide)
    exchange = f"llvm.x86.avx512.vpermi2var.{_EXCHANGES[size // 8, lanes][0]}"
    f.module.declare(wide, exchange, (wide, wide, wide))
    out = ""
    for k in range(0, count, 2):
        pair = f"{wide} {loaded[k]}, {wide} {order}, {wide} {loaded[min(k + 1, count - 1)]}"
        ref = f.cached(f"call {wide} @{exchange}({pair})")
        far = f.cached(f"icmp uge {places.typed}, splat (i32 {k * lanes})") if k else ""
        out = f.cached(f"select {vector_type('i1', lanes)} {far}, {wide} {ref}, {wide} {out}") if k else ref
    return turned("bitcast", turned("trunc", out, wide, bits), bits, kind)
