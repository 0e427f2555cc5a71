"""`tune --emulate`: draws schedules for a GPU, emulates them, and ranks them by what they move.

Nothing is timed, and nothing is recorded: the numbers are counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.report.terminal import say, show

if TYPE_CHECKING:
    from tensorc_dsl.api import Task
    from tensorc_dsl.measure.emulation import Emulated
    from tensorc_dsl.trace.trace import Trace

TIMED = {
    "budget": "--budget",
    "until": "--until",
    "resume": "--resume",
    "strategy": "--strategy",
    "weights": "--weight",
    "threads": "--threads",
    "prior": "--write-prior",
    "records": "--records",
    "as_json": "--json",
    "as_lines": "--json-lines",
}
"""The options of a search that are about times or records."""

SHOWN = 5
"""How many of the best schedules are listed."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A schedule with its draw's number, its counts, and what the busiest multiprocessor moves."""

    number: int
    trace: Trace
    found: Emulated
    moves: int


def require_no_times(ctx: click.Context) -> None:
    """Raises UsageError if an option was given that is about times or records."""
    for name, option in TIMED.items():
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"`{option}` is about times or records, and `--emulate` counts and records nothing")


def rank_and_show(tasks: Sequence[Task], files: Sequence[Path], trials: int, seed: int) -> bool:
    """Print the best schedules of each task, by their counts, and write the first to its file. Returns whether each has one.

    Raises TschedError (E0908) if a kernel is wrong, and E0903.
    """
    from tensorc_dsl.report.files import check_writable, write_text

    for path in files:
        check_writable(path)
    complete = True
    for task, path in zip(tasks, files, strict=True):
        best = _ranked(task, trials, seed)
        if not best:
            complete = False
            continue
        origin = f"counted in an emulation, never timed; seed {seed}, draw {best[0].number}"
        write_text(path, f"// {task.name}: {origin}\n{best[0].trace.text}")
        show(_table(task, best, path))
    return complete


def _ranked(task: Task, trials: int, seed: int) -> list[Ranked]:
    """The different schedules among so many draws that can be emulated, those that move least first."""
    from tensorc_dsl.api.making import FAILED, failed
    from tensorc_dsl.units import counted

    found: dict[str, Ranked] = {}
    refused: dict[str, int] = {}
    seen: set[str] = set()
    for number in range(trials):
        try:
            trace = task.sample(seed, number)
            if trace.text in seen:
                continue
            seen.add(trace.text)
            emulated = task.emulate(trace)
        except TschedError as e:
            if e.diagnostics[0].code != FAILED.code:  # not of this schedule, but of the task
                raise
            reason = e.diagnostics[0].message
            refused[reason] = refused.get(reason, 0) + 1
            continue
        if emulated.fault:
            raise failed("makes a kernel that is wrong", f"{emulated.fault}; draw {number} with seed {seed}")
        found[trace.text] = Ranked(number, trace, emulated, emulated.busiest(task.target.cores))
        say(f"{task.name}: draw {number}, {found[trace.text].moves} moves", err=True)
    for reason, count in refused.items():
        say(f"{task.name}: {counted(count, 'draw')} without a kernel: {reason}", err=True)
    return sorted(found.values(), key=lambda r: (r.moves, r.number))


def _table(task: Task, best: Sequence[Ranked], path: Path) -> str:
    from tensorc_dsl.report.table import columns
    from tensorc_dsl.report.traffic import traffic
    from tensorc_dsl.units import counted

    ranked = counted(len(best), "schedule")
    head = f"{task.name}: {ranked}, by what the busiest of {task.target.cores} multiprocessors moves: counts, not times"
    rows = [("draw", "moves", "sectors of global memory", "passes over shared memory")]
    for r in best[:SHOWN]:
        sectors, passes = (sum(c.moves(shared) for c in r.found.counts) for shared in (False, True))
        rows.append((str(r.number), str(r.moves), str(sectors), str(passes)))
    return "\n".join(
        (
            head,
            columns(rows),
            "",
            traffic(best[0].found, best[0].trace.program),
            f"the first is in {path}; nothing is recorded",
        )
    )
