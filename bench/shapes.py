"""One search over open sizes beside a search for each size, and beside other libraries:

    python -m bench.shapes --only dense2304,softmax --trials 64 --peers onnxruntime,openvino,numpy --json

For each operator of `shapes.tsched` a schedule that selects among up to `--kernels` is searched, once for all sizes, and one
for each size of `SIZES`, with `--trials` each. The search for all sizes has a sixth of their trials together, or
`--open-trials`. Kernels and libraries are then timed by turns, as `python -m bench` does, on the same inputs. Printed is a
row for each size, and for each operator the trials of both searches, the geometric mean and the least of the ratio of the
kernel for one size to the open one, and of the fastest library to the open one. What has a record in `--records` is not
searched again. The status is 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import exp, log
from pathlib import Path

import msgspec

import tensorc_dsl
from bench.against.contenders import OURS, PEERS, Contender, named
from bench.against.machine import apart, described
from bench.against.main import case_of, listed, problem_of, say
from bench.against.turns import Bench, Outcome, Reading, Settings

FILE = Path(__file__).with_name("shapes.tsched")

OPEN = Contender("open", "bench.against.peers.open", ("tensorc-dsl",))

DEFAULT_PEERS = ("onnxruntime", "openvino", "numpy")

LESS = 6
"""How many times fewer trials the search for all sizes has than those for each together."""

SIZES: Mapping[str, Sequence[Mapping[str, int]]] = {
    **{op: [{"M": n} for n in (1, 2, 5, 8, 16, 27, 32, 64, 77, 100, 113, 128)] for op in ("dense2304", "dense3072")},
    "attention": [{"L": n} for n in (1, 5, 16, 32, 61, 100, 128, 200, 256, 384, 449, 512)],
    "conv": [
        {"H": h, "W": w} for h, w in ((7, 7), (14, 14), (13, 29), (28, 28), (28, 56), (40, 40), (51, 35), (56, 56))
    ],
    "softmax": [
        {"M": m, "N": n} for m, n in ((1, 64), (1, 1000), (16, 1024), (37, 300), (64, 256), (200, 128), (512, 512))
    ],
}
"""The sizes of each operator at which kernels are compared: those that the open search times, and others between."""


class Row(msgspec.Struct, frozen=True):
    """An operator at a size. Seconds of a call; None where there is no right result, for a reason in `why_not`."""

    op: str
    size: str
    seconds: dict[str, float | None]
    why_not: dict[str, str]

    def ratio(self, name: str) -> float | None:
        """The time of a contender over that of the open kernel."""
        own, other = self.seconds[OPEN.name], self.seconds.get(name)
        return other / own if own and other else None

    @property
    def best_peer(self) -> float | None:
        """The time of the fastest library over that of the open kernel."""
        ratios = [r for n in self.seconds if n not in (OPEN.name, OURS.name) and (r := self.ratio(n)) is not None]
        return min(ratios, default=None)


class Summary(msgspec.Struct, frozen=True):
    """An operator: the trials of the open search and of all others, how long the former took, and over the sizes the
    geometric mean and the least of the ratios to the open kernel."""

    op: str
    open_trials: int
    other_trials: int
    open_seconds: float
    kernels: int
    to_each: tuple[float, float] | None
    to_best_peer: tuple[float, float] | None


class Report(msgspec.Struct, frozen=True):
    """All that was measured."""

    rows: tuple[Row, ...]
    operators: tuple[Summary, ...]
    versions: dict[str, str]
    absent: dict[str, str]
    machine: str
    threads: int


def text_with(op: str) -> str:
    """The file of the tasks, with one for each size of an operator, named as in `named_size`."""
    text = FILE.read_text(encoding="utf-8")
    (line,) = (x for x in text.splitlines() if x.startswith(f"task {op}_open "))
    lines: list[str] = []
    for sizes in SIZES[op]:
        own = line.replace(f"{op}_open", f"{op}_{size_of(sizes)}")
        for name, n in sizes.items():
            own = re.sub(rf"\b{name}=\d+\.\.\d+( at \[[^\]]*\])?", f"{name}={n}", own)
        lines.append(own)
    return "\n".join([text, *lines]) + "\n"


def size_of(sizes: Mapping[str, int]) -> str:
    """The sizes in the name of a task, `H7W7`."""
    return "".join(f"{name}{n}" for name, n in sizes.items())


def searched(task: tensorc_dsl.Task, settings: Settings, trials: int, kernels: int) -> tuple[float, int]:
    """Search for all sizes unless there is a record; how long it took, and how many kernels the best one selects among."""
    begun = time.perf_counter()
    found = None
    with suppress(tensorc_dsl.TschedError):  # no records, or those of an older version, which do not fit any more
        found = task.recorded(settings.records)
    if found is None:
        options = tensorc_dsl.SearchOptions(trials, settings.seed, kernels=kernels)
        found = task.search(options, records=settings.records).best
    if found is None:
        raise SystemExit(f"{task.name} has no schedule")
    return time.perf_counter() - begun, max(1, len(found.program.cases))


def row_of(op: str, size: str, outcomes: Mapping[str, Outcome]) -> Row:
    seconds = {n: o.seconds if isinstance(o, Reading) else None for n, o in outcomes.items()}
    return Row(op, size, seconds, {n: o for n, o in outcomes.items() if isinstance(o, str)})


def mean_and_least(ratios: Sequence[float | None]) -> tuple[float, float] | None:
    """The geometric mean and the least of those that are known."""
    known = [r for r in ratios if r is not None]
    return (exp(sum(map(log, known)) / len(known)), min(known)) if known else None


def compared(op: str, bench: Bench, settings: Settings, trials: int, kernels: int) -> tuple[list[Row], Summary]:
    """The rows of an operator, told as they are known, and its summary."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shapes.tsched"
        path.write_text(text_with(op), encoding="utf-8")
        file = tensorc_dsl.load(path, threads=settings.threads)
        took, cases = searched(file[f"{op}_open"], settings, trials, kernels)
        for sizes in SIZES[op]:
            task = file[f"{op}_{size_of(sizes)}"]
            with tempfile.TemporaryDirectory() as inputs:
                outcomes = bench.measure(case_of(problem_of(file, task), task, settings.seed, Path(inputs)))
            rows.append(row_of(op, size_of(sizes), outcomes))
            say(line_of(rows[-1]))
    each = mean_and_least([r.ratio(OURS.name) for r in rows])
    peers = mean_and_least([r.best_peer for r in rows])
    return rows, Summary(op, trials, settings.trials * len(SIZES[op]), took, cases, each, peers)


def line_of(row: Row) -> str:
    """The row as a line of a table in Markdown."""
    cells = ["-" if s is None else f"{1e6 * s:,.1f}" for s in row.seconds.values()]
    ratios = ["-" if r is None else f"{r:.2f}" for r in (row.ratio(OURS.name), row.best_peer)]
    return f"| {' | '.join([row.op, row.size, *cells, *ratios])} |"


def document(report: Report) -> str:
    """The report in Markdown; times are microseconds."""
    names = list(report.rows[0].seconds)
    head = ["operator", "size", *("each" if n == OURS.name else n for n in names), "each / open", "best peer / open"]
    lines = [f"{report.machine}, {report.threads} threads; times in µs", "", f"| {' | '.join(head)} |"]
    lines += [f"|{'---|' * len(head)}", *map(line_of, report.rows), ""]
    for s in report.operators:
        told = [
            "-" if x is None else f"{x[0]:.3f} in the mean, {x[1]:.3f} at least" for x in (s.to_each, s.to_best_peer)
        ]
        lines.append(
            f"- {s.op}: {s.open_trials} trials beside {s.other_trials}, {s.kernels} kernels; each / open {told[0]}; "
            f"best peer / open {told[1]}"
        )
    lines += [f"- {name} is absent: it needs {what}" for name, what in report.absent.items()]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=listed, default=list(SIZES), help=f"operators, of {', '.join(SIZES)}")
    parser.add_argument("--peers", type=listed, default=list(DEFAULT_PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--trials", type=int, default=64, help="of the search for each size")
    parser.add_argument("--open-trials", type=int, help="of the search for all sizes; by default a sixth of all others")
    parser.add_argument("--kernels", type=int, default=8, help="that the open one selects among, at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=11, help="turns of each")
    parser.add_argument("--records", type=Path, default=Path("build/bench/shapes.sqlite"))
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    arguments = parser.parse_args(argv)
    if unknown := [op for op in arguments.only if op not in SIZES]:
        parser.error(f"there is no operator {unknown[0]}; there are {', '.join(SIZES)}")
    try:
        peers = named(arguments.peers)
    except ValueError as e:
        parser.error(str(e))
    records = arguments.records.absolute()
    records.parent.mkdir(parents=True, exist_ok=True)
    settings = Settings(arguments.threads, arguments.trials, arguments.seed, arguments.rounds, records)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, apart(sorted(os.sched_getaffinity(0)))[: settings.threads])
    there = [OPEN, *(c for c in peers if not c.absence)]
    rows: list[Row] = []
    operators: list[Summary] = []
    with Bench(OURS, there, settings) as bench:
        for op in arguments.only:
            trials = arguments.open_trials or max(1, settings.trials * len(SIZES[op]) // LESS)
            found, summary = compared(op, bench, settings, trials, arguments.kernels)
            rows += found
            operators.append(summary)
    report = Report(
        tuple(rows),
        tuple(operators),
        {c.name: c.version for c in (OURS, *there)},
        {c.name: c.absence for c in peers if c.absence},
        described(tensorc_dsl.load(FILE, threads=settings.threads).native.cpu, os.cpu_count() or 1),
        settings.threads,
    )
    print(msgspec.json.encode(report).decode() if arguments.json else document(report))
    sys.exit(0 if all(r.seconds[n] for r in rows for n in (OURS.name, OPEN.name)) else 1)


if __name__ == "__main__":
    main()
