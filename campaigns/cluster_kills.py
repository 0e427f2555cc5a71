"""Kills workers, the scheduler or the search at random moments of a search on workers, and checks that no trial is lost or
counted twice, and that the best is that of the undisturbed search with the same answers.

    python -m campaigns.cluster_kills --count 50 --seed 1

Workers are those of the tests, `tests/cluster/stub_worker.py`: their answers are functions of the kernels. A killed worker or
scheduler is started again after a moment, and a killed search is resumed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import program_key, target_key
from tests.cluster.processes import ROOT, Cluster, kill
from tests.cluster.stub import TARGET, task
from tests.cluster.test_decisions import Alone, searched
from tests.cluster.test_faults import SEARCH

TRIALS, WORKERS, TIMING = 16, 2, 0.2

LIMIT = 120.0
"""Seconds that a search may take, with what happens to it."""

KINDS = ("worker", "all workers", "scheduler", "search")


def disturbed(kind: str, moment: float, pause: float) -> tuple[str, list[str]]:
    """The best schedule of a search of which something is killed after `moment` seconds of measuring, and started again after
    `pause` seconds; and what is wrong with its records."""
    with tempfile.TemporaryDirectory() as name, Cluster(Path(name)) as cluster:
        for n in range(WORKERS):
            cluster.work(n, timing=TIMING)
        command = [sys.executable, "-c", SEARCH, name, str(cluster.port)]
        search = subprocess.Popen(
            [*command, "new"], cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            until = time.monotonic() + LIMIT
            while not any(cluster.ran(n) for n in range(WORKERS)) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(moment)
            match kind:
                case "search":
                    kill(search)
                    search = subprocess.Popen(
                        [*command, "resume"],
                        cwd=ROOT,
                        start_new_session=True,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                    )
                case "scheduler":
                    assert cluster.scheduler is not None
                    kill(cluster.scheduler)
                    time.sleep(pause)
                    cluster.schedule()
                case _:
                    some = range(WORKERS if kind == "all workers" else 1)
                    for n in some:
                        kill(cluster.workers[n])
                    time.sleep(pause)
                    for n in some:
                        cluster.work(n, timing=TIMING)
            out, err = search.communicate(timeout=LIMIT)
        finally:
            kill(search)
        if search.returncode:
            lines = err.decode(errors="replace").strip().splitlines()
            return "", [next((line for line in lines if "E08" in line), lines[-1])]
        return out.decode().strip(), wrong(Path(name))


def wrong(folder: Path) -> list[str]:
    """What is wrong with the records of the search."""
    with Database.open(folder / "r.sqlite") as db:
        rows = [r for r in db.trials(program_key(task().program), target_key(TARGET, 1)) if r.phase == "trial"]
    numbers = Counter(r.trial for r in rows)
    lost = sorted(set(range(TRIALS)) - numbers.keys())
    twice = sorted(n for n, count in numbers.items() if count > 1)
    programs = len({r.program_key for r in rows})
    found = [f"lost: {lost}"] if lost else []
    found += [f"twice: {twice}"] if twice else []
    found += [f"{len(rows) - programs} programs twice"] if programs != len(rows) else []
    return found + [f"{r.trial} is {r.status}: {r.message}" for r in rows if r.status != "ok"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    undisturbed, _ = searched(Alone(WORKERS), "random", TRIALS)
    assert undisturbed.best is not None
    best = undisturbed.best.text.strip()
    rng, kills, bad = random.Random(given.seed), Counter[str](), 0
    for number in range(given.count):
        kind, moment, pause = rng.choice(KINDS), rng.uniform(0.0, 2.0), rng.uniform(0.0, 1.5)
        found, faults = disturbed(kind, moment, pause)
        faults += [] if found == best or faults else ["another schedule is the best"]
        kills[kind] += 1
        bad += bool(faults)
        print(f"{number + 1:3} {kind:11} after {moment:.2f} s: {'; '.join(faults) or 'right'}", flush=True)
    print(", ".join(f"{count} of {kind}" for kind, count in sorted(kills.items())) + f": {bad} wrong")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
