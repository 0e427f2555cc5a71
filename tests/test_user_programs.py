"""The package as a user meets it: programs run, and each type that a public call takes or returns has a public name."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, cast

import numpy as np
import pytest

import tensorc_dsl
from tests.user_programs import PROGRAMS

MODULES = (tensorc_dsl.handlers, tensorc_dsl.events)

PASSED_ON = {
    "Arrangement",
    "Backend",
    "CheckedFile",
    "Code",
    "Counts",
    "Distribution",
    "Files",
    "Form",
    "Param",
    "Plan",
    "Pool",
    "Program",
    "Queue",
    "Registers",
    "Roof",
    "Runtime",
    "Space",
    "TaskDef",
}
"""Types whose values a program gets and passes on; their attributes belong to the layers that declare them."""


@pytest.mark.corpus
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs_of_users_run(program: Callable[[Path], None], tmp_path: Path) -> None:
    program(tmp_path)


def public() -> dict[str, object]:
    """Everything that a user can import, by name."""
    found = {name: getattr(tensorc_dsl, name) for name in tensorc_dsl.__all__}
    return {k: v for k, v in found.items() if not isinstance(v, ModuleType | str)}


def types_in(annotation: object) -> Iterator[object]:
    """The types of the package that an annotation is made of."""
    for part in typing.get_args(annotation):
        for inner in cast("list[object]", part if isinstance(part, list) else [part]):
            yield from types_in(inner)
    if isinstance(annotation, type) and not isinstance(annotation, UnionType):
        if annotation.__module__.startswith("tensorc_dsl"):
            yield annotation


LATER = {"np": np, "Pool": tensorc_dsl.Pool}
"""Modules that a check loads import NumPy for their types only, and others what many machines need."""


def hints_of(item: object) -> Iterator[tuple[str, object]]:
    """The place and the type of each parameter, result and field of a public class or function."""
    if not inspect.isclass(item):
        if callable(item) and typing.get_origin(item) is None:  # a Literal has no parameters
            yield from typing.get_type_hints(item, localns=LATER).items()
        return
    for name, member in inspect.getmembers(item):
        one = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(one):
            yield from ((f"{name}.{place}", hint) for place, hint in typing.get_type_hints(one, localns=LATER).items())
    fields = getattr(item, "__dataclass_fields__", {})
    if fields and item.__module__.startswith("tensorc_dsl"):
        namespaces: dict[str, Any] = {**LATER}
        for base in reversed(item.__mro__):
            namespaces |= vars(inspect.getmodule(base) or object)
        for field in fields:
            yield field, typing.get_type_hints(item, namespaces)[field]


def test_each_type_of_a_public_call_has_a_public_name() -> None:
    declared = [v for m in MODULES for v in vars(m).values() if getattr(v, "__module__", "") == m.__name__]
    nameable = {id(t) for t in (*public().values(), *declared)}
    missing = [
        f"{name}.{place}: {getattr(t, '__qualname__', t)}"
        for name, item in (public() | {v.__qualname__: v for v in declared if callable(v)}).items()
        if name not in PASSED_ON
        for place, hint in hints_of(item)
        for t in types_in(hint)
        if id(t) not in nameable
    ]
    assert missing == []
