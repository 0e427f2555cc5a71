"""Errors for unknown names, with the nearest known one."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from tensorc_dsl.diagnostic import Diagnostic, problem
from tensorc_dsl.syntax.names import listed


@problem("E0905", "`{file}` has no task `{name}`", help="{repair}")
def NO_TASK(*, file: str, name: str, repair: str) -> None: ...
@problem("E0906", "`{file}` has no item `{name}`", help="{repair}")
def NO_ITEM(*, file: str, name: str, repair: str) -> None: ...


def no_such_task(name: str, known: Sequence[str], file: str) -> Diagnostic:
    """`file` has no task of that name."""
    return NO_TASK(None, file=file, name=name, repair=_nearest("task", name, known))


def no_such_item(name: str, known: Sequence[str], file: str) -> Diagnostic:
    """`file` has no item of that name."""
    return NO_ITEM(None, file=file, name=name, repair=_nearest("item", name, known))


def _nearest(kind: str, name: str, known: Sequence[str]) -> str:
    """The nearest known name, or the list of known names."""
    near = get_close_matches(name, known, 1)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"it has {listed(known)}" if known else f"it has no {kind} at all"
