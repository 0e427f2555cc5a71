"""Folding: the bodies of items and blocks, lists over several lines, comments, and runs of `use`."""

from __future__ import annotations

from lsprotocol import types as lsp

from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.parts import Piece


def folding(analysis: Analysis) -> list[lsp.FoldingRange]:
    """What can be folded, of a file that does not parse too. The line of the closing bracket stays."""
    found: list[lsp.FoldingRange] = []
    for piece in analysis.pieces:
        found += _of(piece)
    uses = [n for n, line in enumerate(analysis.source.text.split("\n")) if line.startswith("use ")]
    if uses and uses[-1] > uses[0]:
        found.append(lsp.FoldingRange(uses[0], uses[-1], kind=lsp.FoldingRangeKind.Imports))
    return found


def _of(piece: Piece) -> list[lsp.FoldingRange]:
    found: list[lsp.FoldingRange] = []
    open_: list[int] = []
    comments: list[int] = []

    def end_comments() -> None:
        if len(comments) > 1:
            found.append(lsp.FoldingRange(comments[0], comments[-1], kind=lsp.FoldingRangeKind.Comment))
        comments.clear()

    line = piece.part.above
    alone = True
    for kind in piece.words.kinds:
        if kind == "NEWLINE":
            line, alone = line + 1, True
            continue
        if kind == "COMMENT" and alone:
            if comments and comments[-1] != line - 1:
                end_comments()
            comments.append(line)
        else:
            end_comments()
        alone = False
        if kind in ("LBRACE", "LPAR", "LSQB"):
            open_.append(line)
        elif kind in ("RBRACE", "RPAR", "RSQB") and open_:
            start = open_.pop()
            if line - 1 > start:
                found.append(lsp.FoldingRange(start, line - 1))
    end_comments()
    return found
