"""Workers, schedulers and searches that end in the middle: no trial is lost, and none is counted twice."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.cluster import pool as pool_module
from tensorc_dsl.tuning.cluster.access import Address
from tensorc_dsl.tuning.cluster.pool import Pool
from tensorc_dsl.tuning.cluster.runner import ClusterRunner
from tensorc_dsl.tuning.measure.outcome import MachineChange, Outcome, Status
from tests.cluster.processes import ROOT, Cluster, free_port, kill
from tests.cluster.stub import TARGET, TOKEN, measured, programs, task, time_of, token_file
from tests.cluster.stub_worker import digest


@contextmanager
def runner_at(cluster: Cluster, changes: list[MachineChange], patience: float = 30.0) -> Iterator[ClusterRunner]:
    with Pool(Address.of(cluster.address), TOKEN) as pool:
        runner = ClusterRunner(task().program, TARGET, pool, threads=1, told=changes.append, patience=patience)
        try:
            yield runner
        finally:
            runner.close()


def right(some: list[Program], found: list[Outcome]) -> bool:
    return sorted(o.seconds or 0.0 for o in found) == pytest.approx(sorted(map(time_of, some)))


def when(condition: object, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():  # pyright: ignore[reportCallIssue]
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_worker_that_is_killed_in_a_trial_costs_none(tmp_path: Path) -> None:
    changes: list[MachineChange] = []
    some = programs(24)
    with Cluster(tmp_path) as cluster:
        cluster.work(0, free=2)
        cluster.work(1)

        def end_one() -> None:
            when(lambda: len(cluster.ran(0)) >= 3)
            kill(cluster.workers[0])

        thread = threading.Thread(target=end_one)
        thread.start()
        with runner_at(cluster, changes) as runner:
            found = measured(runner, some)
        thread.join()
    assert right(some, found) and [c.machine for c in changes if c.change == "left"] == ["m0"]


def test_a_scheduler_that_is_killed_and_started_again_costs_no_trial(tmp_path: Path) -> None:
    changes: list[MachineChange] = []
    some = programs(24)
    with Cluster(tmp_path) as cluster:
        for n in range(2):
            cluster.work(n, free=2)

        def end_it() -> None:
            when(lambda: all(len(cluster.ran(n)) >= 3 for n in range(2)))
            assert cluster.scheduler is not None
            kill(cluster.scheduler)
            when(lambda: "scheduler lost" in {c.change for c in changes})
            cluster.schedule()
            cluster.open_gate()

        thread = threading.Thread(target=end_it)
        thread.start()
        with runner_at(cluster, changes) as runner:
            found = measured(runner, some)
        thread.join()
        ran = [order for n in range(2) for order in cluster.ran(n)]
    assert right(some, found)
    assert {"scheduler lost", "scheduler found"} <= {c.change for c in changes}
    assert len(ran) <= len(set(ran)) + 4  # what was under way on another worker


def test_a_scheduler_that_does_not_come_back_ends_the_search_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.work(0, free=1)
        with runner_at(cluster, []) as runner:
            answers = runner.measure(programs(8), None)
            next(answers)
            runner._patience = 0.5
            monkeypatch.setattr(pool_module, "CONNECT_SECONDS", 0.5)
            assert cluster.scheduler is not None
            kill(cluster.scheduler)
            with pytest.raises(TschedError, match=r"E0879.*did not come back within 0.5 s"):
                list(answers)


@pytest.mark.corpus
@pytest.mark.parametrize("guilty", [True, False])
def test_a_trial_whose_workers_died_three_times_is_condemned_only_if_it_is_guilty(tmp_path: Path, guilty: bool) -> None:
    some = programs(6)
    suspect = digest(lowered_once(some[2], TARGET).packed.data)
    changes: list[MachineChange] = []
    with Cluster(tmp_path) as cluster:
        cluster.work(0, suspect)
        over = threading.Event()

        def tend() -> None:
            """A worker that has died is started again; the innocent candidate meets three that die of something else."""
            deaths = 0
            while not over.is_set():
                if cluster.workers[0].poll() is not None:
                    deaths += 1
                    cluster.work(0, *([suspect] if guilty or deaths < 3 else []))
                time.sleep(0.05)

        thread = threading.Thread(target=tend)
        thread.start()
        try:
            with runner_at(cluster, changes, patience=60.0) as runner:
                found = measured(runner, some)
        finally:
            over.set()
            thread.join()
    died = [o for o in found if o.status is not Status.OK]
    if guilty:
        assert [o.status for o in died] == [Status.CRASH] and found.index(died[0]) == 2
        assert died[0].message == "4 workers ended while they ran it, the last one alone"
    else:
        assert not died and right(some, found)


SEARCH = """
import sys
from pathlib import Path
from tensorc_dsl.tuning.cluster import runner
from tensorc_dsl.tuning.records.database import Database
from tests.cluster.test_faults import runner_at
from tests.cluster.processes import Cluster
from tests.cluster.test_decisions import searched
folder, port, resume = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "resume"
with Database.open(folder / "r.sqlite") as db, runner_at(Cluster(folder, port), []) as runner:
    result, _ = searched(runner, "random", 16, db, resume)
print(result.best.text if result.best else None)
"""


def test_a_search_that_is_killed_and_resumed_loses_and_repeats_nothing(tmp_path: Path) -> None:
    from tensorc_dsl.tuning.records.database import Database
    from tensorc_dsl.tuning.records.trial import program_key, target_key
    from tests.cluster.test_decisions import Alone, searched

    undisturbed, _ = searched(Alone(2), "random", 16)
    with Cluster(tmp_path) as cluster:
        for n in range(2):
            cluster.work(n, free=4)
        command = [sys.executable, "-c", SEARCH, str(tmp_path), str(cluster.port)]
        first = subprocess.Popen([*command, "new"], cwd=ROOT, start_new_session=True)
        when(lambda: sum(len(cluster.ran(n)) for n in range(2)) >= 8)
        kill(first)
        cluster.open_gate()
        second = subprocess.run([*command, "resume"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    with Database.open(tmp_path / "r.sqlite") as db:
        rows = [r for r in db.trials(program_key(task().program), target_key(TARGET, 1)) if r.phase == "trial"]
    assert [r.trial for r in rows] == list(range(16)) and len({r.program_key for r in rows}) == 16
    assert undisturbed.best is not None and second.stdout.strip() == undisturbed.best.text.strip()


def test_an_address_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "CONNECT_SECONDS", 0.3)
    with pytest.raises(TschedError, match="E0875"), Pool(Address.of(f"tcp://127.0.0.1:{free_port()}"), TOKEN):
        pass


def test_the_commands_on_a_real_worker(tmp_path: Path) -> None:
    (tmp_path / "f.tsched").write_text("use std.cpu\nuse std.ops.{matmul}\ntask p = matmul(M=16, N=16, K=16)\n")
    best, secret = tmp_path / "best.tsched", ("--token", str(token_file(tmp_path)))
    with Cluster(tmp_path) as cluster:
        of_one = ("--threads", "1", "--name", "one", "--builders", "1")
        cluster.fork("tensorc-dsl", "one", "worker", cluster.address, *secret, *of_one)
        search = (
            "--trials",
            "2",
            "--strategy",
            "random",
            "--no-shipped",
            "--json",
            "--records",
            str(tmp_path / "r.sqlite"),
        )
        where = ("--on", cluster.address, *secret, "--output", str(best))
        done = CliRunner().invoke(main, ["tune", str(tmp_path / "f.tsched"), *where, *search])
        assert done.exit_code == 0, done.stderr
        asked = ["workers", cluster.address, *secret]
        listed, turns = CliRunner().invoke(main, asked), 1
        while "waiting" not in listed.stdout and turns < 50:  # a worker says twice a second what it does
            listed, turns = CliRunner().invoke(main, asked), turns + 1
    assert '"machines": {"one"' in done.stdout and "joined" in done.stderr and best.exists()
    assert listed.exit_code == 0 and "one" in listed.stdout and "waiting" in listed.stdout
