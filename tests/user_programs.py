"""Programs that a user of the package writes. They import `tensorc_dsl` and NumPy, and no module below.

Pyright checks them in strict mode, so each type that they meet has a public name. `tests/test_user_programs.py` runs them.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

import tensorc_dsl
from tensorc_dsl import (
    Decision,
    Diagnostic,
    Insight,
    Kernel,
    Known,
    Learnt,
    NoValidCandidate,
    Outcome,
    Report,
    SearchOptions,
    SearchResult,
    Status,
    Task,
    TaskFile,
    Trace,
    TschedError,
    TuneResult,
    Value,
    events,
    handlers,
)

Floats = npt.NDArray[np.float32]

TEXT = """\
compute matmul(A: f32[M, K], B: const f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
schedule tiled for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2)
    let [i0, i1] = split(i, rows)
    let step ~ sample_categorical([1, 2, 4])
    annotate(root, "unroll.max_step", step)
    vectorize(j)
}
task small = matmul(M=48, N=16, K=8) with tiled
"""


class Foreign:
    """An array of another library: it speaks DLPack and nothing else."""

    def __init__(self, array: Floats) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def matrices() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    return rng.random((48, 8), np.float32), rng.random((8, 16), np.float32)


def the_task(folder: Path) -> Task:
    path = folder / "product.tsched"
    path.write_text(TEXT)
    found: TaskFile = tensorc_dsl.load(path, threads=1)
    return found["small"]


def tune_and_call(folder: Path) -> None:
    """Tune, and call the kernel with arrays of NumPy, by name, into an array, and with those of another library."""
    kernel: Kernel = the_task(folder).tune(trials=3, records=folder / "records.sqlite", progress=False)
    a, b = matrices()
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-5)
    out: Floats = np.zeros((48, 16), np.float32)
    assert kernel(B=b, A=a, C=out) is out
    np.testing.assert_allclose(kernel(Foreign(a), Foreign(b)), out)
    bound: tensorc_dsl.Bound = kernel.bind(B=b)
    np.testing.assert_allclose(bound(a), out)
    result: TuneResult | None = kernel.search
    assert result is not None and result.best_seconds == kernel.seconds


def save_and_replay(folder: Path) -> None:
    """Save a kernel as a file, replay it, and load it as a task of its own."""
    task = the_task(folder)
    trace: Trace = task.sample(seed=3)
    kernel = task.replay(trace)
    kernel.save(folder / "kept.tsched")
    again = task.replay(folder / "kept.tsched")
    assert again.trace.text == trace.text
    alone = tensorc_dsl.load(folder / "kept.tsched", threads=1)
    assert [t.name for t in alone.values()] == ["small"]


def pickle_a_kernel(folder: Path) -> None:
    kernel = the_task(folder).replay(the_task(folder).sample(0))
    again: Kernel = pickle.loads(pickle.dumps(kernel))
    a, b = matrices()
    np.testing.assert_array_equal(again(a, b), kernel(a, b))


def read_posteriors(folder: Path) -> None:
    """Which draws matter, and which of their values are good: of one search, and of all records."""
    task = the_task(folder)
    found: SearchResult = task.search(trials=12, strategy="random", records=folder / "records.sqlite")
    insight: Insight = found.insight()
    learnt: dict[str, Learnt] = {one.name: one for one in insight.posterior}
    values: tuple[Value, ...] = learnt["step"].values
    assert abs(sum(v.posterior for v in values) - 1) < 1e-9
    decision: Decision = insight.best["rows"]
    assert isinstance(decision, tuple)
    assert {i.name for i in insight.importance} == {"rows", "step"}
    assert 0 <= insight.explained <= 1
    try:
        task.insight(folder / "none.sqlite")
    except TschedError as e:
        print_all(e.diagnostics)


def print_all(found: tuple[Diagnostic, ...]) -> None:
    for one in found:
        print(one.code, one.message, *(note.text for note in one.notes), sep="\n")


def best_k(folder: Path) -> None:
    """The three fastest schedules, as kernels that the program compares itself."""
    task = the_task(folder)
    found = task.search(SearchOptions(trials=6, seed=1), records=str(folder / "records.sqlite"))
    ranked: list[tuple[float, Trace]] = sorted(
        ((o.seconds, t) for t, o in zip(found.traces, found.outcomes, strict=True) if o.seconds is not None),
        key=lambda pair: pair[0],
    )
    a, b = matrices()
    for _, trace in ranked[:3]:
        np.testing.assert_allclose(task.replay(trace)(a, b), a @ b, rtol=1e-5)
    outcome: Outcome = task.measure(ranked[0][1])
    assert outcome.status is Status.OK and outcome.times


def resume(folder: Path) -> None:
    """A search in two parts."""
    task = the_task(folder)
    first = task.search(trials=2, seed=5, records=folder / "records.sqlite")
    both = task.search(trials=4, seed=5, resume=True, records=folder / "records.sqlite")
    assert [t.text for t in both.traces[:2]] == [t.text for t in first.traces]
    recorded: Trace | None = task.recorded(str(folder / "records.sqlite"))
    assert recorded is not None
    known: Known = task.known(str(folder / "records.sqlite"))
    match known.origin:
        case tensorc_dsl.Recorded(seconds=seconds):
            assert seconds > 0
        case tensorc_dsl.Forecast() | tensorc_dsl.Drawn() | tensorc_dsl.Given():
            raise AssertionError("the search is recorded")
        case _:
            assert_never(known.origin)


def listen(folder: Path) -> None:
    """Follow a search by its events."""
    times: list[float] = []

    def follow(event: events.Event) -> None:
        if isinstance(event, events.Measured) and event.outcome.seconds is not None:
            times.append(event.outcome.seconds)

    listener: events.Listener = follow
    result = the_task(folder).search(trials=3, on_event=listener, records=folder / "records.sqlite")
    assert len(times) == result.statuses["ok"]


def decide(folder: Path) -> None:
    """Fix some draws, and search for the others."""
    task = the_task(folder)
    fixed: tensorc_dsl.Model = handlers.condition(task.space, {"step": 2})
    traced: handlers.Traced = handlers.trace(handlers.seed(fixed, 0))
    trace = traced.get_trace()
    assert trace.decisions["step"] == 2
    assert [d.name for d in trace.open_draws] == ["rows"]
    found = task.drawn_from(fixed).search(trials=2, records=folder / "records.sqlite")
    assert {t.decisions["step"] for t in found.traces} == {2}


def prove_and_fail(folder: Path) -> None:
    """A proof, and errors with their code, place and repair."""
    task = the_task(folder)
    report: Report = task.verify(task.sample(0))
    match report:
        case tensorc_dsl.Valid(assumes=assumes):
            assert assumes == ()
        case tensorc_dsl.Invalid(diagnostic=diagnostic) | tensorc_dsl.Unproved(diagnostic=diagnostic):
            raise AssertionError(diagnostic.message)
        case _:
            assert_never(report)
    try:
        tensorc_dsl.loads(TEXT.replace("vectorize", "vectorise"))
    except TschedError as e:
        one: Diagnostic = e.diagnostics[0]
        assert (one.code, one.severity) == ("E0223", tensorc_dsl.Severity.ERROR)
        assert one.span is not None and one.span.text == "vectorise"
    try:
        task.tune(trials=0, records=folder / "records.sqlite")
    except NoValidCandidate as e:
        report_of(e.result)


def report_of(result: TuneResult) -> None:
    assert (result.trials, result.best, result.exhausted) == (0, None, None)


def another_machine(folder: Path) -> None:
    """A library for a machine that is not this one."""
    cpu = 'triple="aarch64-unknown-linux-gnu", cpu="cortex-a72", features=["neon"], vector_bits=128, cores=4'
    task = tensorc_dsl.loads(f"{TEXT}target pi = llvm({cpu})\n", target="pi")["small"]
    target: tensorc_dsl.Target = task.target
    assert target.cpu == "cortex-a72"
    library: tensorc_dsl.KernelLibrary = task.library(task.sample(0))
    assert library.make("obj").startswith(b"\x7fELF")
    program: tensorc_dsl.Program = task.program
    assert [p.name for p in program.inputs] == ["A", "B"]


PROGRAMS = (
    tune_and_call,
    save_and_replay,
    pickle_a_kernel,
    read_posteriors,
    best_k,
    resume,
    listen,
    decide,
    prove_and_fail,
    another_machine,
)
