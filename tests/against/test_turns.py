"""Libraries that are right, wrong, broken or missing, in processes of their own: each gets the right outcome."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.against.contenders import Contender
from bench.against.problem import Problem
from bench.against.references import expected
from bench.against.turns import NOT_OFFERED, Bench, Case, Outcome, Reading, Settings

RIGHT = """
from bench.against.problem import Ready
calls = []
def prepare(job):
    a, b = job.take("A", "B")
    return Ready(lambda: calls.append(1), lambda: a @ b, f"{job.trials} trials")
"""

FAKES = {
    "right": RIGHT,
    "wrong": RIGHT.replace("a @ b", "a @ b + 1"),
    "nan": RIGHT.replace("a @ b", "a @ b * float('nan')"),
    "narrow": RIGHT.replace("a @ b", "(a @ b)[0]"),
    "lacking": "def prepare(job): return None\n",
    "failing": "def prepare(job): raise ValueError('no such shape')\n",
    "dying": "import os\ndef prepare(job): os._exit(3)\n",
    "late": RIGHT.replace("calls.append(1)", "calls.append(1) if len(calls) < 5 else 1 / 0"),
}
"""What stands in a library's file."""


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    for name, text in FAKES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    problem = Problem("t.tsched", "gemm_3x7x5", "matmul", {"M": 3, "N": 7, "K": 5}, {"A": "f32", "B": "f32"})
    rng = np.random.default_rng(0)
    inputs = {"A": rng.random((3, 5), np.float32), "B": rng.random((5, 7), np.float32)}
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
    return Case(problem, tmp_path, *expected(problem, inputs))


def measured(case: Case, ours: str, *peers: str) -> dict[str, Outcome]:
    settings = Settings(threads=1, trials=7, seed=0, rounds=2, records=case.folder / "records.sqlite")
    with Bench(Contender(ours, ours, ()), [Contender(p, p, ()) for p in peers], settings) as bench:
        return bench.measure(case)


def test_each_has_times_or_a_reason(case: Case) -> None:
    found = measured(case, "right", *(name for name in FAKES if name != "right"))
    assert list(found) == list(FAKES)
    right = found["right"]
    assert isinstance(right, Reading)
    assert 0 < right.low <= right.seconds <= right.high
    assert right.note == "7 trials"
    assert found["wrong"] == "wrong result: off by 1, more than 2.4e-05"
    assert found["nan"] == "wrong result: off by nan, more than 2.4e-05"
    assert found["narrow"] == "wrong result: of shape (7,), not (3, 7)"
    assert found["lacking"] == NOT_OFFERED
    assert found["failing"] == "ValueError: no such shape"
    assert found["dying"] == "crashed: exit status 3"
    assert found["late"] == "ZeroDivisionError: division by zero"


def test_peers_are_measured_where_ours_fails(case: Case) -> None:
    found = measured(case, "failing", "right")
    assert isinstance(found["right"], Reading)
    assert found["failing"] == "ValueError: no such shape"


def test_ours_is_measured_alone(case: Case) -> None:
    assert isinstance(measured(case, "right")["right"], Reading)


def test_a_library_that_failed_is_there_for_the_next_case(case: Case) -> None:
    settings = Settings(threads=1, trials=7, seed=0, rounds=1, records=case.folder / "records.sqlite")
    (case.folder / "once.py").write_text(
        f"from pathlib import Path\nflag = Path({str(case.folder / 'flag')!r})\n{RIGHT}".replace(
            "    a, b", "    if not flag.exists():\n        flag.touch()\n        raise OSError('once')\n    a, b"
        )
    )
    with Bench(Contender("once", "once", ()), [], settings) as bench:
        assert bench.measure(case) == {"once": "OSError: once"}
        assert isinstance(bench.measure(case)["once"], Reading)
