"""`tune --emulate`: draws schedules for a GPU, emulates them, and ranks them by the cycles of a model.

Nothing is timed: the numbers are recorded in a file of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.cli.options import Ending, finishing
from tensorc_dsl.faces.cli.tuned import Form, Written, replace_schedule
from tensorc_dsl.faces.report.terminal import say, show, show_object

if TYPE_CHECKING:
    from tensorc_dsl.base.outputs import Output
    from tensorc_dsl.faces.api import Task
    from tensorc_dsl.schedule.trace.trace import Trace
    from tensorc_dsl.tuning.measure.emulation import Emulated

TIMED = {
    "budget": "--budget",
    "until": "--until",
    "strategy": "--strategy",
    "weights": "--weight",
    "threads": "--threads",
    "prior": "--write-prior",
}
"""The options of a search that are about times."""

SHOWN = 5
"""How many of the best schedules are listed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be emulated: so many draws of a seed, anew or with what `path` has of them, told in a form.
    With `keep_better`, a schedule in the output that is faster by the model is kept."""

    trials: int
    seed: int
    resume: bool
    path: Path
    form: Form
    keep_better: bool


@dataclass(frozen=True, slots=True)
class Ranked:
    """A schedule with its draw's number, its counts, the cycles of the model, and what the busiest multiprocessor moves."""

    number: int
    trace: Trace
    found: Emulated
    cycles: int | None
    moves: int

    def facts(self) -> dict[str, Any]:
        """Its fields in a line of JSON."""
        sectors, passes = (sum(c.moves(shared) for c in self.found.counts) for shared in (False, True))
        return {"draw": self.number, "cycles": self.cycles, "moves": self.moves, "sectors": sectors, "passes": passes}


@dataclass(slots=True)
class Ranking:
    """The schedules of a task that were emulated so far: those with counts, those whose kernel is wrong, and the reasons why
    others have none, with how many there are."""

    valid: list[Ranked] = field(default_factory=list["Ranked"])
    wrong: list[tuple[int, Trace, str]] = field(default_factory=list["tuple[int, Trace, str]"])
    refused: Counter[str] = field(default_factory=Counter[str])
    recorded: int = 0
    interrupted: bool = False

    @property
    def best(self) -> list[Ranked]:
        """The schedules, the fastest of the model first."""
        return sorted(self.valid, key=lambda r: (r.cycles or 0, r.moves, r.number))


Tell = Callable[[str, dict[str, Any]], None]
"""Hears each event: its name and its facts."""


def require_no_times(ctx: click.Context) -> None:
    """Raises UsageError if an option was given that is about times."""
    for name, option in TIMED.items():
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"`{option}` is about times, and `--emulate` counts")


def rank_and_show(tasks: Sequence[Task], files: Sequence[Output], asked: Asked, ending: Ending) -> list[Ranking]:
    """Emulate, print the best schedules of each task by the model, and write the first to its file; how it went.

    A signal ends it early, with what there is. Raises TschedError (E0703, E0708, E0903, E0932).
    """
    for file in files:
        file.check()
    out: list[Ranking] = []
    for task in tasks:
        found = Ranking()
        out.append(found)
        if not ending.told:
            with suppress(KeyboardInterrupt):
                _emulate(task, asked, found, _telling(task.name, asked.form))
        found.interrupted = ending.told
    with finishing(ending):
        facts = [_finish(*x, asked) for x in zip(tasks, out, files, strict=True)]
        if asked.form is Form.OBJECT:
            show_object(facts[0] if len(facts) == 1 else facts)
        elif asked.form is Form.LINES:
            for one in facts:
                show_object({"event": "result"} | one)
    return out


def _telling(task: str, form: Form) -> Tell:
    def tell(event: str, facts: dict[str, Any]) -> None:
        if form is Form.LINES:
            show_object({"event": event, "task": task, **facts})
        elif event == "emulated":
            say(f"{task}: draw {facts['draw']}, {facts['cycles']} cycles of the model", err=True)

    return tell


def _emulate(task: Task, asked: Asked, out: Ranking, tell: Tell) -> None:
    """Emulate the different schedules among the draws, and keep each as soon as it is known."""
    from tensorc_dsl.faces.api.kernel import FAILED
    from tensorc_dsl.tuning.records.emulated_counts import Emulation, about, keep, kept
    from tensorc_dsl.tuning.records.trial import digest

    key_of_task = about(task.program, task.target)
    known = kept(asked.path, key_of_task, asked.seed) if asked.resume else dict[int, Emulation]()
    tell("started", {"seed": asked.seed, "trials": asked.trials, "recorded": len(known)})
    seen: set[str] = set()
    for number in range(asked.trials):
        trace = task.sample(asked.seed, number)
        key = digest(trace.text)
        if key in seen:
            continue
        seen.add(key)
        one = known.get(number)
        recorded = one is not None and one.schedule == key
        if one is None or not recorded:
            one = Emulation(key_of_task, asked.seed, number, key)
            try:
                found = task.emulate(trace, task.require_registers(trace))  # the model does not cover spills
                one = Emulation(key_of_task, asked.seed, number, key, None if found.fault else found, found.fault)
            except TschedError as e:
                if e.diagnostics[0].code != FAILED.code:  # not of this schedule, but of the task
                    raise
                one = Emulation(key_of_task, asked.seed, number, key, refused=e.diagnostics[0].message)
            keep(asked.path, one)
        out.recorded += recorded
        if one.found is not None:
            cycles, moves = one.found.cycles, one.found.busiest(task.target.cores)
            out.valid.append(Ranked(number, trace, one.found, None if cycles is None else round(cycles), moves))
            tell("emulated", out.valid[-1].facts() | {"recorded": recorded})
        elif one.fault:
            out.wrong.append((number, trace, one.fault))
            tell("wrong", {"draw": number, "why": one.fault})
        else:
            out.refused[one.refused] += 1
            tell("refused", {"draw": number, "why": one.refused})


def _finish(task: Task, found: Ranking, file: Output, asked: Asked) -> dict[str, Any]:
    """Write the best schedule and the first wrong one, tell people, and return what JSON has of all."""
    from tensorc_dsl.base.outputs import Output
    from tensorc_dsl.base.units import counted
    from tensorc_dsl.faces.api.schedules import written

    best = found.best
    for reason, count in found.refused.items():
        say(f"{task.name}: {counted(count, 'draw')} without a kernel: {reason}", err=True)
    for number, trace, fault in found.wrong:
        say(f"{task.name}: draw {number} with seed {asked.seed} makes a kernel that is wrong: {fault}", err=True)
        if number == found.wrong[0][0]:
            other = Path(f"{task.name}.wrong.tsched")
            Output(other).write(trace.text)
            command = task.command("replay", str(other), "--emulate")
            say(f"{other} holds a schedule that is wrong: `{command}`", err=True)
    became = Written()
    if best:
        origin = f"counted in an emulation, never timed; seed {asked.seed}, draw {best[0].number}"
        text = f"// {task.name}: {origin}\n{written(task, best[0].trace, file.path, '--emulate')}"
        judge = partial(_judged, task, best[0]) if asked.keep_better else None
        became = replace_schedule(file, task, best[0].trace, text, judge)
    if asked.form is Form.TABLE and best:
        show("\n".join(filter(None, (_table(task, found, file.path, asked), became.note))))
    return {
        "task": task.name,
        "best": best[0].facts() if best else None,
        "file": str(file.path) if best else None,
        "kept": became.kept,
        "note": became.note or None,
        "valid": len(best),
        "recorded": found.recorded,
        "wrong": [number for number, _, _ in found.wrong],
        "refused": dict(found.refused),
        "interrupted": found.interrupted,
        "counts": str(asked.path),
    }


def _judged(task: Task, found: Ranked, held: Trace) -> tuple[bool, str]:
    """Whether a schedule that a file has is faster by the model than the one that was found, and what both take."""
    try:
        counted = task.emulate(held, task.require_registers(held))
    except TschedError as e:
        return False, f"the schedule in it has no kernel: {e.diagnostics[0].message}"
    if counted.fault:
        return False, f"the kernel of the schedule in it is wrong: {counted.fault}"
    old, new = (round(counted.cycles or 0), counted.busiest(task.target.cores)), (found.cycles or 0, found.moves)
    takes = [f"{cycles} cycles and {moves} moves" for cycles, moves in (old, new)]
    return old < new, f"its schedule takes {takes[0]} of the model, and the one found {takes[1]}"


def _table(task: Task, found: Ranking, path: Path, asked: Asked) -> str:
    from tensorc_dsl.base.units import counted
    from tensorc_dsl.faces.report.results import columns, traffic

    best = found.best
    ranked = counted(len(best), "schedule")
    if found.recorded:
        ranked += f", {found.recorded} of them recorded before"
    head = f"{task.name}: {ranked}, by the cycles of a model, not timed; moves are those of the busiest multiprocessor"
    rows = [("draw", "cycles", "moves", "sectors of global memory", "passes over shared memory")]
    rows += [tuple(str(x) for x in r.facts().values()) for r in best[:SHOWN]]
    return "\n".join(
        (
            head,
            columns(rows),
            "",
            traffic(best[0].found, best[0].trace.program),
            f"the first is in {path}; the counts are in {asked.path}, apart from all times",
        )
    )
