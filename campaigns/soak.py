"""Random schedules of the examples, each expanded twice and run against the reference: `make soak SEED=1 COUNT=1000`.

For each, its text must expand to the same text and the same program, byte for byte, and its kernel must compute the result of
the unscheduled program. Any other outcome is printed with the schedule, and the run exits with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import Task, TaskFile
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import Status

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

MORE_TASKS = {
    "matmul.tsched": "task mm_odd = matmul(M=97, N=60, K=31)\ntask mm_one = matmul(M=1, N=130, K=7)\n",
    "conv2d.tsched": "task conv_odd = conv2d_nhwc(N=2, H=11, W=9, CI=5, CO=17, KH=3, KW=3, stride=2, pad=1)\n",
    "softmax.tsched": "task softmax_odd = softmax(M=33, N=97)\n",
}
"""Sizes that nothing divides, beside those of the examples. They go the way of the file's first task."""

BATCH = 8
QUICK = 1e-9
"""A best time that no kernel beats, so that a right kernel is timed as briefly as possible."""


def tasks(threads: int) -> Iterator[Task]:
    """The tasks of all examples, and more of the same computes."""
    for name, more in MORE_TASKS.items():
        source = Source.read(EXAMPLES / name)
        file = TaskFile(load_source(Source(name, f"{source.text}\n{more}")), host_target(threads))
        yield from file.values()


def soak(seed: int, count: int, threads: int) -> int:
    """How many schedules went wrong."""
    found = list(tasks(threads))
    share = Counter(task.name for task in islice(cycle(found), count))
    wrong = 0
    for task in found:
        ends: Counter[str] = Counter()
        with LocalRunner(task.program, task.target, threads=threads, seed=seed) as runner:
            for start in range(0, share[task.name], BATCH):
                traces = [task.sample(seed, n) for n in range(start, min(start + BATCH, share[task.name]))]
                for n, trace in enumerate(traces, start):
                    again = task.expand(Source("trace", trace.text))
                    if (again.text, format_program(again.program)) != (trace.text, format_program(trace.program)):
                        ends["replays to something else"] += 1
                        print(
                            f"{task.name}, seed {seed}, schedule {n}: it replays to\n{again.text}\nand was\n{trace.text}"
                        )
                for n, (trace, outcome) in enumerate(
                    zip(traces, runner.measure([t.program for t in traces], QUICK), strict=True), start
                ):
                    ends[outcome.status] += 1
                    if outcome.status is not Status.OK:
                        print(
                            f"{task.name}, seed {seed}, schedule {n}: {outcome.status}, {outcome.message}\n{trace.text}"
                        )
        wrong += sum(n for end, n in ends.items() if end != Status.OK)
        print(f"{task.name}: {', '.join(f'{n} {end}' for end, n in ends.items())}", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    wrong = soak(arguments.seed, arguments.count, arguments.threads)
    print(f"{arguments.count} schedules, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
