"""Options and profiles of the whole test suite."""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
import zlib

# The processes of one run of all tests take all cores: threads of NumPy's and SciPy's libraries would wait for each other,
# which they do by spinning. Both read this when they are loaded, here and in what tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tensorc_dsl.backend.llvm import backend
from tensorc_dsl.backend.llvm.model import threads
from tensorc_dsl.backend.llvm.model.machine import keep_common
from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.faces.api import kernel, searching, tasks
from tensorc_dsl.faces.cli import failures
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.processes import start
from tensorc_dsl.processes.boot import Orders
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.tuning import insight
from tensorc_dsl.tuning.machine import baseline, roof
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.records.shipped import Shipped, ShippedFile
from tensorc_dsl.tuning.search import plausible, source
from tensorc_dsl.tuning.search.strategies import bayes
from tensorc_dsl.tuning.search.team import Team
from tests.corpus import ROOT, sampled
from tests.started import PATIENT

settings.register_profile("part", derandomize=True, deadline=None, print_blob=True, max_examples=25)
settings.register_profile("whole", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)

# The command does the same when it is called.
gc.set_threshold(100_000, 20, 20)


def pytest_collection_finish() -> None:
    """15,000 tests and the trees of the library are alive to the end, so no search for garbage visits them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Searches of the tests, and of the commands that they run, neither read nor write the database of whoever runs them.

    Nor do they wait for a turn to time kernels, which searches of a user take by a lock: no test asserts a time, and the
    processes of one run of all tests would wait for each other.
    """
    with pytest.MonkeyPatch.context() as m:
        m.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        m.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        m.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        keep_common(host_target())  # nothing is measured, and searches are the same on all machines with these caches
        yield


@pytest.fixture(scope="session", autouse=True)
def internal_errors_have_their_traces() -> Iterator[None]:
    """A command that a test runs in this process keeps what it writes to itself; of an internal error, the trace is shown."""
    asked = failures.exhausted

    def exhausted(e: BaseException) -> Diagnostic | None:
        found = asked(e)
        if found is None:
            traceback.print_exception(e, file=sys.__stderr__)
        return found

    with pytest.MonkeyPatch.context() as m:
        m.setattr(failures, "exhausted", exhausted)
        yield


@pytest.fixture(scope="session", autouse=True)
def a_busy_machine_is_not_waited_for() -> Iterator[None]:
    """A search waits for the machine to be as fast as it was, and for a moment in which all its threads have a core. While
    tests run on all cores there is none, and no test asserts how fast the machine is. So NumPy is timed for a moment, too,
    and the roof is that of one thread, measured once, times the number of threads: each takes a tenth of a second of all
    cores, and a search measures three. It is no lower than a measured one, by which a right kernel could be too fast.
    """
    peak, bandwidth = cache(backend.peak), cache(partial(backend.bandwidth, repeats=(4, 4)))
    with pytest.MonkeyPatch.context() as m:
        m.setattr(plausible, "PATIENCE", 0.0)
        m.setattr(roof, "CREDIBLE", 0.0)
        m.setattr(baseline, "SECONDS", 0.005)
        m.setattr(backend, "peak", lambda title, target, threads: threads * peak(title, target, 1))
        m.setattr(backend, "bandwidth", lambda target, threads, size: threads * bandwidth(target, 1, size))
        yield


@pytest.fixture(scope="session", autouse=True)
def small_kernels_run_on_threads_too() -> Iterator[None]:
    """The arrays of tests are small: their kernels would run on one thread, and the code for several would not be tested."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(threads, "HANDED", 1e-6)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_fork_server_in_all_working_folders() -> Iterator[None]:
    """Children of tests have one fork server, which takes most of a second of a core to start.

    A server stays as long as the folders in which a child looks for modules are the same. The working folder is none of
    them: that of one test is the repository, that of the next is not. And Dask adds a folder of files for each of its
    workers in this process. A child still looks in its own folders.
    """
    inherited = start._inherited

    def alike(server: Orders, environment: Mapping[str, str]) -> tuple[object, ...]:
        kept = [p for p in server["paths"] or () if Path(p) != ROOT and "dask-scratch-space" not in Path(p).parts]
        return inherited({**server, "paths": kept}, environment)

    with pytest.MonkeyPatch.context() as m:
        m.setattr(start, "_inherited", alike)
        yield


@pytest.fixture(scope="session", autouse=True)
def searches_start_few_processes() -> Iterator[None]:
    """A search that a test runs in its own process has one builder and no team, and times NumPy here, once for a program.

    Nor does one learn from the records of the package: a fit takes as long as the rest of a short search.
    `tests/search/test_elsewhere.py` has searches that do.

    A process for NumPy takes a third of a second of a core to start, and the cores have tests to run. Searches propose and
    find the same without them. `tests/measure/test_local.py` has several builders, `tests/search/test_team.py` teams,
    `tests/report/test_numpy.py` a child for each time; commands in processes of their own have all of these.

    A candidate may take minutes, of which a busy machine may need one.

    Before its first trial a search expands 48 schedules, among which it chooses, for two seconds: here it expands six. A
    model expands a dozen for each task that takes much of a run: here two. `tests/search` has all, and what they choose.
    """
    known: dict[str, baseline.Fastest | None] = {}

    def once(program: Program, _threads: int) -> baseline.Fastest | None:
        key = format_program(program)
        if key not in known:
            known[key] = _numpy_seconds(program)
        return known[key]

    with pytest.MonkeyPatch.context() as m:
        m.setattr(searching, "LocalRunner", partial(LocalRunner, builders=1, **PATIENT))
        m.setattr(tasks, "LocalRunner", partial(LocalRunner, **PATIENT))
        m.setattr(searching, "Team", partial(Team, 0))
        m.setattr(baseline, "numpy_seconds", once)
        m.setattr(bayes, "FIRST", 4)
        m.setattr(bayes, "FORESEEN", 2)
        m.setattr(bayes, "ROUNDS", 1)
        m.setattr(source, "SOON", 2)
        m.setattr(source, "NEARBY", 0)
        for module in (searching, kernel):
            m.setattr(module, "shipped", lambda columns: Shipped(ShippedFile(columns, [])))
        yield


def _numpy_seconds(program: Program) -> baseline.Fastest | None:
    """As `baseline.numpy_seconds`, in this process."""
    found, total = sizing(program), 0.0
    for sizes, weight in zip(found.timed, found.weights, strict=True):
        with np.errstate(all="ignore"):
            calls, _ = baseline.right_calls(bind(program, sizes))
            if not calls:
                return None
            total += weight * baseline.fastest(calls, baseline.SECONDS).seconds
    return baseline.Fastest(total, False)  # the machine of the tests is as it is


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="write what comes out into the golden files")
    parser.addoption(
        "--minutes", type=float, help="start no test after that time: files in another order, a part of all"
    )
    parser.addoption("--all", action="store_true", help="the whole corpora, of which a part is run otherwise")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "corpus: its cases look for one class of defects, so a run of all tests has a part of them, or all with `--all`",
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "part" if has_parts(config) else "whole"))


def has_parts(config: pytest.Config) -> bool:
    """Whether a run has a part of each corpus: one of all tests, which names neither files nor words."""
    named = [Path(x).resolve() for x in config.args] != [ROOT / "tests"] or config.getoption("keyword")
    return not (named or config.getoption("--all") or config.getoption("--accept"))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """How long all tests take, and what to do where that is too long."""
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    lines = ["all tests take 9 to 14 minutes on two idle cores; `make test MINUTES=5` starts none after five minutes"]
    if load > cores / 2:
        times = f"{1 + load / cores:.1f}"
        lines.append(
            f"this machine is busy, {load:.1f} processes on {cores} cores: they take {times} times as long, and still pass"
        )
    return lines


BEGUN = time.monotonic()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A run of all tests has a part of each corpus; one that names files or words has all of what it names. With a limit
    of time the files stand in an order that mixes the folders, the same in each run and process.
    """
    if has_parts(config):
        kept = sampled(items)
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept
    if config.getoption("--minutes") is not None:
        items.sort(key=lambda item: zlib.crc32(item.nodeid.partition("::")[0].encode()))


def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - BEGUN > 60.0 * minutes:
        pytest.skip(OUT_OF_TIME)


OUT_OF_TIME = "there was no time left"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if OUT_OF_TIME in str(r.longrepr)]
    if skipped:
        terminalreporter.write_line(
            f"{len(skipped)} tests were not run for want of time: `make test` runs all", yellow=True
        )


@pytest.fixture
def few_points_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies of records look at few points, whose expansions take most of their time: for tests that say what is printed of
    a study. `tests/insight` has the values.
    """
    monkeypatch.setattr(insight, "STEPS", 120)
    monkeypatch.setattr(insight, "DRAWN", 8)
    monkeypatch.setattr(insight, "HELD", 24)
    monkeypatch.setattr(insight, "PRIOR", 256)


@pytest.fixture
def accept(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--accept"))
