"""The lexer of Pygments, which its users find by the entry point: `tsched` fences of Markdown, Sphinx and Jupyter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from pygments import lexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from tensorc_dsl.syntax.highlight.rules import ESCAPE, STRING_BEGIN, TEXTS, WORDS, Class, Rule

TOKENS: dict[Class, Any] = {
    Class.COMMENT: Comment.Single,
    Class.DOC: String.Doc,
    Class.KEYWORD: Keyword,
    Class.CONSTANT: Keyword.Constant,
    Class.NUMBER: Number,
    Class.STRING: String.Double,
    Class.ESCAPE: String.Escape,
    Class.ANNOTATION: Name.Decorator,
    Class.DEFINITION: Name.Function,
    Class.TYPE: Keyword.Type,
    Class.BUILTIN: Name.Builtin,
    Class.PRIMITIVE: Name.Function.Magic,
    Class.DRAW: Name.Variable.Magic,
    Class.ATTRIBUTE: Name.Attribute,
    Class.NAME: Name,
    Class.OPERATOR: Operator,
    Class.PUNCTUATION: Punctuation,
}


def _pygments(rule: Rule) -> tuple[str, Any]:
    pygments: Any = lexer  # it has few types
    kinds = [Whitespace if c is None else TOKENS[c] for c in rule.classes]
    return rule.pattern, kinds[0] if len(kinds) == 1 else pygments.bygroups(*kinds)


class TschedLexer(lexer.RegexLexer):
    """Any text has tokens; what is no word of the language is an Error."""

    name = "tsched"
    aliases: ClassVar[Sequence[str]] = ("tsched",)
    filenames: ClassVar[Sequence[str]] = ("*.tsched",)
    mimetypes: ClassVar[Sequence[str]] = ("text/x-tsched",)
    flags = re.MULTILINE
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"\s+", Whitespace),
            *map(_pygments, TEXTS),
            (STRING_BEGIN, String.Double, "string"),
            *map(_pygments, WORDS),
        ],
        "string": [
            (ESCAPE, String.Escape),
            (r'[^"\\\n]+|\\', String.Double),
            ('"', String.Double, "#pop"),
            (r"\n", Whitespace, "#pop"),
        ],
    }
