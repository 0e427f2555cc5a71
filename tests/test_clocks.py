"""No test depends on the speed of the machine: each use of a clock or of a time limit below a minute is listed with its
reason.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorc_dsl.faces.api import searching, tasks

TESTS = Path(__file__).resolve().parent

CLOCKS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "thread_time", "time_ns"}
LIMITS = {"timeout", "deadline"}
LIMITS_OF_RUNNERS = {"run_seconds", "build_seconds"}
"""Of outcomes, these are what was measured."""
TIMES = {
    "best_seconds",
    "lower_quartile_ns",
    "median_ns",
    "samples",
    "seconds",
    "times",
    "times_ns",
    "upper_quartile_ns",
}
"""What was measured, and how often, by the names of fields: one may be disturbed, and the other not."""
ENDS = {"acquire", "communicate", "join", "result", "wait", "wait_for"}
"""Methods that wait for an end, for so many seconds at most."""
LEAST = 60
"""Seconds after which a test may say that something hangs."""

ALLOWED = {
    "search/test_resume.py: resumed.best_seconds <= whole.best_seconds": "are times that a test makes up",
    "conftest.py: monotonic": "ends a run that is given minutes, which asserts nothing about what it left out",
    "measure/test_worker.py: monotonic": "ends the wait for a process that hangs, after a minute",
    "gpu/test_bench.py: monotonic": "is a deadline that is too close on any machine",
    "runtime/test_threads.py: monotonic": "ends the wait for threads that never sleep, after a minute",
    "runtime/test_kernel.py: perf_counter": "the times that a kernel counts are parts of the time around them, however long",
    "measure/test_local.py: build_seconds=0.7": "ends builds that never end",
    "cluster/processes.py: monotonic": "ends the wait for processes of Dask, after a minute",
    "cluster/processes.py: sleep": "between two looks at processes",
    "cluster/test_board.py: monotonic": "ends the wait for what a board removes, after a minute",
    "cluster/test_board.py: sleep": "between two looks at the files of a board",
    "cluster/stub.py: monotonic": "tells in which order stand-ins of workers did what",
    "cluster/stub.py: sleep": "is the work of a stand-in of a worker",
    "cluster/stub_worker.py: sleep": "between two looks at a file that opens a gate",
    "cluster/test_faults.py: monotonic": "ends the wait for processes that a test kills, after a minute",
    "cluster/test_faults.py: sleep": "between two looks at processes",
    "lsp/test_robust.py: sleep": "of no length, lets a loop have its turn",
    "measure/echo_child.py: sleep": "is a child that hangs",
    "measure/dying_builder.py: sleep": "is a builder that hangs",
    "measure/test_worker.py: sleep": "between two looks at a process",
    "runtime/test_threads.py: sleep": "between two looks at threads",
    "runtime/test_models.py: sleep": "before an interrupt of calls that never end",
}
"""What reads or waits for time, by file, and why its outcome is the same on a busy machine."""


WORDS = re.compile(rf"\b({'|'.join(sorted({'time', 'Timer', *CLOCKS, *LIMITS, *LIMITS_OF_RUNNERS, *TIMES, *ENDS}))})\b")
"""What a file has that uses one of these: to parse all tests takes three seconds."""


def measured(e: ast.AST) -> Iterator[ast.expr]:
    """Whose measured times an expression has."""
    for node in ast.walk(e):
        match node:
            case ast.Attribute(value, attr=name) | ast.Subscript(value, slice=ast.Constant(value=name)) if (
                name in TIMES
            ):
                yield value
            case _:
                pass


def uses(file: Path) -> Iterator[str]:
    """The clocks that a file reads, its waits, comparisons of the times of two things, and limits of less than a minute that
    are written as numbers."""
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if WORDS.search(text) else ():
        match node:
            case ast.Compare(ops=ops) if any(isinstance(o, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for o in ops):
                if len({ast.unparse(x) for x in measured(node)}) > 1:
                    yield ast.unparse(node)
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in CLOCKS:
                yield name
            case ast.Attribute(value=ast.Name(id="time"), attr="time" | "sleep" as name):
                yield name
            case ast.ImportFrom(module="time", names=names):
                yield from (n.name for n in names)
            case ast.Call(func=called, keywords=keywords):
                runner = isinstance(called, ast.Name) and called.id == "LocalRunner"
                match called, node.args:
                    case ast.Attribute(attr=name), [ast.Constant(value=int() | float() as seconds)] if name in ENDS:
                        if seconds < LEAST:
                            yield f"{name}({seconds})"
                    case ((ast.Name(id="Timer") | ast.Attribute(attr="Timer")), _):
                        yield "Timer"
                    case _:
                        pass
                for k in keywords:
                    match k:
                        case ast.keyword(arg=str(name), value=ast.Constant(value=int() | float() as seconds)):
                            if name in (LIMITS | LIMITS_OF_RUNNERS if runner else LIMITS) and seconds < LEAST:
                                yield f"{name}={seconds}"
                        case _:
                            pass
            case _:
                pass


def test_no_test_depends_on_a_clock() -> None:
    found = {
        f"{file.relative_to(TESTS).as_posix()}: {use}"
        for file in sorted(TESTS.rglob("*.py"))
        if file != Path(__file__)
        for use in uses(file)
    }
    assert found == set(ALLOWED), (
        "count steps instead (tests/steps.py), or say in ALLOWED why a busy machine is no matter"
    )


def test_the_scan_sees_clocks(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    text = (
        "import time\nfrom time import perf_counter\nf(timeout=5)\nf(timeout=300)\ntime.monotonic()\ntime.sleep(1)\n"
        "f(deadline=None)\nLocalRunner(run_seconds=0.5)\nTrial(run_seconds=0.5)\ntime.time() - a\n"
        "min(a.times) <= a.seconds\nlen(a.times) < len(b.times)\na['samples'] > 2 * b['samples']\nf.result(5)\nf.wait(60)\n"
        "','.join(x)\nthreading.Timer(0.7, f)\n"
    )
    found: list[str] = []
    for line in text.splitlines():  # each in a file of its own, which has nothing else to look at
        file.write_text(line)
        found += uses(file)
    assert sorted(found) == [
        "Timer", "a['samples'] > 2 * b['samples']", "len(a.times) < len(b.times)", "monotonic", "perf_counter", "result(5)",
        "run_seconds=0.5", "sleep", "time", "timeout=5",
    ]  # fmt: skip


def test_no_candidate_of_a_search_is_late_on_a_busy_machine() -> None:
    runners: list[Any] = [searching.LocalRunner, tasks.LocalRunner]  # those of the tests, with arguments
    assert all(r.keywords[name] >= LEAST for r in runners for name in LIMITS_OF_RUNNERS)


def test_a_run_with_a_limit_of_time_says_what_it_left_out() -> None:
    command = [sys.executable, "-m", "pytest", "--minutes", "0", "-p", "no:cacheprovider", "tests/syntax/test_names.py"]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=True)
    assert re.search(r"^\d+ tests were not run for want of time: `make test` runs all$", done.stdout, re.MULTILINE)
    assert "all tests take 9 to 14 minutes" in done.stdout
