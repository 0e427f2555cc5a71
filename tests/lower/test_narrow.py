"""Loops take the bounds that conditions of their whole work give, and no others."""

from __future__ import annotations

import pytest

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import Loop, format_body, inside

SUM = """
program f(R: {edge}[21], V: f32[40], X: i32[40], S: f32[20]) {{
    for i in 20, p in 40 {{
        block S {{
            spatial vi in 20 = i
            reduce vp in 40 = p
            init {{ S[vi] = {start} }}
            S[vi] = {value}
        }}
    }}
}}
"""


def lowered(value: str, *, edge: str = "i32", start: str = "0.0") -> str:
    """The bounds of the loop `p`, and whether a condition is left in it."""
    text = SUM.format(value=value, edge=edge, start=start)
    body = lower_cpu(parse_program(Source("test.tsched", text))).body
    loops = [s for s in inside(body) if isinstance(s, Loop) and s.var == "p"]
    return "; ".join(f"{format_expr(s.begin)} .. {format_expr(s.end)}" for s in loops) + (
        ", if" if " if " in format_body(tuple(loops)) else ""
    )


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        ("S[vi] + (V[vp] if vp <= vi else 0.0)", "0 .. i + 1"),
        ("S[vi] + (V[vp] if vi < vp else 0.0)", "i + 1 .. 40"),
        ("S[vi] + (0.0 if vi < vp else V[vp])", "0 .. i + 1"),
        ("S[vi] + (V[vp] if not (vi < vp) else 0.0)", "0 .. i + 1"),
        ("S[vi] + (V[vp] if vp * 2 <= vi and vi < vp * 2 + 3 else 0.0)", "max(0, (i + 1) / 2 - 1) .. i / 2 + 1"),
        ("S[vi] + (V[vp] if 3 * vp + 1 == vi else 0.0)", "(i + 1) / 3 .. (i + 2) / 3"),
        ("S[vi] + (V[vp] if 9 - vp > vi else 0.0)", "0 .. 9 - i"),
        ("S[vi] + (V[vp] if R[vi] <= i32(vp) else 0.0)", "max(0, index(R[i])) .. 40"),
        ("S[vi] + (V[vp] if i32(vp) + 1 < R[vi + 1] else 0.0)", "0 .. min(40, index(R[i + 1]) - 1)"),
        ("S[vi] + (V[vp] if vp <= vi else -0.0)", "0 .. i + 1"),
        ("max(S[vi], V[vp] if vp <= vi else -inf)", "0 .. i + 1"),
        ("S[vi] * (V[vp] if vp <= vi else 1.0)", "0 .. i + 1"),
        # What is not the neutral element, or not a fold, or changes in the loop, says nothing.
        ("S[vi] + V[vp] * (1.0 if vp <= vi else 0.0)", "0 .. 40, if"),
        ("max(S[vi], V[vp] if vp <= vi else 0.0)", "0 .. 40, if"),
        ("V[vp] if vp <= vi else 0.0", "0 .. 40, if"),
        ("S[vi] + (V[vp] if i32(vp) < X[vp] else 0.0)", "0 .. 40, if"),
        ("S[vi] + (V[vp] if V[vp] > 0.0 else 0.0)", "0 .. 40, if"),
        ("S[vi] + (V[vp] if vp < 39 else 0.0)", "0 .. 40, if"),  # a border
        ("S[vi] + (V[vp] if vp <= vi or V[vp] > 0.0 else 0.0)", "0 .. 40, if"),
    ],
)
def test_bounds(value: str, bounds: str) -> None:
    assert lowered(value) == bounds


def test_a_sum_that_may_be_negative_zero_keeps_its_terms() -> None:
    value = "S[vi] + (V[vp] if vp <= vi else 0.0)"
    assert lowered(value, start="-0.0") == "0 .. 40, if"
    assert lowered(value, start="-1e-60") == "0 .. 40, if"  # the nearest number of f32 is -0.0
    assert lowered(value.replace("else 0.0", "else -0.0"), start="-0.0") == "0 .. i + 1"


def test_a_type_that_does_not_have_all_positions_says_nothing() -> None:
    value = "S[vi] + (V[vp] if i8(vp * 4) < R[vi] else 0.0)"
    assert lowered(value, edge="i8") == "0 .. 40, if"
    assert lowered(value.replace("vp * 4", "vp * 3"), edge="i8") != "0 .. 40, if"


def test_numbers_of_64_bits_are_limited_to_the_positions() -> None:
    value = "S[vi] + (V[vp] if i64(vp) < R[vi] else 0.0)"
    assert lowered(value, edge="i64") == "0 .. min(max(index(R[i]), -1), 40)"
