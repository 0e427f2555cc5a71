"""Comments that read like the rest of the line: `A[i] // 2` is a floored quotient in Python, and `A[i]` here."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check.problems import CUT_OFF

_OPERAND = r"-?\(*\w[\w.]*(?:\[[^\]\n]*\])?\)*"
_EXPRESSION = rf"{_OPERAND}(?:[ \t]*[-+*/%][ \t]*{_OPERAND})*"
_REST = re.compile(rf"(?<=[\w)\]])[ \t]*//[ \t]*(?=\d|\(|\w+\[)({_EXPRESSION})[)\]}};, \t]*$", re.MULTILINE)
"""A value, and behind it a comment that is an expression. A name alone is more often a word."""


def cut_off(source: Source) -> Iterator[Diagnostic]:
    """A warning for each value that a comment follows which is an expression."""
    for m in _REST.finditer(source.text):
        line = source.text.rfind("\n", 0, m.start()) + 1
        before = source.text[line : m.start()]
        if "//" in before or before.count('"') % 2:
            continue  # inside another comment or a string
        start = source.text.index("//", m.start())
        yield CUT_OFF(Span(source, start, m.end(1)), comment=source.text[start : m.end(1)], divisor=m[1])
