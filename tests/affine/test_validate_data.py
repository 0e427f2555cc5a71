"""Whole-program validation of reads through data."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.proof.equivalence.validate import Invalid, Report, Unproved, Valid, validate

TABLE = """
program table(X: f32[5, 3], I: i32[4], Y: f32[4, 3]) {
    buffer W: f32[5, 3]
    buffer J: i32[4]
    for v in 5, d in 3 { block W { spatial vv in 5 = v; spatial vd in 3 = d
        W[vv, vd] = X[vv, vd] * 2.0 } }
    for n in 4 { block J { spatial vn in 4 = n
        J[vn] = I[vn] - 1 } }
    for n_1 in 4, d_1 in 3 { block Y { spatial vn in 4 = n_1; spatial vd in 3 = d_1
        Y[vn, vd] = W[min(max(index(J[vn]), 0), 4), vd] } }
}
"""

CACHED = """
program table(X: f32[5, 3], I: i32[4], Y: f32[4, 3]) {
    parallel for d in 3 {
        for n in 4 { block Y { spatial vn in 4 = n; spatial vd in 3 = d
            Y[vn, vd] = X[min(max(index(I[vn] - 1), 0), 4), vd] * 2.0 } }
    }
}
"""

LAID_OUT = """
program table(X: f32[5, 3], I: i32[4], Y: f32[4, 3]) {
    buffer W: f32[3, 2, 3] in "local"
    buffer J: i32[4] in "local"
    for n in 4 {
        for h in 3, l in 2, d in 3 { block W { spatial vh in 3 = h; spatial vl in 2 = l; spatial vd in 3 = d
            where h * 2 + l < 5
            W[vh, vl, vd] = X[vh * 2 + vl, vd] * 2.0 } }
        block J { spatial vn in 4 = n
            J[vn] = I[vn] - 1 }
        for d_1 in 3 { block Y { spatial vn in 4 = n; spatial vd in 3 = d_1
            Y[vn, vd] = W[min(max(index(J[vn]), 0), 4) / 2, min(max(index(J[vn]), 0), 4) % 2, vd] } }
    }
}
"""

BORDER = """
program border(X: f32[5], I: u8[4], Y: f32[4]) {
    buffer P: f32[7]
    for v in 7 { block P { spatial vv in 7 = v
        P[vv] = X[vv - 1] if 1 <= vv and vv < 6 else 0.0 } }
    for n in 4 { block Y { spatial vn in 4 = n
        Y[vn] = P[min(index(I[vn]), 6)] } }
}
"""

BORDER_INLINED = """
program border(X: f32[5], I: u8[4], Y: f32[4]) {
    for n in 4 { block Y { spatial vn in 4 = n
        Y[vn] = X[min(index(I[vn]), 6) - 1] if 1 <= min(index(I[vn]), 6) and min(index(I[vn]), 6) < 6 else 0.0 } }
}
"""

BAGS = """
program bags(X: f32[5, 3], I: i32[4, 6], Y: f32[4, 3]) {
    for b in 4, d in 3, l in 6 { block Y { spatial vb in 4 = b; spatial vd in 3 = d; reduce vl in 6 = l
        init { Y[vb, vd] = 0.0 }
        Y[vb, vd] = Y[vb, vd] + X[min(max(index(I[vb, vl]), 0), 4), vd] } }
}
"""

BAGS_CUT = """
program bags(X: f32[5, 3], I: i32[4, 6], Y: f32[4, 3]) {
    buffer W: f32[5, 3]
    for v in 5, c in 3 { block W { spatial vv in 5 = v; spatial vc in 3 = c
        W[vv, vc] = X[vv, vc] } }
    for b in 4, l0 in 3 { vectorized for d in 3 { for l1 in 2 {
        block Y { spatial vb in 4 = b; spatial vd in 3 = d; reduce vl in 6 = l0 * 2 + l1
            init { Y[vb, vd] = 0.0 }
            Y[vb, vd] = Y[vb, vd] + W[min(max(index(I[vb, vl]), 0), 4), vd] } } } }
}
"""

TWICE = """
program twice(X: f32[5], I: i32[4], J: i32[6], Y: f32[6]) {
    buffer G: f32[4]
    for n in 4 { block G { spatial vn in 4 = n
        G[vn] = X[min(max(index(I[vn]), 0), 4)] } }
    for m in 6 { block Y { spatial vm in 6 = m
        Y[vm] = G[min(max(index(J[vm]), 0), 3)] } }
}
"""

AT_ONCE = """
program twice(X: f32[5], I: i32[4], J: i32[6], Y: f32[6]) {
    for m in 6 { block Y { spatial vm in 6 = m
        Y[vm] = X[min(max(index(I[min(max(index(J[vm]), 0), 3)]), 0), 4)] } }
}
"""


def compared(a: str, b: str) -> Report:
    original, scheduled = (parse_program(Source("p.tsched", text)) for text in (a, b))
    return validate(original, scheduled)


PROVED = [
    (TABLE, TABLE), (TABLE, CACHED), (TABLE, LAID_OUT), (CACHED, LAID_OUT), (BORDER, BORDER_INLINED), (BAGS, BAGS_CUT),
    (TWICE, AT_ONCE), (AT_ONCE, TWICE),
]  # fmt: skip


@pytest.mark.parametrize(("original", "scheduled"), PROVED)
def test_what_data_decide_is_followed(original: str, scheduled: str) -> None:
    assert compared(original, scheduled) == Valid()


WRONG = [
    (TABLE, CACHED, "I[vn] - 1", "I[vn] - 2", "`2`, in block Y"),
    (TABLE, CACHED, "I[vn]", "I[3 - vn]", "E0805"),
    (TABLE, CACHED, "0), 4), vd", "1), 4), vd", "E0805"),
    (TABLE, CACHED, "0), 4), vd", "0), 3), vd", "E0805"),
    (TABLE, CACHED, "0), 4), vd", "0), 5), vd", "E0801"),
    (TABLE, CACHED, "4), vd", "4), 2 - vd", "E0805"),
    (TABLE, LAID_OUT, "h * 2 + l < 5", "h * 2 + l < 4", "E0803"),
    (TABLE, LAID_OUT, "% 2, vd]", "% 2, 2 - vd]", "E0805"),
    (BORDER, BORDER_INLINED, "- 1] if 1 <=", "- 1] if 0 <=", "E0801"),
    (BORDER, BORDER_INLINED, "- 1] if 1 <=", "- 2] if 2 <=", "E0805"),
    (BAGS, BAGS_CUT, "index(I[vb, vl])", "index(I[vb, 5 - vl % 2])", "E0806"),
    (BAGS, BAGS_CUT, "0), 4)", "0), 3)", "E0805"),
    (TWICE, AT_ONCE, "0), 3)]), 0), 4)]", "0), 2)]), 0), 4)]", "E0805"),
]  # fmt: skip


@pytest.mark.parametrize(("original", "scheduled", "right", "wrong", "why"), WRONG)
def test_another_element_is_refuted(original: str, scheduled: str, right: str, wrong: str, why: str) -> None:
    assert right in scheduled
    report = compared(original, scheduled.replace(right, wrong))
    assert isinstance(report, Invalid), report
    assert why in render(report.diagnostic)


def test_a_loop_that_writes_what_data_may_read_races() -> None:
    loop = """
program own(A: f32[8], I: i32[8], Y: f32[8]) {
    buffer W: f32[8]
    for z in 8 { block Z { spatial vz in 8 = z
        W[vz] = 1.0 } }
    for i in 4 {
        block W { spatial vi in 4 = i
            W[vi] = A[vi] }
        block Y { spatial vi in 4 = i
            Y[vi] = W[min(max(index(I[vi]), 4), 7)] }
    }
    for j in 4 { block X { spatial vj in 4 = j
        Y[vj + 4] = W[vj] } }
}
"""
    together = loop.replace("for i in", "parallel for i in")
    assert compared(loop, together) == Valid()
    wide = [x.replace("), 4), 7)", "), 3), 7)") for x in (loop, together)]
    report = compared(*wide)
    assert isinstance(report, Invalid)
    assert "E0802" in render(report.diagnostic)


def test_a_table_of_one_row_over_and_over_needs_no_data() -> None:
    same = TABLE.replace("X[vv, vd]", "X[2, vd]")
    inlined = CACHED.replace("X[min(max(index(I[vn] - 1), 0), 4), vd]", "X[2, vd]")
    assert compared(same, inlined) == Valid()
    assert compared(inlined, same) == Valid()
    assert isinstance(compared(TABLE, inlined), Unproved)


def test_rows_of_a_table_with_a_border_are_rows_without_or_nothing() -> None:
    table = BAGS.replace("X[min", "W[min").replace("    for b", WITH_BORDER + "    for b").replace("0), 4)", "0), 6)")
    clamp = "min(max(index(I[vb, vl]), 0), 6)"
    inlined = BAGS.replace(
        "X[min(max(index(I[vb, vl]), 0), 4), vd]", f"(X[{clamp} - 1, vd] if 1 <= {clamp} and {clamp} < 6 else 0.0)"
    )
    assert compared(table, inlined) == Valid()


WITH_BORDER = """    buffer W: f32[7, 3]
    for v in 7, c in 3 { block W { spatial vv in 7 = v; spatial vc in 3 = c
        W[vv, vc] = X[vv - 1, vc] if 1 <= vv and vv < 6 else 0.0 } }
"""


BORDERED = """
program bags(X: f32[5, 3], I: i32[7, 2], S: f32[7, 3]) {
    buffer P: f32[7, 3]
    for v in 7, c in 3 { block P { spatial vv in 7 = v; spatial vc in 3 = c
        P[vv, vc] = X[vv - 1, vc] if vv >= 1 and vv < 6 else 0.0 } }
    for n in 7, d in 3, l in 2 { block S { spatial vn in 7 = n; spatial vd in 3 = d; reduce vl in 2 = l
        init { S[vn, vd] = 0.0 }
        S[vn, vd] = S[vn, vd] + P[min(max(index(I[vn, vl]), 0), 6), vd] } }
}
"""

INLINED = """
program bags(X: f32[5, 3], I: i32[7, 2], S: f32[7, 3]) {
    for n in 7, d in 3, l in 2 { block S { spatial vn in 7 = n; spatial vd in 3 = d; reduce vl in 2 = l
        init { S[vn, vd] = 0.0 }
        S[vn, vd] = S[vn, vd] + (X[min(max(index(I[vn, vl]), 0), 6) - 1, vd]
            if min(max(index(I[vn, vl]), 0), 6) >= 1 and min(max(index(I[vn, vl]), 0), 6) < 6 else 0.0) } }
}
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("", ""),
        (">= 1", ">= 2"),
        ("else 0.0", "else 1.0"),
        (" - 1, vd]", " - 1, (vd + 1) % 3]"),
        ("index(I[vn, vl]), 0), 6) < 6", "index(I[vn, 0]), 0), 6) < 6"),
        ("index(I[vn, vl])", "index(I[vn, 0])"),
        ("6) - 1, vd]", "5) - 1, vd]"),  # what is 6 is in the border
    ],
)
def test_a_border_is_inlined_into_a_sum_of_elements_that_data_decide(right: str, wrong: str) -> None:
    report = compared(BORDERED, INLINED.replace(right, wrong) if right else INLINED)
    assert isinstance(report, Valid) == (wrong in ("", "5) - 1, vd]")), report
    other = compared(INLINED.replace(right, wrong) if right else INLINED, BORDERED)
    assert isinstance(other, Valid) == isinstance(report, Valid), other
