"""The standard library: every item with its signature, its description and its file."""

from __future__ import annotations

from tensorc_dsl.faces.report.entries import item_entry, library


def modules() -> str:
    out: list[str] = []
    for file in library():
        out.append(f"## `{file.path}`\n\n[stdlib/{file.place}](../../stdlib/{file.place})")
        out += map(item_entry, file.items)
    return "\n\n".join(out)
