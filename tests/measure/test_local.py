"""Candidates built and run in child processes: every failure is recorded with its kind, and the run goes on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from numpy import isfinite

from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import loads
from tensorc_dsl.ir.expr import Dim, floordiv, index
from tensorc_dsl.ir.program import For, LoopKind, Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.protocol import Purpose, Worker, WorkerBug
from tensorc_dsl.reference.inputs import extreme_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.measure import local
from tensorc_dsl.tuning.measure.child import RUNNER, Build, Built, Failed
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tests.measure.faults import kernel, task
from tests.programs import buffer, matmul

DYING: Purpose[Build, Built | Failed] = Purpose("dying_builder:main", Build, Built | Failed)

PATIENCE = 120.0
"""Seconds that a candidate may take which does not hang."""


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    with LocalRunner(task(), Target(), threads=1, run_seconds=PATIENCE) as r:
        yield r


def run(runner: LocalRunner, fault: str) -> Outcome:
    return runner.run(kernel(fault), None)


def test_a_right_kernel_has_times(runner: LocalRunner) -> None:
    outcome = run(runner, "none")
    assert outcome.status is Status.OK, outcome.message
    assert outcome.seconds is not None and outcome.seconds > 0
    assert min(outcome.times) <= outcome.seconds <= max(outcome.times)
    assert outcome.max_error is not None and outcome.max_error <= 1


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("null", Status.CRASH, "SIGSEGV"),
        ("abort", Status.CRASH, "SIGABRT"),
        ("exit", Status.CRASH, "exit status 0"),
        ("far after", Status.CRASH, "SIGSEGV"),
        ("far before", Status.CRASH, "SIGSEGV"),
        ("reads after", Status.CRASH, "SIGSEGV"),
        ("nonsense", Status.CRASH, ""),
        ("wrong", Status.WRONG_RESULT, "C[0] is "),
        ("forgets", Status.WRONG_RESULT, "C[36] is nan"),
        ("just after", Status.WRONG_RESULT, "outside of `C`: after"),
        ("just before", Status.WRONG_RESULT, "outside of `C`: before"),
        ("changes input", Status.WRONG_RESULT, "changes its input `A`"),
        ("only once", Status.WRONG_RESULT, "runs, C[0] is "),
        ("unresolved", Status.COMPILE_ERROR, "cannot be linked"),
        ("prints", Status.OK, ""),
    ],
)
def test_a_fault_is_recorded_as_what_it_is(runner: LocalRunner, fault: str, status: Status, message: str) -> None:
    outcome = run(runner, fault)
    assert outcome.status is status, outcome.message
    assert message in outcome.message
    if status is not Status.OK:
        assert outcome.seconds is None and outcome.times == ()
        after = run(runner, "none")
        assert after.status is Status.OK, after.message


def test_a_hang_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalRunner(task(), Target(), threads=1, run_seconds=PATIENCE) as r:
        assert run(r, "none").status is Status.OK
        pid = r._timer.worker.pid
        with monkeypatch.context() as m:
            m.setattr(r._timer, "_run_seconds", 0.7)
            outcome = run(r, "hang")
        assert outcome.status is Status.TIMEOUT and "0.7 s" in outcome.message
        assert pid is not None and not psutil.pid_exists(pid)
        assert run(r, "none").status is Status.OK


def test_what_is_no_object_code_is_no_kernel(runner: LocalRunner) -> None:
    for code in (b"", b"\x7fELF nonsense"):
        outcome = runner.run(Built(Code(code, "kernel", frozenset())), None)
        assert outcome.status in (Status.COMPILE_ERROR, Status.CRASH)
    assert run(runner, "none").status is Status.OK


def test_a_loser_is_not_timed_to_the_end(runner: LocalRunner) -> None:
    assert len(runner.run(kernel("none"), 1e-12).times) == 1


def test_a_task_built_and_measured() -> None:
    program = matmul(17, 13, 29)
    loop = program.body[0]
    assert isinstance(loop, For)
    fast = replace(program, body=(replace(loop, kind=LoopKind.PARALLEL),))
    n = Dim("n")
    untold = Program("f", (buffer("A", 2), replace(buffer("C", 2), shape=(floordiv(n, index(2)),))), (), (), (n,))
    wrong = matmul(17, 13, 28)
    with LocalRunner(program, Target(cores=2), threads=2, build_seconds=PATIENCE, run_seconds=PATIENCE) as r:
        first, second, third = r.measure([program, untold, fast], None)
        assert [o.status for o in (first, second, third)] == [Status.OK, Status.REFUSED, Status.OK], (
            first,
            second,
            third,
        )
        assert first.build_seconds > 0 and first.run_seconds > 0
        assert "do not tell n" in second.message
        pids = [w.pid for w in (*r._builders, r._timer.worker)]
        a, b = r.compare([program, fast])
        assert a.status is b.status is Status.OK and len(a.times) > 1
        assert [w.pid for w in (*r._builders, r._timer.worker)] == pids
        (bad,) = r.measure([wrong], None)
        assert bad.status in (Status.WRONG_RESULT, Status.CRASH)
    assert not any(psutil.pid_exists(p) for p in pids if p)


@pytest.mark.parametrize(("queued", "started"), [(0.0, 2), (math.inf, 1)])
def test_another_builder_starts_when_candidates_wait(
    queued: float, started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates of a short search are built before another builder would have started."""
    monkeypatch.setattr(local, "QUEUED_SECONDS", queued)
    programs = [replace(matmul(3, 4, 5), name=f"f{k}") for k in range(3)] * 2
    with LocalRunner(programs[0], Target(), threads=1, build_seconds=PATIENCE, run_seconds=PATIENCE) as r:
        names = list[str]()
        plain = r._request
        monkeypatch.setattr(r, "_request", lambda p: names.append(p.name) or plain(p))
        assert [o.status for o in r.measure(programs, None)] == [Status.OK] * 6
        assert names == ["f0", "f1", "f2"]
        assert [w.pid is not None for w in r._builders] == [k < started for k in range(2)]


def test_compilers_that_crash_or_hang_cost_their_candidate_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    good = task()
    wanted = {
        "crash": Status.COMPILE_ERROR,
        "fill": Status.COMPILE_ERROR,
        "hang": Status.TIMEOUT,
        "add_one": Status.OK,
    }
    with LocalRunner(good, Target(), threads=1, build_seconds=PATIENCE, run_seconds=PATIENCE) as r:
        r._builders = [Worker(DYING), Worker(DYING)]
        # What hangs has a short time; what does not has all that a busy machine may need.
        for seconds, names in (
            (PATIENCE, "crash add_one fill crash add_one"),
            (0.7, "hang hang hang"),
            (PATIENCE, "add_one crash"),
        ):
            monkeypatch.setattr(r, "_build_seconds", seconds)
            outcomes = list(r.measure([replace(good, name=n) for n in names.split()], None))
            assert [o.status for o in outcomes] == [wanted[n] for n in names.split()], outcomes
            full = [o.message for n, o in zip(names.split(), outcomes, strict=True) if n == "fill"]
            assert all("more memory than" in message for message in full)
        with pytest.raises(WorkerBug, match="ZeroDivisionError"):
            list(r.measure([replace(good, name="bug")], None))


def test_slow_builds_are_told_before_others_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search in which each build takes all of its time said nothing before the last one of a batch had ended."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setattr(local, "UNINTERRUPTED_SECONDS", 0.0)
    good, begun, plain = task(), list[str](), Worker.send

    def send(worker: Worker[Build, Built | Failed], request: Build, seconds: float) -> None:
        begun.append(request.task if isinstance(request, Build) else "")
        plain(worker, request, seconds)

    monkeypatch.setattr(Worker, "send", send)
    with LocalRunner(good, Target(), threads=1, build_seconds=0.7) as r:
        r._builders = [Worker(DYING)]
        told = r.measure([replace(good, name=n) for n in ("hang", "hang_too", "hang_still")], None)
        assert next(told).status is Status.TIMEOUT
        assert begun == ["hang"]
        assert [o.status for o in told] == [Status.TIMEOUT, Status.TIMEOUT]


def test_a_kernel_that_fills_the_memory_costs_its_candidate_only(runner: LocalRunner) -> None:
    outcome = run(runner, "fills")
    assert outcome.status is Status.CRASH
    assert re.search(r"more memory than the [\d.]+ GB that it may have", outcome.message), outcome.message
    assert run(runner, "none").status is Status.OK


def test_a_reference_that_does_not_fit_is_no_bug() -> None:
    """The estimate may be too low."""
    with LocalRunner(matmul(512, 1 << 13, 512), Target(), threads=1, builders=1) as r:
        r._timer.worker = Worker(RUNNER, memory=180 << 20)
        with pytest.raises(TschedError, match=r"E0706.*0.189 GB that it may have"):
            r.run(kernel("none"), None)


def test_an_interrupted_runner_can_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalRunner(task(), Target(), threads=1, run_seconds=PATIENCE) as r:
        r.run(kernel("none"), None)
        with monkeypatch.context() as m:

            def interrupted(*_: object) -> None:
                raise KeyboardInterrupt

            m.setattr(Worker, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                r.run(kernel("wrong"), None)
        assert r.run(kernel("none"), None).status is Status.OK


STEPS = {
    "a constant factor": "0.1 * Y[t - 1] + X[t]",
    "factors": "X[t] + A[t] * Y[t - 1]",
    "sums under a maximum": "max(Y[t - 1] + A[t], X[t])",
    "sums under a minimum": "min(X[t], Y[t - 1] - A[t])",
    "products": "Y[t - 1] * X[t]",
    "columns": "X[t] + A[t] * Y[t - 1]",
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", STEPS)
def test_a_scan_is_checked_where_its_factors_undo_each_other(case: str) -> None:
    text = f"""
compute scanned(X: f32[T], A: f32[T]) -> Y: f32[T] {{ Y[t] = scan[t] init X[0] step {STEPS[case]} }}
schedule chunks for scanned {{ split_scan(Y, 64, in_range=true) }}
schedule in_order for scanned {{ }}
"""
    if case == "columns":
        text = text.replace("[T]", "[T, N]").replace("Y[t]", "Y[t, i]").replace("[t - 1]", "[t - 1, i]")
        text = text.replace("X[0]", "X[0, i]").replace("X[t]", "X[t, i]").replace("A[t]", "A[t, i]")
    size = "T=400, N=3" if case == "columns" else "T=400"
    t = loads(f"{text}task t = scanned({size}) with chunks\ntask u = scanned({size}) with in_order\n")
    regrouped, in_order = (t[name].sample(0).program for name in "tu")
    with LocalRunner(t["t"].program, Target(), threads=1, run_seconds=PATIENCE) as r:
        outcomes = list(r.measure([in_order, replace(regrouped, annotations=()), regrouped], None))
    assert [x.status for x in outcomes] == [Status.OK, Status.WRONG_RESULT, Status.OK], [x.message for x in outcomes]
    assert "undo each other" in outcomes[1].message
    expected, allowed = (x["Y"] for x in bounded(t["t"].program, extreme_inputs(t["t"].program, 0) or {}))
    assert isfinite(allowed).all()
    assert isfinite(expected).mean() >= 0.7


def test_a_sum_and_whole_numbers_have_no_factors() -> None:
    for dtype, step in (("f32", "Y[t - 1] + X[t]"), ("i32", "3 * Y[t - 1] + X[t]")):
        text = f"""
compute scanned(X: {dtype}[T]) -> Y: {dtype}[T] {{ Y[t] = scan[t] init X[0] step {step} }}
schedule in_order for scanned {{ }}
task t = scanned(T=9) with in_order
"""
        assert extreme_inputs(loads(text)["t"].program, 0) is None
