"""Long rows of exponentials go piece by piece on a CPU: right at odd sizes, proved, and only where rows are long."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.lower.lower import COMMON, lower_until
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.schedule.trace.handlers import condition
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

compute masked(Q: f32[M, D], K: f32[N, D], V: f32[N, E]) -> O: f32[M, E] {
    let S[i, j] = sum[d] Q[i, d] * K[j, d]
    let W[i, j] = S[i, j] if j <= i else -inf
    let m[i] = max[j] W[i, j]
    let e[i, j] = exp((W[i, j] - m[i]) * rsqrt(f32(D)))
    let s[i] = sum[j] e[i, j]
    let U[i, c] = sum[j] (e[i, j] * V[j, c] if j <= i else 0.0)
    O[i, c] = U[i, c] / s[i]
}

schedule pieces for softmax { online_loop(online_sums(m, 8), 2) }
"""


def task(folder: Path, text: str) -> Task:
    file = folder / "t.tsched"
    file.write_text(f"{RULES}\ntask t = {text}\n")
    return td.load(file, threads=2)["t"]


@pytest.mark.corpus("attention on CPUs")
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


@pytest.mark.corpus("attention on CPUs")
@pytest.mark.parametrize("keys", [176, 181])
def test_steps_behind_a_mask_are_skipped(keys: int, tmp_path: Path) -> None:
    """The sums say what they are of, so values behind the mask may be infinite."""
    t = task(tmp_path, f"masked(M=163, N={keys}, D=4, E=8) with rows")
    trace = whole(t.drawn_from(condition(t.model, {"inline": False, "length": 16})).sample(0))
    assert "where" in format_program(trace.program) and proof_fault(t.program, trace.program) == ""
    steps = re.search(r"for p in \S+ \.\. (.*) \{", lower_until(trace.program, COMMON, "bounds"))
    assert steps and "i_10_0" in steps[1]
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape_of(p), np.float32) for p in t.program.inputs)
    v[163:] = np.inf
    scores = q @ k.T / 2
    scores[np.triu_indices(163, 1, keys)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights[:, :163] @ v[:163] / weights.sum(-1, keepdims=True)
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
