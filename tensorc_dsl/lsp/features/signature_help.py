"""Signature help: the parameters of the call that is being written."""

from __future__ import annotations

from lsprotocol import types as lsp

from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.callable import Callee, callee
from tensorc_dsl.lsp.cursor import Call, cursor
from tensorc_dsl.lsp.scope import around


def signature_help(analysis: Analysis, position: lsp.Position) -> lsp.SignatureHelp | None:
    """The call around the position, and which of its parameters is being written; None outside of calls."""
    offset = analysis.text.offset(position)
    piece = analysis.piece_at(offset)
    if piece is None:
        return None
    at = cursor(piece.part.text, offset - piece.start)
    call = None if at.silent else at.call
    local = None if call is None else around(analysis, piece, at, offset - piece.start).names.get(call.name)
    target = None if call is None else callee(analysis, call, local)
    if call is None or target is None:
        return None
    label, parameters = f"{target.name}(", list[lsp.ParameterInformation]()
    for n, p in enumerate(target.parameters):
        label += ", " if n else ""
        start = len(label)
        label += p.text
        # Labels are ASCII but for the ellipsis, of which each encoding that editors count in has one unit or more.
        parameters.append(
            lsp.ParameterInformation(p.text if analysis.text.encoding != "utf-16" else (start, len(label)))
        )
    doc = lsp.MarkupContent(lsp.MarkupKind.Markdown, target.doc) if target.doc else None
    active = _active(target, call)
    signature = lsp.SignatureInformation(f"{label})", doc, parameters, active)
    return lsp.SignatureHelp([signature], 0, active)


def _active(target: Callee, call: Call) -> int | None:
    if call.keyword:
        return next((n for n, p in enumerate(target.parameters) if p.name == call.keyword), None)
    for n, p in enumerate(target.parameters):
        if p.position == call.given or (p.many and p.position is not None and p.position <= call.given):
            return n
    return None
