"""Confirms refutations: finds inputs on which two programs differ, by running both one scalar at a time.

Integer sets find that two expressions differ, or that an order is violated. This does not show that the results differ, and
the proof is long. So a program is called wrong only after an interpreter, which shares no code with the proof, has returned
two different results. Loops whose iterations have no order run in several orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import cast

import numpy as np

from tensorc_dsl.ir.arrays import Array, narrow, widen
from tensorc_dsl.ir.bind import bind
from tensorc_dsl.ir.dtypes import unit_roundoff
from tensorc_dsl.ir.expr import Binary, Cast, Expr, children, dtype_of
from tensorc_dsl.ir.program import AT_ONCE, FINITE, Block, For, IterKind, LoopKind, Program, Store, blocks, walk
from tensorc_dsl.ir.reductions import ArgFold, DeclaredFold, update_of
from tensorc_dsl.proof.equivalence.facts import element
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import Special, assumed, make_inputs, special_inputs
from tensorc_dsl.reference.interpret import FILLS, InterpretError, Order, Uninitialised, interpret

STEPS = 1 << 21
"""The largest number of block instances and buffer elements that the interpreter runs, which takes some seconds."""

SEEDS, ENOUGH = 32, 1 << 21
"""The number of inputs that are tried for each choice of sizes, and the number of steps after which no more are tried."""

SHARES = (0.5, 1.0, 0.1)
"""The shares of special values among the elements. Many in one reduction hide each other."""

ORDERS: dict[Order, str] = {
    "forward": "", "reversed": ", where loops without an order run backwards",
    "shuffled": ", where loops without an order run in a random one",
    "together": ", where all iterations of loops without an order run at once",
}  # fmt: skip

RELATIVE = 1e-9

LISTED = 16
"""The number of elements of an input that a message lists."""

SIZES = (2, 3, 5, 8)
"""Sizes of open dimensions that are tried besides those of the proof's example."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Inputs, in the types that buffers have in memory, and the difference that they cause."""

    told: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class TooLong:
    """The programs were not run: they take too many steps for every choice of sizes."""


def show(
    original: Program, scheduled: Program, names: tuple[str, str], met: Mapping[str, int]
) -> Shown | TooLong | None:
    """Inputs on which the programs differ, or one of them breaks a rule; None if no inputs that are tried show this.

    `met` has sizes of open dimensions to begin with.
    """
    ran = False
    for sizes in _choices(original, met):
        pair = bind(original, sizes), bind(scheduled, sizes)
        steps = sum(map(_steps, pair))
        if steps > STEPS:
            continue
        ran = True
        for inputs in _inputs(*pair, min(SEEDS, 1 + ENOUGH // steps)):
            told = _difference(*pair, names, inputs)
            if told is not None:
                return Shown(told, sizes, inputs)
    return None if ran else TooLong()


def _choices(p: Program, met: Mapping[str, int]) -> Iterator[dict[str, int]]:
    if all(d.name in met for d in p.dims):
        yield {d.name: met[d.name] for d in p.dims}
    for n in SIZES if p.dims else ():
        yield {d.name: max(d.low, n if d.high is None else min(n, d.high)) for d in p.dims}


def _inputs(a: Program, b: Program, count: int) -> Iterator[dict[str, Array]]:
    """So many random inputs, every second time of one sign, since some differences show only for a least or greatest value;
    then half as many with special values, at least one for each share of them.
    """
    signed = {p.name: p.dtype for p in a.inputs if p.dtype.kind in ("float", "int") and not assumed(a, p.name)}
    for seed in range(count):
        found = make_inputs(a, seed // 2)
        if seed % 2:
            sign = -1 if seed % 4 == 1 else 1
            found |= {n: narrow(sign * np.abs(widen(found[n], t)), t) for n, t in signed.items()}
        yield found
    kinds = _special_kinds(a) & _special_kinds(b)
    for seed in range(max(len(SHARES), count // 2)):
        yield special_inputs(a, seed, SHARES[seed % len(SHARES)], kinds)


def _special_kinds(p: Program) -> frozenset[Special]:
    """The special values for which a program has one result in every order that the language allows.

    Large floats of both signs have another sum in another order, and `min` and `max` may return either of two zeros. The
    factors of a running sum are multiplied first, and laws of declared reducers and of `FINITE` exponentials may be about
    finite numbers only. A position is compared as the program likes.
    """
    updates = [update_of(b) for b in blocks(p)]
    stores = [s for b in blocks(p) for s in b.body]
    operations = {(e.op, dtype_of(e).is_float) for s in stores for e in _within(s.value) if isinstance(e, Binary)}
    kinds = set(Special)
    if any(it.kind is IterKind.SCAN for b in blocks(p) for it in b.iters) or (FINITE, True) in p.annotations:
        kinds.clear()
    if any(isinstance(u, ArgFold | DeclaredFold) for u in updates):
        kinds.clear()
    if any(update_of(b) is not None for b in blocks(p)) or any(map(_adds_several, stores)):
        kinds -= {Special.EXTREME, Special.NEGATIVE_ZERO}
    if {("min", True), ("max", True)} & operations:
        kinds.discard(Special.NEGATIVE_ZERO)
    return frozenset(kinds)


def _adds_several(s: Store) -> bool:
    """Whether the store adds three floats or more."""
    sums = [e for e in _within(s.value) if isinstance(e, Binary) and e.op in ("+", "-") and dtype_of(e).is_float]
    return len(sums) > 1


def _within(e: Expr) -> Iterator[Expr]:
    yield e
    for c in children(e):
        yield from _within(c)


def _steps(p: Program) -> int:
    """A rough number of steps of the interpreter."""
    total = sum(prod(shape_of(b)) for b in (*p.params, *p.buffers))
    for around, s in walk(p.body):
        if isinstance(s, Block):
            ranges = extent_ranges(around)
            total += prod(max(1, bounds(loop.extent, ranges)[1] or 0) for loop in around) * len(s.body)
    return total


def _difference(a: Program, b: Program, names: tuple[str, str], inputs: Mapping[str, Array]) -> str | None:
    """The difference of the programs that an interpreter finds, or the rule that one of them breaks, as text."""
    first = _outcome(a, inputs, "forward")
    if isinstance(first, str):
        return f"{names[0]}: {first}"
    slack = max(map(_slack, (a, b)))
    free = any(isinstance(s, For) and s.kind in (*AT_ONCE, LoopKind.PIPELINED) for _, s in walk(b.body))
    for order in ORDERS if free else ("forward",):
        second = _outcome(b, inputs, order)
        how = ORDERS[order]
        if isinstance(second, str):
            return f"{names[1]}{how}: {second}"
        for p in a.outputs:
            at = _apart(first[p.name], second[p.name], slack)
            if at is not None:
                x, y = first[p.name][at].item(), second[p.name][at].item()
                return f"{element(p.name, at)} is {_row(x)} by {names[0]}, and {_row(y)} by {names[1]}{how}"
    return None


def _outcome(p: Program, inputs: Mapping[str, Array], order: Order) -> dict[str, Array] | str:
    """The outputs, or the interpreter's error as text. A read of an element that nothing has written is an error if the
    outputs depend on what memory holds.
    """
    try:
        return interpret(p, inputs, order)
    except Uninitialised as e:
        try:
            found, other = (interpret(p, inputs, order, fill) for fill in FILLS)
        except InterpretError:  # what is read is a subscript
            return str(e)
        same = all(np.array_equal(found[n], other[n], equal_nan=True) for n in found)
        return found if same else str(e)
    except InterpretError as e:
        return str(e)


def _apart(x: Array, y: Array, slack: float) -> tuple[int, ...] | None:
    """The first element at which two results differ by more than the order of operations can explain."""
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        sizes = np.abs(np.concatenate([a.ravel(), b.ravel()]))
        largest = float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))
        same = (x == y) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= slack * largest)
    wrong = np.argwhere(~same)
    return tuple(map(int, wrong[0])) if len(wrong) else None


def _slack(p: Program) -> float:
    """The possible effect of rounding on a result, relative to its largest element; mostly that of conversions.

    Nothing adds up in a type without arithmetic, so values of it are apart by two neighbours at most.
    """
    casts = [x.dtype for b in blocks(p) for s in b.body for x in _within(s.value) if isinstance(x, Cast)]
    narrow = [t for t in casts if t.is_float]
    return max([RELATIVE, *((64 if t.has_arithmetic else 4) * unit_roundoff(t) for t in narrow)])


def listed(p: Program, inputs: Mapping[str, Array]) -> str:
    """The inputs as text; long ones as their shapes."""
    return ", ".join(f"{b.name} = {_text(widen(inputs[b.name], b.dtype))}" for b in p.inputs)


def _text(a: Array) -> str:
    if a.size > LISTED:
        beyond = "" if a.dtype.kind != "f" or np.isfinite(a).all() else ", some of them nan or infinite"
        return f"{' × '.join(map(str, a.shape))} numbers{beyond}"
    return _row(a.tolist())


def _row(x: object) -> str:
    if isinstance(x, list):
        return f"[{', '.join(map(_row, cast('list[object]', x)))}]"
    return str(x).lower() if isinstance(x, bool) else f"{x:.9g}"  # enough digits for an f32
