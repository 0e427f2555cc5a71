"""What tests start in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PATIENT = {"build_seconds": 120.0, "run_seconds": 120.0}
"""What a candidate may take in tests: on a busy machine a right one must not be taken for one that hangs."""

MOMENT = f"""\
from functools import cache, partial
from tensorc_dsl.backend.llvm import backend
from tensorc_dsl.faces.api import kernel, searching
from tensorc_dsl.tuning.machine import baseline, roof
from tensorc_dsl.tuning.records.shipped import Shipped, ShippedFile
from tensorc_dsl.tuning.search import plausible
from tensorc_dsl.tuning.search.strategies import bayes
bayes.FIRST, bayes.FORESEEN, bayes.ROUNDS = 4, 2, 1
searching.LocalRunner = partial(searching.LocalRunner, **{json.dumps(PATIENT)})
searching.shipped = kernel.shipped = lambda columns: Shipped(ShippedFile(columns, []))
baseline.SECONDS, roof.CREDIBLE, plausible.PATIENCE = 0.005, 0.0, 0.0
peak, bandwidth = cache(backend.peak), cache(partial(backend.bandwidth, repeats=(4, 4)))
backend.peak = lambda title, target, threads: threads * peak(title, target, 1)
backend.bandwidth = lambda target, threads, size: threads * bandwidth(target, 1, size)
"""
"""A program that begins with this measures the machine and NumPy for a moment, learns nothing from the package's records, and
expands few schedules before its first trial, as searches in the process of a test do (`tests/conftest.py`). Else NumPy alone
is timed for a second."""

ALONE = f"""\
{MOMENT}from tensorc_dsl.tuning.machine import baseline
baseline.has_numpy = lambda program: False
"""
"""One that begins with this starts no process for NumPy either, which takes a third of a second of a core."""


class Commands:
    """A process that runs one command of the package after another: each start takes half a second of a core.

    Its environment is that of its start, with what a command is given. Nothing else in it is that of this process: it finds
    modules by its own path.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], before: str = "") -> None:
        """It starts in a folder, where it looks for modules first; `before` is run first."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", before + _LOOP], cwd=folder, env=dict(environment), text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip

    def says(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], status: int = 0) -> str:
        """What a command prints on both streams, in a folder; its status is this one."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([str(folder), dict(environment), list(arguments)]), file=self._process.stdin, flush=True)
        said, ended = json.loads(self._process.stdout.readline())
        assert ended == status, said
        return said

    def close(self) -> None:
        self._process.communicate(timeout=60)


_LOOP = """
import json, os, sys
from click.testing import CliRunner
from tensorc_dsl.faces.cli.main import main
asked, told = sys.stdin, sys.stdout
for line in asked:
    folder, environment, arguments = json.loads(line)
    os.chdir(folder)
    os.environ |= environment
    done = CliRunner().invoke(main, arguments)
    print(json.dumps([done.output, done.exit_code]), file=told, flush=True)
"""
