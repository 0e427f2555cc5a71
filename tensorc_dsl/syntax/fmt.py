"""Formats a text in its one layout and keeps every word and comment: `parse(fmt(x)) == parse(x)`, `fmt(fmt(x)) == fmt(x)`.

Words stay as they are written, parentheses too. Text beyond 120 columns is broken: lists and arguments have one entry per
line, expressions are broken before their operators. The writer decides three things: statements joined with `;` stay on one
line while they fit, and so do braces that open and close on one line; one empty line between two statements stays.
"""

from __future__ import annotations

from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.comments import Remarks, first, start
from tensorc_dsl.syntax.doc import HARD, Comment, Doc, Line, join, render
from tensorc_dsl.syntax.fmt_rules import Rules
from tensorc_dsl.syntax.parse import Text, read
from tensorc_dsl.syntax.words import Tree

WIDTH = 120

_TOGETHER = frozenset(("use", "task", "target", "reducer"))
"""Items that may follow others of their kind without an empty line between them."""


def format_text(source: Source) -> str:
    """The formatted text. Raises TschedError if the text does not parse."""
    return format_read(read(source))


def format_read(text: Text) -> str:
    """As `format_text`, for a text that is parsed already."""
    remarks = Remarks(text.file.source, text.words, text.comments)
    return render(_file(text.words, Rules(remarks)), WIDTH)


def apart(before: str, kind: str) -> bool:
    """Whether there is an empty line between two items of these kinds, whatever the writer does."""
    return not (kind == before and kind in _TOGETHER)


def _file(file: Tree, rules: Rules) -> Doc:
    out: list[Doc] = []
    remarks = rules.remarks
    before = ""
    for item in file.children:
        assert isinstance(item, Tree)
        kind, word = item.data, first(item)
        above = remarks.above(word)
        blanks = [r.blank for r in above] + [remarks.blank_above(start(word))]
        if before and apart(before, kind):
            blanks[0] = True
        for remark, blank in zip(above, blanks, strict=False):
            out += [Line(None, blank)] if out else []
            out.append(Comment(remark.text, True))
        out += [Line(None, blanks[-1])] if out else []
        out.append(rules.doc(item))
        before = kind
    for n, remark in enumerate(remarks.above(None)):
        out += [Line(None, remark.blank or (n == 0 and before not in _TOGETHER))] if out else []
        out.append(Comment(remark.text, True))
    return join(*out, HARD) if out else join()
