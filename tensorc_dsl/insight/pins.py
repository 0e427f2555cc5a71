"""Draws that may be pinned, so that a later search has less to decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tensorc_dsl.insight.importance import Importance
from tensorc_dsl.insight.posterior import Learnt
from tensorc_dsl.insight.structures import value_key
from tensorc_dsl.insight.study import Study
from tensorc_dsl.trace.distribution import Decision

SURE = 0.9
"""A value that so many of the fast schedules have is settled."""

NO_MATTER = 0.01
"""A draw with a smaller share of the variance does not matter."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A draw of the best schedule, its decision there, and why it may be pinned: nearly all fast schedules have this
    decision, or it hardly changes the time. `share` is that of the fast schedules, or that of the variance."""

    name: str
    decision: Decision
    why: Literal["settled", "no matter"]
    share: float


def pins(study: Study, found: Sequence[Importance], learnt: Sequence[Learnt]) -> tuple[Pin, ...]:
    """The pins, in the order of the space; none where the surrogate explains too little to say."""
    if study.surrogate.explained < 0.5:
        return ()
    matter = {i.name: i for i in found}
    out: list[Pin] = []
    known = {l.name: l for l in learnt}
    for d in study.best:
        if d.distribution.size() < 2:
            continue
        l, i = known[d.name], matter[d.name]
        share = next((v.posterior * l.made for v in l.values if value_key(v.decision) == value_key(d.decision)), 0.0)
        if share >= SURE:
            out.append(Pin(d.name, d.decision, "settled", share))
        elif i.total < NO_MATTER:
            out.append(Pin(d.name, d.decision, "no matter", i.total))
    return tuple(out)
