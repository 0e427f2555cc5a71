"""Selection ranges: what stands around a position, from the word to the file."""

from __future__ import annotations

from lsprotocol import types as lsp

from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.syntax.walk import walk


def selection(analysis: Analysis, positions: list[lsp.Position]) -> list[lsp.SelectionRange]:
    """For each position the ranges around it, each inside of its parent."""
    return [_around(analysis, analysis.text.offset(p)) for p in positions]


def _around(analysis: Analysis, offset: int) -> lsp.SelectionRange:
    ranges = {(0, len(analysis.source.text))}
    for item in analysis.items_at(offset):
        for node in walk(item):
            start, end = analysis.start(node.span), analysis.end(node.span)
            if start <= offset <= end:
                ranges.add((start, end))
    found = analysis.name_at(offset)
    if found is not None:
        ranges.add((found.start, found.end))
    chain: lsp.SelectionRange | None = None
    inside = (0, len(analysis.source.text))
    for start, end in sorted(ranges, key=lambda r: (r[0] - r[1], r[0])):
        # Two neighbours that meet at the offset are not inside of each other.
        if inside[0] <= start and end <= inside[1]:
            chain, inside = lsp.SelectionRange(analysis.text.range(start, end), chain), (start, end)
    assert chain is not None
    return chain
