"""The end of a run as a table: each contender's time, its rate and its share of the machine's peak."""

from __future__ import annotations

from tensorc_dsl.measure.outcome import Status
from tensorc_dsl.report import units

HEAD = ("", "time", "GFLOP/s", "of peak")


def comparison(flops: int, seconds: float | None, numpy_seconds: float | None, peak: float) -> str:
    """The table as plain text, names to the left and numbers to the right.

    `flops` is the work of one call, `seconds` what ours takes; rows of what was not measured are left out. `peak` is in
    FLOP/s.
    """
    rows: list[tuple[str, ...]] = [HEAD]
    for name, time in (("tensorc-dsl", seconds), ("NumPy", numpy_seconds)):
        if time is not None:
            rows.append((name, units.seconds(time), units.gflops(flops / time), units.share(flops / time / peak)))
    rows.append(("FMA peak", "", units.gflops(peak), units.share(1.0)))
    widths = [max(len(row[n]) for row in rows) for n in range(len(HEAD))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def tally(statuses: dict[str, int]) -> str:
    """Counts by status, the valid ones first: `62 ok, 2 timeout`."""
    order = sorted(statuses.items(), key=lambda item: (item[0] != Status.OK, -item[1], item[0]))
    return ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in order)
