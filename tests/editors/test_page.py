"""The page about editors names files that are there, its configurations can be read, and Vim lists what a check finds."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import fences
from tests.editors.oracle import ROOT

PAGE = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")


def test_the_files_that_it_names_are_there() -> None:
    named = {*re.findall(r"`(editors/[^`]+)`", PAGE), *re.findall(r"REPOSITORY/(editors/[\w./-]+)", PAGE)}
    assert len(named) > 6
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_its_configurations_can_be_read() -> None:
    read = {"json": json.loads, "toml": tomllib.loads}
    found = [read[f.language](f.text) for f in fences(PAGE) if f.language in read]
    assert len(found) >= 4 and all(found)


def test_the_extension_for_zed_names_this_checkout(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    subprocess.run(["make", "--silent", "zed", f"OUT={tmp_path}"], check=True, cwd=ROOT, timeout=60)
    made = tmp_path / "zed"
    said = tomllib.loads((made / "extension.toml").read_text(encoding="utf-8"))
    grammar = said["grammars"]["tsched"]
    assert grammar["repository"] == f"file://{ROOT}" and re.fullmatch("[0-9a-f]{40}", grammar["rev"])
    assert (ROOT / grammar["path"] / "src" / "parser.c").is_file()
    language = tomllib.loads((made / "languages" / "tsched" / "config.toml").read_text(encoding="utf-8"))
    assert language["grammar"] in said["grammars"]
    assert said["language_servers"]["tensorc-dsl"]["languages"] == [language["name"]]
    package = tomllib.loads((made / "Cargo.toml").read_text(encoding="utf-8"))
    assert (made / package["lib"]["path"]).is_file() and package["package"]["version"] == said["version"]


def test_the_grammar_becomes_a_property_list(tmp_path: Path) -> None:
    (command,) = [f.text for f in fences(PAGE) if "plistlib" in f.text]
    command = command.replace("REPOSITORY", str(ROOT)).replace("python3", sys.executable)
    subprocess.run(["sh", "-c", command], check=True, cwd=tmp_path, timeout=60)
    assert b"source.tsched" in (tmp_path / "tsched.tmLanguage").read_bytes()


MAKE = """
set nocompatible
execute 'set runtimepath^=' . fnameescape($EDITOR)
filetype plugin indent on
edit wrong.tsched
let &l:makeprg = $MAKEPRG . substitute(&l:makeprg, '^tensorc-dsl', '', '')
silent make!
let said = map(getqflist(), {_, x -> [bufname(x.bufnr), x.lnum, x.col, x.type, x.text]})
call writefile([json_encode(said)], 'said')
qall!
"""


@pytest.mark.parametrize("editor", ["vim", "nvim"])
def test_make_lists_what_is_wrong(editor: str, tmp_path: Path) -> None:
    if shutil.which(editor) is None:
        pytest.skip(f"there is no {editor}")
    (tmp_path / "wrong.tsched").write_text("task a = f(M=1)\nconst x = y\n", encoding="utf-8")
    (tmp_path / "make.vim").write_text(MAKE, encoding="utf-8")
    options = ["-es", "-N"] if editor == "vim" else ["--headless"]
    program = f"{sys.executable} -c 'from tensorc_dsl.faces.cli.main import main; main()'"
    subprocess.run(
        [editor, *options, "-u", "NONE", "-i", "NONE", "-n", "-S", "make.vim"], check=True, cwd=tmp_path, timeout=120,
        stdin=subprocess.DEVNULL, capture_output=True, env={
            **os.environ, "EDITOR": str(ROOT / "editors" / "vim"), "MAKEPRG": program, "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT), "SHELL": "/bin/sh",
        },
    )  # fmt: skip
    said = json.loads((tmp_path / "said").read_text(encoding="utf-8"))
    found = [(file, line, column, kind) for file, line, column, kind, _ in said if file]
    assert found == [("wrong.tsched", 1, 10, "e"), ("wrong.tsched", 2, 11, "e")], said
