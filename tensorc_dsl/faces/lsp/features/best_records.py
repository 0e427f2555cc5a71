"""What the best record of a task says: code lenses above it, inlay hints beside its draws, and pins of their decisions."""

from __future__ import annotations

from collections.abc import Iterable

from lsprotocol import types as lsp

from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.faces.lsp.records import Decided, Records, space_of
from tensorc_dsl.schedule.trace.trace import shown
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.tuning.machine.roof import GLANCE, Roof, roof_of

# Code lenses above each task: tune it, run it, show its program; and what its best record says.


TUNE, RUN, SHOW = "tensorc-dsl.tune", "tensorc-dsl.run", "tensorc-dsl.show"


def code_lenses(analysis: Analysis) -> list[lsp.CodeLens]:
    """The lenses of all tasks; `resolve` fills in what the records say."""
    found: list[lsp.CodeLens] = []
    for task in analysis.items:
        if not isinstance(task, t.TaskDef):
            continue
        at = analysis.text.range(analysis.start(task.name.span), analysis.end(task.name.span))
        name = str(task.name)
        for title, command in (("tune", TUNE), ("run", RUN), ("show program", SHOW)):
            found.append(lsp.CodeLens(at, lsp.Command(title, command, arguments=[analysis.uri, name])))
        found.append(lsp.CodeLens(at, data={"uri": analysis.uri, "task": name}))
    return found


def best_of(analysis: Analysis, name: str, records: Records, roofs: dict[str, Roof | None]) -> str:
    """The title of the last lens of a task: its best time, and the share of what this machine can do, or that there is none.

    The roof of a task is measured once; `roofs` has those that are known.
    """
    task = analysis.checked.tasks.get(name)
    tuned = None if task is None else records.tuned(analysis, task)
    if task is None or tuned is None or tuned.best.seconds is None:
        return "not tuned on this machine"
    seconds = tuned.best.seconds
    if tuned.key not in roofs:
        roofs[tuned.key] = _roof(analysis, task, tuned.threads)
    roof = roofs[tuned.key]
    share = None if roof is None else roof.share(seconds)
    of = "" if share is None or roof is None else f", {units.share(share)} of {roof.name}"
    return f"best {units.seconds(seconds)}{of}, {units.counted(tuned.threads, 'thread')}"


def _roof(analysis: Analysis, task: t.TaskDef, threads: int) -> Roof | None:
    space = space_of(analysis, task, threads)
    if space is None:
        return None
    try:
        return roof_of(space.program, space.target, threads, GLANCE)
    except TschedError:
        return None  # no code can be made for the target


# Inlay hints: beside each draw, what the best record of a task decided: `⟵ [8, 4, 2, 16]`.


MOST = 3
"""The number of different values that stand beside one draw."""


def inlay_hints(
    analysis: Analysis, within: lsp.Range, records: Records, users: Iterable[Analysis]
) -> list[lsp.InlayHint]:
    """A hint for each draw of the range that a record decides, as the text stands. Values of several tasks, or of several
    blocks of one, are joined by `|`; a single one is pinned when the hint is taken into the text."""
    low, high = analysis.text.offsets(within)
    values: dict[int, list[Decided]] = {}
    for found in records.draws(analysis, users):
        end = found.end
        if found.text.startswith(("maybe", "either")):
            # The name of the draw stands in front of its body.
            end = found.start + len(found.text.partition("{")[0].rstrip())
        if low <= found.start <= high and not found.draw.pinned:
            values.setdefault(end, []).append(found)
    return [_hint(analysis, end, found) for end, found in sorted(values.items())]


def _hint(analysis: Analysis, end: int, found: list[Decided]) -> lsp.InlayHint:
    different = list(dict.fromkeys(shown(f.draw.decision) for f in found))
    label = " | ".join(different[:MOST]) + (" | …" if len(different) > MOST else "")
    lines = dict.fromkeys(
        f"- **{shown(f.draw.decision)}** in the best record of `{f.replayed.task.name}` "
        f"({units.seconds(f.replayed.tuned.best.seconds or 0.0)})"
        for f in found
    )
    tooltip = lsp.MarkupContent(lsp.MarkupKind.Markdown, "\n".join(lines))
    at, pin = analysis.text.position(end), found[0].pin
    edits = [lsp.TextEdit(lsp.Range(at, at), pin)] if pin and len(different) == 1 else None
    return lsp.InlayHint(at, f"⟵ {label}", text_edits=edits, tooltip=tooltip, padding_left=True)


# Pins: a draw gets the value that the best record of a task decided.


KIND = lsp.CodeActionKind.RefactorRewrite


def pins(analysis: Analysis, within: lsp.Range, records: Records, users: Iterable[Analysis]) -> list[lsp.CodeAction]:
    """An action for each value that the draws of a range have in best records."""
    low, high = analysis.text.offsets(within)
    actions: dict[tuple[int, str], lsp.CodeAction] = {}
    for found in records.draws(analysis, users):
        if not found.pin or found.end < low or found.start > high:
            continue
        at = analysis.text.position(found.end)
        edit = lsp.WorkspaceEdit(changes={analysis.uri: [lsp.TextEdit(lsp.Range(at, at), found.pin)]})
        value, task = shown(found.draw.decision), found.replayed.task.name
        title = f"Pin `{found.draw.name}` to {value}, as in the best record of `{task}`"
        actions.setdefault((found.end, found.pin), lsp.CodeAction(title, KIND, edit=edit))
    return list(actions.values())
