"""`examples/channel_sums.tsched`: its rule applies to reductions down columns, and to no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import Task, TaskFile
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.search.expansion import stream

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "channel_sums.tsched"
MORE = """
use std.ops.{argmax, matmul}

compute rows(X: f32[M, N]) -> S: f32[M] {
    S[i] = sum[j] X[i, j]
}

compute highest(X: f32[M, N]) -> S: f32[N] {
    S[j] = max[i] X[i, j]
}

task peaks = highest(M=20, N=33) with mine
task along = rows(M=20, N=33) with mine
task product = matmul(M=20, N=33, K=7) with mine
task best = argmax(M=20, N=33) with mine
"""


def task(name: str) -> Task:
    text = EXAMPLE.read_text(encoding="utf-8") + MORE
    return TaskFile(load_source(Source("channel_sums.tsched", text)), Target(vector_bits=512, cores=2))[name]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "applies"),
    [("stage", True), ("wide", True), ("peaks", True), ("along", False), ("product", False), ("best", False)],
)
def test_the_rule_is_for_reductions_down_columns(name: str, applies: bool) -> None:
    t = task(name)
    attempts = t.space.explain(t.space.sample(stream(0, name, "test")))
    assert [not a.reasons for a in attempts if a.module == "down_columns"] == [applies]
