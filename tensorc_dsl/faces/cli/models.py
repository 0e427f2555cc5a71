"""Tunes, profiles and compares the models of a file for the command line, and prints what is found."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.faces.api.model_tuning import NEGLIGIBLE, ModelTuning, TuningDisplay, tune_model
from tensorc_dsl.faces.api.models import LoadedModel
from tensorc_dsl.faces.cli.failures import ExitCode
from tensorc_dsl.faces.cli.measured import warn_of_threads
from tensorc_dsl.faces.cli.options import SUFFIX, Ending, finishing
from tensorc_dsl.faces.cli.tuned import Form, heard
from tensorc_dsl.faces.report.ended import kept_line
from tensorc_dsl.faces.report.results import columns
from tensorc_dsl.faces.report.terminal import say, show, show_diagnostics, show_object
from tensorc_dsl.tuning.measure.outcome import Quantity

if TYPE_CHECKING:
    from tensorc_dsl.faces.api import SearchOptions, events
    from tensorc_dsl.faces.api.model_timing import ModelComparison, ModelProfile
    from tensorc_dsl.faces.api.model_tuning import TunedTask, TunedWay
    from tensorc_dsl.faces.report.progress import Together
    from tensorc_dsl.tuning.cluster.pool import Pool
    from tensorc_dsl.tuning.records.database import Queue


SHOWN = 40
"""The most groups that a table lists."""


# `tune` of a model.


class _Shown(TuningDisplay):
    """Shows the tuning on standard error, with its events in the form that is asked for, and ends it in order."""

    def __init__(self, ending: Ending, form: Form) -> None:
        self._ending = ending
        self._form = form

    def begin(self, line: str) -> None:
        say(line, err=True)

    @contextmanager
    def searching(
        self, names: Sequence[str], roofs: Sequence[Any], trials: int
    ) -> Generator[Sequence[events.Listener]]:
        try:
            with super().searching(names, roofs, trials) as listeners:
                yield listeners
        finally:
            self._ending.held = False

    def _heard(self, together: Together, names: Sequence[str]) -> Sequence[events.Listener]:
        return heard(together, names, self._ending, self._form, Quantity.SECONDS)

    def ended(self) -> bool:
        return self._ending.told


def tune_and_show(
    model: LoadedModel,
    tasks: Sequence[str],
    trials: int | None,
    options: SearchOptions,
    queue: Queue,
    typed: str | None,
    ending: Ending,
    form: Form,
    on: Pool | None = None,
) -> int:
    """Tune a model, write its schedules to a file, by default MODEL.best.tsched, and print the result.

    Returns the exit status. Raises UnknownTask (E0905), and as `tune_model`.
    """
    output = Output.at(typed, f"{model.name}.best{SUFFIX}")
    source = Path(model.tasks.checked.source.name)
    if output.path.is_file() and source.exists() and output.path.samefile(source):
        raise click.UsageError(f"the schedules would replace {source}: give another path with --output")
    output.check()
    if on is None:
        warn_of_threads(model.tasks.native)
    changes: Any = {} if trials is None else {"trials": trials}
    found = tune_model(
        model,
        tasks=tasks,
        display=_Shown(ending, form),
        records=queue,
        on=on,
        seed=options.seed,
        strategy=options.strategy,
        budget=options.budget,
        resume=options.resume,
        until=options.until,
        shipped=options.shipped,
        **changes,
    )
    written: Path | None = None
    with finishing(ending):
        status = ExitCode.OK
        try:
            output.write(_header(model, found) + found.schedules)
            written = output.path
        except TschedError as e:
            show_diagnostics(*e.diagnostics)
            say("the schedules are among the records, of which `tensorc-dsl run` takes the fastest", err=True)
            status = ExitCode.FINDINGS
        match form:
            case Form.TABLE:
                show(_tuning_table(model, found, written))
            case Form.OBJECT:
                show_object(_tuning_facts(found, written))
            case Form.LINES:
                show_object({"event": "result"} | _tuning_facts(found, written))
    for name, why in found.left_out.items():
        say(f"{name} is left out:", err=True)
        show_diagnostics(why)
    if found.unkept is not None:
        show_diagnostics(*found.unkept.why)
        say(str(found.unkept), err=True)
        status = ExitCode.FINDINGS
    if found.interrupted or ending.told:
        say("interrupted; `--resume` goes on with the trials so far, which are recorded", err=True)
        return ending.status
    if found.wrong:
        return ExitCode.INTERNAL
    return status


def _header(model: LoadedModel, found: ModelTuning) -> str:
    target = model.tasks.native
    times = "" if found.after is None else f": {units.seconds(found.after)} a call"
    return (
        f"// {found.model}{times}, {units.counted(found.trials, 'trial')}\n"
        f"// on {target.cpu}, {units.counted(target.cores, 'thread')}\n{kept_line(model.keeps)}\n"
    )


def _tuning_table(model: LoadedModel, found: ModelTuning, written: Path | None) -> str:
    target = model.tasks.native
    out = [f"{found.model} on {target.cpu}, {target.workers(target.cores)}"]
    if found.before is not None and found.after is not None:
        out.append(
            f"a call took {units.seconds(found.before)} before and takes {units.seconds(found.after)} now, "
            f"{found.before / found.after:.2f} times as fast, by turns"
        )
    total = sum(t.after or 0.0 for t in found.tasks) + found.elsewhere
    rows = [("task", "calls", "before", "now", "share", "of roof", "trials")]
    rows += [_tuned_row(t, total) for t in found.tasks[:SHOWN]]
    known = [n for n in range(len(rows[0])) if any(row[n] for row in rows[1:])]  # there may be no times
    out += ["", columns([tuple(row[n] for n in known) for row in rows])] if known else []
    if len(found.tasks) > SHOWN:
        out.append(f"and {units.counted(len(found.tasks) - SHOWN, 'more task')}")
    out.append(f"\n{units.counted(found.trials, 'trial')} in {units.seconds(found.elapsed_seconds)}")
    if found.kept:
        many = units.counted(len(found.kept), "task")
        out.append(f"{many} keep what they had: together, they take less than {units.share(NEGLIGIBLE)} of a run")
    out += [_way(found, way) for way in found.ways]
    again = [t.task for t in found.tasks if t.again is not None]
    if again:
        out.append(f"searched twice, since tasks of other sizes are nearer to their roofs: {', '.join(again)}")
    if found.after is not None and not found.trusted:
        out.append(
            "other work disturbed the machine through the whole comparison in the model: what was fastest alone is taken; "
            "`--resume` compares again"
        )
    if not found.timed_whole:
        out.append(
            "the workers have another target than this machine, so no run of the model was timed: each task has what was "
            "fastest alone, and calls are joined as before"
        )
    if written is not None:
        out.append(f"schedules: {visible_line(str(written))}")
    return "\n".join(out)


def _way(found: ModelTuning, way: TunedWay) -> str:
    """What became of another way to join the calls."""
    draws = ", ".join(way.draws)
    if way.seconds is None or found.as_joined is None:
        compared = found.trusted and not found.interrupted
        return f"{draws}: {'left, its tasks take longer' if compared else 'left, nothing was compared'}"
    times = f"{units.seconds(way.seconds)} a call, and {units.seconds(found.as_joined)} as calls were joined before"
    return f"{draws}: taken, {times}" if way.taken else f"{draws}: left, {times}"


def _tuned_row(t: TunedTask, total: float) -> tuple[str, ...]:
    before, after = ("" if s is None else units.seconds(s) for s in (t.before, t.after))
    of = t.of_roof
    share = "" if t.after is None or not total else units.share(t.after / total)
    return (t.task, str(t.calls), before, after, share, "" if of is None else units.share(of), str(t.trials))


def _tuning_facts(found: ModelTuning, written: Path | None) -> dict[str, Any]:
    return {
        "model": found.model,
        "before_seconds": found.before,
        "seconds": found.after,
        "trials": found.trials,
        "trusted": found.trusted,
        "timed_whole": found.timed_whole,
        "interrupted": found.interrupted,
        "elapsed_seconds": found.elapsed_seconds,
        "left_out": {name: why.message for name, why in found.left_out.items()},
        "unrecorded": 0 if found.unkept is None else len(found.unkept.trials),
        "best_file": None if written is None else str(written),
        "kept": list(found.kept),
        "joined_otherwise": [{"draws": w.draws, "seconds": w.seconds, "taken": w.taken} for w in found.ways],
        "as_joined_seconds": found.as_joined,
        "tasks": [
            {
                "task": t.task,
                "calls": t.calls,
                "trials": t.trials,
                "statuses": t.result.statuses,
                "before_seconds": t.before,
                "seconds": t.after,
                "alone_seconds": t.result.best_seconds,
                "of_bound": t.of_roof,
                "changed": t.changed,
                "searched_twice": t.again is not None,
            }
            for t in found.tasks
        ],
    }


# `profile`.


def profile_table(model: LoadedModel, found: ModelProfile) -> str:
    """The groups of a model, those first that take the longest."""
    target = model.tasks.native
    rows = [("group", "calls", "time", "share", "operations", "bytes", "of roof")]
    total = sum(g.seconds for g in found.groups)
    for g in found.groups:
        of = g.of_roof
        rows.append(
            (
                g.task,
                str(g.calls),
                units.seconds(g.seconds),
                units.share(g.seconds / total) if total else "",
                _counted(g.roof.operations * g.calls),
                units.bytes_(g.roof.bytes_ * g.calls),
                "" if of is None else f"{units.share(of)} of {g.roof.name}",
            )
        )
    run = f"{units.seconds(found.seconds)} a run, the median of {found.runs}"
    return f"{found.model} on {target.cpu}, {target.workers(target.cores)}: {run}\n\n{columns(rows)}"


def _counted(count: int) -> str:
    """`512`, `1.02 k`, `3.5 M`: with three digits."""
    for unit, scale in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g}{unit}"
    return str(count)


def profile_facts(found: ModelProfile) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "model": found.model,
        "seconds": found.seconds,
        "runs": found.runs,
        "groups": [
            {
                "task": g.task,
                "calls": g.calls,
                "seconds": g.seconds,
                "operations": g.roof.operations * g.calls,
                "bytes": g.roof.bytes_ * g.calls,
                "bound_by": g.roof.name or None,
                "of_bound": g.of_roof,
            }
            for g in found.groups
        ],
    }


# `compare`.


def comparison_table(found: ModelComparison) -> str:
    """How far the outputs are from those of the other runtime, and both times."""
    from tensorc_dsl.faces.api.model_timing import quartiles_of

    rows = [("output", "largest difference", "of the largest value", "at", "here", "there")]
    for d in found.differences:
        unlike = f", {units.counted(d.unlike, 'NaN')} in one only" if d.unlike else ""
        at = f"[{', '.join(map(str, d.where))}]"
        rows.append(
            (d.output, f"{d.absolute:.2g}{unlike}", f"{d.relative:.2g}", at, f"{d.made:.6g}", f"{d.wanted:.6g}")
        )
    times = [("", "median", "lower quartile", "upper quartile")]
    for name, seconds in (("tensorc-dsl", found.times), (found.runtime, found.their_times)):
        low, middle, high = quartiles_of(seconds)
        times.append((name, units.seconds(middle), units.seconds(low), units.seconds(high)))
    threads = units.counted(found.threads, "thread")
    end = f"{found.ratio:.2f} times as fast as {found.runtime}, on {threads}, by {len(found.times)} turns each"
    return f"{columns(rows)}\n\n{columns(times)}\n\n{end}"


def comparison_facts(found: ModelComparison) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "model": found.model,
        "runtime": found.runtime,
        "threads": found.threads,
        "ratio": found.ratio,
        "times": list(found.times),
        "their_times": list(found.their_times),
        "outputs": [
            {
                "output": d.output,
                "absolute": _finite(d.absolute),
                "relative": _finite(d.relative),
                "where": list(d.where),
                "here": _finite(d.made),
                "there": _finite(d.wanted),
                "unlike": d.unlike,
            }
            for d in found.differences
        ],
    }


def _finite(value: float) -> float | None:
    """JSON has no infinities."""
    return value if abs(value) < float("inf") else None
