"""A task's kernel for one schedule, callable on arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorc_dsl.api.known import Origin, describe
from tensorc_dsl.backend.protocol import Bound, LoadedKernel
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import format_shape
from tensorc_dsl.outputs import Output
from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.tuning.search.tune import TuneResult


class Kernel:
    """Call it with the task's inputs to get its outputs, or with inputs and outputs to have the outputs filled.

    `trace` is its schedule, for `target`. `seconds` per call is the time that the search measured, and `search` the result
    of the search; both are None for a kernel that was replayed. `origin` says where the schedule of `Task.best` is from.

    A pickle contains the schedule, but not `search`. Loading it, with the same version of this package, compiles the kernel
    again, or raises TschedError (E0914) if the machine cannot run it. A copy is the same object, since calls do not change
    it.
    """

    def __init__(
        self,
        native: LoadedKernel,
        task: str,
        target: Target,
        trace: Trace,
        seconds: float | None = None,
        search: TuneResult | None = None,
        origin: Origin | None = None,
        text_at: Callable[[Path], str] | None = None,
    ) -> None:
        self._native = native
        self.task = task
        self.target = target
        self.threads = target.cores
        self.trace = trace
        self.seconds = seconds
        self.search = search
        self.origin = origin
        self._text_at = text_at

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The output, or a tuple of several.

        Arrays are given in the order of the task or by name, `kernel(A=a, B=b)`, outputs too: `kernel(a, b, C=c)`. They are
        NumPy's or support DLPack on the CPU; an input without dimensions may be a number. New outputs belong to the library
        of all input arrays, or to NumPy if there are several libraries. Raises ValueError if a name, a dtype, a shape or a
        layout is not the task's, or an array has a mask.
        A kernel for the GPU takes arrays that are there too, see docs/gpu.md; an error of the GPU is a RuntimeError.
        """
        return self._native(*arrays, **named)

    @property
    def constants(self) -> tuple[str, ...]:
        """The names of the constant inputs."""
        return tuple(p.name for p in self._native.params if p.constant)

    def bind(self, /, **constants: Any) -> Bound:
        """The kernel for these constant inputs, all given by name; call it with the other inputs.

        Values that depend on the constant inputs alone are computed here, once, and not in each call. The arrays may change
        afterwards, since the data that calls need are copied. Raises ValueError as a call does.
        """
        return self._native.bind(**constants)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schedule to a file, as the command `tune` does: with its task and its compute or the `use` of it, so that
        it is loaded, run and edited by itself; `Task.replay` takes it too.

        The file has the schedule alone for a kernel from a pickle, and for another machine than this one. What was in it is
        replaced. Raises TschedError (E0903, E0904) if it cannot be written.
        """
        place = Path(path)
        text = self.trace.text if self._text_at is None else self._text_at(place)
        Output(place, typed=True).write(text)

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, _: object) -> Kernel:
        return self

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{format_shape(p.shape)}" for p in self._native.params)
        origin = "" if self.origin is None else f"; schedule {describe(self.origin)}"
        return f"Kernel({params}{origin})"
