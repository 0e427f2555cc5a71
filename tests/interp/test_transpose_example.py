"""`examples/transpose.tsched`: its rule is asked of blocks that read columns, and of no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc_dsl.api import Task, TaskFile
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.ir.target import Target
from tensorc_dsl.search.streams import stream
from tensorc_dsl.source import Source

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "transpose.tsched"
MORE = """
compute copies(X: f32[M, N]) -> Y: f32[M, N] {
    Y[i, j] = X[i, j]
}

compute columns(v: f32[M]) -> Y: f32[M, N] {
    Y[i, j in N] = v[i]
}

compute heads(X: f32[L, H, D]) -> Y: f32[H, D, L] {
    Y[h, d, l] = X[l, h, d]
}

task copied = copies(M=20, N=33) with mine
task spread = columns(M=20, N=33) with mine
task attention = heads(L=33, H=3, D=20) with mine
"""


def task(name: str) -> Task:
    text = EXAMPLE.read_text(encoding="utf-8") + MORE
    return TaskFile(load_source(Source("transpose.tsched", text)), Target(vector_bits=512, cores=2))[name]


@pytest.mark.parametrize(
    ("name", "applies"),
    [("channels_first", True), ("square", True), ("attention", True), ("copied", False), ("spread", False)],
)
def test_the_rule_is_for_blocks_that_read_columns(name: str, applies: bool) -> None:
    t = task(name)
    attempts = t.space.explain(t.space.sample(stream(0, name, "test")))
    assert [not a.reasons for a in attempts if a.module == "turn_in_tiles"] == [applies]
