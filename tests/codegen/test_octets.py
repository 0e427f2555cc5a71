"""Floats of 8 bits: every code, every boundary of rounding and what overflows, by kernels, references and `ml_dtypes`."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, widen
from tensorc_dsl.ir.dtypes import (
    BF16,
    DTYPES,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I64,
    U32,
    DType,
    code_of,
    largest_finite,
    nearest,
    overflows_above,
    value_of,
)
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.interpret import interpret
from tests.codegen.native import compiled, program, run

OCTETS = [F8E4M3, F8E5M2]
THEIRS: dict[DType, Any] = {F8E4M3: ml_dtypes.float8_e4m3fn, F8E5M2: ml_dtypes.float8_e5m2, BF16: ml_dtypes.bfloat16}
CODES = np.arange(256, dtype=np.uint8)


def values_of(t: DType) -> Array:
    """The value of each code, by `ml_dtypes`."""
    return CODES.view(THEIRS[t]).astype(np.float64)


@cache
def middles(t: DType) -> Array:
    """The numbers between neighbours, the end of the largest number among them, of both signs."""
    finite = np.unique(np.abs(values_of(t)[np.isfinite(values_of(t))]))
    top = 2 * finite[-1] - finite[-2]
    ends = (np.append(finite[1:], top) + finite) / 2
    return np.concatenate([ends, -ends])


def boundaries(t: DType, of: Any) -> Array:
    """All values, all middles and their neighbours of a wider NumPy type, and what is far beyond or no number."""
    every = np.concatenate([middles(t), values_of(t)]).astype(of)
    largest = np.finfo(of).max
    ends = np.array([np.inf, np.nan, largest, np.finfo(of).smallest_subnormal, np.finfo(of).tiny, 0.0], of)
    with np.errstate(all="ignore"):
        near = [np.nextafter(every, of(np.inf)), np.nextafter(every, of(-np.inf))]
    return np.concatenate([every, *near, ends, -ends])


def conversion(t: DType, to: DType, n: int, kind: str = "vectorized") -> Program:
    loop = "for" if kind == "serial" else f"{kind} for"
    return program(
        f"program f(A: {t}[{n}], C: {to}[{n}]) {{ {loop} i in {n} {{"
        f" block C {{ spatial v in {n} = i; C[v] = {to}(A[v]) }} }} }}"
    )


def converted(a: Array, t: DType, to: DType, kind: str = "vectorized") -> list[Array]:
    """By kernel, evaluator and interpreter, in a wide type; the stored codes of an octet are compared, too."""
    p = conversion(t, to, len(a), kind)
    stored = run(p, {"A": a})["C"]
    if to in OCTETS and t != to:  # one code of NaN
        np.testing.assert_array_equal(stored, narrow(widen(stored, to), to))
    return [widen(stored, to), evaluate(p, {"A": a})["C"], interpret(p, {"A": a})["C"]]


@pytest.mark.parametrize("t", OCTETS, ids=str)
def test_every_code_has_its_value(t: DType) -> None:
    expected = values_of(t)
    np.testing.assert_array_equal(widen(CODES, t), expected)
    np.testing.assert_array_equal([value_of(int(c), t) for c in CODES], expected)
    finite = np.isfinite(expected)
    assert [code_of(float(x), t) for x in expected[finite]] == CODES[finite].tolist()
    np.testing.assert_array_equal(narrow(expected, t)[finite], CODES[finite])
    assert np.signbit(widen(np.array([0x80], np.uint8), t)[0])
    assert largest_finite(t) == expected[finite].max()
    assert not np.isfinite(nearest(overflows_above(t) * (1 + 2**-40), t))


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("to", DTYPES.values(), ids=str)
@pytest.mark.parametrize("t", OCTETS, ids=str)
def test_every_code_goes_to_each_type(t: DType, to: DType, kind: str) -> None:
    x = values_of(t)
    if to.is_float and to not in OCTETS:
        expected = x
    elif to in OCTETS:
        with np.errstate(invalid="ignore"):
            expected = x.astype(np.float32).astype(THEIRS[to]).astype(np.float64)
    elif to.kind == "bool":
        expected = x != 0
    else:
        low, high = np.iinfo(stored_dtype(to)).min, np.iinfo(stored_dtype(to)).max
        expected = np.array([0 if np.isnan(v) else min(max(v, low), high) for v in np.trunc(x)], object).astype(
            stored_dtype(to)
        )
    for found in converted(CODES, t, to, kind):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("t", OCTETS, ids=str)
def test_every_boundary_of_f32_rounds_as_elsewhere(t: DType, kind: str) -> None:
    x = boundaries(t, np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(THEIRS[t]).astype(np.float64)
    for found in converted(x, F32, t, kind):
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found) | np.isnan(found), np.signbit(x) | np.isnan(found))
    assert np.isnan(expected).any() and np.isinf(expected).any() == (t == F8E5M2)


@pytest.mark.parametrize("t", OCTETS, ids=str)
def test_a_number_of_f64_is_rounded_once(t: DType) -> None:
    """A little more than a middle is the middle in f32, where a second rounding would go to the even neighbour."""
    x = np.concatenate([boundaries(t, np.float64), middles(t) * (1 + 2**-40), middles(t) * (1 - 2**-40)])
    finite = np.sort(values_of(t)[np.isfinite(values_of(t))])
    for found in converted(x, F64, t):
        for value, y in zip(x, found, strict=True):
            if np.isnan(value) or abs(value) > overflows_above(t):
                assert np.isnan(y) or abs(y) == np.inf
            elif abs(value) < overflows_above(t):
                assert abs(y - value) == np.abs(finite - value).min()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(converted(middles(t), F64, t)[0], middles(t).astype(THEIRS[t]).astype(float))


@pytest.mark.corpus
@pytest.mark.parametrize("t", OCTETS, ids=str)
@pytest.mark.parametrize("half", [F16, BF16], ids=str)
def test_every_number_of_16_bits(t: DType, half: DType) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        x = widen(codes, BF16) if half == BF16 else codes.view(np.float16).astype(np.float64)
        expected = x.astype(np.float32).astype(THEIRS[t]).astype(np.float64)
    a = codes if half == BF16 else codes.view(np.float16)
    p = conversion(half, t, len(a))
    with np.errstate(all="ignore"):
        found = [widen(run(p, {"A": a})["C"], t), evaluate(p, {"A": a})["C"]]
    for y in found:
        np.testing.assert_array_equal(y, expected)


@pytest.mark.corpus
@pytest.mark.parametrize("t", OCTETS, ids=str)
@pytest.mark.parametrize("of", [I64, U32, DTYPES["i16"], DTYPES["u8"]], ids=str)
def test_integers_near_the_boundaries(t: DType, of: DType) -> None:
    low, high = np.iinfo(stored_dtype(of)).min, np.iinfo(stored_dtype(of)).max
    every = {int(m) + d for m in middles(t) for d in (-1, 0, 1)} | {low, high, 2**53 + 1}
    x = np.array(sorted(n for n in every if low <= n <= high), stored_dtype(of))
    with np.errstate(all="ignore"):
        expected = x.astype(np.float64).astype(THEIRS[t]).astype(np.float64)
    for found in converted(x, of, t):
        np.testing.assert_array_equal(found, expected)


def test_the_conversion_from_f32_has_no_branch_and_calls_nothing() -> None:
    for t in OCTETS:
        text = compiled(conversion(F32, t, 64)).llvm_ir
        assert "x i32>" in text and "llvm.convert" not in text and "@__" not in text
