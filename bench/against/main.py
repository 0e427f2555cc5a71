"""The standard library's operators, tuned, beside other libraries on the same machine.

    python -m bench --ops gemm,c2d --sizes 512,56x64x64k3 --peers onnxruntime,numpy --trials 64 --json

Without --ops and --sizes, all operators and sizes are measured; without --peers, beside all libraries that need no search.
Rows go to standard error as they are measured, the report to standard output at the end. docs/bench.md describes the
method. The status is 1 if one of our results is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

import tensorc_dsl
from bench.against.contenders import OURS, PEERS, QUICK_PEERS, Contender, named
from bench.against.machine import apart, described
from bench.against.problem import FILES, WEIGHTS, Problem, chosen, split
from bench.against.references import expected
from bench.against.roof import Roof
from bench.against.rows import Report, Row, row
from bench.against.table import Table, document, heading, remarks
from bench.against.turns import Bench, Case, Settings
from tensorc_dsl.check.items import task_bindings
from tensorc_dsl.reference.inputs import make_inputs


def task_files(threads: int) -> dict[str, tensorc_dsl.TaskFile]:
    """The file of each task whose compute can be compared with other libraries, by the task's name."""
    out: dict[str, tensorc_dsl.TaskFile] = {}
    for path in FILES:
        file = tensorc_dsl.load(path, threads=threads)
        before = {split(name)[0] for name in out}
        for name, item in file.checked.tasks.items():
            if item.compute in WEIGHTS and split(name)[0] not in before:
                out[str(name)] = file
    return out


def problem_of(file: tensorc_dsl.TaskFile, task: tensorc_dsl.Task) -> Problem:
    item = file.checked.tasks[task.name]
    bindings = {str(k): v for k, v in task_bindings(item).items() if isinstance(v, int | float | str)}
    types = {b.name: b.dtype.name for b in task.program.inputs}
    return Problem(file.checked.source.name, task.name, str(item.compute), bindings, types)


def case_of(problem: Problem, task: tensorc_dsl.Task, seed: int, folder: Path) -> Case:
    """The case, with its inputs in the folder."""
    inputs = make_inputs(task.program, seed)
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
    return Case(problem, folder, *expected(problem, inputs))


def measured(bench: Bench, file: tensorc_dsl.TaskFile, name: str, seed: int, roof: Roof) -> Row:
    task = file[name]
    problem = problem_of(file, task)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = bench.measure(case_of(problem, task, seed, Path(folder)))
    return row(problem.op, problem.size, outcomes, OURS.name, roof.need(task), roof.peaks)


def compare(
    names: Sequence[str],
    files: dict[str, tensorc_dsl.TaskFile],
    peers: Sequence[Contender],
    settings: Settings,
) -> Report:
    """The report on the tasks, under the best peaks that were measured; each row goes to standard error when it is known."""
    there = [OURS, *(c for c in peers if not c.absence)]
    report = Report(
        rows=(),
        peaks={},
        versions={c.name: c.version for c in there},
        absent={c.name: c.absence for c in peers if c.absence},
        machine=described(files[names[0]].native.cpu, os.cpu_count() or 1),
        threads=settings.threads,
        date=datetime.now(UTC).date().isoformat(),
    )
    table = Table([split(n) for n in names], list(report.versions))
    say("\n".join([heading(report), *remarks(report), "", table.head]))
    roof, rows = Roof([files[n][n] for n in names], settings.threads), list[Row]()
    with Bench(OURS, there[1:], settings) as bench:
        for name in names:
            rows.append(measured(bench, files[name], name, settings.seed, roof))
            say(table.line(rows[-1]))
    return msgspec.structs.replace(report, rows=tuple(r.under(roof.peaks) for r in rows), peaks=roof.peaks)


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def listed(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=listed, default=[], help="operators, with commas between them")
    parser.add_argument("--sizes", type=listed, default=[], help="sizes, as in the names of the tasks")
    parser.add_argument("--peers", type=listed, default=[], help=f"of {', '.join(PEERS)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trials", type=int, default=64, help="of each search")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs and of the searches")
    parser.add_argument("--rounds", type=int, default=11, help="turns of each")
    parser.add_argument(
        "--records",
        type=Path,
        default=Path("build/bench/records.sqlite"),
        help="where searches are recorded; what has a record is not tuned again",
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON instead of a table")
    arguments = parser.parse_args(argv)
    settings = Settings(
        arguments.threads, arguments.trials, arguments.seed, arguments.rounds, arguments.records.absolute()
    )
    # The processes of the libraries inherit the affinity, since some derive their number of threads from it.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, apart(sorted(os.sched_getaffinity(0)))[: settings.threads])
    files = task_files(settings.threads)
    try:
        names = chosen(list(files), arguments.ops, arguments.sizes)
        peers = named(arguments.peers or QUICK_PEERS)
    except ValueError as e:
        parser.error(str(e))
    report = compare(names, files, peers, settings)
    print(msgspec.json.encode(report).decode() if arguments.json else document(report))
    sys.exit(0 if all(r.ours_seconds for r in report.rows) else 1)
