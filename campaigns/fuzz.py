"""Fuzzes the front end: `python -m campaigns.fuzz --seed 1 --count 100000 [--jobs 2] [--bytes | --grammar]`.

Each input is read, checked and, if there are no findings, elaborated, expanded and drawn from; inputs that parse are
formatted. Bad input must end in findings or a refusal, never in another exception; each stage must take less than
a second and 512 MB; formatting must keep the tree and be idempotent. Inputs that break a rule are written to
build/fuzz/, and the run exits with 1. An input that does not end stops the run, and its place is printed.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import multiprocessing
import random
import re
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

from campaigns.mutate import mutated_bytes, mutated_words
from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_file, load_source
from tensorc_dsl.faces.report.files import read_source
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.parse import parse_program, program_from_tree
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.syntax.fmt import format_parsed
from tensorc_dsl.syntax.parse import read
from tensorc_dsl.tuning.search.expansion import stream

Kind = Literal["bytes", "grammar"]
T = TypeVar("T")

SECONDS = 1.0
MEGABYTES = 512
HANGS = 60
"""Seconds after which an input counts as endless."""
OUT = Path("build/fuzz")
USES = re.compile(r"\buse\s+(std(?:\.\w+)*)", re.ASCII)
"""A path of the library that an input names."""
BLOCK = 250
"""Inputs that a process is given at a time."""
TARGET = Target(vector_bits=256, cores=4)


class Broken(Exception):
    """A rule is broken."""


def generate(kind: Kind, seed: int, number: int) -> bytes:
    """The input of that number: equal arguments make equal inputs."""
    rng = random.Random(f"{kind}/{seed}/{number}")
    return mutated_bytes(rng) if kind == "bytes" else mutated_words(rng)


def digest(file: Path) -> str:
    """The outcome of an input: its first finding, or the outcomes of its tasks. Unexpected exceptions propagate."""
    try:
        source = read_source(file)
    except TschedError as e:
        return e.diagnostics[0].code
    _load_library(source.text)
    checked = _timed("checking", lambda: load_file(source))
    for d in checked.diagnostics:
        render(d)
    try:
        text = read(source)
    except TschedError:
        return checked.errors[0].code  # it does not parse
    again = read(Source("again", _timed("formatting", lambda: format_parsed(text))))
    if again.file != text.file:
        raise Broken(f"formatting changes the tree:\n{again.file.source.text}")
    if [c.rstrip() for c in again.comments] != [c.rstrip() for c in text.comments]:
        raise Broken(f"formatting changes the comments:\n{again.file.source.text}")
    if format_parsed(again) != again.file.source.text:
        raise Broken(f"formatting is not done after one time:\n{again.file.source.text}")
    if checked.errors:
        return checked.errors[0].code
    for p in checked.programs.values():
        program = program_from_tree(p)
        if parse_program(Source("again", format_program(program))) != program:
            raise Broken(f"program `{p.name}` is printed as another one")
    return _timed("expanding", lambda: _expanded(checked))


def _timed(what: str, work: Callable[[], T]) -> T:
    """What `work` returns, if it is soon done: the first or the second time, since a collection of all that other inputs have
    left, or a machine whose cores are shared, may fall into one. Other processes do not count."""
    times: list[float] = []
    for _ in range(2):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
        if times[-1] <= SECONDS:
            return result
    raise Broken(f"{what} takes {min(times):.1f} s")


def _load_library(text: str) -> None:
    """Loads the files of the library that an input names: a process keeps them, so their time is not the input's."""
    for path in sorted(set(USES.findall(text))):
        with suppress(TschedError):  # the library has no such file
            load_source(Source("library", f"use {path}"))


def _expanded(checked: CheckedFile) -> str:
    end = "checked"
    for name in list(checked.tasks)[:2]:
        try:
            space = task_space(checked, name, TARGET)
            space.sample(stream(0, name, "fuzz"))
            end = "drawn"
        except TschedError as e:
            end = f"task {e.diagnostics[0].code}"
        except ScheduleRefusal:
            end = "refused"
    return end


@dataclass(slots=True)
class Run:
    """What became of some inputs."""

    ends: Counter[str] = field(default_factory=Counter[str])
    """How they ended; what broke a rule is counted under `BROKEN …`."""
    slowest: tuple[float, str] = (0.0, "none")
    """Seconds of the processor, and the input that took them."""
    megabytes: float = 0.0
    """The most memory that one process has held."""

    def add(self, other: Run) -> None:
        self.ends += other.ends
        self.slowest = max(self.slowest, other.slowest)
        self.megabytes = max(self.megabytes, other.megabytes)

    @property
    def broken(self) -> int:
        return sum(n for end, n in self.ends.items() if end.startswith("BROKEN"))


def fuzz(kinds: tuple[Kind, ...], seed: int, numbers: Iterable[int]) -> Run:
    """What becomes of the inputs of these numbers; those that break a rule are kept in build/fuzz/."""
    run = Run()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "input.tsched"
        for n in numbers:
            kind = kinds[n % len(kinds)]
            file.write_bytes(data := generate(kind, seed, n))
            faulthandler.dump_traceback_later(HANGS, exit=True)
            start = time.process_time()
            try:
                end = digest(file)
            except Exception as e:
                frames = [f for f in traceback.extract_tb(e.__traceback__) if "tensorc_dsl" in f.filename]
                place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
                end = f"BROKEN {type(e).__name__} {place or str(e).split(chr(10))[0]}"
                if end not in run.ends:
                    OUT.mkdir(parents=True, exist_ok=True)
                    kept = OUT / f"{kind}-{seed}-{n}.tsched"
                    kept.write_bytes(data)
                    print(f"{kept}: {end}\n{traceback.format_exc()}", flush=True)
            faulthandler.cancel_dump_traceback_later()
            run.ends[end] += 1
            run.slowest = max(run.slowest, (time.process_time() - start, f"{kind}-{seed}-{n}"))
    run.megabytes = _most_held()
    return run


def _most_held() -> float:
    """The most megabytes this process has held. `getrusage` would count what its parent held when it was forked, too."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def _begin() -> None:
    """What an input needs beyond the limit becomes a MemoryError. Address space counts, so what is loaded is added."""
    fuzz(("bytes", "grammar"), 0, range(20))  # what is loaded on the way is not the input's memory
    gc.freeze()  # nor is it searched for garbage after each input
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Stop after so long.")
    parser.add_argument("--jobs", type=int, default=1, help="Processes that work at the same time.")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--bytes", action="store_const", dest="kinds", const=("bytes",))
    group.add_argument("--grammar", action="store_const", dest="kinds", const=("grammar",))
    options = parser.parse_args()
    total, begin, reported = Run(), time.monotonic(), 0
    starts = iter(range(0, options.count, BLOCK))
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"), _begin) as pool:

        def submit(n: int) -> Future[Run]:
            numbers = range(n, min(n + BLOCK, options.count))
            return pool.submit(fuzz, options.kinds or ("bytes", "grammar"), options.seed, numbers)

        waiting = {submit(n) for n in islice(starts, 2 * options.jobs)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for block in done:
                total.add(block.result())
            if time.monotonic() - begin < options.seconds:
                waiting |= {submit(n) for n in islice(starts, len(done))}
            if total.ends.total() - reported >= 10_000 or not waiting:
                reported = total.ends.total()
                print(f"{reported} inputs, {_summary(total, time.monotonic() - begin)}", flush=True)
    for end, n in total.ends.most_common():
        print(f"{n:8} {end}")
    sys.exit(total.broken > 0 or total.megabytes > MEGABYTES)


def _summary(run: Run, seconds: float) -> str:
    took, name = run.slowest
    return (
        f"{run.ends.total() / seconds:.0f} per second, {run.broken} broken, slowest {took:.2f} s ({name}), "
        f"at most {run.megabytes:.0f} MB"
    )


if __name__ == "__main__":
    main()
