"""The page and the files that it loads, all of them from the server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.report.page import Markup, element, embedded
from tensorc_dsl.syntax.highlight.rules import ESCAPE, STRING_BEGIN, TEXTS, WORDS, Rule

_HERE = Path(__file__).parent
_SCRIPT = "text/javascript; charset=utf-8"


def _read(kind: str, name: str) -> tuple[str, bytes]:
    return kind, (_HERE / name).read_bytes()


FILES: dict[str, Callable[[], tuple[str, bytes]]] = {
    **{name: partial(_read, _SCRIPT, name) for name in ("codemirror.js", "editor.js", "page.js")},
    "page.css": partial(_read, "text/css; charset=utf-8", "page.css"),
    "codemirror.LICENSES.txt": partial(_read, "text/plain; charset=utf-8", "codemirror.LICENSES.txt"),
}
"""The type and the content of each file by its name."""


def first() -> Source:
    """The text of a page that is opened without a file."""
    return Source("playground.tsched", (_HERE / "first.tsched").read_text(encoding="utf-8"))


def page(source: Source, nonce: str) -> bytes:
    """The page as HTML. Of styles that are not in its file, those with the nonce are allowed: the editor's."""
    data = {"name": source.name, "text": source.text, "nonce": nonce, "highlight": _highlighter()}
    body = Markup((_HERE / "body.html").read_text(encoding="utf-8"))
    return (
        "<!doctype html>\n"
        + element(
            "html",
            element(
                "head",
                Markup('<meta charset="utf-8">'),
                Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
                Markup('<meta name="color-scheme" content="light dark">'),
                Markup('<link rel="icon" href="data:,">'),
                element("title", f"{Path(source.name).name}: playground of tensorc-dsl"),
                Markup('<link rel="stylesheet" href="page.css">'),
            ),
            element(
                "body",
                body,
                element("script", embedded(data), type="application/json", id="data"),
                Markup('<script type="module" src="page.js"></script>'),
            ),
            lang="en",
        )
    ).encode()


def _highlighter() -> dict[str, Any]:
    """The patterns of words, which JavaScript reads as Python does."""

    def rule(r: Rule) -> list[Any]:
        return [r.pattern, [None if c is None else c.value for c in r.classes]]

    return {
        "texts": [rule(r) for r in TEXTS],
        "string": STRING_BEGIN,
        "escape": ESCAPE,
        "words": [rule(r) for r in WORDS],
    }
