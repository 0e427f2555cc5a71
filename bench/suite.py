"""The suite's operators under the default space: `python -m bench.suite --samples 20 --ops c1d,c2d_0 --seed 1`.

For each task of `suite.tsched`, by operator or one by one, schedules are drawn from `std.cpu.default`; each is built,
run, and compared with the float64 reference. For each task it prints the sketches (choices of structure) that occurred, the
number of other draws of a schedule, the points of the space (for each sketch the product of the sizes of its supports, summed
over the sketches), and the outcomes. Schedules that fail are printed in full; the status is 1 if
one is wrong, and not only slow.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log10, prod
from pathlib import Path

from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.draws.choices import Branch
from tensorc_dsl.schedule.trace.trace import Draw, Trace
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.expansion import stream

FILE = Path(__file__).with_name("suite.tsched")

TRIES = 16
"""Draws for each schedule that is wanted, before those that are left are given up."""

QUICK = 1e-9
"""A best time that no kernel beats, so that a right kernel is timed as briefly as possible."""

RUN_SECONDS = 600.0
"""A search gives a schedule up long before; here a poor one, a thousand times as slow as a good one, must still be right."""

Sketch = tuple[tuple[str, Decision], ...]


@dataclass
class Sampled:
    """What was drawn for a task: schedules, and the refusals on the way to them, of draws and of rules, by code."""

    traces: list[Trace] = field(default_factory=list[Trace])
    refused: Counter[str] = field(default_factory=Counter[str])

    def sketches(self) -> dict[Sketch, list[Draw]]:
        """For each choice of structure the other draws, of the schedule that has the most points."""
        found: dict[Sketch, list[Draw]] = {}
        for t in self.traces:
            sketch = tuple((d.name, d.decision) for d in t.draws if isinstance(d.distribution, Branch))
            others = [d for d in t.draws if not isinstance(d.distribution, Branch)]
            found[sketch] = max(found.get(sketch, []), others, key=points)
        return found


def points(draws: Sequence[Draw]) -> int:
    """How many ways there are to decide them."""
    return prod(d.distribution.size() for d in draws)


def sampled(task: Task, seed: int, count: int) -> Sampled:
    """`count` schedules of the space; fewer where most draws are refused."""
    rng = stream(seed, task.name, "suite")
    out = Sampled()
    for _ in range(count * TRIES):
        try:
            out.traces.append(task.model.sample(rng))
            out.refused.update(r.refusal.refusal.code for r in out.traces[-1].refused)
        except ScheduleRefusal as e:
            out.refused[e.refusal.code] += 1
        if len(out.traces) == count:
            break
    return out


def measured(task: Task, traces: Sequence[Trace], seed: int) -> list[Outcome]:
    """How each schedule ends. Raises TschedError where this machine is too small for the task."""
    with LocalRunner(task.program, task.target, threads=task.threads, seed=seed, run_seconds=RUN_SECONDS) as runner:
        return list(runner.measure([t.program for t in traces], QUICK))


def line(task: str, found: Sampled, ends: Counter[str]) -> str:
    sketches = found.sketches()
    size = sum(map(points, sketches.values()))
    width = max(map(len, sketches.values()), default=0)
    became = ", ".join(f"{n} {end}" for end, n in sorted(ends.items()))
    refusals = ", ".join(f"{n} {code}" for code, n in sorted(found.refused.items())) or "none"
    space = f"10^{log10(size):.1f}" if size else "-"
    return f"{task:<8}{len(sketches):>9}{width:>7}{space:>9}{len(found.traces):>9}  {refusals:<20}{became}"


def study(task: Task, seed: int, samples: int) -> int:
    """Draw, measure, print; how many schedules went wrong."""
    found = sampled(task, seed, samples)
    ends: Counter[str] = Counter()
    try:
        outcomes = measured(task, found.traces, seed)
    except TschedError as e:
        print("\n".join(map(render, e.diagnostics)))
        outcomes = []
        ends["not measured"] = len(found.traces)
    ends.update(o.status.value for o in outcomes)
    print(line(task.name, found, ends), flush=True)
    wrong = 0
    for trace, outcome in zip(found.traces, outcomes, strict=False):
        if outcome.status is not Status.OK:
            wrong += outcome.status is not Status.TIMEOUT
            print(f"{task.name}: {outcome.status}, {outcome.message}\n{trace.text}", flush=True)
    return wrong + (not found.traces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--ops", help="operators (c1d) or tasks (c1d_0), with commas between them; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    tasks = load(FILE, threads=arguments.threads)
    asked = arguments.ops.split(",") if arguments.ops else list(tasks)
    chosen = [name for name in tasks if name in asked or name.rpartition("_")[0] in asked]
    if not chosen:
        parser.error(f"there is no operator among {arguments.ops}; the tasks are {', '.join(tasks)}")
    print(f"{'task':<8}{'sketches':>9}{'draws':>7}{'space':>9}{'sampled':>9}  {'refused':<20}became")
    wrong = sum(study(tasks[name], arguments.seed, arguments.samples) for name in chosen)
    print(f"{len(chosen)} tasks, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
