"""What exporters spell out as several nodes is one compute, and computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper

from tensorc_dsl.base.diagnostic import TschedError
from tests.graph.onnx_cases import Array, by_reference, by_runtime, checked

RNG = np.random.default_rng(11)


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model(nodes: Sequence[NodeProto], x: Array, constants: dict[str, Array]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)]
    stored = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(list(nodes), "net", inputs, [onnx.ValueInfoProto(name="y")], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def number(value: float) -> Array:
    return np.array(value, np.float32)


node = helper.make_node
CENTRED = [
    node("ReduceMean", ["x"], ["mean"], axes=[-1]),
    node("Sub", ["x", "mean"], ["d"]),
    node("Pow", ["d", "two"], ["sq"]),
    node("ReduceMean", ["sq"], ["var"], axes=[-1]),
    node("Add", ["var", "eps"], ["safe"]),
    node("Sqrt", ["safe"], ["root"]),
    node("Div", ["d", "root"], ["n"]),
    node("Mul", ["n", "s"], ["sn"]),
    node("Add", ["sn", "b"], ["y"]),
]
HEADS = {"heads": np.array([1, 5, 3, 4]), "eight": number(8), "half": number(0.5), "mask": f32(1, 1, 1, 5) * 3}


def heads(q: str = "x", k: str = "x", perm: Sequence[int] = (0, 2, 3, 1)) -> list[NodeProto]:
    """Queries, keys and values of three heads of four numbers, and the scores."""
    return [
        *(node("Reshape", [n, "heads"], [f"{w}_"]) for n, w in ((q, "q"), (k, "k"), ("x", "v"))),
        node("Transpose", ["q_"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["k_"], ["k"], perm=list(perm)),
        node("Transpose", ["v_"], ["v"], perm=[0, 2, 1, 3]),
        node("MatMul", ["q", "k"], ["s"]),
    ]


def mixed(scores: str) -> list[NodeProto]:
    return [
        node("Softmax", [scores], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]),
        node("Transpose", ["o"], ["j"], perm=[0, 2, 1, 3]),
        node("Reshape", ["j", "flat"], ["y"]),
    ]


FLAT = {"flat": np.array([1, 5, 12])}
SPELLED: dict[str, tuple[str, list[NodeProto], Array, dict[str, Array]]] = {
    "silu": ("swish", [node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "x"], ["y"])], f32(3, 5), {}),
    "gelu": (
        "gelu",
        [
            node("Div", ["x", "root"], ["a"]),
            node("Erf", ["a"], ["e"]),
            node("Add", ["e", "one"], ["b"]),
            node("Mul", ["x", "b"], ["c"]),
            node("Mul", ["c", "half"], ["y"]),
        ],
        f32(3, 5),
        {"root": number(1.4142135), "one": number(1), "half": number(0.5)},
    ),
    "gelu, the half first": (
        "gelu",
        [
            node("Mul", ["x", "root"], ["a"]),
            node("Erf", ["a"], ["e"]),
            node("Add", ["one", "e"], ["b"]),
            node("Mul", ["half", "x"], ["c"]),
            node("Mul", ["c", "b"], ["y"]),
        ],
        f32(3, 5),
        {"root": number(0.70710677), "one": number(1), "half": number(0.5)},
    ),
    "hard swish": (
        "hard_swish",
        [
            node("Add", ["x", "three"], ["a"]),
            node("Clip", ["a", "zero", "six"], ["c"]),
            node("Mul", ["x", "c"], ["m"]),
            node("Div", ["m", "six"], ["y"]),
        ],
        f32(3, 5) * 4,
        {"three": number(3), "zero": number(0), "six": number(6)},
    ),
    "hard swish, divided before": (
        "hard_swish",
        [
            node("Add", ["x", "three"], ["a"]),
            node("Clip", ["a", "zero", "six"], ["c"]),
            node("Div", ["c", "six"], ["m"]),
            node("Mul", ["x", "m"], ["y"]),
        ],
        f32(3, 5) * 4,
        {"three": number(3), "zero": number(0), "six": number(6)},
    ),
    "layer norm": (
        "layer_norm", CENTRED, f32(3, 5), {"two": number(2), "eps": number(1e-3), "s": f32(5), "b": f32(5)},
    ),
    "attention, divided and masked": (
        "attention",
        [*heads(), node("Div", ["s", "eight"], ["d"]), node("Add", ["d", "mask"], ["a"]), *mixed("a")],
        f32(1, 5, 12), HEADS | FLAT,
    ),
    "attention, masked by a choice": (
        "attention",
        [*heads(), node("Where", ["seen", "s", "low"], ["a"]), node("Mul", ["half", "a"], ["b"]), *mixed("b")],
        f32(1, 5, 12), HEADS | FLAT | {"seen": np.tri(5, dtype=bool), "low": number(-1e9)},
    ),
    "attention, scaled before": (
        "attention",
        [
            *heads()[:4], node("Transpose", ["k_"], ["h"], perm=[0, 2, 1, 3]),
            node("Transpose", ["h"], ["t"], perm=[0, 1, 3, 2]), heads()[5],
            node("Shape", ["q_"], ["n"], start=3), node("Cast", ["n"], ["f"], to=1), node("Sqrt", ["f"], ["r"]),
            node("Div", ["q", "r"], ["qs"]), node("Mul", ["t", "half"], ["ks"]),
            node("MatMul", ["qs", "ks"], ["s"]), *mixed("s"),
        ],
        f32(1, 5, 12), HEADS | FLAT,
    ),
    "attention, masks of two batches": (
        "attention",
        [
            node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("MatMul", ["x", "t"], ["s"]),
            node("Add", ["s", "masks"], ["a"]), node("Softmax", ["a"], ["p"]), node("MatMul", ["p", "x"], ["y"]),
        ],
        f32(1, 5, 3), {"masks": f32(2, 5, 5)},
    ),
    "attention, a mask of more rows than the scores": (
        "attention",
        [
            node("MatMul", ["x", "k"], ["s"]), node("Add", ["s", "masks"], ["a"]), node("Softmax", ["a"], ["p"]),
            node("MatMul", ["p", "v"], ["y"]),
        ],
        f32(2, 1, 3), {"k": f32(3, 5), "masks": f32(7, 5), "v": f32(5, 4)},
    ),
    "attention, a mask of more columns than the scores": (
        "attention",
        [
            node("MatMul", ["x", "k"], ["s"]), node("Where", ["seen", "s", "masks"], ["a"]), node("Softmax", ["a"], ["p"]),
            node("MatMul", ["p", "v"], ["y"]),
        ],
        f32(2, 7, 3), {"k": f32(3, 1), "seen": np.tri(7, 5, dtype=bool), "masks": f32(1, 5), "v": f32(5, 4)},
    ),
    "attention of opset 11": (
        "attention",
        [
            *heads(), node("Mul", ["s", "half"], ["d"]), node("Shape", ["d"], ["n"]), node("Flatten", ["d"], ["f"], axis=3),
            node("Softmax", ["f"], ["g"], axis=-1), node("Reshape", ["g", "n"], ["p"]), *mixed("s")[1:],
        ],
        f32(1, 5, 12), HEADS | FLAT,
    ),
    "softmax of opset 11": (
        "softmax",
        [
            node("Shape", ["x"], ["n"]), node("Flatten", ["x"], ["f"], axis=1), node("Softmax", ["f"], ["g"]),
            node("Reshape", ["g", "n"], ["y"]),
        ],
        f32(3, 2, 5), {},
    ),
    "attention, one head": (
        "attention",
        [
            node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("MatMul", ["x", "t"], ["s"]),
            node("Softmax", ["s"], ["p"], axis=2), node("MatMul", ["p", "x"], ["y"]),
        ],
        f32(2, 7, 3), {},
    ),
    "batch norm": (
        "conv2d",
        [
            node("Conv", ["x", "w", "c"], ["a"], pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["a", "s", "b", "m", "v"], ["y"], epsilon=1e-3),
        ],
        f32(1, 2, 5, 4),
        {"w": f32(3, 2, 3, 3), "c": f32(3), "s": f32(3), "b": f32(3), "m": f32(3), "v": np.abs(f32(3))},
    ),
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("name", SPELLED)
def test_several_nodes_are_one_compute(name: str, tmp_path: Path) -> None:
    stem, nodes, x, constants = SPELLED[name]
    m = model(nodes, x, constants)
    file, weights = checked(m, tmp_path)
    assert [c for c in file.computes if not c.startswith("transpose")] == [f"{stem}_1"]
    (made,), (wanted,) = by_reference(file, weights, [x]), by_runtime(m, {"x": x})
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("Sigmoid", ["x"], ["s"]), node("Neg", ["x"], ["z"]), node("Mul", ["s", "z"], ["y"])], {}),
        (
            [
                node("Div", ["x", "root"], ["a"]),
                node("Erf", ["a"], ["e"]),
                node("Add", ["e", "one"], ["b"]),
                node("Mul", ["x", "b"], ["c"]),
                node("Mul", ["c", "half"], ["y"]),
            ],
            {"root": number(1.3), "one": number(1), "half": number(0.5)},
        ),
        # Numbers that are nearly those of a GELU and of a HardSwish, and those of more dimensions than the value has.
        *(
            (
                [
                    node("Mul", ["x", "root"], ["a"]),
                    node("Erf", ["a"], ["e"]),
                    node("Add", ["e", "one"], ["b"]),
                    node("Mul", ["x", "b"], ["c"]),
                    node("Mul", ["c", "half"], ["y"]),
                ],
                {"root": root, "one": number(1), "half": number(0.5)},
            )
            for root in (number(0.7077), np.full((1, 1, 1), np.sqrt(0.5), np.float32))
        ),
        (
            [
                node("Add", ["x", "three"], ["a"]),
                node("Clip", ["a", "zero", "six"], ["c"]),
                node("Mul", ["x", "c"], ["d"]),
                node("Mul", ["d", "sixth"], ["y"]),
            ],
            {"three": number(3), "zero": number(0), "six": number(6), "sixth": number(0.1668)},
        ),
        # Attentions over the queries, and of scores that are read elsewhere.
        (
            [
                node("Transpose", ["x"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["s"]),
                node("Softmax", ["s"], ["p"], axis=0), node("MatMul", ["p", "x"], ["y"]),
            ], {},
        ),
        (
            [
                node("Transpose", ["x"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["s"]),
                node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "s"], ["a"]), node("MatMul", ["a", "x"], ["y"]),
            ], {},
        ),
        # A power of 4 instead of 2, which ONNX Runtime itself takes for a layer norm: so it is compared unoptimized.
        (CENTRED, {"two": number(4), "eps": number(9), "s": f32(5), "b": f32(5)}),
    ],
)  # fmt: skip
def test_what_differs_is_left_as_it_is(nodes: list[NodeProto], constants: dict[str, Array], tmp_path: Path) -> None:
    x = f32(3, 5)
    m = model(nodes, x, constants)
    file, weights = checked(m, tmp_path)
    assert len(file.computes) > 2
    (made,), (wanted,) = by_reference(file, weights, [x]), by_runtime(m, {"x": x})
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_queries_that_are_scaled_by_several_numbers_are_refused(tmp_path: Path) -> None:
    """They are a factor for each place in a head, and not of the scores."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Cast", ["shape"], ["factors"], to=onnx.TensorProto.FLOAT),
        node("Div", ["x", "factors"], ["q"]),
        node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "x"], ["y"]),
    ]
    with pytest.raises(TschedError) as found:
        checked(model(nodes, f32(2, 3, 3), {}), tmp_path)
    assert "scaled by several numbers" in found.value.diagnostics[0].notes[0].text


def test_a_softmax_that_a_mask_moves_from_the_last_axis_is_refused(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("MatMul", ["x", "t"], ["s"]),
        node("Add", ["s", "masks"], ["a"]), node("Softmax", ["a"], ["p"], axis=2), node("MatMul", ["p", "x"], ["y"]),
    ]  # fmt: skip
    x = f32(1, 5, 3)
    with pytest.raises(TschedError) as found:
        checked(model(nodes, x, {"masks": f32(2, 1, 5, 5)}), tmp_path)
    ((reason, *_),) = (d.notes for d in found.value.diagnostics)
    assert "a softmax along axis 2 of scores [2, 1, 5, 5]" in reason.text


def test_a_convolution_that_is_read_twice_keeps_its_weights(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"]),
        node("Add", ["a", "n"], ["y"]),
    ]
    x, ones = f32(1, 2, 3, 3), np.ones(3, np.float32)
    m = model(nodes, x, {"w": f32(3, 2, 1, 1), "s": f32(3), "b": f32(3), "m": f32(3), "v": ones})
    file, weights = checked(m, tmp_path)
    assert {n.rpartition("_")[0] for n in file.computes} == {"conv2d", "batch_norm", "add", "transpose"}
    (made,), (wanted,) = by_reference(file, weights, [x]), by_runtime(m, {"x": x})
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)
