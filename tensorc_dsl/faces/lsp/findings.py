"""Diagnostics while a document is written: findings, refusals of its tasks, and the repairs that are made without
thought.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import Diagnostic, Severity
from tensorc_dsl.base.source import Span
from tensorc_dsl.check import problems
from tensorc_dsl.faces.api.schedules import refusals
from tensorc_dsl.faces.lsp.analysis import Analysis, Place, Text
from tensorc_dsl.faces.lsp.documents import LARGEST, Document, uri_of
from tensorc_dsl.faces.lsp.records import space_of
from tensorc_dsl.interp.expand import Late
from tensorc_dsl.syntax import tree as t

# Diagnostics: what is wrong with a document, while it is written.


_SEVERITY = {Severity.ERROR: lsp.DiagnosticSeverity.Error, Severity.WARNING: lsp.DiagnosticSeverity.Warning}

_FADED = {p.code for p in (problems.UNUSED_LET, problems.UNUSED_DRAW, problems.UNUSED_PARAMETER)}
"""Of names that nothing reads, which an editor shows in a paler colour."""

SOURCE = "tensorc-dsl"


def diagnostics(analysis: Analysis, document: Document) -> list[lsp.Diagnostic]:
    """The findings about a document, in text order."""
    if len(document.text) > LARGEST:
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
        said = f"the text has more than {LARGEST:,} characters and is not checked here; `tensorc-dsl check` does it"
        return [lsp.Diagnostic(whole, said, lsp.DiagnosticSeverity.Information, source=SOURCE)]
    found = [told(analysis, d, place) for d, place in analysis.findings()]
    return sorted(found, key=lambda d: (d.range.start.line, d.range.start.character))


def told(analysis: Analysis, d: Diagnostic, place: Place | None) -> lsp.Diagnostic:
    """A finding as an editor shows it, with links to the places that its notes name. One in a used file stands at the `use`,
    with a link to its place."""
    text = analysis.text
    related: list[lsp.DiagnosticRelatedInformation] = []
    if place is not None and place.path is None:
        at = text.range(place.start, place.end)
    else:
        at = _use_of(analysis, place)
        if place is not None and place.path is not None:
            there = Text(place.source, text.encoding).range(place.start, place.end)
            where = lsp.Location(uri_of(place.path), there)
            related.append(lsp.DiagnosticRelatedInformation(where, d.message))
    for note in d.notes:
        if note.at is not None and (named := _location(analysis, note.at)) is not None:
            related.append(lsp.DiagnosticRelatedInformation(named, note.words.strip(" :")))
    return lsp.Diagnostic(
        at,
        "\n".join((d.message, *_more(d))),
        _SEVERITY[d.severity],
        d.code,
        source=SOURCE,
        tags=[lsp.DiagnosticTag.Unnecessary] if d.code in _FADED else None,
        related_information=related or None,
        data={"notes": [n.text for n in d.notes if n.kind == "help"]},
    )


def _location(analysis: Analysis, span: Span) -> lsp.Location | None:
    """The place of a span for an editor; None if its file is not known."""
    place = analysis.place(span)
    if place is None:
        return None
    if place.path is None:
        return lsp.Location(analysis.uri, analysis.text.range(place.start, place.end))
    text = Text(place.source, analysis.text.encoding)
    return lsp.Location(uri_of(place.path), text.range(place.start, place.end))


def _more(d: Diagnostic) -> Iterator[str]:
    if d.label and d.label not in d.message:
        yield d.label
    for note in d.notes:
        yield f"{note.kind}: {note.text}"


def _use_of(analysis: Analysis, place: Place | None) -> lsp.Range:
    """The `use` that brings the file of a finding; the first one if another file uses it, and the start without any."""
    uses = [i for i in analysis.items if isinstance(i, t.UseDecl)]
    brings = [u for u in uses if place is not None and place.source in analysis.checked.uses.get(u.path, ())]
    for use in (*brings, *uses):
        return analysis.text.range(analysis.start(use.span), analysis.end(use.span))
    return analysis.text.range(0, 0)


# Quick fixes: the repairs of findings that can be made without thought.


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
    from tensorc_dsl.faces.report.entries import library  # parses all of it, once something is missing

    for file in library():
        if any(i.name == name for i in file.items):
            yield file.path


def _start(analysis: Analysis) -> lsp.Range:
    """Where a further `use` goes: in front of the first one, or of the file's first item."""
    for item in analysis.items:
        if isinstance(item, t.UseDecl):
            return analysis.text.range(*(2 * (analysis.start(item.span),)))
    return analysis.text.range(0, 0)


# Refusals as diagnostics: what a document's tasks are refused when their first schedule is drawn.
#
# The check of a text applies no step, so an illegal pin or a loop that cannot be parallel is found here. An expansion takes
# longer than a check, so a server makes one when its writer pauses; a task is expanded again only if it means something
# else.


SECONDS = 0.5
"""The processor time in which a task is expanded; a server answers nothing meanwhile."""


def untried(analysis: Analysis) -> Iterator[t.TaskDef]:
    """The document's tasks of which it is not known what is refused; none in a text with errors."""
    if any(d.severity is Severity.ERROR for d, _ in analysis.findings()):
        return
    for task in analysis.checked.tasks.values():
        if analysis.is_own(task.span) and not _is_known(analysis, task):
            yield task


def try_task(analysis: Analysis, task: t.TaskDef, seconds: float = SECONDS) -> None:
    """Find out what is refused of a task, if it takes no more processor time than that."""
    space = space_of(analysis, task)
    found: tuple[Diagnostic, ...] | None = ()
    if space is not None:
        until = time.process_time() + seconds
        try:
            found = refusals(space, str(task.name), lambda: time.process_time() > until)
        except Late:
            found = None
    analysis.memory.entry(task).refusals = (_schedule(analysis, task), found)


def try_all(analysis: Analysis, seconds: float) -> None:
    """Find out what is refused of all tasks, in that processor time together."""
    until = time.process_time() + seconds
    for task in untried(analysis):
        try_task(analysis, task, until - time.process_time())


def refusal_diagnostics(analysis: Analysis) -> list[lsp.Diagnostic]:
    """What is known to be refused, each place and reason once, and which tasks take too long to know it; in text order."""
    found: dict[Diagnostic, None] = {}
    late: list[lsp.Diagnostic] = []
    for task in analysis.checked.tasks.values():
        known = analysis.memory.entry(task).refusals if analysis.is_own(task.span) else None
        if known is None or not _is_known(analysis, task):
            continue
        if known[1] is None:
            at = analysis.text.range(analysis.start(task.name.span), analysis.end(task.name.span))
            said = f"a schedule of `{task.name}` takes long and is not tried here; `tensorc-dsl check --expand` does it"
            late.append(lsp.Diagnostic(at, said, lsp.DiagnosticSeverity.Information, source=SOURCE))
        for d in known[1] or ():
            # An editor shows the program at the step on demand.
            notes = tuple(n for n in d.notes if n.kind in ("help", "note"))
            found[replace(d, notes=notes)] = None
    places = ((d, None if d.span is None else analysis.place(d.span)) for d in found)
    every = [*(told(analysis, d, place) for d, place in places), *late]
    return sorted(every, key=lambda d: (d.range.start.line, d.range.start.character))


def _schedule(analysis: Analysis, task: t.TaskDef) -> object:
    """What stands for the meaning of the task's schedule or space: a task without `with` does not mention it."""
    space = space_of(analysis, task)
    return None if space is None else analysis.memory.entries.get(id(space.definition), space.definition)


def _is_known(analysis: Analysis, task: t.TaskDef) -> bool:
    known = analysis.memory.entry(task).refusals
    return known is not None and known[0] is _schedule(analysis, task)
