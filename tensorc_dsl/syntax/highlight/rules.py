"""What a word is, by its letters and those around it: an ordered list of patterns, in the syntax that Python's `re` and the
Oniguruma of TextMate grammars share.

`read` of the syntax knows exactly; these patterns come close without it, line by line. They fail where a name that is
also a word of the grammar stands as that word does (`sum[i]` of a program's buffer `sum`), and where a word of the grammar is
the last of its line.
"""

from __future__ import annotations

from enum import Enum

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.syntax.highlight import words as w


class Class(Enum):
    """What a reader sees a word as. The text is its name in the tests of all editors."""

    COMMENT = "comment"
    DOC = "doc"
    KEYWORD = "keyword"
    CONSTANT = "constant"
    NUMBER = "number"
    STRING = "string"
    ESCAPE = "escape"
    ANNOTATION = "annotation"
    DEFINITION = "definition"
    TYPE = "type"
    BUILTIN = "builtin"
    PRIMITIVE = "primitive"
    DRAW = "draw"
    ATTRIBUTE = "attribute"
    NAME = "name"
    OPERATOR = "operator"
    PUNCTUATION = "punctuation"


@frozen
class Rule:
    """A pattern, with the class of each of its groups; None is a blank between two of them."""

    pattern: str
    classes: tuple[Class | None, ...]


def one_of(names: tuple[str, ...]) -> str:
    """Any of the names, as a whole word."""
    return rf"\b(?:{'|'.join(names)})\b"


NAME = "[A-Za-z_][A-Za-z0-9_]*"
_NOT_RESERVED = rf"(?!{one_of(w.RESERVED)})"
_BEGINS_VALUE = frozenset(("not", "for"))
_NO_VALUE = rf"(?!{one_of(tuple(x for x in w.RESERVED if x not in _BEGINS_VALUE))})"
_SUBSCRIPT = r"\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\]"

STRING_BEGIN, STRING_END = '"', r'"|$'
ESCAPE = r'\\(?:["\\ntr]|u\{[0-9A-Fa-f]+\})'


def _one(cls: Class, pattern: str) -> Rule:
    return Rule(f"({pattern})", (cls,))


TEXTS: tuple[Rule, ...] = (
    _one(Class.DOC, r"///(?!/)[^\n]*"),
    _one(Class.COMMENT, r"//[^\n]*"),
    _one(Class.ANNOTATION, f'"(?:{"|".join(k.replace(".", r"[.]") for k in w.ANNOTATIONS)})"'),
)
"""Comments, and the strings that are known keys of annotations. Other strings begin and end by the patterns above."""

WORDS: tuple[Rule, ...] = (
    _one(Class.NUMBER, r"[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+"),
    _one(Class.OPERATOR, r"\.\.\.?"),
    Rule(rf"(\.)({NAME})", (Class.PUNCTUATION, Class.ATTRIBUTE)),
    Rule(
        rf"({one_of(w.DEFINING)})([ \t]+){_NOT_RESERVED}({NAME})",
        (Class.KEYWORD, None, Class.DEFINITION),
    ),
    # `const` stands in front of a type, too.
    Rule(rf"(\bconst\b)([ \t]+)({NAME})(?=[ \t]*=)", (Class.KEYWORD, None, Class.DEFINITION)),
    _one(Class.KEYWORD, rf"{one_of(w.BEFORE_NAME)}(?=[ \t]+{_NOT_RESERVED}[A-Za-z_])"),
    _one(Class.KEYWORD, rf'{one_of(w.BEFORE_STRING)}(?=[ \t]*")'),
    _one(Class.KEYWORD, rf"{one_of(w.BEFORE_FOR)}(?=[ \t]+for\b)"),
    _one(Class.KEYWORD, r'\bbound(?=\("[^"\n]*"\)[ \t]+for\b)'),
    # A name stands here after an operator or a bracket: two values in a row are none.
    _one(Class.KEYWORD, rf'{one_of(w.BEFORE_VALUE)}(?=[ \t]+{_NO_VALUE}(?:[A-Za-z0-9_"(\[]|-[^ \t]))'),
    _one(Class.KEYWORD, rf"\bdesc\b(?=[ \t]*\([ \t]*{NAME}[ \t]*:)"),
    _one(Class.KEYWORD, r"(?<![A-Za-z] )\b(?:init|otherwise|try)\b(?=[ \t]*\{)"),
    _one(Class.KEYWORD, r"(?<=[A-Za-z0-9_)\]] )\b(?:at|strides)\b(?=[ \t]*\[)"),
    # The formatter breaks a long scan in front of `init`.
    _one(Class.KEYWORD, rf"\bscan\b(?=[ \t]*{_SUBSCRIPT}[ \t]*(?:init\b|//|$))"),
    _one(Class.CONSTANT, one_of(w.CONSTANTS)),
    _one(Class.KEYWORD, one_of(w.RESERVED)),
    _one(Class.BUILTIN, rf"{one_of(w.REDUCERS)}(?=[ \t]*\[)(?![ \t]*{_SUBSCRIPT}[ \t]*(?:\+=|=(?!=)|@))"),
    _one(Class.TYPE, rf"(?<=: ){one_of(w.TYPES)}|(?<=const ){one_of(w.DTYPES)}|{one_of(w.DTYPES)}(?=\()"),
    # Types in parentheses: no value is called as one that begins with a capital is, and `int` stands there first.
    _one(
        Class.TYPE,
        rf"(?:(?<=\()|(?<=, ))(?=[A-Z]){one_of(w.TYPES)}(?=[,()])|(?:(?<=Module\()|(?<=list\()){one_of(w.TYPES)}",
    ),
    _one(Class.DRAW, rf"{one_of(w.DRAWS)}(?=[ \t]*\()"),
    _one(Class.PRIMITIVE, rf"{one_of(w.PRIMITIVES)}(?=[ \t]*\()"),
    _one(Class.BUILTIN, rf"{one_of(w.BUILTINS)}(?=[ \t]*\()"),
    _one(Class.NAME, NAME),
    _one(Class.OPERATOR, r":=|\+=|->|=>|[<>]=?|[=!]=|[-+*/%=@~]"),
    _one(Class.PUNCTUATION, r"[\[\](){},:;.]"),
)
"""All other words, the first pattern that fits."""
