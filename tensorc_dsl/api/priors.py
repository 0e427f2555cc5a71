"""A file with what searches have learnt: its text, with a `prior` item for the space of each searched task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tensorc_dsl.api.tasks import Task
from tensorc_dsl.check.priors import literal_of
from tensorc_dsl.check.scope import CheckedFile
from tensorc_dsl.source import Source, Span
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.fmt import format_text
from tensorc_dsl.trace.distribution import Decision
from tensorc_dsl.trace.model import shown
from tensorc_dsl.tuning.insight.posterior import Learnt
from tensorc_dsl.units import counted

FLOOR = 20
"""Of a hundred times, how often a draw goes by its own distribution at least: no value becomes impossible or very rare."""

TOLD = 0.05
"""A draw is left out if the search has changed the probability of none of its values by more than this."""

MOST = 12
"""At most so many values of a draw are listed, the likeliest."""


@dataclass(frozen=True, slots=True)
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
