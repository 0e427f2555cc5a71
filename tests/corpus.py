"""The part of a corpus that one run takes: another one with each state of the package, and what a change touches.

A corpus holds hundreds of cases of one class, such as the schedules after other projects' tests. `pytest --all` runs all of
them, as the nightly workflow does.
"""

from __future__ import annotations

import re
import subprocess
import zlib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

SHARE = 4
"""One case of so many is run."""

NAMED = ("tensorc_dsl/schedule/primitives/", "tensorc_dsl/schedule/queries/", "stdlib/", "tests/foreign/schedules/")
"""Folders whose files have the names that cases use: of steps, modules, computes and pages."""


def in_sample(item: pytest.Item) -> bool:
    """Whether a run without `--all` has that test."""
    if (zlib.crc32(item.nodeid.encode()) ^ _state()) % SHARE == 0:
        return True
    touched = _touched()
    return touched is not None and bool(touched.search(f"{item.nodeid} {getattr(item, 'callspec', '')}"))


@cache
def _state() -> int:
    """A number that is another one after each change of the package."""
    found = 0
    for path in sorted(p for part in ("tensorc_dsl", "stdlib") for p in (ROOT / part).rglob("*.*")):
        if path.suffix in (".py", ".tsched"):
            found = zlib.crc32(path.read_bytes(), found)
    return found


@cache
def _touched() -> re.Pattern[str] | None:
    """The names of the files that the last commit and the working tree change; None where that is not known, or nothing."""
    names: set[str] = set()
    for since in ("HEAD~1", "HEAD"):
        run = ["git", "diff", "--name-only", since]
        try:
            paths = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError):
            continue  # a checkout without history
        names |= {p.stem for p in map(Path, paths) if p.as_posix().startswith(NAMED)}
    return re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b") if names else None
