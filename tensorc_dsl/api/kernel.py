"""A scheduled task in machine code, callable on arrays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tensorc_dsl.backend.protocol import Bound, LoadedKernel
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import format_shape
from tensorc_dsl.report.files import write_text
from tensorc_dsl.search.tune import TuneResult
from tensorc_dsl.trace.trace import Trace


class Kernel:
    """Call it with the task's inputs to get its outputs, or with inputs and outputs to have the outputs filled.

    `trace` is the schedule it was made by, for `target`. `seconds` per call is what the search measured, and `search` what it
    found; both are None for a kernel that was replayed.

    A pickle holds the schedule, but not `search`; loading it, by the same version of this package, makes the kernel again, or
    raises TschedError (E0914) where the machine cannot run it. A copy is the kernel itself: calls do not change it.
    """

    def __init__(
        self,
        native: LoadedKernel,
        task: str,
        target: Target,
        trace: Trace,
        seconds: float | None = None,
        search: TuneResult | None = None,
    ) -> None:
        self._native = native
        self.task = task
        self.target = target
        self.threads = target.cores
        self.trace = trace
        self.seconds = seconds
        self.search = search

    def __call__(self, *arrays: Any) -> Any:
        """The output, or a tuple of several.

        Arrays are NumPy's or speak DLPack on the CPU; a number will do for an input without dimensions. New outputs are of
        the library that all input arrays are of, NumPy's where there are several. ValueError when a dtype, a shape or a
        layout is not the task's, or an array has a mask.
        """
        return self._native(*arrays)

    @property
    def constants(self) -> tuple[str, ...]:
        """The names of the constant inputs."""
        return tuple(p.name for p in self._native.params if p.constant)

    def bind(self, **constants: Any) -> Bound:
        """The kernel for these constant inputs, all of them by name; call it with the other ones.

        What follows from the constant inputs alone is computed here, once, and not in each call. The arrays may change
        afterwards: what calls need of them is copied. ValueError as for a call.
        """
        return self._native.bind(**constants)

    def save(self, path: str | os.PathLike[str]) -> None:
        """The file holds the schedule afterwards, for `Task.replay`. Raises TschedError where it cannot be written."""
        write_text(Path(path), self.trace.text)

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, _: object) -> Kernel:
        return self

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{format_shape(p.shape)}" for p in self._native.params)
        return f"Kernel({params})"
