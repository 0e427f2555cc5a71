"""The state of each of several searches that run together: a row of cells, of which as many are shown as fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorc_dsl import units
from tensorc_dsl.report.table import tally
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.search.events import Corrected, Event, Measured
from tensorc_dsl.tuning.search.regret import Regret

GAP = 2
"""Blanks between cells."""

KEPT = (0, 2, 3, 1, 5, 4)
"""The cells in the order in which they are given room: name, best time, share of the roof, trials, regret, failures."""

NAME = 24
"""The most columns of a name, the mark before it included, and at most half of the line; a longer one is cut."""


@dataclass(slots=True)
class Row:
    """One task: its trials and what came of them."""

    name: str
    roof: Roof
    trials: int = 0
    best: float | None = None
    regret: float | None = None
    failures: Counter[str] = field(default_factory=Counter[str])

    def take(self, event: Event) -> None:
        match event:
            case Measured(trial=trial, outcome=outcome, best_seconds=best):
                self.trials, self.best = trial + 1, best
                if outcome.seconds is None:
                    self.failures[outcome.status] += 1
            case Corrected(best_seconds=best):
                self.best = best
            case Regret(share=share):
                self.regret = share
            case _:
                pass

    def cells(self, current: bool, widest: int) -> tuple[str, ...]:
        """What there is to say, empty where nothing is known."""
        name = f"{'›' if current else ' '} {self.name}"
        share = None if self.best is None else self.roof.share(self.best)
        return (
            name if len(name) <= widest else f"{name[: widest - 1]}…",
            units.counted(self.trials, "trial"),
            "" if self.best is None else units.seconds(self.best),
            "" if share is None else f"{units.share(share)} of roof",
            tally(dict(self.failures)),
            "" if self.regret is None else f"regret {percent(self.regret)}",
        )


def percent(regret: float) -> str:
    """A regret as a percentage, with a digit behind the point where it is small."""
    return units.share(regret) if regret >= 0.095 else f"{100 * regret:.1f} %"


def shown(rows: Sequence[Row], current: int | None, width: int, height: int) -> list[str]:
    """At most `height` lines of at most `width` columns, their cells below each other, the current task among them.

    There is height for two lines.
    """
    if len(rows) > height:
        first = min(max(0, (current or 0) - (height - 1) // 2), len(rows) - height + 1)
        some = range(first, first + height - 1)
    else:
        some = range(len(rows))
    table = [rows[n].cells(n == current, min(NAME, width // 2)) for n in some]
    widths = [max(len(cells[m]) for cells in table) for m in range(len(KEPT))]
    kept: list[int] = []
    used = -GAP
    for m in KEPT:
        if widths[m] and used + GAP + widths[m] <= width:
            kept.append(m)
            used += GAP + widths[m]
    kept.sort()
    lines = [(" " * GAP).join(cells[m].ljust(widths[m]) for m in kept).rstrip() for cells in table]
    hidden = len(rows) - len(table)
    return [*lines, f"  and {units.counted(hidden, 'more task')}"[:width]] if hidden else lines
