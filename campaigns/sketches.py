"""Distinct samples of every sketch of a task: `python -m campaigns.sketches FILE TASK [--count 100] [--prove 1] [--jobs 2]`.

A sketch is a choice for every `either` of a space; its other draws are open. Sketches are found by changing each choice of
each known sketch to its other branches, until no new ones are found. For every sketch `--count`
programs are drawn that lower to different kernels. If few values lead to a sketch, half of the values are taken from
a trace of it; a draw that ends in another sketch counts for that one. Each program must be well formed,
and the first `--prove` of each sketch are proved to compute what the task does. Refused steps are counted by code.
Any other exception is a bug: it is printed with the decisions, and the run exits with 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial

from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.draws.choices import Branch
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.search.expansion import stream
from tensorc_dsl.tuning.search.space import candidate_key

PROBES = 4
"""How often a combination of branches is drawn to see which choices it leads to: some depend on the numbers."""

PATIENCE = 8
"""Draws for each program that is wanted, after which a sketch counts as having no more."""

HELD = 0.5
"""The share of the numbers of a trace that is kept where another is drawn from it."""

Sketch = tuple[tuple[str, Decision], ...]


def sketch_of(trace: Trace) -> Sketch:
    """The branches that a trace took, in order."""
    return tuple((d.name, d.decision) for d in trace.draws if isinstance(d.distribution, Branch))


@dataclass(slots=True)
class Ends:
    """What became of draws for one sketch."""

    refused: Counter[str] = field(default_factory=Counter[str])
    programs: dict[Sketch, set[str]] = field(default_factory=dict["Sketch", set[str]])
    """By the sketch that they are of."""
    again: int = 0
    proved: Counter[str] = field(default_factory=Counter[str])
    bugs: int = 0


class Explored:
    """The sketches of a task, as far as they are known."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task = task
        self._seed = seed
        self._drawn = 0

    def draw(self, wanted: Mapping[str, Decision], ends: Ends) -> Trace | None:
        """A trace with these branches; None where a step is refused, or where it is a bug."""
        self._drawn += 1
        try:
            trace = self.task.space.replay(wanted, stream(self._seed, self.task.name, f"sketch/{self._drawn}"))
            verify(trace.program)
        except ScheduleRefusal as e:
            ends.refused[e.refusal.code] += 1
            return None
        except Exception:
            ends.bugs += 1
            print(
                f"{self.task.name}: a bug, with the branches {dict(wanted)} and draw {self._drawn} of seed {self._seed}"
            )
            traceback.print_exc()
            return None
        ends.refused.update(r.refusal.refusal.code for r in trace.refused)
        return trace

    def sketches(self) -> Iterator[Sketch]:
        """All sketches that are found, each once."""
        known: dict[Sketch, None] = {}
        asked: set[Sketch] = set()
        waiting: list[Sketch] = [()]
        while waiting:
            prefix = waiting.pop()
            if prefix in asked:
                continue
            asked.add(prefix)
            for _ in range(PROBES):
                trace = self.draw(dict(prefix), Ends())
                if trace is None:
                    continue
                found = sketch_of(trace)
                if found not in known:
                    known[found] = None
                    yield found
                choices = [d for d in trace.draws if isinstance(d.distribution, Branch)]
                for n, d in enumerate(choices):
                    waiting += [(*found[:n], (d.name, m)) for m in d.distribution.moves(d.decision)]


def examine(
    file: str, task: str, seed: int, count: int, prove: int, sketch: Sketch, known: frozenset[str] = frozenset()
) -> Ends:
    """Draw different programs of a sketch until there are `count` with those that are known, where there are so many."""
    explored, ends = Explored(load(file)[task], seed), Ends()
    own = ends.programs[sketch] = set(known)
    rng = random.Random(f"{seed}/{sketch}")
    came: list[Trace] = []
    plain = reached = 0
    for _ in range(PATIENCE * count):
        if len(own) >= count and len(came) >= prove:
            break
        wanted = dict(sketch)
        held = bool(came) and 2 * reached < plain
        if held:
            draws = rng.choice(came).draws
            wanted = {d.name: d.decision for d in draws if rng.random() < HELD} | wanted
        trace = explored.draw(wanted, ends)
        there = trace is not None and sketch_of(trace) == sketch
        if not held:
            plain, reached = plain + 1, reached + there
        if trace is None:
            continue
        programs = ends.programs.setdefault(sketch_of(trace), set())
        key = candidate_key(trace.program, explored.task.target)
        if there:
            came.append(trace)
            ends.again += key in programs
            if len(came) <= prove:
                report = validate(explored.task.program, trace.program)
                ends.proved[type(report).__name__] += 1
                if not isinstance(report, Valid):
                    print(f"{explored.task.name}: {report}\n{trace.text}")
        programs.add(key)
    return ends


Examine = Callable[[Sketch, frozenset[str]], Ends]


def each(work: Examine, sketches: Sequence[Sketch], jobs: int) -> Iterator[tuple[Sketch, Ends]]:
    """The work on each sketch, with the programs of it that the sketches before it have met, in `jobs` processes.

    A sketch that the draws for another one meet is worked on too.
    """
    met: dict[Sketch, set[str]] = {s: set() for s in sketches}
    todo, waiting = list(reversed(sketches)), dict[Future[Ends], Sketch]()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        while todo or waiting:
            while todo and len(waiting) < jobs:
                sketch = todo.pop()
                waiting[pool.submit(work, sketch, frozenset(met[sketch]))] = sketch
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                ends = future.result()
                for sketch, programs in ends.programs.items():
                    if sketch not in met:
                        todo.insert(0, sketch)
                    met.setdefault(sketch, set()).update(programs)
                yield waiting.pop(future), ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("task", nargs="+")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--prove", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that draw")
    options = parser.parse_args()
    bugs = 0
    file = load(options.file)
    for name in options.task:
        explored = Explored(file[name], options.seed)
        begun = time.perf_counter()
        total = Ends()
        sketches = [*explored.sketches()]
        work = partial(examine, options.file, name, options.seed, options.count, options.prove)
        for sketch, ends in each(work, sketches, options.jobs):
            total.refused += ends.refused
            total.again += ends.again
            total.proved += ends.proved
            total.bugs += ends.bugs
            for of, programs in ends.programs.items():
                total.programs.setdefault(of, set()).update(programs)
            branches = " ".join(str(d) for _, d in sketch) or "-"
            print(
                f"  {branches:<24} {len(ends.programs[sketch])} programs, {ends.again} again, {ends.refused.total()} refused",
                flush=True,
            )
        sizes = [len(programs) for programs in total.programs.values()]
        print(
            f"{name}: {len(sizes)} sketches, {len(sizes) - len(sketches)} of them met while others were drawn; "
            f"{sum(n >= options.count for n in sizes)} have {options.count} programs or more, "
            f"the fewest of one {min(sizes)}, {sum(sizes)} in all, "
            f"{total.again} drawn again, refused {dict(total.refused)}, proofs {dict(total.proved)}, {total.bugs} bugs, "
            f"{time.perf_counter() - begun:.0f} s"
        )
        bugs += total.bugs + sum(n for kind, n in total.proved.items() if kind == "Invalid")
    sys.exit(1 if bugs else 0)


if __name__ == "__main__":
    main()
