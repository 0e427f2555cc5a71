"""The order of axes in memory is chosen for a model as a whole, and does not change what it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper

from tensorc_dsl.check.models import Call, shape_of
from tensorc_dsl.graph.axes import moves, reshaped
from tests.graph.onnx_cases import Array, by_reference, by_runtime, checked

RNG = np.random.default_rng(17)


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((2, 3, 5), (2, 15)), ((2, 3, 4), (6, 4)), ((2, 6, 5), (2, 2, 3, 5)), ((1, 6, 1, 5), (6, 5)), ((4, 6), (3, 8)),
        ((2, 3, 1, 4), (1, 2, 3, 4, 1)), ((1, 1), (1,)), ((6,), (2, 3)), ((2, 3, 2, 2), (6, 4)),
        ((0, 3), (3, 0)), ((), (1, 1)),
    ],
)  # fmt: skip
def test_a_view_keeps_memory_as_it_lies(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(before))).reshape(before)
    y = x.reshape(after)
    for order in permutations(range(len(before))):
        memory = np.transpose(x, order).reshape(-1).tolist()
        found = reshaped(order, before, after)
        possible = [o for o in permutations(range(len(after))) if np.transpose(y, o).reshape(-1).tolist() == memory]
        if found is None:
            assert not possible
        else:
            assert found in possible
            assert all(not moves(found, o, after) for o in possible) or x.size < 2


@dataclass
class Net:
    """Nodes from `x`, and how often elements are transposed."""

    nodes: Sequence[NodeProto]
    x: tuple[int, ...]
    constants: Mapping[str, Array]
    transposed: int
    outputs: Sequence[str] = ("y",)
    sizes: Sequence[int] = ()
    """The numbers of elements that are transposed."""


def op(kind: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """A node; names are separated by a blank each."""
    return helper.make_node(kind, inputs.split(" "), outputs.split(" "), **attributes)


def conv(x: str, y: str, w: str = "w", **attributes: Any) -> NodeProto:
    return op("Conv", f"{x} {w}", y, **attributes)


W = {"w": f32(4, 4, 3, 3)}
SAME: dict[str, Any] = {"pads": [1, 1, 1, 1]}
NETS: dict[str, Net] = {
    "one transposition at each end": Net(
        [conv("x", "a", **SAME), op("Relu", "a", "b"), conv("b", "y", strides=[2, 1])], (1, 4, 5, 7), W, 2
    ),
    "channels of one element move for nothing": Net(
        [conv("x", "a"), op("GlobalAveragePool", "a", "y")], (1, 1, 5, 6), {"w": f32(4, 1, 3, 3)}, 0
    ),
    "an exporter's own transpositions are views": Net(
        [
            op("Transpose", "x", "a", perm=[0, 3, 1, 2]), conv("a", "b", **SAME), op("Sigmoid", "b", "c"),
            op("Transpose", "c", "d", perm=[0, 2, 3, 1]), op("Softmax", "d", "y", axis=-1),
        ], (2, 5, 6, 4), W, 0,
    ),
    "patches become rows": Net(
        [
            conv("x", "a"), op("Reshape", "a shape", "b"), op("Transpose", "b", "c", perm=[0, 2, 1]),
            op("MatMul", "c m", "d"), op("LayerNormalization", "d s", "y", axis=-1),
        ], (1, 4, 5, 6), {**W, "shape": ints(1, 4, -1), "m": f32(4, 3), "s": f32(3)}, 1,
    ),
    "a flat view needs the file's order": Net(
        [conv("x", "a"), op("Flatten", "a", "b"), op("Gemm", "b m", "y", transB=1)],
        (1, 4, 5, 4), {**W, "m": f32(3, 24)}, 2,
    ),
    "squeeze and excite": Net(
        [
            conv("x", "a", **SAME), op("ReduceMean", "a axes", "m", keepdims=1), conv("m", "c", "v"),
            op("HardSigmoid", "c", "h"), op("Mul", "a h", "p"), op("PRelu", "p s", "r"), conv("r", "y"),
        ], (1, 4, 5, 4), {**W, "v": f32(4, 4, 1, 1), "axes": ints(2, 3), "s": f32(4, 1, 1)}, 2,
    ),
    "joins and parts of channels": Net(
        [
            conv("x", "a", **SAME), op("Split", "a", "p q", axis=1, num_outputs=2),
            op("Concat", "q a p", "c", axis=1), op("Slice", "c lo hi ax", "s"), conv("s", "y"),
        ], (1, 4, 5, 4), {**W, "lo": ints(2), "hi": ints(6), "ax": ints(1)}, 2,
    ),
    "the smaller side is transposed": Net(
        [
            conv("x", "a", **SAME), op("Relu", "a", "b"),
            op("Resize", "b  scales", "y", mode="linear"),
        ], (1, 4, 3, 4), {**W, "scales": np.array([1, 1, 2, 2], np.float32)}, 2, sizes=(48, 48),
    ),
    "a value in both orders": Net(
        [conv("x", "a", **SAME), op("Relu", "a", "b"), conv("b", "y")], (1, 4, 4, 5), W, 3, ("y", "b")
    ),
    "norms and pools": Net(
        [
            conv("x", "a", **SAME), op("InstanceNormalization", "a s b", "n"), op("LRN", "n", "l", size=3),
            op("MaxPool", "l", "m", kernel_shape=[2, 3], pads=[1, 0, 0, 1]),
            op("AveragePool", "m", "p", kernel_shape=[3, 2], pads=[1, 1, 1, 0]),
            op("LogSoftmax", "p", "q", axis=1), op("ArgMax", "q", "y", axis=1, keepdims=0),
        ], (2, 4, 5, 6), {**W, "s": f32(4), "b": f32(4)}, 1,
    ),
    "places of maxima": Net(
        [conv("x", "a", **SAME), op("MaxPool", "a", "y z", kernel_shape=[2, 2], strides=[2, 1])],
        (2, 4, 5, 6), W, 3, ("y", "z"),
    ),
    "pads, tiles and sums": Net(
        [
            conv("x", "a", **SAME), op("Pad", "a pads", "p", mode="reflect"), op("Tile", "p times", "t"),
            op("CumSum", "t two", "c"), op("DepthToSpace", "c", "d", blocksize=2), conv("d", "y", "v"),
        ], (1, 4, 4, 5), {**W, "v": f32(3, 1, 3, 1), "pads": ints(0, 0, 1, 0, 0, 0, 2, 1), "times": ints(1, 1, 1, 2),
                          "two": np.array(2)}, 2,
    ),
    "a channel shuffle": Net(
        [
            conv("x", "a", group=2, **SAME), op("Reshape", "a apart", "b"),
            op("Transpose", "b", "c", perm=[0, 2, 1, 3, 4]), op("Reshape", "c shape", "d"), conv("d", "y", "v"),
        ], (1, 4, 4, 5), {"w": f32(6, 2, 3, 3), "v": f32(2, 6, 3, 3), "apart": ints(1, 2, 3, 4, 5),
                          "shape": ints(1, 6, 4, 5)}, 3,
    ),
    "transposed, in groups": Net(
        [
            op("ConvTranspose", "x v", "a", strides=[2, 1], group=2), op("Relu", "a", "b"),
            conv("b", "c", "d", group=6), op("ConvTranspose", "c e", "y", output_padding=[0, 1], strides=[1, 2]),
        ], (1, 4, 4, 5), {"v": f32(4, 3, 3, 2), "d": f32(6, 1, 3, 3), "e": f32(6, 2, 2, 2)}, 2,
    ),
    "one dimension": Net(
        [conv("x", "a", pads=[1, 1]), op("Transpose", "a", "b", perm=[0, 2, 1]), op("MatMul", "b m", "y")],
        (2, 3, 7), {"w": f32(4, 3, 3), "m": f32(4, 5)}, 1,
    ),
    "three dimensions": Net([conv("x", "a"), op("Tanh", "a", "y")], (1, 2, 4, 3, 5), {"w": f32(3, 2, 2, 1, 2)}, 2),
    "a pool alone stays": Net([op("MaxPool", "x", "y", kernel_shape=[2, 2])], (1, 3, 5, 5), {}, 0),
    "weights that are computed": Net(
        [op("Mul", "x k", "f"), op("Conv", "x f", "y")],
        (2, 2, 3, 3), {"w": f32(2), "k": f32(2, 2, 3, 3)}, 1,
    ),
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("name", NETS)
def test_values_are_transposed_where_orders_meet(name: str, tmp_path: Path) -> None:
    net = NETS[name]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, net.x)]
    stored = [numpy_helper.from_array(v, n) for n, v in net.constants.items()]
    ends = [onnx.ValueInfoProto(name=n) for n in net.outputs]
    graph = helper.make_graph(list(net.nodes), "net", inputs, ends, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    file, weights = checked(model, tmp_path)
    (plan,) = file.plans.values()
    moved = [s for s in plan.steps if isinstance(s, Call) and s.task.startswith("transpose")]
    assert len(moved) == net.transposed
    x = f32(*net.x)
    for made, wanted in zip(by_reference(file, weights, [x]), by_runtime(model, {"x": x}), strict=True):
        assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)
    sizes = [int(np.prod(shape_of(plan.values[s.arguments[0]]))) for s in moved]
    assert not net.sizes or sizes == list(net.sizes)


def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[str, list[Array], dict[str, Any]]:
    """An operator for a value of a shape, with its constants and attributes; it may not fit."""
    rank, axis = len(shape), int(rng.integers(len(shape)))
    spatial, channels = shape[2:], shape[min(1, rank - 1)]
    taps = [int(min(n, rng.integers(1, 4))) for n in spatial]
    steps = [int(rng.integers(1, 3)) for _ in spatial]
    pads = [int(rng.integers(2)) for _ in (*taps, *taps)]
    merged = [*shape[:axis], int(np.prod(shape[axis : axis + 2])), *shape[axis + 2 :]]
    split = [*shape[:axis], 2, shape[axis] // 2, *shape[axis + 1 :]]
    choices: list[tuple[str, list[Array], dict[str, Any]]] = [
        ("Conv", [f32(3, channels, *taps)], {"pads": pads, "strides": steps}),
        ("Conv", [f32(channels, 1, *taps), f32(channels)], {"group": channels}),
        ("ConvTranspose", [f32(channels, 2, *taps)], {"strides": steps}),
        ("MaxPool", [], {"kernel_shape": taps, "strides": steps}),
        ("HardSwish", [], {}),
        ("Mul", [f32(channels, *(1 for _ in spatial))], {}),
        ("Concat", [f32(*(2 if k == axis else n for k, n in enumerate(shape)))], {"axis": axis}),
        ("Transpose", [], {"perm": [int(k) for k in rng.permutation(rank)]}),
        ("Reshape", [np.array(merged)], {}),
        ("Reshape", [np.array(split)], {}),
        ("Softmax", [], {"axis": axis}),
        ("ReduceMean", [ints(axis)], {"keepdims": int(rng.integers(2))}),
        ("Slice", [ints(0), ints(max(1, shape[axis] - 1)), ints(axis)], {}),
        ("Pad", [np.array([int(rng.integers(2)) for _ in (*shape, *shape)])], {}),
        ("MatMul", [f32(shape[-1], 3)], {}),
        ("LayerNormalization", [f32(shape[-1])], {"axis": -1}),
    ]
    return choices[int(rng.integers(len(choices)))]


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(24))
def test_random_networks_compute_the_same(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(3, 6))))
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)]
    x = rng.standard_normal(shape).astype(np.float32)
    nodes: list[NodeProto] = []
    constants: list[onnx.TensorProto] = []
    values = [("x", shape)]

    def network(*outputs: str) -> onnx.ModelProto:
        graph = helper.make_graph(nodes, "net", inputs, [onnx.ValueInfoProto(name=o) for o in outputs], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    while len(nodes) < 7:
        name, of = values[int(rng.integers(max(0, len(values) - 3), len(values)))]
        kind, given, attributes = drawn(rng, of)
        result = f"v{len(constants)}_{len(nodes)}"
        added = [numpy_helper.from_array(v, f"{result}_{k}") for k, v in enumerate(given)]
        nodes.append(helper.make_node(kind, [name, *(c.name for c in added)], [result], **attributes))
        constants += added
        try:
            (made,) = by_runtime(network(result), {"x": x})
        except Exception:  # ONNX Runtime says that the operator does not fit, by many kinds of exceptions
            made = np.zeros(0)
        if 0 < made.size < 2000 and 0 < made.ndim < 6:
            values.append((result, made.shape))
        else:
            nodes.pop()
            constants = [c for c in constants if c not in added]
    model = network(*{name for name, _ in values[-2:]})
    made, wanted = by_reference(*checked(model, tmp_path), [x]), by_runtime(model, {"x": x})
    for m, w in zip(made, wanted, strict=True):
        assert m.shape == w.shape
        np.testing.assert_allclose(m, w, rtol=1e-3, atol=1e-3)
