"""Children of the fork server are as those of a new interpreter, and the server's end is survived."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tensorc_dsl.processes import start
from tensorc_dsl.processes.protocol import LOADED, Purpose, Worker, WorkerBug, WorkerCrash, library_threads
from tensorc_dsl.processes.start import Limits, Process, end, start_module
from tensorc_dsl.tuning.measure.child import BUILDER, Build, Built, Failed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no fork server")


LIMITS = Limits(60.0)


@pytest.fixture(autouse=True)
def find_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)


@contextmanager
def told(
    loaded: Mapping[str, str] | None = LOADED, limits: Limits = LIMITS, **variables: str
) -> Iterator[tuple[Process, dict[str, Any]]]:
    """A child, and what it tells of itself."""
    with tempfile.TemporaryFile() as stderr:
        process = start_module(
            "server_child", "a", "b c", limits=limits, stderr=stderr, environment=variables, loaded=loaded
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            said = process.stdout.readline()
            if not said:
                stderr.seek(0)
                raise AssertionError(stderr.read().decode())
            yield process, json.loads(said)
        finally:
            end(process)
            process.stdin.close()
            process.stdout.close()


@contextmanager
def builder() -> Iterator[Worker[Build, Built | Failed]]:
    worker = Worker(BUILDER, library_threads(1), loaded=LOADED)
    try:
        worker.ready()
        yield worker
    finally:
        worker.kill()


def served(process: Process) -> bool:
    return isinstance(process, start.Forked)


def server() -> int:
    """The process number of this process's server."""
    return start._servers[os.getpid()]._process.pid


def test_a_served_child_is_as_one_of_a_new_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A_VARIABLE_OF_NOW", "one\udcff")
    limits = Limits(60.0, 3 << 30)
    with builder(), told(None, limits, MORE="x") as (fresh, wanted), told(limits=limits, MORE="x") as (process, found):
        assert (served(fresh), served(process)) == (False, True)
        assert found["parent"] == server() != wanted["parent"] == os.getpid()
        assert found["name"] == "server_child"
        # The server has loaded what a builder needs, and with one thread.
        assert (wanted["loaded"], found["loaded"]) == ([], ["numpy", "llvmlite"])
        apart = {"parent", "name", "loaded"}
        assert {k: v for k, v in found.items() if k not in apart} == {k: v for k, v in wanted.items() if k not in apart}
        assert found["environment"]["A_VARIABLE_OF_NOW"] == "one\udcff" and found["environment"]["MORE"] == "x"
        assert found["leader"] and found["alarm"] and found["threads"] == 1
        assert (found["data"], found["folder"], found["arguments"]) == (3 << 30, str(tmp_path), ["a", "b c"])
        assert {"SIGINT", "SIGTERM", "SIGHUP"} <= {*found["ignored"]}
    with told() as (_, found):  # limits and variables of one child are no other's
        assert found["data"] != 3 << 30 and "MORE" not in found["environment"]


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with told() as (process, found):
        assert served(process) and found["folder"] is None


def test_one_server_for_all_children_and_none_holds_anothers_pipes() -> None:
    with told() as (first, a), told() as (second, b):
        assert a["parent"] == b["parent"] == server()
        assert len(os.listdir(f"/proc/{server()}/task")) == 1
        assert first.stdin is not None and first.stdout is not None
        first.stdin.close()  # its input ends, though the other child and the server live
        assert first.wait(60.0) == 0
        assert first.stdout.read() == b""
        assert second.poll() is None


def test_a_status_is_the_childs_and_its_number_is_taken_until_it_is_released() -> None:
    for number in (signal.SIGSEGV, signal.SIGKILL):
        with told() as (process, _):
            os.kill(process.pid, number)
            assert process.wait(60.0) == -number == process.poll()
            assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        assert not psutil.pid_exists(process.pid)


def test_a_server_that_is_killed_takes_its_children_along_and_is_replaced() -> None:
    with builder() as worker:
        before, pid = server(), worker.pid
        assert pid is not None and psutil.Process(pid).ppid() == before
        os.kill(before, signal.SIGKILL)
        with pytest.raises(WorkerCrash, match="SIGKILL"):
            worker.receive(60.0)
        psutil.wait_procs([psutil.Process(p) for p in (pid,) if psutil.pid_exists(p)], timeout=60)
        assert not psutil.pid_exists(pid)
        worker.ready()
        assert worker.generation == 2 and server() != before


def test_a_server_that_ends_while_nobody_looks() -> None:
    with told():
        before = server()
    os.kill(before, signal.SIGKILL)
    start._servers[os.getpid()]._process.wait(60.0)
    with told() as (process, found):
        assert served(process) and found["parent"] == server() != before


@pytest.mark.parametrize(("variable", "same"), [("XDG_DATA_HOME", True), ("OPENBLAS_CORETYPE", False)])
def test_what_libraries_read_when_they_load_is_another_server(
    variable: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "Nehalem" if os.environ.get(variable) == "Haswell" else "Haswell"
    with told():
        before = server()
        monkeypatch.setenv(variable, other)
        with told() as (process, found):  # a child of the first lives, so there is no other server
            assert found["environment"][variable] == other
            assert served(process) == same
    with told() as (process, found):
        assert served(process)
        assert (server() == before) == same
        assert found["environment"][variable] == other


def test_other_folders_of_modules_are_another_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is none, whichever it is: not even where tests run in the repository, which is on their path."""
    monkeypatch.chdir(ROOT)
    with told() as (process, found):
        assert served(process) and found["folder"] == str(ROOT)
        before = server()
    monkeypatch.chdir(tmp_path)
    with told() as (process, found):
        assert served(process) and found["folder"] == str(tmp_path) and server() == before
    monkeypatch.syspath_prepend(HERE.parent)
    with told() as (process, _):
        assert served(process) and server() != before


def test_a_server_with_threads_does_not_fork() -> None:
    """What another thread holds at the moment of a fork stays locked in the child."""
    threads = {**LOADED, "OPENBLAS_NUM_THREADS": "3"}
    worker = Worker(BUILDER, library_threads(1), loaded=threads)
    try:
        worker.ready()
        # The least that a library may make of 3 is the number of cores.
        several = min(3, os.cpu_count() or 1)
        assert len(os.listdir(f"/proc/{server()}/task")) == several
        pid = worker.pid
        assert pid is not None and psutil.Process(pid).ppid() == server()
        assert ("boot.py" in " ".join(psutil.Process(pid).cmdline())) and "builder" in psutil.Process(pid).cmdline()[-1]
    finally:
        worker.kill()
    assert not psutil.pid_exists(pid)


def test_another_thread_starts_an_interpreter() -> None:
    """A server dies with its thread, and children with the server: those of one thread would die with another."""
    found: list[bool] = []

    def start() -> None:
        with told() as (process, _):
            found.append(served(process))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert found == [False]


def test_a_module_of_ours_that_does_not_load_tells_why() -> None:
    worker = Worker(Purpose("tensorc_dsl.tuning.measure.nothing:main", Build, Built), loaded=LOADED)
    with pytest.raises(WorkerBug, match=r"No module named 'tensorc_dsl\.tuning\.measure\.nothing'"):
        worker.ready()
    worker.kill()


PARENT = """
import os, sys
from tensorc_dsl.processes import start as forked
from tensorc_dsl.tuning.measure.child import BUILDER
from tensorc_dsl.processes.protocol import LOADED, Worker
workers = [Worker(BUILDER, loaded=LOADED) for _ in range(2)]
for w in workers:
    w.ready()
print(*(w.pid for w in workers), forked._servers[os.getpid()]._process.pid, flush=True)
if (pid := os.fork()) == 0:
    other = Worker(BUILDER, loaded=LOADED)
    other.ready()
    assert forked._servers[os.getpid()]._process.pid != forked._servers[os.getppid()]._process.pid
    other.kill()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), *(w._process.poll() for w in workers), flush=True)
sys.stdin.read()
"""


@pytest.mark.corpus
@pytest.mark.parametrize("how", ["in order", "killed"])
def test_nothing_is_left_of_a_process_that_ends(how: str) -> None:
    """Also its own forks have a server of their own, and do not end that of their parent."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        pids = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(pids) == 3
        assert parent.stdout.readline() == "7 None None\n"
        if how == "killed":
            parent.kill()
        else:
            parent.stdin.close()
        assert parent.wait(60.0) == (-signal.SIGKILL if how == "killed" else 0)
    assert psutil.wait_procs(pids, timeout=60)[1] == []
