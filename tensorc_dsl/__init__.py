"""A language for tensor computations and their schedules, with a tuner and a compiler.

    import tensorc_dsl

    kernel = tensorc_dsl.load("matmul.tsched")["mm_1k"].tune(trials=64)
    c = kernel(a, b)

`loads` takes a text where `load` takes a file. Each type that a call takes or returns is here by its name, so that it can be
written in annotations. `events` has the events of a search, `handlers` the functions that decide draws.

Importing this package is cheap: the modules that compile and measure are loaded at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorc_dsl.base.diagnostic import TschedError
    from tensorc_dsl.faces.api import (
        Backend,
        Bound,
        CheckedFile,
        Code,
        CompiledKernel,
        Counts,
        Decider,
        Decision,
        Diagnostic,
        Distribution,
        Draw,
        Drawn,
        Emulated,
        Files,
        Forecast,
        FunctionResult,
        FunctionTrial,
        Given,
        Importance,
        Insight,
        Invalid,
        Kernel,
        KernelLibrary,
        Known,
        Learnt,
        LoadedKernel,
        LoadedModel,
        LoweredKernel,
        Model,
        Note,
        NoValidCandidate,
        Origin,
        Outcome,
        Param,
        Pin,
        Plan,
        Prediction,
        Program,
        Queue,
        Recorded,
        Refused,
        Regret,
        Report,
        Roof,
        ScheduleRefusal,
        SearchChanges,
        SearchOptions,
        SearchResult,
        Severity,
        Site,
        Sizes,
        Source,
        Space,
        Span,
        Status,
        StrPath,
        Target,
        Task,
        TaskDef,
        TaskFile,
        Trace,
        Trial,
        TuneResult,
        Unkept,
        UnknownTask,
        Unproved,
        Valid,
        Value,
        WrongSchedule,
        import_onnx,
        load,
        load_model,
        loads,
        tune_function,
    )
    from tensorc_dsl.schedule.trace import handlers
    from tensorc_dsl.tuning.search import events

    __version__: str

__all__ = [
    "Backend",
    "Bound",
    "CheckedFile",
    "Code",
    "CompiledKernel",
    "Counts",
    "Decider",
    "Decision",
    "Diagnostic",
    "Distribution",
    "Draw",
    "Drawn",
    "Emulated",
    "Files",
    "Forecast",
    "FunctionResult",
    "FunctionTrial",
    "Given",
    "Importance",
    "Insight",
    "Invalid",
    "Kernel",
    "KernelLibrary",
    "Known",
    "Learnt",
    "LoadedKernel",
    "LoadedModel",
    "LoweredKernel",
    "Model",
    "NoValidCandidate",
    "Note",
    "Origin",
    "Outcome",
    "Param",
    "Pin",
    "Plan",
    "Prediction",
    "Program",
    "Queue",
    "Recorded",
    "Refused",
    "Regret",
    "Report",
    "Roof",
    "ScheduleRefusal",
    "SearchChanges",
    "SearchOptions",
    "SearchResult",
    "Severity",
    "Site",
    "Sizes",
    "Source",
    "Space",
    "Span",
    "Status",
    "StrPath",
    "Target",
    "Task",
    "TaskDef",
    "TaskFile",
    "Trace",
    "Trial",
    "TschedError",
    "TuneResult",
    "Unkept",
    "UnknownTask",
    "Unproved",
    "Valid",
    "Value",
    "WrongSchedule",
    "__version__",
    "events",
    "handlers",
    "import_onnx",
    "load",
    "load_model",
    "loads",
    "tune_function",
]

_HOMES = {"TschedError": "tensorc_dsl.base.diagnostic"}
_MODULES = {"events": "tensorc_dsl.tuning.search.events", "handlers": "tensorc_dsl.schedule.trace.handlers"}

if not TYPE_CHECKING:  # a type checker sees only the names above

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("tensorc-dsl")
        if name not in __all__:
            raise AttributeError(f"module 'tensorc_dsl' has no attribute {name!r}")
        if name in _MODULES:
            return import_module(_MODULES[name])
        return getattr(import_module(_HOMES.get(name, "tensorc_dsl.faces.api")), name)


def load_ipython_extension(shell: Any) -> None:
    """Have a notebook know `%%tsched` and show tasks, schedules and programs: `%load_ext tensorc_dsl`."""
    import_module("tensorc_dsl.faces.notebook").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take back what `load_ipython_extension` added."""
    import_module("tensorc_dsl.faces.notebook").unload(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
