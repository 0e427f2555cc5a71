"""`node`: a frozen dataclass that is made in half the time.

Steps and passes make tens of thousands of nodes for a schedule. The `__init__` of a frozen dataclass looks up
`object.__setattr__` and the name of each field again and again; this one calls the slot of each field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, overload

C = TypeVar("C")


@overload
def node(cls: type[C], /) -> type[C]: ...
@overload
def node(*, eq: bool = True) -> Callable[[type[C]], type[C]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def node(cls: type[C] | None = None, /, *, eq: bool = True) -> type[C] | Callable[[type[C]], type[C]]:
    """Class decorator: `dataclass(frozen=True, slots=True, eq=eq)`. Defaults of fields are values, not factories."""

    def made(plain: type[C]) -> type[C]:
        frozen = dataclass(frozen=True, slots=True, eq=eq)(plain)
        _set_init(frozen)
        return frozen

    return made if cls is None else made(cls)


def _set_init(cls: Any) -> None:
    names = [f.name for f in fields(cls)]
    defaults = {f"_{f.name}_default": f.default for f in fields(cls) if f.default is not MISSING}
    parameters = [f"{n}=_{n}_default" if f"_{n}_default" in defaults else n for n in names]
    stores = "".join(f"    _set_{n}(self, {n})\n" for n in names)
    scope: dict[str, Any] = {f"_set_{n}": getattr(cls, n).__set__ for n in names} | defaults
    exec(f"def __init__(self, {', '.join(parameters)}):\n{stores or '    pass'}", scope)
    scope["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = scope["__init__"]
