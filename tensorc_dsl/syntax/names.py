"""Names: the nearest of those that exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A help text: the nearest candidate, else all of them if they are few; empty when there is nothing to say."""
    known = sorted(set(candidates) - {name})
    close = get_close_matches(name, known, n=1) or [c for c in known if c.lower() == name.lower()]
    if close:
        return f"did you mean `{close[0]}`?"
    if len(known) == 1:
        return f"there is only `{known[0]}`"
    return "there are " + ", ".join(f"`{k}`" for k in known) if 0 < len(known) <= 8 else ""
