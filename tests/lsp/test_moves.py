"""A file or a folder that gets another name is found by those that use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types as lsp

from tensorc_dsl.faces.lsp.documents import Documents, path_of, uri_of
from tensorc_dsl.faces.lsp.navigation import moves
from tests.lsp.editor import Editor

FILES = {
    "user.tsched": "use shelf.{ends}\nuse deep.inner.{inner}\nuse deep\nuse std.cpu.{default}\nuse nowhere.{x}\n",
    "shelf.tsched": "const ends = 1\n",
    "deep/inner.tsched": "use other.{other}\nconst inner = 1\n",
    "deep/other.tsched": "const other = 1\n",
    "é é/shelf.tsched": "const other = 1\n",
    "é é/near.tsched": "// 🙂\nuse shelf.{other}\n",
}


@pytest.fixture(name="folder")
def written(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def after(folder: Path, *renamed: tuple[str, str]) -> dict[str, str]:
    """The new text of each file that changes."""
    documents = Documents()
    documents.folders["root"] = folder
    found = moves(documents, [lsp.FileRename(uri_of(folder / a), uri_of(folder / b)) for a, b in renamed])
    out: dict[str, str] = {}
    for uri, edits in ((found.changes if found else None) or {}).items():
        lines = path_of(uri).read_text(encoding="utf-8").split("\n")
        for e in edits:
            assert e.range.start.line == e.range.end.line
            line = lines[e.range.start.line]
            lines[e.range.start.line] = line[: e.range.start.character] + e.new_text + line[e.range.end.character :]
        out[path_of(uri).relative_to(folder).as_posix()] = "\n".join(lines)
    return out


@pytest.mark.parametrize(
    ("renamed", "changed"),
    [
        ([("shelf.tsched", "rack.tsched")], {"user.tsched": ("use shelf.", "use rack.")}),
        ([("shelf.tsched", "deep/shelf.tsched")], {"user.tsched": ("use shelf.", "use deep.shelf.")}),
        (
            [("deep/inner.tsched", "inner.tsched")],
            {"user.tsched": ("deep.inner.", "inner."), "deep/inner.tsched": ("use other", "use deep.other")},
        ),
        ([("deep", "low")], {"user.tsched": ("deep", "low")}),
        (
            [("deep", "low"), ("shelf.tsched", "low/rack.tsched")],
            {"user.tsched": ("deep", "low", "use shelf.", "use low.rack.")},
        ),
        ([("user.tsched", "deep/user.tsched")], {"user.tsched": ("deep.inner.", "inner.")}),
        ([("é é/shelf.tsched", "é é/rack.tsched")], {"é é/near.tsched": ("shelf", "rack")}),
        ([("é é", "e")], {}),
        ([("shelf.tsched", "not a name.tsched")], {}),
        ([("shelf.tsched", "../outside.tsched")], {}),
        ([("nothing.tsched", "something.tsched")], {}),
        ([], {}),
    ],
)  # fmt: skip
def test_uses_follow_what_is_moved(
    folder: Path, renamed: list[tuple[str, str]], changed: dict[str, tuple[str, ...]]
) -> None:
    wanted: dict[str, str] = {}
    for name, words in changed.items():
        wanted[name] = FILES[name]
        for old, new in zip(words[::2], words[1::2], strict=True):
            wanted[name] = wanted[name].replace(old, new)
    assert after(folder, *renamed) == wanted


def test_an_editor_asks_before_it_renames_a_file(editor: Editor) -> None:
    (editor.root / "old_name.tsched").write_text("const old_value = 1\n")
    file = editor.open("renaming.tsched", "// not saved\nuse old_name.{old_value}\n")
    renamed = lsp.FileRename(editor.uri("old_name.tsched"), editor.uri("new_name.tsched"))
    found = file.ask("workspace_will_rename_files", lsp.RenameFilesParams([renamed]))
    assert file.changed(list(found.changes[file.uri])) == file.text.replace("old_name", "new_name")
    assert list(found.changes) == [file.uri]
