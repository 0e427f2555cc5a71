"""Writes ahead-of-time output to files: all of them or none, each as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.backend.protocol import KernelLibrary
from tensorc_dsl.outputs import Output


def write_files(library: KernelLibrary, outputs: Mapping[Output, str]) -> None:
    """Write each output's form of the library. Raises TschedError, in most cases before anything is written."""
    for output in outputs:
        output.check()
    made = {output: library.make(form) for output, form in outputs.items()}
    for output, data in made.items():
        output.write(data)
