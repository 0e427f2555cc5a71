"""Inlay hints: beside each draw, what the best record of a task decided: `⟵ [8, 4, 2, 16]`."""

from __future__ import annotations

from collections.abc import Iterable

from lsprotocol import types as lsp

from tensorc_dsl.base import units
from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.records import Decided, Records
from tensorc_dsl.schedule.trace.model import shown

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
