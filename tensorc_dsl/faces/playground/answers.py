"""Answers the page's questions about a text: what is wrong in it, what it becomes, and what can stand in it."""

from __future__ import annotations

import difflib
import gc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from lsprotocol import types as lsp
from markdown_it import MarkdownIt

from tensorc_dsl.backend.protocol import backend_of
from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.faces.api.kernel import compiled, lowered_text, require_generator, viewed
from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.faces.lsp.completion import completion
from tensorc_dsl.faces.lsp.cursor import hover
from tensorc_dsl.faces.lsp.documents import Document, Documents, uri_of
from tensorc_dsl.faces.lsp.findings import diagnostics, quick_fixes, refusal_diagnostics, try_all
from tensorc_dsl.faces.lsp.records import Records
from tensorc_dsl.faces.playground.messages import (
    DESK,
    LOOPS,
    PROGRAM,
    Answer,
    Check,
    Checked,
    Choice,
    Complete,
    Completed,
    Describe,
    Described,
    Edit,
    Finding,
    Fix,
    Offer,
    Open,
    Opened,
    Position,
    Question,
    Range,
    Recorded,
    Refused,
    Show,
    Shown,
    Step,
)
from tensorc_dsl.faces.report.page import by_size
from tensorc_dsl.interp.expand import Stand, Watched
from tensorc_dsl.interp.space import Space, read_decision, task_space
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.schedule.step import ScheduleRefusal, refusal_diagnostic
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
from tensorc_dsl.schedule.trace.trace import Draw, preferring, prior, shown
from tensorc_dsl.tuning.insight import nearest
from tensorc_dsl.tuning.machine.host import host_target

# What is wrong in the page's text, with its repairs, in the page's own words.


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
        for d in (*told, *refusal_diagnostics(analysis))
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


# What a task becomes under some decisions: its program after each step, what each draw can be, and the code.


MOST_VALUES, NEAR = 1_000, 200
"""A draw with more values than the first has a slider over so many, those nearest to the present one; others are typed."""

LONGEST = 400_000
"""Characters of a text that the page shows."""

LONGEST_STEP = 200
"""Characters of a statement that are shown."""


@frozen
class Expanded:
    """A task's schedule under some decisions. `stands` are those at which the program changed."""

    space: Space
    watched: Watched
    stands: tuple[Stand, ...]


def expanded(analysis: Analysis, asked: Show) -> Expanded:
    """The requested expansion. Raises TschedError if the task has no space here, or for decisions that are none."""
    decisions = {name: read_decision(value) for name, value in asked.decisions.items()}
    space = task_space(analysis.checked, asked.task, host_target())
    watched = space.watch(preferring(decisions, prior(np.random.default_rng(asked.seed))))
    stands: list[Stand] = []
    last = watched.start
    for s in watched.stands:
        if s.program is not last:
            stands.append(s)
            last = s.program
    return Expanded(space, watched, tuple(stands))


def told(analysis: Analysis, asked: Show, found: Expanded, records: Records) -> Shown:
    """The answer to a question about an expansion."""
    watched, stands = found.watched, found.stands
    step = len(stands) if asked.step is None else max(0, min(asked.step, len(stands)))
    programs = (watched.start, *(s.program for s in stands))
    problem = _problem(watched)
    changed: tuple[int, ...] = ()
    if asked.stage == PROGRAM:
        text = format_program(programs[step])
        changed = _changed(format_program(programs[step - 1]), text) if step else ()
    else:
        step = len(stands)
        text, why = ("", "") if problem else _code(found, asked.stage)
        problem = problem or why
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n… and {len(text) - LONGEST:,} more characters: `tensorc-dsl show` has them\n"
    backend = backend_of(found.space.target.kind)
    task = analysis.checked.tasks[asked.task]
    tuned = records.tuned(analysis, task)
    best: Mapping[str, Decision] = {} if tuned is None else tuned.best.decisions
    record = (
        Recorded("; ".join(records.about(analysis, task)), {n: shown(d) for n, d in best.items()}) if tuned else None
    )
    return Shown(
        steps=tuple(_step(analysis, s) for s in stands),
        step=step,
        changed=changed,
        draws=tuple(_choice(analysis, span, draw, best) for span, draw in watched.places),
        stages=(
            (PROGRAM, "the program after the step"),
            (LOOPS, "the flat loops that the schedule makes"),
            *(() if backend is None else backend.stages.items()),
        ),
        text=text,
        problem=problem,
        early=watched.failure is not None,
        at=_refused_at(analysis, watched),
        redrawn=(*_redrawn(asked.decisions, [d for _, d in watched.places]), *_left_out(watched)),
        record=record,
    )


def _problem(watched: Watched) -> str:
    """Why the expansion ended early. The page shows the program and the steps, so a refusal need not."""
    if not isinstance(watched.failure, ScheduleRefusal):
        return watched.problem
    whole = refusal_diagnostic(watched.failure)
    return render(replace(whole, notes=tuple(n for n in whole.notes if n.kind in ("help", "note"))))


def _refused_at(analysis: Analysis, watched: Watched) -> Range | None:
    """The place in the page's text of what ended the expansion."""
    match watched.failure:
        case None:
            return None
        case ScheduleRefusal() as refusal:
            span = refusal_diagnostic(refusal).span
        case TschedError(diagnostics=diagnostics):
            span = diagnostics[0].span
    return None if span is None else _own(analysis, span)


def _step(analysis: Analysis, stand: Stand) -> Step:
    written = " ".join(stand.span.text.split())
    text = written if len(written) <= LONGEST_STEP else f"{written[:LONGEST_STEP]} …"
    source = stand.span.source
    at = _own(analysis, stand.span)
    return Step(text, at, "" if at else f"{source.name}:{source.line_column(stand.span.start)[0]}")


def _own(analysis: Analysis, span: Span) -> Range | None:
    """A place in the page's text."""
    if not analysis.is_own(span):
        return None
    return range_of(analysis.text.range(analysis.start(span), analysis.end(span)))


def _choice(analysis: Analysis, span: Span, draw: Draw, record: Mapping[str, Decision]) -> Choice:
    of = draw.distribution
    values = (draw.decision,) if draw.pinned else _values(draw)
    best = record.get(draw.name)
    return Choice(
        draw.name,
        shown(draw.decision),
        tuple(map(shown, values)),
        of.describe(),
        draw.pinned,
        _own(analysis, span),
        len(values) == of.size(),
        shown(best) if best is not None and of.contains(best) else "",
    )


def _values(draw: Draw) -> tuple[Decision, ...]:
    """What the slider of a draw has, in order: all values, or those nearest to the present one."""
    if draw.distribution.size() <= MOST_VALUES:
        return _all(draw.distribution)
    return tuple(sorted(nearest(draw, NEAR), key=by_size))


@lru_cache(maxsize=256)
def _all(of: Distribution) -> tuple[Decision, ...]:
    """All values of a distribution: moves lead from any of them to all."""
    some = Draw("any", of, of.sample(np.random.default_rng(0)))
    return tuple(sorted(nearest(some, of.size()), key=by_size))


def _redrawn(wanted: Mapping[str, str], draws: list[Draw]) -> Iterator[str]:
    """Which draws have other values than the wanted ones, and why."""
    for d in draws:
        value = wanted.get(d.name)
        if value is None or _same(value, d.decision):
            continue
        legal = "the text pins it" if d.pinned else f"it can be {d.distribution.describe()}"
        yield f"{d.name} is {shown(d.decision)} now, since {value} is not legal beside the others: {legal}"


def _left_out(watched: Watched) -> Iterator[str]:
    """Which rules are not part of the schedule, and why."""
    for rule in watched.refused:
        yield f"rule {rule.rule} is refused on {rule.subject or 'the program'} and left out: {rule.refusal.message}"


def _same(value: str, decision: Decision) -> bool:
    return value == shown(decision) or read_decision(value) == decision


def _changed(before: str, after: str) -> tuple[int, ...]:
    """The lines of a text that another one has not, wherever they begin; but for brackets that close."""
    old, new = ([line.strip() for line in text.split("\n")] for text in (before, after))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return tuple(
        line for kind, _, _, start, end in blocks if kind != "equal" for line in range(start, end) if new[line] != "}"
    )


def _code(found: Expanded, stage: str) -> tuple[str, str]:
    """What the last program becomes, or why it cannot be shown."""
    space = found.space
    program = found.stands[-1].program if found.stands else found.watched.start
    try:
        if stage == LOOPS:
            return lowered_text(program, space.target, None), ""
        backend = require_generator(space.target, program.name)
        if stage not in backend.stages:
            return "", f"there is no stage `{stage}` for targets of kind `{space.target.kind}`"
        return viewed(compiled(program, space.target, space.target.cores), stage), ""
    except TschedError as e:
        return "", "\n".join(map(render, e.diagnostics))


# What can stand at a place of the page's text, and what a word of it is: the answers of the language server, for a page.


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
"""A description is of the page's text, too: its HTML is text."""

MIDDLE = 3
"""The order of what no step says anything about."""


def completed(analysis: Analysis, at: Position, records: Records) -> Completed:
    """What can stand at the place."""
    found = completion(analysis, _position(at), snippets=False, records=records)
    return Completed(tuple(map(_offer, found.items)))


def described(analysis: Analysis, at: Position, records: Records) -> Described:
    """What the name at the place is."""
    found = hover(analysis, _position(at), records)
    if found is None or found.range is None:
        return Described("", None)
    return Described(_html(found.contents), range_of(found.range))


def _position(at: Position) -> lsp.Position:
    return lsp.Position(max(0, at.line), max(0, at.character))


def _offer(item: lsp.CompletionItem) -> Offer:
    order = item.sort_text or ""
    kind = "" if item.kind is None else lsp.CompletionItemKind(item.kind).name.lower()
    about = "" if item.documentation is None else _html(item.documentation)
    return Offer(str(item.label), kind, item.detail or "", about, int(order[0]) if order[:1].isdecimal() else MIDDLE)


def _html(text: object) -> str:
    """A description as HTML."""
    return str(_MARKDOWN.render(text.value if isinstance(text, lsp.MarkupContent) else str(text)))


_Key = tuple[str, dict[str, str], int]
"""What an expansion of a text depends on: the task, the decisions and the seed."""


class Desk:
    """Answers the page's questions, about one text after another."""

    def __init__(self, opened: Open) -> None:
        self._documents = Documents(opened.include)
        self._records = Records(None if opened.records is None else Path(opened.records))
        path = Path(opened.path)
        self._uri = uri_of(path)
        # In messages, the text has the name by which its writer knows it.
        self._documents.open[self._uri] = Document(self._uri, path, "")
        self._version = 0
        self._last: tuple[Analysis, _Key, Expanded] | None = None

    def check(self, asked: Check) -> Answer:
        document = self._document(asked.text)
        return checked(self._documents.analysis(document), document)

    def complete(self, asked: Complete) -> Answer:
        return completed(self._documents.analysis(self._document(asked.text)), asked.at, self._records)

    def describe(self, asked: Describe) -> Answer:
        return described(self._documents.analysis(self._document(asked.text)), asked.at, self._records)

    def show(self, asked: Show) -> Answer:
        analysis = self._documents.analysis(self._document(asked.text))
        if asked.task not in analysis.checked.elaborated:
            return Refused(f"there is no task `{asked.task}` whose program can be made")
        key = (asked.task, asked.decisions, asked.seed)
        try:
            if self._last is None or self._last[0] is not analysis or self._last[1] != key:
                self._last = (analysis, key, expanded(analysis, asked))
        except TschedError as e:
            return Refused("\n".join(map(render, e.diagnostics)))
        return told(analysis, asked, self._last[2], self._records)

    def _document(self, text: str) -> Document:
        """The document with that text."""
        document = self._documents.open[self._uri]
        if document.text != text:
            self._version += 1
            document = self._documents.put(self._uri, text, self._version)
        return document


def desk() -> None:
    """Answer until the server is gone."""
    desks: list[Desk] = []

    def answer(request: Open | Question) -> Answer:
        match request:
            case Open():
                desks[:] = [Desk(request)]
                return Opened()
            case Check():
                return desks[0].check(request)
            case Complete():
                return desks[0].complete(request)
            case Describe():
                return desks[0].describe(request)
            case Show():
                return desks[0].show(request)

    gc.set_threshold(100_000, 20, 20)  # trees are many objects and few cycles
    DESK.serve(answer)
