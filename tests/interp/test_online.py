"""Long rows of exponentials go piece by piece on a CPU: right at odd sizes, proved, and only where rows are long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from tensorc_dsl.api.tasks import Task
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.trace.handlers import condition
from tests.gpu.kernels import whole
from tests.programs import proof_fault

RULES = """
use std.cpu.{default}
use std.cpu.inline.{auto_inline}
use std.cpu.online.{online_loop, online_rows}
use std.cpu.parallel
use std.cpu.reduction
use std.ops.attention
use std.ops.softmax

space rows for llvm {
    auto_inline
    online_rows(terms=[3, 16], rows=[1, 4], packed=25, held=1000000000, chance=100)
    add_rfactor
    parallelize_vectorize_unroll
}

schedule pieces for softmax { online_loop(online_sums(m, 8), 2) }
"""


def task(folder: Path, text: str) -> Task:
    file = folder / "t.tsched"
    file.write_text(f"{RULES}\ntask t = {text}\n")
    return td.load(file, threads=2)["t"]


@pytest.mark.parametrize("size", ["B=1, H=2, M=5, N=37, D=3, E=7", "B=2, H=1, M=1, N=17, D=1, E=2"])
def test_attention_goes_piece_by_piece(size: str, tmp_path: Path) -> None:
    t = task(tmp_path, f"attention({size}) with rows")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape_of(p), np.float32) for p in t.program.inputs)
    q *= 30  # so that the maximum changes by much
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights @ v / weights.sum(-1, keepdims=True)
    for seed in range(2):
        trace = whole(t.drawn_from(condition(t.model, {"inline": False})).sample(seed))
        assert "online_sums(" in trace.text
        assert proof_fault(t.program, trace.program) == ""
        np.testing.assert_allclose(t.replay(trace)(q, k, v), want, rtol=2e-4, atol=1e-5)


def test_softmax_reads_a_row_twice(tmp_path: Path) -> None:
    t = task(tmp_path, "softmax(M=5, N=37) with pieces")
    trace = whole(t.sample(0))
    assert proof_fault(t.program, trace.program) == ""
    x = np.random.default_rng(0).standard_normal((5, 37), np.float32) * 40
    x[1], x[2, :9], x[3, 5] = -np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(t.replay(trace)(x), e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(("keys", "drawn"), [(64, False), (1 << 15, True)])
def test_rows_are_drawn_where_they_are_long(keys: int, drawn: bool, tmp_path: Path) -> None:
    t = task(tmp_path, f"attention(B=1, H=1, M=64, N={keys}, D=64, E=64) with default")
    trace = whole(t.drawn_from(condition(t.model, {"inline": False})).sample(0))
    assert any(d.name == "online" for d in trace.draws) is drawn
