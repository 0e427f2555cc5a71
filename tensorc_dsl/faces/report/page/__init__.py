"""The page of a search: one HTML file that holds all it shows, how the search went, what it found, and what the trials teach
about the draws; and its result in a notebook.

Every text is escaped, since names, messages and schedules are foreign input. Trials are numbers for charts, in columns, since
a row for each would be a megabyte.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import html
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorc_dsl.base import units
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.visible import visible, visible_line
from tensorc_dsl.faces.report.recorded import REASONS, date, importance_caveat, percent, pinning
from tensorc_dsl.faces.report.results import tally
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace, shown
from tensorc_dsl.tuning.insight import (
    NEAR,
    Importance,
    Learnt,
    Pin,
    Slice,
    Step,
    Study,
    Value,
    importance,
    pins,
    posterior,
    slices,
    told_by,
    value_key,
)
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.records.database import Kept, rank
from tensorc_dsl.tuning.records.trial import Trial
from tensorc_dsl.tuning.search.tune import TuneResult


class Markup(str):
    """HTML, which is not escaped again."""

    __slots__ = ()


def line_markup(text: str) -> Markup:
    """A text on one line; invisible characters are spelled out."""
    return Markup(html.escape(visible_line(text)))


def lines(text: str) -> Markup:
    """A text with its line ends."""
    return Markup(html.escape(visible(text)))


def element(tag: str, *children: str, **attributes: str | float | bool) -> Markup:
    """An element; children that are no markup are escaped. In names of attributes `_` stands for `-`, and `class_` for
    `class`. An attribute that is True has no value, and one that is False is left out."""
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{line_markup(str(value))}"')
        for name, value in attributes.items()
        if value is not False
    )
    return Markup(f"<{tag}{written}>{joined(children)}</{tag}>")


def joined(children: Iterable[str]) -> Markup:
    return Markup("".join(c if isinstance(c, Markup) else line_markup(c) for c in children))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> Markup:
    """A table whose first column has the names of the rows; `numbers` are columns that are aligned to the right."""

    def cell(tag: str, n: int, text: str, **more: str) -> Markup:
        return element(tag, text, **more, class_="number") if n in numbers else element(tag, text, **more)

    top = element("tr", *(cell("th", n, text, scope="col") for n, text in enumerate(head)))
    body = [
        element("tr", *(cell("td", n, text) if n else cell("th", n, text, scope="row") for n, text in enumerate(row)))
        for row in rows
    ]
    found = element("table", element("caption", caption), element("thead", top), element("tbody", *body))
    return element("div", found, class_="wide", tabindex="0", role="region", aria_label=caption)


def embedded(value: Any) -> Markup:
    """JSON that stands inside of a `script` element: no text in it can end that."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def bar(share: float, kind: str) -> Markup:
    """A bar over a share of the width; the number stands beside it as text."""
    rect = element("rect", width=f"{100 * min(1.0, max(0.0, share)):.1f}%", height="100%", class_=kind)
    return element("svg", rect, class_="bar", aria_hidden="true", focusable="false")


SHOWN = 6
"""Draws that are listed, the most important ones."""

WIDTH, HEIGHT, LEFT, BOTTOM = 480.0, 150.0, 60.0, 20.0
"""The curve's drawing, and its margins for the numbers."""

SLOW = 10.0
"""Times beyond so many times the best are drawn at the upper end."""


def fragment(result: TuneResult, learnt: tuple[Study, Sequence[Importance]] | None) -> str:
    """HTML for a cell, without a script, in the colours of the text around. `learnt` is None if there are too few trials to
    say which draws matter."""
    trials = f"{units.counted(result.trials, 'trial')} in {units.seconds(result.elapsed_seconds)}"
    best = "no valid schedule" if result.best_seconds is None else f"best {units.seconds(result.best_seconds)}"
    parts = [
        element("p", element("strong", best), f", {trials}: {tally(result.statuses) or 'none'}, seed {result.seed}"),
        _curve(result.outcomes),
    ]
    if learnt is not None:
        study, found = learnt
        rows = [
            element("tr", element("td", i.name), element("td", percent(i.total)), element("td", percent(i.alone)))
            for i in found[:SHOWN]
        ]
        head = element("tr", *(element("th", text) for text in ("draw", "of the variance", "alone")))
        parts += [
            element("table", head, *rows),
            element("p", importance_caveat(study.surrogate.explained, study.valid, study.left_out)),
        ]
    return element("div", *parts)


def _curve(outcomes: Sequence[Outcome]) -> Markup:
    """The trials as dots, and the best time so far as a line."""
    times = [(n, o.seconds) for n, o in enumerate(outcomes) if o.seconds is not None]
    if not times:
        return Markup("")
    low = min(s for _, s in times)
    high = max(low * 1.05, min(max(s for _, s in times), SLOW * low))

    def x(n: int) -> float:
        return LEFT + (WIDTH - LEFT - 10) * (n + 0.5) / len(outcomes)

    def y(seconds: float) -> float:
        return 8 + (HEIGHT - BOTTOM - 16) * (1 - math.log(min(seconds, high) / low) / math.log(high / low))

    dots = [
        element("circle", cx=f"{x(n):.1f}", cy=f"{y(s):.1f}", r="2", fill="currentColor", opacity="0.45")
        for n, s in times
    ]
    steps: list[str] = []
    best = math.inf
    for n, s in times:
        if s < best:
            steps.append(f"{'H' if steps else 'M'}{x(n):.1f}{'V' if steps else ' '}{y(s):.1f}")
            best = s
    line = element(
        "path", d=f"{''.join(steps)}H{x(len(outcomes) - 1):.1f}", fill="none", stroke="currentColor", stroke_width="2"
    )
    words = [
        _text(units.seconds(high), LEFT - 6, y(high) + 4, "end"),
        _text(units.seconds(low), LEFT - 6, y(low) + 4, "end"),
        _text(units.counted(len(outcomes), "trial"), WIDTH - 10, HEIGHT - 4, "end"),
    ]
    told = f"The best time so far, from {units.seconds(times[0][1])} to {units.seconds(low)}"
    return element(
        "svg", *dots, line, *words, role="img", aria_label=told, viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", width=f"{WIDTH:g}"
    )


def _text(words: str, x: float, y: float, anchor: str) -> Markup:
    return element(
        "text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill="currentColor", font_size="12"
    )  # fmt: skip


# What the page of a search shows, gathered.


@frozen
class Side:
    """A set of trials under one name: those of a search, of a database, or all. `trials` has one for each program, in order;
    `best` is the fastest, with the time that it had beside the other finalists. `machines` has the name of the worker's
    machine of each trial, empty for this one; nothing if all were timed here."""

    label: str
    trials: tuple[Trial, ...]
    best: Trial | None
    searches: int
    machines: tuple[str, ...] = ()

    @staticmethod
    def of(label: str, records: Sequence[Trial], workers: Mapping[str, str] | None = None) -> Side:
        """`workers` has the names of workers' machines by their fingerprints."""
        rows = rank(Kept(n, t) for n, t in enumerate(records)).rows
        runs = len({(t.run, t.strategy, t.seed) for t in records})
        trials = tuple(told_by(records))
        machines = tuple((workers or {}).get(t.fingerprint, "") for t in trials)
        return Side(label, trials, records[rows[0]] if rows else None, runs, machines if any(machines) else ())

    @property
    def statuses(self) -> dict[str, int]:
        return dict(Counter(t.status for t in self.trials))

    @property
    def improvements(self) -> list[tuple[int, float]]:
        """The trials, from 1, that were faster than all before, with their times."""
        out: list[tuple[int, float]] = []
        for n, t in enumerate(self.trials, 1):
            if t.seconds is not None and (not out or t.seconds < out[-1][1]):
                out.append((n, t.seconds))
        return out


@frozen
class DrawPage:
    """What the trials of all sides teach."""

    study: Study
    importance: tuple[Importance, ...]
    posterior: tuple[Learnt, ...]
    slices: tuple[Slice, ...]
    pins: tuple[Pin, ...]

    @staticmethod
    def of(study: Study) -> DrawPage:
        found, learnt = importance(study), posterior(study)
        return DrawPage(study, found, learnt, slices(study), pins(study, found, learnt))


@frozen
class Stage:
    """A text that the winner becomes, or why there is none."""

    title: str
    text: str
    problem: str = ""


@frozen
class Figures:
    """All that the page says. `roof` is None if it cannot be measured here, for the reason `no_roof`; `insight` is None if
    there are too few trials, as `no_insight` says. `command` is the call of `tune` that pins are for. `default` is the
    schedule of a task that is not tuned, and `best` that of the fastest trial; None if there is none."""

    task: str
    machine: str
    threads: int
    cache: str
    sides: tuple[Side, ...]
    roof: Roof | None
    no_roof: str
    insight: DrawPage | None
    no_insight: str
    command: tuple[str, ...]
    default: Trace | None
    best: Trace | None
    stages: tuple[Stage, ...]

    @property
    def fastest(self) -> Trial | None:
        """The fastest trial of all sides."""
        found = [s.best for s in self.sides if s.best is not None]
        return min(found, key=lambda t: t.seconds or 0.0, default=None)


# The trials as numbers for the charts: a row for each would be a megabyte, so they are columns.


AXES = 8
"""Draws that have an axis beside the time: the most important ones."""

DIGITS = 4


def chart_data(f: Figures) -> dict[str, Any]:
    """What the script of the page draws."""
    statuses = list(dict.fromkeys(t.status for s in f.sides for t in s.trials))
    return {
        "statuses": [s.replace("_", " ") for s in statuses],
        "sides": [_side(s, statuses) for s in f.sides],
        "draws": [_axis(f, name, title) for name, title in axes(f).items()],
        "roof": None if f.roof is None else _roof(f, f.roof),
    }


def axes(f: Figures) -> dict[str, str]:
    """The draws that have an axis, with what they are called there."""
    if f.insight is not None:
        return {i.name: i.title for i in f.insight.importance[:AXES]}
    seen = dict.fromkeys(n for s in f.sides for t in s.trials for n in t.decisions)
    return {name: name for name in list(seen)[:AXES]}


def _side(s: Side, statuses: list[str]) -> dict[str, Any]:
    return {
        "label": visible_line(s.label),
        "seconds": [None if t.seconds is None else float(f"{t.seconds:.{DIGITS}g}") for t in s.trials],
        "status": [statuses.index(t.status) for t in s.trials],
    } | ({"machines": [visible_line(m) for m in s.machines]} if s.machines else {})


def _axis(f: Figures, name: str, title: str) -> dict[str, Any]:
    """The values of a draw in order, and which one each trial has: -1 where it was not drawn."""
    decided = [t.decisions.get(name) for s in f.sides for t in s.trials]
    values = {value_key(d): d for d in decided if d is not None}
    order = sorted(values, key=lambda k: by_size(values[k]))
    place = {key: n for n, key in enumerate(order)}
    return {
        "name": visible_line(title),
        "values": [visible_line(shown(values[k])) for k in order],
        "of": [-1 if d is None else place[value_key(d)] for d in decided],
    }


def by_size(d: Decision) -> tuple[Any, ...]:
    """A key for sorting: numbers by size, tiles by their innermost factors, words by the alphabet."""
    match d:
        case tuple():
            return (1, tuple(reversed(d)), "")
        case str():
            return (2, (), d)
        case _:
            return (0, (d,), "")


def _roof(f: Figures, roof: Roof) -> dict[str, Any] | None:
    if not roof.operations or not roof.bytes_ or not (roof.peak or roof.moving):
        return None
    points = [(f"best of {s.label}" if len(f.sides) > 1 else "best", s.best.seconds) for s in f.sides if s.best]
    times = sorted(t.seconds for s in f.sides for t in s.trials if t.seconds is not None)
    if times:
        points.append(("median trial", times[len(times) // 2]))
    return {
        "intensity": roof.operations / roof.bytes_,
        "peak": roof.peak,
        "bandwidth": roof.bytes_ / roof.moving if roof.moving else None,
        "title": roof.title,
        "unit": "FLOP" if roof.is_float else "op",
        "points": [
            {"label": visible_line(label), "rate": roof.operations / s, "time": units.seconds(s)}
            for label, s in points
            if s is not None
        ],
    }


# Sections of the page that say how a search went, and what it found.


CLOSE = 1.05
"""A trial within 5 % of the best one is as good for most purposes."""

MESSAGES = 8
"""Kinds of failures that are listed."""

LONGEST = 200_000
"""Characters of a text of the winner that the page holds."""


def section(name: str, title: str, *content: str) -> Markup:
    return element("section", element("h2", title, id=name), *content, aria_labelledby=name)


def says(*text: str) -> Markup:
    """A paragraph."""
    return element("p", *text)


def head(f: Figures) -> Markup:
    """The title, what was found in a sentence, and the main figures of each side."""
    best = f.fastest
    found = "No trial was valid."
    if best is not None and best.seconds is not None:
        rate = f", {f.roof.described(best.seconds)}" if f.roof is not None else ""
        found = f"The fastest schedule takes {units.seconds(best.seconds)}{rate}."
    words = [element("h1", f.task), element("p", found, class_="found"), says(_where(f))]
    rows = [_facts(s) for s in f.sides]
    caption = "The two searches" if len(f.sides) > 1 else "The search in figures"
    columns = ("", "best time", "trials", "valid", "failed", "within 5 % of its best after", "last improved at")
    words.append(table(caption, columns, rows, range(1, 7)))
    if len(f.sides) > 1:
        words.append(says(_compared(*f.sides[:2])))
    return element("header", *words)


def _where(f: Figures) -> str:
    created = [t.created for s in f.sides for t in s.trials]
    when = f"; last record of {date(max(created))}" if created else ""
    cache = f", {f.cache} caches" if f.cache else ""
    timed = Counter(m or "this machine" for s in f.sides for m in s.machines)
    workers = (
        f" Trials by machine: {', '.join(f'{visible_line(m)} {n}' for m, n in timed.most_common())}." if timed else ""
    )
    return f"On {f.machine}, {units.counted(f.threads, 'thread')}{cache}{when}.{workers}"


def _facts(s: Side) -> tuple[str, ...]:
    better = s.improvements
    close = next((str(n) for n, seconds in better if seconds <= CLOSE * better[-1][1]), "")
    valid = s.statuses.get("ok", 0)
    time = "" if s.best is None or s.best.seconds is None else units.seconds(s.best.seconds)
    last = str(better[-1][0]) if better else ""
    name = s.label if s.searches == 1 else f"{s.label} ({units.counted(s.searches, 'search')})"
    return name, time, str(len(s.trials)), str(valid), str(len(s.trials) - valid), close, last


def _compared(a: Side, b: Side) -> str:
    """Which of two is better, and how soon each was as good as the other's best."""
    if a.best is None or b.best is None or a.best.seconds is None or b.best.seconds is None:
        return "One of the two has no valid trial."
    fast, slow = sorted((a, b), key=lambda s: s.best.seconds or 0.0 if s.best is not None else 0.0)
    assert fast.best is not None and slow.best is not None and fast.best.seconds and slow.best.seconds
    ratio = slow.best.seconds / fast.best.seconds
    if ratio < 1.01:
        return "The best schedules of the two are equally fast, within 1 %."
    as_good = next((n for n, seconds in fast.improvements if seconds <= slow.improvements[-1][1]), None)
    sooner = "" if as_good is None else f" It was as fast as the other's best after {units.counted(as_good, 'trial')}."
    return f"The best schedule of {fast.label} is {ratio:.2f} times as fast as that of {slow.label}.{sooner}"


def progress(f: Figures) -> Markup:
    """All trials in their order, with the best time so far."""
    told: list[str] = []
    for s in f.sides:
        better = s.improvements
        name = f"{s.label}: " if len(f.sides) > 1 else ""
        if better:
            told.append(
                f"{name}the first valid trial took {units.seconds(better[0][1])}, the fastest, number {better[-1][0]} of "
                f"{len(s.trials)}, {units.seconds(better[-1][1])}."
            )
        if s.best is not None and s.best.phase == "final" and s.best.seconds is not None:
            told.append(f"{name}beside the other finalists, the winner takes {units.seconds(s.best.seconds)}.")
    told = told if len(f.sides) > 1 else [t[0].upper() + t[1:] for t in told]
    rows = [
        (str(n), s.label, units.seconds(seconds)) for s in f.sides for n, seconds in s.improvements
    ]  # fmt: skip
    return section(
        "progress",
        "How the search went",
        says(" ".join(told) or "No trial was valid."),
        says(
            "Each mark is a trial, in the order of the trials and at its time; the line is the best time so far. "
            "Failed trials stand below the axis. With the arrow keys you can go from trial to trial."
        ),
        chart("progress-chart", "Times of all trials, and the best so far"),
        details("The improvements as a table", table("Improvements", ("trial", "of", "time"), rows, (0, 2))),
        _failures(f),
    )


def chart(name: str, label: str) -> Markup:
    """The place of a chart that the script draws, with a line that describes the selection."""
    canvas = element("canvas", role="img", aria_label=label)
    box = element("div", canvas, class_="chart", id=name, tabindex="0", role="group", aria_label=f"{label}; arrow keys")
    return element("figure", box, element("figcaption", "", class_="chosen", role="status", aria_live="polite"))


def details(title: str, *content: str, opened: bool = False) -> Markup:
    return element("details", element("summary", title), *content, open=opened)


def _failures(f: Figures) -> Markup:
    """The failures by their status and message, the most frequent first."""
    failed = [t for s in f.sides for t in s.trials if t.seconds is None]
    if not failed:
        return says("No trial failed.")
    kinds = Counter((t.status, t.message.partition("\n")[0]) for t in failed)
    rows = [(status.replace("_", " "), str(n), message) for (status, message), n in kinds.most_common(MESSAGES)]
    told = f"{units.counted(len(failed), 'trial')} failed: {tally(dict(Counter(t.status for t in failed)))}."
    more = len(kinds) - len(rows)
    rest = [says(f"And {units.counted(more, 'other message')}.")] if more else []
    return joined(
        [says(told), details("Why they failed", table("Failures", ("status", "trials", "message"), rows, (1,)), *rest)]
    )


def roofline(f: Figures) -> Markup:
    """How far the best schedules are from what the machine can do."""
    title = "How close to the machine's limit"
    roof, best = f.roof, f.fastest
    if roof is None:
        return section("roofline", title, says(f"The limit is not known: {f.no_roof}."))
    told = "No trial was valid."
    if best is not None and best.seconds is not None:
        told = f"The best schedule reaches {roof.described(best.seconds)}."
    if not roof.operations or not roof.bytes_ or roof.limit is None:
        return section(
            "roofline", title, says(told), says("No roofline: this work has no measured limit to compare with.")
        )
    bound = "memory" if roof.by_memory else "computing"
    return section(
        "roofline",
        title,
        says(told),
        says(
            f"The roof is what this machine can do at most: its bandwidth to the left, its peak to the right. The task does "
            f"{roof.operations / roof.bytes_:.3g} operations for each byte of its arrays, so it is bound by {bound}. "
            "The roof was measured when this page was made."
        ),
        chart("roofline-chart", "Roofline: operations per second over operations per byte"),
    )


def changes(f: Figures) -> Markup:
    """What the best schedule has that an untuned one has not."""
    title = "What the best schedule changes"
    if f.best is None:
        return section("changes", title, says("No trial was valid, or the best one does not fit today's space."))
    if f.default is None:
        return section(
            "changes", title, says("There is no schedule to compare with: the space refused all that were drawn.")
        )
    before, after = f.default, f.best
    titles = {d.name: d.title for d in (*before.draws, *after.draws)}
    a, b = before.decisions, after.decisions
    rows = [
        (title, shown(a[n]) if n in a else "not drawn", shown(b[n]) if n in b else "not drawn")
        for n, title in titles.items()
        if n not in a or n not in b or a[n] != b[n]
    ]
    return section(
        "changes",
        title,
        says("The untuned schedule is the one that `sample` draws with seed 0."),
        table("Draws that differ", ("draw", "untuned", "best"), rows)
        if rows
        else says("They have the same decisions."),
        details("The steps that differ", element("pre", _difference(before, after), tabindex="0", class_="code")),
    )


def _difference(before: Trace, after: Trace) -> Markup:
    found = difflib.unified_diff(before.text.splitlines(), after.text.splitlines(), "untuned", "best", lineterm="", n=2)
    kinds = {"+": "ins", "-": "del"}
    return joined([
        joined([element(kinds[x[0]], lines(x)) if x[0] in kinds else lines(x), Markup("\n")]) for x in found
    ])  # fmt: skip


def winner(f: Figures) -> Markup:
    """The best schedule and what it becomes."""
    parts = [
        says(f"{s.title}: {s.problem}.")
        if s.problem
        else details(s.title, element("pre", _cut(s.text), tabindex="0", class_="code"))
        for s in f.stages
    ]
    return section("winner", "The best schedule, its program and its code", *(parts or [says("No trial was valid.")]))


def _cut(text: str) -> Markup:
    if len(text) <= LONGEST:
        return lines(text)
    return lines(f"{text[:LONGEST]}\n… and {len(text) - LONGEST} more characters: see `tensorc-dsl show`")


# Sections of the page that say what the trials teach about the draws.


OPENED = 3
"""Draws whose tables are open at first: the most important ones."""

ROWS = 16
"""Values of a draw that are listed."""


def importances(f: Figures) -> Markup:
    """How much each draw matters."""
    title = "Which draws matter"
    if f.insight is None:
        return section("importance", title, says(f"{f.no_insight}."))
    found, study = f.insight.importance, f.insight.study
    first = [i.title for i in found if i.total >= 0.1][:3]
    told = f"Most of all: {', '.join(first)}." if first else "No draw decides much by itself."
    rows = [
        (
            i.title,
            joined([bar(i.total, "total"), Markup(" "), element("span", percent(i.total))]),
            joined([bar(i.alone, "alone"), Markup(" "), element("span", percent(i.alone))]),
            units.share(i.made),
        )
        for i in found
    ]
    return section(
        "importance",
        title,
        says(f"{told} {_sentence(importance_caveat(study.surrogate.explained, study.valid, study.left_out))}"),
        says(
            "A share of the variance of the time over the whole space goes with each draw: together with other draws, and "
            "alone. Shares together may add up to more than 100 %."
        ),
        table("Importance of each draw", ("draw", "with others", "alone", "drawn in"), rows, (3,)),
        _pins(f, f.insight),
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _pins(f: Figures, insight: DrawPage) -> Markup:
    if not insight.pins:
        return says("No draw is settled enough to be pinned.")
    rows = [(p.name, shown(p.decision), REASONS[p.why].format(percent(p.share))) for p in insight.pins]
    command = element("pre", pinning(insight.pins, f.command), tabindex="0", class_="code")
    return joined([
        table("Draws that can be pinned, so that a search has less to decide", ("draw", "value", "why"), rows),
        details("The command that searches with them pinned", command),
    ])  # fmt: skip


def draws(f: Figures) -> Markup:
    """For each draw: which values fast schedules have, and what another one costs."""
    title = "Which values are good"
    if f.insight is None:
        return section("draws", title, says(f"{f.no_insight}."))
    known = {l.name: l for l in f.insight.posterior}
    cuts = {s.name: s for s in f.insight.slices}
    span = _span(f.insight)
    cards = [
        details(
            f"{i.title}: {percent(i.total)} of the variance",
            _draw(i, known[i.name], cuts.get(i.name), span),
            opened=n < OPENED,
        )
        for n, i in enumerate(f.insight.importance)
    ]
    return section(
        "draws",
        title,
        says(
            f"For each value: its share of the schedules of the space, and of those within {units.share(NEAR)} of the best; "
            "then the predicted time of the best schedule with this value, all else left as it is, with an interval that "
            "holds 95 %. The mark ◆ is at the value of the best schedule. All of this is predicted, not measured."
        ),
        *cards,
    )


def _span(insight: DrawPage) -> tuple[float, float]:
    """The times that the axes of all slices share."""
    ends = [x for s in insight.slices for step in s.steps if not step.refused for x in (step.low, step.high)]
    middles = [step.middle for s in insight.slices for step in s.steps if not step.refused]
    if not ends:
        return 1.0, 2.0
    low, high = min(ends), max(middles)
    return low, max(high, low * 1.05)


def _draw(i: Importance, learnt: Learnt, cut: Slice | None, span: tuple[float, float]) -> Markup:
    steps = {value_key(s.decision): s for s in cut.steps} if cut is not None else {}
    values = {value_key(v.decision): v for v in learnt.values}
    decisions: dict[tuple[str, Decision], Decision] = {value_key(s.decision): s.decision for s in steps.values()}
    for v in learnt.values:
        if len(decisions) < ROWS:
            decisions.setdefault(value_key(v.decision), v.decision)
    rows: list[tuple[str, ...]] = []
    for key, decision in decisions.items():
        v, step = values.get(key), steps.get(key)
        is_best = cut is not None and key == value_key(cut.best)
        name = joined([element("strong", f"{shown(decision)} ◆"), element("span", " (best)", class_="hidden")])
        prior, fast = _prior(v, learnt, decision), v.posterior if v is not None else 0.0
        rows.append((
            name if is_best else shown(decision),
            "" if prior is None else percent(prior),
            joined([bar(fast, "posterior"), Markup(" "), element("span", percent(fast))]),
            "" if step is None else _interval(step, span),
        ))  # fmt: skip
    made = ""
    if learnt.made_prior < 1.0 or learnt.made < 1.0:
        made = (
            f"It is drawn in {units.share(learnt.made_prior)} of the schedules of the space, and in "
            f"{units.share(learnt.made)} of the fast ones; the shares below are of those."
        )
    left = len(values.keys() - decisions.keys())
    more = [says(f"{units.counted(left, 'other value')} of fast schedules are not listed.")] if left else []
    found = table(f"Values of {i.title}", ("value", "of the space", "of fast schedules", "predicted time"), rows, (1,))
    return joined([*([says(made)] if made else []), found, *more])


def _prior(v: Value | None, learnt: Learnt, decision: Decision) -> float | None:
    if v is not None:
        return v.prior
    chance = math.exp(learnt.distribution.log_prob(decision))
    return chance if chance > 0.0 else None


def _interval(step: Step, span: tuple[float, float]) -> Markup:
    """The predicted time as text, with its interval drawn."""
    if step.refused:
        return element("span", "does not apply")
    low, high = span

    def at(seconds: float) -> float:
        share = math.log(seconds / low) / math.log(high / low)
        return 3.0 + 94.0 * min(1.0, max(0.0, share))

    a, m, b = at(step.low), at(step.middle), at(step.high)
    drawn = element(
        "svg",
        element("line", x1=f"{a:.1f}%", x2=f"{max(b, a + 0.5):.1f}%", y1="50%", y2="50%", class_="interval"),
        element("circle", cx=f"{m:.1f}%", cy="50%", r="4", class_="middle"),
        class_="span",
        aria_hidden="true",
        focusable="false",
    )
    told = f"{units.seconds(step.middle)} ({units.seconds(step.low)} to {units.seconds(step.high)})"
    others = f"; changes {', '.join(step.others)} too" if step.others else ""
    return joined([drawn, element("span", told + others)])


def parallel(f: Figures) -> Markup:
    """All trials as lines over their draws."""
    names = axes(f)
    title = "All trials, draw by draw"
    if not names:
        return section("parallel", title, says("The trials have no draws."))
    slider = element(
        "label",
        "Highlight the fastest ",
        Markup('<input type="range" id="share" min="1" max="100" value="10">'),
        Markup(" "),
        Markup('<output id="share-of" for="share">10 %</output>'),
    )
    return section(
        "parallel",
        title,
        says(
            "Each line is a valid trial; it crosses each axis at the value that it has there, at the bottom where the draw "
            "was not made. Where the highlighted lines run through one place, fast schedules agree."
        ),
        slider,
        chart("parallel-chart", "Parallel coordinates of the trials: their draws and their times"),
    )


# Puts the page together: its sections, its style, its script and its data.


_HERE = Path(__file__).parent


def page(f: Figures) -> str:
    """The page as HTML. Nothing in it is loaded from elsewhere: its own policy allows its script and its style only."""
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    nothing = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:"
    policy = f"{nothing}; style-src {_hash(style)}; script-src {_hash(script)}"
    title = f"{f.task}: report"
    sections = [progress(f), roofline(f), importances(f), draws(f), parallel(f), changes(f), winner(f)]
    # The scripts' own texts are ours; the data cannot end their element.
    return "<!doctype html>\n" + element(
        "html",
        element(
            "head",
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            Markup('<link rel="icon" href="data:,">'),
            element("title", title),
            Markup(f"<style>{style}</style>"),
        ),
        element(
            "body",
            element("a", "Skip to the contents", class_="skip", href="#contents"),
            head(f),
            element("main", *sections, id="contents"),
            element("script", embedded(chart_data(f)), type="application/json", id="data"),
            Markup(f"<script>{script}</script>"),
        ),
        lang="en",
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
