"""The extension for VS Code: its grammar sees each word as the parser does, its client starts the server, and it packs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generate.textmate import scope
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.lsp.structure import LEGEND
from tensorc_dsl.syntax.highlight.rules import Class
from tensorc_dsl.syntax.parse import parse
from tests.editors.oracle import CORPUS, LIBRARY, ROOT, Word, words

FOLDER = ROOT / "editors" / "vscode"
GRAMMAR = FOLDER / "syntaxes" / "tsched.tmLanguage.json"
TOOLS = FOLDER / "node_modules" / ".bin"


def tool(name: str) -> str:
    """A program of npm. `npm ci --ignore-scripts --prefix editors/vscode` installs them."""
    if shutil.which("node") is None or not (TOOLS / name).exists():
        pytest.skip(f"{name} is not installed in editors/vscode")
    return str(TOOLS / name)


def expected(text: str) -> Iterator[str]:
    """The text with what vscode-tmgrammar-test is to find in each line."""
    yield '// SYNTAX TEST "source.tsched"'
    start, left = 0, words(text)
    for line in text.split("\n"):
        yield line
        end = start + len(line)
        while left and left[0].start < end:
            yield _claim(line, left.pop(0), start)
        start = end + 1


def _claim(line: str, word: Word, start: int) -> str:
    def units(part: str) -> int:
        return len(part.encode("utf-16-le")) // 2

    at, size = units(line[: word.start - start]), units(line[word.start - start : word.end - start])
    mark = " " * (at - 2) + "^" * size if at >= 2 else "<" + "~" * at + "-" * size
    return f"//{mark} {scope(word.cls)}"


def test_each_word_has_its_class(tmp_path: Path) -> None:
    program = tool("vscode-tmgrammar-test")
    for n, path in enumerate((*CORPUS, *LIBRARY)):
        file = tmp_path / f"{n}-{path.name}"
        file.write_text("\n".join(expected(path.read_text(encoding="utf-8"))), encoding="utf-8")
    done = subprocess.run(
        [program, "-c", "-g", str(GRAMMAR), str(tmp_path / "*.tsched")],
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_a_wrong_class_is_found(tmp_path: Path) -> None:
    program = tool("vscode-tmgrammar-test")
    file = tmp_path / "wrong.tsched"
    file.write_text('// SYNTAX TEST "source.tsched"\nconst a = 1\n//    ^ keyword.control.tsched\n', encoding="utf-8")
    done = subprocess.run([program, "-g", str(GRAMMAR), str(file)], check=False, capture_output=True, timeout=120)
    assert done.returncode != 0


def test_the_server_is_started_once_and_a_missing_one_is_told_of() -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no node to run the extension with")
    script = Path(__file__).parent / "extension.cjs"
    done = subprocess.run(
        ["node", str(script), str(FOLDER / "extension.js")], check=True, capture_output=True, text=True, timeout=120
    )
    said = json.loads(done.stdout)
    assert said == [
        "start broken lsp",
        "The language server `broken lsp` did not start: not found. Colours and snippets work without it.",
        "start dead lsp",
        "stop dead lsp",
        "start good lsp",
        "stop good lsp",
        "start good lsp",
        "stop good lsp",
    ]


def test_the_program_follows_the_cursor_and_the_text() -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no node to run the extension with")
    script = Path(__file__).parent / "panel.cjs"
    done = subprocess.run(
        ["node", str(script), str(FOLDER / "panel.js")], check=True, capture_output=True, text=True, timeout=120
    )
    assert json.loads(done.stdout) == {
        "opened": "// small: after split(i, [8, _])\n// rows = [8, 8]: 2 factors\n\nprogram 1",
        "beside": ["tensorc-dsl-program:/program.tsched", "beside, without the focus"],
        "asked": [["file:///a.tsched", 3], ["file:///a.tsched", 4], ["file:///a.tsched", 4]],
        "moved": "// small: before the first step\n\nprogram 2",
        "edited": "// small: after split(i, [8, _]), for the last of 3 times\n//\n"
        "// error[E0330]: no\n//   = help: yes\n\nprogram 3",
        "late": "the last one counts",
        "no server": "it stays",
        "other language": "nobody is asked",
        "out of sight": "nobody is asked",
        "lens": "// small: before the first step\n\nprogram of the lens",
    }


def package() -> dict[str, Any]:
    return json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))


def test_what_the_extension_names_is_there() -> None:
    said = package()["contributes"]
    named = [g["path"] for g in said["grammars"] + said["snippets"]] + [la["configuration"] for la in said["languages"]]
    assert len(named) == 4
    for name in named:
        json.loads((FOLDER / name).read_text(encoding="utf-8"))
    scopes = {g["scopeName"]: json.loads((FOLDER / g["path"]).read_text(encoding="utf-8")) for g in said["grammars"]}
    assert all(scopes[name]["scopeName"] == name for name in scopes)


def test_words_keep_their_colours_when_the_server_has_started() -> None:
    """A theme without rules for a type of the server's takes the colour of one of the grammar's scopes."""
    (said,) = package()["contributes"]["semanticTokenScopes"]
    types, modifiers = set(LEGEND.token_types), set(LEGEND.token_modifiers)
    scopes = {scope(cls) for cls in Class}
    for selector, wanted in said["scopes"].items():
        kind, *rest = selector.split(".")
        assert kind in types and set(rest) <= modifiers and set(wanted) <= scopes, selector


def test_no_registry_is_named() -> None:
    lock = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))
    assert len(lock["packages"]) > 100
    assert [name for name, p in lock["packages"].items() if "resolved" in p] == []
    assert all("integrity" in p for name, p in lock["packages"].items() if name)


def test_snippets_parse() -> None:
    """Each body, with its defaults, is a text of the language, or lines of a schedule."""
    for name, snippet in json.loads((FOLDER / "snippets" / "tsched.json").read_text(encoding="utf-8")).items():
        body = re.sub(r"\$\{\d+:([^}]*)\}", r"\1", "\n".join(snippet["body"])).replace("$0", "x")
        body = re.sub(r"= x\n", "= 1\n", body)
        is_item = body.split()[0] in ("compute", "schedule", "module", "space", "task")
        parse(Source(name, body if is_item else f"schedule s for f {{\n{body}\n}}"))


def test_it_is_packed_with_all_it_needs(tmp_path: Path) -> None:
    program = tool("vsce")
    version = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    if int(version.removeprefix("v").partition(".")[0]) < 20:
        pytest.skip(f"vsce needs Node 20, and this is {version.strip()}")
    out = tmp_path / "tensorc-dsl.vsix"
    command = [program, "package", "--allow-missing-repository", "--skip-license", "--out", str(out)]
    done = subprocess.run(command, check=False, cwd=FOLDER, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    names = set(zipfile.ZipFile(out).namelist())
    wanted = {
        "extension.js",
        "package.json",
        "panel.js",
        "readme.md",
        "language-configuration.json",
        "syntaxes/tsched.tmLanguage.json",
    }
    assert {f"extension/{n}" for n in wanted} <= names
    assert "extension/node_modules/vscode-languageclient/node.js" in names
    assert not any("/@vscode/vsce/" in n or "tmgrammar" in n for n in names)
