"""What is made ahead of time, as files: written whole or not at all, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, assert_never

from tensorc_dsl.ahead.library import Library
from tensorc_dsl.report.files import check_writable, write_bytes

Kind = Literal["llvm", "asm", "obj", "so", "header"]

SUFFIXES: Mapping[Kind, str] = {"llvm": ".ll", "asm": ".s", "obj": ".o", "so": ".so", "header": ".h"}
"""How the names of files end."""

TEXTS: frozenset[Kind] = frozenset({"llvm", "asm", "header"})
"""What a terminal can show."""


def content(library: Library, kind: Kind) -> bytes:
    """A file of that kind; texts are UTF-8."""
    match kind:
        case "llvm":
            return library.llvm_ir.encode()
        case "asm":
            return library.assembly().encode()
        case "obj":
            return library.object_code()
        case "so":
            return library.shared()
        case "header":
            return library.header().encode()
        case _:
            assert_never(kind)


def write_files(library: Library, paths: Mapping[Path, Kind]) -> None:
    """Each path holds what it is to hold afterwards. Raises TschedError, mostly before anything is written."""
    for path in paths:
        check_writable(path)
    made = {path: content(library, kind) for path, kind in paths.items()}
    for path, data in made.items():
        write_bytes(path, data)
