"""Searches live with several strategies and compares what they find: `python -m bench.search.live --seeds 5`.

A `+` behind a strategy gives it the records of the cold searches of all other tasks with the same seed, which run first. The
best programs of all strategies for one task and seed are timed by turns at the end, so none has the luck of a quiet moment.
Each search is a line of `searches.jsonl` in the folder. Searches that are there do not run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np

from bench.search.replay import chance, compared
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial
from tensorc_dsl.tuning.search.events import Event, Learnt, Proposed
from tensorc_dsl.tuning.search.options import SearchOptions

WORKLOADS = Path(__file__).parent / "workloads.tsched"

Key = tuple[str, int]
"""A task and a seed."""


class Searched(msgspec.Struct):
    """One search. `asking` are the seconds that went into choosing candidates and learning, `elapsed` all."""

    strategy: str
    task: str
    seed: int
    seconds: list[float | None]
    best: str
    elapsed: float
    asking: float


class Timed(msgspec.Struct):
    """The time of each strategy's best program, taken by turns."""

    task: str
    seed: int
    seconds: dict[str, float | None]


class Journal:
    """Lines of a file; what is there is not done again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._searches, self._times = folder / "searches.jsonl", folder / "times.jsonl"
        self.searches = [msgspec.json.decode(line, type=Searched) for line in _lines(self._searches)]
        self.times = [msgspec.json.decode(line, type=Timed) for line in _lines(self._times)]

    def searched(self, found: Searched) -> None:
        self.searches.append(found)
        _append(self._searches, found)

    def timed(self, found: Timed) -> None:
        self.times.append(found)
        _append(self._times, found)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _append(path: Path, value: msgspec.Struct) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(value) + b"\n")


def search(journal: Journal, task: Task, strategy: str, seed: int, trials: int) -> None:
    """A search in a database of its own, which holds the past of the seed where the strategy may learn from it."""
    cold = not strategy.endswith("+")
    past = journal.folder / f"past-{seed}.sqlite"
    asking = 0.0

    def hear(event: Event) -> None:
        nonlocal asking
        match event:
            case Proposed(ask_seconds=seconds) | Learnt(seconds=seconds):
                asking += seconds
            case _:
                pass

    with TemporaryDirectory() as folder:
        records = Path(folder) / "records.sqlite"
        if not cold:
            _pour(past, records)
        begin = time.monotonic()
        options = SearchOptions(trials, seed, strategy.rstrip("+"))
        result = task.search(options, records=records, on_event=hear)
        elapsed = time.monotonic() - begin
        if cold:
            _pour(records, past)
    assert result.best is not None
    seconds = [o.seconds for o in result.outcomes]
    journal.searched(Searched(strategy, task.name, seed, seconds, result.best.text, elapsed, asking))


def _pour(source: Path, into: Path) -> None:
    """The records of a database are in another one too."""
    read = Database.reading(source)
    if read is not None:
        with read, Database.open(into) as written:
            written.add_all(k.trial for k in read.all() if isinstance(k.trial, Trial))


def time_by_turns(journal: Journal, task: Task, seed: int, strategies: Sequence[str]) -> None:
    texts = {s.strategy: s.best for s in journal.searches if (s.task, s.seed) == (task.name, seed)}
    programs = [task.expand(Source(f"<{name}>", texts[name])).program for name in strategies]
    with LocalRunner(task.program, task.target, threads=task.threads) as runner:
        outcomes = runner.compare(programs)
    journal.timed(Timed(task.name, seed, {n: o.seconds for n, o in zip(strategies, outcomes, strict=True)}))


def told(journal: Journal, strategies: Sequence[str], tasks: Sequence[str], seeds: Sequence[int]) -> str:
    """Curves, then final times relative to the first strategy, then seconds."""
    found = {(s.strategy, s.task, s.seed): s for s in journal.searches}
    best = {t: min(x for s in journal.searches if s.task == t for x in s.seconds if x is not None) for t in tasks}
    curves = {
        (name, t): np.array([_curve(found[name, t, seed], best[t]) for seed in seeds])
        for name in strategies
        for t in tasks
    }
    lines = [compared(curves, strategies, tasks), "", "best programs, timed by turns:"]
    first = strategies[0]
    for name in strategies[1:]:
        ratios = np.array([np.mean(_gains(journal, t, name, first, seeds)) for t in tasks], dtype=np.float64)
        lines += [
            f"  {name:<14} {np.exp(ratios.mean()):.3f} times as fast as {first}, by chance with p = {chance(ratios):.2g}",
            f"{'':<17}least {np.exp(ratios.min()):.3f} ({tasks[int(ratios.argmin())]})",
        ]
    for name in strategies:
        some = [found[name, t, seed] for t in tasks for seed in seeds]
        elapsed, asking = sum(s.elapsed for s in some), sum(s.asking for s in some)
        share = 100 * asking / elapsed
        lines.append(f"{name:<14} {elapsed / len(some):6.1f} s a search, {share:.0f} % of it choosing candidates")
    return "\n".join(lines)


def _gains(journal: Journal, task: str, name: str, first: str, seeds: Sequence[int]) -> list[float]:
    """Log speed of a strategy's program relative to that of the first one, by seed; without those that failed."""
    pairs = [(t.seconds[first], t.seconds[name]) for t in journal.times if t.task == task and t.seed in seeds]
    return [float(np.log(a / b)) for a, b in pairs if a is not None and b is not None]


def _curve(one: Searched, best: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.maximum.accumulate(np.array([0.0 if s is None else best / s for s in one.seconds]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=["evolutionary", "random", "bayes", "bayes+"])
    parser.add_argument("--tasks", nargs="*", help="by default all of workloads.tsched")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--into", type=Path, default=Path("build/search"), help="the folder of the lines and databases")
    chosen = parser.parse_args()
    tasks = load(WORKLOADS, threads=chosen.threads)
    names: list[str] = chosen.tasks or list(tasks)
    strategies: list[str] = chosen.strategies
    journal = Journal(chosen.into)
    for seed in range(chosen.seeds):
        for name in sorted(strategies, key=lambda s: s.endswith("+")):
            for t in names:
                if not any((s.strategy, s.task, s.seed) == (name, t, seed) for s in journal.searches):
                    search(journal, tasks[t], name, seed, chosen.trials)
                    print(f"{journal.searches[-1].elapsed:6.1f} s  {name:<14}{t:<12}{seed}", flush=True)
        for t in names:
            if not any((one.task, one.seed) == (t, seed) for one in journal.times):
                time_by_turns(journal, tasks[t], seed, strategies)
    print(told(journal, strategies, names, range(chosen.seeds)))


if __name__ == "__main__":
    main()
