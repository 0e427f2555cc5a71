"""Formats the end of a run as a table: each contender's time, its rate and its share of the roof."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl import units
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import Status

_NOUNS = {"timeout": "timeout", "crash": "crash", "wrong_result": "wrong result", "compile_error": "compile error"}
"""Statuses with a plural form."""


def comparison(roof: Roof, seconds: float | None, numpy_seconds: float | None, numpy_disturbed: bool = False) -> str:
    """The table as plain text, with names to the left and numbers to the right.

    `seconds` is the time of our kernel; `numpy_disturbed` if other work made NumPy's too long. Rows and columns of unknown
    values are left out.
    """
    limit = roof.limit
    head = ("", "time", roof.unit, "of bandwidth" if roof.by_memory else "of peak")
    rows: list[tuple[str, ...]] = [head]
    numpy = "NumPy, disturbed" if numpy_disturbed else "NumPy"
    for name, time in (("tensorc-dsl", seconds), (numpy, numpy_seconds)):
        if time is not None:
            share = roof.share(time)
            rows.append(
                (name, units.seconds(time), units.giga(roof.rate(time)), "" if share is None else units.share(share))
            )
    if limit is not None:
        rows.append((roof.name, "", units.giga(limit), units.share(1.0)))
    rows = [row if limit is not None else row[:3] for row in rows]
    return columns(rows)


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of equal length as plain text, with the first column to the left and all others to the right."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def tally(statuses: dict[str, int]) -> str:
    """Counts by status, the valid ones first: `62 ok, 2 timeouts`."""
    order = sorted(statuses.items(), key=lambda item: (item[0] != Status.OK, -item[1], item[0]))
    return ", ".join(
        units.counted(count, _NOUNS[status]) if status in _NOUNS else f"{count} {status.replace('_', ' ')}"
        for status, count in order
    )
