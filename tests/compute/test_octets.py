"""Floats of 8 bits in computes and programs: stored, passed on and converted; what computes with them is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, widen
from tensorc_dsl.ir.dtypes import DTYPES, F8E4M3, F32
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.measure.check import compare
from tests.codegen.native import run
from tests.compute.texts import build, codes, errors

TYPES = ["f8e4m3", "f8e5m2"]


def text(t: str, value: str, result: str | None = None) -> str:
    return f"compute c(X: {t}[M], Z: {t}[M], S: f32[M]) -> Y: {result or t}[M] {{\n    Y[i] = {value}\n}}\n"


def filled(p: Program, given: dict[str, Array]) -> dict[str, Array]:
    """The inputs, zeros for those that are not given."""
    some = len(next(iter(given.values())))
    return {q.name: given.get(q.name, np.zeros(some, stored_dtype(q.dtype))) for q in p.inputs}


def outputs(p: Program, given: dict[str, Array]) -> list[Array]:
    """What reference, interpreter and kernel make of it, in wide types; the program's text parses back to it."""
    assert parse_program(Source("p.tsched", format_program(p))) == p
    used = filled(p, given)
    dtype = p.buffer("Y").dtype
    return [evaluate(p, used)["Y"], interpret(p, used)["Y"], widen(run(p, used)["Y"], dtype)]


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize(
    ("value", "op"),
    [
        ("X[i] + Z[i]", "+"), ("X[i] - Z[i]", "-"), ("X[i] * 2.0", "*"), ("1.0 / X[i]", "/"), ("X[i] % Z[i]", "%"),
        ("-X[i]", "-"), ("min(X[i], Z[i])", "min"), ("max(0.0, X[i])", "max"), ("exp(X[i])", "exp"), ("abs(X[i])", "abs"),
        ("sign(X[i])", "sign"), ("clamp(X[i], Z[i], 1.0)", "clamp"), ("X[i] if X[i] < Z[i] else Z[i]", "<"),
        ("X[i] if isnan(Z[i]) else Z[i]", "isnan"), ("sum[k] X[k]", "sum"), ("max[k] X[k]", "max"), ("prod[k] X[k]", "prod"),
        ("f8e4m3(argmax[k] X[k])", "argmax"), ("X[i] if X[i] == 0.0 else Z[i]", "=="),
    ],
)  # fmt: skip
def test_there_is_no_arithmetic(t: str, value: str, op: str) -> None:
    assert codes(text(t, value), M=8) == ["E0413"]
    (found,) = errors(text(t, value), M=8)
    assert f"`{op}` does not work on {t}: its values are stored and converted" in found
    assert found.endswith(f"= help: convert them to a wider type, `f32(…)`, and the result back: `{t}(…)`")


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize(
    "value", ["X[v] + X[v]", "-X[v]", "max(X[v], 0.0)", "X[v] if X[v] > 0.0 else 0.0", "exp(X[v])"]
)
def test_a_program_has_none_either(t: str, value: str) -> None:
    block = f"block Y {{ spatial v in 4 = i; Y[v] = {value} }}"
    with pytest.raises(TschedError) as e:
        parse_program(Source("p.tsched", f"program p(X: {t}[4], Y: {t}[4]) {{ for i in 4 {{ {block} }} }}"))
    assert [d.code for d in e.value.diagnostics] == ["E0204"]


@pytest.mark.parametrize("t", TYPES)
def test_values_are_passed_on_chosen_and_converted(t: str) -> None:
    dtype = DTYPES[t]
    x = narrow(np.array([0.5, -1.75, 0.0, np.nan, 8.0, -0.0, 1e9]), dtype)
    z, s = x[::-1].copy(), np.array([1, -1, 2, -2, 3, -3, 4], np.float32)
    given = {"X": x, "Z": z, "S": s}
    wide, other = widen(x, dtype), widen(z, dtype)
    for value, expected in {
        "X[i]": wide,
        "X[M - 1 - i]": other,
        "X[i] if S[i] > 0.0 else Z[i]": np.where(s > 0, wide, other),
        "0.1 if S[i] > 0.0 else X[i]": np.where(s > 0, widen(narrow(np.array(0.1), dtype), dtype), wide),
        f"{t}(f32(X[i]) * S[i])": widen(narrow(wide * s, dtype), dtype),
        f"{t}(i32(S[i]))": s,
    }.items():
        for found in outputs(build(text(t, value), M=7), given):
            np.testing.assert_array_equal(found, expected)
    for found in outputs(build(text(t, "sum[k in 7] f32(X[min(k, 2)]) * f32(Z[6])", "f32"), M=7), given):
        np.testing.assert_allclose(found, np.full(7, (wide[:3].sum() + 4 * wide[2]) * other[6]))


@pytest.mark.corpus
@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("of", ["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_saturate_keeps_to_finite_numbers(t: str, of: str) -> None:
    dtype, largest = DTYPES[of], {"f8e4m3": 448.0, "f8e5m2": 57344.0}[t]
    if dtype.is_float:
        x = narrow(np.array([0.3, -700.0, 460.0, 1e9, -1e9, np.inf, -np.inf, np.nan]), dtype)
    else:
        low, high = (
            (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
        )
        some = [low, high, 3, 100, min(high, 449), min(high, 60000), max(low, -449), 7]
        x = np.array(some, stored_dtype(dtype))
    wide = widen(x, dtype).astype(np.float64)
    expected = widen(narrow(np.clip(wide, -largest, largest), DTYPES[t]), DTYPES[t])
    p = build(f"compute c(X: {of}[M]) -> Y: {t}[M] {{ Y[i] = saturate({t}, X[i]) }}", M=8)
    for found in outputs(p, {"X": x}):
        np.testing.assert_array_equal(found, expected)
    assert (np.abs(expected[~np.isnan(expected)]) <= largest).all()


def test_saturate_has_no_wider_floats() -> None:
    (found,) = errors("compute c(X: f32[M]) -> Y: f16[M] { Y[i] = saturate(f16, X[i]) }", M=4)
    assert "`saturate` converts to an integer or a float of 8 bits, and `f16` is neither" in found
    assert codes(text("f8e4m3", "f8e4m3(saturate(i32, X[i]))"), M=4) == ["E0413"]


def test_numbers_and_infinities_that_do_not_fit_are_refused() -> None:
    for t, number in (("f8e4m3", "465.0"), ("f8e4m3", "inf"), ("f8e5m2", "61441.0"), ("f8e5m2", "1e9")):
        assert codes(text(t, f"X[i] if i > 0 else {number}"), M=4) == ["E0414"], number
    for t, number, value in (("f8e4m3", "464.0", 448), ("f8e5m2", "inf", np.inf), ("f8e5m2", "60000.0", 57344)):
        x = narrow(np.zeros(2), DTYPES[t])
        for found in outputs(build(text(t, f"X[i] if i > 0 else {number}"), M=2), {"X": x}):
            assert found.tolist() == [value, 0]


def test_random_inputs_are_small_and_not_zero() -> None:
    p = build(text("f8e4m3", "X[i]"), M=500)
    x = widen(make_inputs(p, 0)["X"], F8E4M3)
    assert (np.abs(x) >= 1 / 64).all() and (np.abs(x) <= 1).all() and (x < 0).any() and len(set(x)) > 40


def agree(got: Array, want: Array, allowed: Array) -> list[bool]:
    """Whether each of some f8e4m3 is right."""
    at = [slice(n, n + 1) for n in range(len(got))]
    return [compare("Y", got[n], want[n], allowed[n], F8E4M3).fault == "" for n in at]


def test_what_a_check_allows_is_one_step() -> None:
    """A value that another was rounded from may have rounded to its neighbour, and no further; copies are exact."""
    p = build(text("f8e4m3", "f8e4m3(S[i] * 1.1)"), M=4)
    s = np.array([1.0, -2.5, 300.0, 0.001], np.float32)
    want, allowed = (found["Y"] for found in bounded(p, filled(p, {"S": s})))
    codes_ = narrow(want, F8E4M3)
    for steps, right in ((0, True), (1, True), (2, False)):
        moved = (codes_ + steps).astype(np.uint8)
        assert agree(moved, want, allowed) == [right] * 4, steps
    copied = build(text("f8e4m3", "X[i]"), M=4)
    want, allowed = (found["Y"] for found in bounded(copied, filled(copied, {"X": codes_})))
    assert (allowed == 0).all()


def test_what_overflows_may_do_so_in_one_of_two() -> None:
    """A product that is near the end may be beyond it in a kernel: NaN is right there, and not far below it."""
    p = build(text("f8e4m3", "f8e4m3(S[i] * 1.1)"), M=4)
    s = np.array([464 / 1.1, 465 / 1.1, 300.0, 1e6], np.float32)
    want, allowed = (found["Y"] for found in bounded(p, filled(p, {"S": s})))
    nan = np.full(4, 0x7F, np.uint8)
    assert agree(nan, want, allowed) == [True, True, False, True]
    kept = build("compute c(X: f32[M]) -> Y: f8e4m3[M] { Y[i] = saturate(f8e4m3, X[i]) }", M=1)
    want, allowed = (found["Y"] for found in bounded(kept, {"X": np.array([1e9], np.float32)}))
    assert want.tolist() == [448] and compare("Y", nan[:1], want, allowed, F8E4M3).fault
    assert compare("Y", np.array([np.inf], np.float32), np.array([3.4028234663852886e38]), np.array([1.0]), F32).fault
