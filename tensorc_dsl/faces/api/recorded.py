"""What is made of records, for the task as it is now and this machine: what they teach about its draws, their review,
the page of a task, and a file with what searches have learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.base.units import counted
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.check.spaces import literal_of
from tensorc_dsl.faces.api.searching import too_few
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.faces.report.page import DrawPage, Figures, Side, Stage
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace, shown
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.fmt import format_text
from tensorc_dsl.tuning.insight import Learnt, TooFew, study
from tensorc_dsl.tuning.machine.roof import Roof, roof_of
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, keys_of, program_key
from tensorc_dsl.tuning.search.plausible import BEYOND, least_seconds

# Reviews records of a task: do their schedules still make the timed programs, and do the kernels compute right results?


@frozen
class Review:
    """A record, its error ("" for none), and the outcome of its kernel if that was run."""

    row: int
    trial: Trial
    problem: str
    outcome: Outcome | None = None


def repaired(task: Task, path: Path) -> int:
    """How many records of the task on this machine had times that were divided by wrong factors, and have them as they were
    measured now: the factors compounded, or made a time shorter than the machine allows."""
    keys = program_key(task.program), task.target_key
    database = Database.reading(path)
    if database is None:
        return 0
    with database:
        if not database.scaled(*keys):
            return 0
        task.require_machine()
        found = database.wrong_factors(*keys, least_seconds(roof_of(task.program, task.target, task.threads)) / BEYOND)
    if found:
        with Database.open(path) as writable:
            writable.repair(found)
    return len(found)


def reviewed(task: Task, database: Database, most: int) -> Iterator[Review]:
    """The reviews of the task's best records on this machine, up to `most`: each is replayed, built, and run against the
    reference. Raises TschedError if this machine cannot run the task's kernels.
    """
    task.require_machine()
    ranking = database.ranking(program_key(task.program), task.target_key)
    for row in ranking.rows[:most]:
        trial = database.trial(row)
        try:
            trace = task.expand_recorded(trial, f"<record {row}>")
        except TschedError as e:
            yield Review(row, trial, f"{e.diagnostics[0].code}: {e.diagnostics[0].message}")
            continue
        if trial.program_key not in keys_of(trace.program):
            yield Review(row, trial, "its schedule makes another program than the one that was timed")
            continue
        outcome = task.measure(trace)
        said = outcome.message.partition("\n")[0]
        wrong = "" if outcome.status is Status.OK else f"{outcome.status.replace('_', ' ')}: {said}"
        yield Review(row, trial, wrong, outcome)


# Gathers what the page of a task says: its records, what they teach, the roof of the machine, and the winner's code.


def figures(
    task: Task,
    records: Sequence[tuple[str, Sequence[Trial]]],
    command: tuple[str, ...],
    workers: Mapping[str, str],
) -> Figures:
    """The page about one or two named sets of the task's records. `command` is the call of `tune` for the task, and `workers`
    has the names of workers' machines by their fingerprints.

    Takes seconds: the space is expanded some hundred times, and the roof of the machine is measured.
    """
    sides = tuple(Side.of(label, trials, workers) for label, trials in records)
    found = study(task.model, task.name, [t for _, trials in records for t in trials])
    no_insight = too_few(task.name, found).message if isinstance(found, TooFew) else ""
    roof, no_roof = _roof(task)
    fastest = min((s.best for s in sides if s.best), key=lambda t: t.seconds or 0.0, default=None)
    best = None if fastest is None else _expanded(task, fastest)
    return Figures(
        task=task.name,
        machine=task.target.cpu,
        threads=task.threads,
        cache=fastest.cache if fastest is not None else "",
        sides=sides,
        roof=roof,
        no_roof=no_roof,
        insight=None if isinstance(found, TooFew) else DrawPage.of(found),
        no_insight=no_insight,
        command=command,
        default=_drawn(task),
        best=best if isinstance(best, Trace) else None,
        stages=() if best is None else _stages(task, best),
    )


def _roof(task: Task) -> tuple[Roof | None, str]:
    try:
        task.require_machine()
    except TschedError as e:
        return None, e.diagnostics[0].message
    return roof_of(task.program, task.target, task.threads), ""


def _drawn(task: Task) -> Trace | None:
    try:
        return task.sample(0)
    except TschedError:
        return None


def _expanded(task: Task, trial: Trial) -> Trace | str:
    """The schedule of a record; why it does not fit, if the task has changed since."""
    try:
        return task.expand_recorded(trial, f"<trial {trial.trial} of {trial.task}>")
    except TschedError as e:
        return e.diagnostics[0].message


def _stages(task: Task, best: Trace | str) -> tuple[Stage, ...]:
    """The texts of the winner, from its schedule to its assembly."""
    if isinstance(best, str):
        return (Stage("The schedule does not fit the task as it is now", "", best),)
    found = best

    def stage(title: str, make: Callable[[], str]) -> Stage:
        try:
            return Stage(title, make())
        except TschedError as e:
            return Stage(f"{title} cannot be shown", "", e.diagnostics[0].message)

    def code(name: str) -> str:
        return task.view(found, name)

    return (
        Stage("Its schedule, which `replay` takes", found.text),
        stage("The scheduled program", lambda: format_program(found.program)),
        stage("The loops that it makes", lambda: task.lowered_text(found)),
        *(stage(f"Its code: {about}", partial(code, name)) for name, about in task.backend.stages.items()),
    )


# A file with what searches have learnt: its text, with a `prior` item for the space of each searched task.


FLOOR = 20
"""Of a hundred times, how often a draw goes by its own distribution at least: no value becomes impossible or very rare."""

TOLD = 0.05
"""A draw is left out if the search has changed the probability of none of its values by more than this."""

MOST = 12
"""At most so many values of a draw are listed, the likeliest."""


@frozen
class Lesson:
    """What a search of the task has taught, from so many valid trials."""

    task: Task
    valid: int
    learnt: tuple[Learnt, ...]


def plain(task: Task) -> Task:
    """The task without the weights of a prior. What is learnt of it replaces these: the trials behind them count once."""
    definition = task.space.definition
    if definition.prior is None or task.model is not task.space:
        return task
    return task.over_space(replace(task.space, definition=replace(definition, prior=None)))


Weights = Mapping[str, Mapping[Decision, int]]
"""By draw the weights of values, of a hundred; the rest is that of the draw's own distribution."""


def weights_of(learnt: Sequence[Learnt]) -> Weights:
    """The weights that the posterior gives to the values of draws, `FLOOR` being kept for their own distributions."""
    out: dict[str, Mapping[Decision, int]] = {}
    for draw in learnt:
        if all(abs(v.posterior - v.prior) <= TOLD for v in draw.values):
            continue
        likely = ((v.decision, int(v.posterior * (100 - FLOOR))) for v in draw.values[:MOST])
        out[draw.name] = {decision: weight for decision, weight in likely if weight}
    return {name: weights for name, weights in out.items() if weights}


def with_priors(checked: CheckedFile, lessons: Sequence[Lesson]) -> str:
    """The text of the file, formatted, in which each task of the lessons has a prior with the weights that were learnt.

    A prior of an earlier search is replaced; draws of which nothing was learnt keep its weights.
    """
    edits: list[tuple[int, int, str]] = []
    own = {str(p.name): p for p in checked.file.items if isinstance(p, tree.PriorDef)}
    taken = {*checked.spaces, *checked.schedules}
    text = checked.source.text
    added: list[str] = []
    for lesson in lessons:
        item = checked.tasks[lesson.task.name]
        chosen = str(lesson.task.space.definition.name)
        before = own.get(chosen)
        wanted = f"{lesson.task.name}_prior"
        if before is not None and before.name == wanted:
            name = wanted
            start = _start(before.span)
            edits.append((start, before.span.end, ""))
        else:
            name = next(n for n in (wanted, *(f"{wanted}_{k}" for k in range(2, len(taken) + 3))) if n not in taken)
            taken.add(name)
            choice = (item.span.end, item.span.end, f" with {name}")
            edits.append(choice if item.with_ is None else (item.with_.span.start, item.with_.span.end, name))
        base = chosen if before is None else str(before.of)
        added.append(_prior(name, base, lesson, () if before is None else before.weights))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return format_text(Source(checked.source.name, "\n".join([text.rstrip("\n"), *added])))


def _start(span: Span) -> int:
    """Where an item begins, its description included."""
    text, start = span.source.text, span.start
    while start and text[: start - 1].rpartition("\n")[2].startswith("///"):
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _prior(name: str, base: str, lesson: Lesson, before: Sequence[tree.Weighing]) -> str:
    task = lesson.task
    weights = dict(_read(before)) | dict(weights_of(lesson.learnt))
    lines = [f"    {draw} ~ {_map(values)}" for draw, values in weights.items()]
    trials, threads = counted(lesson.valid, "valid trial"), counted(task.threads, "thread")
    about = [
        f"/// How schedules of `{task.name}` are drawn that are about as fast as the best: learnt from {trials} on",
        f"/// {task.target.cpu}, {threads}. Of a hundred times, `_` is how often a draw is as in `{base}`.",
    ]
    return "\n".join(["", *about, f"prior {name} for {base} {{", *lines, "}"]) + "\n"


def _map(values: Mapping[Decision, float]) -> str:
    rest = max(FLOOR, 100 - sum(values.values()))
    return f"{{{', '.join(f'{shown(v)}: {w}' for v, w in values.items())}, _: {rest}}}"


def _read(weighings: Sequence[tree.Weighing]) -> Mapping[str, Mapping[Decision, int]]:
    """The weights of an earlier prior, of a hundred."""
    out: dict[str, Mapping[Decision, int]] = {}
    for w in weighings:
        assert isinstance(w.weights, tree.MapExpr)
        entries = [(literal_of(k), v.value) for k, v in w.weights.items if isinstance(v, tree.Number)]
        total = sum(v for _, v in entries)
        out[str(w.draw)] = {k: int(v * 100 / total) for k, v in entries if k is not None}
    return {name: values for name, values in out.items() if any(values.values())}
