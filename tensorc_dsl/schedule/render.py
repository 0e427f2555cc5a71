"""Renders a refused schedule step as a diagnostic: the reason, the program as it stood, and the steps before."""

from __future__ import annotations

import re

from tensorc_dsl.base.diagnostic import Diagnostic, Note, help_note
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.schedule.refusal import ScheduleRefusal

CONTEXT = 2
"""The number of lines shown above and below a marked line."""

STEPS = 3
"""The number of steps before the refused one that are shown; `sample` prints all of them."""


def refusal_diagnostic(refusal: ScheduleRefusal) -> Diagnostic:
    """The diagnostic of a refusal: the program at that step, with the loops and blocks in question marked."""
    notes = [Note("the program at this point", "\n" + _excerpt(refusal))]
    if refusal.steps or refusal.origin:
        last = refusal.steps[-STEPS:]
        hidden = len(refusal.steps) - len(last)
        lines = [f"… {hidden} step{'s' * (hidden != 1)} before"] if hidden else []
        notes.append(Note("trace", "\n".join([refusal.origin, *lines, *last])))
    if refusal.help:
        notes.append(help_note(refusal.help))
    label = refusal.refusal.label.format(**refusal.facts)
    return Diagnostic(refusal.refusal.code, refusal.message, refusal.span, label, tuple(notes))


def _excerpt(refusal: ScheduleRefusal) -> str:
    lines = format_program(refusal.program).rstrip().split("\n")
    marks = {n: what for n, line in enumerate(lines) if (what := _introduces(line, refusal.focus))}
    near = {n + d for n in marks for d in range(-CONTEXT, CONTEXT + 1)}
    # A program without marked lines, or a short one, is shown completely.
    shown = [n for n in range(len(lines)) if n in near] if marks and len(lines) > 24 else list(range(len(lines)))
    width = max((len(lines[n]) for n in marks), default=0)
    out: list[str] = []
    for before, n in zip([-1, *shown], shown, strict=False):
        if n != before + 1:
            out.append("…")
        out.append(f"{lines[n]:<{width}}        <- {marks[n]}" if n in marks else lines[n])
    if shown and shown[-1] != len(lines) - 1:
        out.append("…")
    return "\n".join(out)


def _introduces(line: str, focus: tuple[str, ...]) -> str:
    """The mark for a line on which a focused thing begins: "this loop", "these loops", "this block", "this buffer"; or ""."""
    words = [re.escape(name) for name in focus]
    loops = [w for w in words if re.search(rf"\bfor\b.*\b{w} in\b", line)]
    if loops:
        return "this loop" if len(loops) == 1 else "these loops"
    for kind in ("block", "buffer"):
        if any(re.match(rf"\s*{kind} {w}\b", line) for w in words):
            return f"this {kind}"
    return ""
