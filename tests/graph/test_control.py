"""Branches, loops and sequences beside ONNX Runtime, and the reasons why others are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from tensorc_dsl.base.diagnostic import TschedError
from tests.graph.onnx_cases import Array, by_reference, by_runtime, checked

RNG = np.random.default_rng(23)
node = helper.make_node


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def value(name: str, *shape: int | None, dtype: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def body(nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> GraphProto:
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs))


def model(
    nodes: Sequence[NodeProto],
    inputs: dict[str, Array],
    outputs: Sequence[str],
    constants: dict[str, Array],
    opset: int = 18,
) -> onnx.ModelProto:
    given = [value(n, *x.shape, dtype=helper.np_dtype_to_tensor_dtype(x.dtype)) for n, x in inputs.items()]
    stored = [numpy_helper.from_array(x, n) for n, x in constants.items()]
    graph = helper.make_graph(list(nodes), "net", given, [ValueInfoProto(name=o) for o in outputs], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def require_equal(m: onnx.ModelProto, inputs: dict[str, Array], folder: Path) -> None:
    """The import computes what ONNX Runtime does."""
    wanted = by_runtime(m, inputs)
    for made, w in zip(by_reference(*checked(m, folder), list(inputs.values())), wanted, strict=True):
        assert (made.dtype, made.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(made, w, rtol=1e-5, atol=1e-6)


def reasons(m: onnx.ModelProto, folder: Path) -> str:
    """Why an import is refused."""
    with pytest.raises(TschedError) as found:
        checked(m, folder)
    (d,) = found.value.diagnostics
    assert d.code == "E0941"
    return " ".join(n.text for n in d.notes)


HEADS = [value("i", dtype=TensorProto.INT64), value("c", dtype=TensorProto.BOOL)]
GOES = value("d", dtype=TensorProto.BOOL)


def branches(first: str, second: str, rows: int = 3) -> list[GraphProto]:
    return [
        body([node(first, ["x"], ["t"]), node("Slice", ["t", "zero", "end"], ["r"])], [], [value("r", 3)]),
        body([node(second, ["x"], ["r"])], [], [value("r", rows)]),
    ]


@pytest.mark.parametrize("flag", [(), (1,)])
@pytest.mark.parametrize("number", [2.0, -2.0])
def test_one_of_two_computed_branches_is_chosen(flag: tuple[int, ...], number: float, tmp_path: Path) -> None:
    first, second = branches("Neg", "Exp")
    inputs = {"x": f32(3), "n": np.full(flag, number, np.float32)}
    nodes = [node("Greater", ["n", "half"], ["c"]), node("If", ["c"], ["y"], then_branch=first, else_branch=second)]
    constants = {"half": np.array(0.5, np.float32), "zero": np.array([0]), "end": np.array([3])}
    require_equal(model(nodes, inputs, ["y"], constants), inputs, tmp_path)


def test_branches_of_other_shapes_are_refused(tmp_path: Path) -> None:
    first, second = branches("Neg", "Exp", 4)
    inputs = {"x": f32(4), "c": np.array(True)}
    m = model(
        [node("If", ["c"], ["y"], "choice", then_branch=first, else_branch=second)], inputs, ["y"],
        {"zero": np.array([0]), "end": np.array([3])},
    )  # fmt: skip
    said = reasons(m, tmp_path)
    assert "`choice` (If): its output `y` is f32[3] or f32[4] by a computed condition" in said


def summed(*more: NodeProto, goes: str = "c") -> GraphProto:
    """A body that adds the number of the step and a value from outside to its state, which is also the output of a step."""
    nodes = [
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), node("Add", ["s", "f"], ["t"]), node("Mul", ["t", "w"], ["u"]),
        node("Identity", ["u"], ["v"]), *more, node("Identity", [goes], ["d"]),
    ]  # fmt: skip
    return body(nodes, [*HEADS, value("s", 3)], [GOES, value("u", 3), value("v", 3)])


@pytest.mark.parametrize("going", ["", "yes"])
def test_a_loop_is_a_copy_of_its_body_for_each_step(going: str, tmp_path: Path) -> None:
    inputs = {"x": f32(3)}
    constants = {"n": np.array(4), "yes": np.array(True), "w": f32(3)}
    m = model([node("Loop", ["n", going, "x"], ["y", "all"], body=summed())], inputs, ["y", "all"], constants)
    require_equal(m, inputs, tmp_path)


def test_a_loop_ends_when_a_condition_of_constants_is_false(tmp_path: Path) -> None:
    """As exporters write `while`: the number of steps is the largest there is."""
    inputs = {"x": f32(3)}
    constants = {"n": np.array(np.iinfo(np.int64).max), "yes": np.array(True), "w": f32(3), "two": np.array(2)}
    inner = summed(node("Less", ["i", "two"], ["less"]), goes="less")
    m = model([node("Loop", ["n", "yes", "x"], ["y", "all"], body=inner)], inputs, ["y", "all"], constants)
    require_equal(m, inputs, tmp_path)


@pytest.mark.parametrize("going", ["", "start"])
@pytest.mark.parametrize("limit", [-3.0, 3.0, 1e9])
def test_a_loop_that_data_ends_keeps_its_states(limit: float, going: str, tmp_path: Path) -> None:
    inputs = {
        "x": np.array([1, 2, 3], np.float32),
        "limit": np.array(limit, np.float32),
        "start": np.array(limit != 3.0),
    }
    nodes = [
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), node("Add", ["s", "f"], ["u"]),
        node("ReduceMax", ["u"], ["top"], keepdims=0), node("Less", ["top", "limit"], ["d"]),
    ]  # fmt: skip
    inner = body(nodes, [*HEADS, value("s", 3)], [GOES, value("u", 3)])
    m = model([node("Loop", ["n", going, "x"], ["y"], body=inner)], inputs, ["y"], {"n": np.array(5)})
    require_equal(m, inputs, tmp_path)


def test_loops_in_loops_have_values_of_their_own(tmp_path: Path) -> None:
    """The inner one has the same name, and reads a value of the outer one; so does a branch in it."""
    then, other = (body([node(op, ["k"], [f"r{op}"])], [], [value(f"r{op}", 3)]) for op in ("Neg", "Abs"))
    inner = body(
        [
            node("Cast", ["j"], ["f"], to=TensorProto.FLOAT), node("Add", ["k", "f"], ["t"]),
            node("Mul", ["t", "h"], ["next"]), node("Equal", ["j", "one"], ["e"]),
            node("If", ["e"], ["z"], "same", then_branch=then, else_branch=other), node("Identity", ["go"], ["goes"]),
        ],
        [value("j", dtype=TensorProto.INT64), value("go", dtype=TensorProto.BOOL), value("k", 3)],
        [value("goes", dtype=TensorProto.BOOL), value("next", 3), value("z", 3)],
    )  # fmt: skip
    outer = body(
        [
            node("Add", ["s", "w"], ["h"]), node("Loop", ["two", "", "h"], ["u", "rows"], "same", body=inner),
            node("ReduceSum", ["rows", "axes"], ["v"], keepdims=0), node("Identity", ["c"], ["d"]),
        ],
        [*HEADS, value("s", 3)], [GOES, value("u", 3), value("v", 3)],
    )  # fmt: skip
    inputs = {"x": f32(3)}
    constants = {"two": np.array(2), "one": np.array(1), "w": f32(3), "axes": np.array([0])}
    m = model([node("Loop", ["two", "", "x"], ["y", "all"], "same", body=outer)], inputs, ["y", "all"], constants)
    require_equal(m, inputs, tmp_path)


@pytest.mark.parametrize(
    ("trips", "going", "why"),
    [
        ("m", "", "the number of its steps is computed"),
        ("", "", "more than"),
        ("huge", "", "more than"),
        ("four", "go", "the sizes of its outputs depend on data"),
        ("", "go", "the number of its steps depends on data"),
        ("none", "", "an output of no steps"),
    ],
)
def test_loops_of_unknown_length_are_refused(trips: str, going: str, why: str, tmp_path: Path) -> None:
    inputs = {"x": f32(3), "m": np.array(4), "go": np.array(True)}
    constants = {"huge": np.array(1 << 40), "four": np.array(4), "none": np.array(0), "w": f32(3)}
    m = model([node("Loop", [trips, going, "x"], ["y", "all"], "loop", body=summed())], inputs, ["y", "all"], constants)
    said = reasons(m, tmp_path)
    assert said.startswith("`loop` (Loop): ") and why in said


def test_a_refused_node_of_a_body_is_named_once(tmp_path: Path) -> None:
    inputs = {"x": f32(3)}
    inner = summed(node("NonZero", ["u"], ["z"], "found"), node("Cast", ["z"], ["q"], to=TensorProto.FLOAT))
    inner.output[2].name = "q"
    m = model(
        [node("Loop", ["n", "", "x"], ["y", "all"], body=inner)], inputs, ["y", "all"], {"n": np.array(4), "w": f32(3)}
    )
    assert reasons(m, tmp_path).count("`found` (NonZero): the size of its result depends on data") == 1


def test_sequences_are_the_values_in_them(tmp_path: Path) -> None:
    inputs = {"x": f32(7, 3)}
    nodes = [
        node("SplitToSequence", ["x", "three"], ["parts"], axis=0),
        node("SequenceAt", ["parts", "minus"], ["last"]),
        node("SequenceInsert", ["parts", "last", "one"], ["more"]),
        node("SequenceErase", ["more", "zero"], ["rest"]),
        node("SequenceLength", ["rest"], ["count"]),
        node("ConcatFromSequence", ["rest"], ["y"], axis=0),
        node("SplitToSequence", ["x"], ["rows"], axis=1, keepdims=0),
        node("ConcatFromSequence", ["rows"], ["z"], axis=0, new_axis=1),
        node("SequenceConstruct", ["last", "last"], ["pair"]),
        node("ConcatFromSequence", ["pair"], ["w"], axis=1),
    ]
    constants = {"three": np.array(3), "minus": np.array(-1), "one": np.array(1), "zero": np.array(0)}
    require_equal(model(nodes, inputs, ["y", "count", "z", "w"], constants), inputs, tmp_path)


def test_a_loop_may_gather_a_sequence(tmp_path: Path) -> None:
    """As PyTorch's exporter writes a list that grows."""
    kind = helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None)
    grown = helper.make_tensor_sequence_value_info("grown", TensorProto.FLOAT, None)
    inner = body(
        [
            node("Gather", ["x", "i"], ["row"], axis=0), node("Exp", ["row"], ["e"]),
            node("SequenceInsert", ["list", "e"], ["grown"]), node("Identity", ["c"], ["d"]),
        ],
        [*HEADS, kind], [GOES, grown],
    )  # fmt: skip
    nodes = [
        node("SequenceEmpty", [], ["empty"], dtype=TensorProto.FLOAT), node("Loop", ["n", "", "empty"], ["all"], body=inner),
        node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1),
    ]  # fmt: skip
    inputs = {"x": f32(3, 2)}
    require_equal(model(nodes, inputs, ["y"], {"n": np.array(3)}), inputs, tmp_path)


def test_a_sequence_is_no_output_and_no_operand(tmp_path: Path) -> None:
    nodes = [node("SequenceConstruct", ["x", "x"], ["pair"], "both"), node("Relu", ["pair"], ["y"], "relu")]
    inputs = {"x": f32(3)}
    assert "`relu` (Relu): `pair`, which it reads, is no tensor" in reasons(model(nodes, inputs, ["y"], {}), tmp_path)
    assert "the output `pair`: a sequence" in reasons(model(nodes[:1], inputs, ["pair"], {}), tmp_path)


@pytest.mark.parametrize("opset", [9, 11, 13])
def test_bodies_are_of_the_opset_of_the_model(opset: int, tmp_path: Path) -> None:
    """What is an attribute there, and an input today."""
    axes = {"axes": [-1 if opset >= 11 else 1], "keepdims": 1}
    inner = body(
        [
            node("ReduceMean", ["s"], ["m"], **axes), node("Sub", ["s", "m"], ["t"]), node("Softmax", ["t"], ["u"], axis=1),
            node("Identity", ["c"], ["d"]),
        ],
        [*HEADS, value("s", 2, 3, 5)], [GOES, value("u", 2, 3, 5)],
    )  # fmt: skip
    branch = body([node("ReduceMax", ["x"], ["r"], **axes)], [], [value("r", 2, 3, 1)])
    nodes = [
        node("Loop", ["n", "", "x"], ["z"], body=inner),
        node("If", ["yes"], ["p"], then_branch=branch, else_branch=branch),
        node("Add", ["z", "p"], ["y"]),
    ]  # fmt: skip
    inputs = {"x": f32(2, 3, 5)}
    m = model(nodes, inputs, ["y"], {"n": np.array(2), "yes": np.array(True)}, opset)
    require_equal(m, inputs, tmp_path)


def test_values_without_elements_have_to_fit(tmp_path: Path) -> None:
    inputs = {"x": f32(2, 3)}
    for empty, fits in (((0, 3), True), ((0,), True), ((0, 4), False)):
        m = model(
            [node("Concat", ["x", "e"], ["y"], "join", axis=0)], inputs, ["y"], {"e": np.zeros(empty, np.float32)}
        )
        if fits:
            (made,) = by_reference(*checked(m, tmp_path), list(inputs.values()))
            assert np.array_equal(made, inputs["x"])
        else:
            assert "`join` (Concat): operands of other shapes" in reasons(m, tmp_path)


def test_a_body_may_read_what_an_opset_replaces(tmp_path: Path) -> None:
    """The converter of opsets puts several nodes in the place of a softmax."""
    branch = body([node("Neg", ["p"], ["r"])], [], [value("r", 2, 3)])
    nodes = [node("Softmax", ["x"], ["p"]), node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    inputs = {"x": f32(2, 3), "c": np.array(True)}
    require_equal(model(nodes, inputs, ["y", "p"], {}, 11), inputs, tmp_path)
