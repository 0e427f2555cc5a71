"""Pins: a draw gets the value that the best record of a task decided."""

from __future__ import annotations

from collections.abc import Iterable

from lsprotocol import types as lsp

from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.records import Records
from tensorc_dsl.schedule.trace.model import shown

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
