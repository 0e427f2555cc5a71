"""Suggestions for misspelt names: the most similar of the known names."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from tensorc_dsl.base.diagnostic import Note, help_note

FEW = 8
"""The number of names that a message lists at most."""

MOST = 4_000
"""Among more names than these nothing is suggested, so that a file with as many mistakes as names is checked in seconds."""

AROUND = 16
"""Among many names, a misspelt one is compared with this many before it and behind it. A comparison takes 50 µs."""


def listed(names: Sequence[str]) -> str:
    """The names, or the first of them and the number of the others."""
    rest = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(f"`{n}`" for n in names[:FEW]) + rest


def nearest(name: str, candidates: Iterable[str]) -> tuple[str | None, list[str]]:
    """The most similar candidate, if one is similar enough, and all but `name` in alphabetical order; none of too many."""
    names = set(candidates) - {name}
    known = sorted(names) if len(names) <= MOST else []
    alike = _alike(name, known)
    close = get_close_matches(name, alike, n=1) or [c for c in alike if c.lower() == name.lower()]
    return (close[0] if close else None), known


def _alike(name: str, known: list[str]) -> list[str]:
    """The names among which the most similar one is looked for: all, or those that begin or end like `name`.

    A slip of the pen leaves the beginning or the end of a name as it is, whether or not the case is right.
    """
    if len(known) <= 4 * AROUND:
        return known
    backwards = sorted([k[::-1] for k in known])
    spellings = {name, name.lower(), name.upper()}
    begin = {k for s in spellings for k in _around(s, known)}
    end = {k[::-1] for s in spellings for k in _around(s[::-1], backwards)}
    return sorted(begin | end)


def _around(name: str, names: list[str]) -> list[str]:
    """The neighbours of `name` in the order of the alphabet."""
    at = bisect(names, name)
    return names[max(0, at - AROUND) : at + AROUND]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A help text with the nearest candidate, else with all of them if they are few; empty if there is none."""
    return _said(*nearest(name, candidates))


def near(name: str, candidates: Iterable[str], otherwise: str = "") -> tuple[Note, ...]:
    """`did_you_mean` as a note; `otherwise` where no candidate is similar and all of them are none or not few."""
    text = did_you_mean(name, candidates) or otherwise
    return (help_note(text),) if text else ()


def spelling_hints(name: str, candidates: Sequence[str]) -> tuple[Note, ...]:
    """The nearest candidate, and all of them, which are few."""
    best, _ = nearest(name, candidates)
    meant = f"did you mean `{best}`? " if best is not None else ""
    return (help_note(f"{meant}{'T' if meant else 't'}here are {', '.join(f'`{n}`' for n in candidates)}"),)


def near_or_elsewhere(name: str, candidates: Iterable[str]) -> tuple[Note, ...]:
    """As `near`, for an item of a file; if no candidate is similar, also how one of another file is brought."""
    close, known = nearest(name, candidates)
    texts = [_said(close, known), "" if close else f"one of another file comes with `use FILE.{{{name}}}`"]
    return tuple(help_note(text) for text in texts if text)


def _said(close: str | None, known: list[str]) -> str:
    """The help text for what `nearest` found."""
    if close:
        return f"did you mean `{close}`?"
    if len(known) == 1:
        return f"there is only `{known[0]}`"
    return f"there are {listed(known)}" if 0 < len(known) <= FEW else ""
