"""Tunes the layers of MobileNet-V2 together, for hours: `python -m bench.search.long --trials 20000 --into FOLDER`.

The layers share the trials, weighted by how often the network runs them. The folder has the records, and a line for each
batch in `batches.jsonl`. After Ctrl-C or a kill, the same command goes on where it was: what is recorded is not measured
again, but is chosen again.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tensorc_dsl.faces.api import load
from tensorc_dsl.faces.api.searching import search_all
from tensorc_dsl.tuning.search.events import Corrected, Event, Learnt, Measured, Proposed, Resumed
from tensorc_dsl.tuning.search.options import SearchOptions

LAYERS = Path(__file__).parent / "mobilenet.tsched"

LOG = "batches.jsonl"

TIMES = {
    "each_14_384": 4, "each_14_576": 2, "each_28_192": 2, "each_7_960": 3, "narrow_14_384_64": 3, "narrow_14_576_96": 2,
    "narrow_28_192_32": 2, "narrow_7_960_160": 2, "widen_14_64": 4, "widen_14_96": 3, "widen_28_32": 3, "widen_56_24": 2,
    "widen_7_160": 3,
}  # fmt: skip
"""How often the network runs a layer; the others once."""


class Tried(msgspec.Struct):
    """A trial: its time, None for a failure, and what the model expected of the log speed, -ln(seconds), before it."""

    seconds: float | None
    mean: float | None = None
    deviation: float | None = None


class Batch(msgspec.Struct):
    """A batch of one task. `trials` are those of all tasks with it, `first` the task's number of the first of its own.

    Choosing it took `asking` seconds, learning from it `learning`, and all of it `elapsed`. `recorded` of its trials were
    measured before a resumption, so `elapsed` says nothing unless that is 0. `best` has the best time of each task so far,
    and `latency` is their weighted sum, None until each has one. `memory` is the most that the process ever had, in bytes.
    """

    task: str
    first: int
    trials: int
    asking: float
    learning: float
    elapsed: float
    recorded: int
    tried: list[Tried]
    best: dict[str, float]
    latency: float | None
    memory: int


def read(path: Path) -> list[Batch]:
    """The lines of a log; the last one may have been cut off by a kill, and is left out then."""
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [msgspec.json.decode(line, type=Batch) for line in whole.splitlines()]


class Journal:
    """The lines of the batches in a file. What is there is not written again."""

    def __init__(self, path: Path) -> None:
        self.batches = read(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(msgspec.json.encode(b) + b"\n" for b in self.batches))
        self._path = path
        self.done: Counter[str] = Counter()
        """How many trials of each task there are lines of."""
        for batch in self.batches:
            self.done[batch.task] += len(batch.tried)

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.done[batch.task] += len(batch.tried)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(batch) + b"\n")


@dataclass
class Watching:
    """Makes lines of the events of all searches, which take turns by batches."""

    weights: Mapping[str, int]
    journal: Journal
    clock: Callable[[], float] = time.perf_counter
    _recorded: dict[str, int] = field(default_factory=dict[str, int])
    _seconds: dict[str, list[float | None]] = field(default_factory=dict[str, list[float | None]])

    def listener(self, task: str) -> Callable[[Event], None]:
        """That of the search for the task."""
        seconds = self._seconds[task] = []
        began, proposed = 0.0, Proposed((), 0.0)

        def hear(event: Event) -> None:
            nonlocal began, proposed
            match event:
                case Resumed(trials=trials):
                    self._recorded[task] = trials
                case Proposed():
                    began, proposed = self.clock() - event.ask_seconds, event
                case Measured(outcome=outcome):
                    seconds.append(outcome.seconds)
                case Corrected(trial=trial, outcome=outcome):
                    seconds[trial] = outcome.seconds
                case Learnt(seconds=learning):
                    self._end(task, proposed, learning, self.clock() - began)
                case _:
                    pass

        return hear

    def _end(self, task: str, proposed: Proposed, learning: float, elapsed: float) -> None:
        seconds = self._seconds[task]
        # Without a budget, all that was proposed was measured.
        first, done = len(seconds) - len(proposed.traces), self.journal.done[task]
        if first < done:
            return  # measured before a resumption
        tried = [
            Tried(s, *((None, None) if p is None else (p.mean, p.deviation)))
            for s, p in zip(seconds[first:], proposed.predictions, strict=True)
        ]
        recorded = max(0, min(len(seconds), self._recorded.get(task, 0)) - first)
        self._add(task, tried, recorded, (proposed.ask_seconds, learning, elapsed))

    def _add(self, task: str, tried: list[Tried], recorded: int, took: tuple[float, float, float]) -> None:
        before = self.journal.batches[-1] if self.journal.batches else None
        # A resumed search may not yet be where it was, but its best was in the line before.
        best = {} if before is None else dict(before.best)
        for name, some in self._seconds.items():
            good = [s for s in (best.get(name), *some) if s is not None]
            best |= {name: min(good)} if good else {}
        asking, learning, elapsed = took
        batch = Batch(
            task=task,
            first=self.journal.done[task],
            trials=(0 if before is None else before.trials) + len(tried),
            asking=asking,
            learning=learning,
            elapsed=elapsed,
            recorded=recorded,
            tried=tried,
            best=best,
            latency=sum(w * best[t] for t, w in self.weights.items()) if best.keys() >= self.weights.keys() else None,
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        )
        self.journal.add(batch)
        latency = "" if batch.latency is None else f"{1e3 * batch.latency:9.3f} ms"
        print(f"{batch.trials:>6}  {task:<18}{elapsed:6.1f} s{latency}", flush=True)


def weights_of(names: Sequence[str]) -> dict[str, int]:
    return {name: TIMES.get(name, 1) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--trials", type=int, default=20_000, help="of all tasks together, rounded up to as many of each"
    )
    parser.add_argument("--tasks", nargs="*", help="by default all layers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--into", type=Path, required=True, help="the folder of the records and the log")
    chosen = parser.parse_args()
    tasks = load(LAYERS, threads=chosen.threads)
    names: list[str] = chosen.tasks or list(tasks)
    weights = weights_of(names)
    watching = Watching(weights, Journal(chosen.into / LOG))
    plans = [tasks[n].plan(watching.listener(n), w) for n, w in weights.items()]
    options = SearchOptions(math.ceil(chosen.trials / len(names)), chosen.seed, resume=True)
    results = search_all(plans, options, records=chosen.into / "records.sqlite")
    if any(r.interrupted for r in results):
        raise SystemExit("interrupted: the same command goes on")
    final = {n: r.best_seconds for n, r in zip(names, results, strict=True)}
    print(json.dumps(final))


if __name__ == "__main__":
    main()
