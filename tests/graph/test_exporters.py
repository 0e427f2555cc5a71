"""What files of other exporters have: functions, sparse and packed constants, floats of 16 bits, operators of other domains,
and names of any characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import FunctionProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api.models import import_onnx, load_model
from tests.graph.onnx_cases import Array, by_reference, by_runtime, checked

RNG = np.random.default_rng(29)
node = helper.make_node


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model(
    nodes: Sequence[NodeProto],
    inputs: dict[str, Array],
    outputs: Sequence[str],
    constants: dict[str, Array] | None = None,
    opset: int = 18,
    functions: Sequence[FunctionProto] = (),
    **domains: int,
) -> onnx.ModelProto:
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in inputs.items()
    ]
    stored = [numpy_helper.from_array(x, n) for n, x in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "net", given, [ValueInfoProto(name=o) for o in outputs], stored)
    opsets = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(d.replace("_", "."), v) for d, v in domains.items()),
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions)


def require_equal(
    m: onnx.ModelProto, inputs: dict[str, Array], folder: Path, near: float = 1e-5, apart: int = 0
) -> None:
    """The import computes what ONNX Runtime does; quantized numbers may be some apart."""
    wanted = by_runtime(m, inputs)
    for made, w in zip(by_reference(*checked(m, folder), list(inputs.values())), wanted, strict=True):
        assert (made.dtype, made.shape) == (w.dtype, w.shape)
        if w.dtype.kind == "f":
            np.testing.assert_allclose(made.astype(np.float64), w.astype(np.float64), rtol=near, atol=near)
        else:
            assert np.abs(made.astype(np.int64) - w.astype(np.int64)).max(initial=0) <= apart


def refusal(m: onnx.ModelProto, folder: Path) -> tuple[str, str]:
    """The code of a refusal, and all that it says."""
    with pytest.raises(TschedError) as found:
        checked(m, folder)
    (d,) = found.value.diagnostics
    return str(d.code), " ".join((d.message, *(n.text for n in d.notes)))


# --- functions ---------------------------------------------------------------------------------------------------------


def function(name: str, nodes: Sequence[NodeProto], opset: int = 18, attributes: Sequence[str] = ()) -> FunctionProto:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["x"], ["y"], list(nodes), imports, list(attributes))


@pytest.mark.parametrize("opset", [13, 18])
def test_functions_of_a_file_are_put_where_they_are_called(opset: int, tmp_path: Path) -> None:
    """One calls another, twice, and passes an attribute on."""
    leaky = node("LeakyRelu", ["x"], ["y"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope"))
    inner = function("inner", [leaky], opset, ["slope"])
    outer = function(
        "outer",
        [
            node("inner", ["x"], ["t"], domain="own", slope=0.25), node("inner", ["t"], ["u"], domain="own", slope=0.5),
            node("Add", ["x", "u"], ["y"]),
        ],
        opset,
    )  # fmt: skip
    nodes = [node("outer", ["x"], ["h"], domain="own"), node("outer", ["h"], ["z"], domain="own")]
    inputs = {"x": f32(3, 5)}
    require_equal(model(nodes, inputs, ["z"], None, opset, [inner, outer], own=1), inputs, tmp_path)


def test_a_function_of_another_opset_is_converted(tmp_path: Path) -> None:
    old = function("old", [node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)], 13)
    inputs = {"x": f32(3, 5)}
    m = model([node("old", ["x"], ["z"], domain="own")], inputs, ["z"], None, 18, [old], own=1)
    (made,) = by_reference(*checked(m, tmp_path), list(inputs.values()))
    np.testing.assert_allclose(made, inputs["x"].mean(1), rtol=1e-5, atol=1e-6)


def test_functions_that_call_themselves_or_are_too_large_are_refused(tmp_path: Path) -> None:
    first = function("first", [node("second", ["x"], ["y"], domain="own")])
    second = function("second", [node("first", ["x"], ["y"], domain="own")])
    inputs = {"x": f32(3)}
    m = model([node("first", ["x"], ["z"], domain="own")], inputs, ["z"], None, 18, [first, second], own=1)
    assert "calls itself" in refusal(m, tmp_path)[1]
    many = [
        function(
            f"f{k}", [node(f"f{k + 1}", ["x"], ["t"], domain="own"), node(f"f{k + 1}", ["t"], ["y"], domain="own")]
        )
        for k in range(40)
    ]
    many.append(function("f40", [node("Neg", ["x"], ["y"])]))
    m = model([node("f0", ["x"], ["z"], domain="own")], inputs, ["z"], None, 18, many,
              own=1)  # fmt: skip
    code, said = refusal(m, tmp_path)
    assert code == "E0940" and "its functions make more than" in said


# --- constants ---------------------------------------------------------------------------------------------------------


def sparse(name: str, subscripts: bool) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1.5, -2], np.float32), name)
    at = np.array([[0, 1], [2, 3]]) if subscripts else np.array([1, 11])
    return helper.make_sparse_tensor(values, numpy_helper.from_array(at), [3, 4])


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("subscripts", [False, True])
def test_sparse_constants_are_made_dense(opset: int, subscripts: bool, tmp_path: Path) -> None:
    nodes = [
        node("Constant", [], ["c"], sparse_value=sparse("", subscripts)),
        node("Add", ["x", "s"], ["t"]), node("Mul", ["t", "c"], ["y"]),
    ]  # fmt: skip
    inputs = {"x": f32(3, 4)}
    m = model(nodes, inputs, ["t", "y"], None, opset)
    m.graph.sparse_initializer.append(sparse("s", subscripts))
    wanted = np.zeros((3, 4), np.float32)
    wanted[[0, 2], [1, 3]] = 1.5, -2
    made = by_reference(*checked(m, tmp_path), list(inputs.values()))
    assert np.array_equal(made[0], inputs["x"] + wanted)
    np.testing.assert_allclose(made[1], made[0] * wanted, rtol=1e-6)


@pytest.mark.parametrize("at", [[1, 12], [-1, 2], [1]])
def test_sparse_constants_that_do_not_fit_are_refused(at: list[int], tmp_path: Path) -> None:
    m = model([node("Add", ["x", "s"], ["y"])], {"x": f32(3, 4)}, ["y"])
    tensor = sparse("s", False)
    tensor.indices.CopyFrom(numpy_helper.from_array(np.array(at)))
    m.graph.sparse_initializer.append(tensor)
    assert refusal(m, tmp_path)[0] == "E0940"


def packed(name: str, values: Array, signed: bool) -> TensorProto:
    kind = TensorProto.INT4 if signed else TensorProto.UINT4
    return helper.make_tensor(name, kind, values.shape, values.reshape(-1).tolist())


@pytest.mark.corpus
@pytest.mark.parametrize("how", ["as numbers", "as bytes", "beside"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("axis", "block", "columns"), [(1, 0, 5), (0, 2, 5), (1, 3, 7)])
def test_weights_of_4_bits_are_read_as_8(
    how: str, signed: bool, axis: int, block: int, columns: int, tmp_path: Path
) -> None:
    """With a scale for each channel, and for each block of a channel."""
    low = -8 if signed else 0
    weights = RNG.integers(low, low + 16, (4, columns)).astype(np.int8)
    shape = [4, columns]
    shape[axis] = -(-shape[axis] // block) if block else shape[axis]
    sizes = tuple(shape) if block else (columns,)
    scale, zero = RNG.uniform(0.1, 1, sizes).astype(np.float32), RNG.integers(low, low + 16, sizes).astype(np.int8)
    inputs = {"x": f32(3, 4)}
    more: dict[str, Any] = {"block_size": block} if block else {}
    nodes = [node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=axis, **more), node("MatMul", ["x", "d"], ["y"])]
    m = model(nodes, inputs, ["y"], {"s": scale}, 21)
    stored = [packed("w", weights, signed), packed("z", zero, signed)]
    for t in stored:
        if how != "as numbers":
            content = numpy_helper.to_array(t).astype(np.uint8).reshape(-1) & 15
            content = np.append(content, np.zeros(content.size % 2, np.uint8)).reshape(-1, 2)
            data = (content[:, 0] | content[:, 1] << 4).astype(np.uint8).tobytes()
            t.ClearField("int32_data")
            if how == "as bytes":
                t.raw_data = data
            else:
                t.data_location = TensorProto.EXTERNAL
                t.external_data.add(key="location", value=f"{t.name}.bin")
                (tmp_path / f"{t.name}.bin").write_bytes(data)
    m.graph.initializer.extend(stored)
    wide = [np.repeat(v, block or 1, axis)[:4, :columns] if block else v for v in (scale, zero)]
    wanted = inputs["x"] @ ((weights.astype(np.float32) - wide[1]) * wide[0])
    (made,) = by_reference(*checked(m, tmp_path), list(inputs.values()))
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)


def test_elements_of_4_bits_that_tell_a_type_are_refused(tmp_path: Path) -> None:
    m = model(
        [node("QuantizeLinear", ["x", "s", "z"], ["y"])], {"x": f32(3)}, ["y"], {"s": np.array(0.1, np.float32)}, 21
    )
    m.graph.initializer.append(packed("z", np.array(1), True))
    assert "reads elements of 4 bits" in refusal(m, tmp_path)[1]


def test_constants_of_lists_and_windows_are_tables(tmp_path: Path) -> None:
    nodes = [
        node("Constant", [], ["a"], value_floats=[0.5, 1.5, 2.5]), node("Constant", [], ["n"], value_int=7),
        node("Constant", [], ["k"], value_ints=[0, 2, 0]), node("Constant", [], ["h"], value_float=0.5),
        node("HannWindow", ["n"], ["hann"]), node("HammingWindow", ["n"], ["hamming"], periodic=0),
        node("BlackmanWindow", ["n"], ["blackman"]), node("NonZero", ["k"], ["at"]),
        node("Unique", ["k"], ["u", "i", "v", "c"]),
        node("Gather", ["x", "at"], ["g"]), node("Gather", ["x", "v"], ["w"]), node("Mul", ["x", "a"], ["m"]),
        node("Mul", ["m", "h"], ["y"]), node("Compress", ["a", "flags"], ["b"]),
    ]  # fmt: skip
    inputs = {"x": f32(3)}
    m = model(
        nodes,
        inputs,
        ["hann", "hamming", "blackman", "g", "w", "y", "u", "c", "b"],
        {"flags": np.array([True, False, True])},
    )
    require_equal(m, inputs, tmp_path)


# --- floats of 16 bits -------------------------------------------------------------------------------------------------


@pytest.mark.corpus
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_floats_of_16_bits_are_rounded_once(dtype: Any, tmp_path: Path) -> None:
    """A long sum of numbers of which each is small beside it: rounded at each step, it would stay at 2048, or at 256."""
    inputs = {"x": np.ones((1, 5000), dtype)}
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("ReduceSum", ["x"], ["s"], keepdims=0)]
    m = model(nodes, inputs, ["p", "s"], {"w": np.ones((5000, 2), dtype)})
    (tmp_path / "net.onnx").write_bytes(m.SerializeToString())
    for made in load_model(import_onnx(tmp_path / "net.onnx"), threads=1)(*inputs.values()):
        assert (_values(made, dtype) == np.float32(dtype(5000))).all()


def _values(made: Array, dtype: Any) -> Array:
    """Elements of 16 bits as f32; those of bf16 may be given as their bits."""
    return (made.view(dtype) if made.dtype == np.uint16 else made).astype(np.float32)


HALF: dict[str, tuple[list[NodeProto], dict[str, tuple[int, ...]]]] = {
    "elementwise": (
        [
            node("Add", ["x", "b"], ["a"]), node("Gelu", ["a"], ["g"]), node("Clip", ["g", "low"], ["c"]),
            node("Mul", ["c", "x"], ["y"]),
        ],
        {"b": (4,), "low": ()},
    ),
    "convolution": (
        [
            node("Conv", ["x", "w", "v"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["r"]),
            node("BatchNormalization", ["r", "v", "v", "v", "e"], ["n"]), node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2]),
            node("AveragePool", ["p"], ["y"], kernel_shape=[2, 2], pads=[1, 0, 0, 0]),
        ],
        {"w": (3, 2, 3, 3), "v": (3,), "e": (3,)},
    ),
    "norms": (
        [
            node("LayerNormalization", ["x", "s", "t"], ["l", "mean"]), node("Softmax", ["l"], ["p"]),
            node("CumSum", ["p", "one"], ["c"]), node("ReduceL2", ["c"], ["y"], keepdims=1),
            node("Identity", ["mean"], ["z"]),
        ],
        {"s": (4,), "t": (4,)},
    ),
    "movement": (
        [
            node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]), node("Cast", ["t"], ["f"], to=TensorProto.FLOAT),
            node("Cast", ["f"], ["h"], to=TensorProto.FLOAT16), node("Concat", ["h", "t"], ["y"], axis=1),
            node("Greater", ["t", "b"], ["z"]),
        ],
        {"b": (2,)},
    ),
    "sizes": ([node("Resize", ["x", "", "scales"], ["y"], mode="linear")], {}),
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("name", HALF)
def test_models_of_f16_are_near_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    nodes, shapes = HALF[name]
    inputs = {"x": f32(1, 2, 5, 4).astype(np.float16)}
    constants = {n: np.abs(f32(*shape)).astype(np.float16) for n, shape in shapes.items()}
    constants |= {"one": np.array(1), "scales": np.array([1, 1, 2, 1.5], np.float32)}
    ends = ["y", *("z" for n in nodes if "z" in n.output)]
    m = model(nodes, inputs, ends, constants, 20)
    require_equal(m, inputs, tmp_path, 4e-3)


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["elementwise", "convolution", "norms"])
def test_models_of_bf16_are_near_onnx_itself(name: str, tmp_path: Path) -> None:
    nodes, shapes = HALF[name]
    inputs = {"x": f32(1, 2, 5, 4).astype(ml_dtypes.bfloat16)}
    constants = {n: np.abs(f32(*shape)).astype(ml_dtypes.bfloat16) for n, shape in shapes.items()} | {
        "one": np.array(1)
    }
    m = model(nodes, inputs, ["y"], constants, 22)
    (made,) = by_reference(*checked(m, tmp_path), list(inputs.values()))
    wide = {n: c.astype(np.float32) if c.dtype == ml_dtypes.bfloat16 else c for n, c in constants.items()}
    (wanted,) = cast(
        "list[Array]",
        ReferenceEvaluator(model(nodes, {"x": inputs["x"].astype(np.float32)}, ["y"], wide, 22)).run(
            None, {"x": inputs["x"].astype(np.float32)}
        ),
    )
    assert made.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(made.astype(np.float32), wanted, rtol=6e-2, atol=6e-2)


def test_a_model_of_bf16_runs(tmp_path: Path) -> None:
    x, w = f32(3, 64).astype(ml_dtypes.bfloat16), f32(64, 5).astype(ml_dtypes.bfloat16)
    m = model([node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])], {"x": x}, ["y"], {"w": w}, 22)
    (tmp_path / "net.onnx").write_bytes(m.SerializeToString())
    loaded = load_model(import_onnx(tmp_path / "net.onnx"), threads=1)
    wanted = np.maximum(x.astype(np.float32) @ w.astype(np.float32), 0)
    np.testing.assert_allclose(_values(loaded(x), ml_dtypes.bfloat16), wanted, rtol=2e-2, atol=2e-2)
    assert loaded.random_inputs()["x"].dtype == np.uint16


# --- other domains -----------------------------------------------------------------------------------------------------


def own(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return node(op, list(inputs), list(outputs), domain="com.microsoft", **attributes)


def quantized(name: str) -> list[str]:
    return [name, f"{name}_scale", f"{name}_zero"]


CONTRIB: dict[str, tuple[list[NodeProto], dict[str, Array], dict[str, Array]]] = {
    "activations": (
        [
            own("Gelu", ["x"], ["a"]), own("BiasGelu", ["a", "b"], ["c"]), own("FastGelu", ["c", "b"], ["d"]),
            own("FastGelu", ["d"], ["e"]), own("QuickGelu", ["e"], ["y"], alpha=1.5),
        ],
        {"x": f32(3, 4)}, {"b": f32(4)},
    ),
    "products": (
        [
            own("FusedMatMul", ["x", "w"], ["a"], transB=1, alpha=0.5), own("FusedMatMul", ["a", "x"], ["y"], transA=1),
            own("FusedGemm", ["x", "w", "b"], ["z"], transB=1, activation="LeakyRelu", activation_alpha=0.2),
        ],
        {"x": f32(3, 4)}, {"w": f32(5, 4), "b": f32(5)},
    ),
    "products of batches in the middle": (
        [
            own("FusedMatMul", ["x", "w"], ["c"], transBatchA=1, transBatchB=1, transB=1),
            own("FusedMatMul", ["x", "w"], ["y"], transBatchA=1, transBatchB=1, transA=1, alpha=0.5),
        ],
        {"x": f32(3, 2, 4)}, {"w": f32(3, 2, 4)},
    ),
    "convolutions": (
        [
            own("FusedConv", ["x", "w", "b"], ["a"], activation="Relu", pads=[1, 1, 1, 1]),
            own("FusedConv", ["a", "v", "b", "a"], ["c"], activation="Clip", activation_params=[0.0, 0.5], pads=[1, 1, 1, 1]),
            own("FusedConv", ["c", "v"], ["y"], activation="LeakyRelu", activation_params=[0.3]),
        ],
        {"x": f32(1, 2, 5, 4)}, {"w": f32(3, 2, 3, 3), "v": f32(3, 3, 3, 3), "b": f32(3)},
    ),
    "norms": (
        [
            own("SkipLayerNormalization", ["x", "k", "s", "b", "b"], ["a", "", "", "t"], epsilon=1e-3),
            own("SkipSimplifiedLayerNormalization", ["t", "a", "s"], ["c"], epsilon=1e-3),
            node("SimplifiedLayerNormalization", ["c", "s"], ["y"], axis=-1, epsilon=1e-3),
        ],
        {"x": f32(2, 3, 4), "k": f32(2, 3, 4)}, {"s": f32(4), "b": f32(4)},
    ),
    "attentions": (
        [
            own("Attention", ["x", "w", "b", "m"], ["a"], num_heads=2),
            own("MultiHeadAttention", ["a", "x", "x", "b"], ["c"], num_heads=2),
            own("MultiHeadAttention", ["c", "c", "c"], ["y"], num_heads=2),
        ],
        {"x": f32(2, 3, 4)}, {"w": f32(4, 12), "b": f32(12), "m": np.array([[1, 1, 0], [1, 1, 1]], np.int32)},
    ),
    "products of integers": (
        [
            own("DynamicQuantizeMatMul", ["x", "w", "s", "z", "b"], ["a"]),
            own("DynamicQuantizeMatMul", ["x", "w", "s"], ["y"]),
            node("DynamicQuantizeLinear", ["x"], ["q", "u", "v"]),
            own("MatMulIntegerToFloat", ["q", "w", "u", "s", "v", "z"], ["c"]),
        ],
        {"x": f32(3, 4)},
        {"w": RNG.integers(-99, 99, (4, 5)).astype(np.int8), "s": np.array(0.02, np.float32), "z": np.array(3, np.int8),
         "b": f32(5)},
    ),
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("name", CONTRIB)
def test_operators_of_onnx_runtime_are_as_there(name: str, tmp_path: Path) -> None:
    nodes, inputs, constants = CONTRIB[name]
    ends = [o for n in nodes for o in n.output if o in ("y", "z", "c", "a") and not any(o in m.input for m in nodes)]
    m = model(nodes, inputs, ends, constants, 17, com_microsoft=1)
    require_equal(m, inputs, tmp_path, 1e-4)


@pytest.mark.corpus
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_operators_of_onnx_runtime_are_as_there(dtype: Any, tmp_path: Path) -> None:
    def scale(value: float) -> Array:
        return np.array(value, np.float32)

    zero = np.array(3 if dtype == np.int8 else 120, dtype)
    constants: dict[str, Array] = {
        "w": RNG.integers(-99, 99, (3, 2, 3, 3)).astype(np.int8),
        "w_zero": np.zeros(3, np.int8),
    }
    constants |= {"w_scale": RNG.uniform(0.01, 0.02, 3).astype(np.float32), "b": RNG.integers(-999, 999, 3, np.int32)}
    for k, n in enumerate("xcdefghkm"):
        constants |= {f"{n}_scale": scale(0.02 + 0.01 * k), f"{n}_zero": zero}
    constants |= {
        "v": RNG.integers(-99, 99, (5, 3)).astype(np.int8),
        "v_scale": RNG.uniform(0.005, 0.02, 5).astype(np.float32),
        "v_zero": np.zeros(5, np.int8),
    }
    nodes = [
        node("QLinearConv", [*quantized("x"), *quantized("w"), *quantized("c")[1:], "b"], ["c"], pads=[1, 1, 1, 1]),
        own("QLinearAdd", [*quantized("c"), *quantized("c"), *quantized("d")[1:]], ["d"]),
        own("QLinearMul", [*quantized("d"), *quantized("c"), *quantized("e")[1:]], ["e"]),
        own("QLinearLeakyRelu", [*quantized("e"), *quantized("f")[1:]], ["f"], alpha=0.1),
        own("QLinearConcat", [*quantized("g")[1:], *quantized("f"), *quantized("c")], ["g"], axis=1),
        own("QLinearAveragePool", [*quantized("g"), *quantized("h")[1:]], ["h"], kernel_shape=[2, 2], strides=[2, 2]),
        own("QLinearGlobalAveragePool", [*quantized("c"), *quantized("k")[1:]], ["k"]),
        node("Flatten", ["k"], ["l"]),
        own("QGemm", ["l", *quantized("k")[1:], *quantized("v"), "", *quantized("m")[1:]], ["m"], transB=1),
        own("QLinearSigmoid", [*quantized("m"), *quantized("x")[1:]], ["n"]),
        own("QLinearWhere", ["flags", *quantized("d"), *quantized("e"), *quantized("m")[1:]], ["p"]),
        node("Transpose", ["x"], ["q"], perm=[0, 2, 3, 1]),
        own(
            "QLinearConv", ["q", *quantized("x")[1:], *quantized("w"), *quantized("c")[1:], "b"], ["r"], channels_last=1
        ),
        own("NhwcMaxPool", ["r"], ["s"], kernel_shape=[2, 2], strides=[2, 1]),
        own(
            "QLinearAveragePool",
            ["s", *quantized("c")[1:], *quantized("h")[1:]],
            ["t"],
            kernel_shape=[2, 1],
            channels_last=1,
        ),
    ]
    constants["flags"] = RNG.integers(0, 2, (6, 4)).astype(np.bool_)
    inputs = {"x": RNG.integers(0, 100, (1, 2, 6, 4)).astype(dtype)}
    for end in (o for n in nodes for o in n.output if o not in "lq"):
        m = model(
            nodes[: next(k for k, n in enumerate(nodes) if end in n.output) + 1],
            inputs,
            [end],
            constants,
            17,
            com_microsoft=1,
        )
        require_equal(m, inputs, tmp_path, apart=2)


@pytest.mark.parametrize("opset", [13, 18])
def test_operators_of_trees_are_one_error(opset: int, tmp_path: Path) -> None:
    """As files of scikit-learn have them, with an open size."""
    nodes = [
        node("Scaler", ["x"], ["s"], "scaler", domain="ai.onnx.ml", offset=[0.0] * 4, scale=[1.0] * 4),
        node("LinearClassifier", ["s"], ["label", "scores"], "classifier", domain="ai.onnx.ml", coefficients=[1.0] * 4),
        node("ZipMap", ["scores"], ["maps"], "zip", domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
    ]
    m = model(nodes, {"x": f32(1, 4)}, ["label", "maps"], None, opset, ai_onnx_ml=3)
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    code, said = refusal(m, tmp_path)
    assert code == "E0941" and "3 nodes" in said
    assert "`scaler` (ai.onnx.ml.Scaler): operators of this domain" in said and "(ai.onnx.ml.ZipMap)" in said
    del m.opset_import[0]
    assert refusal(m, tmp_path) == (code, said)


def test_an_input_without_a_number_of_dimensions_gets_its_shape(tmp_path: Path) -> None:
    m = model([node("Relu", ["x"], ["y"])], {"x": f32(3, 4)}, ["y"])
    m.graph.input[0].type.tensor_type.ClearField("shape")
    (tmp_path / "net.onnx").write_bytes(m.SerializeToString())
    with pytest.raises(TschedError, match="the size of each dimension of the input `x` is open"):
        import_onnx(tmp_path / "net.onnx")
    text = import_onnx(tmp_path / "net.onnx", shapes={"x": (3, 4)}).read_text()
    assert "x: f32[3, 4]" in text


# --- names -------------------------------------------------------------------------------------------------------------

ODD = [
    "x:0", "x/0", "X 0", "x.0", "ä", "0", "let", "if", "sum", "max", "f32", "reshape", "relu_1", "neg_1", "net", "groups",
    "epilogues", "cpu", "std", "graph", "default", "", "x\n0", "model", "step", "init", "scan", "index", "Y", "weights",
    "const",
]  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("stem", ["net", "relu_1", "groups", "let", "0 ä", "épilogues", 'a"b'])
def test_values_and_files_have_any_names(stem: str, tmp_path: Path) -> None:
    """Equal up to case, and up to what a name of the language has; words of the language, and names of what is used."""
    names = [n for n in ODD if n]
    nodes = [node("Neg" if k % 2 else "Relu", [a], [b], a) for k, (a, b) in enumerate(pairwise(names))]
    nodes += [node("Flatten", [names[-1]], ["reshape/0"], axis=2), node("Add", ["reshape/0", "reshape/0"], ["Relu_1"])]
    inputs = {names[0]: f32(2, 3, 4)}
    m = model(nodes, inputs, ["Relu_1", names[0], "sum", "let"])
    (tmp_path / f"{stem}.onnx").write_bytes(m.SerializeToString())
    loaded = load_model(import_onnx(tmp_path / f"{stem}.onnx"), threads=1)
    for made, wanted in zip(loaded(*inputs.values()), by_runtime(m, inputs), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-6)
