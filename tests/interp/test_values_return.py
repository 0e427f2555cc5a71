"""A drawn value of any kind is written unchanged into the frozen schedule, and into annotations of the program."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import load
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.schedule.trace.distribution import Plain, literal

FILE = """\
compute f(A: f32[4]) -> B: f32[4] {
    B[i] = A[i]
}
schedule s for f {
    let x ~ sample_categorical([%s])
    annotate(B, "k", x)
}
task t = f() with s
"""


@pytest.mark.corpus
@pytest.mark.parametrize(
    "value",
    [
        2**63 - 1, -(2**63), 2**63, 2**256 - 1, -(2**256 - 1), 0, -0.0, 5e-324, 0.1, 1e16, sys.float_info.max, math.inf,
        -math.inf, True, "inf", 'a"\\\n',
    ],
)  # fmt: skip
def test_a_frozen_value_is_itself(value: Plain, tmp_path: Path) -> None:
    (tmp_path / "f.tsched").write_text(FILE % literal(value), encoding="utf-8")
    task = load(tmp_path / "f.tsched")["t"]
    trace = task.sample(0)
    (tmp_path / "frozen.tsched").write_text(trace.text, encoding="utf-8")
    again = task.frozen(tmp_path / "frozen.tsched")
    assert repr(again.decisions) == repr(trace.decisions) == repr({"x": value})
    assert again.text == trace.text
    assert repr(parse_program(Source("p", format_program(trace.program)))) == repr(trace.program)
