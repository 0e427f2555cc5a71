"""Cuts loops over rows of open length at the borders of images, so that what is between them has whole vectors.

A row that is cut into vectors reads `X[min(max(x * 16 + j - 1, 0), W - 1)]`, so each vector is gathered. With `j` in 0 .. 16
the choices are decided from the first iteration of `x` on in which `x * 16 - 1 >= 0`, up to the one in which `x * 16 + 15`
passes `W`. Between the two the elements are adjacent. In an image smaller than a vector there is nothing between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    BinaryOp,
    Compare,
    Const,
    Expr,
    Select,
    Var,
    add,
    conjunction,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    index,
    mul,
    transform,
)
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store, map_store
from tensorc_dsl.lower.borders import LINE
from tensorc_dsl.lower.flat import Flat, If, Loop, Parallel, inside, substituted
from tensorc_dsl.lower.open_partition import between, cut_at, possible
from tensorc_dsl.lower.open_rows import is_row, kept, lanes_of, undecided
from tensorc_dsl.lower.ranges import hull, within
from tensorc_dsl.proof.sets.linear_forms import FALSE, TRUE, Context, Interval, Linear, Ranges, linear, negate
from tensorc_dsl.proof.sets.simplify import conjuncts, follows, simplify

ROUNDS = 2
"""How often the part between borders is cut again: a mirror is a remainder, and a minimum of it."""


@dataclass(frozen=True, slots=True)
class Inside:
    """The iterations of a loop from `low` on and before `high`, if there are borders, and the conditions that hold from the
    one on and before the other."""

    low: Expr | None
    high: Expr | None
    after: tuple[Expr, ...]
    before: tuple[Expr, ...]

    @property
    def facts(self) -> tuple[Expr, ...]:
        """What holds between the borders."""
        return (*self.after, *self.before)


def cut_open_rows(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The same stores in the same order, with loops of open length cut at the borders of the vectors in them."""
    return _cut(body, {}, kept(body))


def _cut(body: tuple[Flat, ...], known: Ranges, registers: frozenset[str]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(s)
            case Loop(kind=LoopKind.VECTORIZED):
                out.extend(_in_lines(s, known, registers))
            case Loop():
                out.extend(_loop(s, known, registers, ROUNDS))
            case Parallel():
                out.append(replace(s, body=_branches(s, within(known, s), registers)))
            case _:
                out.append(replace(s, body=_cut(s.body, known, registers)))
    return tuple(out)


def _loop(s: Loop, ranges: Ranges, registers: frozenset[str], rounds: int) -> tuple[Flat, ...]:
    here = within(ranges, s)
    is_open = constant(s.begin) is None or constant(s.end) is None
    may = rounds > 0 and s.kind is LoopKind.SERIAL
    found = _inside(s.body, s.var, here, registers, is_open=is_open) if may else None
    if found is None:
        return (replace(s, body=_cut(s.body, here, registers)),)
    if any(isinstance(x, Loop) and x.kind is LoopKind.SERIAL for x in inside(s.body)):
        return (replace(s, body=_branch(s.var, found, s.body, here, registers)),)
    out: list[Flat] = []
    for begin, end, facts in _pieces(found, s, lambda e, low, high: between(e, low, high, here)):
        if possible(Compare("<", begin, end), here):
            piece = replace(s, begin=begin, end=end, body=_decided(s.body, facts))
            more = rounds - 1 if facts == found.facts else 0
            out += _loop(piece, ranges, registers, more)
    return tuple(out)


def _pieces(
    found: Inside, s: Loop, limited: Callable[[Expr, Expr, Expr], Expr]
) -> Iterator[tuple[Expr, Expr, tuple[Expr, ...]]]:
    """The parts of a loop in order, any of which may be empty, each with what holds in it: at the first border of an image
    that is longer, of one that is not, between the borders, and at the last one. `limited` puts an end between two others."""
    near = s.begin if found.low is None else limited(found.low, s.begin, s.end)
    if found.low is not None:
        middle, some = near, found.before
        if found.high is not None:
            middle = limited(found.high, s.begin, near)
            some = (*some, Compare("<", s.begin, found.high))  # where there is an iteration
        yield s.begin, middle, some
        if middle != near:
            yield middle, near, ()
    far = s.end if found.high is None else limited(found.high, near, s.end)
    yield near, far, found.facts
    if found.high is not None:
        yield far, s.end, found.after


def _branches(s: Parallel, inside: Ranges, registers: frozenset[str]) -> tuple[Flat, ...]:
    """The body of a parallel loop, which stays one loop."""
    for var, extent in zip(s.vars, s.extents, strict=True):
        found = _inside(s.body, var, inside, registers, is_open=constant(extent) is None)
        if found is not None:
            return _branch(var, found, s.body, inside, registers)
    return _cut(s.body, inside, registers)


def _branch(
    var: str, found: Inside, body: tuple[Flat, ...], ranges: Ranges, registers: frozenset[str]
) -> tuple[Flat, ...]:
    """The body of a loop over tiles: what is between the borders is a branch, so that both borders have one copy."""
    conds = [Compare(">=", Var(var), found.low)] if found.low is not None else []
    conds += [Compare("<", Var(var), found.high)] if found.high is not None else []
    between_borders = conjunction(tuple(conds))
    assert between_borders is not None  # there is a border
    decided = _cut(_decided(body, found.facts), ranges, registers)
    return (If(between_borders, decided), If(negate(between_borders), _cut(body, ranges, registers)))


def _in_lines(s: Loop, ranges: Ranges, registers: frozenset[str]) -> tuple[Flat, ...]:
    """A row with borders or a mask in lines of 16, most of which have none; other vectorized loops as they are."""
    lanes = lanes_of(s)
    s = replace(s, body=_unmasked(s.body))
    is_cut = lanes >= 2 * LINE and is_row(s, registers) and s.begin == ZERO
    if not is_cut or not any(dims_in(x.cond) and s.var in free_vars(x.cond) for x in undecided((s,), registers)):
        return (s,)
    line = f"{s.var}.line"
    place = add(mul(Var(line), index(LINE)), Var(s.var))
    body = tuple(substituted(x, {s.var: place}) for x in s.body)
    whole = Loop(line, ZERO, index(lanes // LINE), LoopKind.SERIAL, (replace(s, end=index(LINE), body=body),))
    rest = (replace(s, begin=index(lanes // LINE * LINE)),) if lanes % LINE else ()
    return (*_lines(whole, within(ranges, whole), registers), *rest)


def _lines(s: Loop, ranges: Ranges, registers: frozenset[str]) -> tuple[Flat, ...]:
    """The lines of a row: those before the border is passed, those between borders, and those behind. A part may be empty.

    Borders are a small part of an image, so their position is not analysed.
    """
    found = _inside(s.body, s.var, ranges, registers)
    if found is None:
        return (s,)
    pieces = _pieces(found, s, lambda e, low, high: _within(e, low, high, ranges))
    return tuple(
        replace(s, begin=low, end=high, body=_unmasked(_decided(s.body, facts))) for low, high, facts in pieces
    )


def _within(e: Expr, low: Expr, high: Expr, ranges: Ranges) -> Expr:
    return simplify(Binary("min", Binary("max", e, low), high), ranges)


def _inside(
    body: tuple[Flat, ...], var: str, ranges: Ranges, registers: frozenset[str], *, is_open: bool = True
) -> Inside | None:
    """The iterations in which choices of vectors are decided; None if no choice is decided by the loop variable.

    What changes at a number is at the beginning of a row, and what changes at an open size is at its end.
    """
    low: list[Expr] = []
    high: list[Expr] = []
    after: list[Expr] = []
    before: list[Expr] = []
    # What is known of a variable has to hold wherever it occurs: loops that were cut before have several parts.
    inner = hull(body)
    found = [x for x in undecided(body, registers) if var in free_vars(x.cond)]
    if all(x.later for x in found):
        return None
    for cond in dict.fromkeys(x.cond for x in found):
        if not is_open and not dims_in(cond) and all(_is_known(ranges.get(v) or inner.get(v)) for v in free_vars(cond)):
            continue  # `partition` cuts it at a number
        cut = cut_at(cond, var, inner, ranges)
        if cut is None:
            continue
        if dims_in(cut.sure) or dims_in(cut.maybe):
            high.append(cut.sure if cut.first else cut.maybe)
            before.append(cond if cut.first else negate(cond))
        else:
            low.append(cut.maybe if cut.first else cut.sure)
            after.append(negate(cond) if cut.first else cond)
    if not after and not before:
        return None
    return Inside(_extreme("max", low, ranges), _extreme("min", high, ranges), tuple(after), tuple(before))


def _extreme(op: BinaryOp, of: list[Expr], ranges: Ranges) -> Expr | None:
    def more(a: Expr, b: Expr) -> Expr:
        distance = _distance(a, b)
        if distance is not None:
            return a if (distance < 0) == (op == "min") else b
        return simplify(Binary(op, a, b), ranges)

    return reduce(more, dict.fromkeys(of)) if of else None


def _distance(a: Expr, b: Expr) -> int | None:
    """The difference of the dividends of two quotients by the same number, if it is a number: of `(W + 60) / 64 - 1` and
    `W / 64` it is -4. The quotients are in the same order. None for others."""
    one, other = _quotient(a), _quotient(b)
    if one is None or other is None or one[1] != other[1]:
        return None
    rest = one[0].minus(other[0])
    return None if rest.terms else rest.constant


def _quotient(e: Expr) -> tuple[Linear, int] | None:
    """A sum with one quotient as a dividend and a divisor; None for others."""
    form = linear(e, Context({}))
    quotients = [a for a in form.terms if isinstance(a, Binary) and a.op == "/"]
    divisor = constant(quotients[0].rhs) if len(quotients) == 1 else None
    if divisor is None or divisor <= 0 or form.terms[quotients[0]] != 1:
        return None
    rest = Linear({a: c for a, c in form.terms.items() if a != quotients[0]}, form.constant)
    return linear(quotients[0].lhs, Context({})).plus(rest.times(divisor)), divisor


def _at_most(a: Expr, b: Expr, facts: tuple[Expr, ...]) -> bool:
    """Whether `a <= b` follows, where `a` may be the greater of two: `min(max(x - 1, 0), W - 1)` is cut at both borders."""
    if isinstance(a, Binary) and a.op == "max":
        return _at_most(a.lhs, b, facts) and _at_most(a.rhs, b, facts)
    return follows(Compare("<=", a, b), facts)


def _unmasked(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """Statements with the choices that their masks decide: where `x < W`, `min(x, W - 1)` is `x`."""
    out: list[Flat] = []
    for s in body:
        if isinstance(s, If):
            s = replace(s, body=_decided(s.body, conjuncts(s.cond)))
        out.append(s if isinstance(s, Store) else replace(s, body=_unmasked(s.body)))
    return tuple(out)


def _is_known(r: Interval | None) -> bool:
    return r is not None and None not in r


def _decided(body: tuple[Flat, ...], facts: tuple[Expr, ...]) -> tuple[Flat, ...]:
    """Statements with the choices of indices and the masks that the facts decide."""

    def new(e: Expr) -> Expr:
        match e:
            case Binary(op="min" | "max" as op, lhs=a, rhs=b) if dtype_of(e) == INDEX:
                if _at_most(a, b, facts):
                    return a if op == "min" else b
                if _at_most(b, a, facts):
                    return b if op == "min" else a
            case Binary(op="%", lhs=a, rhs=b) if dtype_of(e) == INDEX:
                if follows(Compare(">=", a, ZERO), facts) and follows(Compare("<", a, b), facts):
                    return a
            case Compare(lhs=a) if dtype_of(a) == INDEX:
                if follows(e, facts):
                    return TRUE
                if follows(negate(e), facts):
                    return FALSE
            case Select(cond=Const(value=value), then=a, other=b):
                return a if value else b
            case _:
                pass
        return e

    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(map_store(s, lambda e: transform(e, new)))
            case If():
                cond = conjunction(tuple(c for c in (transform(c, new) for c in conjuncts(s.cond)) if c != TRUE))
                inner = _decided(s.body, facts)
                out.extend(inner if cond is None else (replace(s, cond=cond, body=inner),))
            case _:
                out.append(replace(s, body=_decided(s.body, facts)))
    return tuple(out)
