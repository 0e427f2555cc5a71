"""Random inputs for checking a kernel, the same for one seed everywhere; and those that show whether a schedule multiplies
factors of scans.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from enum import Enum, auto
from math import floor, inf, log2
from typing import Literal

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, wide_dtype
from tensorc_dsl.ir.dtypes import DType, largest_finite, limits, smallest_normal
from tensorc_dsl.ir.expr import Binary, Call, Compare, Expr, Load, children, constant, dtype_of, free_vars, loads
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.maths import MATHS, Domain
from tensorc_dsl.ir.program import Buffer, IterKind, Program, Property, Range, assumed, blocks
from tensorc_dsl.ir.sizes import always_apart, elements_spanned, strides_of
from tensorc_dsl.reference.evaluate import shape_of

# Random inputs for checking a kernel: nonzero, moderate in size, and the same for one seed on every machine.


def make_inputs(program: Program, seed: int) -> dict[str, Array]:
    """An array for each input, in the type that its buffer has in memory.

    Floats are uniform on (-1, 1) but at least 1/64 in magnitude, integers at most 9 in magnitude. So a wrong kernel that
    skips an element or returns zeros gives another result. An input that is a direct argument of `log`, a root or `pow` is
    positive, and one of `acosh` above 1. An integer that is used in a subscript, or that chooses the element that a term is
    added to, is any valid position, or a little out of bounds. What a compute assumes of an input is true of it.
    """
    program = resolved(program)
    places = _places(program)
    asked = sorted({x for b in blocks(program) for s in b.body for x in _restricted(s.value)}, key=lambda x: x[1])
    domains = dict(asked)  # the smallest domain of each
    root = np.random.SeedSequence(seed)
    out: dict[str, Array] = {}
    for p, child in zip(program.inputs, root.spawn(len(program.inputs)), strict=True):
        rng = np.random.Generator(np.random.Philox(child))
        size = places.get(p.name)
        domain = domains.get(p.name, Domain.ALL)
        said = drawn_as(program, p.name)
        values = (
            _as_assumed(rng, p, said, size)
            if said
            else _random(rng, shape_of(p), p.dtype, domain)
            if size is None
            else _around(rng, p, size)
        )
        out[p.name] = _shared(values, strides_of(p))
    return out


def drawn_as(program: Program, name: str) -> tuple[Property | Range, ...]:
    """What the compute assumes of an input beside that it is finite, as all numbers are that are no special values."""
    return tuple(x for x in assumed(program, name) if x is not Property.FINITE)


def default_range(t: DType, count: int, said: Collection[Property | Range], size: int | None) -> Range:
    """The range of elements of which none is assumed: for integers wide enough to have `count` distinct ones."""
    if t.is_float:
        return -1.0, 1.0
    least, most = limits(t)
    span = max(count, 9) if Property.DISTINCT in said else 9
    return (0, max(size - 1, 0)) if size is not None else (max(-span, least), min(span, most))


def _as_assumed(rng: np.random.Generator, p: Buffer, said: Collection[Property | Range], size: int | None) -> Array:
    """Random elements of which all that is `said` is true; those of a subscript of `size` values begin at 0."""
    shape, t = shape_of(p), p.dtype
    low, high = next((x for x in said if isinstance(x, tuple)), (None, None))
    if low is None or high is None:
        low, high = default_range(t, shape[-1], said, size)
    if Property.POSITIVE in said:
        low = max(low, 1 if t.is_integer else high / 64)
    if Property.DISTINCT in said:
        x = _distinct(rng, shape, t, low, high)
    elif t.is_integer:
        x = rng.integers(int(low), int(high), shape, endpoint=True, dtype=wide_dtype(t).type)
    else:
        x = low + (high - low) * rng.random(shape)
    if Property.SYMMETRIC in said:
        x = np.tril(x) + np.swapaxes(np.tril(x, -1), -1, -2)
    if Property.POSITIVE_DEFINITE in said:
        x = x @ np.swapaxes(x, -1, -2) / max(1, shape[-1]) + np.eye(shape[-1])
    return narrow(np.sort(x, axis=-1) if Property.SORTED in said else x, t)


def _distinct(rng: np.random.Generator, shape: tuple[int, ...], t: DType, low: float, high: float) -> Array:
    """Elements no two of which are equal along the last dimension, as far as the range has so many."""
    count = shape[-1]
    if t.is_integer:
        places = int(high) - int(low) + 1
        order = np.argsort(rng.random((*shape[:-1], count)), axis=-1)
        return int(low) + order * max(1, places // max(1, count)) % max(1, places)
    steps = (np.argsort(rng.random(shape), axis=-1) + 0.5 * rng.random((*shape[:-1], 1))) / max(1, count)
    return low + (high - low) * steps


class Special(Enum):
    """Values of floats at which laws of real numbers fail, beside 0, 1 and -1."""

    NONFINITE = auto()
    """NaN and both infinities."""
    EXTREME = auto()
    """The ends of the type, and its smallest normal number."""
    NEGATIVE_ZERO = auto()


def special_inputs(program: Program, seed: int, share: float, kinds: Collection[Special]) -> dict[str, Array]:
    """The inputs of `make_inputs`, with special values in place of about this share of the elements: of floats those of
    `kinds`, of integers the ends of the type and what is next to them. An input of which something is assumed is as it was,
    unless it is only that it is finite.
    """
    out = make_inputs(program, seed)
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, 1))))
    for p in program.inputs:
        if drawn_as(program, p.name):
            continue
        finite = Property.FINITE in assumed(program, p.name)
        values = _special_values(p.dtype, {*kinds} - {Special.NONFINITE} if finite else kinds)
        drawn = values[rng.integers(0, len(values), shape_of(p))]
        mixed = np.where(rng.random(shape_of(p)) < share, narrow(drawn, p.dtype), out[p.name])
        out[p.name] = _shared(mixed, strides_of(p))
    return out


def _special_values(t: DType, kinds: Collection[Special]) -> Array:
    if t.is_integer:
        low, high = limits(t)
        return np.array([0, 1, low, low + 1, high - 1, high, *((-1,) if low else ())], wide_dtype(t))
    if not t.is_float:
        return np.array([False, True])
    values = {
        Special.NONFINITE: (math.nan, math.inf, -math.inf),
        Special.EXTREME: (largest_finite(t), -largest_finite(t), smallest_normal(t)),
        Special.NEGATIVE_ZERO: (-0.0,),
    }
    return np.array([0.0, 1.0, -1.0, *(v for kind in Special if kind in kinds for v in values[kind])])


def _shared(values: Array, strides: tuple[int, ...]) -> Array:
    """The values, with one for all elements that share a place, as those along a stride of 0 do."""
    if always_apart(values.shape, strides):
        return values
    memory = np.zeros(elements_spanned(values.shape, strides), values.dtype)
    laid = np.ndarray(values.shape, values.dtype, memory, 0, tuple(n * values.itemsize for n in strides))
    laid[...] = values
    return laid.copy()


def _places(program: Program) -> dict[str, int]:
    """The integer buffers that are used in subscripts, or as the places of terms, with the largest extent of a dimension or
    number of places."""
    out: dict[str, int] = {}
    for b in blocks(program):
        sizes = {it.name: constant(it.extent) or 0 for it in b.iters if it.kind is IterKind.SPATIAL}
        for c in (c for s in b.body if b.is_reduction for c in _equalities(s.value)):
            n = max((sizes.get(v, 0) for x in (c.lhs, c.rhs) if not loads(x) for v in free_vars(x)), default=0)
            out.update((y.buffer, max(n, out.get(y.buffer, 0))) for y in loads(c) if n and y.dtype.is_integer)
    for x in (x for b in blocks(program) for s in b.body for x in loads(s.value)):
        for i, n in zip(x.indices, shape_of(program.buffer(x.buffer)), strict=True):
            out.update((y.buffer, max(n, out.get(y.buffer, 0))) for y in loads(i) if y.dtype.is_integer)
    return out


def _equalities(e: Expr) -> list[Compare]:
    """The comparisons of equality in an expression, outside of subscripts."""
    own = [e] if isinstance(e, Compare) and e.op in ("==", "!=") else []
    return own if isinstance(e, Load) else own + [x for c in children(e) for x in _equalities(c)]


def _around(rng: np.random.Generator, p: Buffer, size: int) -> Array:
    least = 0 if p.dtype.kind == "uint" else -1 - size // 8
    most = min(size + size // 8, np.iinfo(stored_dtype(p.dtype)).max)
    return narrow(rng.integers(max(least, -most), most, shape_of(p), endpoint=True), p.dtype)


def _random(rng: np.random.Generator, shape: tuple[int, ...], t: DType, domain: Domain) -> Array:
    signed = domain is Domain.ALL and t.kind in ("float", "int")
    sign = rng.integers(0, 2, shape) * 2 - 1 if signed else np.ones(shape, np.int64)
    if t.is_float:
        return narrow(rng.uniform(1 / 64, 1.0, shape) * sign + float(domain is Domain.FROM_ONE), t)
    if t.is_integer:
        return narrow(rng.integers(1, 10, shape) * sign, t)
    return rng.integers(0, 2, shape).astype(stored_dtype(t))


def _restricted(e: Expr) -> list[tuple[str, Domain]]:
    """The loads in arguments of functions that are not defined for all that is drawn, with what they are defined for."""
    domain = MATHS[e.function].domain if isinstance(e, Call) else Domain.ALL
    found = (
        [(x.buffer, domain) for x in loads(e)]
        if domain in (Domain.NONNEGATIVE, Domain.POSITIVE, Domain.FROM_ONE)
        else []
    )
    return found + [x for c in children(e) for x in _restricted(c)]


# Inputs at which scans with factors show whether a schedule multiplies factors with each other that no step does.


@frozen
class _Role:
    """What a step of a scan does with an input: it multiplies the value before by a "factor", adds a "shift" to it under
    a maximum or minimum, or combines it with a "term". Of a minimum, and of what is subtracted, the sign is -1.
    """

    kind: Literal["term", "shift", "factor"]
    sign: int


def extreme_inputs(program: Program, seed: int) -> dict[str, Array] | None:
    """Inputs that a scan of floats with factors passes through, and that products of several of its factors do not: None
    if the program has no such scan, or no input of it.

    The value begins near the largest number, and comes back to it: factors take it down for four steps and up for four,
    and what is added under a maximum takes it down twice and up twice. In the last quarter a term is infinite. What else
    is combined with it is 0, or far below. So the value is a number or infinite in each step, but not each product of
    factors.
    """
    used, kinds = _used(program)
    if not used:
        return None
    varying = any(role.kind == "factor" for _, role, _ in used)
    made = {p.name: narrow(_fading(p, role, axis, varying, "shift" in kinds), p.dtype) for p, role, axis in used}
    return {**make_inputs(program, seed), **made}


def has_extremes(program: Program) -> bool:
    """Whether a program has such inputs."""
    return bool(_used(program)[0])


def _used(program: Program) -> tuple[list[tuple[Buffer, _Role, int]], set[str]]:
    """The inputs of scans with factors, each with its role and its axis of steps, and all roles that there are."""
    program = resolved(program)
    roles: dict[str, tuple[_Role, int]] = {}
    kinds: set[str] = set()
    for b in blocks(program):
        steps = {it.name for it in b.iters if it.kind is IterKind.SCAN}
        for s in b.body if steps and dtype_of(b.body[0].value).is_float else ():
            for role, x in _roles(s.value, s.buffer, 0):
                kinds.add(role.kind)
                axis = next((d for d, i in enumerate(x.indices) if free_vars(i) & steps), None)
                if axis is not None and (x.buffer not in roles or role.kind == "factor"):
                    roles[x.buffer] = role, axis
    used = [
        (p, *roles[p.name])
        for p in program.inputs
        if p.name in roles and p.dtype.is_float and not drawn_as(program, p.name)
    ]
    return ([], kinds) if kinds <= {"term"} else (used, kinds)


def _fading(p: Buffer, role: _Role, axis: int, varying: bool, shifted: bool) -> Array:
    """The values of an input of that role, along the axis that counts steps; where factors are `varying`, or terms
    `shifted`.
    """
    shape, most = shape_of(p), largest_finite(p.dtype)
    n, down = shape[axis], floor(log2(most) / 3.2)
    start = 2.0 ** floor(1.4 * down)
    step = np.arange(n)
    late = step >= n - n // 4
    # No chunk of a round number of steps begins in the same place as another one: periods are odd.
    match role.kind:
        case "factor":
            phase = step % 9
            found = np.where(late | ((phase > 0) & (phase < 5)), 2.0**-down, np.where(phase == 0, 1.0, 2.0**down))
            found[:1] = start
        case "shift":
            phase = step % 5
            found = np.where(late | ((phase > 0) & (phase < 3)), -0.6, np.where(phase == 0, 0.0, 0.6)) * most
        case "term" if shifted:
            found = np.where(step % 5 == 0, 0.9, -0.9) * most
        case "term":
            found = np.where(step % 9 == 0 if varying else step == 0, start, 0.0)
    if role.kind == "term" and late.any():
        found[int(np.argmax(late))] = inf
    along = [n if d == axis else 1 for d in range(len(shape))]
    return np.broadcast_to((role.sign * found).reshape(along), shape)


def _roles(e: Expr, own: str, extreme: int) -> list[tuple[_Role, Load]]:
    """What a step does with the elements that it reads, its own buffer's too if a constant is its factor. `extreme` is 1
    under a maximum and -1 under a minimum.
    """
    match e:
        case Load(buffer=name):
            return [] if name == own else [(_Role("term", extreme or 1), e)]
        case Binary(op="*" | "+" | "-" as op, lhs=a, rhs=b):
            inner, other = (b, a) if any(x.buffer == own for x in loads(b)) else (a, b)
            if any(x.buffer == own for x in loads(other)) or all(x.buffer != own for x in loads(inner)):
                return [x for c in (a, b) for x in _roles(c, own, extreme)]
            kind = "factor" if op == "*" else "shift" if extreme else "term"
            role = _Role(kind, 1 if kind != "shift" else -extreme if op == "-" else extreme)
            return [*((role, x) for x in (loads(other) or loads(inner)[:1])), *_roles(inner, own, extreme)]
        case _:
            under = {"max": 1, "min": -1}.get(e.op, extreme) if isinstance(e, Binary) else extreme
            return [x for c in children(e) for x in _roles(c, own, under)]
