"""The TextMate grammar of VS Code, Sublime and JetBrains, from the patterns that Pygments has too."""

from __future__ import annotations

import json
from typing import Any

from tensorc_dsl.syntax.highlight.rules import ESCAPE, STRING_BEGIN, STRING_END, TEXTS, WORDS, Class, Rule

SCOPES: dict[Class, str] = {
    Class.COMMENT: "comment.line.double-slash",
    Class.DOC: "comment.block.documentation",
    Class.KEYWORD: "keyword.control",
    Class.CONSTANT: "constant.language",
    Class.NUMBER: "constant.numeric",
    Class.STRING: "string.quoted.double",
    Class.ESCAPE: "constant.character.escape",
    Class.ANNOTATION: "entity.other.attribute-name",
    Class.DEFINITION: "entity.name.function",
    Class.TYPE: "support.type",
    Class.BUILTIN: "support.function.builtin",
    Class.PRIMITIVE: "support.function.primitive",
    Class.DRAW: "support.function.draw",
    Class.ATTRIBUTE: "variable.other.property",
    Class.NAME: "variable.other.readwrite",
    Class.OPERATOR: "keyword.operator",
    Class.PUNCTUATION: "punctuation.separator",
}


def scope(cls: Class) -> str:
    return f"{SCOPES[cls]}.tsched"


def _pattern(rule: Rule) -> dict[str, Any]:
    if rule.classes == (rule.classes[0],) and rule.classes[0] is not None:
        return {"name": scope(rule.classes[0]), "match": rule.pattern}
    captures = {str(n): {"name": scope(c)} for n, c in enumerate(rule.classes, 1) if c is not None}
    return {"match": rule.pattern, "captures": captures}


def grammar() -> str:
    """The file of the grammar."""
    string = {
        "name": scope(Class.STRING),
        "begin": STRING_BEGIN,
        "end": STRING_END,
        "patterns": [{"name": scope(Class.ESCAPE), "match": ESCAPE}],
    }
    out = {
        "information_for_contributors": [
            "`make reference` writes this file; tensorc_dsl/syntax/highlight/rules.py has the patterns."
        ],
        "name": "tsched",
        "scopeName": "source.tsched",
        "fileTypes": ["tsched"],
        "patterns": [*map(_pattern, TEXTS), string, *map(_pattern, WORDS)],
    }
    return json.dumps(out, indent=2, ensure_ascii=False) + "\n"
