"""Proves and measures kernels on the GPU of this machine: `python -m bench.gpu --seconds 1800 --json gpu.json`.

Four parts, each in a process of its own, so that a fault of the GPU or a time-out ends one part and is told:

    proofs     small tasks of each operator and element type, a few draws each, against the reference
    sanitizer  the same draws under compute-sanitizer: memory, races, uninitialised memory, barriers
    nvcc       ten kernels, our PTX beside nvcc's of the view in CUDA C++
    torch      tuned kernels beside torch: products, convolutions, attention, layer norm, softmax

All need a GPU and PyCUDA, `sanitizer` and `nvcc` the toolkit too, and `torch` torch. What is missing is told.
The status is 1 if a part found something wrong, or could not run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from bench.gpu_parts import PARTS, Row

LEAST = 20.0
"""The seconds that a part gets at least, even if those before it took too long."""


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


def planned(only: Sequence[str], seconds: float) -> Plan:
    """Raises ValueError for a name of no part."""
    if unknown := [name for name in only if name not in PARTS]:
        raise ValueError(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    return Plan(tuple(name for name in PARTS if not only or name in only), seconds)


def run_part(name: str, seconds: float, command: Sequence[str] | None = None) -> Ended:
    """A part in a process of its own, which says its rows as lines of JSON. It is ended when its time is over."""
    begun = time.monotonic()
    asked = command or (sys.executable, "-m", "bench.gpu_parts", name, str(seconds))
    # A part looks at its clock between kernels; the rest is for one that hangs.
    limit = seconds * 1.25 + 30
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=limit, check=False)
        said, trouble = done.stdout, ""
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            trouble = last[0]
    except subprocess.TimeoutExpired as e:
        said = e.stdout.decode() if isinstance(e.stdout, bytes) else e.stdout or ""
        trouble = f"it did not end within {limit:.0f} s"
    rows = tuple(msgspec.json.decode(line, type=Row) for line in said.splitlines() if line.startswith("{"))
    return Ended(name, rows, trouble, time.monotonic() - begun)


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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800.0, help="about how long all of it may take")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="this part; may be said again")
    parser.add_argument("--json", type=Path, help="a file for all that was found")
    given = parser.parse_args(argv)
    try:
        plan = planned(given.only, given.seconds)
    except ValueError as e:
        parser.error(str(e))
    until = time.monotonic() + plan.seconds
    ended: list[Ended] = []
    for n, name in enumerate(plan.parts):
        ended.append(run_part(name, plan.share(n, until - time.monotonic())))
        print(printed(ended[-1]), flush=True)
        if given.json:
            # After each part: what was measured is kept if a later one takes the machine down.
            found = {p.name: {"ok": p.ok, "trouble": p.trouble, "rows": [asdict(r) for r in p.rows]} for p in ended}
            given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    good = sum(p.ok for p in ended)
    print(f"\n{good} of {len(ended)} parts found nothing wrong")
    return int(good < len(ended))


if __name__ == "__main__":
    sys.exit(main())
