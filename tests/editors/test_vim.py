"""The syntax for Vim and Neovim sees each word as the parser does, and lines are indented as the formatter does it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tensorc_dsl.syntax.highlight.rules import Class
from tests.editors.oracle import CORPUS, LIBRARY, ROOT, differences

FOLDER = ROOT / "editors" / "vim"
HERE = Path(__file__).parent

EDITORS = {
    "vim": ("vim", "-N", "-u", "NONE", "-i", "NONE", "-n", "-es", "-S"),
    "nvim": ("nvim", "-u", "NONE", "-i", "NONE", "-n", "--headless", "-S"),
}

CLASSES = {f"tsched{cls.value.capitalize()}": cls for cls in Class}


def run(editor: str, script: str, files: tuple[Path, ...], out: Path) -> None:
    """Run one of the scripts beside this file."""
    if shutil.which(editor) is None:
        pytest.skip(f"there is no {editor}")
    told = {"EDITOR": str(FOLDER), "FILES": "\n".join(map(str, files)), "OUT": str(out)}
    done = subprocess.run(
        [*EDITORS[editor], str(HERE / script)], check=False, timeout=300, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, env={**os.environ, **told, "HOME": str(out.parent), "TERM": "dumb"},
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


@pytest.mark.parametrize("editor", EDITORS)
def test_each_word_has_its_class(editor: str, tmp_path: Path) -> None:
    files = (*CORPUS, *LIBRARY)
    run(editor, "classes.vim", files, tmp_path / "out")
    head, *rows = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    names = head.split(",")
    wrong: dict[str, list[str]] = {}
    for path, row in zip(files, rows, strict=True):
        kind, *numbers = row.split(",")
        assert kind == "tsched"
        text = path.read_text(encoding="utf-8")
        classes: list[Class | None] = []
        at = 0
        for letter in text:
            classes.append(CLASSES.get(names[int(numbers[at])]))
            at += len(letter.encode())
        if found := differences(text, classes):
            wrong[path.name] = found
    assert wrong == {}


INDENTED = ("softmax", "conv3d", "inline", "own_module", "channel_sums", "quantized")


@pytest.mark.parametrize("editor", EDITORS)
def test_lines_are_indented_as_the_formatter_does_it(editor: str, tmp_path: Path) -> None:
    files = tuple({p.stem: p for p in LIBRARY if p.stem in INDENTED}.values())
    assert len(files) == len(INDENTED)
    run(editor, "indent.vim", files, tmp_path)
    for path in files:
        assert (tmp_path / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8"), path.name
