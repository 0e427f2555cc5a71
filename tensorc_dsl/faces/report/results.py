"""Formats results of runs and proofs: a table of contenders, what emulated kernels move, the verdict of a proof, the
outcome of each rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from tensorc_dsl.backend.protocol import Counts, Traffic
from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.interp.record import Attempt
from tensorc_dsl.ir.program import Block, Program, walk
from tensorc_dsl.proof.equivalence.validate import Invalid, Report, Unproved, Valid
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.reference.work import describe
from tensorc_dsl.schedule.trace.trace import Draw, shown
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.emulation import Emulated
from tensorc_dsl.tuning.measure.outcome import Status

# Formats the end of a run as a table: each contender's time, its rate and its share of the roof.


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


# Formats what an emulation has counted: what kernels move, and the accesses that move more than their data need.


MOST = 5
"""The largest number of accesses that are listed."""


def traffic(found: Emulated, scheduled: Program) -> str:
    """What the kernels of a scheduled program move, in a table, and the accesses with the most in excess, as plain text."""
    at = describe(found.counted_at)
    title = f"counted{f' at {at}' if at else ''}, not timed"
    rows = [(title, "blocks", "barriers", "sectors of global memory", "passes over shared memory")]
    rows += [
        (c.kernel, str(c.blocks), str(c.barriers), _moved(c, shared=False), _moved(c, shared=True))
        for c in found.counts
    ]
    return "\n".join((columns(rows), *_excesses(found, scheduled)))


def _moved(c: Counts, *, shared: bool) -> str:
    """What a kernel moves, and how many times the least that is."""
    moves, least = c.moves(shared), sum(t.least for t in c.traffic if t.shared == shared)
    return f"{moves} ({moves / least:.1f} × the least)" if least else "0"


def _excesses(found: Emulated, scheduled: Program) -> Iterator[str]:
    every = [t for c in found.counts for t in c.traffic if t.moves > t.least]
    for t in sorted(every, key=lambda t: t.least - t.moves)[:MOST]:
        what = "passes over the banks" if t.shared else "sectors"
        done, need = t.moves / t.requests, t.least / t.requests
        how = "written" if t.write else "read"
        yield f"`{t.buffer}` is {how} with {done:.1f} {what} a request, and {need:.1f} would do: {_place(t, scheduled)}"


def _place(t: Traffic, scheduled: Program) -> str:
    """The blocks that make an access, each with the loops around it."""
    found: list[str] = []
    for around, s in walk(scheduled.body):
        if isinstance(s, Block) and t.buffer in touched(s) and any(x.buffer == t.into for x in (*s.init, *s.body)):
            loops = ", ".join(f"`{x.var}`" for x in around)
            found.append(f"block `{s.name}`" + (f" in {loops}" if loops else ""))
    return "; ".join(found)


# Formats the result of a proof, as JSON and as text.


def facts(report: Report) -> tuple[str, Diagnostic | None]:
    """The verdict in one word, and the diagnostic unless it is "valid"."""
    match report:
        case Valid():
            return "valid", None
        case Invalid(diagnostic=found):
            return "invalid", found
        case Unproved(diagnostic=found):
            return "unproved", found
        case _:
            assert_never(report)


def assumed(report: Report) -> tuple[str, ...]:
    """The assumptions of a proof."""
    return report.assumes if isinstance(report, Valid) else ()


def verdict_line(report: Report) -> str:
    """The verdict as the end of a line: `valid if …`, or `unproved (E0807): …`."""
    word, found = facts(report)
    if found is not None:
        return f"{word} ({found.code}): {found.message}"
    assumes = assumed(report)
    return f"{word}{' if ' if assumes else ''}{' and '.join(assumes)}"


# Formats the outcome of each rule of a space on a task: `show --stage space`.


def format_attempts(title: str, attempts: Iterable[Attempt]) -> str:
    """A paragraph for each rule, with the blocks that it was tried on; modules that it calls are indented below."""
    lines = [title]
    rule = ""
    for a in attempts:
        if a.depth == 0 and not a.line and a.module != rule:
            rule = a.module
            lines += ["", rule]
        pad = "    " * (a.depth + 1)
        if a.line:
            what = f"try in line {a.line}"
        else:
            what = a.subject or "the task" if a.depth == 0 else f"{a.module}({a.subject})"
        lines.append(f"{pad}{what}: {_end(a)}")
        lines += [f"{pad}    {_draw(d)}" for d in a.draws]
    return "\n".join(lines)


def _end(a: Attempt) -> str:
    if a.refusal:
        return f"refused and {'undone' if a.line else 'left out'}, {a.refusal}"
    return f"not applied, {', '.join(a.reasons)}" if a.reasons else "applied"


def _draw(d: Draw) -> str:
    """`factors = [16, 4], of 7: 2 factors with product 64`."""
    size = d.distribution.size()
    pinned = ", pinned" if d.pinned else ""
    return f"{d.name} = {shown(d.decision)}{pinned}, of {size}: {d.distribution.describe()}"
