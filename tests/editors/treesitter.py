"""The committed parser of tree-sitter, built by the system's C compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.editors.oracle import ROOT

FOLDER = ROOT / "editors" / "treesitter"
COMPILER = "gcc"

MISSING = f"there is no {COMPILER} to build the parser with"


def has_compiler() -> bool:
    return shutil.which(COMPILER) is not None


def library(into: Path) -> Path:
    """The parser as a shared library in a folder."""
    out = into / "tsched.so"
    sources = [str(FOLDER / "src" / name) for name in ("parser.c", "scanner.c")]
    include = f"-I{FOLDER / 'src'}"
    # Without optimization: building takes longer than all that is parsed with it.
    done = subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-std=c11", "-O0", include, "-o", str(out), *sources],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


def language(library: Path) -> Any:
    """The language of the parser. Needs the package tree-sitter."""
    import tree_sitter

    made = ctypes.CDLL(str(library)).tree_sitter_tsched
    made.restype = ctypes.c_void_p
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return tree_sitter.Language(capsule(made(), b"tree_sitter.Language", None))
