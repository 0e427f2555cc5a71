"""The tasks of a file tuned in turns, to compare their spaces: `python -m bench.spaces FILE [TASK…]`.

Every task has the same number of trials in each round, and a round has a seed of its own and no records. The result is
the median of the winners.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

import tensorc_dsl
from tensorc_dsl.base import units


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    tasks = tensorc_dsl.load(arguments.file, threads=arguments.threads)
    winners: dict[str, list[float]] = {name: [] for name in arguments.tasks or tasks}
    for seed in range(arguments.rounds):
        for name, best in winners.items():
            with tempfile.TemporaryDirectory() as folder:
                records = Path(folder) / "records.sqlite"
                result = tasks[name].search(trials=arguments.trials, seed=seed, records=records)
            found = result.best_seconds
            best += [] if found is None else [found]
            shown = "nothing" if found is None else units.seconds(found)
            print(f"{name}, seed {seed}: {shown} after {result.trials} trials", flush=True)
    for name, best in winners.items():
        if best:
            spread = f"{units.seconds(min(best))} to {units.seconds(max(best))}"
            print(f"{name}: median {units.seconds(median(best))} of {len(best)} searches, {spread}")


if __name__ == "__main__":
    main()
