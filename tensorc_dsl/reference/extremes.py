"""Inputs at which scans with factors show whether a schedule multiplies factors with each other that no step does."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf, log2
from typing import Literal

import numpy as np

from tensorc_dsl.ir.arrays import Array, narrow
from tensorc_dsl.ir.expr import Binary, Expr, Load, children, dtype_of, free_vars, loads
from tensorc_dsl.ir.numbers import largest_finite
from tensorc_dsl.ir.program import Buffer, IterKind, Program, blocks
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import assumed, make_inputs


@dataclass(frozen=True, slots=True)
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
        if p.name in roles and p.dtype.is_float and not assumed(program, p.name)
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
