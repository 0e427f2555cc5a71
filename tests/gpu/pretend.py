"""A GPU for tests: the package in `fake/` in place of PyCUDA."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tensorc_dsl.backend.cuda.runtime import driver

FAKE = Path(__file__).parent / "fake"


@contextmanager
def pretended() -> Iterator[Any]:
    """A context with a GPU, for child processes too. Yields the stand-in of `pycuda.driver`."""
    with _forgotten() as patch:
        patch.syspath_prepend(FAKE)
        import pycuda.driver as fake  # pyright: ignore[reportMissingImports]

        yield fake


@contextmanager
def without_pycuda() -> Iterator[None]:
    """A context in which PyCUDA is not installed."""
    with _forgotten() as patch:
        patch.setitem(sys.modules, "pycuda", None)
        yield


@contextmanager
def _forgotten() -> Iterator[pytest.MonkeyPatch]:
    """What was found before, and what is found inside, is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in sys.modules if n.partition(".")[0] == "pycuda"]:
            patch.delitem(sys.modules, name)
        driver.find.cache_clear()
        try:
            yield patch
        finally:
            driver.find.cache_clear()
            for name in [n for n in sys.modules if n.partition(".")[0] == "pycuda"]:
                del sys.modules[name]
