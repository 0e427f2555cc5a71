"""Corrected sums: what `online_sums` makes is proved by values, and no fault in it is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence.validate import proves
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef
from tests.primitives.cases import all_cases, before_program

CASES = {c.name: c for c in all_cases()}
LOWEST = "-3.4028234663852886e+38"

ONE = "online_sums: a sum of exponentials"
TWO = "online_sums: two sums through a stage"
LEAST = "online_sums: a minimum, with differences reversed"
MASK = "online_sums: parts behind a mask"
SAID = "online_sums: factors that are said to be finite"
PAD = "online_sums: parts that are padded"
OLD, NEW = f"max(m_run[vp - 1, vi], {LOWEST})", f"max(m_run[vp, vi], {LOWEST})"

FAULTS: Mapping[str, tuple[str, str, str]] = {
    "no correction": (ONE, "s_run[vp - 1, vi] * m_step[vp, vi]", "s_run[vp - 1, vi]"),
    "a correction twice": (ONE, "* m_step[vp, vi]", "* m_step[vp, vi] * m_step[vp, vi]"),
    "a correction by another scale": (ONE, f"exp({OLD} - {NEW})", f"exp(({OLD} - {NEW}) * 2.0)"),
    "old and new shift exchanged": (ONE, f"exp({OLD} - {NEW})", f"exp({NEW} - {OLD})"),
    "no last correction": (ONE, "s_run[1, vi] * m_last[vi]", "s_run[1, vi]"),
    "a last correction reversed": (ONE, f"max(m_run[1, vi], {LOWEST}) - m[vi]", f"m[vi] - max(m_run[1, vi], {LOWEST})"),
    "a last correction from the first shift": (ONE, f"exp(max(m_run[1, vi], {LOWEST})", f"exp(max(m_run[0, vi], {LOWEST})"),
    "a shift that may be -inf": (ONE, LOWEST, "-inf"),
    "a shift of at least 0": (ONE, LOWEST, "0.0"),
    "a shift that may be -inf in the terms": (ONE, f"vn] - {NEW}", "vn] - m_run[vp, vi]"),
    "terms relative to the last shift": (ONE, f"vn] - {NEW}", f"vn] - max(m_run[1, vi], {LOWEST})"),
    "terms relative to the shift of another row": (ONE, f"vn] - {NEW}", f"vn] - max(m_run[vp, 0], {LOWEST})"),
    "a maximum that is not running": (ONE, "max(m_run[vp - 1, vi], m_part[vp, vi])", "m_part[vp, vi]"),
    "a minimum so far": (ONE, "max(m_run[vp - 1, vi]", "min(m_run[vp - 1, vi]"),
    "a maximum of other values": (ONE, "max(m_part[vp, vi], X[vi, vp * 4 + vn])", "max(m_part[vp, vi], X[vi, vn])"),
    "a maximum of too few values": (ONE, "reduce vn in 4 = n_1", "reduce vn in 3 = n_1"),
    "a part twice": (ONE, "* m_step[vp, vi] + s_part[vp, vi]", "* m_step[vp, vi] + s_part[0, vi]"),
    "a whole maximum that is never -inf": (ONE, "m[vi] = m_run[1, vi]", f"m[vi] = max(m_run[1, vi], {LOWEST})"),
    "a correction of the sum alone": (TWO, "U_run[vp - 1, vi, vc] * m_step[vp, vi]", "U_run[vp - 1, vi, vc]"),
    "a correction of the output alone": (TWO, "s_run[vp - 1, vi] * m_step[vp, vi]", "s_run[vp - 1, vi]"),
    "no last correction of the output": (TWO, "U_run[1, vi, vc] * m_last[vi]", "U_run[1, vi, vc]"),
    "exponentials relative to the first shift": (TWO, "m_run[vj / 3, vi]", "m_run[0, vi]"),
    "values of another part": (TWO, "V[vp * 3 + vn, vc]", "V[vn, vc]"),
    "a maximum in the place of a minimum": (LEAST, "min(m_run[vp - 1, vi], m_part", "max(m_run[vp - 1, vi], m_part"),
    "the least finite number as the start of a minimum": (LEAST, "3.4028234663852886e+38", LOWEST),
    "a row that ends a part early": (MASK, "where p_5 <= (i_10 + 2) / 4", "where p_5 <= (i_10 + 1) / 4"),
    "a sum that ends a part early": (MASK, "where p_1 <= (i_6 + 2) / 4", "where p_1 <= (i_6 + 1) / 4"),
    "a result that ends a part early": (SAID, "where p_3 <= (i_8 + 2) / 4", "where p_3 <= (i_8 + 1) / 4"),
    "a result of the part before the last": (SAID, "U_run[(vi + 2) / 4, vi, vc]", "U_run[(vi + 1) / 4, vi, vc]"),
    "a sum of the first part": (MASK, "s_run[(vi + 2) / 4, vi]", "s_run[0, vi]"),
    "a maximum of the part before the last": (MASK, "m[vi] = m_run[(vi + 2) / 4, vi]", "m[vi] = m_run[(vi + 1) / 4, vi]"),
    "an old maximum of the part itself": (MASK, "m_run[min(vp - 1, (vi + 2) / 4), vi]", "m_run[min(vp, (vi + 2) / 4), vi]"),
    "values behind another mask": (SAID, "x[vi, vj] = W[vi, vj] if vj <= vi + 2", "x[vi, vj] = W[vi, vj] if vj <= vi + 3"),
    "a mask that is a finite number": (SAID, "if vj <= vi + 2 else -inf", "if vj <= vi + 2 else -1e30"),
    "padding of infinities": (PAD, "if v0 < 7 else 0.0", "if v0 < 7 else inf"),
    "padding of another length": (PAD, "if v0 < 7 else 0.0", "if v0 < 6 else 0.0"),
    "padding of the maximum that is a number": (PAD, "< 7 else -inf", "< 7 else 0.0"),
    "padding that lacks a term": (PAD, "< 7 else -inf", "< 6 else -inf"),
    "factors of which nothing is said": (SAID, ' @("finite", true)', ""),
}  # fmt: skip


@cache
def _right(case: str) -> bool:
    return proves(before_program(CASES[case]), parse_program(Source("right", CASES[case].expected)))


@pytest.mark.corpus
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_not_accepted(fault: str) -> None:
    case, right, wrong = FAULTS[fault]
    before, text = before_program(CASES[case]), CASES[case].expected
    if fault == "a maximum of too few values":
        text = text.replace("for p_2 in 2, i_5 in 3, n_1 in 4", "for p_2 in 2, i_5 in 3, n_1 in 3")
    assert right in text
    assert _right(case)
    assert not proves(before, parse_program(Source("faulty", text.replace(right, wrong))))


MASKED = """
program masked(X: f32[3, 8], S: f32[3]) {
    buffer T: f32[3, 8]
    buffer m: f32[3]
    for i in 3, j in 8 {
        block T {
            spatial vi in 3 = i
            spatial vj in 8 = j
            T[vi, vj] = X[vi, vj] if vj <= vi * 2 else -inf
        }
    }
    for i_1 in 3, j_1 in 8 {
        block m {
            spatial vi in 3 = i_1
            reduce vj in 8 = j_1
            init { m[vi] = -inf }
            m[vi] = max(m[vi], T[vi, vj])
        }
    }
    for i_2 in 3, j_2 in 8 {
        block S {
            spatial vi in 3 = i_2
            reduce vj in 8 = j_2
            init { S[vi] = 0.0 }
            S[vi] = S[vi] + exp(T[vi, vj] - m[vi]) * X[0, vj]
        }
    }
}
"""


def test_a_mask_is_part_of_the_values_and_not_of_the_terms() -> None:
    """Exponentials of -inf are 0, whatever the shift; without exponentials behind the mask, fewer are added than before."""
    before = parse_program(Source("masked", MASKED))
    after = apply(before, "online_sums", BlockRef("m"), 4).program
    assert proves(before, after)
    text = format_program(after)
    right = f"exp(T[vi, vp * 4 + vn] - {NEW})"
    assert right in text
    for wrong in (f"({right} if vp * 4 + vn < 8 - vi else 0.0)", right.replace("T[", "X[")):
        assert not proves(before, parse_program(Source("faulty", text.replace(right, wrong))))


def test_a_row_without_a_term_keeps_those_behind_the_mask() -> None:
    """There the maximum is -inf, and each term NaN: with a step for each row the proof needs a term that is not masked."""
    text = (
        format_program(before_program(CASES[MASK])).replace("vj <= vi + 2", "vj <= vi - 2").replace("vi + 2", "vi - 2")
    )
    before = parse_program(Source("empty", text.replace(" if vj <= vi - 2 else 0.0)", ")")))
    result = apply(before, "online_sums", BlockRef("m"), 4, finite=True).program
    assert "where" not in format_program(result) and proves(before, result)


def _results(p: Program, rows: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return interpret(p, {"X": rows})["Y"]


@pytest.mark.parametrize("name", [MASK, SAID])
def test_a_masked_row_is_as_in_the_compute(name: str) -> None:
    """Values behind the mask may be anything, and factors there, too, if the sum has the condition."""
    before, after = before_program(CASES[name]), parse_program(Source("after", CASES[name].expected))
    rng = np.random.default_rng(0)
    values = np.array([-np.inf, -3e38, -200.0, 90.0, 0.0, 1.0, np.inf, np.nan], np.float32)
    for _ in range(8):
        w = rng.choice(values, (7, 13), p=[0.2, 0.1, 0.2, 0.2, 0.1, 0.16, 0.02, 0.02]).astype(np.float32)
        v = rng.standard_normal((13, 2)).astype(np.float32)
        if name == MASK:
            v[9:] = np.nan
        with np.errstate(all="ignore"):
            one, other = (interpret(p, {"W": w, "V": v})["O"] for p in (before, after))
        np.testing.assert_allclose(other, one, rtol=1e-5)


@pytest.mark.parametrize("name", [ONE, "online_sums: steps that are no whole parts"])
def test_rows_with_infinities_and_nan_are_as_in_the_compute(name: str) -> None:
    before, after = before_program(CASES[name]), parse_program(Source("after", CASES[name].expected))
    inf, nan, n = np.inf, np.nan, shape_of(before.params[0])[1]
    rng = np.random.default_rng(0)
    values = np.array([-inf, -inf, -inf, inf, nan, -3e38, 3e38, -200.0, 90.0, 0.0, 1.0])
    for _ in range(12):
        rows = rng.choice(values, (3, n)).astype(np.float32)
        rows[0] = -inf
        rows[1] = np.where(np.arange(n) < 5, -inf, -200.0)
        np.testing.assert_allclose(_results(after, rows), _results(before, rows), rtol=1e-5)
