"""`frozen`: a frozen dataclass with slots whose methods are made when one of them is first called.

A dataclass compiles the text of each of its methods when its class is made, which was half of the time in which a command
loads: a process makes instances of a part of the classes that it loads. Until then a class has stubs, and its methods are
one text.

Steps and passes make tens of thousands of nodes for a schedule. The `__init__` of a frozen dataclass looks up
`object.__setattr__` and the name of each field again and again; this one calls the slot of each field. The same goes for a
pickle's state, in which a schedule goes from one process to another.

A dataclass hashes all that it holds at each question. A class of trees that are keys of tables inherits a slot `hashed`
(`Hashed`), where the hash is kept at the first one. It is not in a pickle: another process hashes strings otherwise.

attrs makes texts, too, when a class is made; structures of msgspec have no equality over a part of their fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform, overload

C = TypeVar("C")

_KEPT = object()
"""In place of a field that `replace` does not change."""

_MADE = object()
"""In place of a field that its factory makes."""


@overload
def frozen(cls: type[C], /) -> type[C]: ...
@overload
def frozen(*, eq: bool = True, repr: bool = True, kw_only: bool = False) -> Callable[[type[C]], type[C]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    cls: type[C] | None = None, /, *, eq: bool = True, repr: bool = True, kw_only: bool = False
) -> type[C] | Callable[[type[C]], type[C]]:
    """Class decorator: `dataclass(frozen=True, slots=True, eq=eq, repr=repr, kw_only=kw_only)`."""

    def made(plain: type[C]) -> type[C]:
        if plain.__doc__ is None:
            plain.__doc__ = plain.__name__  # a dataclass would write its signature here, which takes long
        own = vars(plain).keys() - ({"__hash__"} if vars(plain).get("__hash__", ...) is None else set[str]())
        slotted: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(plain)
        _put_stubs(slotted, [name for name in (*_ALWAYS, *(_WITH_EQ if eq else ())) if name not in own])
        slotted.__setattr__, slotted.__delattr__ = _refuse_to_set, _refuse_to_delete
        if repr and "__repr__" not in own:
            slotted.__repr__ = _shown
        return cast("type[C]", slotted)

    return made if cls is None else made(cls)


class Hashed:
    """A node that keeps its hash."""

    __slots__ = ("hashed",)
    hashed: int


def replace(one: C, /, **changes: Any) -> C:
    """As `dataclasses.replace`, for what is `frozen`, in a third of the time: passes make most nodes from others."""
    return cast(Any, one).__replace__(**changes)


_ALWAYS = ("__init__", "__getstate__", "__setstate__", "__replace__")
_WITH_EQ = ("__eq__", "__hash__")


def _refuse_to_set(_self: object, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _shown(self: Any) -> str:
    parts = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _put_stubs(cls: Any, names: list[str]) -> None:
    def stub(name: str) -> Callable[..., Any]:
        def first(self: object, /, *args: Any, **kwargs: Any) -> Any:
            _make_methods(cls, names)
            return getattr(cls, name)(self, *args, **kwargs)

        return first

    for name in names:
        setattr(cls, name, stub(name))


def _make_methods(cls: Any, names: list[str]) -> None:
    """Put the methods of these names in the place of their stubs."""
    every: tuple[Field[Any], ...] = fields(cls)
    scope: dict[str, Any] = {"_KEPT": _KEPT, "_MADE": _MADE, "_cls": cls}
    for f in every:
        scope |= {f"_set_{f.name}": getattr(cls, f.name).__set__, f"_default_{f.name}": f.default}
        scope[f"_factory_{f.name}"] = f.default_factory
    compared = "".join(f"self.{f.name}, " for f in every if f.compare)
    hashed = "".join(f"self.{f.name}, " for f in every if (f.compare if f.hash is None else f.hash))
    texts = {
        "__init__": _init_text(cls, every),
        "__getstate__": f"(self):\n    return ({''.join(f'self.{f.name}, ' for f in every)})\n",
        "__setstate__": f"(self, state):\n{_lines(f'_set_{f.name}(self, state[{k}])' for k, f in enumerate(every))}",
        "__replace__": _replace_text(every),
        "__eq__": "(self, other):\n    if other.__class__ is not self.__class__:\n        return NotImplemented\n"
        f"    return ({compared}) == ({compared.replace('self.', 'other.')})\n",
        "__hash__": f"(self):\n    return hash(({hashed}))\n",
    }  # fmt: skip
    if issubclass(cls, Hashed):  # one frame for each level of a tree, as a dataclass has
        scope["_keep"] = cast(Any, Hashed).hashed.__set__
        texts["__hash__"] = (
            "(self):\n    try:\n        return self.hashed\n    except AttributeError:\n"
            f"        _keep(self, found := hash(({hashed})))\n        return found\n"
        )
    exec("".join(f"def {name}{texts[name]}" for name in names), scope)
    for name in names:
        scope[name].__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, scope[name])


def _init_text(cls: Any, every: tuple[Field[Any], ...]) -> str:
    def parameter(f: Field[Any]) -> str:
        if f.default_factory is not MISSING:
            return f"{f.name}=_MADE"
        return f.name if f.default is MISSING else f"{f.name}=_default_{f.name}"

    def stored(f: Field[Any]) -> str:
        if f.default_factory is not MISSING:
            made = f"_factory_{f.name}()"
            return f"_set_{f.name}(self, {f'{made} if {f.name} is _MADE else {f.name}' if f.init else made})"
        return f"_set_{f.name}(self, {f.name if f.init else f'_default_{f.name}'})"

    placed = [parameter(f) for f in every if f.init and not f.kw_only]
    named = [parameter(f) for f in every if f.init and f.kw_only]
    lines = [stored(f) for f in every if f.init or f.default is not MISSING or f.default_factory is not MISSING]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    return f"({', '.join(['self', *placed, *(['*', *named] if named else [])])}):\n{_lines(lines)}"


def _replace_text(every: tuple[Field[Any], ...]) -> str:
    given = [f for f in every if f.init]
    parameters = "".join(f", {f.name}=_KEPT" for f in given)
    ordered = [*(f for f in given if not f.kw_only), *(f for f in given if f.kw_only)]
    values = ", ".join(
        f"{f'{f.name}=' if f.kw_only else ''}self.{f.name} if {f.name} is _KEPT else {f.name}" for f in ordered
    )
    return f"(self, /{', *' if given else ''}{parameters}):\n    return _cls({values})\n"


def _lines(statements: Any) -> str:
    return "".join(f"    {x}\n" for x in statements) or "    pass\n"
