"""Inlay hints: beside each draw, what the best record of a task decided: `⟵ [8, 4, 2, 16]`."""

from __future__ import annotations

from lsprotocol import types as lsp

from tensorc_dsl import units
from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.records import Records
from tensorc_dsl.trace.model import shown

MOST = 3
"""The number of different values that stand beside one draw."""


def inlay_hints(analysis: Analysis, within: lsp.Range, records: Records) -> list[lsp.InlayHint]:
    """A hint for each draw of the range that a record decides, as the text stands. Values of several tasks, or of several
    blocks of one, are joined by `|`."""
    low, high = analysis.text.offsets(within)
    values: dict[int, list[tuple[str, str, str]]] = {}
    for found, span, draw in records.draws(analysis):
        end = analysis.end(span)
        head = analysis.start(span)
        if span.text.startswith(("maybe", "either")):
            # The name of the draw stands in front of its body.
            end = head + len(span.text.partition("{")[0].rstrip())
        if low <= head <= high and not draw.pinned:
            said = units.seconds(found.tuned.best.seconds or 0.0)
            values.setdefault(end, []).append((shown(draw.decision), str(found.task.name), said))
    return [_hint(analysis, end, found) for end, found in sorted(values.items())]


def _hint(analysis: Analysis, end: int, found: list[tuple[str, str, str]]) -> lsp.InlayHint:
    different = list(dict.fromkeys(value for value, _, _ in found))
    label = " | ".join(different[:MOST]) + (" | …" if len(different) > MOST else "")
    lines = dict.fromkeys(f"- **{value}** in the best record of `{task}` ({time})" for value, task, time in found)
    tooltip = lsp.MarkupContent(lsp.MarkupKind.Markdown, "\n".join(lines))
    return lsp.InlayHint(analysis.text.position(end), f"⟵ {label}", tooltip=tooltip, padding_left=True)
