"""The measurements as rows for programs; `table.py` formats them for people."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bench.against.roof import Need
from bench.against.turns import Outcome, Reading


class Row(msgspec.Struct, frozen=True):
    """An operator at one size. Times are seconds of one call, medians over the rounds; `spread` are their quartiles.

    `ratio_to_best_peer` is above 1 where ours is faster than all peers. `fraction_of_roof` is by the peaks that were
    known when the row was made, or held `under` others, and None where no peak stands for the work. `why_not` says why others
    have no time. `searched` are the seconds that searches took, of those that had one.
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
    searched: dict[str, float] = {}

    def under(self, peaks: Mapping[str, float]) -> Row:
        """The row where these are the machine's peaks."""
        least = self.need.seconds(peaks)
        share = least / self.ours_seconds if self.ours_seconds and least is not None else None
        return msgspec.structs.replace(self, fraction_of_roof=share)


class Report(msgspec.Struct, frozen=True):
    """All rows, under the best peaks of the run (operations/s, by kind).

    `versions` has those who took part, ours first; `absent` what was asked for and is not installed, with what is missing;
    `date` the day (UTC).
    """

    rows: tuple[Row, ...]
    peaks: dict[str, float]
    versions: dict[str, str]
    absent: dict[str, str]
    machine: str
    threads: int
    date: str


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
        searched={name: r.searched for name, r in read.items() if r.searched is not None},
    )
    return found.under(peaks)
