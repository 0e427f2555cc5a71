"""Suggestions for misspelt names: the most similar of the known names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from difflib import get_close_matches

FEW = 8
"""The number of names that a message lists at most."""


def listed(names: Sequence[str]) -> str:
    """The names, or the first of them and the number of the others."""
    rest = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(f"`{n}`" for n in names[:FEW]) + rest


COMPARISONS = 10_000
"""The number of name comparisons per file, which take half a second. A file with a thousand names and as many mistakes would
take minutes otherwise; mistakes after the limit are reported without a suggestion."""

_left: ContextVar[int] = ContextVar("comparisons", default=COMPARISONS)


def compare_anew() -> None:
    """Resets the number of comparisons, at the beginning of a file."""
    _left.set(COMPARISONS)


def nearest(name: str, candidates: Iterable[str]) -> tuple[str | None, list[str]]:
    """The most similar candidate, if one is similar enough, and all others by similarity; nothing after the limit."""
    if _left.get() <= 0:
        return None, []
    known = sorted(set(candidates) - {name})
    _left.set(_left.get() - len(known))
    close = get_close_matches(name, known, n=1) or [c for c in known if c.lower() == name.lower()]
    return (close[0] if close else None), known


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A help text with the nearest candidate, else with all of them if they are few; empty if there is none."""
    close, known = nearest(name, candidates)
    if close:
        return f"did you mean `{close}`?"
    if len(known) == 1:
        return f"there is only `{known[0]}`"
    return f"there are {listed(known)}" if 0 < len(known) <= FEW else ""
