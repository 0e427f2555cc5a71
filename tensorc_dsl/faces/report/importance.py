"""Shows how much each draw matters, as JSON and as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from tensorc_dsl.base import units
from tensorc_dsl.faces.report.recorded import Row, table
from tensorc_dsl.schedule.trace.trace import shown
from tensorc_dsl.tuning.insight.importance import Importance
from tensorc_dsl.tuning.insight.posterior import NEAR, Pin
from tensorc_dsl.tuning.insight.study import Study, decisions_of

FAIR, POOR = 0.7, 0.3
"""Shares of the variance that the surrogate explains: below the first one its figures are rough, below the second one they
say nothing."""

REASONS = {
    "settled": f"{{}} of the schedules within {units.share(NEAR)} of the best have it",
    "no matter": "it decides {} of the variance",
}


def facts(study: Study, found: Sequence[Importance], pinned: Sequence[Pin]) -> dict[str, Any]:
    """The object that `importance --json` prints."""
    best = decisions_of(study.best)
    return {
        "valid": study.valid,
        "left_out": study.left_out,
        "explained": study.surrogate.explained,
        "draws": [
            {
                "draw": i.name,
                "title": i.title,
                "total": i.total,
                "alone": i.alone,
                "made": i.made,
                "best": shown(best[i.name]) if i.name in best else None,
            }
            for i in found
        ],
        "pins": [{"draw": p.name, "value": shown(p.decision), "why": p.why, "share": p.share} for p in pinned],
    }


def text(study: Study, found: Sequence[Importance], pinned: Sequence[Pin], command: Sequence[str]) -> str:
    """The same as text; `command` is the call of `tune` that the pins are for."""
    best = decisions_of(study.best)
    rows: list[Row] = [
        (
            i.title, units.share(i.total), units.share(i.alone), units.share(i.made),
            shown(best[i.name]) if i.name in best else "", i.name,
        )
        for i in found
    ]  # fmt: skip
    out = [
        table(("draw", "of the variance", "alone", "drawn", "best", "name"), rows),
        "",
        trust(study.surrogate.explained, study.valid, study.left_out),
    ]
    if pinned:
        rows = [(p.name, shown(p.decision), REASONS[p.why].format(percent(p.share))) for p in pinned]
        out += ["", "these can be pinned:", table(("draw", "value", "why"), rows), "", pinning(pinned, command)]
    return "\n".join(out)


def trust(share: float, valid: int, left_out: int = 0) -> str:
    """How good the figures are, in a sentence or two; `share` is what the model explains."""
    told = f"a model of {units.counted(valid, 'valid trial')} explains {units.share(share)} of the variance of others"
    poor = (
        ": too little to rely on these figures" if share < POOR else ": the figures are rough" if share < FAIR else ""
    )
    left = f"; {units.counted(left_out, 'trial')} of other spaces left out" if left_out else ""
    return told + left + poor


def pinning(pinned: Sequence[Pin], command: Sequence[str]) -> str:
    """The command that searches with these draws pinned."""
    return shlex.join([*command, *(w for p in pinned for w in ("--condition", f"{p.name}={shown(p.decision)}"))])


def percent(share: float) -> str:
    """A share that may be small."""
    return units.share(share) if share >= 0.01 or share == 0.0 else "< 1 %"
