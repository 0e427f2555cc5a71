"""Products with open sizes: `x * Q` as loops of their own, and products of indices in subscripts as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import is_

from tensorc_dsl.ir.dtypes import I64, INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Cast,
    Compare,
    Dim,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    add,
    children,
    constant,
    dtype_of,
    free_vars,
    index,
    mul,
    rebuild,
    sub,
    substitute,
    transform,
)
from tensorc_dsl.ir.program import Block, For, Iter, IterKind, Program, Stmt, Store, fresh, map_store, used_names, walk
from tensorc_dsl.proof.sets.linear_forms import by_open_size, negate
from tensorc_dsl.proof.sets.safety import check_access, ranges_of
from tensorc_dsl.proof.sets.simplify import bounds, simplify

# Products of a loop and an open size, `x * Q`, as loops of their own: an open size in a number of parts.
#
# Integer sets have no such products. Where the loop has a known number of iterations, each of them makes a multiple of Q:
#
#     for x in 2: S(x * Q)   ->   for x in 2, y in Q + 1: S(y), where x == 0 and y == 0 or x == 1 and y == Q
#
# Each iteration of x has one iteration of y that satisfies the condition, so the same instances run in the same order.


MOST = 16
"""The iterations of a loop up to which its multiples are written out: each is a piece of the sets."""


def parts_as_loops(program: Program) -> Program:
    """The program, in which no loop of up to `MOST` iterations is multiplied by an open size."""
    if not program.dims:
        return program
    used = used_names(program)

    def go(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return s
        body = tuple(map(go, s.body))
        for product in dict.fromkeys(_products(body, s.var)):
            made = _part(s, body, product, f"{s.var}_part", used)
            body = body if made is None else (made,)
        return replace(s, body=body)

    return replace(program, body=tuple(map(go, program.body)))


def _products(body: tuple[Stmt, ...], var: str) -> Iterator[Expr]:
    """The products of an expression of the loop alone and an open size, over loops; those of an iterator that stands for the
    loop are products of it.
    """
    for _, s in walk(body):
        if isinstance(s, For):
            yield from _products_in(s.extent, var)
            continue
        for e in (*(it.binding for it in s.iters), *s.where):
            yield from _products_in(e, var)
        for name in _standing_for(s, var):
            for x in (*s.init, *s.body):
                for e in (*x.indices, x.value):
                    for product in _products_in(e, name):
                        yield substitute(product, {name: Var(var)})


def _standing_for(b: Block, var: str) -> list[str]:
    """The iterators whose values are those of a loop."""
    return [it.name for it in b.iters if it.binding == Var(var)]


def _products_in(e: Expr, var: str) -> Iterator[Expr]:
    if (found := by_open_size(e)) is not None and free_vars(found[0]) == frozenset({var}):
        yield e
    for c in children(e) if var in free_vars(e) else ():
        yield from _products_in(c, var)


def _multiples(x: Expr, loop: For) -> tuple[int, ...] | None:
    """The value of an expression in each iteration of the loop; None if they are not known, or may be negative."""
    n = constant(loop.extent)
    if n is None or not 1 <= n <= MOST:
        return None
    found = [constant(simplify(substitute(x, {loop.var: index(k)}), {})) for k in range(n)]
    known = tuple(v for v in found if v is not None and v >= 0)
    return known if len(known) == n else None


def _part(loop: For, body: tuple[Stmt, ...], product: Expr, base: str, used: set[str]) -> For | None:
    """A loop over the values of the product, of which one iteration runs in each of `loop`; None if they are not known."""
    found = by_open_size(product)
    multiples = None if found is None else _multiples(found[0], loop)
    if found is None or multiples is None:
        return None
    size, name = found[1], fresh(base, used)
    low = bounds(size, {})[0]
    if low is None or low < 0:
        return None
    y = Var(name)
    cases = [
        Logic("and", Compare("==", Var(loop.var), index(k)), Compare("==", y, mul(index(v), size)))
        for k, v in enumerate(multiples)
    ]
    only = reduce(lambda a, b: Logic("or", a, b), cases)
    extent = add(mul(index(max(multiples)), size), ONE)

    def within(s: Stmt) -> Stmt:
        if isinstance(s, For):
            return replace(s, extent=_replaced(s.extent, product, y), body=tuple(map(within, s.body)))
        iters = tuple(replace(it, binding=_replaced(it.binding, product, y)) for it in s.iters)
        s = replace(s, iters=iters, where=(*(_replaced(c, product, y) for c in s.where), only))
        for n, standing in enumerate(_standing_for(s, loop.var)):
            own = substitute(product, {loop.var: Var(standing)})
            s = _with_iter(s, own, Iter(f"{name}{n}", IterKind.SPATIAL, extent, y))
        return s

    return For(name, extent, tuple(map(within, body)))


def _with_iter(b: Block, product: Expr, it: Iter) -> Block:
    """The block with an iterator in place of a product in its stores."""

    def stores(of: tuple[Store, ...]) -> tuple[Store, ...]:
        return tuple(map_store(x, lambda e: _replaced(e, product, Var(it.name))) for x in of)

    init, body = stores(b.init), stores(b.body)
    return b if (init, body) == (b.init, b.body) else replace(b, iters=(*b.iters, it), init=init, body=body)


def _replaced(e: Expr, product: Expr, by: Expr) -> Expr:
    return transform(e, lambda x: by if x == product else x)


# Products of indices in subscripts as data: `A[min(i * j, 9)]` reads the element that a number decides.
#
# Integer sets say nothing of a product of two variables. What it is follows from its operands, as for a number that is
# read: the proof compares the operands, and the elements for every value of the product. Arithmetic on indices does not
# leave 64 bits, so the product is one of `i64`.


def products_as_data(b: Block, shapes: Mapping[str, tuple[Expr, ...]], dims: tuple[Dim, ...]) -> Block:
    """The block, where products, quotients and remainders of two variables in the subscripts of loads are data.

    A subscript that stays inside of its array by the ranges of iterators and the conditions around it is one that is limited
    to it, for all sizes of the open dimensions `dims`. That tells the sets what the product would, and it is the same on
    both sides of a proof, however loops are cut.
    """
    extents = {it.name: it.extent for it in b.iters}
    ranges = ranges_of(extents)

    def datum(x: Expr) -> Expr:
        if not isinstance(x, Binary) or x.op not in "*/%" or dtype_of(x) != INDEX:
            return x
        if constant(x.rhs) is not None or (x.op == "*" and constant(x.lhs) is not None):
            return x
        made = Cast(Binary(x.op, Cast(x.lhs, I64), Cast(x.rhs, I64)), INDEX)
        positive = x.op == "%" and (bounds(x.rhs, ranges)[0] or 0) > 0
        return limited(made, x.rhs) if positive else made

    def arithmetic(i: Expr) -> Expr:
        """Without what is computed of values that are read: a stage may hold it as well, and there it is no subscript."""
        if isinstance(i, Cast) or not (old := children(i)):
            return i
        new = tuple(map(arithmetic, old))
        return datum(i if all(map(is_, old, new)) else rebuild(i, new))

    def inside(i: Expr, extent: Expr) -> bool:
        low, high = bounds(i, ranges)
        return low is not None and high is not None and low >= 0 and high < (constant(extent) or 0)

    def stays(i: Expr, extent: Expr, given: tuple[Expr, ...]) -> bool:
        return inside(i, extent) or check_access(extents, given, (i,), (extent,), dims) is None

    def subscript(i: Expr, extent: Expr, given: tuple[Expr, ...]) -> Expr:
        if (made := arithmetic(i)) == i:
            return i
        return limited(made, extent) if not inside(made, extent) and stays(i, extent, given) else made

    def value(e: Expr, given: tuple[Expr, ...]) -> Expr:
        if not (old := children(e)):
            return e
        around = (given,) * len(old)
        if isinstance(e, Select):
            around = (given, (*given, e.cond), (*given, negate(e.cond)))
        new = tuple(map(value, old, around))
        e = e if all(map(is_, old, new)) else rebuild(e, new)
        if not isinstance(e, Load):
            return e
        return replace(
            e, indices=tuple(subscript(i, n, given) for i, n in zip(e.indices, shapes[e.buffer], strict=True))
        )

    init, body = (tuple(replace(s, value=value(s.value, b.where)) for s in stores) for stores in (b.init, b.body))
    return b if (init, body) == (b.init, b.body) else replace(b, init=init, body=body)


def limited(e: Expr, extent: Expr) -> Expr:
    """The nearest number from 0 to below the extent."""
    return Binary("min", Binary("max", e, ZERO), sub(extent, ONE))
