"""The mode for Emacs sees each word as the parser does, and indents lines as the formatter does; ERT runs the tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tensorc_dsl.syntax.highlight.rules import Class
from tests.editors.oracle import CORPUS, LIBRARY, ROOT, words
from tests.editors.test_vim import INDENTED

MODE = ROOT / "editors" / "emacs" / "tsched-mode.el"

FACES = {
    Class.COMMENT: ("font-lock-comment-face", "font-lock-comment-delimiter-face"),
    Class.DOC: ("font-lock-doc-face",),
    Class.KEYWORD: ("font-lock-keyword-face",),
    Class.CONSTANT: ("font-lock-constant-face",),
    Class.NUMBER: ("tsched-number",),
    Class.STRING: ("font-lock-string-face",),
    Class.ESCAPE: ("tsched-escape",),
    Class.ANNOTATION: ("tsched-annotation",),
    Class.DEFINITION: ("font-lock-function-name-face",),
    Class.TYPE: ("font-lock-type-face",),
    Class.BUILTIN: ("font-lock-builtin-face",),
    Class.PRIMITIVE: ("tsched-primitive",),
    Class.DRAW: ("tsched-draw",),
    Class.ATTRIBUTE: ("tsched-attribute",),
    Class.NAME: ("nil",),
    Class.OPERATOR: ("nil",),
    Class.PUNCTUATION: ("nil",),
}


def emacs(*arguments: str, told: dict[str, str] | None = None) -> None:
    if shutil.which("emacs") is None:
        pytest.skip("there is no emacs")
    done = subprocess.run(
        ["emacs", "-Q", "--batch", "-L", str(MODE.parent), *arguments], check=False, timeout=300,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ, **(told or {})},
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def expected(path: Path) -> str:
    found = words(path.read_text(encoding="utf-8"))
    said = " ".join(f"({x.start + 1} {x.end + 1} {' '.join(FACES[x.cls])})" for x in found)
    return f"({json.dumps(str(path))} {said})"


def test_the_mode_passes_its_tests(tmp_path: Path) -> None:
    said, kept = tmp_path / "expected", tmp_path / "indented"
    said.write_text(f"({' '.join(map(expected, (*CORPUS, *LIBRARY)))})", encoding="utf-8")
    files = {p.stem: json.dumps(str(p)) for p in LIBRARY if p.stem in INDENTED}
    kept.write_text(f"({' '.join(files.values())})", encoding="utf-8")
    script = str(Path(__file__).parent / "tsched-mode-test.el")
    told = {"EXPECTED": str(said), "INDENTED": str(kept)}
    emacs("-l", "ert", "-l", script, "-f", "ert-run-tests-batch-and-exit", told=told)


def test_the_mode_is_compiled_without_a_warning(tmp_path: Path) -> None:
    copy = tmp_path / MODE.name
    shutil.copy(MODE, copy)
    emacs("--eval", "(setq byte-compile-error-on-warn t)", "-f", "batch-byte-compile", str(copy))
    assert copy.with_suffix(".elc").is_file()
