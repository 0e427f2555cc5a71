"""What each word of a text is, by the parse: what all highlighters are compared with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.highlight import words as w
from tensorc_dsl.syntax.highlight.rules import ESCAPE, Class
from tensorc_dsl.syntax.layout import Token, Tree
from tensorc_dsl.syntax.parse import read

ROOT = Path(__file__).resolve().parents[2]
CORPUS = tuple(sorted(Path(__file__).parent.glob("corpus/*.tsched")))
LIBRARY = tuple(sorted(p for folder in ("stdlib", "examples") for p in (ROOT / folder).rglob("*.tsched")))

_CONSTANTS = ("INF", "NAN", "TRUE", "FALSE", "WILDCARD")
_SIGNS = frozenset("+ - * / % = @ ~ := += -> .. ...".split())


@dataclass(frozen=True, slots=True)
class Word:
    """A part of a text: where it begins and ends, counted in characters, and its class."""

    start: int
    end: int
    cls: Class


def words(text: str) -> list[Word]:
    """The words of a text that parses, in order; a string with escapes is several."""
    parsed = read(Source("corpus", text))
    found = [*_words(parsed.words, None)]
    for c in parsed.comments:
        doc = re.match(r"///(?!/)", c) is not None
        found.append(Word(c.start_pos, c.end_pos, Class.DOC if doc else Class.COMMENT))
    # A description is one word of the parser: its lines are among the comments.
    return sorted({(x.start, x.end): x for x in found}.values(), key=lambda x: x.start)


def _words(tree: Tree, above: Tree | None) -> Iterator[Word]:
    for i, child in enumerate(tree.children):
        if isinstance(child, Tree):
            name = child.children[0] if child.data == "name" else None
            if isinstance(name, Token):
                yield Word(name.start_pos, name.end_pos, _name(name, tree, i, above))
            else:
                yield from _words(child, tree)
        elif child is None or child.type in ("DOC", "_NL"):
            pass
        elif child.type == "STRING":
            yield from _string(child)
        else:
            yield Word(child.start_pos, child.end_pos, _token(child))


def _token(token: Token) -> Class:
    if token.type in _CONSTANTS:
        return Class.CONSTANT
    if token.type in ("INT", "FLOAT"):
        return Class.NUMBER
    if token.type == "REDUCE_OF":
        return Class.BUILTIN
    if token[0].isalpha():
        return Class.KEYWORD
    return Class.OPERATOR if token in _SIGNS or token.type == "COMPARE" else Class.PUNCTUATION


def _string(token: Token) -> Iterator[Word]:
    if token[1:-1] in w.ANNOTATIONS:
        yield Word(token.start_pos, token.end_pos, Class.ANNOTATION)
        return
    at = 0
    for m in re.finditer(ESCAPE, token):
        if m.start() > at:
            yield Word(token.start_pos + at, token.start_pos + m.start(), Class.STRING)
        yield Word(token.start_pos + m.start(), token.start_pos + m.end(), Class.ESCAPE)
        at = m.end()
    yield Word(token.start_pos + at, token.end_pos, Class.STRING)


def _name(name: Token, tree: Tree, i: int, above: Tree | None) -> Class:
    before = tree.children[i - 1] if i else None
    if isinstance(before, Token):
        if before.type == "DOT":
            return Class.ATTRIBUTE
        if before in (*w.DEFINING, "const") and tree.data == before:
            return Class.DEFINITION
    if tree.data in ("tensor_type", "type") and name in w.TYPES:
        return Class.TYPE
    if tree.data == "name_expr" and above is not None and above.data == "call" and above.children[0] is tree:
        lists = {Class.TYPE: w.DTYPES, Class.PRIMITIVE: w.PRIMITIVES, Class.DRAW: w.DRAWS, Class.BUILTIN: w.BUILTINS}
        return next((cls for cls, names in lists.items() if name in names), Class.NAME)
    return Class.NAME


def differences(text: str, classes: list[Class | None]) -> list[str]:
    """The words whose letters have another class, given the class of each character of the text; for a message."""
    starts = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]
    out: list[str] = []
    for x in words(text):
        if (got := {*classes[x.start : x.end]}) != {x.cls}:
            line = sum(s <= x.start for s in starts)
            said = ", ".join(sorted(c.value if c else "nothing" for c in got))
            out.append(f"{line}: {text[x.start : x.end]!r} is {x.cls.value}, and was {said}")
    return out
