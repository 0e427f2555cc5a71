"""Sections of the page that say what the trials teach about the draws."""

from __future__ import annotations

import math

from tensorc_dsl import units
from tensorc_dsl.report.importance import REASONS, percent, pinning, trust
from tensorc_dsl.report.page.data import axes
from tensorc_dsl.report.page.figures import Figures, Insight
from tensorc_dsl.report.page.markup import Markup, bar, element, joined, table
from tensorc_dsl.report.page.search import chart, details, says, section
from tensorc_dsl.trace.distribution import Decision
from tensorc_dsl.trace.model import shown
from tensorc_dsl.tuning.insight.importance import Importance
from tensorc_dsl.tuning.insight.posterior import NEAR, Learnt, Slice, Step, Value
from tensorc_dsl.tuning.insight.study import value_key

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
        says(f"{told} {_sentence(trust(study.surrogate.explained, study.valid, study.left_out))}"),
        says(
            "A share of the variance of the time over the whole space goes with each draw: together with other draws, and "
            "alone. Shares together may add up to more than 100 %."
        ),
        table("Importance of each draw", ("draw", "with others", "alone", "drawn in"), rows, (3,)),
        _pins(f, f.insight),
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _pins(f: Figures, insight: Insight) -> Markup:
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


def _span(insight: Insight) -> tuple[float, float]:
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
