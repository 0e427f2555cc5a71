"""A language for tensor computations and their schedules, with a tuner and a compiler.

    import tensorc_dsl

    kernel = tensorc_dsl.load("matmul.tsched")["mm_1k"].tune(trials=64)
    c = kernel(a, b)

`loads` takes a text where `load` takes a file. Each type that a call takes or returns is here by its name, so that it can be
written in annotations. `events` has the events of a search, `handlers` the functions that decide draws.

Importing this package is cheap: the modules that compile and measure are loaded at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tensorc_dsl.faces import api

if TYPE_CHECKING:
    from tensorc_dsl.faces.api import *  # noqa: F403

    __version__: str

__all__: list[str] = ["__version__"]
__all__ += api.__all__

if not TYPE_CHECKING:  # a type checker sees only the names above

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("tensorc-dsl")
        return getattr(api, name)


def load_ipython_extension(shell: Any) -> None:
    """Have a notebook know `%%tsched` and show tasks, schedules and programs: `%load_ext tensorc_dsl`."""
    import_module("tensorc_dsl.faces.notebook").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take back what `load_ipython_extension` added."""
    import_module("tensorc_dsl.faces.notebook").unload(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
