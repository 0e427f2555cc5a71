"""`bitcast(type, x)`: the bits of floats as unsigned integers and back, at every width, by kernels and both references."""

from __future__ import annotations

import re

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, widen
from tensorc_dsl.ir.dtypes import DTYPES, DType
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.reference.tolerance import bounded
from tests.codegen.native import program, run
from tests.codegen.test_types import elementwise
from tests.compute.texts import build, codes, errors
from tests.gpu.kernels import ptx

PAIRS = [
    (f, u) for f in DTYPES.values() if f.is_float for u in DTYPES.values() if u.kind == "uint" and u.bits == f.bits
]


def patterns(f: DType, u: DType) -> Array:
    """Bit patterns of numbers: all of 8 and 16 bits, and others with each exponent."""
    own = stored_dtype(u)
    if u.bits <= 16:
        every = np.arange(2**u.bits, dtype=own)
    else:
        rng = np.random.default_rng(0)
        mantissa = 23 if u.bits == 32 else 52
        exponents = np.repeat(np.arange(2 ** (u.bits - 1 - mantissa), dtype=np.uint64), 2)
        signs = np.tile(np.array([0, 1], np.uint64), len(exponents) // 2) << np.uint64(u.bits - 1)
        rest = rng.integers(0, 2**mantissa, len(exponents), np.uint64)
        every = (signs | exponents << np.uint64(mantissa) | rest).astype(own)
        every = np.append(every, np.array([0, 1 << (u.bits - 1), 1, 2**mantissa], own))
    with np.errstate(all="ignore"):
        return every[~np.isnan(as_float(every, f))]


def as_float(codes: Array, f: DType) -> Array:
    """By NumPy's views, or the tables of floats that it lacks."""
    return widen(codes if stored_dtype(f).kind == "u" else codes.view(stored_dtype(f)), f)


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize(("f", "u"), PAIRS, ids=str)
def test_every_width_both_ways(f: DType, u: DType, kind: str) -> None:
    bits = patterns(f, u)
    values = as_float(bits, f)
    p = program(elementwise(f"bitcast({u}, A[v])", kind, {"A": str(f), "C": str(u)}, len(bits)))
    assert parse_program(Source("p.tsched", format_program(p))) == p
    given = {"A": bits.view(stored_dtype(f))}
    for found in (run(p, given)["C"], evaluate(p, given)["C"], interpret(p, given)["C"]):
        np.testing.assert_array_equal(found, bits)
    p = program(elementwise(f"bitcast({f}, A[v])", kind, {"A": str(u), "C": str(f)}, len(bits)))
    np.testing.assert_array_equal(run(p, {"A": bits})["C"].view(stored_dtype(u)), bits)
    for found in (evaluate(p, {"A": bits})["C"], interpret(p, {"A": bits})["C"]):
        np.testing.assert_array_equal(found, values)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(values))


@pytest.mark.parametrize(("f", "u"), PAIRS, ids=str)
def test_computes_have_it_and_gpus_run_it(f: DType, u: DType) -> None:
    bits = patterns(f, u)[:64]
    p = build(f"compute c(X: {f}[M]) -> Y: {f}[M] {{ Y[i] = bitcast({f}, xor(bitcast({u}, X[i]), 1)) }}", M=len(bits))
    given = {"X": bits.view(stored_dtype(f))}
    flipped = bits ^ bits.dtype.type(1)
    expected = as_float(flipped, f)
    np.testing.assert_array_equal(run(p, given)["Y"].view(stored_dtype(u)), flipped)
    number = ~np.isnan(expected)
    for found in (evaluate(p, given)["Y"], interpret(p, given)["Y"]):
        np.testing.assert_array_equal(found[number], expected[number])
    n = len(bits)
    text = re.sub(r"for i in \d+", f'bound("block.x") for b in 1 {{ bound("thread.x") for i in {n}', format_program(p))
    on_gpu = parse_program(Source("p.tsched", text + "\n}"))
    kernels = lower_device(on_gpu)
    fault, outputs = emulated(kernels, on_gpu, given)
    assert fault == "" and ".visible .entry" in ptx(kernels, "sm_80") and "bitcast<" in cuda_text(kernels)
    for out in outputs:
        np.testing.assert_array_equal(out["Y"][number], expected[number])


@pytest.mark.parametrize(
    "value",
    [
        "bitcast(u16, X[i])", "bitcast(i32, X[i])", "bitcast(f32, X[i])", "bitcast(u64, X[i])", "bitcast(f32, I[i])",
        "bitcast(X[i], u32)", "bitcast(u32, X[i] > 0.0)", "bitcast(u32, i)", "bitcast(bool, X[i])",
    ],
)  # fmt: skip
def test_types_that_have_not_the_same_width_are_refused(value: str) -> None:
    text = f"compute c(X: f32[M], I: i32[M]) -> Y: f32[M] {{ Y[i] = f32({value}) }}"
    assert codes(text, M=4) == ["E0416"]
    assert "name a type of the same width first: `bitcast(u32, f32(x))`" in errors(text, M=4)[0]
    block = f"block Y {{ spatial v in 4 = i; Y[v] = f32({value.replace('[i]', '[v]').replace(', i)', ', v)')}) }}"
    with pytest.raises(TschedError) as e:
        parse_program(Source("p.tsched", f"program p(X: f32[4], I: i32[4], Y: f32[4]) {{ for i in 4 {{ {block} }} }}"))
    assert [d.code for d in e.value.diagnostics] == ["E0204"]


def test_literals_have_the_type_of_their_width() -> None:
    for value, expected in {
        "bitcast(f32, 1065353216) * X[i]": 1.0,
        "f32(bitcast(u32, 1.0) - 1065353216) + X[i]": 1.0,
        "f32(bitcast(f64, 4611686018427387904)) * X[i]": 2.0,
    }.items():
        p = build(f"compute c(X: f32[M]) -> Y: f32[M] {{ Y[i] = {value} }}", M=3)
        assert parse_program(Source("p.tsched", format_program(p))) == p
        given = {"X": np.ones(3, np.float32)}
        for found in (run(p, given)["Y"], evaluate(p, given)["Y"], interpret(p, given)["Y"]):
            assert found.tolist() == [expected] * 3


def test_bits_of_a_rounded_value_are_not_checked_and_those_of_others_are_exact() -> None:
    text = "compute c(X: f32[M]) -> Y: u32[M] {{ Y[i] = bitcast(u32, {}) }}"
    given = {"X": narrow(np.array([0.1, -3.5, 1e30]), DTYPES["f32"])}
    want, allowed = bounded(build(text.format("X[i]"), M=3), given)
    assert (allowed["Y"] == 0).all() and (want["Y"] == given["X"].view(np.uint32)).all()
    _, allowed = bounded(build(text.format("X[i] * 3.0"), M=3), given)
    assert (allowed["Y"] > 2**32).all()


def test_laws_of_reducers_are_not_proved_from_bits() -> None:
    """Sums of real numbers are associative, and the bits of rounded ones are not."""
    text = (
        "reducer odd(a, b) = bitcast(f32, xor(bitcast(u32, a), bitcast(u32, b))) identity 0.0\n"
        "compute c(X: f32[M, N]) -> Y: f32[M] { Y[i] = reduce odd[j] X[i, j] }"
    )
    assert codes(text, M=2, N=3) == ["E0426"]
