"""Strange inputs for the front end: `python -m bench.fuzz --seed 1 --count 100000 [--bytes | --grammar]`.

Each input is read, checked and, where nothing is wrong with it, elaborated, expanded and drawn from; what parses is
formatted. What must hold: bad input ends in findings or a refusal, never in another exception; each of these takes less than
a second and 512 MB; formatting keeps the tree and is done after one time. Inputs that break this are written to
build/fuzz/ and the run exits with 1.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from bench.mutate import mutated_bytes, mutated_words
from tensorc_dsl.check.scope import CheckedFile, load_file
from tensorc_dsl.diagnostic import TschedError, render
from tensorc_dsl.interp.tasks import task_space
from tensorc_dsl.ir.parse import parse_program, program_from_tree
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.report.files import read_source
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.search.streams import stream
from tensorc_dsl.source import Source
from tensorc_dsl.syntax.fmt import format_text
from tensorc_dsl.syntax.parse import parse, words

Kind = Literal["bytes", "grammar"]
T = TypeVar("T")

SECONDS = 1.0
MEGABYTES = 512
OUT = Path("build/fuzz")
TARGET = Target(vector_bits=256, cores=4)


class Broken(Exception):
    """Something that must hold does not."""


def generate(kind: Kind, seed: int, number: int) -> bytes:
    """The input of that number: equal arguments make equal inputs."""
    rng = random.Random(f"{kind}/{seed}/{number}")
    return mutated_bytes(rng) if kind == "bytes" else mutated_words(rng)


def digest(file: Path) -> str:
    """How an input ends: its first finding, or what became of its tasks. Raises what must not be raised."""
    try:
        source = read_source(file)
    except TschedError as e:
        return e.diagnostics[0].code
    checked = _timed("checking", lambda: load_file(source))
    for d in checked.diagnostics:
        render(d)
    try:
        text = _timed("formatting", lambda: format_text(source))
    except TschedError as e:
        if not checked.errors:
            raise Broken("it does not parse, and nothing is found") from e
        return checked.errors[0].code
    again = Source("again", text)
    if parse(again) != checked.file:
        raise Broken(f"formatting changes the tree:\n{text}")
    if "//" in text and _comments(again) != _comments(source):
        raise Broken(f"formatting changes the comments:\n{text}")
    if format_text(again) != text:
        raise Broken(f"formatting is not done after one time:\n{text}")
    if checked.errors:
        return checked.errors[0].code
    for p in checked.programs.values():
        program = program_from_tree(p)
        if parse_program(Source("again", format_program(program))) != program:
            raise Broken(f"program `{p.name}` is printed as another one")
    return _timed("expanding", lambda: _expanded(checked))


def _comments(source: Source) -> list[str]:
    return [str(c).rstrip() for c in words(source)[1]]


def _timed(what: str, work: Callable[[], T]) -> T:
    """What `work` returns, if it is soon done. Other processes do not count."""
    start = time.process_time()
    result = work()
    if (took := time.process_time() - start) > SECONDS:
        raise Broken(f"{what} takes {took:.1f} s")
    return result


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


def _limit_memory() -> None:
    """What an input needs beyond the limit becomes a MemoryError. Address space counts, so what is loaded is added."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def fuzz(
    kinds: tuple[Kind, ...], seed: int, count: int, seconds: float = float("inf"), verbose: bool = False
) -> Counter[str]:
    """How the inputs ended; what broke a rule is counted under `BROKEN …` and kept in build/fuzz/."""
    ends: Counter[str] = Counter()
    stop = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "input.tsched"
        for n in range(count):
            if time.monotonic() > stop:
                break
            kind = kinds[n % len(kinds)]
            file.write_bytes(data := generate(kind, seed, n))
            faulthandler.dump_traceback_later(60, exit=True)
            try:
                end = digest(file)
            except Exception as e:
                frames = [f for f in traceback.extract_tb(e.__traceback__) if "tensorc_dsl" in f.filename]
                place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
                what = f"BROKEN {type(e).__name__} {place or str(e).split(chr(10))[0]}"
                if what not in ends:
                    OUT.mkdir(parents=True, exist_ok=True)
                    kept = OUT / f"{kind}-{seed}-{n}.tsched"
                    kept.write_bytes(data)
                    print(f"{kept}: {what}\n{traceback.format_exc()}", flush=True)
                end = what
            faulthandler.cancel_dump_traceback_later()
            ends[end] += 1
            if verbose and n % 1000 == 999:
                print(
                    f"{n + 1} inputs, {peak():.0f} MB, {sum(c for e, c in ends.items() if 'BROKEN' in e)} broken",
                    flush=True,
                )
    return ends


def peak() -> float:
    """The most memory that this process has held, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Stop after so long.")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--bytes", action="store_const", dest="kinds", const=("bytes",))
    group.add_argument("--grammar", action="store_const", dest="kinds", const=("grammar",))
    options = parser.parse_args()
    fuzz(("bytes", "grammar"), options.seed, 20)  # what is loaded on the way is not the input's memory
    _limit_memory()
    ends = fuzz(options.kinds or ("bytes", "grammar"), options.seed, options.count, options.seconds, verbose=True)
    for end, n in ends.most_common():
        print(f"{n:8} {end}")
    print(f"{ends.total()} inputs, at most {peak():.0f} MB")
    sys.exit(any(e.startswith("BROKEN") for e in ends) or peak() > MEGABYTES)


if __name__ == "__main__":
    main()
