"""Figures of made-up searches of a small task, to make pages of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from tensorc_dsl.faces.api import Task, load, loads
from tensorc_dsl.faces.report.page import DrawPage, Figures, Side, Stage
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.records.trial import Trial
from tests.insight.known import recorded_of

FILE = """\
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
schedule tiled for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2, max_innermost=8)
    let columns ~ sample_perfect_tile(j, parts=2, max_innermost=16)
    let [i0, i1] = split(i, rows)
    let [j0, j1] = split(j, columns)
    maybe(70) wide { let unrolled ~ sample_categorical([1, 4, 16]); annotate(root, "max_step", unrolled) }
    reorder(i0, j0, k, i1, j1)
    vectorize(j1)
}
task small = matmul(M=32, N=48, K=20) with tiled
"""

ROOF = Roof(2 * 32 * 48 * 20, 4 * (32 * 20 + 20 * 48 + 32 * 48), True, "f32 FMA peak", 1e11, 2e-7)


def task_in(folder: Path) -> Task:
    (folder / "small.tsched").write_text(FILE, encoding="utf-8")
    return load(folder / "small.tsched", threads=1)["small"]


def seconds(decisions: Mapping[str, Decision]) -> float | None:
    """`columns` wants to be 16, `rows` 4; unrolling by 16 helps; 1 × 1 tiles crash."""
    rows, columns = decisions["rows"], decisions["columns"]
    assert isinstance(rows, tuple) and isinstance(columns, tuple)
    if rows[1] == columns[1] == 1:
        return None
    slow = 0.6 * abs(math.log2(columns[1] / 16)) + 0.2 * abs(math.log2(rows[1] / 4))
    return 2e-6 * math.exp(slow - (0.2 if decisions.get("unrolled") == 16 else 0.0))


@cache
def _drawn() -> Sequence[Trial]:
    """What searches of the task try first, each with a time."""
    return recorded_of(loads(FILE, threads=1)["small"], seconds, 60)


def searched(count: int, run: str = "a" * 32, strategy: str = "random") -> list[Trial]:
    """So many trials of a search of the task, at most 60."""
    return [replace(t, run=run, strategy=strategy, program_key=f"{run}{t.trial}") for t in _drawn()[:count]]


def figures_of(task: Task, sides: Sequence[Side], insight: DrawPage | None = None) -> Figures:
    """Figures without a measurement."""
    return Figures(
        task=task.name, machine="a machine", threads=1, cache="warm", sides=tuple(sides), roof=ROOF, no_roof="",
        insight=insight, no_insight="there is nothing to learn", command=("tensorc-dsl", "tune", "small.tsched", "small"),
        default=task.sample(0), best=task.sample(1), stages=(Stage("Its schedule", task.sample(1).text),),
    )  # fmt: skip
