"""Random pipelines of stencils under the library's rules: `python -m campaigns.pipelines --seed 80000 --count 1000`.

Each draw of each pipeline is proved, built as it is for users, run in guarded memory, and compared with the reference. After
each hundred pipelines a line says what became of them, with the slowest expansion, proof and build in processor time. The
lines are added to a file. Hundreds that it has are left out, so a campaign that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import faulthandler
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from time import process_time
from typing import TypeVar

from campaigns.judge import UNPROVED, Judge, isolated, proof
from campaigns.random_open import SIZES, open_pipeline, sizes_to_ask
from campaigns.random_pipelines import in_a_file, pipeline
from tensorc_dsl.backend.llvm.codegen.compile import compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.native import prepared
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.items import FORGETFUL
from tensorc_dsl.check.scope import Versions
from tensorc_dsl.check.uses import standard
from tensorc_dsl.faces.api import Task, TaskFile
from tensorc_dsl.ir.sizes import Sizes, bind
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.work import describe
from tensorc_dsl.syntax.parse import parse_items
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.search.expansion import stream

OUT = Path("build/pipelines.txt")
OPEN_OUT = Path("build/open_pipelines.txt")
BATCH = 100
"""The number of pipelines of one line."""
ENDLESS = 300
"""Seconds after which a pipeline's process is ended: nothing about it takes so long."""
PARTS = ("expansion", "proof", "build")

T = TypeVar("T")

FILES = Versions(standard, parse_items, FORGETFUL)
"""Loads the library once for all pipelines."""


@dataclass(frozen=True, slots=True)
class Slowest:
    """The longest processor time of a part, to hundredths, and the draw that took it."""

    seconds: float = 0.0
    draw: str = "-"


@dataclass(slots=True)
class Tally:
    """What became of draws: how many there were, and what was wrong with some."""

    draws: int = 0
    unproved: int = 0
    wrong: int = 0
    slowest: dict[str, Slowest] = field(default_factory=lambda: dict.fromkeys(PARTS, Slowest()))

    def plus(self, other: Tally) -> Tally:
        most = {p: max(self.slowest[p], other.slowest[p], key=lambda s: s.seconds) for p in PARTS}
        return Tally(self.draws + other.draws, self.unproved + other.unproved, self.wrong + other.wrong, most)

    def __str__(self) -> str:
        times = ", ".join(f"{part} {s.seconds:.2f} s of {s.draw}" for part, s in self.slowest.items())
        return f"{self.draws} draws, {self.unproved} unproved, {self.wrong} wrong; slowest {times}"


_LINE = re.compile(
    r"(\d+) to (\d+): (\d+) draws, (\d+) unproved, (\d+) wrong; slowest "
    + ", ".join(rf"{part} ([\d.]+) s of (\S+)" for part in PARTS)
)


def read(lines: Iterator[str]) -> dict[range, Tally]:
    """What earlier runs have written, by seeds. Other lines are skipped."""
    found: dict[range, Tally] = {}
    for line in lines:
        if m := _LINE.fullmatch(line.strip()):
            first, last, draws, unproved, wrong, *slowest = m.groups()
            most = {p: Slowest(float(slowest[2 * k]), slowest[2 * k + 1]) for k, p in enumerate(PARTS)}
            found[range(int(first), int(last) + 1)] = Tally(int(draws), int(unproved), int(wrong), most)
    return found


def task(compute: str, sizes: str = "") -> Task:
    """The task of a compute `pipeline` with these sizes over the library's space."""
    checked = FILES.load(Source("pipeline.tsched", in_a_file(compute, sizes)))
    assert not checked.errors, (checked.errors, compute)
    return TaskFile(checked, host_target(2))["p"]


def judges(t: Task, sizes: Sequence[Sizes] = ({},)) -> list[tuple[Sizes, Judge]]:
    """What compares kernels of a task at each of these sizes."""
    return [(s, Judge(bind(t.program, s), 3)) for s in sizes]


def draw(t: Task, number: int, at: Sequence[tuple[Sizes, Judge]], name: str) -> tuple[Tally, str]:
    """A draw of the space, and what is wrong with it; "" if it is proved and its kernel is right at all sizes."""
    found = Tally(draws=1)

    def timed(part: str, what: Callable[[], T]) -> T:
        begun = process_time()
        out = what()
        found.slowest[part] = Slowest(round(process_time() - begun, 2), name)
        return out

    try:
        trace = timed("expansion", lambda: t.space.sample(stream(number, t.name, "test")))
        verify(trace.program)
        fault = "".join(map(str, trace.refused)) or timed("proof", lambda: proof(t.program, trace.program))
        compiled = timed("build", lambda: compile_kernel(lower_cpu(trace.program), t.target, 2))
        every = ((s, judge.ran(bind(trace.program, s), compiled)) for s, judge in at)
        wrong = next((f"{describe(s)} {found}".strip() for s, found in every if found), "")
    except Exception:
        fault, wrong = "", traceback.format_exc()
    found.wrong = int(bool(wrong or (fault and not fault.startswith(UNPROVED))))
    found.unproved = int(bool(fault) and not found.wrong)
    return found, wrong or fault


def told(seeds: range, tally: Tally) -> str:
    """The line about these pipelines."""
    return f"{seeds[0]} to {seeds[-1]}: {tally}"


def one(seed: int, draws: int, is_open: bool = False) -> Tally:
    """What becomes of draws of a pipeline, of open size or not; each that is not as it should be is printed."""
    signal.alarm(ENDLESS)  # ends the process
    total = Tally()
    t = task(open_pipeline(seed), SIZES) if is_open else task(pipeline(seed))
    at = judges(t, sizes_to_ask(seed) if is_open else ({},))
    for n in range(draws):
        found, fault = draw(t, n, at, f"{seed}:{n}")
        total = total.plus(found)
        if fault:
            print(f"pipeline {seed}, draw {n}: {fault.strip()}", flush=True)
    return total


def pipelines(seeds: range, draws: int, is_open: bool = False) -> Tally:
    """What becomes of draws of the pipelines, each in a process of its own: a crash is one that is wrong."""
    prepared()  # what all kernels share is compiled here, once
    Judge(task(pipeline(seeds[0])).program, 3)  # the library, and what makes inputs, is loaded here, once
    total = Tally()
    for seed in seeds:
        alone = range(seed, seed + 1)
        text = isolated(lambda alone=alone: told(alone, one(alone[0], draws, is_open)))
        found = read(iter([text])).get(alone)
        if found is None:
            print(f"pipeline {seed}: {text.strip()}", flush=True)
            found = Tally(draws=draws, wrong=draws)
        total = total.plus(found)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first pipeline")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--draws", type=int, default=2, help="of each pipeline")
    parser.add_argument("--open", action="store_true", help="of open size: a kernel for all images")
    parser.add_argument("--out", type=Path, help="the file that the lines are added to")
    arguments = parser.parse_args()
    faulthandler.enable()
    out: Path = arguments.out or (OPEN_OUT if arguments.open else OUT)
    out.parent.mkdir(parents=True, exist_ok=True)
    done = read(iter(out.read_text(encoding="utf-8").splitlines() if out.exists() else ()))
    end = arguments.seed + arguments.count
    for at in range(arguments.seed, end, BATCH):
        seeds = range(at, min(at + BATCH, end))
        if seeds not in done:
            done[seeds] = pipelines(seeds, arguments.draws, arguments.open)
            line = told(seeds, done[seeds])
            print(line, flush=True)
            with out.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
    total = reduce(Tally.plus, done.values(), Tally())
    print(f"{sum(map(len, done))} pipelines: {total}")
    sys.exit(1 if total.unproved or total.wrong else 0)


if __name__ == "__main__":
    main()
