"""HTML in which every text is escaped, since names, messages and schedules are foreign input; and the result of a search
in a notebook.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from tensorc_dsl.base import units
from tensorc_dsl.base.visible import visible, visible_line
from tensorc_dsl.faces.report.recorded import importance_caveat, percent
from tensorc_dsl.faces.report.results import tally
from tensorc_dsl.tuning.insight.posterior import Importance
from tensorc_dsl.tuning.insight.study import Study
from tensorc_dsl.tuning.measure.outcome import Outcome
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
