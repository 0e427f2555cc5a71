"""Whole models: what an import writes and refuses, and what a loaded model computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.models import import_onnx, load_model
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.graph.importing import _EXPANSIONS, _WRITERS, TABLE  # pyright: ignore[reportPrivateUsage]
from tensorc_dsl.graph.onnx_file import read_onnx
from tensorc_dsl.graph.weights import mapped_weights, weights_parts
from tensorc_dsl.syntax.fmt import format_text
from tests.graph.onnx_cases import Array, by_reference, by_runtime, checked

RNG = np.random.default_rng(3)


def weight(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array((RNG.standard_normal(shape) * 0.3).astype(np.float32), name)


def value(name: str, *shape: int | str, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    constants: list[TensorProto] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    ends = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(nodes, "net", inputs, ends, constants or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@cache
def cnn() -> onnx.ModelProto:
    """A small network of opset 13, with an open size, a shape that is computed, and a value that is an output, too."""
    node = helper.make_node
    return model(
        [
            node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("Relu", ["a"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["p", "w2"], ["c"], auto_pad="SAME_UPPER", group=4),
            node("Sigmoid", ["c"], ["s"]),
            node("Mul", ["c", "s"], ["m"]),
            node("GlobalAveragePool", ["m"], ["g"]),
            node("Shape", ["g"], ["shape"]),
            node("Gather", ["shape", "zero"], ["batch"]),
            node("Unsqueeze", ["batch", "axes"], ["rows"]),
            node("Concat", ["rows", "minus"], ["wanted"], axis=0),
            node("Reshape", ["g", "wanted"], ["f"]),
            node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
            node("Softmax", ["y"], ["z"], axis=1),
            node("Exp", ["y"], ["unused"]),
        ],
        [value("x", "N", 3, 17, 17)],
        ["z", "y"],
        [
            weight("w1", 8, 3, 3, 3), weight("b1", 8), weight("w2", 12, 2, 3, 3), weight("w3", 7, 12), weight("b3", 7),
            numpy_helper.from_array(np.array(0), "zero"), numpy_helper.from_array(np.array([0]), "axes"),
            numpy_helper.from_array(np.array([-1]), "minus"),
        ],
        13,
    )  # fmt: skip


def written(m: onnx.ModelProto, folder: Path, **shapes: tuple[int, ...]) -> Path:
    (folder / "net.onnx").write_bytes(m.SerializeToString())
    return import_onnx(folder / "net.onnx", shapes=shapes)


@pytest.mark.corpus
def test_a_network_computes_what_it_does_in_onnx_runtime(tmp_path: Path) -> None:
    path = written(cnn(), tmp_path, x=(2, 3, 17, 17))
    text = path.read_text()
    assert format_text(Source.of(text.encode(), "net.tsched")) == text
    assert "unused" not in text and "exp(y" not in text and "reshape(g, [2, 12])" in text
    loaded = load_model(path, threads=1)
    assert (loaded.inputs, loaded.outputs) == (("x",), ("z", "y"))
    x = RNG.standard_normal((2, 3, 17, 17)).astype(np.float32)
    for made, wanted in zip(loaded(x), by_runtime(cnn(), {"x": x}), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="x: expected float32"):
        loaded(x.astype(np.float64))
    with pytest.raises(ValueError, match="the inputs of `net` are x"):
        loaded(y=x)


def test_equal_operators_share_a_compute(tmp_path: Path) -> None:
    node = helper.make_node
    m = model(
        [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Relu", ["b"], ["y"])], [value("x", 3, 4)], ["y"]
    )
    assert written(m, tmp_path).read_text().count("compute ") == 2
    assert not (tmp_path / "net.safetensors").exists()


def test_numbers_that_differ_between_equal_operators_are_weights(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [node("Mul", ["x", "p"], ["a"]), node("Mul", ["a", "q"], ["b"]), node("Clip", ["b", "z", "p"], ["y"])]
    stored = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("p", 0.5), ("q", 3.0), ("z", 0.0))]
    text = written(model(nodes, [value("x", 3, 4)], ["y"], stored), tmp_path).read_text()
    assert "Y[i, j] = A[i, j] * B\n" in text and "min(max(A[i, j], 0.0), 0.5)" in text and text.count("compute ") == 2
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(load_model(tmp_path / "net.tsched", threads=1)(x), np.clip(x * 1.5, 0, 0.5), rtol=1e-6)


def test_a_file_that_was_changed_is_not_replaced(tmp_path: Path) -> None:
    first, second = (model([helper.make_node(op, ["x", "w"], ["y"])], [value("x", 3)], ["y"], [weight("w", 3)])
                     for op in ("Add", "Mul"))  # fmt: skip
    path = written(first, tmp_path)
    assert "A[i] + B[i]" in path.read_text()
    text = written(second, tmp_path).read_text()
    assert "A[i] * B[i]" in text
    path.write_text(text.replace("A[i] * B[i]", "B[i] * A[i]"))
    with pytest.raises(TschedError, match="E0947"):
        written(first, tmp_path)
    assert "B[i] * A[i]" in path.read_text()
    path.unlink()
    weights = path.with_suffix(".safetensors")
    save_file({"w": np.ones(3, np.float32)}, weights)
    before = weights.read_bytes()
    with pytest.raises(TschedError, match="E0947"):
        written(first, tmp_path)
    assert weights.read_bytes() == before and not path.exists()
    assert import_onnx(tmp_path / "net.onnx", force=True) == path


def test_a_file_that_is_no_onnx_is_not_asked_about_what_it_would_replace(tmp_path: Path) -> None:
    (path := tmp_path / "rows.tsched").write_text("compute f(A: f32[N]) -> B: f32[N] { B[i] = A[i] }\n")
    with pytest.raises(TschedError, match="E0940"):
        import_onnx(path)


def test_weights_are_a_file_of_safetensors(tmp_path: Path) -> None:
    path = written(cnn(), tmp_path, x=(1, 3, 17, 17))
    stored = load_file(path.with_suffix(".safetensors"))
    wanted = {t.name: numpy_helper.to_array(t) for t in cnn().graph.initializer if t.name[0] in "wb"}
    assert stored.keys() == wanted.keys()
    # As they are read: the channels of the result innermost.
    orders = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}
    assert all(np.array_equal(stored[n], w.transpose(orders[w.ndim])) for n, w in wanted.items())


def test_weights_of_another_digest_are_refused(tmp_path: Path) -> None:
    path = written(cnn(), tmp_path, x=(1, 3, 17, 17))
    beside = path.with_suffix(".safetensors")
    beside.write_bytes(beside.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(TschedError, match="E0943"):
        load_model(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cut off"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "cut off"),
        ((2).to_bytes(8, "little") + b"{]", "no header"),
        ((54).to_bytes(8, "little") + b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'[:54], "no header"),
        ((57).to_bytes(8, "little") + b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}  ', "not inside"),
        (
            (57).to_bytes(8, "little") + b'{"w":{"dtype":"F32","shape":[9],"data_offsets":[0,16]}}  ' + bytes(16),
            "another size",
        ),
    ],
)
def test_a_broken_file_of_weights_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(TschedError, match=why if content else "E0943"):
        mapped_weights(path, sha256(content).hexdigest(), {})


def test_weights_keep_every_type(tmp_path: Path) -> None:
    tensors: dict[str, Array] = {
        np.dtype(t).name: np.arange(3).astype(t) for t in "f4 f8 f2 i1 i2 i4 i8 u1 u2 u4 u8 ?".split()
    }
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"".join(weights_parts(tensors)))
    stored = load_file(path)
    assert all(stored[n].dtype == t.dtype and np.array_equal(stored[n], t) for n, t in tensors.items())


def test_a_branch_on_a_constant_is_taken(tmp_path: Path) -> None:
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], ["same"])], op, [], [onnx.ValueInfoProto(name="same")])
        for op in ("Relu", "Neg")
    ]
    nodes = [
        helper.make_node("If", ["yes"], ["a"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("If", ["no"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    constants = [numpy_helper.from_array(np.array(v), n) for n, v in (("yes", True), ("no", False))]
    text = written(model(nodes, [value("x", 3)], ["a", "y"], constants), tmp_path).read_text()
    assert "max(X[i], 0.0)" in text and "-X[i]" in text


def test_a_branch_in_a_branch_reads_values_of_the_outer_one(tmp_path: Path) -> None:
    """The inner branch has a value of its own with the name of one outside, and reads another one of the outer branch."""
    inner = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["shadowed"]), helper.make_node("Mul", ["h", "shadowed"], ["m"])],
        "inner", [], [onnx.ValueInfoProto(name="m")],
    )  # fmt: skip
    outer = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["h"]),
            helper.make_node("Abs", ["x"], ["shadowed"]),
            helper.make_node("If", ["yes"], ["n"], then_branch=inner, else_branch=inner),
            helper.make_node("Add", ["n", "shadowed"], ["o"]),
        ],
        "outer", [], [onnx.ValueInfoProto(name="o")],
    )  # fmt: skip
    nodes = [helper.make_node("If", ["yes"], ["y"], then_branch=outer, else_branch=outer)]
    m = model(nodes, [value("x", 4)], ["y"], [numpy_helper.from_array(np.array(True), "yes")])
    x = np.array([-2, -0.5, 0.5, 3], np.float32)
    assert np.allclose(load_model(written(m, tmp_path))(x), np.maximum(x, 0) * -x + np.abs(x))


@pytest.mark.corpus
@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_is_a_copy_of_its_body_for_each_step(back: int, tmp_path: Path) -> None:
    """Two states, of which only one is read, two inputs along different axes, and a value from outside."""
    node = helper.make_node
    names = ("s", "t", "a", "b")
    body = helper.make_graph(
        [
            node("Add", ["s", "a"], ["h"]),
            node("Mul", ["h", "w"], ["s1"]),
            node("Sub", ["t", "b"], ["t1"]),
            node("Concat", ["s1", "t1"], ["y"], axis=0),
        ],
        "body", [value(n, 3) for n in names], [onnx.ValueInfoProto(name=n) for n in ("s1", "t1", "y", "h")],
    )  # fmt: skip
    scan = node(
        "Scan", ["p", "q", "x", "z"], ["unread", "last", "y", "h"], body=body, num_scan_inputs=2, scan_input_axes=[1, -2],
        scan_output_axes=[1, 0], scan_input_directions=[0, back], scan_output_directions=[back, 0],
    )  # fmt: skip
    inputs = [value("p", 3), value("q", 3), value("x", 3, 5), value("z", 5, 3)]
    m = model([scan], inputs, ["last", "y", "h"], [weight("w", 3)])
    given = {
        i.name: RNG.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in inputs
    }
    made = load_model(written(m, tmp_path)).outputs_of(*given.values())
    for y, w in zip(made.values(), by_runtime(m, given), strict=True):
        np.testing.assert_allclose(y, w, rtol=1e-5, atol=1e-6)


def test_an_attention_is_the_compute_of_one_that_is_spelled_out(tmp_path: Path) -> None:
    """With the transpositions of its operands and of its result."""
    node = helper.make_node
    turned = [node("Transpose", [n], [f"{n}t"], perm=[0, 2, 1, 3]) for n in ("q", "v")]
    end = node("Transpose", ["o"], ["y"], perm=[0, 2, 1, 3])
    inputs = [value("q", 2, 3, 4, 5), value("k", 2, 7, 4, 5), value("v", 2, 7, 4, 1)]
    scale = numpy_helper.from_array(np.array(0.25, np.float32), "c")
    spelled = [
        *turned, node("Transpose", ["k"], ["kt"], perm=[0, 2, 3, 1]), node("MatMul", ["qt", "kt"], ["s"]),
        node("Mul", ["s", "c"], ["t"]), node("Softmax", ["t"], ["p"]), node("MatMul", ["p", "vt"], ["o"]), end,
    ]  # fmt: skip
    named = [
        *turned, node("Transpose", ["k"], ["kt"], perm=[0, 2, 1, 3]),
        node("Attention", ["qt", "kt", "vt"], ["o"], scale=0.25), end,
    ]  # fmt: skip
    first, second = (
        written(model(nodes, inputs, ["y"], [scale], opset=23), tmp_path).read_text().split("compute ")[1:]
        for nodes in (spelled, named)
    )
    assert first == second and len(first) == 1


def test_an_output_of_a_branch_that_nothing_reads_is_left_out(tmp_path: Path) -> None:
    """An input that a node leaves out stays so."""
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["x"], ["b"])],
        "branch", [], [onnx.ValueInfoProto(name="a"), onnx.ValueInfoProto(name="b")],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["yes"], ["p", "q"], then_branch=branch, else_branch=branch),
        helper.make_node("Clip", ["p", "", "high"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.array(v), n) for n, v in (("yes", True), ("high", np.float32(0.25)))]
    x = np.array([-2, -0.5, 0.5, 3], np.float32)
    assert np.array_equal(
        load_model(written(model(nodes, [value("x", 4)], ["y"], constants), tmp_path))(x), np.minimum(-x, 0.25)
    )


@pytest.mark.parametrize(("outputs", "stages"), [(["y"], 0), (["y", "m"], 2)])
def test_the_mask_of_a_dropout_is_made_if_it_is_read(outputs: list[str], stages: int, tmp_path: Path) -> None:
    m = model([helper.make_node("Dropout", ["x"], ["y", "m"])], [value("x", 3, 1)], outputs)
    x = RNG.standard_normal((3, 1)).astype(np.float32)
    path = written(m, tmp_path)
    assert path.read_text().count(" = ") == stages + 1  # and the call
    made = load_model(path).outputs_of(x)
    for y, w in zip(made.values(), by_runtime(m, {"x": x}), strict=True):
        assert y.dtype == w.dtype and np.array_equal(y, w)


def test_outputs_that_nothing_reads_are_no_reason_to_refuse(tmp_path: Path) -> None:
    """The mean of a batch norm in the form for training; the indices of a pool."""
    node = helper.make_node
    nodes = [
        node("BatchNormalization", ["x", "s", "s", "s", "v"], ["n", "m1", "m2", "m3", "m4"]),
        node("MaxPool", ["n"], ["p", "i"], kernel_shape=[2], strides=[2]),
        node("LayerNormalization", ["p", "t"], ["unread", "mean", "d"]),
    ]
    constants = [weight("s", 3), numpy_helper.from_array(np.ones(3, np.float32), "v"), weight("t", 3)]
    m = model(nodes, [value("x", 1, 3, 7)], ["d"], constants, opset=17)
    path = written(m, tmp_path)
    assert "argmax" not in path.read_text()
    nodes[0] = node("BatchNormalization", ["x", "s", "s", "s", "v"], ["n"])
    m = model(nodes, [value("x", 1, 3, 7)], ["d"], constants, opset=17)
    x = RNG.standard_normal((1, 3, 7)).astype(np.float32)
    np.testing.assert_allclose(load_model(path)(x), by_runtime(m, {"x": x})[0], rtol=1e-4)


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand"])
def test_a_large_filled_constant_is_a_weight(op: str, tmp_path: Path) -> None:
    """What is computed of it is computed when the model runs: it would take memory for each step."""
    node = helper.make_node
    shape = numpy_helper.from_array(np.array([1000, 2003]), "s")
    half = numpy_helper.from_array(np.array([0.5], np.float32), "h")
    made = node(op, ["s"], ["w"], value=half) if op == "ConstantOfShape" else node(op, ["h", "s"], ["w"])
    nodes = [made, node("Add", ["w", "w"], ["d"]), node("MatMul", ["x", "d"], ["y"])]
    path = written(model(nodes, [value("x", 1, 1000)], ["y"], [shape, half]), tmp_path)
    (stored,) = load_file(path.with_suffix(".safetensors")).values()
    assert stored.shape == (1000, 2003) and (stored == 0.5).all()
    x = RNG.standard_normal((1, 1000)).astype(np.float32)
    np.testing.assert_allclose(load_model(path)(x), np.full((1, 2003), x.sum()), rtol=1e-4, atol=1e-4)


def test_an_output_may_be_an_input_or_a_constant(tmp_path: Path) -> None:
    m = model([helper.make_node("Identity", ["x"], ["y"])], [value("x", 3)], ["y", "w"], [weight("w", 2, 2)])
    loaded = load_model(written(m, tmp_path))
    assert loaded.outputs == ("y", "w")
    x = np.ones(3, np.float32)
    y, w = loaded(x)
    y[0] = 7
    assert x[0] == 1 and w.flags.writeable and np.array_equal(w, numpy_helper.to_array(m.graph.initializer[0]))


def test_an_output_that_is_named_twice_is_two(tmp_path: Path) -> None:
    node = helper.make_node
    m = model([node("Neg", ["x"], ["y"]), node("Identity", ["x"], ["z"])], [value("x", 3)], ["y", "z", "y", "z", "y"])
    x = np.arange(3, dtype=np.float32)
    made = load_model(written(m, tmp_path))(x)
    assert all(np.array_equal(a, b) for a, b in zip(made, (-x, x, -x, x, -x), strict=True))


def test_open_sizes_have_to_be_given(tmp_path: Path) -> None:
    with pytest.raises(TschedError, match="the size `N` of the input `x` is open"):
        written(cnn(), tmp_path)
    with pytest.raises(TschedError, match=r"the shape \[1, 3, 17, 18\] does not fit the input `x`"):
        written(cnn(), tmp_path, x=(1, 3, 17, 18))
    with pytest.raises(TschedError, match="does not fit the input `u`"):
        written(cnn(), tmp_path, x=(1, 3, 17, 17), u=(3,))


def refusal_of(
    node: onnx.NodeProto, inputs: dict[str, tuple[int, ...]], folder: Path, constants: list[TensorProto] | None = None
) -> str:
    """The reason why the only node of a model is refused."""
    with pytest.raises(TschedError) as found:
        written(model([node], [value(n, *shape) for n, shape in inputs.items()], list(node.output), constants), folder)
    (d,) = found.value.diagnostics
    assert d.code == "E0941"
    return d.notes[0].text


@pytest.mark.parametrize("graph", [True, False])
def test_an_attribute_that_its_translation_does_not_read_is_refused(
    graph: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that a translation forgets, and one that the operator does not have; those that say what is so anyway are not."""
    leaky = helper.make_node("LeakyRelu", ["x"], ["y"], "leak", alpha=0.25)
    if graph:
        monkeypatch.setitem(_EXPANSIONS, "LeakyRelu", lambda _, out: out.emit("Relu", "x", to="y"))
    else:
        monkeypatch.setitem(_WRITERS, "LeakyRelu", TABLE["Relu"])
    text = refusal_of(leaky, {"x": (3, 5)}, tmp_path)
    assert text == "`leak` (LeakyRelu): `alpha=0.25`, which is not supported in this form of it"
    usual = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.01)
    written(model([usual], [value("x", 3, 5)], ["y"]), tmp_path)
    unknown = helper.make_node("Neg", ["x"], ["y"], "negative", slope=2)
    assert "`slope=2`" in refusal_of(unknown, {"x": (3, 5)}, tmp_path)


@pytest.mark.parametrize("graph", [True, False])
def test_an_input_that_its_translation_does_not_read_is_refused(
    graph: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gemm = helper.make_node("Gemm", ["a", "b", "c"], ["y"], "product")
    inputs = {"a": (3, 4), "b": (4, 5), "c": (5,)}
    if graph:
        monkeypatch.setitem(_EXPANSIONS, "Gemm", lambda _, out: out.emit("MatMul", "a", "b", to="y"))
    else:
        monkeypatch.setitem(_WRITERS, "Gemm", TABLE["MatMul"])
    assert refusal_of(gemm, inputs, tmp_path) == "`product` (Gemm): its input 3 is not supported in this form of it"


@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        (helper.make_node("Split", ["x"], ["y", "z"], axis=1, num_outputs=3), {"x": (2, 6)}),
        (
            helper.make_node("RNN", ["x", "w", "r"], ["y", "z"], hidden_size=3),
            {"x": (4, 1, 3), "w": (1, 2, 3), "r": (1, 2, 2)},
        ),
    ],
)
def test_attributes_that_contradict_the_node_are_refused(
    node: onnx.NodeProto, inputs: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    assert f"({node.op_type})" in refusal_of(node, inputs, tmp_path)


def test_every_node_that_is_not_supported_is_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], "first"),
        helper.make_node("Add", ["a", "a"], ["b"], "after"),
        helper.make_node("Multinomial", ["b"], ["c"], "second"),
        helper.make_node("Unique", ["x"], ["y"], "third"),
    ]
    with pytest.raises(TschedError) as found:
        written(model(nodes, [value("x", 3)], ["c", "y"]), tmp_path)
    (d,) = found.value.diagnostics
    assert d.code == "E0941" and "3 nodes" in d.message
    assert [n.text.split(":")[0] for n in d.notes[:3]] == [
        "`first` (NonZero)",
        "`second` (Multinomial)",
        "`third` (Unique)",
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx"]


def _cycle() -> onnx.ModelProto:
    node = helper.make_node
    return model([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], [value("x", 3)], ["b"])


def _twice() -> onnx.ModelProto:
    node = helper.make_node
    return model([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])], [value("x", 3)], ["y"])


def _external(location: str, size: int = 3, offset: int = 0) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size], data_location=TensorProto.EXTERNAL)
        t.external_data.add(key="location", value=location)
        t.external_data.add(key="offset", value=str(offset))
        return model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", size)], ["y"], [t])

    return make


def _huge() -> onnx.ModelProto:
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20, 1 << 20], raw_data=b"1234")
    return model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", 3)], ["y"], [t])


def _short() -> onnx.ModelProto:
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[5], raw_data=b"1234")
    return model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", 5)], ["y"], [t])


def _short_and_large() -> onnx.ModelProto:
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[5000], raw_data=bytes(4999))
    return model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", 5000)], ["y"], [t])


def _filled() -> onnx.ModelProto:
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20]), "s")
    return model([helper.make_node("ConstantOfShape", ["s"], ["y"])], [value("x", 3)], ["y"], [shape])


def _expanded() -> onnx.ModelProto:
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20, 1]), "s")
    return model([helper.make_node("Expand", ["x", "s"], ["y"])], [value("x", 1)], ["y"], [shape])


def _scattered() -> onnx.ModelProto:
    places = numpy_helper.from_array(np.array([0, 3]), "i")
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"])
    return model([node], [value("x", 3), value("u", 2)], ["y"], [places])


def _endless() -> onnx.ModelProto:
    length = numpy_helper.from_array(np.array(1 << 40), "n")
    return model([helper.make_node("DFT", ["x", "n"], ["y"], axis=1)], [value("x", 1, 3, 1)], ["y"], [length])


def _of_opset(version: int) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        m = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", 3)], ["y"])
        m.opset_import[0].version = version
        return m

    return make


def _windows(op: str, *filters: int, **attributes: Any) -> Callable[[], onnx.ModelProto]:
    constants = [weight("w", *filters)] if filters else []
    node = helper.make_node(op, ["x", *(c.name for c in constants)], ["y"], **attributes)
    return lambda: model([node], [value("x", 1, 3, 8, 8)], ["y"], constants)


def _open_twice() -> onnx.ModelProto:
    shape = numpy_helper.from_array(np.array([0, -1]), "s")
    return model([helper.make_node("Reshape", ["x", "s"], ["y"])], [value("x", 0, 3)], ["y"], [shape])


def _nothing() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], [value("x", 3)], ["missing"])


def _other_kind() -> onnx.ModelProto:
    """A constant that is a float where ONNX has a tensor."""
    return model([helper.make_node("Constant", [], ["c"], value=0.5), helper.make_node("Add", ["x", "c"], ["y"])],
                 [value("x", 3)], ["y"])  # fmt: skip


def _few_numbers(op: str, x: Array, *others: Array) -> Callable[[], onnx.ModelProto]:
    """A node with constants, of which one has another number of elements than the node asks for."""
    constants = [numpy_helper.from_array(o, f"c{n}") for n, o in enumerate(others)]
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    return lambda: model([helper.make_node(op, ["x", *(c.name for c in constants)], ["y"])], [given], ["y"], constants)


def _negative() -> onnx.ModelProto:
    """On which the converter of opsets would end the process."""
    constants = [numpy_helper.from_array(np.array(v), n) for n, v in (("s", [0]), ("e", [2]), ("a", [1]), ("t", [-2]))]
    m = model(
        [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])], [value("x", 3, -(1 << 63))], ["y"], constants
    )
    m.opset_import[0].version = 13
    return m


def _unfit_norm() -> onnx.ModelProto:
    node = helper.make_node
    nodes = [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "s", "s", "s", "s"], ["y"])]
    return model(nodes, [value("x", 1, 2, 5, 5)], ["y"], [weight("w", 4, 2, 3, 3), weight("s", 3)])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_other_kind, "the attribute `value` of `node 0` (Constant) is of another kind"),
        (
            lambda: model([helper.make_node("Conv", ["x"], ["y"])], [value("x", 3)], ["y"]),
            "`node 0` (Conv) has 1 inputs",
        ),
        (lambda: model([helper.make_node("Relu", ["x"], [])], [value("x", 3)], ["x"]), "`node 0` (Relu) has 0 outputs"),
        (
            lambda: model([helper.make_node("Not", ["x"], ["y"])], [value("x", 3)], ["y"]),
            "`X` of the type f32[3], which it does not take",
        ),
        (
            lambda: model(
                [helper.make_node("Add", ["x", "i"], ["y"])],
                [value("x", 3), value("i", 3, dtype=TensorProto.INT64)],
                ["y"],
            ),
            "`B` of the type i64[3], which it does not take",
        ),
        (
            _few_numbers("OneHot", np.array([[0], [1]]), np.array(3), np.array([0.5], np.float32)),
            "ask for the shape [2]",
        ),
        (
            _few_numbers(
                "ConvInteger",
                np.zeros((1, 1, 3, 3), np.uint8),
                np.zeros((2, 1, 2, 2), np.uint8),
                np.array(1, np.uint8),
                np.array([1, 2, 3], np.uint8),
            ),
            "u8[3], where there are 2 numbers or one",
        ),
        (_negative, "the size without a name of the input `x` is open"),
        (_unfit_norm, "BatchNormalization"),
        (_cycle, "uses `b`, which nothing before it makes"),
        (_twice, "two values are called `y`"),
        (_external("../secret.bin"), "outside of the folder"),
        (_external("/etc/hostname"), "outside of the folder"),
        (_external("link.bin"), "outside of the folder"),
        (_external("data.bin", 4), "ends before the data"),
        (_external("data\0.bin"), "a file that no system can have"),
        (_external("data.bin", 3, -4), "begins at -4 of its file"),
        (_of_opset(0), "it is of opset 0"),
        (_of_opset(999), "it is of opset 999"),
        (
            lambda: model([helper.make_node("Add", ["x", ""], ["y"])], [value("x", 3)], ["y"]),
            "leaves its input `B` out, which it needs",
        ),
        (_windows("Conv", 4, 3, 3, 3, kernel_shape=[5, 5]), "`kernel_shape` is [5, 5]"),
        (_windows("ConvTranspose", 3, 4, 3, 3, kernel_shape=[3, 2]), "`kernel_shape` is [3, 2]"),
        (_windows("MaxPool", kernel_shape=[2, 2], pads=[2, 0, 0, 0]), "a window with padding alone in it"),
        (_windows("AveragePool", kernel_shape=[2, 2], pads=[0, 0, 0, 2]), "a window with padding alone in it"),
        (_open_twice, "of which -1 may be any size"),
        (_external("none.bin"), "is missing"),
        (_huge, "which no tensor here can have"),
        (_short, "has other data than its shape"),
        (_short_and_large, "has other data than its shape"),
        (_filled, "a constant of the shape"),
        (_expanded, "which is too large"),
        (_scattered, "the elements 0 to 3 of 3"),
        (_endless, "a transform of 1099511627776 elements"),
        (_nothing, "the output `missing` is made by no node"),
    ],
)
def test_a_hostile_file_is_refused_with_a_reason(make: Callable[[], onnx.ModelProto], why: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(12))
    (folder / "data.bin").write_bytes(bytes(12))
    (folder / "link.bin").symlink_to("../secret.bin")
    with pytest.raises(TschedError) as found:
        written(make(), folder)
    (d,) = found.value.diagnostics
    assert d.code in ("E0940", "E0941", "E0942") and why in " ".join((d.message, *(n.text for n in d.notes)))
    assert sorted(p.name for p in folder.iterdir()) == ["data.bin", "link.bin", "net.onnx"]


@pytest.mark.parametrize("opset", [13, 18])
def test_nodes_are_put_behind_what_they_use(opset: int, tmp_path: Path) -> None:
    """As converters to f16 add their nodes at the end. What a branch uses counts, and what it makes does not."""
    branches: dict[str, Any] = {
        f"{word}_branch": helper.make_graph(
            [helper.make_node("Neg", ["r"], ["y"]), helper.make_node(op, ["y"], [word])], word, [], [value(word, 3)]
        )
        for word, op in (("then", "Abs"), ("else", "Relu"))
    }
    nodes = [
        helper.make_node("If", ["c"], ["y"], **branches), helper.make_node("Add", ["x", "s"], ["r"]),
        helper.make_node("Abs", ["x"], ["s"]), helper.make_node("Cast", ["k"], ["c"], to=TensorProto.BOOL),
    ]  # fmt: skip
    m = model(nodes, [value("x", 3), value("k", dtype=TensorProto.INT64)], ["y"])
    m.opset_import[0].version = opset
    x = np.array([1.0, -2, 0.5], np.float32)
    for k in (0, 1):
        (wanted,) = by_runtime(m, {"x": x, "k": np.array(k)})
        (made,) = by_reference(*checked(m, tmp_path), [x, np.array(k)])
        np.testing.assert_allclose(made, wanted)


@pytest.mark.parametrize("word", [b"Relu", b"wordy"])
def test_names_that_are_no_text_are_refused(word: bytes, tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["wordy"])
    content = model([node], [value("x", 3)], ["wordy"]).SerializeToString().replace(word, b"\xff" + word[1:])
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(TschedError, match="no text in UTF-8"):
        import_onnx(tmp_path / "net.onnx")


def test_data_beside_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    path = written(_external("data.bin")(), tmp_path)
    assert load_file(path.with_suffix(".safetensors"))["w"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("length", [1, 20, 100, 400])
def test_a_file_that_is_cut_off_is_refused(length: int, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(cnn().SerializeToString()[:length])
    with pytest.raises(TschedError, match="E0940"):
        import_onnx(tmp_path / "net.onnx")


def _field(number: int, content: bytes) -> bytes:
    """A field of a message of protobuf with a content of bytes."""
    size = len(content)
    return bytes((number << 3 | 2, size & 127 | 128, size >> 7 & 127 | 128, size >> 14)) + content


def _added(*parts: bytes) -> bytes:
    """The small network, and beside its constants one that is spelled as the parts."""
    return cnn().SerializeToString() + _field(7, _field(5, b"".join(parts)))


def _data(*numbers: int) -> bytes:
    return np.array(numbers, np.float32).tobytes()


MANY = range(521)
HEAD = TensorProto(name="added", data_type=TensorProto.FLOAT, dims=[len(MANY)]).SerializeToString()
SMALL = TensorProto(name="added", data_type=TensorProto.FLOAT, dims=[3]).SerializeToString()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(cnn().SerializeToString(), id="as usual"),
        pytest.param(_added(HEAD, _field(9, _data(*MANY))), id="a graph in two parts"),
        pytest.param(_added(_field(9, _data(*MANY)), HEAD), id="data before its shape"),
        pytest.param(_added(HEAD, _field(9, _data(*MANY[::-1])), _field(9, _data(*MANY))), id="large data twice"),
        pytest.param(_added(SMALL, _field(9, _data(*MANY)), _field(9, _data(1, 2, 3))), id="small data last"),
        pytest.param(_added(HEAD, _field(9, _data(1, 2, 3)), _field(9, _data(*MANY))), id="small data first"),
        pytest.param(_added(HEAD, b"\xca" + b"\0" + _field(9, _data(*MANY))[1:]), id="a number that is spelled long"),
        pytest.param(_added(HEAD, b"\xa3\6\xa4\6", _field(9, _data(*MANY))), id="a group"),
        pytest.param(_added(HEAD, b"\x78\1\x7d" + bytes(4), _field(9, _data(*MANY))), id="unknown fields"),
    ],
)
def test_constants_are_read_as_the_parser_does(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(content)
    wanted = {t.name: numpy_helper.to_array(t) for t in onnx.load_model_from_string(content).graph.initializer}
    found = read_onnx(tmp_path / "net.onnx").constants
    assert "added" in wanted or content == cnn().SerializeToString()
    assert found.keys() >= wanted.keys()
    assert all(np.array_equal(found[n], w) and found[n].dtype == w.dtype for n, w in wanted.items())


@pytest.mark.parametrize("data", [b"", b"\x3a", b"\x3a\xff\xff\xff\xff\x7f", b"\x80" * 40, b"\x3a\2\x2a\x7f", b"\x3b"])
def test_bytes_that_are_no_model_are_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(data)
    with pytest.raises(TschedError, match="E0940"):
        import_onnx(tmp_path / "net.onnx")


def test_a_scalar_input_may_have_a_value(tmp_path: Path) -> None:
    m = model([helper.make_node("Mul", ["x", "rate"], ["y"])], [value("x", 3), value("rate")], ["y"])
    (tmp_path / "net.onnx").write_bytes(m.SerializeToString())
    text = import_onnx(tmp_path / "net.onnx", values={"rate": 0.5}).read_text()
    assert "X[i] * 0.5" in text or "A[i] * 0.5" in text


def test_the_commands_import_and_run_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorc_dsl.faces.cli import measured

    monkeypatch.setattr(measured, "MOST_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    m = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", "N", 4)], ["y"])
    Path("net.onnx").write_bytes(m.SerializeToString())

    def said(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, [*words, "--threads", "1"] if words[0] == "run" else list(words))
        return done.exit_code, done.output

    assert said("import", "net.onnx", "--shape", "x=3,4") == (
        0,
        "net.tsched: written; `tensorc-dsl run net.tsched` runs it\n",
    )
    code, output = said("run", "net.tsched", "net", "--json")
    assert code == 0 and json.loads(output)["outputs"] == {"y": "float32[3, 4]"}
    code, output = said("run", "net.tsched")
    assert code == 0 and output.startswith("y: float32[3, 4]\nnet: ") and "the median of 1" in output
    assert said("import", "net.onnx", "--shape", "x:3")[0] == 2
    status, told = said("import", "net.onnx", "--shape", "x=1,L")
    assert status == 2 and "import the file for each that occurs, with its number in the place of `L`" in " ".join(
        told.split()
    )
    assert said("run", "net.tsched", "other")[0] == 1
