"""Scans that begin anew where a condition holds: regrouped, they are proved, and what they compute is exact, NaN included."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import loads
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tests.codegen.native import run


@dataclass(frozen=True)
class Row:
    """The inputs of a scan, and its steps so far."""

    x: Array
    a: Array
    f: Array
    y: Array


FORMS: dict[str, tuple[str, Callable[[Row, int], object]]] = {
    "sums": ("(X[t] if F[t] != 0 else Y[t - 1] + X[t])", lambda r, t: r.x[t] if r.f[t] else r.y[t - 1] + r.x[t]),
    "ids": (
        "(X[t] if F[t] != F[t - 1] else Y[t - 1] + X[t])",
        lambda r, t: r.x[t] if r.f[t] != r.f[t - 1] else r.y[t - 1] + r.x[t],
    ),
    "greatest": (
        "(X[t] if F[t] != 0 else max(Y[t - 1], X[t]))",
        lambda r, t: r.x[t] if r.f[t] else np.maximum(r.y[t - 1], r.x[t]),
    ),
    "least, the other way round": (
        "(min(X[t], Y[t - 1]) if F[t] == 0 else X[t])",
        lambda r, t: r.x[t] if r.f[t] else np.minimum(r.y[t - 1], r.x[t]),
    ),
    "products": ("(X[t] if F[t] > 0 else Y[t - 1] * X[t])", lambda r, t: r.x[t] if r.f[t] else r.y[t - 1] * r.x[t]),
    "another value": (
        "(A[t] if F[t] != 0 else Y[t - 1] + X[t])",
        lambda r, t: r.a[t] if r.f[t] else r.y[t - 1] + r.x[t],
    ),
    "zero": ("(ZERO if F[t] != 0 else Y[t - 1] + X[t])", lambda r, t: r.x[t] * 0 if r.f[t] else r.y[t - 1] + r.x[t]),
    "factors": (
        "(X[t] if F[t] != 0 else A[t] * Y[t - 1] + X[t])",
        lambda r, t: r.x[t] if r.f[t] else r.a[t] * r.y[t - 1] + r.x[t],
    ),
    "inside of a sum": (
        "X[t] + (ZERO if F[t] != 0 else Y[t - 1])",
        lambda r, t: r.x[t] if r.f[t] else r.x[t] + r.y[t - 1],
    ),
    "inside of a product": (
        "A[t] * (X[t] if F[t] != 0 else Y[t - 1]) + X[t]",
        lambda r, t: r.a[t] * (r.x[t] if r.f[t] else r.y[t - 1]) + r.x[t],
    ),
    "three arms": (
        "(X[t] if F[t] == 1 else (A[t] if F[t] == 2 else Y[t - 1] + X[t]))",
        lambda r, t: r.x[t] if r.f[t] == 1 else r.a[t] if r.f[t] == 2 else r.y[t - 1] + r.x[t],
    ),
    "arms that keep and scale": (
        "(Y[t - 1] if F[t] == 0 else (A[t] * Y[t - 1] - X[t] if F[t] == 1 else A[t]))",
        lambda r, t: r.y[t - 1] if r.f[t] == 0 else r.a[t] * r.y[t - 1] - r.x[t] if r.f[t] == 1 else r.a[t],
    ),
    "filled": ("(X[t] if F[t] != 0 else Y[t - 1])", lambda r, t: r.x[t] if r.f[t] else r.y[t - 1]),
    "lengths": (
        "(Y[t - 1] + ONE if F[t] == F[t - 1] else ONE)",
        lambda r, t: r.y[t - 1] + 1 if r.f[t] == r.f[t - 1] else 1,
    ),
    "rows": (
        "(X[t] if t % 3 == 0 else Y[t - 1] + X[t])",
        lambda r, t: r.x[t] if t % 3 == 0 else r.y[t - 1] + r.x[t],
    ),
    "rows and flags": (
        "(X[t] if t % 5 == 4 or F[t] != 0 else Y[t - 1] + X[t])",
        lambda r, t: r.x[t] if t % 5 == 4 or r.f[t] else r.y[t - 1] + r.x[t],
    ),
    "reads that a border guards": (
        "(X[t] if t < 3 else (A[t - 3] if F[t - 3] != 0 else A[t - 3] * Y[t - 1] + X[t]))",
        lambda r, t: r.x[t] if t < 3 else r.a[t - 3] if r.f[t - 3] else r.a[t - 3] * r.y[t - 1] + r.x[t],
    ),
    "a maximum of choices": (
        "max(X[t], A[t] if F[t] != 0 else min(A[t], Y[t - 1]))",
        lambda r, t: np.maximum(r.x[t], r.a[t] if r.f[t] else np.minimum(r.a[t], r.y[t - 1])),
    ),
}

SCHEDULES = {
    "chunks": "split_scan(Y, 4, in_range=true)",
    "totals first": "split_scan(Y, 5, in_range=true, sums=true)",
    "at once": "double_scan(Y, in_range=true)",
    "chunks of chunks": (
        "let p = split_scan(Y, 6, in_range=true); split_scan(p[0], 3, in_range=true); double_scan(p[1], in_range=true)"
    ),
}

TYPES = {"f32": np.float32, "f64": np.float64, "i8": np.int8, "u16": np.uint16, "i32": np.int32, "i64": np.int64}


def text(form: str, dtype: str, n: int, schedule: str) -> str:
    number = {"ZERO": "0.0", "ONE": "1.0"} if dtype[0] == "f" else {"ZERO": "0", "ONE": "1"}
    step = FORMS[form][0]
    for word, value in number.items():
        step = step.replace(word, value)
    step = re.sub(r"\b([XAFY])\[", r"\1[i, ", step)
    return f"""compute seg(X: {dtype}[M, N], A: {dtype}[M, N], F: i32[M, N]) -> Y: {dtype}[M, N] {{
    Y[i, t] = scan[t] init X[i, 0] step {step}
}}
schedule s for seg {{ {schedule} }}
task t = seg(M={len(FLAGS)}, N={n}) with s
"""


FLAGS: dict[str, Callable[[int], Array]] = {
    "none": np.zeros,
    "all": np.ones,
    "first": lambda n: np.arange(n) == 0,
    "second": lambda n: np.arange(n) == 1,
    "last": lambda n: np.arange(n) == n - 1,
    "every fourth": lambda n: np.arange(n) % 4 == 0,
    "seventh": lambda n: np.arange(n) == 6,
    "some": lambda n: np.random.default_rng(n).integers(0, 3, n) * (np.random.default_rng(n + 1).random(n) < 0.3),
}


def inputs(dtype: str, n: int) -> dict[str, Array]:
    """A row for each way to set flags. What is made of these numbers in floats is exact."""
    rng = np.random.default_rng(n)
    x, a = (rng.choice(of, (len(FLAGS), n)).astype(TYPES[dtype]) for of in ([-2, -1, 1, 2, 3], [-1, 1, 1, 2]))
    return {"X": x, "A": a, "F": np.stack([np.asarray(of(n), np.int32) for of in FLAGS.values()])}


def expected(form: str, given: dict[str, Array]) -> Array:
    """Each row step by step."""
    rows = list[Array]()
    with np.errstate(all="ignore"):
        for x, a, f in zip(*(given[name] for name in "XAF"), strict=True):
            row = Row(x, a, f, x.copy())
            for t in range(1, len(x)):
                row.y[t] = FORMS[form][1](row, t)
            rows.append(row.y)
    return np.stack(rows)


# Proofs of chunks of chunks take seconds each.
CASES = [(f, s) for f in FORMS for s in SCHEDULES if s != "chunks of chunks" or f in ("ids", "factors", "three arms")]


@pytest.mark.corpus
@pytest.mark.parametrize(("form", "schedule"), CASES)
def test_regrouped_segments_are_proved_and_exact(form: str, schedule: str) -> None:
    for n, dtype in ((13, "f64"), (20, "i8")):
        t = loads(text(form, dtype, n, SCHEDULES[schedule]))["t"]
        program = t.sample(0).program
        assert n == 20 or isinstance(validate(t.program, program), Valid)
        given = inputs(dtype, n)
        np.testing.assert_array_equal(run(program, given)["Y"], expected(form, given))


@pytest.mark.corpus
@pytest.mark.parametrize("form", ["sums", "factors", "greatest", "another value", "inside of a sum", "filled"])
def test_what_comes_before_a_segment_is_not_in_it(form: str) -> None:
    """NaN, infinities and factors whose products leave the range are in other segments: nothing is multiplied by 0."""
    n = 23
    given = inputs("f32", n)
    x, a, f = (given[name] for name in "XAF")
    x[2:, 2], x[2:, 5], x[2:, 7] = np.nan, np.inf, -np.inf
    # Factors of steps that begin anew are not read. The others would leave the range together, with a segment between them.
    a[2:, 8] = np.nan
    a[2:, [10, 12]], a[2:, [18, 20]] = 2.0**100, 2.0**-100
    f[0], f[1] = 0, 1
    f[2:] = np.isin(np.arange(n), [3, 6, 8, 11, 16, 19, 21])
    want = expected(form, given)
    assert np.isfinite(want[:, 21:]).all()
    assert form == "filled" or not np.isfinite(want[2:, :8]).all()
    for schedule in SCHEDULES.values():
        program = loads(text(form, "f32", n, schedule))["t"].sample(0).program
        np.testing.assert_array_equal(run(program, given)["Y"], want)


@pytest.mark.corpus
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 61])
def test_segments_of_all_lengths_and_types(n: int, dtype: str) -> None:
    for form in ("sums", "ids", "factors"):
        task = loads(text(form, dtype, n, "split_scan(Y, 2, in_range=true)" if n > 2 else ""))["t"]
        given = inputs(dtype, n)
        np.testing.assert_array_equal(run(task.sample(0).program, given)["Y"], expected(form, given))


FAULTS = [
    ("Y_reset[vi, vt / 4, vt % 4]", "Y_reset[vi, vt / 4, 3]"),
    ("Y_reset[vi, vt / 4, vt % 4]", "F[vi, vt] != 0"),
    ("Y_reset[vi, vt_0, 3]", "Y_reset[vi, vt_0, 2]"),
    ("Y_reset[vi, vt_0, vt_1 - 1] or", "Y_reset[vi, vt_0, vt_1 - 1] and"),
    ("false if vt_0 < 1 else F[vi, vt_0 * 4] != 0", "false"),
    ("F[vi, vt_0 * 4 + vt_1] != 0", "F[vi, vt_0 * 4 + vt_1] > 0"),
    ("if Y_reset[vi, vt_0, 3] else", "if F[vi, vt_0 * 4 + 3] != 0 else"),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("right", "wrong"), FAULTS)
def test_a_fault_in_a_segmented_scan_is_not_proved(right: str, wrong: str) -> None:
    t = loads(text("sums", "f64", 12, SCHEDULES["chunks"]))["t"]
    made = format_program(t.sample(0).program)
    assert right in made
    assert not isinstance(validate(t.program, parse_program(Source("faulty", made.replace(right, wrong)))), Valid)
