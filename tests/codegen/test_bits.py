"""Functions of bits and conditions of floats: on a CPU, and both references, against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.ir.arrays import Array, stored_dtype, widen
from tensorc_dsl.ir.dtypes import DTYPES, DType
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.interpret import interpret
from tests.codegen.native import program, run
from tests.codegen.test_types import elementwise

INTEGERS = [t for t in DTYPES.values() if t.is_integer]
N = 96


def expected(function: str, t: DType, x: int, y: int) -> int:
    """The value by the definition, on Python's integers."""
    width, mask = t.bits, 2**t.bits - 1
    u = x & mask
    match function:
        case "bit_and":
            return x & y
        case "bit_or":
            return x | y
        case "bit_not":
            made = ~u & mask
        case "shift_left":
            made = (u << y) & mask if 0 <= y < width else 0
        case "shift_right":
            return x >> y if 0 <= y < width else -1 if x < 0 else 0
        case "popcount":
            made = u.bit_count()
        case "clz":
            made = width - u.bit_length()
        case "ctz":
            made = (u & -u).bit_length() - 1 if u else width
        case "sign":
            return (x > 0) - (x < 0)
        case _:
            raise AssertionError(function)
    return made - 2**width if t.kind == "int" and made >> (width - 1) else made


def numbers(t: DType) -> tuple[Array, Array]:
    """All bits at random and the ends; half of the second ones are about as large as widths, and negative."""
    info, rng = np.iinfo(stored_dtype(t)), np.random.default_rng(t.bits)
    x, y = rng.integers(info.min, info.max, (2, N), info.dtype, endpoint=True)
    ends = np.array([0, 1, info.max, info.min, info.max // 2, 3], info.dtype)
    x[: len(ends)], x[10:16], y[4:10] = ends, ends, ends
    some = rng.integers(-2 if t.kind == "int" else 0, t.bits + 3, N).astype(info.dtype)
    return x, np.where(np.arange(N) % 2 == 0, some, y)


@pytest.mark.corpus
@pytest.mark.parametrize("t", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "function", ["bit_and", "bit_or", "bit_not", "shift_left", "shift_right", "popcount", "clz", "ctz", "sign"]
)
def test_functions_of_integers_are_those_of_python(function: str, t: DType) -> None:
    x, y = numbers(t)
    two = MATHS[function].count == 2
    given = {"A": x, "B": y} if two else {"A": x}
    text = elementwise(
        f"{function}({'A[v], B[v]' if two else 'A[v]'})", "vectorized", dict.fromkeys((*given, "C"), str(t)), N
    )
    p = program(text)
    want = [expected(function, t, a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert run(p, given)["C"].tolist() == want
    assert evaluate(p, given)["C"].tolist() == want
    assert interpret(p, given)["C"].tolist() == want


@pytest.mark.parametrize("t", ["f16", "bf16", "f32", "f64"])
def test_what_is_no_number_or_infinite_is_told(t: str) -> None:
    some = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -3.0e4, 6e-8]
    dtype = DTYPES[t]
    with np.errstate(over="ignore"):
        x = np.resize(np.array(some, np.float32).view(np.uint32) >> 16, 16).astype(np.uint16) if t == "bf16" else (
            np.resize(np.array(some, stored_dtype(dtype)), 16)
        )  # fmt: skip
    wide = widen(x, dtype)
    body = "f32(isnan(A[v])) + f32(isinf(A[v])) * 2.0 + (4.0 if isfinite(A[v]) else 0.0)"
    p = program(elementwise(body, "vectorized", {"A": t, "C": "f32"}, 16))
    want = np.isnan(wide) + 2.0 * np.isinf(wide) + 4.0 * np.isfinite(wide)
    for got in (run(p, {"A": x}), evaluate(p, {"A": x}), interpret(p, {"A": x})):
        np.testing.assert_array_equal(got["C"], want)
