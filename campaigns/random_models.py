"""Random ONNX models of all opsets beside ONNX Runtime: `python -m campaigns.random_models --seed 0 --count 100`.

A model grows node by node, of the operators in the forms that its opset has: what ONNX Runtime refuses is taken back.
Parameters are attributes or inputs, "" or left out; axes are negative; constants are initializers, inputs with a default, or
nodes; values have names of any characters, and are outputs, too. The import computes the same by the reference, or says what
it refuses.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tensorc_dsl.base.diagnostic import TschedError
from tests.graph.onnx_cases import Array, by_reference, by_runtime, checked, silence

OPSETS = range(7, 24)
MOST_ELEMENTS = 4096
OWN = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""

_ODD = (
    "x",
    "X",
    "x:0",
    "/a/b",
    "a b",
    "ä",
    "1",
    "if",
    "let",
    "sum",
    "reshape",
    "add_1",
    "relu_1",
    "_",
    "f32",
    "net",
    "x.y-z",
    "max",
)
"""Names of values, whose like other exporters write."""


@dataclass
class Growing:
    """A model while it grows: its values with their contents, all computed by ONNX Runtime."""

    rng: Random
    opset: int
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    inputs: dict[str, Array] = field(default_factory=dict[str, Array])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])

    def name(self) -> str:
        known = {*self.values, *self.inputs, *self.constants}
        free = [n for n in _ODD if n not in known]
        if free and self.rng.random() < 0.5:
            return self.rng.choice(free)
        return f"{self.rng.choice(('v', 'V', '/m/v', 'v:'))}{len(known)}"

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """The name of a constant: an initializer or a node."""
        array = np.asarray(value, dtype)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def some(self, kind: str = "f", rank: Sequence[int] = (), empty: bool = False) -> str | None:
        """A value whose elements are of a kind of NumPy, of one of the ranks; on one without elements runtimes may crash."""
        fitting = [
            n
            for n, v in self.values.items()
            if v.dtype.kind in kind and (not rank or v.ndim in rank) and (v.size or empty)
        ]
        return self.rng.choice(fitting[-6:]) if fitting else None

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The model so far. Some constants are inputs with a default, as in old files, and some are nodes."""
        rng = Random(len(self.nodes))

        def typed(name: str, value: Array) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)

        inputs = [typed(n, v) for n, v in self.inputs.items()]
        stored, nodes = list[TensorProto](), list[onnx.NodeProto]()
        for n, v in self.constants.items():
            how = rng.random()
            if how < 0.2:
                nodes.append(helper.make_node("Constant", [], [n], value=numpy_helper.from_array(v)))
                continue
            stored.append(numpy_helper.from_array(v, n))
            if how < 0.35:
                inputs.append(typed(n, v))
        ends = [onnx.ValueInfoProto(name=o) for o in outputs]
        graph = helper.make_graph([*nodes, *self.nodes], "net", inputs, ends, stored)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(OWN, 1)] if any(n.domain for n in self.nodes) else []
        return helper.make_model(graph, opset_imports=opsets, ir_version=8 if self.opset < 20 else 10)

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> bool:
        """Add a node, unless ONNX Runtime refuses it."""
        names = [self.name()]
        while len(names) < outputs:
            names.append(f"{names[0]}_{len(names)}")
        before = len(self.nodes)
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(op, list(inputs), names, f"{op} of {names[0]}", **given))
        try:
            made = by_runtime(self.model(names), self.inputs)
        except Exception:  # of ONNX Runtime's own kinds
            del self.nodes[before:]
            return False
        # Of NaN and infinities runtimes differ: which is the largest, what it is quantized.
        if any(m.size > MOST_ELEMENTS or (m.dtype.kind == "f" and not np.isfinite(m).all()) for m in made):
            del self.nodes[before:]
            return False
        self.values |= dict(zip(names, made, strict=True))
        return True


Grow = Callable[[Growing], object]


def _axis(g: Growing, rank: int) -> int:
    return g.rng.randrange(-rank, rank) if rank else 0


def _axes(g: Growing, rank: int) -> list[int]:
    chosen = g.rng.sample(range(rank), g.rng.randint(1, rank)) if rank else []
    return [a - rank if g.rng.random() < 0.4 and g.opset >= 11 else a for a in chosen]


def _named(g: Growing, op: str, x: str, since: int, axes: list[int] | None, name: str = "axes", **more: Any) -> None:
    """A node whose axes are an attribute before an opset, and an input since."""
    if g.opset < since:
        g.add(op, [x], **{name: axes}, **more)
    else:
        g.add(op, [x] if axes is None else [x, g.constant(axes)], **more)


def _unary(g: Growing) -> None:
    ops = "Relu Sigmoid Tanh Exp Neg Abs Floor Ceil Softplus Softsign Elu Selu LeakyRelu HardSigmoid Identity Sqrt".split()
    ops += ["Reciprocal"]
    ops += ["Erf", "Sign", "Sinh", "IsNaN"] * (g.opset >= 9) + ["Round", "Celu"] * (g.opset >= 12)
    ops += ["HardSwish"] * (g.opset >= 14) + ["Mish"] * (g.opset >= 18) + ["Gelu"] * (g.opset >= 20)
    if x := g.some():
        g.add(g.rng.choice(ops), [x])


def _binary(g: Growing) -> None:
    x = g.some("fi")
    if not x:
        return
    v = g.values[x]
    op = g.rng.choice("Add Sub Mul Div Max Min Pow PRelu Greater Less Equal Mean Sum".split())
    same = [n for n, o in g.values.items() if o.dtype == v.dtype]
    if g.rng.random() < 0.5:
        shape = [n if g.rng.random() < 0.6 else 1 for n in v.shape][g.rng.randint(0, v.ndim) :]
        content = np.random.default_rng(len(g.values)).uniform(0.5, 2.5, shape)
        other = g.constant(content, v.dtype)
    else:
        other = g.rng.choice(same)
    pair = [x, other] if g.rng.random() < 0.7 else [other, x]
    g.add(op, pair)


def _reduce(g: Growing) -> None:
    x = g.some()
    if not x:
        return
    op = g.rng.choice("Sum Mean Max Min Prod L1 L2 LogSumExp SumSquare".split())
    axes = _axes(g, g.values[x].ndim) if g.rng.random() < 0.8 else None
    more: dict[str, Any] = {"keepdims": g.rng.choice((0, 1, None))}
    since = 13 if op == "Sum" else 18
    if g.opset >= since and g.rng.random() < 0.2:
        more["noop_with_empty_axes"] = 1
    _named(g, f"Reduce{op}", x, since, axes or None, **more)


def _softmax(g: Growing) -> None:
    if x := g.some(rank=(1, 2, 3, 4)):
        low = -g.values[x].ndim if g.opset >= 11 else 0
        axis = g.rng.choice((None, g.rng.randrange(low, g.values[x].ndim)))
        g.add(g.rng.choice(("Softmax", "LogSoftmax", "Hardmax")), [x], axis=axis)


def _arg(g: Growing) -> None:
    if x := g.some(rank=(1, 2, 3, 4)):
        axis = _axis(g, g.values[x].ndim) if g.opset >= 11 else g.rng.randrange(g.values[x].ndim)
        last = g.rng.choice((None, 1)) if g.opset >= 12 else None
        g.add(g.rng.choice(("ArgMax", "ArgMin")), [x], axis=axis, keepdims=g.rng.choice((0, 1)), select_last_index=last)


def _shape(g: Growing) -> None:
    x = g.some("fib", empty=True)
    if not x:
        return
    v = g.values[x]
    match g.rng.randrange(7):
        case 0:
            shape = list(v.shape)
            if v.ndim and g.rng.random() < 0.5:
                shape[g.rng.randrange(v.ndim)] = 0
            if v.ndim:
                shape = [*shape[:-1], -1] if g.rng.random() < 0.5 else [-1, *shape[1:]]
            g.add("Reshape", [x, g.constant(shape)])
        case 1:
            g.add("Flatten", [x], axis=g.rng.choice((None, g.rng.randint(-v.ndim if g.opset >= 11 else 0, v.ndim))))
        case 2:
            ones = [k for k, n in enumerate(v.shape) if n == 1]
            _named(g, "Squeeze", x, 13, g.rng.sample(ones, 1) if ones and g.rng.random() < 0.7 else None)
        case 3:
            _named(g, "Unsqueeze", x, 13, [g.rng.randint(-v.ndim - 1 if g.opset >= 11 else 0, v.ndim)])
        case 4:
            g.add("Transpose", [x], perm=g.rng.choice((None, g.rng.sample(range(v.ndim), v.ndim) or None)))
        case 5 if v.ndim:
            # What exporters write to keep the batch.
            shape = g.name()
            g.nodes.append(helper.make_node("Shape", [x], [shape]))
            g.values[shape] = np.array(v.shape)
            first = g.name()
            g.nodes.append(helper.make_node("Gather", [shape, g.constant(0)], [first], axis=0))
            g.values[first] = np.array(v.shape[0])
            _named(g, "Unsqueeze", first, 13, [0])
            row = next(reversed(g.values))
            if g.add("Concat", [row, g.constant([-1])], axis=0):
                g.add("Reshape", [x, next(reversed(g.values))])
        case _:
            g.add("Expand" if g.opset >= 8 else "Identity", [x, g.constant([2, *v.shape])][: 1 + (g.opset >= 8)])


def _slice(g: Growing) -> None:
    x = g.some("fi", (1, 2, 3, 4))
    if not x:
        return
    v = g.values[x]
    axes = g.rng.sample(range(v.ndim), g.rng.randint(1, v.ndim))
    starts = [g.rng.randint(-v.shape[a] - 1, v.shape[a]) for a in axes]
    ends = [g.rng.choice((g.rng.randint(-v.shape[a] - 1, v.shape[a] + 1), 1 << 31)) for a in axes]
    if g.opset < 10:
        g.add("Slice", [x], starts=starts, ends=ends, axes=axes)
        return
    steps = [g.rng.choice((1, 1, 2, -1, -2)) for _ in axes]
    inputs = [x, g.constant(starts), g.constant(ends)]
    if g.rng.random() < 0.8:
        inputs.append(g.constant([a - v.ndim if g.rng.random() < 0.3 else a for a in axes]))
        if g.rng.random() < 0.7:
            inputs.append(g.constant(steps))
    elif g.rng.random() < 0.5:
        inputs += ["", g.constant(steps)]
    g.add("Slice", inputs)


def _split(g: Growing) -> None:
    x = g.some("fi", (1, 2, 3, 4))
    if not x:
        return
    v = g.values[x]
    axis = _axis(g, v.ndim) if g.opset >= 11 else g.rng.randrange(v.ndim)
    size = v.shape[axis]
    if g.rng.random() < 0.6 and size > 1:
        first = g.rng.randint(0, size)
        sizes = [first, size - first]
        if g.opset < 13:
            g.add("Split", [x], 2, axis=axis, split=sizes)
        else:
            g.add("Split", [x, g.constant(sizes)], 2, axis=axis)
    else:
        count = g.rng.randint(1, 3)
        g.add("Split", [x], count, axis=axis, num_outputs=count if g.opset >= 18 else None)


def _join(g: Growing) -> None:
    if x := g.some("fi", (1, 2, 3, 4), empty=True):
        v = g.values[x]
        axis = _axis(g, v.ndim) if g.opset >= 11 else g.rng.randrange(v.ndim)
        rest = [n for n, o in g.values.items() if o.dtype == v.dtype and o.ndim == v.ndim]
        g.add("Concat", [x, *g.rng.choices(rest, k=g.rng.randint(0, 2))], axis=axis)


def _pad(g: Growing) -> None:
    x = g.some("f", (1, 2, 3, 4))
    if not x:
        return
    v = g.values[x]
    mode = g.rng.choice(("constant", "constant", "reflect", "edge", None))
    pads = [g.rng.randint(-1 if mode == "constant" else 0, 2) for _ in range(2 * v.ndim)]
    if g.opset < 11:
        g.add("Pad", [x], mode=mode, pads=pads, value=g.rng.choice((None, 1.5)))
        return
    inputs = [x, g.constant(pads)]
    if g.rng.random() < 0.5:
        inputs.append(g.rng.choice(("", g.constant(0.5, v.dtype))))
    if g.opset >= 18 and g.rng.random() < 0.3:
        axis = g.rng.randrange(-v.ndim, v.ndim)
        inputs = [x, g.constant([1, 2]), "", g.constant([axis])]
    g.add("Pad", inputs, mode=mode)


def _look_up(g: Growing) -> None:
    x = g.some("fi", (1, 2, 3, 4))
    if not x:
        return
    v = g.values[x]
    axis = _axis(g, v.ndim)
    size = v.shape[axis]
    if not size:
        return
    at: Any = g.rng.choice((g.rng.randrange(-size, size), [g.rng.randrange(size)], [[0, size - 1], [-1, 0]]))
    if g.opset < 11:
        at, axis = np.maximum(at, 0), axis % v.ndim
    match g.rng.randrange(4):
        case 0:
            g.add("Gather", [x, g.constant(at, g.rng.choice((np.int32, np.int64)))], axis=axis)
        case 1 if g.opset >= 11:
            shape = [g.rng.randint(1, n) if n else 0 for n in v.shape]
            index = np.random.default_rng(len(g.values)).integers(-size, size, shape)
            g.add("GatherElements", [x, g.constant(index)], axis=axis)
        case 2:
            k = g.rng.randint(1, size)
            if g.opset < 10:
                g.add("TopK", [x], 2, k=k, axis=axis % v.ndim)
            else:
                g.add(
                    "TopK",
                    [x, g.constant([k])],
                    2,
                    axis=axis,
                    largest=g.rng.choice((None, 0)) if g.opset >= 11 else None,
                )
        case 3 if g.opset >= 11:
            g.add("CumSum", [x, g.constant(axis)], exclusive=g.rng.choice((0, 1)), reverse=g.rng.choice((0, 1)))
        case _:
            g.add("Tile", [x, g.constant([g.rng.randint(1, 2) for _ in v.shape])])


def _convert(g: Growing) -> None:
    x = g.some("fib")
    if not x:
        return
    to = g.rng.choice((TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE))
    match g.rng.randrange(4):
        case 0 if g.values[x].dtype.kind != "f" or np.isfinite(g.values[x]).all():
            g.add("Cast", [x], to=to)
        case 1 if g.values[x].dtype.kind == "f":
            bounds = [-0.5, 0.75]
            if g.opset < 11:
                g.add("Clip", [x], min=g.rng.choice((None, -0.5)), max=g.rng.choice((None, 0.75)))
            else:
                inputs = [g.rng.choice(("", g.constant(b, g.values[x].dtype))) for b in bounds]
                g.add("Clip", [x, *inputs])
        case 2:
            condition = g.some("b")
            if condition and g.opset >= 9:
                same = [n for n, o in g.values.items() if o.dtype == g.values[x].dtype]
                g.add("Where", [condition, x, g.rng.choice(same)])
        case _:
            ratio = g.rng.choice((None, 0.3)) if g.opset < 12 else None
            # Before opset 12 ONNX Runtime has a mask of false.
            g.add("Dropout", [x], g.rng.choice((1, 2)) if g.opset >= 12 else 1, ratio=ratio)


def _image(g: Growing) -> None:
    x = g.some("f", (3, 4, 5))
    if not x:
        return
    v = g.values[x]
    rank, channels = v.ndim - 2, v.shape[1]
    draw = np.random.default_rng(len(g.values))

    def drawn(*shape: int) -> str:
        return g.constant(draw.uniform(-0.6, 0.6, shape), v.dtype)

    kernel = [g.rng.randint(1, 3) for _ in range(rank)]
    more: dict[str, Any] = {"strides": g.rng.choice((None, [g.rng.randint(1, 2) for _ in range(rank)]))}
    if g.rng.random() < 0.3:
        more["auto_pad"] = g.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif g.rng.random() < 0.6:
        more["pads"] = [g.rng.randint(0, k - 1) for k in kernel + kernel]
    match g.rng.randrange(9):
        case 0 | 1:
            group = g.rng.choice([n for n in (1, channels) if n])
            if g.rng.random() < 0.3 and "auto_pad" not in more:
                more["dilations"] = [2] * rank
            weights = [drawn(2 * group, channels // group, *kernel)]
            if g.rng.random() < 0.5:
                weights.append(drawn(2 * group))
            g.add("Conv", [x, *weights], group=group, kernel_shape=g.rng.choice((None, kernel)), **more)
        case 2:
            if more.get("auto_pad", "VALID") != "VALID":
                del more["auto_pad"]  # with steps beyond the kernel, ONNX Runtime makes fewer elements than ONNX says
            if more.get("strides") and g.rng.random() < 0.3:
                more["output_padding"] = [s - 1 for s in more["strides"]]
            g.add("ConvTranspose", [x, drawn(channels, 2, *kernel)], **more)
        case 3:
            ceil = g.rng.choice((None, 1)) if g.opset >= 10 else None
            g.add(
                "MaxPool", [x], g.rng.choice((1, 2)) if g.opset >= 8 else 1, kernel_shape=kernel, ceil_mode=ceil, **more
            )
        case 4:
            ceil = g.rng.choice((None, 1)) if g.opset >= 10 else None
            include = g.rng.choice((None, 1))
            g.add("AveragePool", [x], kernel_shape=kernel, ceil_mode=ceil, count_include_pad=include, **more)
        case 5:
            variance = g.constant(draw.uniform(0.5, 2, channels), v.dtype)
            g.add(
                "BatchNormalization",
                [x, *(drawn(channels) for _ in range(3)), variance],
                epsilon=g.rng.choice((None, 1e-3)),
            )
        case 6:
            g.add("InstanceNormalization", [x, drawn(channels), drawn(channels)])
        case 7:
            op = g.rng.choice(("GlobalAveragePool", "GlobalMaxPool", "LRN"))
            g.add(op, [x], size=3 if op == "LRN" else None)
        case _:
            _resize(g, x)


def _resize(g: Growing, x: str) -> None:
    v = g.values[x]
    factors = [1.0, 1.0, *(g.rng.choice((1.0, 2.0, 1.5, 0.5, 0.7, 3.0)) for _ in v.shape[2:])]
    scales, mode = g.constant(factors, np.float32), g.rng.choice(("nearest", "nearest", "linear"))
    if g.opset < 9:
        g.add("Upsample", [x], mode=mode, scales=[max(f, 1.0) for f in factors])
    elif g.opset < 10:
        g.add("Upsample", [x, g.constant([max(f, 1.0) for f in factors], np.float32)], mode=mode)
    elif g.opset < 11:
        g.add("Resize", [x, scales], mode=mode)
    else:
        hows = "half_pixel pytorch_half_pixel align_corners asymmetric".split()
        hows += ["tf_half_pixel_for_nn"] * (g.opset < 13) + ["half_pixel_symmetric"] * (g.opset >= 19)
        mode = g.rng.choice((mode, "cubic")) if v.ndim == 4 else mode
        more: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": g.rng.choice((None, *hows))}
        if mode == "nearest":
            more["nearest_mode"] = g.rng.choice((None, "floor", "ceil", "round_prefer_ceil"))
        roi = "" if g.opset >= 13 else g.constant([], np.float32)
        # By scales whose sizes are rounded, ONNX does not align the corners of the result, and ONNX Runtime does.
        if g.rng.random() < 0.5 and more["coordinate_transformation_mode"] != "align_corners":
            g.add("Resize", [x, roi, scales], **more)
        else:
            sizes = [*v.shape[:2], *(g.rng.randint(1, 2 * n + 1) for n in v.shape[2:])]
            none = "" if g.opset >= 13 else g.constant([], np.float32)
            g.add("Resize", [x, roi, none, g.constant(sizes)], **more)


def _product(g: Growing) -> None:
    x = g.some("f", (1, 2, 3, 4))
    if not x:
        return
    v = g.values[x]
    draw = np.random.default_rng(len(g.values))
    if v.ndim == 2 and g.rng.random() < 0.5:
        across, down = g.rng.choice((None, 1)), g.rng.choice((None, 1))
        inner, rows = (v.shape[0], v.shape[1]) if across else (v.shape[1], v.shape[0])
        w = g.constant(draw.uniform(-1, 1, (3, inner) if down else (inner, 3)), v.dtype)
        c = g.constant(draw.uniform(-1, 1, g.rng.choice(((), (3,), (1, 3), (rows, 1), (rows, 3)))), v.dtype)
        inputs = [x, w] if g.opset >= 11 and g.rng.random() < 0.3 else [x, w, c]
        g.add(
            "Gemm",
            inputs,
            transA=across,
            transB=down,
            alpha=g.rng.choice((None, 0.5)),
            beta=g.rng.choice((None, 0.0, 2.0)),
        )
    else:
        shape = g.rng.choice(((v.shape[-1], 3), (v.shape[-1],), (2, *(1,) * max(v.ndim - 3, 0), v.shape[-1], 3)))
        g.add("MatMul", [x, g.constant(draw.uniform(-1, 1, shape), v.dtype)])


def _quantized(g: Growing) -> None:
    x = g.some("f", (1, 2, 3, 4))
    if not x or g.opset < 10 or g.values[x].dtype != np.float32:
        return
    v = g.values[x]
    to = g.rng.choice((np.uint8, np.int8))
    axis = _axis(g, v.ndim) if g.opset >= 13 and g.rng.random() < 0.5 else None
    count = () if axis is None else (v.shape[axis],)
    scale = g.constant(np.random.default_rng(len(g.values)).uniform(0.01, 0.1, count), np.float32)
    zero = g.constant(np.full(count, 3 if to == np.int8 else 120), to)
    inputs = [scale, zero] if to == np.int8 or g.rng.random() < 0.7 else [scale]
    if g.add("QuantizeLinear", [x, *inputs], axis=axis):
        made = next(reversed(g.values))
        g.add("DequantizeLinear", [made, *inputs], axis=axis)


def _integers(g: Growing) -> None:
    x = g.some("iu")
    if not x:
        return
    v = g.values[x]
    match g.rng.randrange(5):
        case 0:
            g.add(g.rng.choice(("Abs", "Neg", "Sign", "Relu")), [x])
        case 1:
            g.add(f"Reduce{g.rng.choice(('Sum', 'Mean', 'Max', 'Min', 'Prod', 'L1', 'SumSquare'))}", [x], keepdims=1)
        case 2 if g.opset >= 10:
            g.add("Mod", [x, g.constant(g.rng.choice((3, 5)), v.dtype)], fmod=g.rng.choice((None, 1)))
        case 3:
            g.add("Div", [x, g.constant(g.rng.choice((3, 5)), v.dtype)])
        case _:
            low, high = (g.constant(n, v.dtype) for n in (1, 5))
            if g.opset >= 12:
                g.add("Clip", [x, low, high])


def _move(g: Growing) -> None:
    x = g.some("fi", (2, 3, 4))
    if not x:
        return
    v = g.values[x]
    draw = np.random.default_rng(len(g.values))
    match g.rng.randrange(7):
        case 0 if g.opset >= 9:
            at, depth = draw.integers(0, 4, v.shape[:2]), g.rng.choice((4, [4]))
            axis = g.rng.randrange(-3, 3) if g.opset >= 11 else g.rng.randrange(3)
            g.add("OneHot", [g.constant(at), g.constant(depth), g.constant([0.5, 2], v.dtype)], axis=axis)
        case 1 if g.opset >= 11:
            axis = g.rng.randrange(-v.ndim, v.ndim)
            every = np.argsort(draw.uniform(0, 1, v.shape), axis)
            shape = [g.rng.randint(1, n) if n else 0 for n in v.shape]
            at = every[tuple(slice(n) for n in shape)]
            g.add("ScatterElements", [x, g.constant(at), g.constant(draw.uniform(0, 2, shape), v.dtype)], axis=axis)
        case 2 if g.opset >= 11 and v.shape[0]:
            g.add("GatherND", [x, g.constant(draw.integers(-v.shape[0], v.shape[0], (2, 1)))])
        case 3 if v.ndim == 4 and g.opset >= 11:
            g.add("DepthToSpace", [x], blocksize=1, mode=g.rng.choice(("DCR", "CRD")))
        case 4 if g.opset >= 12 and v.ndim == 2 and v.size:
            g.add("Einsum", [x, x], equation=g.rng.choice(("ij,ij->i", "ij,kj->ik", "ij,ij", "ij,kl->jl")))
        case 5 if v.ndim == 2 and g.opset >= 9:
            g.add("EyeLike", [x], k=g.rng.randint(-1, 1), dtype=g.rng.choice((None, 1, 7, 9)))
        case _ if g.opset >= 14:
            inputs = [x, g.constant(g.rng.randint(-2, 2))] if g.rng.random() < 0.5 else [x]
            g.add("Trilu", inputs, upper=g.rng.choice((None, 0)))
        case _:
            g.add("SpaceToDepth", [x], blocksize=1)


def _recurrent(g: Growing) -> None:
    x = g.some("f", (3,))
    if not x or g.values[x].dtype != np.float32 or not g.values[x].size:
        return
    v = g.values[x]
    op, gates = g.rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    way = g.rng.choice(("forward", "reverse", "bidirectional"))
    ways, hidden = 2 if way == "bidirectional" else 1, 2
    draw = np.random.default_rng(len(g.values))

    def drawn(*shape: int) -> str:
        return g.constant(draw.uniform(-1, 1, shape), np.float32)

    inputs = [x, drawn(ways, gates * hidden, v.shape[2]), drawn(ways, gates * hidden, hidden)]
    if g.rng.random() < 0.6:
        inputs.append(drawn(ways, 2 * gates * hidden))
    if g.rng.random() < 0.3 and v.shape[0]:
        lengths = [g.rng.randint(1, v.shape[0]) for _ in range(v.shape[1])]
        inputs = [*inputs, *[""] * (4 - len(inputs)), g.constant(lengths, np.int32)]
    g.add(op, inputs, g.rng.choice((1, 2)), hidden_size=hidden, direction=way)


def _of_runtime(g: Growing) -> None:
    """Operators of ONNX Runtime's own, of rows of words, of which each kind is drawn as often."""
    x = g.some("f", (3,))
    if not x or g.values[x].dtype != np.float32 or not g.values[x].size or g.opset < 13:
        return
    batch, rows, width = g.values[x].shape
    draw = np.random.default_rng(len(g.values))

    def drawn(*shape: int) -> str:
        return g.constant(draw.uniform(-1, 1, shape), np.float32)

    def bytes_of(*shape: int) -> str:
        return g.constant(draw.integers(0, 255, shape), np.uint8)

    heads, once = g.rng.choice((1, 2)), g.rng.choice((None, 1))
    kept = g.rng.choice(("", g.constant(draw.integers(0, 2, (batch, rows)), np.int32)))
    match g.rng.randrange(9):
        case 0:
            before = [drawn(batch, heads, 2, width // heads) for _ in range(2)] if g.rng.random() < 0.5 else []
            inputs = [x, x, x, g.rng.choice(("", drawn(3 * width))), "", "", *before]
            g.add("MultiHeadAttention", inputs, 3 if before else 1, num_heads=heads, unidirectional=once, domain=OWN)
        case 1:
            inputs = [x, drawn(width, 3 * width), drawn(3 * width), kept]
            g.add("Attention", inputs, num_heads=heads, unidirectional=once, domain=OWN)
        case 2:
            # Queries, keys and values in one, with heads of 16 numbers, in front of a buffer of keys.
            if g.add("MatMul", [x, drawn(width, 64)]):
                made, total = next(reversed(g.values)), g.constant(rows, np.int32)
                past = [g.constant(np.zeros((batch, 1, 0, 16)), np.float32) for _ in range(2)]
                tables = [drawn(rows + 1, 8) for _ in range(2)] if once else []
                inputs = [made, "", "", *past, g.constant([rows - 1] * batch, np.int32), total, *tables]
                g.add("GroupQueryAttention", inputs, 3, num_heads=2, kv_num_heads=1, do_rotary=once, domain=OWN)
        case 3:
            op = g.rng.choice(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"))
            bias = [drawn(width)] if op == "SkipLayerNormalization" else []
            g.add(op, [x, x, drawn(width), *bias], epsilon=1e-3, domain=OWN)
        case 4:
            table = [drawn(rows, max(width // 2, 1)) for _ in range(2)]
            g.add("RotaryEmbedding", [x, g.constant([0]), *table], interleaved=once, domain=OWN)
        case 5:
            packed = [bytes_of(3, -(-width // 16), 8), drawn(3 * -(-width // 16))]
            g.add("MatMulNBits", [x, *packed], K=width, N=3, bits=4, block_size=16, domain=OWN)
        case 6:
            inputs = (
                [x, drawn(width)] if (op := g.rng.choice(("BiasGelu", "FastGelu", "QuickGelu"))) != "QuickGelu" else [x]
            )
            g.add(op, inputs, domain=OWN)
        case 7:
            scale, zero = g.constant(0.02, np.float32), g.constant(3, np.uint8)
            g.add("DynamicQuantizeMatMul", [x, bytes_of(width, 3), scale, zero], domain=OWN)
        case _ if rows == 1:  # of several rows, threads of ONNX Runtime quantize each some
            weights = [bytes_of(1, n, 8) for n in (width, 2)]
            how = [g.constant([n], t) for n, t in ((0.02, np.float32), (120, np.uint8))] * 2
            g.add("DynamicQuantizeLSTM", [x, *weights, "", "", "", "", "", *how], 2, hidden_size=2, domain=OWN)
        case _:
            g.add("FusedMatMul", [x, drawn(3, width)], transB=1, alpha=0.5, domain=OWN)


def _body(inputs: Sequence[onnx.ValueInfoProto], nodes: Sequence[onnx.NodeProto], ends: Sequence[str]) -> Any:
    return helper.make_graph(list(nodes), "body", list(inputs), [onnx.ValueInfoProto(name=e) for e in ends])


def _flow(g: Growing) -> None:
    x = g.some("f")
    if not x:
        return
    v = g.values[x]
    if g.rng.random() < 0.5:
        branches = [
            _body([], [helper.make_node("Neg", [x], [f"t{k}"]), helper.make_node(op, [f"t{k}"], [f"e{k}"])], [f"e{k}"])
            for k, op in enumerate(("Exp", "Abs"))
        ]
        for b in branches:
            b.output[0].CopyFrom(helper.make_tensor_value_info(b.output[0].name, TensorProto.FLOAT, v.shape))
        condition = g.constant(g.rng.random() < 0.5, np.bool_)
        flags = [n for n, o in g.values.items() if o.dtype == bool and o.size == 1]
        if flags and g.rng.random() < 0.7:
            condition = g.rng.choice(flags)
        if v.dtype == np.float32:
            g.add("If", [condition], then_branch=branches[0], else_branch=branches[1])
        return
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, v.shape)
    heads = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["state", "f"], ["next"]),
        helper.make_node("Identity", ["c"], ["d"]),
    ]
    body = _body([*heads, state], nodes, ["d", "next", "next"])
    kinds: list[tuple[int, Sequence[int]]] = [
        (TensorProto.BOOL, ()),
        (TensorProto.FLOAT, v.shape),
        (TensorProto.FLOAT, v.shape),
    ]
    del body.output[:]
    body.output.extend(
        helper.make_tensor_value_info(n, *k) for n, k in zip(("d", "next", "scanned"), kinds, strict=True)
    )
    body.node.append(helper.make_node("Identity", ["next"], ["scanned"]))
    if v.dtype == np.float32:
        g.add(
            "Loop", [g.constant(g.rng.randint(1, 3)), g.rng.choice(("", g.constant(True, np.bool_))), x], 2, body=body
        )


GROWS: tuple[Grow, ...] = (
    _unary, _unary, _binary, _binary, _reduce, _softmax, _arg, _shape, _shape, _slice, _split, _join, _pad, _look_up,
    _convert, _integers, _move, _move, _recurrent, _image, _image, _image, _product, _quantized, _flow,
    _of_runtime,
)  # fmt: skip


def grown(seed: int) -> tuple[onnx.ModelProto, dict[str, Array], list[Array]]:
    """A model with its inputs and what ONNX Runtime makes of them."""
    rng = Random(seed)
    draw = np.random.default_rng(seed)
    g = Growing(rng, rng.choice(OPSETS))
    dtype = np.float16 if rng.random() < 0.1 else np.float32
    for _ in range(rng.randint(1, 2)):
        shape = [rng.randint(1, 5) for _ in range(rng.choice((0, 1, 2, 2, 3, 3, 4, 4, 4)))]
        name = g.name()
        kind = rng.choice((np.int32, np.int64, np.uint8, np.float64, bool)) if rng.random() < 0.15 else dtype
        scale = 1 if np.dtype(kind).kind == "f" else 3
        g.inputs[name] = g.values[name] = np.asarray(draw.uniform(-2, 2, shape) * scale).astype(kind)
    for _ in range(rng.randint(2, 9)):
        rng.choice(GROWS)(g)
    made = [n for n in g.values if n not in g.inputs]
    if not made:
        return grown(seed + (1 << 32))
    outputs = list(dict.fromkeys([made[-1], *rng.sample(made, min(2, len(made)))]))
    if rng.random() < 0.1:
        outputs.append(rng.choice(list(g.inputs)))
    if rng.random() < 0.1 and g.constants:
        outputs.append(rng.choice(list(g.constants)))
    model = g.model(outputs)
    return model, g.inputs, by_runtime(model, g.inputs)


def difference(model: onnx.ModelProto, inputs: Mapping[str, Array], wanted: Sequence[Array], folder: Path) -> str:
    """What is wrong with the import of a model: "" for nothing, or the codes of a refusal in parentheses."""
    try:
        file, weights = checked(model, folder)
        if file.errors or not file.plans:
            return "; ".join(d.message for d in file.diagnostics) or "there is no plan"
        made = by_reference(file, weights, [inputs[i.name] for i in model.graph.input if i.name in inputs])
    except TschedError as e:
        (d, *_) = e.diagnostics
        refused = d.code in ("E0940", "E0941")
        text = " | ".join([d.message, *(n.text for n in d.notes)])
        return f"({text})" if refused else f"{d.code}: {text}"
    except Exception:
        return traceback.format_exc().strip()
    for o, m, w in zip(model.graph.output, made, wanted, strict=True):
        if (m.dtype, m.shape) != (w.dtype, w.shape):
            return f"`{o.name}` is {m.dtype}{m.shape}, and {w.dtype}{w.shape} in ONNX Runtime"
        loose = 2e-2 if np.float16 in (w.dtype, *(v.dtype for v in inputs.values())) else 1e-4
        if w.dtype.kind == "f" and not np.allclose(m, w, loose, loose, equal_nan=True):
            far = float(np.nanmax(np.abs(m.astype(np.float64) - w)))
            return f"`{o.name}` differs by {far}"
        if w.dtype.kind in "iu" and w.dtype.itemsize == 1 and (np.abs(m.astype(int) - w) <= 1).all():
            continue  # a quotient between two numbers
        if w.dtype.kind != "f" and not np.array_equal(m, w):
            return f"`{o.name}` differs"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    silence()
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.count):
            model, inputs, wanted = grown(seed)
            found = difference(model, inputs, wanted, Path(folder))
            ends["right" if not found else "refused" if found.startswith("(") else "wrong"] += 1
            if found:
                opset = model.opset_import[0].version
                ops = " ".join(n.op_type for n in model.graph.node if n.op_type != "Constant")
                print(f"seed {seed}, opset {opset}, {ops}: {found}", flush=True)
    print("; ".join(f"{count} {end}" for end, count in sorted(ends.items())))
    sys.exit(ends["wrong"] > 0)


if __name__ == "__main__":
    main()
