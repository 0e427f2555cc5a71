"""The time of one draw from the spaces of models: `python -m bench.draws FOLDER [--all]`.

A draw is one expansion of a task's space, with its proofs. For the largest group of each model of a folder, and with `--all`
for each task, a line has seconds of the processor: those of the first draw, which fills the caches of proofs, and the median
and the most of ten more. The largest group is the one with the most blocks, and of those the one with the most operations.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import tensorc_dsl
from tensorc_dsl.ir.program import blocks


def seconds(task: tensorc_dsl.Task, draws: int) -> list[float]:
    """Seconds of the processor for each draw, with seeds from 0 on."""
    times: list[float] = []
    for seed in range(draws):
        begin = time.process_time()
        task.sample(seed)
        times.append(time.process_time() - begin)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="every task")
    arguments = parser.parse_args()
    print(f"{'model':<16}{'task':<36}{'blocks':>7}{'first':>9}{'median':>9}{'most':>9}")
    for path in sorted(arguments.folder.glob("*.tsched")):
        tasks = tensorc_dsl.load_model(path).tasks
        largest = max(tasks, key=lambda name: (len(blocks(tasks[name].program)), tasks[name].flops))
        for name in tasks if arguments.all else [largest]:
            first, *times = seconds(tasks[name], 11)
            count = len(blocks(tasks[name].program))
            print(
                f"{path.stem:<16}{name:<36}{count:>7}{first:>9.3f}{median(times):>9.3f}{max(times):>9.3f}", flush=True
            )


if __name__ == "__main__":
    main()
