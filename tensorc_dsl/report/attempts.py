"""Formats the outcome of each rule of a space on a task: `show --stage space`."""

from __future__ import annotations

from collections.abc import Iterable

from tensorc_dsl.interp.attempts import Attempt
from tensorc_dsl.trace.draw import Draw
from tensorc_dsl.trace.model import shown


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
