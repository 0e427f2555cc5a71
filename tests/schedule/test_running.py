"""What `split_scan` and `double_scan` make is proved by the validator, and a fault in it is refuted."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.proof.equivalence.validate import Invalid, Valid, validate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitives.split_scan import split_scan
from tensorc_dsl.schedule.step import BlockRef
from tests.compute.texts import build
from tests.primitives.cases import all_cases, before_program

CASES = {c.name: c for c in all_cases()}

VARIES = "split_scan: a recursive filter with a factor for each step"
POWERS = "split_scan: a filter with one factor for all steps"
FAULTS = [
    ("split_scan: chunks of four steps", "Y_chunk[vt_0, 3, vi]", "Y_chunk[vt_0, 2, vi]"),  # another carry
    ("split_scan: chunks of four steps", "Y_carry[vt / 4 - 1, vi]", "Y_carry[vt / 4, vi]"),
    ("split_scan: chunks of four steps", "if vt < 4", "if vt < 5"),
    # A step that adds nothing, behind the first one of its chunk.
    (
        "split_scan: steps that are no whole chunks",
        "1, vi] + (X[vt_0 * 4 + vt_1, vi] if vt_0 * 4 + vt_1 < 10",
        "1, vi] + (X[vt_0 * 4 + vt_1, vi] if vt_0 * 4 + vt_1 < 9",
    ),
    ("split_scan: a scan along rows that runs back", "max(Y_carry", "min(Y_carry"),
    ("double_scan: four steps", "Y_last2[vt - 2, vi]", "Y_last2[vt - 1, vi]"),  # a term twice
    (VARIES, "Y_factor[vt_0, 3, vi] * Y_carry", "Y_factor[vt_0, 2, vi] * Y_carry"),  # one factor less
    (VARIES, "A[vt_0 * 4, vi]) if", "1.0) if"),
    (VARIES, "Y_factor[vt / 4, vt % 4, vi] * Y_carry[vt / 4 - 1, vi]", "Y_carry[vt / 4 - 1, vi]"),
    (POWERS, "Y_factor[vt % 4]", "Y_factor[3]"),
    (POWERS, "Y_factor[vt_1 - 1] * -0.5", "Y_factor[vt_1 - 1] * 0.5"),
    (POWERS, "Y_factor[vt_1 - 1] * -0.5", "Y_factor[vt_1 - 1]"),
    ("split_scan: a maximum that decays", "Y_factor[vt_1 - 1] + -0.25", "Y_factor[vt_1 - 1]"),
    ("double_scan: a recursive filter", "Y_factor1[vt - 1, vi] * Y_factor1[vt, vi]", "Y_factor1[vt, vi]"),
    ("double_scan: a recursive filter", "Y_factor1[vt, vi] * Y_last1", "Y_factor1[vt - 1, vi] * Y_last1"),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("case", "right", "wrong"), FAULTS)
def test_a_fault_in_a_scan_is_refuted(case: str, right: str, wrong: str) -> None:
    found = CASES[case]
    assert right in found.expected
    after = parse_program(Source("faulty", found.expected.replace(right, wrong, 1)))
    assert isinstance(validate(before_program(found), after), Invalid)


def scheduled(step: str, dtype: str, schedule: str, size: str) -> Task:
    text = f"""
compute scanned(X: {dtype}[N], A: {dtype}[N]) -> Y: {dtype}[N] {{ Y[t] = scan[t] init X[0] step {step} }}
schedule s for scanned {{ {schedule} }}
task t = scanned(N={size}) with s
"""
    return loads(text)["t"]


IN_RANGE = "no product of the factors of a scan leaves the range of its type where the steps do not"

ROUNDS = "let parts = split_scan(Y, 8); double_scan(parts[0]); double_scan(parts[1])"

PROVED = {
    "thirty-two lanes twice": ("Y[t - 1] + X[t]", "i32", ROUNDS.replace("8", "32"), "1000"),
    "an open number of steps": ("A[t] * Y[t - 1] + X[t]", "f32", "split_scan(Y, 8, in_range=true)", "1..1000"),
    "sums before": ("A[t] * Y[t - 1] + X[t]", "f32", "split_scan(Y, 5, in_range=true, sums=true)", "101"),
    "all steps at once": ("A[t] * Y[t - 1] + X[t]", "f32", "double_scan(Y, in_range=true)", "32"),
    "powers of two lanes": ("X[t] - 0.5 * Y[t - 1]", "f64", "double_scan(Y)", "16"),
    "a factor beside": ("2 * Y[t - 1] * A[t] + X[t] + 1", "i32", "split_scan(Y, 3)", "10"),
    "a maximum of sums": ("max(X[t], Y[t - 1] + A[t])", "f64", "split_scan(Y, 4, in_range=true)", "23"),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", PROVED)
def test_scans_are_proved(case: str) -> None:
    t = scheduled(*PROVED[case])
    said = (IN_RANGE,) if "in_range" in PROVED[case][2] else ()
    assert validate(t.program, t.sample(0).program) == Valid(said)


STEPS = [
    ("A[t] * Y[t - 1] + X[t]", "u8"),
    ("X[t] - Y[t - 1] * A[t]", "i16"),
    ("X[t] - Y[t - 1]", "i64"),
    ("Y[t - 1] * 3 * A[t] - X[t]", "i32"),
    ("min(max(A[t], Y[t - 1]), X[t])", "i8"),
    ("max(X[t], min(Y[t - 1], A[t]))", "f32"),
    ("(Y[t - 1] and A[t]) or X[t]", "bool"),
    ("X[t] and (Y[t - 1] or A[t])", "bool"),
    ("max(X[t], A[t] + Y[t - 1])", "f64"),
    ("min(Y[t - 1] - A[t], X[t])", "f64"),
    ("A[t] * Y[t - 1] + X[t]", "f64"),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("step", "dtype"), STEPS)
def test_regrouped_steps_compute_the_same(step: str, dtype: str) -> None:
    rng = np.random.default_rng(len(step))
    for schedule in ("split_scan(Y, LENGTH)", "split_scan(Y, LENGTH, sums=true)", ROUNDS, "double_scan(Y)"):
        size = int(rng.choice([17, 31, 53]))
        if dtype == "f64":
            schedule = schedule.replace("Y)", "Y, true)").replace("LENGTH", "LENGTH, true").replace("])", "], true)")
            schedule = schedule.replace("Y, 8)", "Y, 8, true)")
        t = scheduled(step, dtype, schedule.replace("LENGTH", str(rng.integers(2, size))), str(size))
        inputs = make_inputs(t.program, size)
        one, other = (interpret(p, inputs, "forward")["Y"] for p in (t.program, t.sample(0).program))
        if dtype == "f64":
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(other, one)


REFUSED = [
    ("max(X[t], A[t] + Y[t - 1])", "i32"),  # a sum may wrap around
    ("max(X[t], A[t] * Y[t - 1])", "f32"),  # a negative factor turns the order round
    ("A[t] * (Y[t - 1] + X[t])", "f32"),
    ("X[t] - A[t] - Y[t - 1] * Y[t - 1]", "f32"),
    ("A[t] * Y[t - 1] + Y[t - 1]", "f32"),
]


@pytest.mark.parametrize(("step", "dtype"), REFUSED)
def test_other_steps_are_refused(step: str, dtype: str) -> None:
    t = scheduled(step, dtype, "split_scan(Y, 8)", "64")
    with pytest.raises(Exception, match="E0646"):
        t.sample(0)


@pytest.mark.parametrize(
    ("step", "sums", "made"),
    [
        ("Y[t - 1] + X[t]", False, ["chunk", "carry"]),
        ("Y[t - 1] + X[t]", True, ["chunk", "carry", "sum"]),
        ("0.5 * Y[t - 1] + X[t]", False, ["chunk", "carry", "factor"]),
        ("0.5 * Y[t - 1] + X[t]", True, ["chunk", "carry", "sum", "factor"]),
        ("A[t] * Y[t - 1] + X[t]", True, ["chunk", "carry", "sum", "factor", "factor_sum"]),
    ],
)
def test_the_reference_counts_the_blocks_of_split_scan(step: str, sums: bool, made: list[str]) -> None:
    program = build(f"compute f(X: f32[T], A: f32[T]) -> Y: f32[T] {{ Y[t] = scan[t] init X[0] step {step} }}", T=12)
    blocks = split_scan(program, BlockRef("Y"), 4, in_range=True, sums=sums).results
    assert [b.name for b in blocks] == [f"Y_{n}" for n in made]
    words = " ".join((split_scan.__doc__ or "").split())
    _, _, said = words.partition("The result is the list of the blocks that are made")
    named = re.findall(r"`<block>_(\w+)`", said.partition(". ")[0])
    assert [n for n in named if n in made] == made


# A product of factors leaves the range of a type where no step does: nothing says that it is right, and `verify` does not.

UNSOUND = {
    "a power below f32": ("0.1 * Y[t - 1] + X[t]", "f32", "split_scan(Y, 38)", "100"),
    "a power above f32": ("10.0 * Y[t - 1] + X[t]", "f32", "split_scan(Y, 39)", "100"),
    "a power of a power": ("0.1 * Y[t - 1] + X[t]", "f32", "let p = split_scan(Y, 20); double_scan(p[1])", "65"),
    "rounds": ("0.001 * Y[t - 1] + X[t]", "f32", "double_scan(Y)", "32"),
    "factors of a caller": ("A[t] * Y[t - 1] + X[t]", "f64", "split_scan(Y, 4)", "32"),
    "shifts under a maximum": ("max(Y[t - 1] + A[t], X[t])", "f32", "double_scan(Y)", "32"),
    "constant shifts": ("max(Y[t - 1] + 1e38, X[t])", "f32", "split_scan(Y, 4)", "32"),
    "a running product": ("Y[t - 1] * X[t]", "f32", "split_scan(Y, 4, sums=true)", "8"),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", UNSOUND)
def test_products_beyond_a_type_are_refused_or_named(case: str) -> None:
    step, dtype, schedule, size = UNSOUND[case]
    with pytest.raises(Exception, match="E0648"):
        scheduled(step, dtype, schedule, size).sample(0)
    # The proof does not rely on the step's word: of a program of unknown origin the answer names it as well.
    said = schedule.replace("Y)", "Y, true)").replace("p[1])", "p[1], true)")
    for n in (4, 20, 38, 39):
        said = said.replace(f"Y, {n}", f"Y, {n}, true")
    t = scheduled(step, dtype, said, size)
    after = t.sample(0).program
    for program in (after, replace(after, annotations=())):
        assert IN_RANGE in getattr(validate(t.program, program), "assumes", (IN_RANGE,))


IN_ITS_RANGE = {
    "a power of f32": ("0.1 * Y[t - 1] + X[t]", "f32", "split_scan(Y, 37)", "100"),
    "the same power of f64": ("0.1 * Y[t - 1] + X[t]", "f64", "split_scan(Y, 90)", "100"),
    "a factor above 1": ("X[t] - 10.0 * Y[t - 1]", "f32", "split_scan(Y, 38)", "100"),
    "rounds": ("0.1 * Y[t - 1] + X[t]", "f32", "double_scan(Y)", "37"),
    "constant shifts": ("max(Y[t - 1] + 1e37, X[t])", "f32", "split_scan(Y, 8)", "32"),
    "bounds": ("max(X[t], min(Y[t - 1], A[t]))", "f32", "split_scan(Y, 8)", "32"),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", IN_ITS_RANGE)
def test_regrouped_steps_are_right_for_extremes(case: str) -> None:
    """Infinities, NaN and the largest and least numbers, which fade step by step."""
    step, dtype, schedule, size = IN_ITS_RANGE[case]
    t = scheduled(step, dtype, schedule, size)
    assert validate(t.program, t.sample(0).program) == Valid()
    stored = np.dtype(np.float32 if dtype == "f32" else np.float64)
    large, least = (1e38, 1e-30) if dtype == "f32" else (1e305, 1e-300)
    for first in (np.inf, -np.inf, np.nan, large, least, 0.0, 1.0):
        for rest in (0.0, 1.0, -least):
            x = np.full(int(size), rest, stored)
            x[0] = first
            inputs = {"X": x, "A": np.ones(int(size), stored)}
            with np.errstate(all="ignore"):
                one, other = (interpret(p, inputs, "forward")["Y"] for p in (t.program, t.sample(0).program))
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=float(np.finfo(stored).tiny))
