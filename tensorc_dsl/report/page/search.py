"""Sections of the page that say how a search went, and what it found."""

from __future__ import annotations

import difflib
from collections import Counter

from tensorc_dsl import units
from tensorc_dsl.report.page.figures import Figures, Side
from tensorc_dsl.report.page.markup import Markup, element, joined, lines, table
from tensorc_dsl.report.recorded import date
from tensorc_dsl.report.table import tally
from tensorc_dsl.trace.model import shown
from tensorc_dsl.trace.trace import Trace

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
    return f"On {f.machine}, {units.counted(f.threads, 'thread')}{cache}{when}."


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
