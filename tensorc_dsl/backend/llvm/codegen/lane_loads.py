"""Loads of lanes that are not adjacent: at constant distances, near each other by a permutation, or from anywhere under a
mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import lcm

from tensorc_dsl.backend.llvm.codegen.function import (
    Function,
    Piece,
    Scalar,
    Value,
    constant_value,
    in_memory,
    mangled,
    vector_type,
)
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL, I32, INDEX, DType
from tensorc_dsl.ir.expr import (
    Binary,
    Expr,
    Load,
    Var,
    add,
    children,
    constant,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
    substitute,
)
from tensorc_dsl.proof.sets.linear_forms import Context, linear

# Lanes of a load that lie near each other at distances that are no numbers, such as those of a row that is resized.
#
# The subscript grows along the row by whole quotients, `(x * 1917 + 7) / 1437`. Its value in lane 0 is a scalar. The
# distances of the other lanes from it are small, so they are 32-bit numbers: of a floor division by `n`, `(r + d) / n`,
# where `r` is what lane 0 leaves of `n`, and `d` the distance in the dividend. The elements from lane 0 to the last lane
# are loaded as vectors, and an exchange of lanes puts them in order.


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


# Finds where the lanes of a load lie, if their distances are numbers: every second element of a row, a row backwards, or
# each element twice. Such lanes are picked from vectors that are loaded at once.


LONGEST_PERIOD = 64
"""The largest common multiple of divisors of a subscript for which its lanes are looked at one by one."""

MOST_VECTORS = 8
"""More vectors are not loaded for one; neither are more than half as many as there are lanes."""


@frozen
class Picked:
    """Vectors of `width` elements, a power of two, at distances `starts` from lane 0. Lane k is element `of[k][1]` of vector
    `of[k][0]`. LLVM takes a vector of 13 elements apart into three loads."""

    width: int
    starts: tuple[int, ...]
    of: tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def period(e: Expr, var: str) -> int:
    """A number after which the distances of neighbours along `var` repeat, if they do; 0 if it is too long."""
    n = lcm(*_divisors(e, var))
    return n if n <= LONGEST_PERIOD else 0


def _divisors(e: Expr, var: str) -> Iterator[int]:
    if isinstance(e, Binary) and e.op in ("/", "%") and var in free_vars(e):
        yield constant(e.rhs) or LONGEST_PERIOD + 1
    for c in children(e):
        yield from _divisors(c, var)


def moving(e: Expr, var: str) -> Expr:
    """The summands of a subscript that `var` is in: the others are the same for all lanes, so that the columns of a window
    in each row have one answer.
    """
    if not isinstance(e, Binary):
        return e
    if e.op == "*" and constant(e.rhs) is not None:
        return mul(moving(e.lhs, var), e.rhs)
    if e.op in ("+", "-") and var not in free_vars(e.rhs):
        return moving(e.lhs, var)
    if e.op == "+":
        right = moving(e.rhs, var)
        return right if var not in free_vars(e.lhs) else add(moving(e.lhs, var), right)
    return e


@lru_cache(maxsize=4096)
def picked(e: Expr, var: str, first: int, lanes: int) -> Picked | None:
    """The vectors for the lanes of a subscript, where `var` is a multiple of its period plus `first` in lane 0. None if
    distances are no numbers, or the lanes are too far from each other.
    """
    times = mul(Var(var), index(period(e, var)))
    context = Context({})
    begin = linear(substitute(e, {var: add(times, index(first))}), context)
    widest, most = 1 << (lanes - 1).bit_length(), min(MOST_VECTORS, lanes // 2)
    at = [0]
    for k in range(1, lanes):
        distance = linear(substitute(e, {var: add(times, index(first + k))}), context).minus(begin)
        if distance.terms or abs(distance.constant) >= most * widest:
            return None
        at.append(distance.constant)
    low, count = min(at), max(at) - min(at) + 1
    width = min(widest, 1 << (count.bit_length() - 1))
    vectors = -(-count // width)
    if vectors > most or (vectors > 2 and width < lanes):
        return None
    # The last vector ends at the last element that is needed: no load leaves the array.
    starts = (*range(0, (vectors - 1) * width, width), count - width)
    of = tuple((n, p - starts[n]) for p in (x - low for x in at) for n in (min(p // width, vectors - 1),))
    return Picked(width, tuple(s + low for s in starts), of)


def pick(
    f: Function,
    place: Callable[[int], str],
    read: Callable[[str], str],
    dtype: DType,
    lanes: Picked,
    mask: Value | None = None,
) -> str:
    """Write loads of whole vectors and the choice of the lanes. `place(n)` is the address n elements from lane 0, and
    `read` writes a load. With a mask, only elements of lanes for which it holds are loaded."""
    kind, count = in_memory(dtype), len(lanes.of)
    loaded = vector_type(kind, lanes.width)
    refs: list[str] = []
    for n, s in enumerate(lanes.starts):
        if mask is None:
            refs.append(read(f"load {loaded}, ptr {place(s)}, align {dtype.bytes}"))
            continue
        some = f"<{lanes.width} x i1> {_wanted(f, lanes, n, mask)}"
        name = f"llvm.masked.load.{mangled(dtype, lanes.width)}.p0"
        f.module.declare(loaded, name, ("ptr", "i32", f"<{lanes.width} x i1>", loaded))
        refs.append(read(f"call {loaded} @{name}(ptr {place(s)}, i32 {dtype.bytes}, {some}, {loaded} zeroinitializer)"))
    out, second = refs[0], refs[1] if len(refs) > 1 else "poison"
    first = [str(p) if n == 0 else str(lanes.width + p) if n == 1 else "poison" for n, p in lanes.of]
    # Until the last shuffle the lanes are in vectors as long as those that are loaded.
    beyond = ["poison"] * (lanes.width - count)
    out = f.cached(f"shufflevector {loaded} {out}, {loaded} {second}, {_mask([*first, *(beyond if refs[2:] else ())])}")
    for v, ref in enumerate(refs[2:], 2):
        among = [str(k) if n < v else str(lanes.width + p) if n == v else "poison" for k, (n, p) in enumerate(lanes.of)]
        more = beyond if ref is not refs[-1] else ()
        out = f.cached(f"shufflevector {loaded} {out}, {loaded} {ref}, {_mask([*among, *more])}")
    return out


def _wanted(f: Function, lanes: Picked, vector: int, mask: Value) -> str:
    """Which elements of one of the vectors are those of lanes for which a mask holds."""
    users: dict[int, list[int]] = {}
    for k, (n, p) in enumerate(lanes.of):
        if n == vector:
            users.setdefault(p, []).append(k)
    count, rounds = len(lanes.of), max(map(len, users.values()))
    none = f"<{count} x i1> zeroinitializer"
    out = ""
    for turn in range(rounds):
        own = [users[p][turn] if len(users.get(p, ())) > turn else count for p in range(lanes.width)]
        more = f.cached(f"shufflevector {mask.typed}, {none}, {_mask([str(k) for k in own])}")
        out = more if not out else f.cached(f"or <{lanes.width} x i1> {out}, {more}")
    return out


def _mask(places: list[str]) -> str:
    return f"<{len(places)} x i32> <{', '.join(f'i32 {p}' for p in places)}>"


# Loads lanes from anywhere, only those that a mask holds for.
#
# Processors gather elements of 32 and 64 bits. For others LLVM writes a branch around the load of each lane: the kernel of
# a pipeline of bytes had ten thousand blocks, over which LLVM's register allocator took seconds. So their lanes are loaded
# one by one without branches, and a lane that is masked off loads a zero of the function's own.


WORDS = (4, 8)
"""The sizes in bytes of elements that an instruction gathers."""


def can_mask(f: Function, t: DType) -> bool:
    """Whether processors load lanes of a type under a mask, adjacent ones or from anywhere."""
    return t.bytes in WORDS and "avx2" in f.module.features


def gathered(f: Function, pointers: str, t: DType, lanes: int, mask: Value | None, loaded: Callable[[str], str]) -> str:
    """The elements at a vector of pointers as they are in memory; 0 in lanes that are masked off, which access no memory of
    the caller. `loaded` writes an instruction that loads."""
    kind, places = vector_type(in_memory(t), lanes), f"<{lanes} x ptr>"
    if mask is not None and not can_mask(f, t):
        return _one_by_one(f, pointers, t, mask, loaded)
    mask = mask or constant_value(BOOL, True, lanes)
    name = f"llvm.masked.gather.{mangled(t, lanes)}.v{lanes}p0"
    f.module.declare(kind, name, (places, "i32", mask.type, kind))
    return loaded(f"call {kind} @{name}({places} {pointers}, i32 {t.bytes}, {mask.typed}, {kind} zeroinitializer)")


def _one_by_one(f: Function, pointers: str, t: DType, mask: Value, loaded: Callable[[str], str]) -> str:
    lanes, element = mask.lanes, in_memory(t)
    kind, places = vector_type(element, lanes), f"<{lanes} x ptr>"
    zero = f.cached(f"insertelement {places} poison, ptr {f.zero()}, i64 0")
    nowhere = f.cached(f"shufflevector {places} {zero}, {places} poison, <{lanes} x i32> zeroinitializer")
    safe = f.cached(f"select {mask.typed}, {places} {pointers}, {places} {nowhere}")
    ref = "poison"
    for k in range(lanes):
        place = f.cached(f"extractelement {places} {safe}, i64 {k}")
        ref = f.op(
            f"insertelement {kind} {ref}, {element} {loaded(f'load {element}, ptr {place}, align {t.bytes}')}, i64 {k}"
        )
    return ref
