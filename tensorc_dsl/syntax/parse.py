"""Text to tree."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from threading import Lock
from typing import cast

import lark

from tensorc_dsl.diagnostic import Diagnostic, TschedError, help_note
from tensorc_dsl.resources import cache_path, grammar_text
from tensorc_dsl.source import Source
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.build_items import FileBuilder
from tensorc_dsl.syntax.errors import bad_character, mismatch, unexpected
from tensorc_dsl.syntax.layout import Layout, Mismatch
from tensorc_dsl.syntax.walk import first_deeper_than

MAX_DEPTH = 100
"""How deep a tree may be, so that functions over it may recurse."""

_LOCK = Lock()  # the builder holds the source of the parse that is going on

_ITEM = re.compile(r"(?:^///.*\n(?:[ \t]*\n)*)*^(?:compute|module|space|schedule|task|use|program)\b", re.MULTILINE)


@cache
def build_parser() -> tuple[Callable[[str], tree.File], Layout, FileBuilder]:
    """The parser, built from the grammar the first time ever, and from its cached tables after that."""
    grammar = grammar_text()
    layout, builder = Layout(), FileBuilder()
    version = sha256(f"{lark.__version__}\n{sys.version}\n{grammar}".encode()).hexdigest()
    tables = cache_path(f"grammar-{version[:16]}")
    parser = lark.Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        start="file",
        keep_all_tokens=True,
        postlex=layout,
        transformer=builder,
        cache=str(tables) if tables else False,
    )
    # The builder is the transformer, so what comes out is its `file`.
    return cast("Callable[[str], tree.File]", parser.parse), layout, builder  # pyright: ignore[reportUnknownMemberType]


def _parse(source: Source, start: int, end: int) -> tree.File:
    with _LOCK:
        read, layout, builder = build_parser()
        builder.source = source
        try:
            # Blanks in front keep the places of the words right.
            file = read(" " * start + source.text[start:end])
        except lark.UnexpectedCharacters as e:
            offset: int = e.pos_in_stream  # pyright: ignore[reportUnknownMemberType]
            raise TschedError(bad_character(source, offset)) from None
        except lark.UnexpectedToken as e:
            raise TschedError(unexpected(source, e, layout, end)) from None
        except Mismatch as e:
            raise TschedError(mismatch(source, e)) from None
    if deep := first_deeper_than(file, MAX_DEPTH):
        raise TschedError(
            Diagnostic(
                "E0107", f"this is nested more than {MAX_DEPTH} levels deep", deep.span,
                notes=(help_note("name parts of it with `let`, or write it as several statements"),),
            )
        )  # fmt: skip
    return file


def parse(source: Source) -> tree.File:
    """The tree of a whole file.

    Raises TschedError with a diagnostic for every item that does not parse.
    """
    try:
        return _parse(source, 0, len(source.text))
    except TschedError as whole:
        # Once more, item by item, so that one mistake does not hide the next.
        starts = [m.start() for m in _ITEM.finditer(source.text)]
        found: list[Diagnostic] = []
        for start, end in zip([0, *starts], [*starts, len(source.text)], strict=True):
            try:
                _parse(source, start, end)
            except TschedError as e:
                found.extend(e.diagnostics)
        raise TschedError(*(found or whole.diagnostics)) from None
