"""The Python interface: a file of tasks, tasks that are sampled, tuned and replayed, kernels that are called."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorc_dsl
from tensorc_dsl import TschedError
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import Kernel
from tensorc_dsl.lower.lower import Pass, lower
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Status
from tensorc_dsl.tuning.search.options import SearchChanges

FILE = """\
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
compute double(A: f32[N]) -> B: f32[N] { B[i] = A[i] + A[i] }

schedule tiled for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2)
    let [i0, i1] = split(i, rows)
    let step ~ sample_categorical([1, 2, 4])
    annotate(root, "unroll.max_step", step)
    vectorize(j)
}
schedule plain for double { parallel(B.loops[0]) }

task odd = matmul(M=6, N=7, K=5)
task twice = double(N=9)
"""


class Foreign:
    """An array of another library: it speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


@pytest.fixture
def tasks(tmp_path: Path) -> tensorc_dsl.TaskFile:
    path = tmp_path / "file.tsched"
    path.write_text(FILE)
    return tensorc_dsl.load(path, threads=1)


@pytest.fixture
def inputs() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return rng.random((6, 5), np.float32), rng.random((5, 7), np.float32)


def test_a_file_is_a_mapping_of_its_tasks(tasks: tensorc_dsl.TaskFile) -> None:
    assert list(tasks) == ["odd", "twice"]
    assert len(tasks) == 2
    assert "odd" in tasks
    assert tasks["odd"].flops == 2 * 6 * 7 * 5
    assert tasks["twice"].check().program.name == "twice"


def test_an_unknown_task_is_no_key(tasks: tensorc_dsl.TaskFile) -> None:
    assert "od" not in tasks
    with pytest.raises(TschedError, match="no task `od`"):
        tasks["od"]


def test_all_findings_come_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.tsched"
    path.write_text(FILE.replace("vectorize(j)", "vectorise(j)").replace("double(N=9)", "dubble(N=9)"))
    with pytest.raises(TschedError) as e:
        tensorc_dsl.load(path)
    assert len(e.value.diagnostics) == 2


def test_samples_are_functions_of_seed_and_number(tasks: tensorc_dsl.TaskFile) -> None:
    task = tasks["odd"]
    texts = [task.sample(1, n).text for n in range(20)]
    assert texts == [task.sample(1, n).text for n in range(20)]
    assert len(set(texts)) > 5
    assert texts != [task.sample(2, n).text for n in range(20)]
    assert str(task.sample(1)) == texts[0]


def test_a_search_is_a_function_of_its_options(tasks: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    """By name, as a value, or as a value but for what is named: the same schedules are tried."""
    named = tasks["odd"].search(trials=2, seed=4, strategy="random", records=tmp_path / "r.sqlite")
    options = tensorc_dsl.SearchOptions(trials=2, seed=4, strategy="random")
    valued = tasks["odd"].search(options, records=tmp_path / "r.sqlite")
    mixed = tasks["odd"].search(options.but(seed=5), seed=4, records=tmp_path / "r.sqlite")
    assert [t.text for t in named.traces] == [t.text for t in valued.traces] == [t.text for t in mixed.traces]
    assert (valued.trials, valued.seed) == (2, 4)
    assert SearchChanges.__annotations__.keys() == {f.name for f in fields(tensorc_dsl.SearchOptions)}
    with pytest.raises(ValueError, match="trials must not be negative, not -1"):
        tasks["odd"].tune(trials=-1)


def test_a_candidate_is_lowered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To tell it from the others, to build it, to build it again as a finalist, to load the best."""
    met: list[Program] = []

    def counting(program: Program, passes: Sequence[Pass]) -> Kernel:
        met.append(program)
        return lower(program, passes)

    monkeypatch.setattr("tensorc_dsl.backend.llvm.backend.lower", counting)
    task = tensorc_dsl.loads(FILE, threads=1)["odd"]
    kernel = task.tune(trials=4, seed=2, records=tmp_path / "r.sqlite")
    task.lower(kernel.trace)
    task.compile(kernel.trace)
    assert kernel.search is not None and len(kernel.search.finalists) > 1
    assert {t.program for t in kernel.search.traces} <= set(met)
    assert len({id(p) for p in met}) == len(met)


def test_a_tuned_kernel_computes(tasks: tensorc_dsl.TaskFile, inputs: Any, tmp_path: Path) -> None:
    a, b = inputs
    kernel = tasks["odd"].tune(trials=3, seed=4, records=tmp_path / "r.sqlite")
    assert kernel.search is not None
    assert kernel.search.statuses == {"ok": 3}
    assert kernel.seconds == kernel.search.best_seconds
    assert repr(kernel) == "Kernel(A: f32[6, 5], B: f32[5, 7], C: f32[6, 7])"
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-5)

    kernel.save(tmp_path / "best.tsched")
    again = tasks["odd"].replay(tmp_path / "best.tsched")
    assert again.trace.text == kernel.trace.text
    assert again.seconds is None
    out = np.full((6, 7), np.nan, np.float32)
    assert again(Foreign(a), Foreign(b), out) is out
    np.testing.assert_array_equal(out, kernel(a, b))
    recorded = tasks["odd"].recorded(tmp_path / "r.sqlite")
    assert recorded is not None
    assert recorded.text in {t.text for t in kernel.search.traces}


USES: dict[str, Callable[[tensorc_dsl.Task, Trace], object]] = {
    "replay": lambda task, trace: task.replay(trace),
    "verify": lambda task, trace: task.verify(trace),
    "measure": lambda task, trace: task.measure(trace),
    "lower": lambda task, trace: task.lower(trace),
    "lowered_text": lambda task, trace: task.lowered_text(trace),
    "compile": lambda task, trace: task.compile(trace),
    "library": lambda task, trace: task.library(trace),
    "view": lambda task, trace: task.view(trace, "asm"),
}


@pytest.mark.parametrize("use", USES)
def test_a_trace_of_another_task_is_expanded_for_this_one(tasks: tensorc_dsl.TaskFile, use: str) -> None:
    """A kernel must not have the name of one task and compute another."""
    with pytest.raises(tensorc_dsl.TschedError, match="`double`"):
        USES[use](tasks["twice"], tasks["odd"].sample(0))


def test_arrays_that_do_not_fit_are_refused(tasks: tensorc_dsl.TaskFile, inputs: Any) -> None:
    a, b = inputs
    kernel = tasks["odd"].replay(tasks["odd"].sample(0))
    with pytest.raises(ValueError, match="A: expected shape"):
        kernel(b, a)
    with pytest.raises(ValueError, match="B: expected float32"):
        kernel(a, b.astype(np.float64))
    with pytest.raises(ValueError, match="takes 3 arrays"):
        kernel(a)


def test_a_removed_pin_is_drawn_again(tasks: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    task = tasks["odd"]
    trace = task.sample(3)
    path = tmp_path / "t.tsched"
    (line,) = [line for line in trace.text.splitlines() if "let rows" in line]
    path.write_text(trace.text.replace(line, line.partition(" := ")[0]))
    opened = task.frozen(path)
    assert [d.name for d in opened.open_draws] == ["rows"]
    assert opened.decisions["step"] == trace.decisions["step"]
    assert task.measure(opened).status is Status.OK


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("schedule s for matmul { vectorize(C.loops[2]) }", "E03"),
        ("schedule s for double { parallel(B.loops[0]) }", "E05"),
        ("", "E05"),
        ("schedule s for matmul { split(", "E01"),
        ("schedule s for matmul { splitt(C.loops[0], [1, 6]) }", "E02"),
        ("schedule s for matmul { let x ~ sample_perfect_tile(C.loops[0], parts=2) := [4, 2] }", "E0504"),
    ],
)  # fmt: skip
def test_a_frozen_schedule_that_does_not_fit(tasks: tensorc_dsl.TaskFile, tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "t.tsched"
    path.write_text(text)
    with pytest.raises(TschedError) as e:
        tasks["odd"].replay(path)
    assert e.value.diagnostics[0].code.startswith(code), e.value


def test_the_package_lists_what_it_has() -> None:
    assert {"load", "Task", "Kernel"} <= set(dir(tensorc_dsl))
    assert tensorc_dsl.__version__
    with pytest.raises(AttributeError, match="lod"):
        tensorc_dsl.lod  # type: ignore[attr-defined] # noqa: B018


def test_a_traceback_shows_the_excerpt_and_the_repair() -> None:
    with pytest.raises(TschedError) as e:
        tensorc_dsl.loads("compute d(A: f32[N]) -> B: f32[N] { B[i] = A[j] * 2.0 }\n")
    e.value.add_note("while the model is read")
    shown = "".join(traceback.format_exception_only(e.value))
    assert "error[E0405]: there is no index or dimension `j` here\n --> <text>:1:46\n" in shown
    assert "  = help: an index is one of the stage's left side" in shown
    assert shown.endswith("while the model is read\n")
    assert pickle.loads(pickle.dumps(e.value)).diagnostics == e.value.diagnostics
    copy = TschedError(*e.value.diagnostics)
    copy.__notes__ = [*e.value.__notes__]  # as what Dask pickles exceptions with does
    assert "".join(traceback.format_exception_only(copy)) == shown
