"""Texts of the language as HTML, in the colours of the notebook around."""

from __future__ import annotations

from tensorc_dsl.highlight.lexer import TOKENS, TschedLexer
from tensorc_dsl.highlight.rules import Class
from tensorc_dsl.report.page.markup import Markup, element, joined, lines

# Jupyter names the colours of its theme; elsewhere these are seen on light and on dark.
_KEYWORD = "var(--jp-mirror-editor-keyword-color, #b0408a)"
_DEFINITION = "var(--jp-mirror-editor-def-color, #7a6bd6)"
_BUILTIN = "var(--jp-mirror-editor-builtin-color, #2f80c0)"
_NUMBER = "var(--jp-mirror-editor-number-color, #2e8b57)"
_STRING = "var(--jp-mirror-editor-string-color, #4a7fb5)"
_COMMENT = "var(--jp-mirror-editor-comment-color, #7f8790)"
_DRAW = "var(--jp-mirror-editor-attribute-color, #c4691c)"

COLOURS: dict[Class, str] = {
    Class.COMMENT: _COMMENT,
    Class.DOC: _COMMENT,
    Class.KEYWORD: _KEYWORD,
    Class.CONSTANT: _KEYWORD,
    Class.NUMBER: _NUMBER,
    Class.STRING: _STRING,
    Class.ESCAPE: _NUMBER,
    Class.ANNOTATION: _STRING,
    Class.DEFINITION: _DEFINITION,
    Class.TYPE: _BUILTIN,
    Class.BUILTIN: _BUILTIN,
    Class.PRIMITIVE: _BUILTIN,
    Class.DRAW: _DRAW,
}
"""Classes that have a colour; other words have that of the text around."""

_CLASSES = {kind: cls for cls, kind in TOKENS.items()}


MONOSPACE = "margin: 0; line-height: 1.35; overflow-x: auto; font-family: var(--jp-code-font-family, monospace)"
"""The style of a text below a cell. Pages that nbconvert makes have no font of their own for it."""


def coloured(text: str) -> Markup:
    """A text of the language, with its line ends."""
    parts: list[Markup] = []
    for _, kind, word in TschedLexer().get_tokens_unprocessed(text):
        colour = COLOURS.get(_CLASSES.get(kind, Class.NAME))
        parts.append(lines(word) if colour is None else element("span", lines(word), style=f"color: {colour}"))
    return element("pre", joined(parts), style=MONOSPACE)
