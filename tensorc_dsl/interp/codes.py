"""The code of elements and parts of drawn lists, as a trace has it: those of a part of a list are named in the whole list.

The code is equal to the one that was written whenever that has a value, whatever the list holds and however long it is.
"""

from __future__ import annotations

import re

from tensorc_dsl.interp.values import Drawn

_PART = re.compile(r"(.*)\[(\d*):(-?\d+)?\]")
"""The code of a part that begins at a position from the start."""


def element_code(base: Drawn, position: int) -> str:
    """The code of `base[position]`: `x[1:][0]` is `x[1]`."""
    code = _operand(base)
    if (cut := _cut(code)) is not None:
        whole, begin, end = cut
        if position >= 0:
            return f"{whole}[{begin + position}]"
        if end is None or end < 0:
            return f"{whole}[{position + (end or 0)}]"
    return f"{code}[{position}]"


def part_code(base: Drawn, low: int | None, high: int | None) -> str:
    """The code of `base[low:high]`: `x[1:][:2]` is `x[1:3]`."""
    code = _operand(base)
    if (cut := _cut(code)) is not None and (low or 0) >= 0:
        whole, begin, end = cut
        first = begin + (low or 0)
        if high is None:
            return _part(whole, first, end)
        if high < 0 and (end is None or end < 0):
            return _part(whole, first, high + (end or 0))
        if high >= 0 and end is None:
            return _part(whole, first, begin + high)
    return _part(code, low, high)


def _operand(value: Drawn) -> str:
    """The code of a value, such that a bracket may follow."""
    return value.code if value.tight else f"({value.code})"


def _cut(code: str) -> tuple[str, int, int | None] | None:
    """Of the code of a part of a list: the code of the list, and where the part begins and ends; None for other codes."""
    found = _PART.fullmatch(code)
    return None if found is None else (found[1], int(found[2] or 0), int(found[3]) if found[3] else None)


def _part(code: str, low: int | None, high: int | None) -> str:
    return f"{code}[{low or ''}:{'' if high is None else high}]"
