"""Finds extensions by name: a file or folder of this package, or a module that another package declares as an entry point.

Nothing is imported before it is asked for by name, and entry points are read only for names that this package does not
have, so that start-up stays fast.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from os.path import isfile
from typing import Any

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen


@problem(
    "E0930",
    "`{name}` of `{group}` cannot be loaded from `{module}`: {why}",
    help="mend or remove the package that declares this entry point",
)
def NOT_LOADED(*, name: str, group: str, module: str, why: str) -> None: ...


@frozen
class Extensions:
    """Modules with one object each, called `attribute`.

    Ours are in the package `home`: its modules, or the modules `inside` of the folders that have one; a name has `-` where
    theirs has `_`. Those of other packages are the entry points of `group`, `toy = "a_package.a_module"`. An entry point
    cannot replace one of ours.
    """

    group: str
    home: str
    attribute: str
    inside: str = ""

    def own(self) -> Mapping[str, str]:
        """Our modules by name."""
        return _modules(self.home, self.inside)

    def _installed(self) -> Mapping[str, str]:
        from importlib import metadata  # takes as long to load as a check of a file

        return {e.name: e.value for e in metadata.entry_points(group=self.group)}

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted({*self.own(), *self._installed()}))

    def module(self, name: str) -> str | None:
        """The module of that name; None if there is none."""
        return self.own().get(name) or self._installed().get(name)

    def summary(self, name: str) -> str:
        """The first sentence of the docstring of its module, without the name in front; the reason if it is broken."""
        module = self.module(name)
        assert module is not None
        try:
            self.load(name)
        except TschedError as e:
            return e.diagnostics[0].message
        text = " ".join((importlib.import_module(module).__doc__ or "").split("\n\n")[0].split())
        return re.split(r"(?<=[.!?]) ", text.removeprefix(f"`{name}`: "))[0]

    def load(self, name: str) -> Any:
        """The object of that name; None if there is none. Raises TschedError (E0930) if another package's is broken."""
        module = self.module(name)
        if module is None:
            return None
        if name in self.own():
            return getattr(importlib.import_module(module), self.attribute)
        try:
            return getattr(importlib.import_module(module), self.attribute)
        except Exception as e:  # a foreign module may raise anything when it is imported
            why = f"{type(e).__name__}: {e}"
            raise TschedError(NOT_LOADED(None, name=name, group=self.group, module=module, why=why)) from e


@cache
def _modules(home: str, inside: str) -> Mapping[str, str]:
    """The modules of a package of ours by name, which stay while it runs."""
    spec = find_spec(home)
    assert spec is not None and spec.submodule_search_locations is not None
    places = [*spec.submodule_search_locations]
    names = [m.name for m in pkgutil.iter_modules(places) if m.ispkg == bool(inside)]
    found = [n for n in names if not inside or any(isfile(f"{place}/{n}/{inside}.py") for place in places)]
    return {name.replace("_", "-"): ".".join(part for part in (home, name, inside) if part) for name in found}


BACKENDS = Extensions("tensorc_dsl.backends", "tensorc_dsl.backend", "BACKEND", "backend")
"""The code generators, by the kind of their targets."""

KINDS = Extensions("tensorc_dsl.kinds", "tensorc_dsl.backend", "KIND", "kind")
"""What backends declare of the kind of their targets."""

STRATEGIES = Extensions("tensorc_dsl.strategies", "tensorc_dsl.tuning.search.strategies", "STRATEGY")
"""The search strategies."""
