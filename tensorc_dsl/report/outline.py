"""Formats a syntax tree as an indented outline, for `show --stage ast`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import cast

from tensorc_dsl.source import Source, Span


def outline(node: object) -> str:
    """One line per node with its plain fields; children below it, indented. Spans are left out."""
    return "\n".join(_lines("", node, "")) + "\n"


def _lines(label: str, node: object, indent: str) -> Iterator[str]:
    if is_dataclass(node):
        plain: list[str] = []
        children: list[tuple[str, object]] = []
        for f in fields(node):
            value: object = getattr(node, f.name)
            if isinstance(value, Span | Source) or value in (None, (), ""):
                continue
            if isinstance(value, str | int | float):
                plain.append(f"{f.name}={value!r}")
            else:
                children.append((f.name, value))
        yield f"{indent}{label}{type(node).__name__}{' ' if plain else ''}{' '.join(plain)}"
        for name, child in children:
            yield from _lines(f"{name}: ", child, indent + "  ")
    elif isinstance(node, tuple):
        items = cast(tuple[object, ...], node)
        match items:
            case (str(name), value) if is_dataclass(value):
                yield from _lines(f"{label}{name} = ", value, indent)
            case _ if all(isinstance(i, str) for i in items):
                yield f"{indent}{label}{', '.join(map(repr, items))}"
            case _:
                yield f"{indent}{label.rstrip()}"
                for item in items:
                    yield from _lines("", item, indent + "  ")
    else:
        yield f"{indent}{label}{node!r}"
