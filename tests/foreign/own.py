"""Compares scheduled programs with references that are written in NumPy beside them, and share no code with the compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from campaigns.emulated import emulated, is_bound
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, widen
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.interpret import interpret
from tests.codegen.native import compiled
from tests.foreign.judged import ORDERS, native, sizes_of

SEEDS = 3
DIGITS = {"f8e4m3": 1e-9, "f8e5m2": 1e-9, "f16": 4e-2, "bf16": 2e-1, "f32": 2e-4, "f64": 1e-9}
"""Errors, as shares of a value and of 1, that the rounding of a few terms explains."""


def differences(before: Program, after: Program, numpy: str) -> Iterator[str]:
    """Where the results at some sizes are not those of the NumPy text; nothing if there is none."""
    if not numpy:
        return
    names: dict[str, Any] = {"np": np}
    exec(numpy, names)
    kernels = [load(compiled(after, threads)) for threads in (1, 2)]
    for seed, sizes in enumerate(islice(sizes_of(before), SEEDS) if before.dims else [{}] * SEEDS):
        bound, scheduled = bind(before, sizes), bind(after, sizes)
        inputs = _inputs(bound, seed, names.get("given"))
        want = _expected(bound, names["it"], inputs)
        found: list[tuple[str, Mapping[str, Array]]] = [(o, interpret(scheduled, inputs, o)) for o in ORDERS]
        found += [(f"machine code, {n} threads", native(k, bound, inputs)) for n, k in enumerate(kernels, 1)]
        if not before.dims and is_bound(after):
            fault, results = emulated(lower_device(after), after, inputs)
            yield from [f"emulated: {fault}"] if fault else []
            found += [("emulated", r) for r in results]
        for how, got in found:
            yield from (f"{how}, seed {seed} {sizes or ''}: {x}" for x in _compared(bound, got, want))


def _inputs(program: Program, seed: int, given: Callable[..., Mapping[str, Array]] | None) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    drawn = {b.name: _drawn(rng, b) for b in program.inputs}
    if given is not None:
        drawn |= given(**drawn)
    return {b.name: narrow(drawn[b.name], b.dtype) for b in program.inputs}


def _drawn(rng: np.random.Generator, b: Buffer) -> Array:
    if b.dtype.is_float:
        return rng.integers(-64, 65, shape_of(b)) / 16 if b.dtype.bits <= 16 else rng.standard_normal(shape_of(b))
    if b.dtype.name == "bool":
        return rng.random(shape_of(b)) < 0.5
    kind = np.iinfo(stored_dtype(b.dtype))
    return rng.integers(kind.min, kind.max, shape_of(b), stored_dtype(b.dtype), endpoint=True)


def _expected(program: Program, it: Callable[..., Any], inputs: Mapping[str, Array]) -> dict[str, Array]:
    with np.errstate(all="ignore"):
        made = it(**{b.name: _plain(inputs[b.name], b) for b in program.inputs})
    outputs = made if isinstance(made, tuple) else (made,)
    return {b.name: np.asarray(x) for b, x in zip(program.outputs, outputs, strict=True)}


def _plain(a: Array, b: Buffer) -> Array:
    """As NumPy has it: floats wide, integers and conditions in their own type."""
    return widen(a, b.dtype).astype(np.float64) if b.dtype.is_float else np.array(a, stored_dtype(b.dtype))


def _compared(program: Program, found: Mapping[str, Array], want: Mapping[str, Array]) -> Iterator[str]:
    for b in program.outputs:
        got, expected = np.asarray(found[b.name]), want[b.name]
        if got.shape != expected.shape:
            yield f"{b.name} has the shape {got.shape}, not {expected.shape}"
            continue
        digits = DIGITS.get(b.dtype.name, 0.0)
        with np.errstate(all="ignore"):
            right = (
                np.isclose(got.astype(np.float64), expected.astype(np.float64), digits, digits, equal_nan=True)
                if b.dtype.is_float
                else got == expected
            )
        if not right.all():
            at = np.unravel_index(int(np.argmin(right)), got.shape)
            count = np.count_nonzero(~right)
            yield f"{b.name}{[int(x) for x in at]} is {got[at]}, not {expected[at]}; {count} are wrong"
