"""Random inputs for checking a kernel: never 0, moderate in size, the same for the same seed on every machine."""

from __future__ import annotations

import numpy as np

from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.evaluate import shape_of
from tensorc_dsl.ir.expr import Call, Expr, Load, children, loads
from tensorc_dsl.ir.program import Program, blocks

_POSITIVE_ONLY = frozenset(("log", "sqrt", "rsqrt", "pow"))


def make_inputs(program: Program, seed: int) -> dict[str, Array]:
    """An array for each input, in the type its buffer has in memory.

    Floats are uniform on (-1, 1) but at least 1/64 in magnitude, integers of at most 9 in magnitude; a wrong kernel that
    skips an element or returns zeros then differs. An input that goes straight into `log`, a root or `pow` is positive.
    """
    positive = {x.buffer for b in blocks(program) for s in b.body for x in _restricted(s.value)}
    root = np.random.SeedSequence(seed)
    out: dict[str, Array] = {}
    for p, child in zip(program.inputs, root.spawn(len(program.inputs)), strict=True):
        rng = np.random.Generator(np.random.Philox(child))
        out[p.name] = _random(rng, shape_of(p), p.dtype, p.name in positive)
    return out


def _random(rng: np.random.Generator, shape: tuple[int, ...], t: DType, positive: bool) -> Array:
    signed = not positive and t.kind in ("float", "int")
    sign = rng.integers(0, 2, shape) * 2 - 1 if signed else np.ones(shape, np.int64)
    if t.is_float:
        return narrow(rng.uniform(1 / 64, 1.0, shape) * sign, t)
    if t.is_integer:
        return narrow(rng.integers(1, 10, shape) * sign, t)
    return rng.integers(0, 2, shape).astype(stored_dtype(t))


def _restricted(e: Expr) -> list[Load]:
    found: list[Load] = list(loads(e)) if isinstance(e, Call) and e.function in _POSITIVE_ONLY else []
    return found + [x for c in children(e) for x in _restricted(c)]
