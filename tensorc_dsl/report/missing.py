"""Errors for unknown names, with the nearest known one."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from tensorc_dsl.diagnostic import Diagnostic, TschedError, help_note
from tensorc_dsl.syntax.names import listed


def no_such(code: str, kind: str, name: str, known: Sequence[str], file: str) -> TschedError:
    """The error that `file` has no `kind` of that name."""
    near = get_close_matches(name, known, 1)
    if near:
        repair = f"did you mean `{near[0]}`?"
    elif known:
        repair = f"it has {listed(known)}"
    else:
        repair = f"it has no {kind} at all"
    return TschedError(Diagnostic(code, f"`{file}` has no {kind} `{name}`", None, notes=(help_note(repair),)))
