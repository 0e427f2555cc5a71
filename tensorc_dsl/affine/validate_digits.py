"""Loops as nests of their digits: `i / 8` and `i % 8` of one loop are two variables.

A loop that is taken apart by divisions, as a fused one is, becomes a nest of loops over the digits. The nest runs the same
iterations in the same order, so nothing else changes, but what was a division is a variable: integer sets answer a hundred
times sooner. A loop of one iteration has no digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Var,
    add,
    ceildiv,
    children,
    constant,
    index,
    mul,
    rebuild,
)
from tensorc_dsl.ir.program import For, LoopKind, Program, walk


@dataclass(frozen=True, slots=True)
class Digit:
    """`(loop / unit) % size`; of the highest digit nothing is taken off."""

    name: str
    loop: str
    kind: LoopKind
    unit: int
    extent: Expr


@dataclass(frozen=True, slots=True)
class Digits:
    """The digits of a loop, highest first, and what must hold besides their extents for the loop to be within its own."""

    digits: tuple[Digit, ...]
    within: tuple[Expr, ...]


def digits_of(program: Program) -> dict[str, Digits]:
    """The digits of every loop."""
    cuts: dict[str, set[int]] = {}
    loops: dict[str, For] = {}
    for _, s in walk(program.body):
        if isinstance(s, For):
            loops[s.var] = s
        else:
            for e in (*(it.binding for it in s.iters), *s.where):
                for var, unit, upto in _parts(e):
                    cuts.setdefault(var, set()).update((unit, *(() if upto is None else (upto,))))
    return {v: _digits(loop, cuts.get(v, {1})) for v, loop in loops.items()}


def _digits(loop: For, cuts: set[int]) -> Digits:
    n = constant(loop.extent)
    units = sorted(u for u in cuts | {1} if n is None or u < n)
    if n == 1:
        return Digits((), ())
    if not units or loop.kind is LoopKind.PIPELINED or any(b % a for a, b in pairwise(units)):
        units = [1]
    if len(units) == 1:
        return Digits((Digit(loop.var, loop.var, loop.kind, 1, loop.extent),), ())
    extents = [index(b // a) for a, b in pairwise(units)] + [ceildiv(loop.extent, index(units[-1]))]
    digits = tuple(Digit(f"{loop.var}_{u}'", loop.var, loop.kind, u, e) for u, e in zip(units, extents, strict=True))[
        ::-1
    ]
    exact = n is not None and n % units[-1] == 0
    return Digits(digits, () if exact else (Compare("<", _value(digits, 1, None), loop.extent),))


def in_digits(e: Expr, known: Mapping[str, Digits]) -> Expr:
    """The expression over digits in place of loops."""
    part = _part(e)
    if part is not None and part[0] in known:
        var, unit, upto = part
        digits = known[var].digits
        ends = {d.unit for d in digits}
        # A cut above the whole loop takes nothing off, or leaves nothing.
        if all(u is None or u in ends or _above(u, digits) for u in (unit, upto)):
            return _value(digits, unit, upto)
    old = children(e)
    return rebuild(e, tuple(in_digits(c, known) for c in old)) if old else e


def _above(cut: int, digits: tuple[Digit, ...]) -> bool:
    """Whether the loop is always below that."""
    if not digits:
        return True
    n = constant(digits[0].extent)
    return n is not None and digits[0].unit * n <= cut


def _value(digits: tuple[Digit, ...], unit: int, upto: int | None) -> Expr:
    total: Expr = ZERO
    for d in digits:
        if d.unit >= unit and (upto is None or d.unit < upto):
            total = add(total, mul(Var(d.name), index(d.unit // unit)))
    return total


Part = tuple[str, int, int | None]
"""`(var / unit) % (upto / unit)`, as (var, unit, upto)."""


def _part(e: Expr) -> Part | None:
    match e:
        case Var(name=name):
            return name, 1, None
        case Binary(op="/", lhs=a, rhs=Const(value=int(c))) if c > 0:
            inner = _part(a)
            if inner is None or (inner[2] is not None and inner[2] % (inner[1] * c)):
                return None
            return inner[0], inner[1] * c, inner[2]
        case Binary(op="%", lhs=a, rhs=Const(value=int(c))) if c > 0:
            inner = _part(a)
            if inner is None or (inner[2] is not None and inner[2] % (inner[1] * c)):
                return None
            return inner[0], inner[1], inner[1] * c
        case _:
            return None


def _parts(e: Expr) -> Iterator[Part]:
    part = _part(e)
    if part is not None:
        yield part
        return
    for c in children(e):
        yield from _parts(c)


__all__ = ["Digit", "Digits", "digits_of", "in_digits"]
