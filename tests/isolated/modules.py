"""Names of modules, and files of these names that report who runs them."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

_CHILDREN = (
    "tensorc_dsl.processes.boot", "tensorc_dsl.processes.server", "tensorc_dsl.tuning.measure.child",
    "tensorc_dsl.tuning.machine.baseline", "tensorc_dsl.backend.llvm.known", "tensorc_dsl.faces.cli.main",
    "tensorc_dsl.faces.api",
)  # fmt: skip

_PRINT = f"import runpy, sys, {', '.join(_CHILDREN)}\nprint(*(name for name in sys.modules))"


@cache
def imported() -> frozenset[str]:
    """The top-level names that a process of ours, or one of its children, has loaded; with all of Python's own."""
    said = subprocess.run(
        [sys.executable, "-c", _PRINT], check=True, capture_output=True, text=True, timeout=120
    ).stdout
    loaded = {name.partition(".")[0] for name in said.split()} | sys.stdlib_module_names
    assert {"string", "numpy", "llvmlite", "msgspec", "runpy", "json"} <= loaded
    return frozenset(loaded - {"__main__"} | {"sitecustomize", "usercustomize"})


def plant(folder: Path, log: Path) -> None:
    """A file for each of them lies in the folder, and writes its name and its process to `log` when it runs."""
    for name in imported():
        text = f"import os\nwith open({str(log)!r}, 'a') as log:\n    log.write(f'{name} {{os.getpid()}}\\n')\n"
        (folder / f"{name}.py").write_text(text)


def executed(log: Path) -> list[tuple[str, int]]:
    """The planted modules that ran, and in which process."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(name, int(pid)) for name, pid in map(str.split, lines)]
