"""Finds the backend for a kind of target: a folder beside this file, or one of an installed package."""

from __future__ import annotations

from functools import cache

from tensorc_dsl.backend.protocol import Backend, ModelBackend
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.extensions import BACKENDS
from tensorc_dsl.ir.target import Target


@problem(
    "E0910",
    "no code can be made for targets of kind `{kind}`, so `{task}` cannot be compiled, run or measured for this one",
    help="look at what its space draws: `show --stage ir --scheduled`, `sample`, `verify`; or take a target of kind {known}",
)
def NO_CODE(*, kind: str, task: str, known: str) -> None: ...
@problem(
    "E0910",
    "models do not run on targets of kind `{kind}`, so `{model}` cannot be compiled or run for this one",
    help="run the model on this machine's CPU: leave out `--target`",
)
def NO_MODELS(*, kind: str, model: str) -> None: ...


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


def require_models(kind: str, model: str) -> ModelBackend:
    """The backend on whose targets the model runs. Raises TschedError (E0910) if models do not run on targets of the kind."""
    found = require_backend(kind, model)
    if not isinstance(found, ModelBackend):
        raise TschedError(NO_MODELS(None, kind=kind, model=model))
    return found


def native() -> Backend:
    """The backend for the current CPU."""
    return require_backend(Target().kind, "the machine")
