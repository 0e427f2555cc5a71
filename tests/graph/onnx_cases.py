"""Small ONNX models of single nodes, and what runs them: the computes that are written, and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.models import Call, shape_of
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.graph.graph import onnx_dtype
from tensorc_dsl.graph.importing import import_graph
from tensorc_dsl.graph.onnx_file import read_onnx
from tensorc_dsl.graph.writing import written
from tensorc_dsl.reference.evaluate import evaluate

Array = NDArray[Any]


@dataclass
class Case:
    """A node with its inputs; those in `fixed` are constants of the model."""

    op: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fixed: Sequence[int] = ()
    outputs: int = 1
    opset: int = 18


def model_of(case: Case) -> onnx.ModelProto:
    """The model of the node alone."""
    names = [f"x{n}" if x is not None else "" for n, x in enumerate(case.inputs)]
    ends = [f"y{n}" for n in range(case.outputs)]
    given = [(n, x) for n, x in enumerate(case.inputs) if x is not None]
    inputs = [
        helper.make_tensor_value_info(f"x{n}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in given
        if n not in case.fixed
    ]
    constants = [numpy_helper.from_array(x, f"x{n}") for n, x in given if n in case.fixed]
    outputs = [onnx.ValueInfoProto(name=e) for e in ends]
    graph = helper.make_graph(
        [helper.make_node(case.op, names, ends, **case.attributes)], "net", inputs, outputs, constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=9)


def by_runtime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime makes of it, node by node."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(o) for o in session.run(None, dict(inputs))]


def silence() -> None:
    """Let ONNX Runtime print nothing of what it refuses."""
    onnxruntime.set_default_logger_severity(4)


def checked(model: onnx.ModelProto, folder: Path, **values: float) -> tuple[CheckedFile, dict[str, Array]]:
    """The file that an import writes, checked; and its weights."""
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    text, weights = written(import_graph(read_onnx(path), {}, values), "net", path.name, "net.safetensors")
    return load_source(Source.of(text.encode(), "net.tsched")), weights


def by_reference(file: CheckedFile, weights: Mapping[str, Array], inputs: Sequence[Array]) -> list[Array]:
    """What the computes of the file's model make of the inputs by the reference, which neither schedules nor compiles."""
    (plan,) = file.plans.values()
    values = dict(weights) | dict(zip(plan.inputs, inputs, strict=True))
    for step in plan.steps:
        if isinstance(step, Call):
            program = plan.programs[step.task]
            given = {p.name: values[a] for p, a in zip(program.inputs, step.arguments, strict=True)}
            made = evaluate(program, given)
            values |= zip(step.results, (made[p.name] for p in program.params if p.name in made), strict=True)
        else:
            values[step.result] = values[step.argument].reshape(shape_of(plan.values[step.result]))
    return [values[o].astype(onnx_dtype(plan.values[o].dtype.name)) for o in plan.outputs]


def require_equal(case: Case, folder: Path) -> None:
    """The computes make of the node's inputs what ONNX Runtime does."""
    model = model_of(case)
    inputs = {f"x{n}": x for n, x in enumerate(case.inputs) if x is not None and n not in case.fixed}
    wanted = by_runtime(model, inputs)
    made = by_reference(*checked(model, folder), list(inputs.values()))
    for m, w in zip(made, wanted, strict=True):
        assert (m.dtype, m.shape) == (w.dtype, w.shape)
        if w.dtype.kind == "f":
            np.testing.assert_allclose(m.astype(np.float64), w.astype(np.float64), rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(m, w)


def variant(case: Case, **changes: Any) -> Case:
    """The case with other fields."""
    return replace(case, **changes)
