"""A board on this machine: an `ssh` that runs commands here, with a folder for files; and programs with a fault each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tensorc_dsl.backend.llvm.ahead.library import Library, runner_counts, runner_sources
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.faces.api import loads
from tensorc_dsl.tuning.measure.child import Built

SSH = """\
#!/bin/sh
echo "$@" | head -1 >> "$FAKE_BOARD/calls"
while [ $# -gt 0 ]; do
    case $1 in
        -o | -p) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
if [ -e "$FAKE_BOARD/down" ]; then
    echo "ssh: connect to host $1 port 22: Connection refused" >&2
    exit 255
fi
shift
there() { PATH=$FAKE_BOARD/bin:$PATH TMPDIR=$FAKE_BOARD/files sh -c "$1"; }
case $* in *mktemp*)
    there "$*" # a child, which lives on when a search and its ssh are killed
    exit ;;
esac
there "$*" > "$FAKE_BOARD/said"
if [ -e "$FAKE_BOARD/breaks" ] && [ -e "$FAKE_BOARD/ran" ]; then
    rm "$FAKE_BOARD/ran"
    echo "client_loop: send disconnect: Broken pipe" >&2
    head -c 40 "$FAKE_BOARD/said"
else
    cat "$FAKE_BOARD/said"
fi
exit 255
"""
"""No connection is made while `down` is there; with `breaks`, one breaks during which a program of the board left `ran`. The
status is that of a broken connection in any case, as ssh's sometimes is: what a board says counts."""

UNAME = """\
#!/bin/sh
echo board7
"""


class FakeBoard:
    """The files of a board, and what happens to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = folder / "files"
        self.program = folder / "path" / "ssh"
        for part in ("files", "bin", "path"):
            (folder / part).mkdir()
        for path, text in ((self.program, SSH), (folder / "bin" / "uname", UNAME)):
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {"FAKE_BOARD": str(self.folder), "PATH": f"{self.program.parent}:{os.environ['PATH']}"}

    def left(self) -> list[str]:
        """The names of the files that are there."""
        return [p.name for p in self.files.iterdir()]

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text("utf-8").splitlines()

    def put(self, name: str, text: str = "") -> Path:
        """A file beside the board's own: `down`, `breaks`, or `bin/PROGRAM` that stands for one of its programs."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path


@contextmanager
def fake_board() -> Iterator[FakeBoard]:
    """A board that answers as long as the context lasts."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        board = FakeBoard(Path(name))
        for key, value in board.environment.items():
            patch.setenv(key, value)
        yield board


needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

FILE = """
compute plus(A: f32[N], B: f32[N]) -> C: f32[N] { C[i] = A[i] + B[i] }
schedule serial for plus {}
task sums = plus(N=37) with serial
"""

KERNEL = """\
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <unistd.h>
#include "sums.h"
static int calls;
int32_t sums(const float *A, const float *B, float *C) {
    calls++;
    for (int i = 0; i < 37; i++) C[i] = A[i] + B[i];
    FAULT
    return 0;
}
"""

FAULTS = {
    "none": "",
    "wrong": "C[5] += 1;",
    "forgets": "((uint32_t *)C)[36] = UINT32_MAX;",
    "just after": "((char *)C)[37 * 4] = 1;",
    "just before": "((char *)C)[-1] = 1;",
    "reads far after": "C[0] += ((volatile float *)A)[64];",
    "changes an input": "((float *)A)[0] = 9;",
    "dies": "abort();",
    "divides": "__builtin_trap();",
    "hangs": "for (volatile int x = 0;;) x++;",
    "no memory": "return TENSORC_MEMORY;",
    "only once": "if (calls > 1) C[3] += 1;",
    "late twice": "if (calls < 3) usleep(300);",
    "sleeps": "usleep(2000);",
    "breaks the line": 'fclose(fopen(getenv("FAKE_RAN"), "w"));',
}


_COMPILE = ("cc", "-std=gnu99", "-O1", "-pthread")


@cache
def _made() -> dict[str, bytes]:
    """What the programs with faults share: the objects of a runner of `sums`, and the header of its kernel."""
    task = loads(FILE, threads=1)["sums"]
    library = task.library(task.sample(0))
    assert isinstance(library, Library)
    header = library.make("header")
    with TemporaryDirectory() as name:
        folder = Path(name)
        texts = runner_sources(library.interface, task.target, 1)
        for file, text in (texts | {"sums.h": header.decode()}).items():
            (folder / file).write_text(text, encoding="utf-8")
        sources = [n for n in texts if n.endswith(".c")]
        subprocess.run([*_COMPILE, "-c", *sources], cwd=folder, check=True)
        objects = {p.name: p.read_bytes() for p in folder.glob("*.o")}
    counts = Machine(task.target).object_code(runner_counts(library.interface))
    return objects | {"counts.o": counts, "sums.h": header}


def faulty(fault: str, folder: Path) -> Built:
    """A program for the task `sums` whose kernel has a fault; it is linked as those of searches are."""
    files = _made() | {"kernel.c": KERNEL.replace("FAULT", FAULTS[fault]).encode()}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    names = [n for n in files if not n.endswith(".h")]
    subprocess.run([*_COMPILE, "-static", "-o", "it", *names, "-lm"], cwd=folder, check=True)
    return Built(Code(b"", "", frozenset()), (folder / "it").read_bytes())
