"""The standard library: every item with its signature, its description and its file."""

from __future__ import annotations

from dataclasses import replace

from docs.generate.pages import fence
from tensorc_dsl.resources import stdlib_root
from tensorc_dsl.source import Source
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import format_item
from tensorc_dsl.syntax.parse import parse


def _head(item: tree.Item) -> str:
    """The item up to its body."""
    match item:
        case tree.ModuleDef():
            return format_item(replace(item, doc="", body=())).removesuffix("{}").strip()
        case tree.ComputeDef():
            return format_item(replace(item, doc="", stages=())).removesuffix("{}").strip()
        case tree.UseDecl():
            return format_item(item)
        case _:
            return format_item(replace(item, doc=""))


def modules() -> str:
    out: list[str] = []
    root = stdlib_root()
    for file in sorted(root.rglob("*.tsched")):
        place = file.relative_to(root)
        path = ".".join(("std", *place.with_suffix("").parts))
        out.append(f"## `{path}`\n\n[stdlib/{place.as_posix()}](../../stdlib/{place.as_posix()})")
        for item in parse(Source.read(file, place.as_posix())).items:
            if not isinstance(item, tree.UseDecl):
                out.append(f"### `{item.name}`\n\n{fence(_head(item))}\n\n{item.doc}".rstrip())
    return "\n\n".join(out)
