"""Operators of ONNX Runtime's domain in language models: attentions with keys of earlier steps, and weights of few bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from tests.graph.onnx_cases import Array, by_reference, by_runtime, checked
from tests.graph.test_exporters import refusal

RNG = np.random.default_rng(30)

SEVEN_BITS = 64
"""Weights are below it: where a CPU has no instruction for sums of four products of bytes, ONNX Runtime adds two of them in
16 bits, which larger weights overflow."""


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model(
    op: str, inputs: Sequence[Array | None], count: int, fixed: Sequence[int] = (), **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model of a node, with its inputs by name; those in `fixed` are constants."""
    names = [f"x{n}" if x is not None else "" for n, x in enumerate(inputs)]
    given = {f"x{n}": x for n, x in enumerate(inputs) if x is not None}
    free = {name: x for name, x in given.items() if int(name[1:]) not in fixed}
    node = helper.make_node(op, names, [f"y{n}" for n in range(count)], domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in free.items()],
        [ValueInfoProto(name=o) for o in node.output],
        [numpy_helper.from_array(x, n) for n, x in given.items() if n not in free],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), free


def require_equal(
    folder: Path, op: str, inputs: Sequence[Array | None], count: int = 1, fixed: Sequence[int] = (), **attributes: Any
) -> list[Array]:
    """The import computes what ONNX Runtime does, which is returned."""
    m, free = model(op, inputs, count, fixed, **attributes)
    wanted = by_runtime(m, free)
    for made, w in zip(by_reference(*checked(m, folder), list(free.values())), wanted, strict=True):
        assert (made.dtype, made.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(made, w, rtol=1e-4, atol=1e-5)
    return wanted


B, HEADS, GROUPS, SIZE = 2, 4, 2, 16


def tables(length: int, size: int = SIZE) -> list[Array]:
    angles = np.arange(length)[:, None] * 0.3 ** np.arange(size // 2)
    return [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_a_first_prompt_of_grouped_queries(packed: bool, interleaved: int, tmp_path: Path) -> None:
    q, k, v = f32(B, 5, HEADS * SIZE), f32(B, 5, GROUPS * SIZE), f32(B, 5, GROUPS * SIZE)
    rows: list[Array | None] = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    ends, total = np.full(B, 4, np.int32), np.array(5, np.int32)
    more = [f32(B, GROUPS, 0, SIZE), f32(B, GROUPS, 0, SIZE), ends, total, *tables(16)]
    require_equal(
        tmp_path, "GroupQueryAttention", [*rows, *more], 3, (6, 7, 8), num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1,
        rotary_interleaved=interleaved,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("window", [-1, 4])
def test_grouped_queries_behind_keys_of_earlier_steps(rows: int, window: int, tmp_path: Path) -> None:
    """The buffer has room for the new rows; batches have rows of different numbers before them."""
    batch = B if rows == 1 else 1  # ONNX Runtime takes several rows of one batch alone
    q, k, v = (f32(batch, rows, n * SIZE) for n in (HEADS, GROUPS, GROUPS))
    before = [f32(batch, GROUPS, 9, SIZE) for _ in range(2)]
    ends = np.array([5, 8] if rows == 1 else [8], np.int32)
    inputs = [q, k, v, *before, ends, np.array(9, np.int32), *tables(16)]
    m, free = model(
        "GroupQueryAttention", inputs, 3, (6, 7, 8), num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1, scale=0.3,
        local_window_size=window,
    )  # fmt: skip
    wanted = by_runtime(m, free)
    made = by_reference(*checked(m, tmp_path), list(free.values()))
    np.testing.assert_allclose(made[0], wanted[0], rtol=1e-4, atol=1e-5)
    for a, b in zip(made[1:], wanted[1:], strict=True):
        for n, end in enumerate(ends):  # what lies behind the last key is not said
            np.testing.assert_allclose(a[n, :, : end + 1], b[n, :, : end + 1], rtol=1e-4, atol=1e-5)


def test_grouped_queries_with_a_bias_and_a_cap(tmp_path: Path) -> None:
    q, k, v = f32(B, 1, HEADS * SIZE), f32(B, 1, GROUPS * SIZE), f32(B, 1, GROUPS * SIZE)
    before = [f32(B, GROUPS, 6, SIZE) for _ in range(2)]
    more = [np.full(B, 6, np.int32), np.array(7, np.int32), None, None, None, f32(B, HEADS, 1, 7)]
    require_equal(
        tmp_path,
        "GroupQueryAttention",
        [q, k, v, *before, *more],
        3,
        (6,),
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        softcap=2.0,
    )


def test_grouped_queries_that_are_not_supported_say_why(tmp_path: Path) -> None:
    q, k, v = f32(B, 1, HEADS * SIZE), f32(B, 1, GROUPS * SIZE), f32(B, 1, GROUPS * SIZE)
    before = [f32(B, GROUPS, 6, SIZE) for _ in range(2)]
    inputs: list[Array | None] = [q, k, v, *before, np.full(B, 6, np.int32), np.array(7, np.int32)]
    m, _ = model("GroupQueryAttention", inputs, 3, (), num_heads=HEADS, kv_num_heads=GROUPS)
    assert "`total_sequence_length` is computed, and has to be constant" in refusal(m, tmp_path)[1]
    sinks = [*inputs, None, None, None, None, f32(HEADS)]
    m, _ = model("GroupQueryAttention", sinks, 3, (6,), num_heads=HEADS, kv_num_heads=GROUPS)
    assert "sinks of heads" in refusal(m, tmp_path)[1]


@pytest.mark.parametrize("form", ["rows", "joined", "keys and values", "heads"])
@pytest.mark.parametrize("biased", [False, True])
def test_attentions_of_several_heads(form: str, biased: bool, tmp_path: Path) -> None:
    """Operands that stand in one tensor are those that stand in three, which ONNX Runtime takes on a CPU."""
    width, rows = HEADS * SIZE, 5 if form == "joined" else 3
    q, k, v = f32(B, rows, width), f32(B, 5, width), f32(B, 5, width)
    bias = [f32(3 * width)] if biased and form != "heads" else []
    heads = [x.reshape(B, 5, HEADS, SIZE) for x in (q, k, v) if x.shape[1] == 5]
    forms: dict[str, list[Array | None]] = {
        "rows": [q, k, v, *bias],
        "joined": [np.stack(heads, 3), None, None, *bias],
        "keys and values": [q, np.stack(heads[-2:], 3), None, *bias],
        "heads": [q, *(np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in heads[-2:])],
    }
    plain, free = model("MultiHeadAttention", [q, k, v, *bias], 1, num_heads=HEADS)
    (wanted,) = by_runtime(plain, free)
    m, free = model("MultiHeadAttention", forms[form], 1, num_heads=HEADS)
    (made,) = by_reference(*checked(m, tmp_path), list(free.values()))
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", ["flags", "lengths", "flags of rows"])
def test_masks_of_keys(mask: str, tmp_path: Path) -> None:
    width = HEADS * SIZE
    masks = {
        "flags": np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], np.int32),
        "lengths": np.array([3, 5], np.int32),
        "flags of rows": np.tril(np.ones((B, 5, 5), np.int32)),
    }
    qkv: list[Array | None] = [f32(B, 5, width), f32(B, 5, width), f32(B, 5, width)]
    require_equal(tmp_path, "MultiHeadAttention", [*qkv, None, masks[mask], f32(B, HEADS, 5, 5)], num_heads=HEADS)


def test_keys_of_earlier_steps_are_in_front(tmp_path: Path) -> None:
    width = HEADS * SIZE
    before = [f32(B, HEADS, 4, SIZE) for _ in range(2)]
    inputs = [f32(B, 2, width), f32(B, 2, width), f32(B, 2, width), None, None, None, *before]
    require_equal(tmp_path, "MultiHeadAttention", inputs, 3, num_heads=HEADS, unidirectional=1)
    x, past = f32(B, 2, 6), f32(2, B, HEADS, 4, SIZE)
    flags = np.array([[1, 1, 0, 1, 1, 1], [1] * 6], np.int32)
    inputs = [x, f32(6, 3 * width), f32(3 * width), flags, past]
    require_equal(tmp_path, "Attention", inputs, 2, (1, 2), num_heads=HEADS, unidirectional=1)


def test_an_attention_of_integers(tmp_path: Path) -> None:
    width = HEADS * SIZE
    x = RNG.integers(0, 255, (B, 3, 6)).astype(np.uint8)
    w = RNG.integers(-SEVEN_BITS, SEVEN_BITS, (6, 3 * width)).astype(np.int8)
    scales = [np.array(0.02, np.float32), np.array(0.01, np.float32)]
    zeros = [np.array(120, np.uint8), np.array(0, np.int8)]
    require_equal(
        tmp_path, "QAttention", [x, w, f32(3 * width), *scales, None, *zeros], 1, (1, 2, 3, 4, 6, 7), num_heads=HEADS
    )


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("one_place", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotations(heads_first: bool, one_place: bool, interleaved: int, tmp_path: Path) -> None:
    x = f32(B, HEADS, 3, SIZE) if heads_first else f32(B, 3, HEADS * SIZE)
    at = np.array([4]) if one_place else np.array([[0, 1, 2], [5, 3, 9]])
    require_equal(tmp_path, "RotaryEmbedding", [x, at, *tables(16)], 1, (2, 3), interleaved=interleaved)


def test_the_norm_of_embeddings(tmp_path: Path) -> None:
    words, segments = RNG.integers(0, 20, (B, 5)).astype(np.int32), RNG.integers(0, 2, (B, 5)).astype(np.int32)
    parts = [f32(20, 8), f32(7, 8), f32(2, 8), f32(8), f32(8)]
    require_equal(tmp_path, "EmbedLayerNormalization", [words, segments, *parts], 2, range(2, 7), epsilon=1e-5)


def packed(numbers: Array, bits: int) -> Array:
    """Rows of numbers in bytes, the lowest bits first."""
    each = 8 // bits
    wide = np.pad(numbers, ((0, 0), (0, -numbers.shape[1] % each))).reshape(numbers.shape[0], -1, each)
    return (wide.astype(np.uint8) << np.arange(0, 8, bits, dtype=np.uint8)).sum(-1).astype(np.uint8)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("k", [64, 40])
def test_products_with_weights_of_few_bits(bits: int, zeros: bool, k: int, tmp_path: Path) -> None:
    """Also of rows that do not fill their last block."""
    n, block = 5, 32
    count = -(-k // block)
    numbers, scales = RNG.integers(0, 1 << bits, (n, count * block)), RNG.uniform(0.01, 0.02, (n, count))
    zero = RNG.integers(0, 1 << bits, (n, count))
    weights = packed(numbers, bits).reshape(n, count, -1)
    x, scale = f32(3, k), scales.astype(np.float32)
    inputs = [x, weights, scale.reshape(-1), packed(zero, bits).reshape(-1) if zeros else None]
    (made,) = require_equal(tmp_path, "MatMulNBits", inputs, 1, (1, 2, 3), K=k, N=n, bits=bits, block_size=block)
    wide = (numbers - np.repeat(zero if zeros else np.full_like(zero, 1 << bits - 1), block, 1)) * np.repeat(
        scale, block, 1
    )
    np.testing.assert_allclose(made, x @ wide[:, :k].T, rtol=1e-4, atol=1e-4)


def test_products_with_weights_of_few_bits_that_are_computed_are_refused(tmp_path: Path) -> None:
    m, _ = model("MatMulNBits", [f32(3, 32), np.zeros((5, 1, 16), np.uint8), f32(5)], 1, (2,), K=32, N=5, block_size=32)
    assert "weights that are computed" in refusal(m, tmp_path)[1]


@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_few_bits(zeros: bool, tmp_path: Path) -> None:
    rows, columns, block = 10, 64, 32
    numbers, zero = RNG.integers(0, 16, (rows, columns)), RNG.integers(0, 16, (rows, 2))
    scale = RNG.uniform(0.01, 0.02, (rows, 2)).astype(np.float32)
    at = np.array([[1, 9], [0, 4]])
    inputs = [packed(numbers, 4), at, scale, packed(zero, 4) if zeros else None]
    require_equal(
        tmp_path, "GatherBlockQuantized", inputs, 1, (0, 2, 3), gather_axis=0, quantize_axis=1, block_size=block, bits=4
    )


def test_a_file_that_was_optimized_for_one_machine_says_so(tmp_path: Path) -> None:
    node = helper.make_node("ReorderInput", ["x"], ["y"], "reorder", domain="com.microsoft.nchwc")
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 3, 3))],
        [ValueInfoProto(name="y")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft.nchwc", 1)]
    m = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    assert "optimized for one machine" in refusal(m, tmp_path)[1]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("by_row", [False, True])
def test_layers_whose_weights_and_states_are_quantized(direction: str, by_row: bool, tmp_path: Path) -> None:
    """States are quantized by their range at each step, in each direction; ONNX Runtime's threads share a batch out."""
    count, size = 1 + (direction == "bidirectional"), 5
    scales = (count, 4 * size) if by_row else (count,)
    weights = [RNG.integers(-SEVEN_BITS, SEVEN_BITS, (count, n, 4 * size), np.int8) for n in (3, size)]
    how = [(np.abs(f32(*scales)) * 0.01 + 0.005).astype(np.float32) for _ in range(2)]
    zeros = [np.zeros(scales, np.int8) for _ in range(2)]
    inputs = [
        f32(6, 1, 3), *weights, f32(count, 8 * size), None, f32(count, 1, size), f32(count, 1, size), None,
        how[0], zeros[0], how[1], zeros[1],
    ]  # fmt: skip
    require_equal(
        tmp_path, "DynamicQuantizeLSTM", inputs, 3, (1, 2, 3, 8, 9, 10, 11), direction=direction, hidden_size=size
    )
