"""The Python interface: files of tasks, tasks that can be tuned, kernels that can be called.

Printing and the command line are in `cli`; searching and running are in the layers below.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorc_dsl.backend.protocol import (
        Backend,
        Bound,
        Code,
        CompiledKernel,
        Counts,
        Form,
        KernelLibrary,
        LoadedKernel,
        LoweredKernel,
        Registers,
    )
    from tensorc_dsl.base.diagnostic import Diagnostic, Note, Severity, TschedError
    from tensorc_dsl.base.source import Source, Span
    from tensorc_dsl.check.scope import CheckedFile
    from tensorc_dsl.faces.api.functions import tune_function
    from tensorc_dsl.faces.api.kernel import Drawn, Forecast, Given, Kernel, Known, Origin, Recorded
    from tensorc_dsl.faces.api.model_timing import (
        ModelComparison,
        ModelGroup,
        ModelProfile,
        OutputDifference,
        TimedCall,
        compare_model,
        profile_model,
    )
    from tensorc_dsl.faces.api.model_tuning import ModelTuning, TunedTask, TunedWay, TuningDisplay, tune_model
    from tensorc_dsl.faces.api.models import LoadedModel, Runtime, from_torch, import_onnx, load_model
    from tensorc_dsl.faces.api.searching import Insight, NoValidCandidate, Plan, SearchResult, WrongSchedule
    from tensorc_dsl.faces.api.tasks import StrPath, Task, TaskFile, UnknownTask, load, loads
    from tensorc_dsl.faces.packages import Files
    from tensorc_dsl.graph.arena import Arrangement
    from tensorc_dsl.interp.space import Space
    from tensorc_dsl.ir.program import Program
    from tensorc_dsl.ir.sizes import Sizes
    from tensorc_dsl.ir.target import Target
    from tensorc_dsl.lower.flat import Param
    from tensorc_dsl.proof.equivalence.validate import Invalid, Report, Unproved, Valid
    from tensorc_dsl.schedule.step import ScheduleRefusal
    from tensorc_dsl.schedule.trace import handlers
    from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
    from tensorc_dsl.schedule.trace.trace import Decider, Draw, Model, Refused, Site, Trace
    from tensorc_dsl.syntax.tree import TaskDef
    from tensorc_dsl.tuning.cluster.pool import Pool, connect
    from tensorc_dsl.tuning.cluster.ssh import Board
    from tensorc_dsl.tuning.insight import Importance, Learnt, Pin, Value
    from tensorc_dsl.tuning.machine.roof import Roof
    from tensorc_dsl.tuning.measure.emulation import Emulated
    from tensorc_dsl.tuning.measure.outcome import MachineChange, Outcome, Status
    from tensorc_dsl.tuning.records.database import Queue, Unkept
    from tensorc_dsl.tuning.records.trial import Trial
    from tensorc_dsl.tuning.search import events
    from tensorc_dsl.tuning.search.function import FunctionResult, FunctionTrial
    from tensorc_dsl.tuning.search.options import Objective, SearchChanges, SearchOptions
    from tensorc_dsl.tuning.search.strategy import Prediction, Regret
    from tensorc_dsl.tuning.search.tune import TuneResult

__all__ = [
    "Arrangement",
    "Backend",
    "Board",
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
    "Form",
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
    "MachineChange",
    "Model",
    "ModelComparison",
    "ModelGroup",
    "ModelProfile",
    "ModelTuning",
    "NoValidCandidate",
    "Note",
    "Objective",
    "Origin",
    "Outcome",
    "OutputDifference",
    "Param",
    "Pin",
    "Plan",
    "Pool",
    "Prediction",
    "Program",
    "Queue",
    "Recorded",
    "Refused",
    "Registers",
    "Regret",
    "Report",
    "Roof",
    "Runtime",
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
    "TimedCall",
    "Trace",
    "Trial",
    "TschedError",
    "TuneResult",
    "TunedTask",
    "TunedWay",
    "TuningDisplay",
    "Unkept",
    "UnknownTask",
    "Unproved",
    "Valid",
    "Value",
    "WrongSchedule",
    "compare_model",
    "connect",
    "events",
    "from_torch",
    "handlers",
    "import_onnx",
    "load",
    "load_model",
    "loads",
    "profile_model",
    "tune_function",
    "tune_model",
]

_NAMES = {
    "backend.protocol": "Backend Bound Code CompiledKernel Counts Form KernelLibrary LoadedKernel LoweredKernel Registers",
    "base.diagnostic": "Diagnostic Note Severity TschedError",
    "base.source": "Source Span",
    "check.scope": "CheckedFile",
    "faces.api.functions": "tune_function",
    "faces.api.kernel": "Drawn Forecast Given Kernel Known Origin Recorded",
    "faces.api.model_timing": "ModelComparison ModelGroup ModelProfile OutputDifference TimedCall compare_model"
    " profile_model",
    "faces.api.model_tuning": "TuningDisplay ModelTuning TunedTask TunedWay tune_model",
    "faces.api.models": "LoadedModel Runtime from_torch import_onnx load_model",
    "faces.api.searching": "Insight NoValidCandidate Plan SearchResult WrongSchedule",
    "faces.api.tasks": "StrPath Task TaskFile UnknownTask load loads",
    "faces.packages": "Files",
    "graph.arena": "Arrangement",
    "interp.space": "Space",
    "ir.program": "Program",
    "ir.sizes": "Sizes",
    "ir.target": "Target",
    "lower.flat": "Param",
    "proof.equivalence.validate": "Invalid Report Unproved Valid",
    "schedule.step": "ScheduleRefusal",
    "schedule.trace.distribution": "Decision Distribution",
    "schedule.trace.trace": "Decider Draw Model Refused Site Trace",
    "syntax.tree": "TaskDef",
    "tuning.cluster.pool": "Pool connect",
    "tuning.cluster.ssh": "Board",
    "tuning.insight": "Importance Learnt Pin Value",
    "tuning.machine.roof": "Roof",
    "tuning.measure.emulation": "Emulated",
    "tuning.measure.outcome": "MachineChange Outcome Status",
    "tuning.records.database": "Queue Unkept",
    "tuning.records.trial": "Trial",
    "tuning.search.function": "FunctionResult FunctionTrial",
    "tuning.search.options": "Objective SearchChanges SearchOptions",
    "tuning.search.strategy": "Prediction Regret",
    "tuning.search.tune": "TuneResult",
}
"""The names that each module has. A module is loaded when one of them is first used."""

_HOMES = {name: f"tensorc_dsl.{module}" for module, names in _NAMES.items() for name in names.split()}
_MODULES = {"events": "tensorc_dsl.tuning.search.events", "handlers": "tensorc_dsl.schedule.trace.handlers"}

if not TYPE_CHECKING:  # a type checker sees only the names above

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(_MODULES[name])
        if name not in _HOMES:
            raise AttributeError(f"module 'tensorc_dsl' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
