"""Finds where the lanes of a load lie, if their distances are numbers: every second element of a row, a row backwards, or
each element twice. Such lanes are picked from vectors that are loaded at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import lcm

from tensorc_dsl.affine.form import Context
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.values import Value, in_memory, mangled, vector_type
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import Binary, Expr, Var, add, children, constant, free_vars, index, mul, substitute

LONGEST_PERIOD = 64
"""The largest common multiple of divisors of a subscript for which its lanes are looked at one by one."""

MOST_VECTORS = 8
"""More vectors are not loaded for one; neither are more than half as many as there are lanes."""


@dataclass(frozen=True, slots=True)
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
