"""Quick fixes: the repairs of findings that can be made without thought."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.check import problems
from tensorc_dsl.lsp.analysis import Analysis, Place
from tensorc_dsl.lsp.features.diagnostics import told
from tensorc_dsl.syntax import tree as t

_MEANT = re.compile(r"did you mean `([^`]+)`\?")
_ONLY = re.compile(r"^there is only `([^`]+)`")
_SIGN = re.compile(r"^write `(?P<right>[^`]+)`$|^names stand without quotes$|^comments begin with `(?P<comment>//)`$")

_UNUSED = {p.code for p in (problems.UNUSED_LET, problems.UNUSED_PARAMETER)}

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def quick_fixes(analysis: Analysis, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """The repairs of what is found in a range of the document."""
    start, end = analysis.text.offsets(params.range)
    actions: list[lsp.CodeAction] = []
    for d, place in analysis.findings():
        if place is None or place.path is not None or place.end < start or place.start > end:
            continue
        for n, (title, edits) in enumerate(_repairs(analysis, d, place)):
            change = lsp.WorkspaceEdit(changes={analysis.uri: edits})
            actions.append(
                lsp.CodeAction(
                    title, lsp.CodeActionKind.QuickFix, [told(analysis, d, place)], is_preferred=n == 0, edit=change
                )
            )
    return actions


def _repairs(analysis: Analysis, d: Diagnostic, place: Place) -> Iterator[tuple[str, list[lsp.TextEdit]]]:
    """Each repair with its title."""
    written = analysis.source.text[place.start : place.end]

    def instead(new: str, start: int = place.start, end: int = place.end) -> list[lsp.TextEdit]:
        return [lsp.TextEdit(analysis.text.range(start, end), new)]

    for note in d.notes:
        if note.kind != "help":
            continue
        if found := _MEANT.search(note.text) or _ONLY.match(note.text):
            # A name behind a point is the end of what is underlined.
            begin = place.end - len(written.rpartition(".")[2]) if "." in written else place.start
            if _IDENTIFIER.fullmatch(analysis.source.text[begin : place.end]):
                yield f"Change to `{found[1]}`", instead(found[1], begin)
        elif found := _SIGN.match(note.text):
            right = found["right"] or found["comment"] or ""
            yield (f"Write `{right}`" if right else "Remove it"), instead(right)
    if d.code in _UNUSED and _IDENTIFIER.fullmatch(written):
        yield f"Call it `_{written}`", instead(f"_{written}")
    if d.code == problems.UNUSED_LET.code and (edit := _without_name(analysis, place)) is not None:
        yield "Keep the call alone", [edit]
    if d.code in (problems.UNKNOWN_CALL.code, problems.UNKNOWN_COMPUTE.code, problems.UNKNOWN_RULE.code):
        name = written.partition("(")[0]
        for path in _library(name):
            yield f"`use {path}.{{{name}}}`", [lsp.TextEdit(_start(analysis), f"use {path}.{{{name}}}\n")]


def _without_name(analysis: Analysis, place: Place) -> lsp.TextEdit | None:
    """The edit that leaves `let x = ` out in front of a call."""
    before = analysis.source.text[: place.start].rstrip()
    behind = re.compile(r"\s*=\s*(?=[A-Za-z_]\w*\()").match(analysis.source.text, place.end)
    if not before.endswith("let") or behind is None:
        return None
    return lsp.TextEdit(analysis.text.range(len(before) - len("let"), behind.end()), "")


def _library(name: str) -> Iterator[str]:
    """The paths of the files of the library that have an item of that name."""
    from tensorc_dsl.report.entries import library  # parses all of it, once something is missing

    for file in library():
        if any(i.name == name for i in file.items):
            yield file.path


def _start(analysis: Analysis) -> lsp.Range:
    """Where a further `use` goes: in front of the first one, or of the file's first item."""
    for item in analysis.items:
        if isinstance(item, t.UseDecl):
            return analysis.text.range(*(2 * (analysis.start(item.span),)))
    return analysis.text.range(0, 0)
