"""Hover and signature help: what a name is, and the parameters of the call that is being written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lsprotocol import types as lsp

from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import ANY, show
from tensorc_dsl.check.positions import Entry, Files, Written
from tensorc_dsl.faces.lsp.analysis import Analysis, Found
from tensorc_dsl.faces.lsp.cursor import Call, Callee, around, callee, cursor
from tensorc_dsl.faces.lsp.meaning import Meaning, kind_of, meaning
from tensorc_dsl.faces.lsp.records import Records
from tensorc_dsl.faces.report.entries import entries, head
from tensorc_dsl.ir.print import format_buffer
from tensorc_dsl.syntax import tree as t

# Hover: what a name is, with its type and its description.


MOST_TASKS = 4
"""The number of tasks whose shapes are shown."""


def hover(
    analysis: Analysis, position: lsp.Position, records: Records, users: Iterable[Analysis] = ()
) -> lsp.Hover | None:
    """What the name at a position is; None where nothing is known."""
    found = analysis.name_at(analysis.text.offset(position))
    if found is None:
        return None
    text = "\n\n".join(_text(analysis, found, records, users))
    if not text:
        return None
    markup = lsp.MarkupContent(lsp.MarkupKind.Markdown, text)
    return lsp.Hover(markup, analysis.text.range(found.start, found.end))


def _head(item: t.NamedItem) -> str:
    match item:
        case t.SpaceDef(name=name, target=target):
            return f"space {name} for {target}"
        case t.ScheduleDef(name=name, compute=compute):
            return f"schedule {name} for {compute}"
        case _:
            return head(item)


def fenced(text: str) -> str:
    return f"```tsched\n{text}\n```"


def _text(analysis: Analysis, found: Found, records: Records, users: Iterable[Analysis]) -> Iterator[str]:
    match found.definition:
        case Entry() as entry:
            yield word(entry)
        case Files(sources=sources):
            yield "\n".join(f"- `{s.name}`" for s in sources)
        case Written() as written:
            known = meaning(analysis, written)
            if known is not None:
                yield from _written(analysis, found, known, records, users)


def word(entry: Entry) -> str:
    """What a word of the language is, as Markdown."""
    owner, _, own = entry.name.rpartition(".")
    match entry.kind:
        case "primitive" | "draw" | "function" | "query" | "method" | "reducer":
            return "\n\n---\n\n".join(entries(entry.name)) or entry.doc
        case "parameter":
            return "\n\n".join((f"parameter `{own}` of `{owner}`", *entries(owner)[:1]))
        case "given":
            return f"`{entry.name}`: {show(v.GIVEN[entry.name])}, which every body has"
        case "fact":
            return f"`{entry.name}`, a fact of a target"
        case kind:
            return f"{kind} `{entry.name}`"


def _written(
    analysis: Analysis, found: Found, known: Meaning, records: Records, users: Iterable[Analysis]
) -> Iterator[str]:
    item, node = known.item, known.node
    match node:
        case t.TensorParam() | t.Stage():
            yield fenced(node.span.text.partition("\n")[0].rstrip())
            yield from _shapes(analysis, item, str(node.name))
        case t.Param():
            yield fenced(node.span.text)
            yield f"a parameter of `{item.name}`"
        case t.DrawStmt():
            yield fenced(node.span.text)
            yield from _kind(analysis, found)
            yield from records.told(analysis, node, users)
        case t.Maybe() | t.Either() | t.Branch():
            yield fenced(node.span.text.partition("\n")[0].rstrip())
            if not isinstance(node, t.Branch):
                yield from records.told(analysis, node, users)
        case t.Let() | t.ForList():
            yield fenced(node.span.text.partition("\n")[0].rstrip())
            yield from _kind(analysis, found)
        case None:
            yield f"`{found.reference.name}` of `{item.name}`"
        case _:
            yield fenced(_head(node))
            if node.doc:
                yield node.doc
            if isinstance(node, t.TaskDef):
                yield from records.about(analysis, node)


def _kind(analysis: Analysis, found: Found) -> Iterator[str]:
    span = found.reference.span
    kind = kind_of(analysis, analysis.item_at(found.start), span)
    if kind is not None and kind != ANY:
        yield f"`{found.reference.name}`: {show(kind)}"


def _shapes(analysis: Analysis, item: t.NamedItem, name: str) -> Iterator[str]:
    """The types that a tensor has in the tasks of its compute."""
    lines: list[str] = []
    for task in analysis.checked.tasks.values():
        program = analysis.checked.elaborated.get(str(task.name))
        if program is None or task.compute != item.name or not isinstance(item, t.ComputeDef):
            continue
        buffers = {b.name: b for b in (*program.params, *program.buffers)}
        if name in buffers:
            lines.append(f"- in `{task.name}`: `{format_buffer(buffers[name])}`")
    if lines:
        more = [f"- and {len(lines) - MOST_TASKS} more"] if len(lines) > MOST_TASKS else []
        yield "\n".join([*lines[:MOST_TASKS], *more])


# Signature help: the parameters of the call that is being written.


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
