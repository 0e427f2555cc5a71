"""The examples tuned, beside NumPy and the machine's peak, all in one run: `make bench`.

A search is run `--rounds` times with consecutive seeds; the table shows the median of its winners, and the text below it
the range and how long a search took.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

import tensorc_dsl
from tensorc_dsl.report import units
from tensorc_dsl.report.table import comparison, tally

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
FILES = ("matmul.tsched", "conv2d.tsched", "softmax.tsched")


def show(task: tensorc_dsl.Task, records: Path, trials: int, first_seed: int, rounds: int) -> None:
    """One table on standard output."""
    before = task.yardsticks()
    results = [task.search(trials=trials, seed=first_seed + n, records=records) for n in range(rounds)]
    held_against = before.better(task.yardsticks())
    print(f"{task.name} on {task.target.cpu}, {task.threads} threads\n")
    winners = sorted(r.best_seconds for r in results if r.best_seconds is not None)
    best = median(winners) if winners else None
    print(comparison(task.flops, best, held_against.numpy_seconds, held_against.peak))
    if winners:
        print(f"\nof {rounds} searches: {units.seconds(winners[0])} to {units.seconds(winners[-1])}")
    for r in results:
        print(f"seed {r.seed}: {r.trials} trials in {units.seconds(r.elapsed_seconds)}: {tally(r.statuses)}")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            for task in tensorc_dsl.load(EXAMPLES / name, threads=arguments.threads).values():
                show(task, Path(folder) / "records.sqlite", arguments.trials, arguments.seed, arguments.rounds)


if __name__ == "__main__":
    main()
