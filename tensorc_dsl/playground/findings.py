"""What is wrong in the page's text, with its repairs, in the page's own words."""

from __future__ import annotations

from lsprotocol import types as lsp

from tensorc_dsl.lsp.analysis import Analysis
from tensorc_dsl.lsp.documents import Document
from tensorc_dsl.lsp.features.diagnostics import diagnostics
from tensorc_dsl.lsp.features.quick_fixes import quick_fixes
from tensorc_dsl.lsp.features.refusals import refused, try_all
from tensorc_dsl.playground.messages import Checked, Edit, Finding, Fix, Position, Range

SECONDS = 2.0
"""The processor time in which the first schedules of a text are drawn, to find what is refused."""

_GRADE = {lsp.DiagnosticSeverity.Error: "error", lsp.DiagnosticSeverity.Warning: "warning"}


def checked(analysis: Analysis, document: Document) -> Checked:
    """The findings in the order of the text, and the tasks that have a program."""
    whole = analysis.text.range(0, len(analysis.source.text))
    asked = lsp.CodeActionParams(lsp.TextDocumentIdentifier(analysis.uri), whole, lsp.CodeActionContext([]))
    fixes = [(d, f) for a in quick_fixes(analysis, asked) if (f := _fix(a, analysis.uri)) for d in a.diagnostics or ()]
    told = diagnostics(analysis, document)
    try_all(analysis, SECONDS)
    found = [
        Finding(
            range_of(d.range),
            _GRADE.get(d.severity or lsp.DiagnosticSeverity.Error, "info"),
            str(d.code or ""),
            d.message,
            tuple(fix for about, fix in fixes if about == d),
        )
        for d in (*told, *refused(analysis))
    ]
    own = [x.name for x in analysis.checked.tasks.values() if analysis.is_own(x.span)]
    tasks = tuple(str(n) for n in own if str(n) in analysis.checked.elaborated)
    return Checked(tuple(found), tasks, any(d.severity is lsp.DiagnosticSeverity.Error for d in told))


def range_of(at: lsp.Range) -> Range:
    return Range(Position(at.start.line, at.start.character), Position(at.end.line, at.end.character))


def _fix(action: lsp.CodeAction, uri: str) -> Fix | None:
    """The repair; None for one that changes nothing in the text."""
    edits = ((action.edit.changes if action.edit is not None else None) or {}).get(uri, ())
    return Fix(action.title, tuple(Edit(range_of(e.range), e.new_text) for e in edits)) if edits else None
