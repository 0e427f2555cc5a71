"""What the default space of CPUs offers and its modules ask: no candidate that computes the same far too often, no step that
is refused."""

from __future__ import annotations

from pathlib import Path

import tensorc_dsl
from tensorc_dsl.faces.api import Task
from tensorc_dsl.schedule.queries.block import executed_work, own_work

MASKED = """\
use std.cpu.default
compute masked(X: f32[M, N], mask: u8[M, N]) -> Y: f32[M, N] {
    let S[i, j] = X[i, j] * 0.125 if mask[i, j] != 0 else -1e30
    let top[i] = max[j] S[i, j]
    let E[i, j] = exp(S[i, j] - top[i])
    let total[i] = sum[j] E[i, j]
    Y[i, j] = E[i, j] / total[i]
}
task t = masked(M=512, N=512) with default
"""

NESTED = """\
use std.cpu.parallel.{parallelize_vectorize_unroll}
compute scaled(X: f32[M, N]) -> Y: f32[M, N] {
    let T[i] = sum[j] X[i, j]
    Y[i, j] = X[i, j] / T[i]
}
schedule columns for scaled {
    let [i, j] = Y.loops
    compute_at(T, i)
    parallel(j)
    parallelize_vectorize_unroll(root)
}
task t = scaled(M=64, N=64) with columns
"""


def task(text: str, folder: Path) -> Task:
    (folder / "f.tsched").write_text(text, encoding="utf-8")
    return tensorc_dsl.load(str(folder / "f.tsched"), threads=2)["t"]


def test_no_draw_of_a_masked_softmax_computes_its_rows_for_each_element(tmp_path: Path) -> None:
    """A sum of a row for each of its elements was drawn by one schedule of seven: 56 to 371 times the work, and 641 ms for a
    kernel that takes 0.13."""
    t = task(MASKED, tmp_path)
    own = own_work(t.program)
    times = [executed_work(t.sample(seed).program) / own for seed in range(24)]
    assert max(times) < 16.0
    assert len({*times}) > 4  # stages are computed twice all the same


def test_loops_around_a_parallel_loop_are_not_made_parallel(tmp_path: Path) -> None:
    """It was asked for, and refused (E0331)."""
    trace = task(NESTED, tmp_path).sample(0)
    assert trace.text.count("parallel(") == 1
