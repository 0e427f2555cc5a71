"""Makes libraries from `tasks.tsched`, and programs in other languages that use them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tensorc_dsl.backend.llvm.ahead.library import FORMS
from tensorc_dsl.faces.api import Task, load

HERE = Path(__file__).parent

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@cache
def task(name: str, threads: int = 1) -> Task:
    return load(HERE / "tasks.tsched", threads=threads)[name]


def export(folder: Path, name: str, *kinds: str, threads: int = 1) -> Path:
    """The last of the files that are made of a task."""
    found = task(name, threads)
    for kind in kinds:
        found.export(found.sample(0), folder / f"{name}{FORMS[kind].suffix}", kind)
    return folder / f"{name}{FORMS[kinds[-1]].suffix}"


def python(library: Path, program: str) -> Any:
    """What a program prints as JSON, run by a Python that has nothing but its standard library."""
    text = f"{(HERE / 'caller.py').read_text('utf-8')}\n{program}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", text, str(library)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_c(folder: Path, program: str, *objects: str, compiler: tuple[str, ...] = ("cc", "-std=c99")) -> str:
    """What a C program prints that is linked with objects of the folder."""
    suffix = ".cpp" if "c++" in compiler[0] or "g++" in compiler[0] else ".c"
    source = folder / f"main{suffix}"
    source.write_text(program, encoding="utf-8")
    warnings = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-D_POSIX_C_SOURCE=200809L")
    command = [*compiler, *warnings, "-O1", "-o", "main", source.name, *objects, "-pthread", "-lm", "-ldl"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([folder / "main"], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def symbols(path: Path, *options: str) -> list[str]:
    """The names that a file defines, as `nm` lists them."""
    listed = subprocess.run(["nm", *options, os.fspath(path)], capture_output=True, text=True, check=True).stdout
    return sorted(line.split()[-1] for line in listed.splitlines() if line.strip())
