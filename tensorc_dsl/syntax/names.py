"""Names: the nearest of those that exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from difflib import get_close_matches

FEW = 8
"""Names that a message lists."""


def listed(names: Sequence[str]) -> str:
    """The names, or the first of them and how many there are besides."""
    rest = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(f"`{n}`" for n in names[:FEW]) + rest


COMPARISONS = 10_000
"""Names that are compared for the sake of one file's messages, which takes half a second. A file with a thousand names and as
many mistakes would else be compared for minutes; what is wrong further down goes without a suggestion."""

_left: ContextVar[int] = ContextVar("comparisons", default=COMPARISONS)


def compare_anew() -> None:
    """Another file begins: its mistakes have suggestions again."""
    _left.set(COMPARISONS)


def nearest(name: str, candidates: Iterable[str]) -> tuple[str | None, list[str]]:
    """The candidate that is most like the name, if one is, and all others in order; nothing once comparing took too long."""
    if _left.get() <= 0:
        return None, []
    known = sorted(set(candidates) - {name})
    _left.set(_left.get() - len(known))
    close = get_close_matches(name, known, n=1) or [c for c in known if c.lower() == name.lower()]
    return (close[0] if close else None), known


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A help text: the nearest candidate, else all of them if they are few; empty when there is nothing to say."""
    close, known = nearest(name, candidates)
    if close:
        return f"did you mean `{close}`?"
    if len(known) == 1:
        return f"there is only `{known[0]}`"
    return f"there are {listed(known)}" if 0 < len(known) <= FEW else ""
