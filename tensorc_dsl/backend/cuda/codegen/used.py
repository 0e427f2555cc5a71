"""Leaves out functions that a module does not call: LLVM reads and optimises each, and most kernels need few."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_DEFINED = re.compile(r"^define internal [^@]*@([\w.]+)", re.MULTILINE)
_NAMED = re.compile(r"@([\w.]+)")


def used(fixed: Sequence[str], text: str) -> list[str]:
    """The definitions in some texts that a module calls, directly or not, and everything else in them."""
    parts = _parts(tuple(fixed))
    wanted, found = set[str](), set(_NAMED.findall(text)) | {n for name, _, ns in parts if not name for n in ns}
    while new := found - wanted:
        wanted |= new
        found |= {n for name, _, ns in parts if name in new for n in ns}
    return [x for name, x, _ in parts if not name or name in wanted]


@cache
def _parts(fixed: tuple[str, ...]) -> list[tuple[str, str, frozenset[str]]]:
    """The definitions, each with its name, its text and the names in it; what stands between them has no name."""
    out: list[tuple[str, str, frozenset[str]]] = []
    for text in fixed:
        for part in re.split(r"(?m)(?=^define internal |^declare )", text):
            found = _DEFINED.match(part)
            out.append((found[1] if found else "", part, frozenset(_NAMED.findall(part)) if found else frozenset()))
    return out
