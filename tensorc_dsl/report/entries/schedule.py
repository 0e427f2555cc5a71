"""Entries of primitives, draws and queries, from their declarations."""

from __future__ import annotations

import re
from collections.abc import Collection

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.report.entries.markdown import code, fence, table
from tensorc_dsl.report.entries.signatures import parameters, type_text
from tensorc_dsl.schedule.primitive import Primitive
from tensorc_dsl.schedule.queries.applicable import asking
from tensorc_dsl.schedule.query import Query
from tensorc_dsl.schedule.refs import BlockRef, BufferRef, IntrinsicRef, LoopRef
from tensorc_dsl.trace.declare import Choices, DrawKind, Items

SUBJECTS: dict[type, tuple[str, str]] = {
    BlockRef: ("Blocks", "b"),
    LoopRef: ("Loops", "l"),
    BufferRef: ("Buffers", "x"),
    IntrinsicRef: ("Instructions", "instruction"),
    Program: ("The program", "p"),
    Target: ("The target", "target"),
}

_CASES = re.compile(r"Cases: (tests/\S+\.md)")


def prose(doc: str) -> str:
    """A docstring as Markdown; a paragraph with an arrow is a rewrite, and is shown in a fence."""
    out: list[str] = []
    for paragraph in doc.split("\n\n"):
        if re.search(r"\s->(\s|$)", paragraph, re.MULTILINE):
            out.append(fence(paragraph.rstrip()))
        else:
            out.append(_CASES.sub(r"Cases: [\1](../../\1)", paragraph))
    return "\n\n".join(out)


def primitive_entry(p: Primitive, shared: Collection[tuple[str, str]] | None = None) -> str:
    """The entry of a primitive. A page of all describes once the queries that try steps, which are left out there, and the
    refusals `shared` by several steps, codes with messages, which are named.
    """
    result = "" if p.result is type(None) else f" -> {type_text(p.result)}"
    asked = "" if shared is not None else "".join(f"\n{query_call(q)} -> bool" for q in asking(p))
    head = f"### `{p.name}`\n\n{fence(f'{p.name}({parameters(p.signature)}){result}{asked}')}"
    declared = {(r.code, r.message) for r in p.refusals}
    own = refusal_table(declared.difference(shared or ()))
    more = ", ".join(map(_error, sorted({c for c, _ in declared.intersection(shared or ())})))
    return "\n\n".join(filter(None, [head, prose(p.doc), own, more and f"Refused as other steps are: {more}."]))


def refusal_table(refusals: Collection[tuple[str, str]]) -> str:
    """The codes with their messages, in order; empty for none."""
    rows = [[_error(c), plain(message)] for c, message in sorted(refusals)]
    return table(["refused with", "because"], rows) if rows else ""


def plain(message: str) -> str:
    """A message with its facts as names: `{loop}` is the loop's name. Computed facts have no name."""
    named = re.sub(r"`?\{([a-z_]+)(?::[^{}]*)?\}`?", r"*\1*", message)
    return re.sub(r"`?\{[^}]*\}+`?", "…", named)


def _error(name: str) -> str:
    return f"[{name}](../errors/{name}.md)"


def draw_entry(d: DrawKind) -> str:
    match d.result:
        case result if result is Choices:
            drawn = "one of the values"
        case result if result is Items:
            drawn = "list"
        case result:
            drawn = type_text(result)
    return f"### `{d.name}`\n\n{fence(f'{d.name}({parameters(d.signature)}) ~> {drawn}')}\n\n{prose(d.doc)}"


def query_call(q: Query) -> str:
    """How a query is asked: `l.tiles(size: int)`."""
    return f"{SUBJECTS[q.subject][1]}.{q.name}" + (f"({parameters(q.signature)})" if q.is_method else "")


def query_row(q: Query) -> list[str]:
    """The row of a query: its call, the kind of the answer, and its description."""
    return [code(query_call(q)), type_text(q.result), " ".join(q.doc.split())]
