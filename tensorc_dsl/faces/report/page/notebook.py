"""The result of a search in a notebook: its best time, how it got there, and which draws matter."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorc_dsl.base import units
from tensorc_dsl.faces.report.importance import percent, trust
from tensorc_dsl.faces.report.page.markup import Markup, element
from tensorc_dsl.faces.report.results import tally
from tensorc_dsl.tuning.insight.importance import Importance
from tensorc_dsl.tuning.insight.study import Study
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.search.tune import TuneResult

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
            element("p", trust(study.surrogate.explained, study.valid, study.left_out)),
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
