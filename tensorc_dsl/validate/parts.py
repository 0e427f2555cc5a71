"""Products of a loop and an open size, `x * Q`, as loops of their own: an open size in a number of parts.

Integer sets have no such products. Where the loop has a known number of iterations, each of them makes a multiple of Q:

    for x in 2: S(x * Q)   ->   for x in 2, y in Q + 1: S(y), where x == 0 and y == 0 or x == 1 and y == Q

Each iteration of x has one iteration of y that satisfies the condition, so the same instances run in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from tensorc_dsl.affine.nonlinear import by_open_size
from tensorc_dsl.affine.simplify import bounds, simplify
from tensorc_dsl.ir.expr import (
    ONE,
    Compare,
    Expr,
    Logic,
    Var,
    add,
    children,
    constant,
    free_vars,
    index,
    mul,
    substitute,
    transform,
)
from tensorc_dsl.ir.program import Block, For, Iter, IterKind, Program, Stmt, Store, fresh, map_store, used_names, walk

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
