"""A literal takes the type of its context: the nearest value of that type, or an error."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.arrays import Array, narrow, widen
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.interpret import interpret
from tests.codegen.native import run
from tests.compute.texts import build, codes, errors, literals

FLOATS = ["f16", "bf16", "f32", "f64"]
INTEGERS = {
    "i8": 127,
    "i16": 2**15 - 1,
    "i32": 2**31 - 1,
    "i64": 2**63 - 1,
    "u8": 255,
    "u16": 2**16 - 1,
    "u32": 2**32 - 1,
    "u64": 2**64 - 1,
}


def text(t: str, value: str, before: str = "") -> str:
    """A compute whose X has type `t`, and S, I, L others."""
    given = f"X: {t}[M], S: f32[M], I: i32[M], L: i64[M]; alpha: float = 0.1"
    return f"compute c({given}) -> Y: {t}[M] {{\n    {before}Y[i] = {value}\n}}\n"


def outputs(p: Program, x: Array) -> list[Array]:
    """What reference, interpreter and kernel make of `x`, in wide types; the program's text parses back to it."""
    assert parse_program(Source("p.tsched", format_program(p))) == p
    n = len(x)
    others = {"S": np.zeros(n, np.float32), "I": np.zeros(n, np.int32), "L": np.zeros(n, np.int64)}
    given = {q.name: {"X": x, **others}[q.name] for q in p.inputs}
    dtype = p.buffer("Y").dtype
    return [evaluate(p, given)["Y"], interpret(p, given)["Y"], widen(run(p, given)["Y"], dtype)]


def nearest(t: str, x: float) -> float:
    """The value of type `t` that is nearest to `x`."""
    return float(widen(narrow(np.array(x), DTYPES[t]), DTYPES[t]))


@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize(
    "value",
    [
        "0.1", "X[i] * 0.1", "0.1 * X[i]", "0.1 / X[i] - X[i]", "min(X[i], 0.1)", "max(0.1, X[i])", "clamp(X[i], -0.1, 0.1)",
        "pow(0.1, X[i])", "pow(X[i], 0.1)", "exp(0.1) * X[i]", "select(i > 1, 0.1, X[i])", "X[i] if i > 1 else 0.1",
        "0.1 if X[i] > 0.1 else X[i]", "X[i] if 0.1 < X[i] else 0.1", "sum[k] X[k] * 0.1", "0.1 * sum[k] X[k]",
        "X[i] * -0.1", "-(0.1 * X[i])", "X[i] * (X[i] + (0.1 if i > 0 else 0.1))", "X[i] * alpha",
        "X[i] if X[i] < alpha else 0.1",
        "X[i] + sum[k in 3] 0.1", "X[i] * min(0.1, 0.1)", "scan[i] init 0.1 step 0.1 * Y[i - 1]",
    ],
)  # fmt: skip
def test_a_decimal_is_of_the_type_beside_it(value: str, t: str) -> None:
    found = {c.dtype.name for c in literals(build(text(t, value), M=4)) if abs(c.value) == 0.1}
    assert found == {t}


@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize(
    "value", ["X[i] * 0.1", "0.1 + X[i] * 0", "0.1", "min(X[i], 0.1)", "X[i] * alpha", "X[i] * (0.1 * 1)"]
)
def test_a_decimal_is_the_nearest_value_of_its_type(value: str, t: str) -> None:
    for got in outputs(build(text(t, value), M=8), narrow(np.ones(8), DTYPES[t])):
        assert got.tolist() == [nearest(t, 0.1)] * 8


@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize(
    ("value", "wanted"), [("X[i] > 0.1", 0), ("X[i] < 0.1", 0), ("X[i] == 0.1", 1), ("0.1 >= X[i]", 1)]
)
def test_a_comparison_is_with_the_nearest_value(value: str, wanted: int, t: str) -> None:
    x = narrow(np.full(8, 0.1), DTYPES[t])
    for got in outputs(build(text(t, f"1.0 if {value} else 0.0"), M=8), x):
        assert got.tolist() == [wanted] * 8


def test_a_quotient_of_literals_is_one_of_the_type_beside_it() -> None:
    x = np.linspace(0.1, 3.0, 8)
    for value in ("X[i] * (1.0 / 3.0)", "(1 / 3.0) * X[i]", "X[i] * (1 / 3)"):
        for got in outputs(build(text("f64", value), M=8), x):
            assert got.tolist() == (x * (1.0 / 3.0)).tolist()


@pytest.mark.parametrize(
    "value",
    [
        "0.1 + 0.2 > 0.5 * 0.5",
        "alpha > 0",
        "0 < alpha",
        "-0.5 < 0 < alpha",
        "inf > 1",
        "min(1, 0.5) < 1",
        "clamp(2, 0, 0.5) < 1",
    ],
)
def test_literals_that_are_compared_with_each_other(value: str) -> None:
    for got in outputs(build(text("f32", f"1.0 if {value} else 0.0"), M=4), np.zeros(4, np.float32)):
        assert got.tolist() == [1.0] * 4


@pytest.mark.parametrize("t", INTEGERS)
def test_an_integer_is_of_the_type_beside_it(t: str) -> None:
    most = INTEGERS[t]
    x = np.arange(8, dtype=narrow(np.zeros(1), DTYPES[t]).dtype)
    for value in (
        f"X[i] * 0 + {most}",
        f"{most} - X[i] + X[i]",
        f"max({most}, X[i])",
        f"{most} if X[i] < {most} else 0",
    ):
        for got in outputs(build(text(t, value), M=8), x):
            assert got.tolist() == [most] * 8, value
    for value in (f"X[i] + {most + 1}", f"{most + 1} + X[i]", f"X[i] * (1 + {most + 1})", f"min(X[i], {most + 1})",
                  f"0 if X[i] < {most + 1} else 1", f"X[i] if i > 0 else {most + 1}", "X[i] + 0.5", "min(0.5, X[i])",
                  "X[i] if X[i] > 0.5 else 0"):  # fmt: skip
        wanted = "E0106" if most + 1 > 2**63 - 1 and str(most + 1) in value else "E0414"
        if wanted == "E0414":
            assert codes(text(t, value), M=8) == [wanted], value


@pytest.mark.parametrize(
    ("t", "number"), [("f16", "70000.0"), ("f16", "65520"), ("f16", "-1e30"), ("f32", "1e39"), ("bf16", "3.5e38")]
)
def test_a_number_beyond_its_type_is_refused(t: str, number: str) -> None:
    for value in (f"X[i] * {number}", f"X[i] if X[i] < {number} else 0.0", f"{t}({number})"):
        assert codes(text(t, value), M=8) == ["E0414"]
        assert f"{number} does not fit type {t}" in errors(text(t, value), M=8)[0]
    block = f"block Y {{ spatial v in 4 = i; Y[v] = X[v] * {number} }}"
    program = f"program p(X: {t}[4], Y: {t}[4]) {{ for i in 4 {{ {block} }} }}"
    with pytest.raises(Exception, match=f"{t} does not hold"):
        parse_program(Source("p.tsched", program))


def test_the_largest_numbers_and_infinity_fit() -> None:
    for t, number in (("f16", "65504.0"), ("f16", "65519.9"), ("f32", "3.4028234e38"), ("bf16", "3.38e38")):
        (got, *_) = outputs(build(text(t, f"X[i] * 0 + {number}"), M=4), narrow(np.zeros(4), DTYPES[t]))
        assert got.tolist() == [nearest(t, float(number))] * 4 and np.isfinite(got).all()
    for t in FLOATS:
        assert (outputs(build(text(t, "max(X[i], inf)"), M=4), narrow(np.zeros(4), DTYPES[t]))[2] == np.inf).all()


@pytest.mark.parametrize(
    ("t", "value", "repair"),
    [
        ("u8", "256", "u8 holds whole numbers from 0 to 255; convert what stands beside it, `i32(…)`"),
        ("u8", "0.5", "u8 holds whole numbers from 0 to 255; convert what stands beside it, `f32(…)`"),
        ("u32", "4294967296", "u32 holds whole numbers from 0 to 4294967295; convert what stands beside it, `i64(…)`"),
        (
            "i64",
            "9223372036854775808",
            (
                "i64 holds whole numbers from -9223372036854775808 to 9223372036854775807; convert what stands beside it, "
                "`u64(…)`"
            ),
        ),
        ("f16", "70000.0", "f16 holds numbers up to 65504; convert what stands beside it, `f32(…)`"),
        ("f16", "1e39", "f16 holds numbers up to 65504; convert what stands beside it, `f64(…)`"),
        ("f32", "1e39", "f32 holds numbers up to 3.40282e+38; convert what stands beside it, `f64(…)`"),
    ],
)
def test_a_number_beyond_its_type_has_a_repair(t: str, value: str, repair: str) -> None:
    (found,) = errors(text(t, f"X[i] * {value}"), M=8)
    assert found.endswith(f"\n  = help: {repair}")


def test_a_size_below_zero_without_other_sizes_has_a_repair() -> None:
    (found,) = errors("compute f(X: f32[-1]) -> Y: f32[1] { Y[i] = 1.0 }")
    assert found.startswith("error[E0404]") and found.endswith("\n  = help: a size is 0 or more")


@pytest.mark.parametrize(
    ("t", "subscript", "repair"),
    [
        ("f32", "X[i]", "clamp(i32(X[i]), 0, 7)"),
        ("i16", "X[i]", "clamp(X[i], 0, 7)"),
        ("f32", "min(X[i], 3.0)", "clamp(i32(min(X[i], 3.0)), 0, 7)"),
        ("f32", "i + X[i]", "clamp(i + i32(X[i]), 0, 7)"),
        ("f32", "clamp(X[i], 1, 3) + i / 2", "clamp(i32(X[i]), 1, 3)"),
        ("f32", "clamp(i * X[i], 1, 3)", "clamp(i * i32(X[i]), 1, 3)"),
    ],
)
def test_the_repair_of_a_subscript_that_data_decide_is_one(t: str, subscript: str, repair: str) -> None:
    (found,) = errors(text(t, f"X[{subscript}]"), M=8)
    assert f"`{repair}`" in found
    assert build(text(t, f"X[{repair}]"), M=8).outputs
