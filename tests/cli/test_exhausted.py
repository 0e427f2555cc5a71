"""A resource of the system that is used up is a finding with a repair, and no bug."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tensorc_dsl.cli.failures import exhausted


@pytest.mark.parametrize(
    ("raised", "what"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "open files"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "processes or threads"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (MemoryError(), "memory"),
        (RuntimeError("can't start new thread"), "processes or threads"),
    ],
)
def test_what_is_used_up(raised: BaseException, what: str) -> None:
    found = exhausted(raised)
    assert found is not None and found.code == "E0927"
    assert found.message == f"the system gives this process no more {what}" and found.notes


@pytest.mark.parametrize("raised", [OSError(errno.ENOENT, "gone"), RuntimeError("else"), ValueError("x"), OSError("x")])
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
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12));"
        "from tensorc_dsl.cli.main import main; main()"
    )
    command = [sys.executable, "-c", limited, "tune", "a.tsched", "--trials", "1", "--records", "r.sqlite"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "error[E0927]: the system gives this process no more open files" in done.stderr
