"""Validation of scans, stencils over time and other recurrences, written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorc_dsl.ir.program import For
from tensorc_dsl.proof.equivalence.validate import Invalid, Unproved, Valid, validate
from tests.affine.test_validate import assert_reported, assert_valid, edited
from tests.compute.texts import build

SCAN = """
program scan(A: f32[20, 3], Y: f32[20, 3]) {
    for t in 20, i in 3 { block Y { spatial vt in 20 = t; spatial vi in 3 = i
        Y[vt, vi] = A[vt, vi] if vt == 0 else Y[vt - 1, vi] * A[vt, vi] } }
}
"""

SCAN_TURNED = """
program scan(A: f32[20, 3], Y: f32[20, 3]) {
    parallel for i in 3 { for t0 in 4, t1 in 5 { block Y { spatial vi in 3 = i; spatial vt in 20 = t0 * 5 + t1
        Y[vt, vi] = A[vt, vi] if vt == 0 else Y[vt - 1, vi] * A[vt, vi] } } }
}
"""

LAST = """
program last(A: f32[300], Y: f32[1]) {
    buffer S: f32[300]
    for t in 300 { block S { spatial vt in 300 = t
        S[vt] = A[vt] if vt == 0 else S[vt - 1] / A[vt] } }
    for j in 1 { block Y { spatial vj in 1 = j
        Y[vj] = S[299] } }
}
"""

LAST_ROLLED = """
program last(A: f32[300], Y: f32[1]) {
    buffer S: f32[2]
    for t0 in 100, t1 in 3 { block S { spatial vt in 300 = t0 * 3 + t1
        S[vt % 2] = A[vt] if vt == 0 else S[(vt + 1) % 2] / A[vt] } }
    for j in 1 { block Y { spatial vj in 1 = j
        Y[vj] = S[1] } }
}
"""

STENCIL = """
program heat(A: f32[9, 9], B: f32[9, 9]) {
    buffer S: f32[41, 9, 9]
    for t in 41, i in 9, j in 9 { block S { scan vt in 41 = t; spatial vi in 9 = i; spatial vj in 9 = j
        S[vt, vi, vj] = A[vi, vj] if vt < 1 else (S[vt - 1, vi - 1, vj] + S[vt - 1, vi, vj + 1]
            if 1 <= vi and vi < 8 and 1 <= vj and vj < 8 else S[vt - 1, vi, vj]) } }
    for i_1 in 9, j_1 in 9 { block B { spatial vi in 9 = i_1; spatial vj in 9 = j_1
        B[vi, vj] = S[40, vi, vj] } }
}
"""

STENCIL_IN_TWO = (
    STENCIL.replace("f32[41, 9, 9]", "f32[2, 9, 9]").replace("S[vt - 1", "S[(vt - 1) % 2").replace("S[vt,", "S[vt % 2,")
).replace("S[40", "S[0")

RECURRENCES = """
program both(A: f32[50], B: f32[50], Y: f32[1]) {
    buffer S: f32[50]
    buffer P: f32[50]
    for t in 50 {
        block S { scan vt in 50 = t
            S[vt] = A[vt] if vt < 1 else sin(S[vt - 1]) + A[vt] }
        block P { scan vt in 50 = t
            P[vt] = B[vt] if vt < 1 else cos(P[vt - 1]) + B[vt] }
    }
    block Y { spatial v in 1 = 0
        Y[v] = P[49] * S[49] }
}
"""
"""Two recurrences of more steps than are followed one by one."""

RECURRENCES_IN_TWO = (
    RECURRENCES.replace("S: f32[50]", "S: f32[2]").replace("P: f32[50]", "P: f32[2]").replace("[49]", "[1]")
    .replace("S[vt]", "S[vt % 2]").replace("P[vt]", "P[vt % 2]").replace("[vt - 1]", "[(vt + 1) % 2]")
)  # fmt: skip

RIGHT = {
    "a stencil of many steps": (STENCIL, STENCIL.replace("i in 9, j in 9 { block S", "j in 9, i in 9 { block S")),
    "a stencil on two arrays": (STENCIL, STENCIL_IN_TWO),
    "scan, turned": (SCAN, SCAN_TURNED),
    "scan of which the end is read": (LAST, LAST_ROLLED),
    "two recurrences of many steps": (RECURRENCES, RECURRENCES_IN_TWO),
}

WRONG: dict[str, tuple[str, str, tuple[tuple[str, str], ...], str]] = {
    "scan in parallel": (
        SCAN, SCAN_TURNED, (("for t0 in 4, t1", "parallel for t0 in 4 { for t1"), ("} } }", "} } } }")), "E0802",
    ),
    "scan backwards": (SCAN, SCAN_TURNED, (("= t0 * 5 + t1", "= 19 - (t0 * 5 + t1)"),), "E0803"),
}  # fmt: skip

UNDECIDED = {
    "two recurrences, of which one reads the wrong step": (
        RECURRENCES, RECURRENCES_IN_TWO.replace("sin(S[(vt + 1) % 2])", "sin(S[vt % 2])"),
        "its invariant was guessed, and does not hold",
    ),
    "a stencil on two arrays, the older of which is read": (
        STENCIL, STENCIL_IN_TWO.replace("S[0", "S[1"), "a recurrence is not understood",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    assert_valid(*RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    original, scheduled, changes, said = WRONG[name]
    assert_reported(original, edited(scheduled, *changes), Invalid, said)


@pytest.mark.parametrize("name", UNDECIDED)
def test_undecided(name: str) -> None:
    original, scheduled, said = UNDECIDED[name]
    assert_reported(original, scheduled, Unproved, said)


STREAMING = """
compute stream(X: f32[T]) -> M: f32, V: f32 {
    let S[t, c in 2] = scan[t]
        init (X[0] if c == 0 else 0.0)
        step (S[t - 1, 0] + (X[t] - S[t - 1, 0]) / f32(t + 1) if c == 0
              else S[t - 1, 1] + (X[t] - S[t - 1, 0]) * (X[t] - (S[t - 1, 0] + (X[t] - S[t - 1, 0]) / f32(t + 1))))
    M = S[T - 1, 0] if T >= 1 else 0.0
    V = S[T - 1, 1] / f32(T) if T >= 1 else 0.0
}
"""
"""Welford's mean and sum of squares: two outputs from the last step of a scan of two values."""


@pytest.mark.parametrize("steps", [1, 2, 7, 100, 4096])
def test_a_scan_of_two_values_is_equal_to_itself(steps: int) -> None:
    program = build(STREAMING, T=steps)
    assert validate(program, program) == Valid()


def test_its_values_may_be_the_outer_loop() -> None:
    program = build(STREAMING, T=100)
    (loop,) = (s for s in program.body if isinstance(s, For) and len(s.body) == 1 and isinstance(s.body[0], For))
    (inner,) = loop.body
    assert isinstance(inner, For)
    turned = replace(inner, body=(replace(loop, body=inner.body),))
    assert validate(program, replace(program, body=tuple(turned if s is loop else s for s in program.body))) == Valid()


@pytest.mark.parametrize("wrong", [("c == 0\n", "c == 1\n"), ("(X[t] - S[t - 1, 0]) *", "(X[t] - S[t - 1, 1]) *")])
def test_a_scan_of_two_other_values_is_not(wrong: tuple[str, str]) -> None:
    assert wrong[0] in STREAMING
    report = validate(build(STREAMING, T=100), build(STREAMING.replace(*wrong), T=100))
    assert not isinstance(report, Valid)
