"""Formats a report in Markdown: the machine and versions, a line for each task and each operator, and the failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from bench.against.contenders import OURS
from bench.against.rows import Report, Row
from bench.against.turns import NOT_OFFERED
from tensorc_dsl.base import units

ABSENT = "-"
"""The cell for a missing time."""


def document(report: Report) -> str:
    """All that the report says."""
    table = Table([(r.op, r.size) for r in report.rows], list(report.versions))
    lines = [table.head, *map(table.line, report.rows)]
    parts = [heading(report)], lines, summary(report.rows), searches(report.rows), remarks(report)
    return "\n\n".join("\n".join(part) for part in parts if part)


def heading(report: Report) -> str:
    """Where, when and with what it was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return f"{report.machine}, {report.threads} threads, {report.date}; {versions}"


@dataclass(frozen=True, slots=True)
class Column:
    """One of a table; numbers stand on the right."""

    name: str
    width: int
    right: bool = True

    def cell(self, text: str) -> str:
        return text.rjust(self.width) if self.right else text.ljust(self.width)

    @property
    def rule(self) -> str:
        return "-" * (self.width - 1) + (":" if self.right else "-")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(columns: Sequence[Column]) -> str:
    return "\n".join([_line([c.cell(c.name) for c in columns]), _line([c.rule for c in columns])])


class Table:
    """Lines of fixed width, so that each can be printed as soon as it is known, and all of them in the end."""

    def __init__(self, tasks: Sequence[tuple[str, str]], names: Sequence[str]) -> None:
        """`names` are those who take part, a column each."""
        self._names = list(names)
        op, size = (max(len(t[n]) for t in (("op", "size"), *tasks)) for n in (0, 1))
        self._columns = [Column("op", op, right=False), Column("size", size, right=False)]
        self._columns += [Column(n, max(15, len(n))) for n in names]
        self._columns += [Column("to best", 7), Column("of roof", 7), Column("tuned", 10, right=False)]

    @property
    def head(self) -> str:
        return _head(self._columns)

    def line(self, row: Row) -> str:
        """A time is followed by half its quartiles' distance, as a share of it."""
        times = {**row.peers, **({OURS.name: row.ours_seconds} if row.ours_seconds else {})}
        cells = [_time(times.get(name), row.spread.get(name)) for name in self._names]
        share = ABSENT if row.fraction_of_roof is None else units.share(row.fraction_of_roof)
        cells = [row.op, row.size, *cells, _ratio(row.ratio_to_best_peer), share, row.note]
        return _line([c.cell(text) for c, text in zip(self._columns, cells, strict=True)])


def summary(rows: Sequence[Row]) -> list[str]:
    """For each operator, and for all, the geometric mean of `to best` and the least, with its size.

    Of tasks without one, since ours has no right result or no peer has the operator, it is said how many there are.
    """
    groups = {op: [r for r in rows if r.op == op] for op in dict.fromkeys(r.op for r in rows)}
    groups["all"] = list(rows)
    columns = [
        Column("op", max(map(len, groups)), right=False),
        Column("tasks", 8),
        Column("mean", 7),
        Column("least", 7),
    ]
    columns.append(Column("at", max(2, *(len(f"{r.op} {r.size}") for r in rows)), right=False))
    lines = [_head(columns)]
    for name, group in groups.items():
        known = {f"{r.op} {r.size}": r.ratio_to_best_peer for r in group if r.ratio_to_best_peer is not None}
        count = str(len(group)) if len(known) == len(group) else f"{len(known)} of {len(group)}"
        least = min(known, key=known.__getitem__, default="")
        mean = geometric_mean(known.values()) if known else None
        cells = [name, count, _ratio(mean), _ratio(known.get(least)), least]
        lines.append(_line([c.cell(text) for c, text in zip(columns, cells, strict=True)]))
    return lines


def searches(rows: Sequence[Row]) -> list[str]:
    """Of each peer that searched where ours did: how often faster ours is, and how many times as long it searched."""
    out: list[str] = []
    for peer in dict.fromkeys(name for r in rows for name in r.searched if name != OURS.name):
        both = [r for r in rows if r.ours_seconds and peer in r.peers and {OURS.name, peer} <= r.searched.keys()]
        if both:
            faster = geometric_mean([r.peers[peer] / (r.ours_seconds or 1) for r in both])
            longer = geometric_mean([r.searched[peer] / r.searched[OURS.name] for r in both])
            ours, theirs = (sum(r.searched[name] for r in both) for name in (OURS.name, peer))
            took = f"{units.seconds(theirs)} in all, where ours took {units.seconds(ours)}"
            fast = f"ours is {_ratio(faster)} as fast in the geometric mean of {len(both)} tasks"
            out.append(f"- {peer}, which searched, too: {fast}; its searches were {_ratio(longer)} as long, {took}")
    return out


def remarks(report: Report) -> list[str]:
    """Who is absent, and why there is no time where there should be one."""
    absent = [f"- absent: {name} (not installed: {what})" for name, what in report.absent.items()]
    failures = ((r, name, why) for r in report.rows for name, why in r.why_not.items() if why != NOT_OFFERED)
    return absent + [f"- {r.op} {r.size}: {name}: {' '.join(why.split())}" for r, name, why in failures]


def _ratio(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}×"


def _time(seconds: float | None, spread: tuple[float, float] | None) -> str:
    if seconds is None or spread is None:
        return ABSENT
    return f"{units.seconds(seconds)} ±{units.share((spread[1] - spread[0]) / 2 / seconds).rjust(4)}"
