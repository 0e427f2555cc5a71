"""Choices between indices in subscripts, comparisons and conversions."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.print import format_program
from tests.compute.texts import build

HEAD = "compute it(X: f32[M, N], I: i32[M]) -> Y: f32[M, N] {\n    Y[m in M, n in N] = "


@pytest.mark.parametrize(
    ("chosen", "lifted"),
    [
        ("X[m, 0 if n == 0 else n - 1]", "X[m, 0] if n == 0 else X[m, n - 1]"),
        ("X[m, select(n == 0, 0, n - 1)]", "X[m, 0] if n == 0 else X[m, n - 1]"),
        ("X[m, min(n + (1 if m < 2 else 2), N - 1)]", "X[m, min(n + 1, N - 1)] if m < 2 else X[m, min(n + 2, N - 1)]"),
        (
            "X[0 if m == 0 else m - 1, n if I[m] > 2 else N - 1 - n]",
            "(X[0, n] if I[m] > 2 else X[0, N - 1 - n]) if m == 0 else (X[m - 1, n] if I[m] > 2 else X[m - 1, N - 1 - n])",
        ),
        ("X[m, n] if n + (1 if I[m] > 0 else 2) < N else 0.0", "X[m, n] if (n + 1 < N if I[m] > 0 else n + 2 < N) else 0.0"),
        ("X[m, n] + f32(n + (1 if I[m] > 0 else 2))", "X[m, n] + (f32(n + 1) if I[m] > 0 else f32(n + 2))"),
    ],
)  # fmt: skip
def test_a_choice_between_indices_is_one_between_elements(chosen: str, lifted: str) -> None:
    one, other = (format_program(build(f"{HEAD}{value}\n}}\n", M=4, N=5)) for value in (chosen, lifted))
    assert one == other


def test_a_choice_between_numbers_that_are_read_stays_in_the_subscript() -> None:
    made = format_program(build(f"{HEAD}X[clamp(I[m] if n == 0 else 1, 0, M - 1), n]\n}}\n", M=4, N=5))
    assert made.count("X[") == 1


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("X[m, n + (1 if n >= 2 else 0)]", "E0411"),
        ("X[m, n + (1 if I[m] > 0 else 0)]", "E0412"),  # data may choose it
        ("m + (1 if I[m] > 0 else 0)", "E0413"),
    ],
)
def test_what_is_chosen_stays_inside_and_is_no_value(value: str, code: str) -> None:
    with pytest.raises(TschedError) as found:
        build(f"{HEAD}{value}\n}}\n", M=4, N=5)
    assert [d.code for d in found.value.diagnostics] == [code]


def test_a_nested_reduction_of_a_scan_of_one_element() -> None:
    """What a clamp to a single element leaves out of a value is no read of the step before the first."""
    text = """
    compute it(K: u8[N]) -> Y: i32[N] {
        let P[t in 3, n in N] = scan[t]
            init i32(n)
            step (sum[i in N] (1 if (sum[j in N] i32(K[clamp(P[t - 1, j], 0, N - 1)])) > 3 or P[t - 1, i] > 0 else 0))
        Y[n] = P[2, n]
    }
    """
    assert build(text, N=1).outputs
