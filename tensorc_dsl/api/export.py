"""Writes ahead-of-time output to files: all of them or none, each as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensorc_dsl.backend.protocol import KernelLibrary
from tensorc_dsl.report.files import check_writable, write_bytes


def write_files(library: KernelLibrary, paths: Mapping[Path, str]) -> None:
    """Write each path's form of the library. Raises TschedError, in most cases before anything is written."""
    for path in paths:
        check_writable(path)
    made = {path: library.make(form) for path, form in paths.items()}
    for path, data in made.items():
        write_bytes(path, data)
