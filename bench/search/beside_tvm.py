"""Searches live beside TVM's MetaSchedule with equal trials: `python -m bench.search.beside_tvm --into FOLDER`.

TVM searches twice: as it is, where its model is asked after 100 trials, and with a model that is asked after 16. Each search
begins without records. The best programs are timed by turns in one run, as `python -m bench` does. Each case is a line of
`beside-tvm.jsonl` in the folder; cases that are there do not run again. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.against.contenders import OURS, PEERS, Contender
from bench.against.machine import apart
from bench.against.main import case_of, problem_of, task_files
from bench.against.turns import Bench, Outcome, Reading, Settings

TASKS = ("gemm_512", "gemm_1024", "c2d_14x256x256k3")

TVM = PEERS["tvm"]

WARM = Contender("tvm, model after 16", "bench.against.peers.tvm_warm", TVM.packages)

CONTENDERS = (OURS, TVM, WARM)

AFTER = (8, 16, 24, 32, 48, 64, 128, 256)


class Searched(msgspec.Struct):
    """The times of a search's trials in order, by its own clock, and its seconds; then the time of its best program, with the
    quartiles, by turns with the others. `why_not` is the reason where there is none."""

    tried: list[float | None] = []
    searched: float | None = None
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    why_not: str = ""


class Case(msgspec.Struct):
    """A task and a seed, with the search of each contender."""

    task: str
    seed: int
    trials: int
    searches: dict[str, Searched]


def searched(outcome: Outcome) -> Searched:
    match outcome:
        case Reading():
            return Searched(list(outcome.tried), outcome.searched, outcome.seconds, outcome.low, outcome.high)
        case str():
            return Searched(why_not=outcome)


def run(name: str, seed: int, settings: Settings) -> Case:
    file = task_files(settings.threads)[name]
    task = file[name]
    with tempfile.TemporaryDirectory() as folder, Bench(OURS, [TVM, WARM], settings) as bench:
        found = bench.measure(case_of(problem_of(file, task), task, seed, Path(folder)))
    return Case(name, seed, settings.trials, {n: searched(o) for n, o in found.items()})


def best_after(tried: Sequence[float | None], trials: int) -> float | None:
    """The best of the first trials; None before one is valid, or where there were fewer."""
    return min((s for s in tried[:trials] if s is not None), default=None) if len(tried) >= trials else None


def told(cases: Sequence[Case]) -> str:
    """A row for each search: the best after so many trials, the seconds of the search, and the final time."""
    after = [n for n in AFTER if any(n <= c.trials for c in cases)]
    lines = [
        "| task | seed | search | "
        + " | ".join(f"{n}" for n in after)
        + " | seconds of the search | best, by turns (µs) |",
        "| --- " * (len(after) + 5) + "|",
    ]
    for c in cases:
        for name, s in c.searches.items():
            if s.why_not:
                cells, end = [""] * len(after), f" | {s.why_not}"
            else:
                cells = [_micros(best_after(s.tried, n)) for n in after]
                spent = "" if s.searched is None else f"{s.searched:.0f}"
                end = f"{spent} | {_micros(s.seconds)} ({_micros(s.low)} to {_micros(s.high)})"
            lines.append(f"| {c.task} | {c.seed} | {name} | {' | '.join(cells)} | {end} |")
    return "\n".join(lines)


def _micros(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e6 * seconds:.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11, help="turns of each at the end")
    parser.add_argument("--into", type=Path, default=Path("build/beside-tvm"))
    chosen = parser.parse_args()
    absent = {c.name: c.absence for c in CONTENDERS if c.absence}
    if absent:
        raise SystemExit(f"not installed: {absent}")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, apart(sorted(os.sched_getaffinity(0)))[: chosen.threads])
    folder: Path = chosen.into.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "beside-tvm.jsonl"
    lines = log.read_bytes().splitlines() if log.exists() else []
    cases = [msgspec.json.decode(line, type=Case) for line in lines]
    known = {(c.task, c.seed, c.trials) for c in cases}
    for seed in range(chosen.seeds):
        for name in chosen.tasks:
            if (name, seed, chosen.trials) in known:
                continue
            with tempfile.TemporaryDirectory(dir=folder) as empty:  # a search that was cut off begins anew
                records = Path(empty) / "records.sqlite"
                settings = Settings(chosen.threads, chosen.trials, seed, chosen.rounds, records)
                cases.append(run(name, seed, settings))
            with log.open("ab") as file:
                file.write(msgspec.json.encode(cases[-1]) + b"\n")
            print(told(cases[-1:]), flush=True)
    print(told(cases))


if __name__ == "__main__":
    main()
