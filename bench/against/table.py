"""What was measured, as rows for programs (JSON) and for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from bench.against.roof import Need
from bench.against.turns import NOT_OFFERED, Outcome, Reading
from tensorc_dsl.report import units

ABSENT = "-"
"""What stands in a table where there is no time."""


class Row(msgspec.Struct, frozen=True):
    """An operator at one size. Times are seconds of one call, medians over the rounds; `spread` are their quartiles.

    `ratio_to_best_peer` is above 1 where ours is faster than all peers. `fraction_of_roof` is by the peaks that were
    known when the row was made, or held `under` others. `why_not` says why others have no time.
    """

    op: str
    size: str
    ours_seconds: float | None
    peers: dict[str, float]
    ratio_to_best_peer: float | None
    fraction_of_roof: float | None
    spread: dict[str, tuple[float, float]]
    why_not: dict[str, str]
    note: str
    need: Need

    def under(self, peaks: Mapping[str, float]) -> Row:
        """The row where these are the machine's peaks."""
        share = self.need.seconds(peaks) / self.ours_seconds if self.ours_seconds else None
        return msgspec.structs.replace(self, fraction_of_roof=share)


class Report(msgspec.Struct, frozen=True):
    """All rows, under the best peaks of the run (operations/s); the versions of the peers, and those that were asked for and
    not installed, with what is missing."""

    rows: tuple[Row, ...]
    peaks: dict[str, float]
    versions: dict[str, str]
    absent: dict[str, str]
    machine: str
    threads: int


def row(op: str, size: str, outcomes: Mapping[str, Outcome], ours: str, need: Need, peaks: Mapping[str, float]) -> Row:
    """The row of what each took; `ours` is the name of ours, `peaks` those that are known by now."""
    read = {name: o for name, o in outcomes.items() if isinstance(o, Reading)}
    peers = {name: r.seconds for name, r in read.items() if name != ours}
    mine = read[ours].seconds if ours in read else None
    found = Row(
        op=op,
        size=size,
        ours_seconds=mine,
        peers=peers,
        ratio_to_best_peer=min(peers.values()) / mine if mine and peers else None,
        fraction_of_roof=None,
        spread={name: (r.low, r.high) for name, r in read.items()},
        why_not={name: o for name, o in outcomes.items() if isinstance(o, str)},
        note=read[ours].note if ours in read else "",
        need=need,
    )
    return found.under(peaks)


class Table:
    """Lines of fixed width, so that each can be printed as soon as it is known, and all of them in the end."""

    def __init__(self, tasks: Sequence[tuple[str, str]], ours: str, peers: Sequence[str]) -> None:
        self._ours = ours
        self._peers = list(peers)
        self._first = [max(len(t[n]) for t in (("op", "size"), *tasks)) for n in (0, 1)]
        self._widths = [max(16, len(p)) for p in (ours, *peers)]

    def text(self, rows: Sequence[Row]) -> str:
        """The whole, and what there is to say of it."""
        return "\n".join([self.head, *map(self.line, rows), *remarks(rows)])

    @property
    def head(self) -> str:
        return self._line("op", "size", [self._ours, *self._peers], "to best", "of roof", "tuned")

    def line(self, row: Row) -> str:
        """A time is followed by half its quartiles' distance, as a share of it."""
        times = {**row.peers, **({self._ours: row.ours_seconds} if row.ours_seconds else {})}
        cells = [_time(times.get(name), row.spread.get(name)) for name in (self._ours, *self._peers)]
        ratio = ABSENT if row.ratio_to_best_peer is None else f"{row.ratio_to_best_peer:.2f}×"
        share = ABSENT if row.fraction_of_roof is None else units.share(row.fraction_of_roof)
        return self._line(row.op, row.size, cells, ratio, share, row.note)

    def _line(self, op: str, size: str, cells: Sequence[str], ratio: str, share: str, note: str) -> str:
        columns = [op.ljust(self._first[0]), size.ljust(self._first[1])]
        columns += [cell.rjust(w) for cell, w in zip(cells, self._widths, strict=True)]
        return "  ".join([*columns, ratio.rjust(7), share.rjust(7), note]).rstrip()


def _time(seconds: float | None, spread: tuple[float, float] | None) -> str:
    if seconds is None or spread is None:
        return ABSENT
    return f"{units.seconds(seconds)} ±{units.share((spread[1] - spread[0]) / 2 / seconds).rjust(4)}"


def remarks(rows: Sequence[Row]) -> list[str]:
    """Why there is no time where there should be one."""
    failures = ((r, name, why) for r in rows for name, why in r.why_not.items() if why != NOT_OFFERED)
    return [f"{r.op} {r.size}: {name}: {why}" for r, name, why in failures]
