"""Primitives, draws and queries, from their declarations."""

from __future__ import annotations

import re
from textwrap import fill

from docs.generate.pages import code, fence, table
from docs.generate.signatures import parameters, type_text
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, LoopRef, Primitive
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.trace.declare import Choices, DrawKind, Items
from tensorc_dsl.trace.draws import DRAWS

SUBJECTS: dict[type, tuple[str, str]] = {
    BlockRef: ("Blocks", "b"),
    LoopRef: ("Loops", "l"),
    BufferRef: ("Buffers", "x"),
    Program: ("The program", "p"),
    Target: ("The target", "target"),
}

_CASES = re.compile(r"Cases: (tests/\S+\.md)")


def prose(doc: str) -> str:
    """A docstring as Markdown: a paragraph with an arrow is a rewrite, shown as it is."""
    out: list[str] = []
    for paragraph in doc.split("\n\n"):
        if re.search(r"\s->(\s|$)", paragraph, re.MULTILINE):
            out.append(fence(paragraph.rstrip()))
        else:
            out.append(_CASES.sub(r"Cases: [\1](../../\1)", paragraph))
    return "\n\n".join(out)


def _primitive(p: Primitive) -> str:
    result = "" if p.result is type(None) else f" -> {type_text(p.result)}"
    head = f"### `{p.name}`\n\n{fence(f'{p.name}({parameters(p.signature)}){result}')}"
    declared = sorted({(r.code, r.message) for r in p.refusals})
    refusals = table(["refused with", "because"], [[_error(c), plain(message)] for c, message in declared])
    return f"{head}\n\n{prose(p.doc)}\n\n{refusals}"


def plain(message: str) -> str:
    """A message with its facts shown as names: `{loop}` is the loop's name. A fact that is computed has none."""
    named = re.sub(r"`?\{([a-z_]+)\}`?", r"*\1*", message)
    return re.sub(r"`?\{[^}]*\}+`?", "…", named)


def _error(name: str) -> str:
    return f"[{name}](errors.md#{name.lower()})"


def primitives() -> str:
    return "\n\n".join(_primitive(p) for _, p in sorted(PRIMITIVES.items()))


def primitive_names() -> str:
    return fill(" ".join(code(name) for name in sorted(PRIMITIVES)), 118)


def _draw(d: DrawKind) -> str:
    match d.result:
        case result if result is Choices:
            drawn = "one of the values"
        case result if result is Items:
            drawn = "list"
        case result:
            drawn = type_text(result)
    return f"### `{d.name}`\n\n{fence(f'{d.name}({parameters(d.signature)}) ~> {drawn}')}\n\n{prose(d.doc)}"


def draws() -> str:
    return "\n\n".join(_draw(d) for _, d in sorted(DRAWS.items()))


def queries() -> str:
    out: list[str] = []
    for subject, (title, letter) in SUBJECTS.items():
        rows: list[list[str]] = []
        for q in QUERIES[subject].values():
            call = f"({parameters(q.signature)})" if q.is_method else ""
            rows.append([code(f"{letter}.{q.name}{call}"), type_text(q.result), " ".join(q.doc.split())])
        out.append(f"### {title}\n\n{table(['query', 'is', 'which says'], rows)}")
    assert set(SUBJECTS) == set(QUERIES), "a kind of thing that can be asked has no chapter"
    return "\n\n".join(out)
