"""Formats records as text and as JSON: groups as tables, single records with all fields, and how much each draw matters."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from tensorc_dsl.base import units
from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.faces.report.terminal import terminal_width
from tensorc_dsl.schedule.trace.trace import shown
from tensorc_dsl.tuning.insight import NEAR, Importance, Pin, Study, decisions_of
from tensorc_dsl.tuning.records.database import Group
from tensorc_dsl.tuning.records.trial import Trial, encode_decisions

Row = Sequence[str]


def table(head: Row, rows: Sequence[Row]) -> str:
    """A table as plain text, with two spaces between columns.

    On a terminal that is too narrow for it, each row is a block of lines with the names of the columns.
    """
    lines = [head, *([visible_line(cell) for cell in row] for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    most = terminal_width()
    if most is not None and sum(widths) + 2 * (len(widths) - 1) > most:
        names = max(map(len, head))
        return "\n\n".join(
            "\n".join(f"{name.ljust(names)}  {cell}" for name, cell in zip(head, line, strict=True) if cell)
            for line in lines[1:]
        )
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def listed(groups: Sequence[Group]) -> str:
    """A table with a row for each task on each machine."""
    rows: list[Row] = []
    for g in groups:
        best = g.ranked()[:1]
        trials = g.trials.values()
        rows.append((
            g.task, g.target_key, str(len(trials)), str(sum(t.status == "ok" for t in trials)),
            units.seconds(best[0][1].seconds or 0.0) if best else "", date(max(t.created for t in trials)),
        ))  # fmt: skip
    return table(("task", "machine", "records", "valid", "best", "last"), rows)


def best(groups: Sequence[Group]) -> str:
    """A table of the best record of each task on each machine, with the number that `db show` takes."""
    rows: list[Row] = []
    for g in groups:
        for row, t in g.ranked()[:1]:
            made = f"{t.strategy}, seed {t.seed}"
            rows.append((g.task, g.target_key, units.seconds(t.seconds or 0.0), str(row), made, date(t.created)))
    return table(("task", "machine", "time", "record", "search", "date"), rows)


def group_facts(g: Group) -> dict[str, Any]:
    """The JSON object of a group, as `db list --json` and `db best --json` print it."""
    trials = g.trials.values()
    found = g.ranked()[:1]
    return {
        "task": g.task,
        "task_key": g.task_key,
        "target_key": g.target_key,
        "records": len(trials),
        "valid": sum(t.status == "ok" for t in trials),
        "last": max(t.created for t in trials),
        "best": facts(*found[0]) if found else None,
    }


def facts(row: int, t: Trial) -> dict[str, Any]:
    """The JSON object of a record, with all its fields."""
    return {
        "record": row,
        "task": t.task,
        "task_key": t.task_key,
        "target_key": t.target_key,
        "fingerprint": t.fingerprint,
        "status": t.status,
        "seconds": t.seconds,
        "samples": list(t.times),
        "censored": t.censored,
        "cache": t.cache or None,
        "scale": t.scale,
        "message": t.message,
        "max_error": t.max_error if t.max_error is None or t.max_error < float("inf") else "inf",
        "strategy": t.strategy,
        "seed": t.seed,
        "trial": t.trial + 1,
        "phase": t.phase,
        "run": t.run,
        "created": t.created,
        "version": t.version,
        "program_key": t.program_key,
        "modules": dict(t.modules),
        "decisions": msgspec.json.decode(encode_decisions(t.decisions)),
        "trace": t.trace,
    }


def described(row: int, t: Trial, machine: str | None) -> str:
    """A record as text; the schedule at the end can be replayed."""
    took = t.status.replace("_", " ") if t.seconds is None else units.seconds(t.seconds)
    lines = [
        f"record {row}: {t.task}, {took}",
        f"on {machine or t.target_key}",
        f"{t.strategy}, seed {t.seed}, trial {t.trial + 1}{_PHASES[t.phase]}; {date(t.created)}, version {t.version}",
        *_samples(t),
        *([t.message] if t.message else []),
        *(f"made by {name}, version {version[:8]}" for name, version in sorted(t.modules.items())),
    ]
    return "\n".join(f"// {visible_line(line)}" for text in lines for line in text.splitlines()) + f"\n{t.trace}"


_PHASES = {
    "trial": "",
    "again": ", measured again",
    "final": ", in the comparison at the end",
    "context": ", in a model",
}


def _samples(t: Trial) -> list[str]:
    if not t.times:
        return []
    cut = ", cut short" if t.censored else ""
    scaled = f", on a machine that was {t.scale:.2f} times slower" if t.scale != 1.0 else ""
    cache = f", {t.cache} caches" if t.cache else ""
    low, high = units.seconds(min(t.times)), units.seconds(max(t.times))
    return [f"{units.counted(len(t.times), 'sample')} from {low} to {high}{cut}{cache}{scaled}"]


def date(created: float) -> str:
    """The local date and time; the seconds if they are outside the calendar."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(created))
    except (OverflowError, OSError, ValueError):
        return f"{created:g} s"


FAIR, POOR = 0.7, 0.3
"""Shares of the variance that the surrogate explains: below the first one its figures are rough, below the second one they
say nothing."""

REASONS = {
    "settled": f"{{}} of the schedules within {units.share(NEAR)} of the best have it",
    "no matter": "it decides {} of the variance",
}


def importance_facts(study: Study, found: Sequence[Importance], pinned: Sequence[Pin]) -> dict[str, Any]:
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


def importance_text(study: Study, found: Sequence[Importance], pinned: Sequence[Pin], command: Sequence[str]) -> str:
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
        importance_caveat(study.surrogate.explained, study.valid, study.left_out),
    ]
    if pinned:
        rows = [(p.name, shown(p.decision), REASONS[p.why].format(percent(p.share))) for p in pinned]
        out += ["", "these can be pinned:", table(("draw", "value", "why"), rows), "", pinning(pinned, command)]
    return "\n".join(out)


def importance_caveat(share: float, valid: int, left_out: int = 0) -> str:
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
