"""Files that are renamed or moved: each `use` of them is updated, in all files of the editor's folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from lsprotocol import types as lsp

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.lsp.documents import Documents, file_of
from tensorc_dsl.packages.files import SUFFIX
from tensorc_dsl.packages.resolve import Resolver
from tensorc_dsl.syntax import tree as t

FILTERS = lsp.FileOperationRegistrationOptions(
    [
        lsp.FileOperationFilter(lsp.FileOperationPattern(f"**/*{SUFFIX}", lsp.FileOperationPatternKind.File), "file"),
        lsp.FileOperationFilter(lsp.FileOperationPattern("**", lsp.FileOperationPatternKind.Folder), "file"),
    ]
)


def moves(documents: Documents, renamed: list[lsp.FileRename]) -> lsp.WorkspaceEdit | None:
    """The edits of the paths behind `use`, by the addresses that the files have before they are moved. None without any."""
    named = [(file_of(r.old_uri), file_of(r.new_uri)) for r in renamed]
    new = {old.resolve(): Path(new.absolute()) for old, new in named if old is not None and new is not None}
    changes: dict[str, list[lsp.TextEdit]] = {}
    seen: set[Path] = set()
    for path in (*(d.path for d in documents.open.values()), *documents.files()):
        real = path.resolve()
        tree = documents.tree(path) if new and real not in seen else None
        seen.add(real)
        if tree is None:
            continue
        uri, text, items = tree
        resolver = Resolver(path, documents.include)
        edits = [
            lsp.TextEdit(text.range(use.path[0].span.start, use.path[-1].span.end), ".".join(after))
            for use in items
            if isinstance(use, t.UseDecl) and (after := _after(resolver, real, use, new)) is not None
        ]
        if edits:
            changes[uri] = edits
    return lsp.WorkspaceEdit(changes=changes) if changes else None


def _after(resolver: Resolver, user: Path, use: t.UseDecl, new: Mapping[Path, Path]) -> tuple[str, ...] | None:
    """The path of a `use` once the files are moved; None if it stays, or no path leads there then."""
    path = tuple(map(str, use.path))
    if path[0] == "std":
        return None
    try:
        found = [file.resolve() for file in resolver.locate(path)]
    except TschedError:
        return None  # a diagnostic reports that there is no such path
    # The folder that is meant, or the file without its suffix.
    is_file = len(found) == 1 and found[0].stem == path[-1]
    before = found[0].with_suffix("") if is_file else found[0].parent
    after = _moved(found[0], new).with_suffix("") if is_file else _moved(before, new)
    if len(before.parts) <= len(path) or before.parts[-len(path) :] != path:
        return None  # a place that gives its files a name of its own
    root = Path(*before.parts[: -len(path)])
    base = _moved(user, new).parent if root == user.parent else _moved(root, new)
    inside = after.parts[len(base.parts) :] if after.is_relative_to(base) else ()
    if not inside or inside == path or inside[0] == "std" or not all(map(str.isidentifier, inside)):
        return None
    return inside


def _moved(path: Path, new: Mapping[Path, Path]) -> Path:
    """Where a file or a folder is afterwards."""
    return next((new[above] / path.relative_to(above) for above in _around(path) if above in new), path)


def _around(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents
