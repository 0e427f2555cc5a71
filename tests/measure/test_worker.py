"""Child processes that crash, hang, lie or are orphaned: the parent notices, and the next one works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.protocol import (
    LOADED,
    Purpose,
    Worker,
    WorkerBug,
    WorkerCrash,
    WorkerExhausted,
    WorkerTimeout,
    wait_any,
)
from tensorc_dsl.tuning.measure.child import Build, Built

HERE = Path(__file__).parent

ECHO: Purpose[Build, Built] = Purpose("echo_child:main", Build, Built)

PATIENCE = 60.0
"""Seconds after which something hangs."""


@pytest.fixture
def worker() -> Iterator[Worker[Build, Built]]:
    """One of the fork server, as our own are."""
    w = Worker(ECHO, loaded=LOADED)
    yield w
    w.kill()


@pytest.fixture(autouse=True)
def find_echo_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)


def say(text: str) -> Build:
    return Build(text, b"", 0, Target(), 1)


def gone(pid: int) -> bool:
    """Whether the process ends (or is a zombie that only waits to be reaped)."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_one_process_answers_many_requests(worker: Worker[Build, Built]) -> None:
    pids = {worker.ask(say("pid"), PATIENCE) for _ in range(3)}
    assert len(pids) == 1
    big = "x" * 3_000_000  # many times a pipe's buffer, both ways
    assert worker.ask(say(big), PATIENCE) == Built(Code(big.encode(), "echo", frozenset()))
    assert worker.generation == 1


def test_what_a_child_prints_spoils_nothing(worker: Worker[Build, Built]) -> None:
    assert worker.ask(say("print"), PATIENCE) == Built(Code(b"print", "echo", frozenset()))
    assert worker.ask(say("hello"), PATIENCE) == Built(Code(b"hello", "echo", frozenset()))


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("die 3", "exit status 3"),
        ("die 3", "last words"),
        (f"signal {int(signal.SIGSEGV)}", "SIGSEGV"),
        (f"signal {int(signal.SIGKILL)}", "SIGKILL"),
        ("nonsense", "nonsense"),
        ("huge", "nonsense"),
    ],
)
def test_a_crash_is_noticed_and_the_next_child_works(worker: Worker[Build, Built], request_: str, message: str) -> None:
    with pytest.raises(WorkerCrash, match=message):
        worker.ask(say(request_), PATIENCE)
    assert worker.pid is None
    assert worker.ask(say("hello"), PATIENCE) == Built(Code(b"hello", "echo", frozenset()))
    assert worker.generation == 2


def test_a_hang_is_killed_with_all_its_processes(worker: Worker[Build, Built]) -> None:
    worker.ready()
    pid = worker.pid
    assert pid is not None
    worker.send(say("hang-with-child"), PATIENCE)
    end = time.monotonic() + PATIENCE
    while not (children := psutil.Process(pid).children()) and time.monotonic() < end:
        time.sleep(0.02)
    with pytest.raises(WorkerTimeout):
        worker.receive(0.1)
    assert children and all(gone(p) for p in [pid, *(c.pid for c in children)])
    assert worker.ask(say("hello"), PATIENCE) == Built(Code(b"hello", "echo", frozenset()))


@pytest.mark.corpus
@pytest.mark.parametrize("how", ["fill", "map"])
def test_more_memory_than_allowed_is_told_and_the_next_child_works(how: str) -> None:
    worker = Worker(ECHO, memory=400 << 20)
    try:
        worker.ask(say(f"{how} {200 << 20}"), PATIENCE)
        with pytest.raises(WorkerExhausted, match=r"more memory than the 0.419 GB that it may have"):
            worker.ask(say(f"{how} {500 << 20}"), PATIENCE)
        assert worker.ask(say("hello"), PATIENCE) == Built(Code(b"hello", "echo", frozenset()))
    finally:
        worker.kill()


@pytest.mark.corpus
@pytest.mark.parametrize(
    "words",
    [
        "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.",
        "LLVM ERROR: out of memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_a_library_that_ends_the_child_for_want_of_memory(words: str) -> None:
    for memory, wanted in ((400 << 20, WorkerExhausted), (None, WorkerCrash)):
        worker = Worker(ECHO, memory=memory)
        try:
            with pytest.raises(WorkerCrash) as raised:
                worker.ask(say(f"say {words}"), PATIENCE)
            assert raised.type is wanted
        finally:
            worker.kill()


def test_a_child_ends_when_its_pipe_is_closed_even_while_it_works(worker: Worker[Build, Built]) -> None:
    """Where the system does not tell a child of its parent's death, this does."""
    worker.ready()
    assert worker.pid is not None and worker._process is not None and worker._process.stdin is not None
    worker.send(say("hang"), 1000)
    worker._process.stdin.close()
    assert gone(worker.pid)


def test_a_child_ends_by_itself_when_nobody_ends_it(worker: Worker[Build, Built]) -> None:
    """As with a parent that was stopped: the child is gone before it looks."""
    worker.ready()
    assert worker.pid is not None
    worker.send(say("hang"), 0.1)
    assert gone(worker.pid)
    with pytest.raises(WorkerTimeout):
        worker.receive(5)


@pytest.mark.corpus
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_everybody_is_the_parents_to_answer(worker: Worker[Build, Built], number: signal.Signals) -> None:
    """Else a candidate is recorded as one that crashes."""
    worker.ready()
    assert worker.pid is not None
    os.kill(worker.pid, number)
    assert worker.ask(say("hello"), PATIENCE) == Built(Code(b"hello", "echo", frozenset()))
    assert worker.generation == 1


def test_a_child_killed_between_requests_is_replaced(worker: Worker[Build, Built]) -> None:
    worker.ready()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    assert worker._process is not None
    worker._process.wait()  # all threads of it, and not the first alone
    assert worker.ask(say("hello"), PATIENCE) == Built(Code(b"hello", "echo", frozenset()))


def test_an_exception_in_the_child_is_a_bug_here(worker: Worker[Build, Built]) -> None:
    with pytest.raises(WorkerBug, match="a mistake of ours"):
        worker.ask(say("bug"), PATIENCE)


def test_a_module_that_does_not_start_is_a_bug() -> None:
    worker = Worker(Purpose("no_such_module:main", Build, Built))
    with pytest.raises(WorkerBug, match="no_such_module"):
        worker.ready()
    worker.kill()


def test_two_workers_at_once(worker: Worker[Build, Built]) -> None:
    other = Worker(ECHO)
    try:
        worker.start()
        other.start()
        worker.ready()
        other.ready()
        worker.send(say("hang"), PATIENCE)
        other.send(say("hello"), PATIENCE)
        assert wait_any([worker, other], PATIENCE) == [other]
        assert other.poll() == Built(Code(b"hello", "echo", frozenset()))
        assert worker.poll() is None
    finally:
        other.kill()


PARENT = """
import sys
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.measure.child import Build, Built
from tensorc_dsl.processes.protocol import Purpose, Worker
w = Worker(Purpose("echo_child:main", Build, Built))
w.ready()
print(w.pid, flush=True)
w.ask(Build("hang", b"", 0, Target(), 1), 1000)
"""


def test_a_child_dies_with_its_parent() -> None:
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
    assert gone(pid)
