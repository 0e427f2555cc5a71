"""Finds the backend for a kind of target: a folder beside this file, or one of an installed package."""

from __future__ import annotations

from functools import cache

from tensorc_dsl.backend.protocol import Backend
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.extensions import BACKENDS
from tensorc_dsl.ir.target import Target


@problem(
    "E0910",
    "no code can be made for targets of kind `{kind}`, so `{task}` cannot be compiled, run or measured for this one",
    help="look at what its space draws: `show --stage ir --scheduled`, `sample`, `verify`; or take a target of kind {known}",
)
def NO_CODE(*, kind: str, task: str, known: str) -> None: ...


@cache
def backend_of(kind: str) -> Backend | None:
    """The backend for targets of that kind; None if there is none. Raises TschedError (E0930) if it cannot be loaded."""
    return BACKENDS.load(kind)


def require_backend(kind: str, task: str) -> Backend:
    """As `backend_of`. Raises TschedError (E0910) if there is no backend."""
    found = backend_of(kind)
    if found is None:
        known = " or ".join(f"`{name}`" for name in BACKENDS.names())
        raise TschedError(NO_CODE(None, kind=kind, task=task, known=known))
    return found


def native() -> Backend:
    """The backend for the current CPU."""
    return require_backend(Target().kind, "the machine")
