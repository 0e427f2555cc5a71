"""islpy, imported at its first use: most checks of a file do not need it, and start sooner without."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from islpy import (
        DEFAULT_CONTEXT,
        BasicSet,
        Constraint,
        Context,
        Error,
        LocalSpace,
        Map,
        Set,
        Space,
        dim_type,
    )

__all__ = [
    "DEFAULT_CONTEXT", "BasicSet", "Constraint", "Context", "Error", "LocalSpace", "Map", "Set", "Space", "dim_type",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    value = globals()[name] = getattr(import_module("islpy"), name)
    return value
