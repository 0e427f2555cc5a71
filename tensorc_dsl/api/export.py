"""What is made ahead of time, as files: written whole or not at all, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensorc_dsl.backend.protocol import KernelLibrary
from tensorc_dsl.report.files import check_writable, write_bytes


def write_files(library: KernelLibrary, paths: Mapping[Path, str]) -> None:
    """Each path holds what it is to hold afterwards. Raises TschedError, mostly before anything is written."""
    for path in paths:
        check_writable(path)
    made = {path: library.make(form) for path, form in paths.items()}
    for path, data in made.items():
        write_bytes(path, data)
