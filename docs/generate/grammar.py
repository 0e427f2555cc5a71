"""The grammar file as a page: its comments are the prose, its rules stand in fences."""

from __future__ import annotations

import re

from tensorc_dsl.base.resources import grammar_text
from tensorc_dsl.faces.report.entries import markdown_fence

_TITLE = re.compile(r"^// --- (.+?) -+$", re.MULTILINE)
_INLINE = re.compile(r"^(?P<code>.+?[})]): (?P<text>[A-Za-z].*)$", re.DOTALL)


def syntax() -> str:
    intro, *rest = _TITLE.split(grammar_text())
    out = [_section(intro)]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        out += [f"## {title}", _section(body)]
    return "\n\n".join(out)


def _section(text: str) -> str:
    """Paragraphs of comments as prose or examples, everything else as rules."""
    out: list[str] = []
    rules: list[str] = []

    def flush() -> None:
        if rules:
            out.append(markdown_fence("\n\n".join(rules)))
            rules.clear()

    for chunk in re.split(r"\n{2,}", text.strip("\n")):
        lines = chunk.split("\n")
        comments = 0
        while comments < len(lines) and lines[comments].startswith("//"):
            comments += 1
        paragraph = "\n".join(line[3:] for line in lines[:comments])
        if paragraph.strip():
            flush()
            out += [_paragraph(p) for p in re.split(r"\n\n+", paragraph) if p.strip()]
        if comments < len(lines):
            rules.append("\n".join(lines[comments:]))
    flush()
    return "\n\n".join(out)


def _paragraph(text: str) -> str:
    """An example begins as an item does, with a small letter; prose does not."""
    if not re.match(r"[a-z]", text):
        # A list ends where its indentation does.
        return re.sub(r"^(    .*|  \* .*)\n(?=\S)", r"\1\n\n", text, flags=re.MULTILINE)
    if m := _INLINE.match(text):
        return f"`{m['code']}`: {m['text']}"
    return markdown_fence(text)
