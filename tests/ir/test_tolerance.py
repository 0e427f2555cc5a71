"""Tolerances: wide enough for a right kernel in any order of summation, too narrow for a wrong one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.dtypes import F16, F32
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.measure.check import compare
from tests.compute.texts import OPS, build, made, std


def setup(
    p: Program, inputs: dict[str, Array] | None = None
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    x = make_inputs(p, 1) if inputs is None else inputs
    return x, *bounded(p, x)


@pytest.mark.parametrize("normal", [False, True])
def test_a_lost_term_is_caught_and_rounding_is_not(normal: bool) -> None:
    p = made(std("matmul"), M=48, N=48, K=1024)
    x = make_inputs(p, 1)
    if normal:
        rng = np.random.default_rng(0)
        x = {n: rng.standard_normal(a.shape).astype(np.float32) for n, a in x.items()}
    x, y, tol = setup(p, x)
    a, b = x["A"], x["B"]
    serial = np.zeros((48, 48), np.float32)
    for k in range(1024):  # the order with the largest errors
        serial += a[:, k : k + 1] * b[k : k + 1]
    assert (np.abs(serial - y["C"]) <= tol["C"]).all()
    assert (np.abs(a @ b - y["C"]) <= 0.2 * tol["C"]).all()
    lost = y["C"] - a[:, -1:].astype(np.float64) * b[-1:]
    assert (np.abs(lost - y["C"]) > tol["C"]).mean() > 0.95
    assert (np.abs(y["C"]) > tol["C"]).mean() > 0.99  # all zeros


def test_every_order_of_summation_passes_for_equal_signs() -> None:
    p = build("compute f(A: f32[M, K]) -> C: f32[M] { C[i] = sum[k] A[i, k] }", M=16, K=4096)
    x = {"A": np.random.default_rng(1).uniform(0.5, 1, (16, 4096)).astype(np.float32)}
    x, y, tol = setup(p, x)
    assert (np.abs(np.cumsum(x["A"], axis=1, dtype=np.float32)[:, -1] - y["C"]) <= tol["C"]).all()
    assert (tol["C"] < 0.5).all()


def test_a_long_sum_of_squares_in_order_loses_too_much_and_one_in_parts_does_not() -> None:
    n = 2**22
    p = build("compute f(A: f32[K]) -> C: f32[1] { C[i in 1] = sum[k] A[k] * A[k] }", K=n)
    x, y, tol = setup(p)
    squares = x["A"] * x["A"]
    (in_order,) = np.cumsum(squares, dtype=np.float32)[-1:]
    assert abs(in_order - y["C"][0]) > 3 * tol["C"][0]
    parts = np.cumsum(squares.reshape(-1, 65536), axis=1, dtype=np.float32)[:, -1]
    assert abs(np.cumsum(parts, dtype=np.float32)[-1] - y["C"][0]) < 0.1 * tol["C"][0]


def test_softmax_in_f32_passes_and_a_sum_without_its_last_term_does_not() -> None:
    p = made(std("softmax"), M=16, N=257)
    x, y, tol = setup(p)
    e = np.exp(x["X"] - x["X"].max(axis=1, keepdims=True))
    right = e / e.sum(axis=1, keepdims=True)
    assert right.dtype == np.float32
    assert (np.abs(right - y["Y"]) <= tol["Y"]).all()
    wrong = e / (e.sum(axis=1, keepdims=True) - e[:, -1:])
    assert (np.abs(wrong - y["Y"]) > tol["Y"]).all()
    assert (y["Y"] > tol["Y"]).all()


def test_errors_flow_from_stage_to_stage() -> None:
    text = """compute f(A: f32[M, K], B: f32[K, N], D: f32[N, N]) -> E: f32[M, N] {
        let c[i, j] = sum[k] A[i, k] * B[k, j]
        E[i, j] = sum[k] c[i, k] * D[k, j]
    }"""
    p = build(text, M=32, N=64, K=64)
    x, y, tol = setup(p)
    assert (np.abs(x["A"] @ x["B"] @ x["D"] - y["E"]) <= tol["E"]).all()
    single = made(std("matmul"), M=32, N=64, K=64)
    _, _, one = setup(single, {"A": evaluate(single, {"A": x["A"], "B": x["B"]})["C"], "B": x["D"]})
    assert (tol["E"] > one["C"]).all()


def test_narrow_types_have_wider_tolerances_and_integers_none() -> None:
    def of(dtype: str) -> float:
        return float(
            setup(build(f"compute f(A: {dtype}[M]) -> C: {dtype}[M] {{ C[i] = A[i] * 3 }}", M=9))[2]["C"].max()
        )

    assert of("i32") == 0.0
    assert 0 < of("f64") < of("f32") < of("f16") < of("bf16") < 0.05


def test_a_kernel_of_f64_may_round_less_often_than_the_reference() -> None:
    """A reference of f64 rounds each operation, as a kernel does, and a kernel may round a product and a sum together."""
    text = "compute f(A: f64[M], B: f64[M]) -> C: f64[M], D: f64[M] { C[i] = 3 * A[i] + B[i]; D[i] = A[i] / 8 * B[i] + B[i] }"
    x, y, tol = setup(build(text, M=2000))
    pairs = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(x["A"], x["B"], strict=True)]
    fused = {"C": [float(3 * a + b) for a, b in pairs], "D": [float(a / 8 * b + b) for a, b in pairs]}
    for name, want in fused.items():
        assert (y[name] != want).any()
        assert (np.abs(y[name] - want) <= tol[name]).all()
        assert (tol[name] < 1e-14).all()


def test_maxima_select_and_maths_functions() -> None:
    text = """compute f(X: f32[M, N]) -> A: f32[M], B: f32[M, N], C: f32[M], D: i32[M, N] {
        A[i] = max[j] X[i, j]
        B[i, j] = log(abs(X[i, j])) if X[i, j] > 0 else tanh(X[i, j]) / 3
        C[i] = prod[j] X[i, j]
        D[i, j] = i32(floor(X[i, j] * 100))
    }"""
    x, y, tol = setup(build(text, M=7, N=11))
    f = x["X"]
    assert (tol["A"] < 1e-30).all()
    with np.errstate(divide="ignore"):
        b = np.where(f > 0, np.log(np.abs(f)), np.tanh(f) / np.float32(3))
    assert (np.abs(b - y["B"]) <= tol["B"]).all() and (tol["B"] < 1e-5).all()
    assert (np.abs(np.prod(f, axis=1) - y["C"]) <= tol["C"]).all()
    assert (np.abs(y["C"]) > tol["C"]).all()
    assert (np.abs(np.floor(f * np.float32(100)) - y["D"]) <= tol["D"]).all() and (tol["D"] <= 1).all()


@pytest.mark.parametrize("mask", ["-1e9", "-1e30", "-3e38"])
def test_what_is_masked_has_no_error_that_counts(mask: str) -> None:
    """The rounding of a mask is larger than all values, and none of a maximum that the mask does not reach."""
    text = f"""compute f(X: f32[M, N], L: i32[M]) -> Y: f32[M, N], A: f32[M, N], B: f32[M], C: f32[M] {{
        let s[i, j] = X[i, j] * 0.3 + (0.0 if i32(j) < L[i] else {mask})
        let m[i] = max[j] s[i, j]
        let e[i, j] = exp(s[i, j] - m[i])
        let z[i] = sum[j] e[i, j]
        Y[i, j] = e[i, j] / z[i]
        A[i, j] = max(X[i, j] * 0.3, X[i, j] * 0.3 + {mask}) + min(X[i, j] * 0.3, X[i, j] * 0.3 - {mask})
        B[i] = min[j] -s[i, j]
        let t[j] = X[0, j] * 0.3 + (0.0 if j % 2 == 0 else {mask})
        C[i] = max[j] (t[j] if j / 2 % 2 == i else {mask})
    }}"""
    x, y, tol = setup(
        build(text, M=2, N=11), {**make_inputs(build(text, M=2, N=11), 1), "L": np.array([3, 11], np.int32)}
    )
    assert all((tol[name] < 1e-5).all() for name in y)
    s = x["X"] * np.float32(0.3) + np.where(np.arange(11) < x["L"][:, None], 0, float(mask))
    e = np.exp(s - s.max(1, keepdims=True))
    assert (np.abs(e / e.sum(1, keepdims=True) - y["Y"]) <= tol["Y"]).all()
    assert (np.abs(-s.max(1) - y["B"]) <= tol["B"]).all()


@pytest.mark.parametrize("scaled", ["* rsqrt(f32(N))", "* Z[i]", "/ Z[i]", "* -Z[i] * -1.0"])
def test_a_scaled_mask_of_infinity_has_no_error(scaled: str) -> None:
    """The scale is rounded, and the infinity is not: the exponential is 0, and those beside it have small errors."""
    text = f"""compute f(X: f32[M, N], S: f32[M]) -> Y: f32[M, N] {{
        let Z[i] = S[i] * 0.3
        let s[i, j] = X[i, j] * 0.3 if j <= i else -inf
        let m[i] = max[j] s[i, j]
        let e[i, j] = exp((s[i, j] - m[i]) {scaled})
        let z[i] = sum[j] e[i, j]
        Y[i, j] = e[i, j] / z[i]
    }}"""
    p = build(text, M=3, N=5)
    _, y, tol = setup(p, {**make_inputs(p, 1), "S": np.ones(3, np.float32)})
    assert (tol["Y"] < 1e-5).all() and (y["Y"][0] == [1, 0, 0, 0, 0]).all()
    if "Z" not in scaled:
        return
    # A scale that may be 0 within its error makes NaN of an infinity.
    q = build(text.replace("S[i] * 0.3", "S[i] * 0.3 - 0.3"), M=3, N=5)
    _, _, tol = setup(q, {**make_inputs(q, 1), "S": np.ones(3, np.float32)})
    assert not (tol["Y"][:2] < 1).any()


def test_an_error_counts_where_it_may_decide() -> None:
    """A value that may be the greatest within its error gives its error to the result."""
    text = """compute f(X: f32[M], Y: f32[M]) -> A: f32[M], B: f32 {
        let big[i] = (X[i] + 1e6) - 1e6
        A[i] = max(big[i], Y[i])
        B = max[i] big[i]
    }"""
    given = {"X": np.full(3, 1.0, np.float32), "Y": np.array([1.01, 1.2, 2.0], np.float32)}
    _, _, tol = setup(build(text, M=3), given)
    assert tol["A"][0] > 0.05 and tol["A"][2] < 1e-6 and tol["B"] > 0.05


@pytest.mark.parametrize("function", ["exp", "exp2", "expm1", "tanh", "erf", "sigmoid", "atan"])
def test_a_large_error_does_not_leave_the_limits_of_a_function(function: str) -> None:
    """f32 has -1e9 to within 32 only, and functions have their limits there; near 0 an error counts as ever."""
    text = f"""compute f(X: f32[M]) -> A: f32[M], B: f32[M] {{
        let s[i] = X[i] - 1e9
        let t[i] = X[i] * 0.5
        A[i] = {function}(s[i])
        B[i] = {function}(t[i])
    }}"""
    _, _, tol = setup(build(text, M=5))
    assert (tol["A"] < 1e-5).all()
    assert (tol["B"] > 1e-9).all() and (tol["B"] < 1e-5).all()


@pytest.mark.parametrize("term", ["r[i] * r[i]", "r[i] * X[i] * r[i]", "r[i] * r[i] * r[i]"])
def test_a_sum_of_products_of_what_cancels_may_be_that_of_the_errors(term: str) -> None:
    """A residual is 0 in the reference, and the rounding of what it is made of in a kernel."""
    text = f"""compute f(X: f32[M]) -> y: f32, r: f32[M] {{
        r[i] = X[i] * 0.5 - 0.5
        y = sum[i] {term}
    }}"""
    _, y, tol = setup(build(text, M=3), {"X": np.ones(3, np.float32)})
    assert (y["r"] == 0).all() and (tol["r"] > 1e-8).all()
    r = tol["r"] - 1e-30
    assert (np.abs(sum(r ** term.count("r"))) <= tol["y"]).all() and tol["y"] < 1e-13


def test_where_the_reference_is_not_finite_there_is_no_tolerance() -> None:
    p = build("compute f(A: f32[M]) -> C: f32[M] { C[i] = 1 / A[i] }", M=3)
    x = {"A": np.array([0.0, 1.0, np.nan], np.float32)}
    _, _, tol = setup(p, x)
    assert tol["C"][0] == 0 and tol["C"][2] == 0 and 0 < tol["C"][1] < 1e-6


def test_the_error_of_one_value_is_carried_on() -> None:
    """As that of an array of one element: an exact input has no error, a sum without dimensions has one."""
    stages = "let t{of} = sum[k] A[k]\n Y[i] = A[i] / t{at}"
    head = "compute f(A: f32[K]) -> Y: f32[K] {"
    one = build(f"{head} {stages.format(of='', at='')} }}", K=512)
    array = build(f"{head} {stages.format(of='[n in 1]', at='[0]')} }}", K=512)
    x = make_inputs(one, 1)
    np.testing.assert_array_equal(setup(one, x)[2]["Y"], setup(array, x)[2]["Y"])


def test_an_infinity_of_exact_operands_has_no_error() -> None:
    """It had an infinite one: a log of a sum of exponentials, which starts at -inf, was allowed to be any number."""
    text = """compute f(X: f32[M]) -> A: f32[M], B: f32[M], C: f32[M], D: f32[M] {
        let far[i] = -inf if X[i] < 100.0 else X[i]
        A[i] = exp(far[i] - X[i]) + X[i]
        B[i] = X[i] + 1 / (X[i] / 0.0)
        C[i] = max(far[i] * 2 * X[i], X[i] * 3)
        D[i] = exp(log(X[i] * 0.0)) + X[i]
    }"""
    numbers = np.linspace(1, 2, 9, dtype=np.float32)
    for p, x in ((build(text, M=9), numbers), (build((OPS / "logsumexp.tsched").read_text(), M=1, N=9), numbers[None])):
        _, _, tol = setup(p, {"X": x})
        assert all(0 < t.max() < 1e-5 for t in tol.values()), tol


def test_an_infinity_of_a_rounded_operand_may_be_any_number() -> None:
    """The sum is 0 in the reference, and about 1e-8 in a kernel that adds in another order."""
    p = build("compute f(X: f32[K]) -> C: f32[1] { let t = sum[k] X[k]\n C[i in 1] = exp(log(t * t)) + X[0] }", K=4)
    _, y, tol = setup(p, {"X": np.array([0.1, 1.0, -1.0, -0.1], np.float32)})
    assert np.isfinite(y["C"]).all() and (tol["C"] > 1.0).all()


@pytest.mark.parametrize("factor", ["", "0.5 * "])
def test_the_terms_of_a_running_sum_may_be_grouped_otherwise(factor: str) -> None:
    """The sums so far are small, and those of other groups of terms are large."""
    program = build(
        f"compute f(X: f32[N]) -> Y: f32[N] {{ Y[i] = scan[i] init X[0] step {factor}Y[i - 1] + X[i] }}", N=3
    )
    x = np.array([2**20, -(2**19) if factor else -(2**20), 0.3], np.float32)
    values, allowed = bounded(program, {"X": x})
    share = np.float32(0.5 if factor else 1.0)
    grouped = share * share * x[0] + (share * x[1] + x[2])
    assert 1e-3 < abs(grouped - values["Y"][2]) <= allowed["Y"][2] < 10
    assert allowed["Y"][0] < 1


BEYOND = {
    "exp(X[n]) / (1.0 + exp(X[n]))": lambda x: np.exp(x) / (1 + np.exp(x)),
    "1.0 / (1.0 + exp(-X[n]))": lambda x: 1 / (1 + np.exp(-x)),
    "log(exp(X[n])) - X[n]": lambda x: np.log(np.exp(x)) - x,
    "tanh(exp(X[n])) + min(exp(X[n]), 6.0)": lambda x: np.tanh(np.exp(x)) + np.minimum(np.exp(x), x.dtype.type(6)),
    "X[n] * X[n] * 0.5 - X[n] * X[n]": lambda x: x * x * x.dtype.type(0.5) - x * x,
    "sqrt(X[n] * X[n] * X[n] * X[n])": lambda x: np.sqrt(x * x * x * x),
    "X[n] / (X[n] * X[n]) * X[n]": lambda x: x / (x * x) * x,
}
"""Results that are numbers in f64 and overflow or vanish on the way in a narrower type."""


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_what_leaves_its_type_on_the_way_may_be_what_it_leaves_it_for(dtype: str) -> None:
    narrow = np.dtype({"f32": "float32", "f16": "float16"}[dtype]).type
    stored = {"f32": F32, "f16": F16}[dtype]
    outputs = ", ".join(f"Y{k}: {dtype}[N]" for k in range(len(BEYOND)))
    stages = "\n".join(f"let s{k}[n] = {e}\n Y{k}[n] = s{k}[n] + 0.0 * X[n]" for k, e in enumerate(BEYOND))
    program = build(f"compute f(X: {dtype}[N]) -> {outputs} {{ {stages} }}", N=400)
    largest = float(np.finfo(narrow).max)
    powers = np.linspace(-0.6, 0.6, 200) * np.log10(largest)
    x = np.concatenate([np.linspace(-120, 120, 200), 10**powers]).astype(narrow)
    _, want, allowed = setup(program, {"X": x})
    for k, f in enumerate(BEYOND.values()):
        with np.errstate(all="ignore"):
            got = (f(x) + narrow(0) * x).astype(np.float64)
        name = f"Y{k}"
        assert compare(name, got, want[name], allowed[name], stored).fault == ""
        held = np.isfinite(allowed[name])
        assert held.mean() > 0.3 and ((np.abs(x[~held]) > 8) | (x[~held] < 0.01)).all()
        wrong = np.where(held & np.isfinite(got), got + 0.1 * np.abs(want[name]) + 0.01, got)
        assert compare(name, wrong, want[name], allowed[name], stored).fault


def test_sums_and_products_may_overflow_in_another_order() -> None:
    text = """compute f(X: f32[M, N]) -> S: f32[M], P: f32[M], I: i32[M] {
        S[i] = sum[j] X[i, j]
        P[i] = prod[j] X[i, j]
        I[i] = argmax[j] X[i, j] * 1.0e20
    }"""
    rows = [[3e38, 3e38, -3e38, 1], [3e38, 1, 2, 3], [1e20, 1e20, 1e-30, 1], [1e-30, 1e-30, 1e30, 2], [1, 2, 3, 4]]
    _, y, tol = setup(build(text, M=5, N=4), {"X": np.array(rows, np.float32)})
    assert np.isinf(tol["S"]).tolist() == [True, False, False, False, False]
    assert np.isinf(tol["P"]).tolist() == [False, False, True, False, False]
    assert tol["P"][3] >= y["P"][3] and tol["P"][4] < 1e-4
    assert tol["I"].tolist() == [1, 0, 1, 0, 0]


NEAR = "compute f(A: f32[M, K], T: f32[5]) -> C: {} {{ let s[i] = sum[k] A[i, k]\n {} }}"
"""Stages over sums of which some may be off by much: those of `CANCELS`."""
CANCELS = np.asarray([[1e8, 2.0, -1e8], [2.0, 1.0, 1.0], [0.0, 1.0, 0.0]], np.float32)
"""In order, the first row is 0 in f32, and its exact sum 2."""
BIN = "T[i + 1] if i32(floor(s[i])) == i32(b) else"


@pytest.mark.parametrize(
    ("dtype", "stage", "of_two", "of_none"),
    [
        ("f32[M]", "C[i] = 7.0 if s[i] > 1.0 else 3.0", [7, 7, 3], [3, 7, 3]),
        ("f32[M]", "C[i] = s[i] if s[i] > 1.0 else 0.0", [2, 4, 0], [0, 4, 0]),
        ("bool[M]", "C[i] = s[i] > 1.5 and s[i] < 5.0", [True, True, False], [False, True, False]),
        ("bool[M]", "C[i] = not (s[i] <= 1.5 or s[i] > 5.0)", [True, True, False], [False, True, False]),
        ("i32[M]", "C[i] = i32(s[i] > 1.0) + i32(floor(s[i]))", [3, 5, 1], [0, 5, 1]),
        ("f32[M]", "C[i] = T[clamp(i32(floor(s[i])), 0, 4)]", [20, 40, 10], [0, 40, 10]),
        ("f32[5]", f"C[b in 5] = sum[i] ({BIN} 0.0)", [0, 30, 10, 0, 20], [10, 30, 0, 0, 20]),
        ("f32[5]", f"C[b in 5] = max[i] ({BIN} -inf)", [-np.inf, 30, 10, -np.inf, 20], [10, 30, -np.inf, -np.inf, 20]),
        ("bool", "C = any[i] s[i] > 1.5 and s[i] < 3.0", [True], [False]),
    ],
)  # fmt: skip
def test_what_rounding_decides_may_be_either(dtype: str, stage: str, of_two: list[float], of_none: list[float]) -> None:
    p = build(NEAR.format(dtype, stage), M=3, K=3)
    table = np.arange(5, dtype=np.float32) * 10
    _, y, tol = setup(p, {"A": CANCELS, "T": table})
    assert np.ravel(y["C"]).tolist() == of_two
    assert compare("C", np.reshape(np.asarray(of_none, y["C"].dtype), y["C"].shape), y["C"], tol["C"]).fault == ""


@pytest.mark.parametrize(
    ("dtype", "stage"),
    [
        ("f32[M]", "C[i] = 7.0 if s[i] > 1e9 else 3.0"),
        ("f32[M]", "let m = max[i] s[i]\n C[i] = 7.0 if s[i] == m else 3.0"),
        ("f32[M]", "C[i] = sum[j in M] (T[i] if s[j] < s[i] and i == j else 0.0)"),
        ("i32[M]", "let q[i] = i32(floor(s[i]))\n C[i] = sum[j in M] i32(q[j] == q[i] and i == j)"),
        ("bool", "C = any[i] s[i] > 1.5"),
        ("bool", "C = all[i] s[i] > 3.5"),
    ],
)
def test_what_rounding_does_not_decide_is_exact(dtype: str, stage: str) -> None:
    p = build(NEAR.format(dtype, stage), M=3, K=3)
    _, y, tol = setup(p, {"A": CANCELS, "T": np.arange(5, dtype=np.float32)})
    far = 1 if np.ndim(y["C"]) else ()
    assert float(tol["C"][far]) < 1e-30


def test_terms_far_from_where_rounding_decides_are_exact() -> None:
    p = build(NEAR.format("f32[M]", "C[i] = 7.0 if s[i] > 1.0 else 3.0"), M=3, K=3)
    _, _, tol = setup(p, {"A": CANCELS, "T": np.zeros(5, np.float32)})
    assert (tol["C"] > 1).tolist() == [True, False, False]
