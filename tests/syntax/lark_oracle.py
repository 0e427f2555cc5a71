"""Lark's own parser, with the same grammar and layout, to compare the engine with."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import lark

from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.engine import lark_parser
from tensorc_dsl.syntax.layout import Mismatch, Token, TooDeep, Tree, Words, arrange


class _Postlex:
    always_accept = ("NEWLINE", "SEMICOLON", "DOC")

    def process(self, stream: Iterator[lark.Token]) -> Iterator[lark.Token]:
        seen = [(t.type, str(t), t.start_pos or 0, t.end_pos or 0) for t in stream]
        arranged = arrange(Words(*(cast("list[Any]", [t[n] for t in seen]) for n in range(4))))
        words = arranged.words
        for kind, text, start, end in zip(words.kinds, words.texts, words.starts, words.ends, strict=True):
            yield lark.Token(kind, text, start_pos=start, end_pos=end)
        if arranged.stop is not None:
            raise arranged.stop


@cache
def _lark() -> lark.Lark:
    return lark_parser(_Postlex())


def lark_tree(source: Source) -> Tree:
    """The tree of all words. Raises what Lark raises, and what the layout does."""
    return cast("Tree", _own(_lark().parse(source.text)))  # pyright: ignore[reportUnknownMemberType]


def _own(node: Any) -> Tree | Token | None:
    match node:
        case lark.Tree():
            return Tree(str(node.data), [_own(c) for c in cast("list[Any]", node.children)])
        case lark.Token():
            return Token(node.type, str(node), node.start_pos or 0, node.end_pos or 0)
        case _:
            return None


def lark_refusal(source: Source) -> tuple[str, int, frozenset[str]] | None:
    """How Lark refuses a text: the kind of its error, its place, and the kinds of words that could stand there."""
    try:
        _lark().parse(source.text)  # pyright: ignore[reportUnknownMemberType]
    except lark.UnexpectedCharacters as e:
        return "character", cast(Any, e).pos_in_stream, frozenset()
    except lark.UnexpectedToken as e:
        token = cast(Any, e).token
        at_end = token.type == "$END"
        return "word", len(source.text) if at_end else token.start_pos, frozenset(e.accepts or e.expected)
    except (Mismatch, TooDeep) as e:
        place = e.closer if isinstance(e, Mismatch) else e.opener
        return type(e).__name__, place.start_pos, frozenset()
    return None
