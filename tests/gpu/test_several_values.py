"""Reducers of several values on a GPU: threads combine all values of their parts, right in each order of threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.schedule.trace.trace import Trace
from tests.compute.test_several_values import EXAMPLE, OF_INFINITE_ROWS, expected, infinite_rows, rows
from tests.gpu.kernels import kernels_of, whole

NAMES = ["positions", "variance", "softmax", "log_total"]
DRAWN: dict[str, dict[str, Decision]] = {
    "each row by one thread": {"one_kernel": False, "together": False},
    "by shuffles": {"one_kernel": False, "together": True, "width": 64, "combine": "by_shuffles"},
    "through memory": {"one_kernel": False, "together": True, "width": 32, "combine": "through_memory"},
    "one kernel": {"one_kernel": True, "width": 64, "combine": "by_shuffles"},
}

BY_HAND = """
schedule two_kernels for positions {
    let [i, j] = V.loops
    let [chunk, _] = split(j, [3, _], partial=true)
    let parts = rfactor(V, chunk)
    bind(parts.loops[0], "block.x")
    bind(parts.loops[1], "thread.x")
    bind(V.loops[0], "thread.x")
}

schedule ranges for positions {
    let [i, j] = V.loops
    let [i0, i1] = split(i, [_, 2], partial=true)
    let [j0, j1] = split(j, [_, 8], partial=true)
    reorder(i0, j0, i1, j1)
    let parts = stream_k(V, i0, j0, 3)
    bind(parts.loops[0], "block.x")
    bind(V.loops[0], "thread.x")
}
"""


def task(folder: Path, name: str, n: int, by: str = "default", schedules: str = "") -> Task:
    """A compute of the example by a schedule, or in the default space for GPUs."""
    (folder / "reducers.tsched").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    uses = f"use reducers.{{{name}}}\nuse std.gpu.default.{{default}}\nuse std.gpu.targets.{{sm_80}}\n"
    file = folder / "t.tsched"
    file.write_text(f"{uses}{schedules}\ntask t = {name}(M=3, N={n}) with {by}\n", encoding="utf-8")
    return td.load(file, target="sm_80")["t"]


def check(t: Task, trace: Trace, name: str, n: int) -> None:
    """The schedule is proved, and its kernels give NumPy's results in each order of threads."""
    assert isinstance(t.verify(trace), Valid), trace.text
    x = rows(n)
    fault, found = emulated(lower_device(trace.program), t.program, {"X": x})
    assert fault == "", trace.text
    for values in found:
        for out, want in expected(name, x).items():
            np.testing.assert_allclose(values[out], want, 1e-4, 1e-5, err_msg=f"{name} {out}\n{trace.text}")


@pytest.mark.corpus
@pytest.mark.parametrize("case", DRAWN)
@pytest.mark.parametrize("name", NAMES)
def test_threads_reduce_all_values_together(name: str, case: str, tmp_path: Path) -> None:
    t = task(tmp_path, name, 101)
    trace = whole(t.drawn_from(condition(t.model, DRAWN[case])).sample(0))
    check(t, trace, name, 101)
    if case == "one kernel":
        assert len(kernels_of(t, trace).kernels) == 1


@pytest.mark.corpus
@pytest.mark.parametrize("n", [1, 2, 31, 67])
@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_fill_no_warp(name: str, n: int, tmp_path: Path) -> None:
    t = task(tmp_path, name, n)
    check(t, whole(t.sample(n)), name, n)


@pytest.mark.corpus
@pytest.mark.parametrize("case", DRAWN)
def test_lanes_without_a_number(case: str, tmp_path: Path) -> None:
    """Most lanes of a warp have infinities alone, the identity of a maximum."""
    x = infinite_rows(37)
    for name, wanted in {
        "positions": {"V": OF_INFINITE_ROWS["V"], "I": x.argmax(1)},
        "log_total": OF_INFINITE_ROWS,
    }.items():
        t = task(tmp_path, name, 37)
        trace = whole(t.drawn_from(condition(t.model, DRAWN[case])).sample(0))
        fault, found = emulated(lower_device(trace.program), t.program, {"X": x})
        assert fault == "", trace.text
        for values in found:
            for out, array in values.items():
                np.testing.assert_array_equal(array, wanted[out])


@pytest.mark.corpus
@pytest.mark.parametrize("by", ["two_kernels", "ranges"])
def test_partial_results_of_blocks_are_combined(by: str, tmp_path: Path) -> None:
    """Split-K and stream-K of a reducer of several values."""
    t = task(tmp_path, "positions", 37, by, BY_HAND)
    check(t, t.sample(0), "positions", 37)


@pytest.mark.corpus
@pytest.mark.parametrize("name", NAMES)
def test_a_drawn_schedule_is_read_back(name: str, tmp_path: Path) -> None:
    """Values that no name of a block stands for are named as what it writes."""
    t = task(tmp_path, name, 37)
    trace = whole(t.drawn_from(condition(t.model, DRAWN["one kernel"])).sample(0))
    again = trace.text.replace("schedule default", "schedule again", 1)
    assert task(tmp_path, name, 37, "again", again).sample(0).program == trace.program
