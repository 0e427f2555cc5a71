"""Entries of the standard library: every item with its signature, its description and its file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tensorc_dsl.report.entries.markdown import fence
from tensorc_dsl.resources import stdlib_root
from tensorc_dsl.source import Source
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import format_item
from tensorc_dsl.syntax.parse import used_items


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """A file of the library: its path in a `use`, its place, and its items."""

    path: str
    place: str
    items: tuple[tree.NamedItem, ...]


def library() -> Iterator[LibraryFile]:
    """All files of the library, in the order of their names."""
    root = stdlib_root()
    for file in sorted(root.rglob("*.tsched")):
        place = file.relative_to(root)
        path = ".".join(("std", *place.with_suffix("").parts))
        items = used_items(Source.read(file, place.as_posix())).file.items
        yield LibraryFile(path, place.as_posix(), tuple(i for i in items if not isinstance(i, tree.UseDecl)))


def item_entry(item: tree.NamedItem) -> str:
    """The item's text up to its body, and its description."""
    return f"### `{item.name}`\n\n{fence(head(item))}\n\n{item.doc}".rstrip()


def head(item: tree.NamedItem) -> str:
    """The item's text up to its body."""
    match item:
        case tree.ModuleDef():
            return format_item(replace(item, doc="", body=())).removesuffix("{}").strip()
        case tree.ComputeDef():
            return format_item(replace(item, doc="", stages=())).removesuffix("{}").strip()
        case _:
            return format_item(replace(item, doc=""))
