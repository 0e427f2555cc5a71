"""Runs the plan of a model: one call of native code, in one arena, on weights that are packed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorc_dsl.backend.find import require_models
from tensorc_dsl.backend.protocol import LoadedCalls, ModelCalls
from tensorc_dsl.check.models import ModelPlan, shape_of
from tensorc_dsl.faces.api.kernel import Kernel
from tensorc_dsl.graph.arena import PlacedCall, arranged
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Param


class Runtime:
    """A plan with a kernel for each of its tasks, and its weights, ready to run.

    `steps` names the task of each step of `arrangement`, "" for a copy of an output. Weights are packed here, and runs do not
    read them again. Runs may be called from several threads at once: the second one takes memory of its own.
    """

    def __init__(
        self, plan: ModelPlan, kernels: Mapping[str, Kernel], weights: Mapping[str, Array], name: str = "model"
    ) -> None:
        """Raises OutOfMemory, and TschedError (E0910) if models do not run on the target of the kernels."""
        self.inputs, self.outputs = plan.inputs, plan.outputs
        calls = model_calls(plan, name)
        self.arrangement = calls.plan
        self.steps = tuple(s.task if isinstance(s, PlacedCall) else "" for s in self.arrangement.steps)
        self._plan = plan
        self._weights = weights
        kind = next((k.target.kind for k in kernels.values()), Target().kind)
        loaded = {task: k.loaded for task, k in kernels.items()}
        self.calls: LoadedCalls = require_models(kind, name).load_calls(calls, loaded, weights)

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The output, or a tuple of several, for arrays in order or by name: the inputs, or these and the outputs.

        Arrays are taken as `Kernel` takes them; inputs of NumPy that are not dense or aligned are copied. Raises ValueError.
        """
        count = len(self.inputs)
        given = (*map(_dense, arrays[:count]), *arrays[count:])
        return self.calls(*given, **{n: _dense(a) if n in self.inputs else a for n, a in named.items()})

    def run(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The outputs by name, in the arrays `outputs` where these are given, all or none. Raises ValueError."""
        made = self(*(inputs[n] for n in self.inputs), **(outputs or {}))
        return dict(zip(self.outputs, made if len(self.outputs) > 1 else (made,), strict=True))

    def step_times(self, inputs: Mapping[str, Any], repeats: int = 1) -> list[list[float]]:
        """Seconds of each step, in the order of a run, of `repeats` runs in a row: each step as the one before leaves it."""
        return self.calls.step_times(self._ordered(inputs), repeats)

    def arguments_of(self, inputs: Mapping[str, Any], step: int) -> tuple[Array, ...]:
        """The inputs of the call that is step `step`, in the order of its program, after a run of the steps before it."""
        call = self.arrangement.steps[step]
        assert isinstance(call, PlacedCall)
        found = self.calls.arguments_of(self._ordered(inputs), step)
        return tuple(
            self._weights[place.name].reshape(shape_of(b)) if a is None else a
            for a, place, b in zip(found, call.arguments, self._plan.programs[call.task].inputs, strict=True)
        )

    def _ordered(self, inputs: Mapping[str, Any]) -> Sequence[Any]:
        return [_dense(inputs[n]) for n in self.inputs]


def _dense(a: Any) -> Any:
    """An array of NumPy that is C-contiguous and aligned, or whatever else it is."""
    wrong = type(a) is np.ndarray and not (a.flags.c_contiguous and a.flags.aligned)
    return np.array(a, order="C") if wrong else a


def model_calls(plan: ModelPlan, name: str) -> ModelCalls:
    """The model of a plan as a function of arrays."""
    inputs, outputs = (
        tuple(Param.of(plan.values[n], output=output) for n in names)
        for names, output in ((plan.inputs, False), (plan.outputs, True))
    )
    return ModelCalls(name, inputs, outputs, arranged(plan))
