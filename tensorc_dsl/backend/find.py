"""The backend for a kind of target: a folder beside this file, or of a package that is installed."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib import metadata
from pathlib import Path

from tensorc_dsl.backend.protocol import Backend
from tensorc_dsl.diagnostic import Problem, TschedError

GROUP = "tensorc_dsl.backends"
"""The entry points of backends in other packages, each named after the kind of its targets: `toy = "a_package.backend"`."""

NO_CODE = Problem(
    "E0910",
    "no code can be made for targets of kind `{kind}`, so `{task}` cannot be compiled, run or measured for this one",
    help="look at what its space draws: `show --stage ir --scheduled`, `sample`, `verify`; or take a target of kind `llvm`",
)


@cache
def backends() -> dict[str, str]:
    """The module of each backend, by the kind of its targets. Those that come with the compiler cannot be replaced."""
    installed = {e.name: e.value for e in metadata.entry_points(group=GROUP)}
    own = {
        m.name: f"{__package__}.{m.name}.backend" for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if m.ispkg
    }
    return installed | own


@cache
def backend_of(kind: str) -> Backend | None:
    """The backend for targets of that kind; None where there is none."""
    module = backends().get(kind)
    return None if module is None else importlib.import_module(module).BACKEND


def require_backend(kind: str, task: str) -> Backend:
    """As `backend_of`. Raises TschedError (E0910) where there is none."""
    found = backend_of(kind)
    if found is None:
        raise TschedError(NO_CODE(None, kind=kind, task=task))
    return found


def native() -> Backend:
    """The backend for the CPU that we are on."""
    return require_backend("llvm", "the machine")
