"""How often searches with other seeds find the same schedule: `python -m bench.search.winners --tasks gemm_512 --seeds 10`.

Each search has a database of its own, so none learns from another. Of finalists whose times do not tell them apart the
simplest wins. Printed are, for each task, the different schedules among those that were the fastest by the last digit, and
among those that won; how many searches agree with the most frequent one; how many finalists were as fast as the winner, and
within how much, at the median; and the largest time of a winner over the least. Each search is a line of `winners.jsonl` in
the folder; those that are there do not run again.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial
from tensorc_dsl.tuning.search.options import SearchOptions

WORKLOADS = Path(__file__).parent / "workloads.tsched"
LINES = "winners.jsonl"


class Won(msgspec.Struct, frozen=True):
    """The end of a search: the schedule that won, in `seconds`, and the fastest of the finalists; so many others were as
    fast, within the share `band`."""

    task: str
    seed: int
    trials: int
    winner: str
    fastest: str
    seconds: float
    alike: int
    band: float


def search(task: Task, seed: int, trials: int, strategy: str) -> Won:
    """A search without any records before it."""
    with TemporaryDirectory() as folder:
        records = Path(folder) / "records.sqlite"
        result = task.search(SearchOptions(trials, seed, strategy, shipped=False), records=records)
        assert result.best is not None and result.best_seconds is not None
        with Database.open(records) as database:
            final = [k.trial for k in database.all() if isinstance(k.trial, Trial) and k.trial.phase == "final"]
    timed = [(t.seconds, t.trace) for t in final if t.seconds is not None]
    fastest = min(timed)[1] if timed else result.best.text
    return Won(task.name, seed, trials, result.best.text, fastest, result.best_seconds, result.alike, result.band)


def told(found: Sequence[Won]) -> str:
    """The table of all searches, as Markdown."""
    lines = [
        "| task | searches | fastest | winners | most frequent | alike | within | slowest winner |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(w.task for w in found):
        some = [w for w in found if w.task == name]
        winners = Counter(w.winner for w in some)
        (_, most), *_ = winners.most_common(1)
        times = [w.seconds for w in some]
        lines.append(
            f"| {name} | {len(some)} | {len({w.fastest for w in some})} | {len(winners)} | {most}"
            f" | {median(w.alike for w in some):g} | {100 * median(w.band for w in some):.1f} %"
            f" | {max(times) / min(times):.2f} |"
        )
    return "\n".join(lines)


def read(path: Path) -> list[Won]:
    """The searches that a file has; none if there is no file."""
    return [msgspec.json.decode(x, type=Won) for x in path.read_bytes().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=WORKLOADS, help="by default the workloads of the other benchmarks")
    parser.add_argument("--tasks", nargs="*", help="by default all of the file")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--strategy", default="bayes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--into", type=Path, default=Path("build/search"), help="the folder of the lines")
    chosen = parser.parse_args()
    tasks = load(chosen.file, threads=chosen.threads)
    chosen.into.mkdir(parents=True, exist_ok=True)
    path = chosen.into / LINES
    found = read(path)
    wanted = [(name, seed) for name in chosen.tasks or list(tasks) for seed in range(chosen.seeds)]
    done = {(w.task, w.seed) for w in found if w.trials == chosen.trials}
    for name, seed in wanted:
        if (name, seed) not in done:
            found.append(search(tasks[name], seed, chosen.trials, chosen.strategy))
            with path.open("ab") as file:
                file.write(msgspec.json.encode(found[-1]) + b"\n")
    print(told([w for w in found if (w.task, w.seed) in {*wanted} and w.trials == chosen.trials]))


if __name__ == "__main__":
    main()
