"""ONNX models of the operators, for runtimes that take them: images as NCHW, weights as constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from bench.against.layouts import channels_first, channels_last, convolution, weight_first
from bench.against.problem import CONVOLUTIONS, Array, Job

OPSET = 23
"""The first version with Attention."""

IR_VERSION = 11


@dataclass(slots=True)
class Model:
    """A chain of nodes, each named by its output. `feeds` are its inputs, `constants` its weights.

    `back` converts the output of the last node to the layout of the task.
    """

    feeds: dict[str, Array]
    constants: dict[str, Array]
    back: Callable[[Array], Array] = lambda y: y
    nodes: list[Any] = field(default_factory=list[Any])

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node. Returns the name of its output."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(import_module("onnx").helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def bytes(self, result: np.dtype[Any]) -> bytes:
        """The serialized model; `result` is the type of its output."""
        onnx = import_module("onnx")
        helper = onnx.helper

        def value(name: str, shape: tuple[int, ...] | None, dtype: np.dtype[Any]) -> Any:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)

        graph = helper.make_graph(
            self.nodes,
            "operator",
            [value(name, a.shape, a.dtype) for name, a in self.feeds.items()],
            [value(self.nodes[-1].output[0], None, result)],
            [onnx.numpy_helper.from_array(a, name) for name, a in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()


def model_of(job: Job) -> Model | None:
    """The operator as a model; None if ONNX does not support it on the types of the job."""
    make = MAKERS.get(job.problem.compute)
    return None if make is None or "bf16" in job.problem.types.values() else make(job)


def _plain(job: Job) -> Model:
    """A model without nodes, whose inputs and constants are those of the task."""
    weights = job.problem.weights
    feeds = {name: a for name, a in job.inputs.items() if name not in weights}
    return Model(feeds, {name: job.inputs[name] for name in weights})


def _one(kind: str, **attributes: Any) -> Callable[[Job], Model]:
    """A model of one node, whose inputs are those of the task."""

    def make(job: Job) -> Model:
        model = _plain(job)
        model.add(kind, *job.inputs, **attributes)
        return model

    return make


def _conv(job: Job) -> Model:
    c = convolution(job)
    model = Model({"X": channels_first(c.x)}, {"F": weight_first(c.f)}, channels_last)
    bias = ("bias",) if "bias" in job.inputs else ()
    model.constants.update({name: job.inputs[name] for name in bias})
    every = [c.stride] * c.rank, [c.pad] * (2 * c.rank), [c.dilation] * c.rank
    model.add("Conv", "X", "F", *bias, strides=every[0], pads=every[1], dilations=every[2], group=c.groups)
    return model


def _conv_bn_relu(job: Job) -> Model:
    model = _conv(job)
    scale, offset = job.take("scale", "offset")
    zero, one = np.zeros_like(scale), np.ones_like(scale)
    model.constants.update(scale=scale, offset=offset, mean=zero, variance=one)
    model.add("Relu", model.add("BatchNormalization", "t0", "scale", "offset", "mean", "variance", epsilon=0.0))
    return model


def _conv_transpose(job: Job) -> Model:
    c = convolution(job)
    # The weight of ConvTranspose has the layout IO….
    f = np.ascontiguousarray(np.moveaxis(c.f, (-2, -1), (0, 1)))
    model = Model({"X": channels_first(c.x)}, {"F": f}, channels_last)
    model.add("ConvTranspose", "X", "F", strides=[c.stride] * c.rank, pads=[c.pad] * (2 * c.rank))
    return model


def _scores(job: Job) -> Model:
    model = _plain(job)
    q = model.add("Transpose", "Q", perm=[0, 2, 1, 3])
    k = model.add("Transpose", "K", perm=[0, 2, 3, 1])
    model.add("MatMul", q, k)
    return model


def _dense_gelu(job: Job) -> Model:
    model = _plain(job)
    model.add("Gelu", model.add("Add", model.add("MatMul", "X", "W"), "b"))
    return model


def _norm(job: Job) -> Model:
    model = _plain(job)
    model.constants["axes"] = np.array([1, 2])
    model.add("ReduceL2", "A", "axes", keepdims=0)
    return model


MAKERS: dict[str, Callable[[Job], Model]] = {
    "matmul": _one("MatMul"),
    "batch_matmul": _one("MatMul"),
    "matmul_u8i8": _one("MatMulInteger"),
    "transpose_batch_matmul": _scores,
    "dense_gelu": _dense_gelu,
    **dict.fromkeys(CONVOLUTIONS, _conv),
    "conv2d_transpose_nhwc": _conv_transpose,
    "conv2d_bn_relu_nhwc": _conv_bn_relu,
    "norm_bmn": _norm,
    "softmax": _one("Softmax", axis=-1),
    "layer_norm": _one("LayerNormalization", axis=-1, epsilon=1e-5),
    "attention": _one("Attention"),
    "transpose": _one("Transpose", perm=[1, 0]),
    "add": _one("Add"),
    "copy": _one("Identity"),
}
