"""Subscripts that data decide, in computes: what is taken, what is refused, and the programs that come out."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.ir.expr import Load, loads
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.reference.inputs import make_inputs
from tests.compute.texts import build, checked, codes, errors


def rows(value: str) -> str:
    """A compute over a table W, integers I and Q, and floats F."""
    given = "W: f32[V, D], I: i32[N], Q: u8[N], F: f32[N]"
    return f"compute f({given}) -> Y: f32[N, D] {{\n    Y[n, d] = {value}\n}}\n"


SIZES = {"V": 6, "D": 3, "N": 4}


def read(p: Program) -> list[str]:
    return [format_expr(x) for b in blocks(p) for s in b.body for x in loads(s.value) if isinstance(x, Load)]


@pytest.mark.parametrize(
    ("subscript", "made"),
    [
        ("clamp(I[n], 0, V - 1)", "min(max(index(I[vn]), 0), 5)"),
        ("clamp(Q[n], 0, V - 1)", "min(index(Q[vn]), 5)"),
        ("clamp(I[n] + 1, 1, 3) - 1", "min(max(index(I[vn] + 1), 1), 3) - 1"),
        ("clamp(I[n], n, n + 2)", "min(max(index(I[vn]), vn), vn + 2)"),
        ("clamp(n - 1, 0, V - 1)", "max(vn - 1, 0)"),
        ("clamp(I[clamp(Q[n], 0, N - 1)], 0, V - 1)", "min(max(index(I[min(index(Q[vn]), 3)]), 0), 5)"),
    ],
)
def test_a_clamp_is_an_index(subscript: str, made: str) -> None:
    assert read(build(rows(f"W[{subscript}, d]"), **SIZES))[0] == f"W[{made}, vd]"


@pytest.mark.parametrize(
    ("value", "code", "says"),
    [
        ("W[I[n], d]", "E0412", "= help: say between which two it stays: `clamp(I[n], 0, 5)`"),
        ("W[I[n] * 2 + 1, d]", "E0412", "`clamp(I[n] * 2 + 1, 0, 5)`"),
        ("W[clamp(I[n], 0, V), d]", "E0411", "6 when I[n] = 6"),
        ("W[clamp(I[n], -1, V - 1), d]", "E0411", "-1 when I[n] = -2147483648"),
        ("W[clamp(F[n], 0, V - 1), d]", "E0413", "`clamp` makes an index of an integer; `F[n]` is f32"),
        ("W[clamp(I[n], 0), d]", "E0416", "`clamp` takes 3 values, but was given 2"),
        ("W[clamp(I[n], 0, I[n]), d]", "E0412", "a subscript that the values of `I` decide"),
        ("W[clamp(I[n + 1], 0, V - 1), d]", "E0411", "subscript 1 of `I` can be 4"),
        ("clamp(I[n], 0, V - 1)", "E0413", "an index is not a value of type f32"),
    ],
)
def test_what_may_leave_the_table_is_refused(value: str, code: str, says: str) -> None:
    assert codes(rows(value), **SIZES) == [code]
    assert says in errors(rows(value), **SIZES)[0]


def test_a_table_without_rows_has_none_to_clamp_to() -> None:
    text = rows("W[clamp(I[n], 0, V - 1), d]")
    assert codes(text, **{**SIZES, "V": 0}) == ["E0411"]
    assert build(text, V=0, D=3, N=0)
    assert checked(text) == []


def test_inputs_name_rows_everywhere_and_a_little_outside() -> None:
    p = build(rows("W[clamp(I[n] - i32(Q[n]), 0, V - 1), d]"), V=1000, D=1, N=400)
    made = make_inputs(p, 0)
    assert made["I"].dtype == np.int32
    assert made["I"].min() < 0
    assert made["I"].max() > 999
    assert np.unique(made["I"]).size > 200
    assert made["Q"].max() > 200
