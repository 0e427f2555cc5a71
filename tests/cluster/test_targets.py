"""`tune --on` for tasks of several targets in one call, by stand-ins of workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.faces.api import loads
from tensorc_dsl.faces.cli.commands import tune
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.cluster import pool
from tensorc_dsl.tuning.records.database import Queue
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key
from tests.cluster.stub import Stub

FILE = """
use std.cpu.{default}
use std.ops.{matmul}

target old = llvm(triple="x86_64-unknown-linux-gnu", cpu="haswell", features=["avx2", "fma"], vector_bits=256, cores=1)
target new = llvm(triple="x86_64-unknown-linux-gnu", cpu="znver4", features=["avx2", "fma"], vector_bits=256, cores=1)

space for_old for old { default }
space for_new for new { default }

task one = matmul(M=32, N=32, K=32) with for_old
task two = matmul(M=32, N=32, K=32) with for_new
task any = matmul(M=32, N=32, K=16) with default
"""


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Target]:
    """The targets of the stand-ins of the next call; the working folder has the file."""
    targets: list[Target] = []
    numbers = iter(range(100))

    def stub(_target: Target, token: bytes, machine: str) -> Stub:
        number = next(numbers)
        return Stub(number, target=targets[number % len(targets)], token=token, timing=0.01)

    monkeypatch.setattr(pool, "Station", stub)
    monkeypatch.setattr(tune, "WORKERS_SECONDS", 0.3)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Path("two.tsched").write_text(FILE, encoding="utf-8")
    return targets


def tuned(*words: str) -> Result:
    more = ("--trials", "9", "--strategy", "random", "--records", "r.sqlite", "--json-lines")
    return CliRunner().invoke(main, ("tune", "two.tsched", *words, *more))


def test_tasks_of_several_targets_have_workers_and_records_of_their_own(there: list[Target]) -> None:
    file = loads(FILE)
    there += [file["one"].target, file["two"].target]
    found = tuned("one", "two", "--on", "local:2")
    assert found.exit_code == 0, found.stderr
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    results = {x["task"]: x for x in lines if x["event"] == "result"}
    assert {n: (r["target"], r["trials"], r["machines"]) for n, r in results.items()} == {
        "one": (there[0].key, 9, {"m0": 9}),
        "two": (there[1].key, 9, {"m1": 9}),
    }
    with Queue.at(Path("r.sqlite")) as records:
        for name in ("one", "two"):
            task = file[name]
            rows = [*records.kept(program_key(task.program), target_key(task.target, 1))]
            assert len([k for k in rows if isinstance(k.trial, Trial) and k.trial.phase == "trial"]) == 9
    assert Path("one.best.tsched").exists() and Path("two.best.tsched").exists()


def test_a_task_for_any_machine_needs_a_choice_where_there_are_several(there: list[Target]) -> None:
    file = loads(FILE)
    there += [file["one"].target, file["two"].target]
    found = tuned("one", "any", "--on", "local:2")
    assert found.exit_code == 1 and "E0877" in found.stderr and f"#{there[0].key}" in found.stderr
    found = tuned("any", "--on", f"local:2#{there[1].key}")
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout.splitlines()[-1])["machines"] == {"m3": 9}


def test_a_target_that_nobody_serves_is_refused_before_any_search(there: list[Target]) -> None:
    there.append(loads(FILE)["one"].target)
    found = tuned("one", "two", "--on", "local:1")
    assert found.exit_code == 1
    assert "E0876" in found.stderr and "it is for `llvm:x86_64-unknown-linux-gnu:znver4:256:1`" in found.stderr
    assert f"m0: it times kernels for `{there[0].key}`" in found.stderr
    assert not Path("one.best.tsched").exists() and found.stdout == ""
