"""Text to tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from tensorc_dsl.diagnostic import Diagnostic, Note, TschedError, help_note
from tensorc_dsl.source import Source, Span
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.build_items import FileBuilder
from tensorc_dsl.syntax.engine import Engine, NotThis
from tensorc_dsl.syntax.errors import bad_character, mismatch, unexpected
from tensorc_dsl.syntax.layout import MAX_DEPTH, Layout, Mismatch, TooDeep
from tensorc_dsl.syntax.tables import lark_parser, tables
from tensorc_dsl.syntax.walk import first_deeper_than

if TYPE_CHECKING:
    import lark

MAX_FINDINGS = 100
"""Syntax errors of one file that are reported."""

_LOCK = Lock()  # the builder holds the source of the parse that is going on

_ITEM = re.compile(
    r"(?:^///.*\n(?:[ \t]*\n)*)*"
    r"^(?:compute|reducer|intrinsic|target|module|space|schedule|task|use|program)\b",
    re.MULTILINE,
)


@cache
def _engine() -> tuple[Engine, Layout, FileBuilder]:
    """From text to what the builder makes of it, without a tree of words in between."""
    builder = FileBuilder()
    return Engine(tables(), builder), Layout(), builder


@cache
def _lark() -> tuple[Callable[[str], lark.Tree[lark.Token]], Layout, list[lark.Token]]:
    """From text to a tree of words. Afterwards the comments of the text are in the list."""
    comments: list[lark.Token] = []

    def keep(comment: lark.Token) -> lark.Token:
        comments.append(comment)
        return comment

    layout = Layout()
    parser = lark_parser(postlex=layout, lexer_callbacks={"COMMENT": keep, "DOC": keep})
    return cast("Callable[[str], Any]", parser.parse), layout, comments  # pyright: ignore[reportUnknownMemberType]


def words(source: Source) -> tuple[lark.Tree[lark.Token], list[lark.Token]]:
    """Every word of a text in the order and the rules of the grammar, and its comments (`///` lines among them).

    Raises TschedError as `parse` does.
    """
    parse(source)
    with _LOCK:
        read, _, comments = _lark()
        comments.clear()
        return read(source.text), list(comments)


def _parse(source: Source, start: int, end: int) -> tree.File:
    """The tree of a part of a text. Raises TschedError, and NotThis where nothing is known yet of what is wrong."""
    with _LOCK:
        engine, layout, builder = _engine()
        builder.source = source
        try:
            file: tree.File = engine.parse(source, start, end, layout)
        except Mismatch as e:
            raise TschedError(mismatch(source, e)) from None
        except TooDeep as e:
            raise _too_deep(Span(source, e.opener.start_pos, e.opener.end_pos)) from None
    if deep := first_deeper_than(file, MAX_DEPTH):
        raise _too_deep(deep.span)
    return file


def _syntax_error(source: Source, start: int, end: int) -> TschedError:
    """What is wrong with a text that the engine cannot read: Lark knows what could stand in the place."""
    import lark

    with _LOCK:
        read, layout, _ = _lark()
        try:
            # Blanks in front keep the places of the words right.
            read(" " * start + source.text[start:end])
        except lark.UnexpectedCharacters as e:
            offset: int = e.pos_in_stream  # pyright: ignore[reportUnknownMemberType]
            return TschedError(bad_character(source, offset))
        except lark.UnexpectedToken as e:
            return TschedError(unexpected(source, e, layout, end))
        except Mismatch as e:
            return TschedError(mismatch(source, e))
        except TooDeep as e:
            return _too_deep(Span(source, e.opener.start_pos, e.opener.end_pos))
    raise AssertionError(f"{source.name}: Lark reads what the engine does not")


def _too_deep(span: Span) -> TschedError:
    repair = help_note("name parts of it with `let`, or write it as several statements")
    return TschedError(Diagnostic("E0107", f"this is nested more than {MAX_DEPTH} levels deep", span, notes=(repair,)))


def parse(source: Source) -> tree.File:
    """The tree of a whole file.

    Raises TschedError with a diagnostic for every item that does not parse, for the first MAX_FINDINGS of them.
    """
    size = len(source.text)
    try:
        return _parse(source, 0, size)
    except (TschedError, NotThis):
        # Once more, item by item, so that one mistake does not hide the next.
        starts = [m.start() for m in _ITEM.finditer(source.text)]
        parts = zip([0, *starts], [*starts, size], strict=True)
        raise TschedError(*(_findings(source, parts) or _findings(source, [(0, size)]))) from None


def _findings(source: Source, parts: Iterable[tuple[int, int]]) -> list[Diagnostic]:
    """The first thing that is wrong with each part."""
    found: list[Diagnostic] = []
    for start, end in parts:
        try:
            _parse(source, start, end)
        except NotThis:
            found += _syntax_error(source, start, end).diagnostics
        except TschedError as e:
            found += e.diagnostics
        if len(found) == MAX_FINDINGS:
            rest = Note("note", "there may be more below; no more than this many are looked for")
            found[-1] = replace(found[-1], notes=(*found[-1].notes, rest))
            break
    return found
