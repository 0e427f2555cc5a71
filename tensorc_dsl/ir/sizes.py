"""Sizes and strides: open dimensions bound to sizes, and where the element of each subscript of an array is in memory, and
whether two elements can share a place.

A stride is the distance of neighbours along a dimension, in elements. An array that declares none is dense and row-major.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from heapq import heappop, heappush
from itertools import count, permutations
from math import log2

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    COMPARISONS,
    ONE,
    ZERO,
    Binary,
    Compare,
    Const,
    Dim,
    Expr,
    Logic,
    Not,
    add,
    constant,
    dims_in,
    dtype_of,
    fold,
    free_vars,
    index,
    mul,
    rewrite_expr,
    sub,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, Buffer, For, Program, Stmt, Store, map_store

MOST_STRIDES = 4
"""The largest number of strides of an output that are no numbers: its dimensions are tried in each order of these."""


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense row-major array."""
    out: list[int] = []
    inner = 1
    for n in reversed(shape):
        out.append(inner)
        inner *= n
    return tuple(reversed(out))


def elements_spanned(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first to the last, both included, with what is between; 0 for an array of none."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def spanned_expr(shape: Sequence[Expr], strides: Sequence[Expr]) -> Expr:
    """`elements_spanned` as an expression over open dimensions; without declared strides those of a dense array count."""
    if not strides:
        return reduce(mul, shape, ONE)
    last = reduce(add, (mul(sub(n, ONE), s) for n, s in zip(shape, strides, strict=True)), ZERO)
    span = add(last, ONE)
    for n in shape:
        least = constant(n)
        if least == 0:
            return ZERO
        if least is None and any(d.low < 1 for d in dims_in(n)):
            span = mul(span, Binary("min", n, ONE))  # of no elements nothing is spanned
    return span


def always_apart(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether no two elements share a place: along each dimension a step leaves behind all that the closer ones span."""
    if 0 in shape:
        return True
    span = 1
    for s, n in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if s < span:
            return False
        span += (n - 1) * s
    return True


def apart(b: Buffer) -> Expr | None:
    """The condition on open dimensions under which `always_apart` holds; None if it always does, as for a dense array.

    Raises ValueError if it holds for no sizes, or more than `MOST_STRIDES` strides are no numbers.
    """
    if not b.strides:
        return None
    pairs = list(zip(b.strides, b.shape, strict=True))
    numbers = sorted(
        (p for p in pairs if constant(p[0]) is not None and constant(p[1]) != 1), key=lambda p: constant(p[0]) or 0
    )
    others = [p for p in pairs if constant(p[0]) is None and constant(p[1]) != 1]
    if len(others) > MOST_STRIDES:
        raise ValueError(f"{len(others)} strides of {b.name} are no numbers, and at most {MOST_STRIDES} are compared")
    choices = list[Expr]()
    for order in _merged(numbers, others):
        conditions = _nested(order)
        if conditions is None:
            continue
        if not conditions:
            return None
        choices.append(reduce(lambda x, y: Logic("and", x, y), conditions))
    if not choices:
        raise ValueError(f"elements of {b.name} share a place for all sizes")
    return reduce(lambda x, y: Logic("or", x, y), choices)


_Pair = tuple[Expr, Expr]


def _merged(numbers: list[_Pair], others: list[_Pair]) -> Iterator[list[_Pair]]:
    """All orders of the dimensions, the closest first, in which the numbers ascend; a usual one first."""
    for some in permutations(reversed(others)):
        for places in _places(len(numbers), len(some)):
            mine, rest = iter(numbers), iter(some)
            yield [next(mine) if number else next(rest) for number in places]


def _places(numbers: int, others: int) -> Iterator[tuple[bool, ...]]:
    if not numbers or not others:
        yield (True,) * numbers + (False,) * others
        return
    for rest in _places(numbers - 1, others):
        yield (True, *rest)
    for rest in _places(numbers, others - 1):
        yield (False, *rest)


def _nested(order: Sequence[_Pair]) -> list[Expr] | None:
    """What has to hold of each stride so that it leaves the closer dimensions behind; None if a number does not."""
    span: Expr = ONE
    out: list[Expr] = []
    for stride, extent in order:
        s, least = constant(stride), constant(span)
        if s is not None and least is not None:
            n = constant(extent)
            if s < least and n is not None and n > 1:
                return None
            if s < least:
                out.append(Compare("<=", extent, ONE))
        else:
            fits: Expr = Compare("<=", span, stride)
            n = constant(extent)
            out.append(fits if n is not None and n > 1 else Logic("or", Compare("<=", extent, ONE), fits))
        span = add(span, mul(sub(extent, ONE), stride))
    return out


def holds(e: Expr, sizes: Sizes) -> bool:
    """The value of a condition on open dimensions."""
    match e:
        case Logic(op=op, lhs=a, rhs=b):
            return (holds(a, sizes) and holds(b, sizes)) if op == "and" else (holds(a, sizes) or holds(b, sizes))
        case Not(operand=a):
            return not holds(a, sizes)
        case Compare(op=op, lhs=a, rhs=b):
            return COMPARISONS[op](evaluate_size(a, sizes), evaluate_size(b, sizes))
        case _:
            raise ValueError(f"{e} is no condition on sizes")


def fitting(program: Program, sizes: Mapping[str, int]) -> Sizes | None:
    """The sizes with strides of outputs that keep elements apart: those that do not are made as large as a dense array's.

    None if the range of a stride ends before that.
    """
    if not any(b.strides for b in program.params):
        return sizes
    own = {d for b in program.params for e in b.shape for d in dims_in(e)}
    out = dict(sizes)
    for b in program.outputs:
        condition = apart(b)
        if condition is None or holds(condition, out):
            continue
        span = 1
        pairs = list(reversed([*zip(b.strides, b.shape, strict=True)]))
        pairs.sort(key=lambda p: (constant(p[0]) is None, constant(p[0]) or 0))
        for stride, extent in pairs:
            if isinstance(stride, Dim) and stride not in own:
                out[stride.name] = max(out[stride.name], span)
                if stride.high is not None and out[stride.name] > stride.high:
                    return None
            span += (evaluate_size(extent, out) - 1) * evaluate_size(stride, out)
        if not holds(condition, out):
            return None
    return out


def is_dense(shape: Sequence[Expr], strides: Sequence[Expr]) -> bool:
    """Whether the strides are those of a dense row-major array, whatever the sizes are."""
    inner: Expr = ONE
    for n, s in reversed([*zip(shape, strides, strict=True)]):
        if s != inner and constant(n) != 1:
            return False
        inner = mul(inner, n)
    return True


def strides_of(b: Buffer) -> tuple[int, ...]:
    """The strides of an array of a program without open dimensions."""
    return number_strides([evaluate_size(e, {}) for e in b.shape], b.strides, {})


def number_strides(shape: Sequence[int], strides: Sequence[Expr], sizes: Sizes) -> tuple[int, ...]:
    """The strides of an array of a shape as numbers; without declared ones those of a dense array."""
    return tuple(evaluate_size(e, sizes) for e in strides) if strides else dense_strides(shape)


# Binds open dimensions to sizes: checks the sizes and makes the program for them.


Sizes = Mapping[str, int]
"""A size for each open dimension, by name."""


class SizeError(ValueError):
    """A size is missing, out of its range, or belongs to no open dimension of the program."""


def check_sizes(dims: tuple[Dim, ...], sizes: Sizes) -> None:
    """Raise SizeError unless there is one size for each dimension, within its range, and no other."""
    if unknown := sizes.keys() - {d.name for d in dims}:
        raise SizeError(f"there is no open dimension {min(unknown)!r}")
    for d in dims:
        if d.name not in sizes:
            raise SizeError(f"the open dimension {d.name!r} has no size")
        if sizes[d.name] < d.low or (d.high is not None and sizes[d.name] > d.high):
            most = "up" if d.high is None else d.high
            raise SizeError(f"{d.name} is {sizes[d.name]}; it can be from {d.low} to {most}")
    if (broken := broken_by(dims, sizes)) is not None:
        raise SizeError(f"`{format_expr(broken)}` does not hold for {dict(sizes)}")


def evaluate_size(e: Expr, sizes: Sizes) -> int:
    """The value of an extent over open dimensions. Raises SizeError if it divides by 0 or contains any other name."""
    value = _value(e, sizes)
    if value is None:
        raise SizeError(f"`{format_expr(e)}` is no number for {dict(sizes)}")
    return value


def _value(e: Expr, sizes: Sizes) -> int | None:
    match e:
        case Const():
            return constant(e)
        case Dim(name=name):
            return sizes.get(name)
        case Binary(op=op, lhs=a, rhs=b):
            x, y = _value(a, sizes), _value(b, sizes)
            return None if x is None or y is None else fold(op, x, y)
        case _:
            return None


# Conditions on several open dimensions: which sizes within their ranges occur.


def limited(dims: Iterable[Dim], conditions: tuple[Expr, ...]) -> tuple[Dim, ...]:
    """The dimensions with these conditions and no others, each of which they say something with all of them."""
    dims = tuple(dims)
    names = frozenset[str]().union(*map(free_vars, conditions))
    ranges: dict[str, Expr] = {d.name: Dim(d.name, d.low, d.high) for d in dims}
    within = tuple(
        dict.fromkeys(rewrite_expr(c, lambda e: ranges[e.name] if isinstance(e, Dim) else e) for c in conditions)
    )
    return tuple(replace(d, where=within if d.name in names else ()) for d in dims)


def conditions_of(dims: Iterable[Dim]) -> tuple[Expr, ...]:
    """What sizes of these dimensions meet beside their ranges."""
    return tuple(dict.fromkeys(c for d in dims for c in d.where))


def conditions_on(dims: Collection[Dim]) -> tuple[Expr, ...]:
    """Those of the conditions that are on these dimensions alone."""
    names = {d.name for d in dims}
    return tuple(c for c in conditions_of(dims) if free_vars(c) <= names)


def broken_by(dims: Iterable[Dim], sizes: Sizes) -> Expr | None:
    """The first condition of the dimensions that these sizes do not meet; those on a size that is not given are left out."""
    return next((c for c in conditions_of(dims) if free_vars(c) <= sizes.keys() and not holds(c, sizes)), None)


# Parts of the sizes, of which intervals decide whether they occur.


MOST_PARTS = 4096
"""Into how many parts a box may be cut to see whether sizes in it occur. One that takes more has to have a case."""

BEYOND = 2**40
"""A size that stands for the largest one where there is none."""


Part = Mapping[str, tuple[int, int]]
"""The least and the largest size of each dimension, both included."""


def decided(c: Expr, part: Part) -> bool | None:
    """Whether a condition holds for all sizes of a part, or for none; None if intervals do not decide it."""
    match c:
        case Logic(op=op, lhs=a, rhs=b):
            x, y = decided(a, part), decided(b, part)
            some = op == "or"
            return some if some in (x, y) else None if None in (x, y) else not some
        case Not(operand=a):
            x = decided(a, part)
            return None if x is None else not x
        case Compare(op=op, lhs=a, rhs=b):
            (x, y), (z, w) = _interval(a, part), _interval(b, part)
            if op in ("==", "!="):
                met = False if y < z or w < x else True if x == y == z == w else None
                return met if met is None or op == "==" else not met
            corners = {COMPARISONS[op](m, n) for m in (x, y) for n in (z, w)}
            return corners.pop() if len(corners) == 1 else None
        case _:
            return None


def _interval(e: Expr, part: Part) -> tuple[int, int]:
    """The least and the largest value of a size, or numbers beyond these."""
    match e:
        case Dim(name=name):
            return part[name]
        case Binary(op="%", lhs=a, rhs=b) if (c := constant(b)) is not None and c > 0:
            low, high = _interval(a, part)
            return (low % c, high % c) if low // c == high // c else (0, c - 1)
        case Binary(op="+" | "-" | "*" | "/" | "min" | "max" as op, lhs=a, rhs=b):
            found = [fold(op, m, n) for m in _interval(a, part) for n in _interval(b, part)]
            known = [n for n in found if n is not None]
            return (min(known), max(known)) if len(known) == len(found) else (-BEYOND, BEYOND)
        case _:
            n = constant(e)
            return (-BEYOND, BEYOND) if n is None else (n, n)


def halved(part: Part, conditions: Iterable[Expr]) -> tuple[Part, Part] | None:
    """The two halves of a part, along the widest of the dimensions in some conditions; None if each has one size."""
    names = frozenset[str]().union(*map(free_vars, conditions))
    _, wide = max((part[n][1] - part[n][0], n) for n in names)
    low, high = part[wide]
    middle = (low + high) // 2
    return None if low == high else ({**part, wide: (low, middle)}, {**part, wide: (middle + 1, high)})


def nearest(dims: Collection[Dim], sizes: Sizes) -> Sizes | None:
    """The sizes, or near ones that occur: with as few changed as that takes, rather of dimensions that do not say at which
    sizes they are timed. None if none are found: parts of all sizes are halved, the nearest first."""
    if broken_by(dims, sizes) is None:
        return sizes
    free = {d.name: d for d in dims if d.where}
    conditions = conditions_of(free.values())

    def waits(part: Part) -> tuple[int, int, float, int, Part]:
        there = _into(part, sizes)
        changed = [n for n in there if there[n] != sizes[n]]
        timed = sum(bool(free[n].at) for n in changed)
        return len(changed), timed, distance(there, sizes), next(number), part

    number = count()
    waiting = [waits({n: (d.low, BEYOND if d.high is None else d.high) for n, d in free.items()})]
    for _ in range(MOST_PARTS):
        if not waiting:
            return None
        *_, part = heappop(waiting)
        told = {c: decided(c, part) for c in conditions}
        if False in told.values():
            continue
        undecided = [c for c, met in told.items() if met is None]
        parts = halved(part, undecided) if undecided else None
        if parts is None and broken_by(dims, found := {**sizes, **_into(part, sizes)}) is None:
            return found
        for half in parts or ():
            heappush(waiting, waits(half))
    return None


def _into(part: Part, sizes: Sizes) -> Sizes:
    """The nearest sizes in a part."""
    return {n: min(max(sizes[n], low), high) for n, (low, high) in part.items()}


def distance(a: Sizes, b: Sizes) -> float:
    """How far sizes are from others, by their ratios."""
    return sum(abs(log2(max(a[n], 0.5) / max(b[n], 0.5))) for n in a)


def bind(program: Program, sizes: Sizes) -> Program:
    """The program with every open dimension replaced by its size, so that every extent and shape is a number.

    Raises SizeError if the sizes do not fit.
    """
    check_sizes(program.dims, sizes)
    if program.cases:
        within = program_for(program, sizes)
        return bind(within, {d.name: sizes[d.name] for d in within.dims})
    return with_sizes(program, _numbers(sizes))


def _numbers(sizes: Sizes) -> dict[str, Expr]:
    return {name: index(n) for name, n in sizes.items()}


def program_for(program: Program, sizes: Sizes) -> Program:
    """The program that a call with these sizes runs: if it is divided, that of the first case that has them."""
    while program.cases:
        names = program.divided_by
        program = next(
            c.program
            for c in program.cases
            if all(
                low <= sizes[n] <= (sizes[n] if high is None else high)
                for n, (low, high) in zip(names, c.sizes, strict=True)
            )
        )
    return program


def with_sizes(program: Program, sizes: Mapping[str, Expr], dims: tuple[Dim, ...] | None = None) -> Program:
    """The program with a number, a dimension of another range, or an expression for each of some open dimensions.

    `dims` are its open dimensions then, by default those that stay and those that are given.
    """
    if not sizes:
        return program
    if conditions := conditions_of(program.dims):
        left = tuple(c for c in map(_Binder(sizes).expr, conditions) if dims_in(c))
        stay = {d.name: e for d in program.dims if isinstance(e := sizes.get(d.name, d), Dim)}
        sizes = {**sizes, **dict(zip(stay, limited(stay.values(), left), strict=True))}
    return _replaced(program, sizes, dims)


def without_conditions(program: Program) -> Program:
    """The program for all sizes within their ranges, whether or not they occur together."""
    if not conditions_of(program.dims):
        return program
    made = _replaced(program, {d.name: replace(d, where=()) for d in program.dims}, None)
    return replace(made, cases=tuple(replace(c, program=without_conditions(c.program)) for c in made.cases))


def _replaced(program: Program, sizes: Mapping[str, Expr], dims: tuple[Dim, ...] | None) -> Program:
    b = _Binder(sizes)
    new = (sizes.get(d.name, d) for d in program.dims)
    return replace(
        program,
        params=tuple(map(b.buffer, program.params)),
        buffers=tuple(map(b.buffer, program.buffers)),
        body=tuple(map(b.stmt, program.body)),
        dims=tuple(d for d in new if isinstance(d, Dim)) if dims is None else dims,
    )


class _Binder:
    """Replaces open dimensions by expressions, and folds those that become constant."""

    def __init__(self, sizes: Mapping[str, Expr]) -> None:
        self.sizes = sizes

    def expr(self, e: Expr) -> Expr:
        return rewrite_expr(e, self._node)

    def _node(self, e: Expr) -> Expr:
        if isinstance(e, Dim) and e.name in self.sizes:
            return self.sizes[e.name]
        if isinstance(e, Binary):
            x, y = _number(e.lhs), _number(e.rhs)
            folded = None if x is None or y is None else fold(e.op, x, y)
            return e if folded is None else index(folded)
        return e

    def buffer(self, b: Buffer) -> Buffer:
        view = None if b.view is None else replace(b.view, places=tuple(map(self.expr, b.view.places)))
        return replace(b, shape=tuple(map(self.expr, b.shape)), strides=tuple(map(self.expr, b.strides)), view=view)

    def store(self, s: Store) -> Store:
        return map_store(s, self.expr)

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, For):
            return replace(s, extent=self.expr(s.extent), body=tuple(map(self.stmt, s.body)))
        return self.block(s)

    def block(self, b: Block) -> Block:
        return replace(
            b,
            iters=tuple(replace(it, extent=self.expr(it.extent), binding=self.expr(it.binding)) for it in b.iters),
            where=tuple(map(self.expr, b.where)),
            init=tuple(map(self.store, b.init)),
            body=tuple(map(self.store, b.body)),
        )


def _number(e: Expr) -> int | None:
    """The value of a constant index; None for other expressions, since only index arithmetic may be folded."""
    return constant(e) if dtype_of(e) == INDEX else None
