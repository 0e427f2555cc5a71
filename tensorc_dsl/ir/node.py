"""`node`: a frozen dataclass that is made and pickled in half the time, and may keep its hash.

Steps and passes make tens of thousands of nodes for a schedule. The `__init__` of a frozen dataclass looks up
`object.__setattr__` and the name of each field again and again; this one calls the slot of each field. The same goes for a
pickle's state, in which a schedule goes from one process to another.

A dataclass hashes all that it holds at each question. A class of trees that are keys of tables inherits a slot `hashed`
(`Hashed`), where the hash is kept at the first one. It is not in a pickle: another process hashes strings otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar, TypeVarTuple, cast, dataclass_transform, overload

C = TypeVar("C")

_KEPT = object()
"""In place of a field that `replace` does not change."""


@overload
def node(cls: type[C], /) -> type[C]: ...
@overload
def node(*, eq: bool = True) -> Callable[[type[C]], type[C]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def node(cls: type[C] | None = None, /, *, eq: bool = True) -> type[C] | Callable[[type[C]], type[C]]:
    """Class decorator: `dataclass(frozen=True, slots=True, eq=eq)`. Defaults of fields are values, not factories."""

    def made(plain: type[C]) -> type[C]:
        frozen = dataclass(init=False, frozen=True, slots=True, eq=eq)(plain)
        _use_slots(frozen, keeps_hash=eq and issubclass(frozen, Hashed))
        return frozen

    return made if cls is None else made(cls)


class Hashed:
    """A node that keeps its hash."""

    __slots__ = ("hashed",)
    hashed: int


def replace(one: C, /, **changes: Any) -> C:
    """As `dataclasses.replace`, for nodes, in a third of the time: passes make most nodes from others."""
    return cast(Any, one).__replace__(**changes)


def _use_slots(cls: Any, *, keeps_hash: bool) -> None:
    names = [f.name for f in fields(cls)]
    defaults = {f"_{f.name}_default": f.default for f in fields(cls) if f.default is not MISSING}
    parameters = [f"{n}=_{n}_default" if f"_{n}_default" in defaults else n for n in names]
    scope: dict[str, Any] = (
        {f"_set_{n}": getattr(cls, n).__set__ for n in names} | defaults | {"_KEPT": _KEPT, "_cls": cls}
    )
    given = "".join(f", {n}=_KEPT" for n in names)
    values = ", ".join(f"self.{n} if {n} is _KEPT else {n}" for n in names)
    stores = "".join(f"    _set_{n}(self, {n})\n" for n in names) or "    pass\n"
    loads = "".join(f"    _set_{n}(self, state[{k}])\n" for k, n in enumerate(names)) or "    pass\n"
    text = (
        f"def __init__(self, {', '.join(parameters)}):\n{stores}"
        f"def __getstate__(self):\n    return ({''.join(f'self.{n}, ' for n in names)})\n"
        f"def __setstate__(self, state):\n{loads}"
        f"def __replace__(self, /{', *' if names else ''}{given}):\n    return _cls({values})\n"
    )
    made = ["__init__", "__getstate__", "__setstate__", "__replace__"]
    if keeps_hash:  # one frame for each level of a tree, as a dataclass has
        scope["_keep"] = cls.hashed.__set__
        every = "".join(f"self.{n}, " for n in names)
        text += (
            "def __hash__(self):\n    try:\n        return self.hashed\n    except AttributeError:\n"
            f"        _keep(self, found := hash(({every})))\n        return found\n"
        )
        made.append("__hash__")
    exec(text, scope)
    for name in made:
        scope[name].__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, scope[name])


# Caches results by the identity of the argument.
#
# Looking up an equal program means hashing all of it, which takes as long as many questions about it. The programs after
# successive steps of a schedule share most objects, so a cache by identity is hit often.


A = TypeVar("A")
R = TypeVar("R")
More = TypeVarTuple("More")


def by_identity(size: int) -> Callable[[Callable[[A], R]], Callable[[A], R]]:
    """Decorator: caches a function of one immutable object, for at most `size` objects: the last `size / 2` that it was asked
    about are among them."""
    half = max(1, size // 2)

    def keep(function: Callable[[A], R]) -> Callable[[A], R]:
        young: dict[int, tuple[A, R]] = {}  # the object is kept alive, so that its id is not reused
        old: dict[int, tuple[A, R]] = {}

        @wraps(function)
        def ask(about: A) -> R:
            nonlocal young, old
            found = young.get(id(about))
            if found is None:
                if len(young) >= half:
                    young, old = {}, young
                found = young[id(about)] = old.get(id(about)) or (about, function(about))
            return found[1]

        return ask

    return keep


def by_first(size: int) -> Callable[[Callable[[A, *More], R]], Callable[[A, *More], R]]:
    """Decorator: as `by_identity`, of a function that takes more; its other arguments have few values, and are hashed."""

    def keep(function: Callable[[A, *More], R]) -> Callable[[A, *More], R]:
        @by_identity(size)
        def known(_: A) -> dict[tuple[*More], R]:
            return {}

        @wraps(function)
        def ask(about: A, *more: *More) -> R:
            results = known(about)
            if more not in results:
                results[more] = function(about, *more)
            return results[more]

        return ask

    return keep
