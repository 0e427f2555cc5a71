"""A resource of the system that is used up is a finding with a repair, and no bug."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorc_dsl.faces.cli.failures import exhausted
from tests.started import ALONE


@pytest.mark.parametrize(
    ("raised", "what"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "open files"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "processes or threads"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "room on a disk"),
        (MemoryError(), "memory"),
        (ImportError("/x/_isl.so: failed to map segment from shared object"), "memory"),
        (RuntimeError("can't start new thread"), "processes or threads"),
    ],
)
def test_what_is_used_up(raised: BaseException, what: str) -> None:
    found = exhausted(raised)
    assert found is not None and found.code == "E0927"
    assert found.message == f"the system gives this process no more {what}" and found.notes


def test_the_reason_of_an_import_that_fails_is_looked_for() -> None:
    """NumPy and llvmlite raise errors of their own, with a page of advice."""
    told = ImportError("IMPORTANT: PLEASE READ THIS")
    told.__cause__ = ImportError("libx.so: cannot allocate memory in static TLS block")
    assert exhausted(told) is not None


@pytest.mark.parametrize(
    "raised",
    [
        OSError(errno.ENOENT, "gone"),
        RuntimeError("else"),
        ValueError("failed to map segment"),
        OSError("x"),
        ImportError("no module named `x`"),
        OSError("Could not find/load shared object file 'libllvmlite.so'"),  # where memory is not limited
    ],
)
def test_other_exceptions_are_bugs(raised: BaseException) -> None:
    assert exhausted(raised) is None


TASK = """
use std.cpu
use std.ops.{matmul}
task small = matmul(M=16, N=16, K=16)
"""


def test_a_search_with_too_few_open_files(tmp_path: Path) -> None:
    (tmp_path / "a.tsched").write_text(TASK)
    limited = (
        f"{ALONE}import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))\n"
        "from tensorc_dsl.faces.cli.main import main; main()"
    )
    command = [sys.executable, "-c", limited, "tune", "a.tsched", "--trials", "1", "--records", "r.sqlite"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "error[E0927]: the system gives this process no more open files" in done.stderr


@pytest.mark.corpus
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("space", [70, 130, 160, 230])
@pytest.mark.parametrize("words", [("run",), ("tune", "--trials", "1")])
def test_too_little_address_space(tmp_path: Path, words: tuple[str, ...], space: int, threads: int) -> None:
    """NumPy, SciPy or LLVM cannot be loaded into it: OpenBLAS would end the process by itself, or interrupt it."""
    (tmp_path / "a.tsched").write_text(TASK)
    limited = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({space} << 20, {space} << 20));"
        "from tensorc_dsl.faces.cli.main import main; main()"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", limited, words[0], "a.tsched", "--records", "r.sqlite", *words[1:]]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120
    )
    assert done.returncode == 1, done.stderr
    assert "error[E0927]: the system gives this process no more memory" in done.stderr
    assert "ulimit -v" in done.stderr and "OpenBLAS" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["tune", "--help"], ["db", "list", "--help"], ["db"]])
def test_a_page_of_help_that_cannot_be_printed(words: list[str]) -> None:
    program = "from tensorc_dsl.faces.cli.main import main; main()"
    command = [sys.executable, "-c", program, *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    if words == ["db"]:  # a command that is missing: the page is on standard error
        assert (done.returncode, "Commands:" in done.stderr) == (2, True)
        return
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error[E09"), done.stderr
    assert "make room" in done.stderr
