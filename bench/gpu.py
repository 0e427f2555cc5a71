"""Proves and measures kernels on the GPU of this machine: `python -m bench.gpu --seconds 1800 --json gpu.json`.

Six parts, the most important first, each in a process of its own, so that a fault of the GPU or a time-out ends one case
and is told:

    instructions  a small kernel for each kind of instruction, against the reference
    cal           saved schedules beside torch, by which `bench.gpu_calibration` fits the model of time
    proofs        small tasks of each operator and element type, a few draws each, against the reference
    torch         tuned kernels beside torch: products, convolutions, attention, layer norm, softmax
    nvcc          ten kernels, our PTX beside nvcc's of the view in CUDA C++
    sanitizer     the small tasks under compute-sanitizer: memory, races, uninitialised memory, barriers

All need a GPU and PyCUDA, `sanitizer` and `nvcc` the toolkit too, and `torch` torch. What is missing is told. The file of
`--json` is written after each case, and `--resume` goes on with the cases that are not in it: so the work may be divided
into several calls. The status is 1 if a part found something wrong, or did not end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import IO

import msgspec

from bench.gpu_case import BEGUN, Row
from bench.gpu_parts import CANNOT, PARTS

LEAST = 20.0
"""The seconds that a part gets at least, even if those before it took too long."""

SPARE = 30.0
"""The seconds that a part has beyond its share: it looks at its clock between kernels, and one that hangs is ended."""

ENDED = "it was ended before it was done"
"""What is kept of a part while it runs: all that there is if this command is killed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A part: what it found, and why it ended before it was done, "" if it did not."""

    name: str
    rows: tuple[Row, ...]
    trouble: str
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.trouble and not any(r.wrong for r in self.rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts that are asked for. Each has its share of the seconds that are left when it begins."""

    parts: tuple[str, ...]
    seconds: float
    weights: dict[str, float] = field(default_factory=lambda: {name: p.weight for name, p in PARTS.items()})

    def share(self, number: int, left: float) -> float:
        """The seconds for the part of that number, with so many left for it and those after it."""
        weights = [self.weights[name] for name in self.parts[number:]]
        return max(LEAST, left * weights[0] / sum(weights))


def planned(only: Sequence[str], seconds: float, done: Sequence[str] = ()) -> Plan:
    """A plan for the parts that are not `done`. Raises ValueError for a name of no part."""
    if unknown := [name for name in only if name not in PARTS]:
        raise ValueError(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    return Plan(tuple(name for name in PARTS if (not only or name in only) and name not in done), seconds)


Command = Callable[[float, Sequence[str]], Sequence[str]]
"""The command that runs a part for so many seconds, without the cases that are done."""


def run_part(
    name: str,
    seconds: float,
    rows: Sequence[Row] = (),
    told: Callable[[Ended], None] = lambda _: None,
    command: Command | None = None,
    most: float = inf,
) -> Ended:
    """A part in a process of its own, which says its rows as lines of JSON. `rows` are those of before. It is ended when its
    time is over. A case that ends the process is wrong, and the next ones run in another process. `told` gets what there is
    after each row. It runs `most` cases, if there are so many."""
    begun = time.monotonic()
    now = Ended(name, tuple(rows), "", 0.0)
    while True:
        left = seconds - (time.monotonic() - begun)
        before = len(now.rows)
        for found in _once(
            now, left, command or (lambda s, done: _command(name, s, done, most - (len(done) - len(rows))))
        ):
            now = replace(found, seconds=time.monotonic() - begun)
            told(now)
        faulted = len(now.rows) > before and now.rows[-1].wrong and now.trouble
        if not faulted or time.monotonic() - begun > seconds:
            return now


def _command(name: str, seconds: float, done: Sequence[str], most: float = inf) -> Sequence[str]:
    given = str(seconds), msgspec.json.encode(list(done)).decode(), str(most)
    return (sys.executable, "-m", "bench.gpu_parts", name, *given)


def _once(now: Ended, seconds: float, command: Command) -> Iterator[Ended]:
    """What there is after each row of one process, and at its end."""
    asked = command(seconds, [r.case for r in now.rows])
    limit = max(seconds, 0.0) * 1.25 + SPARE
    case = ""
    # A process group, which ends as a whole, but no session: what ends this command ends the part, too.
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=said, text=True, process_group=0) as process,
    ):
        late = threading.Event()
        timer = threading.Timer(limit, _end, (process, late))
        timer.start()
        try:
            for line in _lines(process.stdout):
                if line.startswith(BEGUN):
                    case = line.removeprefix(BEGUN)
                elif line.startswith("{"):
                    row = msgspec.json.decode(line, type=Row)
                    case = "" if row.case == case else case
                    now = replace(now, rows=(*now.rows, row), trouble=ENDED)
                    yield now
            status = process.wait()
        finally:
            timer.cancel()
            _end(process, threading.Event())
        said.seek(0)
        words = said.read().strip().splitlines()[-1:] or [_died(status)]
    if status == 0:
        yield replace(now, trouble="")
        return
    trouble = f"it did not end within {limit:.0f} s" if late.is_set() else words[0]
    if case and status != CANNOT:
        now = replace(now, rows=(*now.rows, Row(case, wrong=f"it ended the part: {trouble}")))
    yield replace(now, trouble=trouble)


def _lines(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None  # it is a pipe
    return (line.rstrip("\n") for line in stream)


def _died(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def _end(process: subprocess.Popen[str], late: threading.Event) -> None:
    """End a process with its group, if it has not ended."""
    if process.poll() is None:
        late.set()
        os.killpg(process.pid, signal.SIGKILL)


def printed(part: Ended) -> str:
    """A part as text: a line for each row, and what went wrong."""
    wrong = sum(bool(r.wrong) for r in part.rows)
    head = f"{part.name}: {len(part.rows)} done, {wrong} wrong, {part.seconds:.0f} s"
    return "\n".join(
        [head, *(f"    {_line(r)}" for r in part.rows), *([f"    {part.trouble}"] if part.trouble else [])]
    )


def _line(r: Row) -> str:
    times = "" if r.ours is None else f"  {r.ours * 1e6:9.1f} µs"
    if r.ours is not None and r.theirs is not None:
        times += f"  {r.theirs * 1e6:9.1f} µs of {r.beside}  {r.theirs / r.ours:5.2f}×"
    return f"{r.case:44}{times or '  right' * (not r.wrong)}{f'  WRONG: {r.wrong}' if r.wrong else ''}"


def kept(file: Path) -> dict[str, Ended]:
    """The parts in a file that `keep` has written."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return {
        name: Ended(name, tuple(msgspec.convert(x["rows"], list[Row])), x["trouble"], x["seconds"])
        for name, x in found.items()
    }


def keep(file: Path, parts: Mapping[str, Ended]) -> None:
    """Write all that was found to a file, which is whole at any moment."""
    found = {
        p.name: {
            "ok": p.ok,
            "trouble": p.trouble,
            "seconds": p.seconds,
            "rows": [msgspec.to_builtins(r) for r in p.rows],
        }
        for p in parts.values()
    }
    new = file.with_name(f"{file.name}.new")
    new.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    new.replace(file)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800.0, help="about how long all of it may take")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="this part; may be said again")
    parser.add_argument("--json", type=Path, help="a file for all that was found")
    parser.add_argument("--cases", type=float, default=inf, help="how many cases of a part there may be in this call")
    parser.add_argument("--resume", action="store_true", help="go on with the cases that are not in the file of --json")
    given = parser.parse_args(argv)
    if given.resume and not given.json:
        parser.error("--resume needs --json, the file of what was found before")
    every = kept(given.json) if given.resume and given.json.exists() else {}
    try:
        plan = planned(given.only, given.seconds, [name for name, p in every.items() if not p.trouble])
    except ValueError as e:
        parser.error(str(e))

    def told(part: Ended) -> None:
        every[part.name] = part
        if given.json:
            keep(given.json, every)

    until = time.monotonic() + plan.seconds
    for n, name in enumerate(plan.parts):
        before = every[name].rows if name in every else ()
        told(run_part(name, plan.share(n, until - time.monotonic()), before, told, most=given.cases))
        print(printed(every[name]), flush=True)
    asked = [p for name, p in every.items() if not given.only or name in given.only]
    good = sum(p.ok for p in asked)
    print(f"\n{good} of {len(asked)} parts found nothing wrong")
    return int(good < len(asked))


if __name__ == "__main__":
    sys.exit(main())
