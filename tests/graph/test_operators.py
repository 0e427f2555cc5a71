"""Each operator of the table beside ONNX Runtime: odd sizes, and every attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs

from tensorc_dsl.base.diagnostic import TschedError
from tests.graph.onnx_cases import Array, Case, checked, model_of, require_equal, variant

RNG = np.random.default_rng(7)


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return RNG.uniform(0.1, 3.0, shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def below(size: int, *shape: int) -> Array:
    return RNG.integers(-size, size, shape)


def bits(*shape: int) -> Array:
    return RNG.integers(0, 2, shape).astype(bool)


def u8(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def single(value: float, dtype: Any = np.float32) -> Array:
    return np.array(value, dtype)


UNARY = [
    Case(op, [f32(3, 5)])
    for op in """Relu Sigmoid Tanh Erf Exp Softplus Softsign Neg Abs Floor Ceil Round Sign Sin Cos Atan Sinh LeakyRelu Elu
        Selu Celu HardSigmoid HardSwish ThresholdedRelu""".split()
] + [Case(op, [positive(2, 3, 1)]) for op in "Sqrt Log Reciprocal".split()]
ATTRIBUTES = [
    Case("LeakyRelu", [f32(7)], {"alpha": 0.3}),
    Case("Elu", [f32(7)], {"alpha": 0.3}),
    Case("HardSigmoid", [f32(7)], {"alpha": 0.3, "beta": 0.25}),
    Case("ThresholdedRelu", [f32(7)], {"alpha": 0.3}),
    Case("Shrink", [f32(9)], {"lambd": 0.4, "bias": 0.1}),
    Case("Gelu", [f32(9)], opset=20),
    Case("Gelu", [f32(9)], {"approximate": "tanh"}, opset=20),
    Case("Clip", [f32(3, 4), single(-0.5), single(0.5)], fixed=(1, 2)),
    Case("Clip", [f32(3, 4), None, single(0.5)], fixed=(2,)),
    Case("Clip", [f32(3, 4), single(-0.2), single(0.5)]),
    Case("Clip", [f32(3, 4)], {"min": -0.5, "max": 0.25}, opset=6),
    Case("Cast", [f32(3, 4) * 9], {"to": TensorProto.INT32}),
    Case("Cast", [f32(3, 4)], {"to": TensorProto.BOOL}),
    Case("Cast", [below(5, 4)], {"to": TensorProto.FLOAT}),
    Case("Cast", [bits(4)], {"to": TensorProto.FLOAT}),
    Case("IsNaN", [np.array([1, np.nan, np.inf], np.float32)]),
    Case("IsInf", [np.array([1, -np.inf, np.inf], np.float32)], {"detect_negative": 0}),
    Case("Not", [bits(3, 2)]),
    Case("Dropout", [f32(3, 1, 5)], outputs=2),
    Case("Dropout", [f32()], outputs=2),
]
BINARY = [
    *(Case(op, [f32(2, 1, 5), f32(3, 1)]) for op in "Add Sub Mul Div Min Max PRelu".split()),
    *(Case(op, [f32(3, 4), f32(4)]) for op in "Equal Greater GreaterOrEqual Less LessOrEqual".split()),
    *(Case(op, [bits(3, 1), bits(4)]) for op in "And Or Xor".split()),
    Case("Add", [f32(3, 4), single(0.5)], fixed=(1,)),
    Case("Add", [f32(), f32()]),
    Case("Div", [np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])]),
    Case("Mod", [np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])]),
    Case("Mod", [f32(5), positive(5)], {"fmod": 1}),
    Case("Pow", [positive(3, 4), f32(4)]),
    Case("Pow", [f32(3, 4), single(2.0)], fixed=(1,)),
    Case("Pow", [positive(3, 4), single(0.5)], fixed=(1,)),
    Case("Pow", [positive(3, 4), np.array([2, 3, 1, 0])], fixed=(1,)),
    Case("Sum", [f32(3, 4), f32(4), f32(1)]),
    Case("Mean", [f32(3, 4), f32(4), f32(1)]),
    Case("Max", [f32(3, 4), f32(4), f32(1)]),
    Case("Where", [bits(3, 1), f32(4), f32(1, 1)]),
    Case("Equal", [bits(3, 1), bits(4)]),
    Case("BitShift", [u8(4), u8(4) % 9], {"direction": "LEFT"}),
]
PRODUCTS = [
    Case("MatMul", [f32(3, 5), f32(5, 4)]),
    Case("MatMul", [f32(2, 1, 3, 5), f32(3, 5, 4)]),
    Case("MatMul", [f32(5), f32(5, 4)]),
    Case("MatMul", [f32(2, 3, 5), f32(5)]),
    Case("MatMul", [f32(5), f32(5)]),
    Case("Gemm", [f32(5, 3), f32(4, 5), f32(3, 1)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("Gemm", [f32(3, 5), f32(5, 4)]),
    Case("Gemm", [f32(3, 5), f32(5, 4), single(1.5)], fixed=(1, 2)),
    Case("MatMulInteger", [u8(3, 5), u8(5, 4), np.array(12, np.uint8), np.array(7, np.uint8)]),
    Case("Einsum", [f32(2, 3, 5), f32(2, 5, 4)], {"equation": "bij, bjk -> bik"}),
    Case("Einsum", [f32(3, 5, 5)], {"equation": "...ii->...i"}),
    Case(
        "QLinearMatMul",
        [u8(3, 5), single(0.02), np.array(113, np.uint8), u8(5, 4), single(0.01), np.array(99, np.uint8), single(0.05),
         np.array(120, np.uint8)],
    ),
]  # fmt: skip
TRANSFORMS = [
    *(Case("DFT", [f32(2, n, 3, parts)], {"axis": 1, "inverse": inverse}, opset=17)
      for n, parts, inverse in ((7, 1, 0), (7, 2, 0), (6, 2, 1), (1, 2, 1))),
    Case("DFT", [f32(2, 3, 7, 1), None, single(-2, np.int64)], {"onesided": 1}, fixed=(2,), opset=20),
    *(Case("DFT", [f32(3, 7, parts), single(n, np.int64)], {"axis": 1}, fixed=(1,), opset=17)
      for n, parts in ((5, 1), (11, 2))),
    Case("DFT", [f32(3, 8, 1), single(5, np.int64)], {"onesided": 1}, fixed=(1,), opset=17),
    Case("STFT", [f32(2, 23, 1), single(3, np.int64), positive(7)], fixed=(1, 2), opset=17),
    Case("STFT", [f32(1, 23, 1), single(3, np.int64), positive(8)], fixed=(1,), opset=17),
    Case("STFT", [f32(2, 23), single(5, np.int64), None, single(8, np.int64)], fixed=(1, 3), opset=17),
    Case("STFT", [f32(1, 13, 2), single(4, np.int64), positive(5)], {"onesided": 0}, fixed=(1,), opset=17),
    Case("STFT", [f32(1, 7, 1), single(4, np.int64), positive(7), single(7, np.int64)], fixed=(1, 3), opset=17),
]  # fmt: skip
WINDOWS = [
    Case("Conv", [f32(2, 3, 7, 9), f32(4, 3, 3, 2)]),
    Case("Conv", [f32(1, 3, 7, 9), f32(4, 3, 3, 3), f32(4)], {"pads": [0, 0, 1, 1], "strides": [2, 1]}, fixed=(1, 2)),
    Case("Conv", [f32(1, 4, 7, 9), f32(6, 2, 3, 3)], {"group": 2, "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
    Case("Conv", [f32(1, 4, 7, 6), f32(4, 1, 2, 2), f32(4)], {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("Conv", [f32(1, 3, 7, 6), f32(6, 1, 2, 2)], {"group": 3, "auto_pad": "SAME_LOWER"}),
    Case("Conv", [f32(1, 3, 8), f32(4, 3, 1)], {"auto_pad": "VALID"}),
    Case("Conv", [f32(1, 2, 4, 5, 6), f32(3, 2, 2, 3, 2)], {"strides": [1, 2, 1], "pads": [1, 0, 0, 0, 1, 1]}),
    Case("ConvTranspose", [f32(1, 3, 4, 5), f32(3, 2, 3, 3)], {"strides": [2, 3], "pads": [1, 0, 1, 1]}),
    Case(
        "ConvTranspose",
        [f32(1, 4, 4, 3), f32(4, 3, 2, 2), f32(6)],
        {"group": 2, "output_padding": [1, 0], "strides": [2, 2]},
    ),
    Case("ConvTranspose", [f32(1, 2, 5), f32(2, 2, 3)], {"dilations": [2], "output_shape": [8]}),
    Case("ConvTranspose", [f32(1, 2, 4, 5), f32(2, 2, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("MaxPool", [f32(1, 2, 7, 9)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}),
    Case("MaxPool", [f32(1, 2, 6, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    Case("MaxPool", [f32(2, 2, 7, 8)], {"kernel_shape": [2, 3], "auto_pad": "SAME_UPPER"}),
    Case("MaxPool", [f32(2, 2, 7, 8)], {"kernel_shape": [2, 3], "dilations": [2, 1]}),
    Case("MaxPool", [f32(2, 2, 7, 8)], {"kernel_shape": [2, 3], "pads": [1, 1, 0, 0]}, outputs=2),
    Case("AveragePool", [f32(1, 2, 7, 9)], {"kernel_shape": [3, 2], "strides": [1, 2]}),
    Case("AveragePool", [f32(1, 2, 7, 8)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Case("AveragePool", [f32(1, 2, 7, 8)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    Case("AveragePool", [f32(1, 2, 6, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    Case("GlobalAveragePool", [f32(2, 3, 5, 7)]),
    Case("GlobalMaxPool", [f32(2, 3, 5)]),
    Case("LpPool", [f32(1, 2, 6, 7)], {"kernel_shape": [2, 3], "p": 3}),
]
REDUCTIONS = [
    Case("ReduceSum", [f32(3, 4, 5), ints(-1, 0)], fixed=(1,)),
    Case("ReduceSum", [f32(3, 4, 5)], {"keepdims": 0}),
    Case("ReduceSum", [f32(3, 4)], {"noop_with_empty_axes": 1}),
    *(Case(f"Reduce{op}", [positive(3, 4, 5), ints(1)], {"keepdims": 0}, fixed=(1,)) for op in
      "Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()),
    Case("ReduceMax", [f32(3, 4, 5)], {"axes": [2]}, opset=13),
    Case("ArgMax", [f32(3, 5)], {"axis": 1, "keepdims": 0}),
    Case("ArgMin", [np.array([[1, 0, 0], [2, 2, 1]], np.float32)], {"axis": 1, "select_last_index": 1}),
    Case("Softmax", [f32(3, 4, 5)], {"axis": 1}),
    Case("Softmax", [f32(3, 4, 5)], {"axis": 1}, opset=11),
    Case("Softmax", [f32(2, 1, 3, 2, 2)], {"axis": 3}),
    Case("LogSoftmax", [f32(3, 5)]),
    Case("LayerNormalization", [f32(3, 4, 5), f32(4, 5), f32(4, 5)], {"axis": 1, "epsilon": 1e-3}),
    Case("LayerNormalization", [f32(3, 5), f32(5)], outputs=3),
    Case("Dropout", [f32(2, 3), np.array(0, np.float32), np.array(True)], fixed=(1, 2)),
    Case("Resize", [np.arange(0, 36, 3).astype(np.uint8).reshape(1, 1, 3, 4), None, None, np.array([1, 1, 6, 8])],
         {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, fixed=(3,)),
    Case("BatchNormalization", [f32(2, 3, 4), f32(3), f32(3), f32(3), positive(3)], {"epsilon": 1e-3}),
    Case("BatchNormalization", [f32(2, 3, 4, 5), f32(3), f32(3), f32(3), positive(3)], {"training_mode": 1}, outputs=3),
    Case("BatchNormalization", [f32(3, 2), f32(2), f32(2), f32(2), positive(2)], {"training_mode": 1, "momentum": 0.7},
         outputs=3),
    Case("InstanceNormalization", [f32(2, 3, 4, 5), f32(3), f32(3)]),
    Case("GroupNormalization", [f32(2, 6, 4), f32(6), f32(6)], {"num_groups": 3}, opset=21),
    Case("LpNormalization", [f32(3, 5)], {"axis": 0, "p": 1}),
    Case("LRN", [f32(1, 7, 3, 2)], {"size": 3, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
    Case("CumSum", [f32(3, 5), ints(1)], {"reverse": 1, "exclusive": 1}, fixed=(1,)),
    Case("MeanVarianceNormalization", [f32(2, 3, 5, 1)]),
    Case("MeanVarianceNormalization", [f32(3, 5)], {"axes": [-1]}),
]  # fmt: skip
MOVEMENT = [
    Case("Transpose", [f32(3, 4, 5)], {"perm": [2, 0, 1]}),
    Case("Transpose", [f32(3, 1, 5)], {"perm": [1, 0, 2]}),
    Case("Reshape", [f32(3, 4, 5), ints(0, -1)], fixed=(1,)),
    Case("Flatten", [f32(3, 4, 5)], {"axis": 2}),
    Case("Squeeze", [f32(3, 1, 5, 1), ints(1)], fixed=(1,)),
    Case("Unsqueeze", [f32(3, 5), ints(0, -1)], fixed=(1,)),
    Case("Expand", [f32(3, 1), ints(2, 1, 4)], fixed=(1,)),
    Case("Tile", [f32(3, 2), ints(2, 3)], fixed=(1,)),
    Case("Slice", [f32(7, 9), ints(1, -1), ints(100, -100), ints(0, 1), ints(2, -3)], fixed=(1, 2, 3, 4)),
    *(
        Case("Slice", [x, ints(-9, -4), ints(-100, -1), ints(0, 1), ints(-1, 1)], fixed=fixed)
        for x, fixed in ((f32(3, 5), (1, 2, 3, 4)), (np.arange(15).reshape(3, 5), (0, 1, 2, 3, 4)))
    ),
    Case("Concat", [f32(3, 2), f32(3, 4), f32(3, 1)], {"axis": -1}),
    Case("Concat", [f32(2, n % 3) for n in range(205)], {"axis": 1}),
    Case("Split", [f32(3, 7), ints(2, 1, 4)], {"axis": 1}, fixed=(1,), outputs=3),
    Case("Split", [f32(7, 3)], {"num_outputs": 3}, outputs=3),
    Case("Pad", [f32(3, 4), ints(1, 0, 0, 2), single(1.5)], fixed=(1, 2)),
    Case("Pad", [f32(5, 6), ints(2, -1, 1, -1)], fixed=(1,)),
    Case("Pad", [f32(4, 5), ints(1, 2), single(2.0), ints(1)], {"mode": "reflect"}, fixed=(1, 2, 3)),
    *(Case("Pad", [f32(4, 5), ints(2, 1, 3, 0)], {"mode": mode}, fixed=(1,)) for mode in ("reflect", "edge", "wrap")),
    Case("EyeLike", [f32(3, 5)], {"k": -1}),
    Case("EyeLike", [f32(3, 5)], {"k": 1, "dtype": TensorProto.INT64}),
    Case("Compress", [f32(3, 5), np.array([1, 0, 1, 0], bool)], {"axis": -1}, fixed=(1,)),
    Case("Compress", [f32(3, 5), np.arange(11) % 4 == 2], fixed=(1,)),
    Case("Compress", [f32(3, 5), np.zeros(2, bool)], {"axis": 0}, fixed=(1,)),
    Case("Gather", [f32(5, 4), below(5, 2, 3)]),
    Case("Gather", [f32(5, 4), below(4, 3)], {"axis": 1}),
    Case("Gather", [f32(5, 4), np.array(-2)], {"axis": 0}, fixed=(1,)),
    Case("GatherElements", [f32(3, 4), below(3, 2, 4)], {"axis": 0}),
    Case("GatherND", [f32(3, 4, 5), below(3, 2, 2) % 3]),
    Case("GatherND", [f32(3, 4, 5), below(4, 3, 1) % 4], {"batch_dims": 1}),
    Case("DepthToSpace", [f32(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    Case("DepthToSpace", [f32(1, 8, 2, 3)], {"blocksize": 2}),
    Case("SpaceToDepth", [f32(1, 2, 4, 6)], {"blocksize": 2}),
    Case("Trilu", [f32(3, 5), np.array(1)], {"upper": 0}, fixed=(1,)),
    Case("ReverseSequence", [f32(4, 3), np.array([1, 4, 2])], {"time_axis": 0, "batch_axis": 1}),
    Case("OneHot", [below(4, 3), np.array(4), f32(2)], {"axis": 0}, fixed=(1,)),
    Case("TopK", [f32(3, 7), ints(3)], {"largest": 0}, fixed=(1,), outputs=2),
]
GRID = np.stack(np.meshgrid(np.arange(1, 7, 2), np.arange(2, 4), indexing="ij"), -1)
SCATTERS = [
    Case("ScatterElements", [f32(5, 4), below(5, 3, 2), f32(3, 2)]),
    Case("ReduceL1", [f32(1, 4), ints(0)], {"keepdims": -1}, fixed=(1,)),
    Case("ScatterElements", [f32(5, 4), below(5, 3, 2), f32(3, 2)], fixed=(1,)),
    *(Case("ScatterElements", [f32(3, 5, 2), below(5, 3, 7, 2), f32(3, 7, 2)], {"axis": 1, "reduction": how}, fixed=fixed)
      for how in ("none", "add", "mul", "max", "min") for fixed in ((), (1,))),
    Case("ScatterElements", [f32(3, 9), np.tile(np.arange(1, 8, 3), (3, 1)), f32(3, 3)], {"axis": 1}, fixed=(1,)),
    Case("ScatterElements", [f32(3, 5), np.tile([4, 0, 2], (3, 1)), f32(3, 3)], {"axis": -1, "reduction": "add"}, fixed=(1,)),
    Case("ScatterElements", [u8(7), below(7, 1).astype(np.int32), u8(1)], fixed=(1,)),
    Case("ScatterElements", [f32(3, 2), below(3, 0, 2), f32(0, 2)]),
    Case("ScatterElements", [bits(4), ints(3, 1), bits(2)]),
    Case("Scatter", [f32(4, 3), below(4, 2, 3), f32(2, 3)], opset=9),
    *(Case("ScatterND", [f32(4, 3, 2), below(3, 5, 2), f32(5, 2)], {"reduction": how}, fixed=fixed)
      for how in ("none", "add", "mul", "max", "min") for fixed in ((), (1,))),
    *(Case("ScatterElements", [f32(4, 3), below(3, 5, 2), f32(5, 2)], {"reduction": how}, fixed=(0, 1, 2))
      for how in ("none", "add", "mul", "max", "min")),
    *(Case("ScatterND", [f32(4, 3), below(3, 5, 1), f32(5, 3)], {"reduction": how}, fixed=(0, 1, 2))
      for how in ("none", "min")),
    Case("ScatterND", [f32(7, 5), GRID, f32(3, 2)], fixed=(1,)),
    Case("ScatterND", [f32(7, 5, 2), GRID, f32(3, 2, 2)], {"reduction": "add"}, fixed=(1,)),
    Case("ScatterND", [f32(7, 5), GRID[:, ::-1], f32(3, 2)], fixed=(1,)),
    Case("ScatterND", [f32(7, 3), ints(-2), f32(3)], fixed=(1,)),
    Case("ScatterND", [f32(7, 3), ints(-2), f32(3)], {"reduction": "add"}),
    Case("ScatterND", [f32(3, 2), np.arange(3)[:, None], f32(3, 2)], fixed=(1,)),
    Case("ScatterND", [f32(3, 2), np.zeros((0, 1), np.int64), f32(0, 2)]),
]  # fmt: skip
SCALES = np.array([1, 1, 2, 1.5], np.float32)
RESIZES = [
    *(Case("Resize", [f32(1, 2, 3, 4), None, SCALES], {"mode": mode}, fixed=(2,)) for mode in ("nearest", "linear", "cubic")),
    *(
        Case("Resize", [f32(1, 1, 5, 4), None, None, ints(1, 1, 3, 7)],
             {"mode": "linear", "coordinate_transformation_mode": how}, fixed=(3,))
        for how in ("align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel")
    ),
    *(  # 5 elements by 1.5 are 7, whose corners are aligned
        Case("Resize", [f32(1, 1, 4, 5), None, np.array([1, 1, 0.7, 1.5], np.float32)],
             {"mode": mode, "coordinate_transformation_mode": "align_corners"}, fixed=(2,))
        for mode in ("nearest", "linear", "cubic")
    ),
    Case("Resize", [f32(1, 1, 3, 5), f32(8), np.array([1, 1, 2, 1.5], np.float32)],  # what other forms of it ask for
         {"mode": "linear", "cubic_coeff_a": -0.5, "nearest_mode": "ceil", "extrapolation_value": 1.0}, fixed=(1, 2)),
    *(
        Case("Resize", [f32(1, 1, 4, 6), None, None, ints(1, 1, 7, 9)],
             {"nearest_mode": how, "coordinate_transformation_mode": "asymmetric"}, fixed=(3,))
        for how in ("floor", "ceil", "round_prefer_ceil")
    ),
    Case("Resize", [f32(1, 1, 3, 4), None, np.array([1, 1, 2, 2], np.float32)],
         {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, fixed=(2,)),
    *(Case(op, [f32(1, 1, 5, 4), np.array([1, 1, *scales], np.float32)], {"mode": mode}, fixed=(1,), opset=opset)
      for op, opset, scales in (("Upsample", 9, (2, 3)), ("Upsample", 9, (1.5, 1)), ("Resize", 10, (0.6, 1.25)))
      for mode in ("nearest", "linear")),
]  # fmt: skip
SAMPLES = [
    Case("GridSample", [f32(2, 3, height, 7), f32(2, 3, 5, 2) * 1.5],
         {"mode": mode, "padding_mode": padding, "align_corners": corners}, opset=16)
    for height, mode in ((4, "nearest"), (4, "bilinear"), (1, "bilinear"), (4, "bicubic"))
    for padding in ("zeros", "border", "reflection") for corners in (0, 1)
] + [
    Case("GridSample", [f32(1, 2, 3, 4, 5), f32(1, 2, 3, 1, 3)], {"mode": "linear", "padding_mode": "border"}, opset=20),
    *(
        Case("RoiAlign", [f32(2, 3, 7, 9), np.cumsum(positive(5, 4) * 3, 1).astype(np.float32) - 3, ints(0, 1, 1, 0, 1)],
             {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.5,
              "coordinate_transformation_mode": how})
        for how in ("half_pixel", "output_half_pixel")
    ),
    *(
        Case("DeformConv", [f32(batch, 4, 6, 7), f32(8, 4 // groups, 3, 2), f32(batch, 12 * parts, 3, 7) * 2,
                            f32(8) if parts == 2 else None, f32(batch, 6 * parts, 3, 7) if parts > 1 else None],
             {"group": groups, "offset_group": parts, "strides": [2, 1], "pads": [1, 0, 1, 2], "dilations": [1, 2],
              "kernel_shape": [3, 2]}, opset=19)
        for batch, groups, parts in ((1, 1, 1), (2, 2, 2), (1, 4, 4))
    ),
    Case("DeformConv", [f32(1, 3, 4, 5), f32(2, 3, 1, 1), f32(1, 2, 4, 5) * 3], opset=19),
    Case("MaxUnpool", [f32(2, 3, 2, 2), 16 * np.arange(6).reshape(2, 3, 1, 1) + np.array([[0, 6], [8, 15]])],
         {"kernel_shape": [2, 2], "strides": [2, 2]}),
]  # fmt: skip
QUANTIZED = [
    Case("ConvInteger", [u8(1, 3, 5, 6), u8(4, 3, 3, 2), np.array(7, np.uint8)], {"pads": [1, 0, 0, 1]}),
    Case(
        "QLinearConv",
        [
            u8(1, 4, 5, 6),
            single(0.02),
            np.array(113, np.uint8),
            u8(6, 2, 3, 2),
            single(0.01),
            np.array(99, np.uint8),
            single(0.5),
            np.array(120, np.uint8),
            RNG.integers(-99, 99, 6, np.int32),
        ],
        {"pads": [1, 0, 0, 1], "group": 2},
        fixed=(1, 2, 4, 5, 6, 7, 8),
    ),
    Case("QuantizeLinear", [f32(3, 4) * 3, single(0.05), np.array(128, np.uint8)]),
    Case("QuantizeLinear", [f32(3, 4), positive(3), np.zeros(3, np.int8)], {"axis": 0}),
    Case("DequantizeLinear", [u8(3, 4), positive(4), u8(4)], {"axis": -1}),
    Case("DynamicQuantizeLinear", [f32(3, 4)], outputs=3),
]


def recurrent(op: str, gates: int, extra: int = 0, **attributes: Any) -> Case:
    """A layer with all its inputs; with `extra` peepholes, too."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    steps, batch, width, hidden = 5, 2, 3, 4
    states = [f32(directions, batch, hidden)] * (2 if op == "LSTM" else 1)
    weights = [f32(directions, gates * hidden, width), f32(directions, gates * hidden, hidden)]
    inputs = [f32(steps, batch, width), *weights, f32(directions, 2 * gates * hidden), None, *states]
    peepholes = [f32(directions, extra * hidden)] if extra else []
    return Case(
        op,
        [*inputs, *peepholes],
        {"hidden_size": hidden, **attributes},
        fixed=(1, 2, 3),
        outputs=3 if op == "LSTM" else 2,
    )


RECURRENT = [
    recurrent("LSTM", 4, direction="bidirectional"),
    recurrent("LSTM", 4, 3, direction="reverse"),
    recurrent("LSTM", 4, direction="reverse", clip=0.4),
    recurrent("GRU", 3, direction="bidirectional"),
    recurrent("GRU", 3, linear_before_reset=1),
    recurrent("RNN", 1, activations=["Relu"]),
    Case("LSTM", [f32(4, 1, 3), f32(1, 8, 3), f32(1, 8, 2)], {"hidden_size": 2}),
    Case("BatchNormalization", [f32(2, 3, 4), f32(3), f32(3), f32(3), positive(3)], {"momentum": 0.5}),
    Case("Dropout", [f32(3, 4)], {"seed": 3}),
    Case(
        "GRU",
        [f32(4, 2, 3), f32(1, 6, 3), f32(1, 6, 2), None, np.array([4, 2], np.int32)],
        {"hidden_size": 2},
        outputs=2,
    ),
]

OPSETS = [
    *(Case(f"Reduce{op}", [positive(3, 4)], {"noop_with_empty_axes": 1})
      for op in "Max L1 L2 LogSum LogSumExp SumSquare".split()),
    *(Case(f"Reduce{op}", [f32()]) for op in ("Sum", "LogSumExp", "L2")),
    # What was another operator in earlier opsets, and what later ones have added.
    *(Case(op, [f32(3, 4, 5)], {"axis": axis} if axis is not None else {}, opset=11)
      for op in ("Softmax", "LogSoftmax", "Hardmax") for axis in (None, 0, 1, -1)),
    *(Case(op, [f32(3, 4, 5)], {}, opset=13) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    *(Case("Resize", [f32(1, 1, 5, 4), f32(0), np.array([1, 1, 1.5, 0.75], np.float32)],
           {"mode": mode, "coordinate_transformation_mode": "tf_half_pixel_for_nn"}, fixed=(1, 2), opset=11)
      for mode in ("nearest",)),
    *(Case("Resize", [f32(1, 1, 10, 20), None, np.array([1, 1, 0.7, 0.35], np.float32)], {"mode": mode}, fixed=(2,))
      for mode in ("nearest", "linear")),
    Case("Pow", [np.array([10, 5, -2, 27], np.int32), np.array([0.5, 3, 3, 0.3333], np.float32)]),
    Case("QuantizeLinear", [f32(3, 4), single(0.02)], {"output_dtype": TensorProto.INT8}, opset=21),
    Case("QuantizeLinear", [f32(3, 4), positive(3, 2), np.zeros((3, 2), np.int8)], {"axis": 1, "block_size": 2}, opset=21),
    Case("QuantizeLinear", [f32(3, 5), positive(2, 5)], {"axis": 0, "block_size": 2}, opset=21),
    Case("DequantizeLinear", [u8(4, 6), positive(4, 2), u8(4, 2)], {"axis": -1, "block_size": 3}, opset=21),
    Case("DequantizeLinear", [below(99, 5).astype(np.int32), single(0.1)], opset=21),
    Case("Col2Im", [f32(2, 18, 12), ints(5, 6), ints(3, 3)], fixed=(1, 2)),
    Case("Col2Im", [f32(1, 8, 15), ints(5, 6), ints(1, 4)], {"strides": [2, 1], "pads": [0, 1, 1, 1]}, fixed=(1, 2)),
    Case("Col2Im", [f32(1, 8, 6), ints(5, 5), ints(2, 2)], {"dilations": [2, 3], "strides": [1, 1]}, fixed=(1, 2)),
    Case("AffineGrid", [f32(2, 2, 3), ints(2, 3, 4, 5)], {"align_corners": 1}, fixed=(1,), opset=20),
    Case("AffineGrid", [f32(1, 3, 4), ints(1, 3, 2, 4, 5)], fixed=(1,), opset=20),
    Case("MelWeightMatrix", [single(5, np.int64), single(32, np.int64), single(8000, np.int64), single(20.0), single(3000.0)],
         fixed=(0, 1, 2, 3, 4), opset=17),
]  # fmt: skip

KEEPS = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
BANDS = np.where(KEEPS, f32(3, 5), -np.inf).astype(np.float32)[[0, 2, 0]]
QKV = [f32(2, 3, 3, 4), f32(2, 3, 5, 4), f32(2, 3, 5, 7)]
GROUPS = [f32(2, 6, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 7)]
LINES = [f32(2, 3, 24), f32(2, 5, 8), f32(2, 5, 14)]
PAST = [f32(2, 3, 4, 4), f32(2, 3, 4, 7)]
HEADS = {"q_num_heads": 6, "kv_num_heads": 2}
ATTENTION = [
    Case("Attention", QKV, opset=23),
    Case("Attention", QKV, {"is_causal": 1, "scale": 0.3, "softcap": 1.5}, opset=23),
    Case("Attention", [*QKV, KEEPS[[0, 2, 0]]], opset=23),
    Case("Attention", [*QKV, KEEPS[[0, 2, 0]]], {"is_causal": 1}, fixed=(3,), opset=23),
    Case("Attention", [*QKV, BANDS], {"is_causal": 1}, opset=23),
    Case("Attention", GROUPS, {"is_causal": 1}, opset=23),
    Case("Attention", [*GROUPS, f32(2, 6, 3, 5)], opset=23),
    Case("Attention", [*GROUPS, f32(2, 1, 3, 5)], opset=23),
    Case("Attention", LINES, {**HEADS, "is_causal": 1}, opset=23),
    Case("Attention", [*LINES, BANDS], HEADS, opset=23),
    Case("Attention", [f32(1, 1, 4)] * 3, {"q_num_heads": 2, "kv_num_heads": 2}, opset=23),
    Case("Attention", [*QKV, None, *PAST], {"is_causal": 1}, outputs=3, opset=24),
    *(Case("Attention", [*QKV, BANDS], {"is_causal": 1, "softcap": 1.5, "qk_matmul_output_mode": mode}, outputs=4, opset=24)
      for mode in (0, 1, 3)),  # where masked scores are -inf, ONNX Runtime has the least number
    *(Case("Attention", [*GROUPS, KEEPS[[0, 2, 0]]], {"qk_matmul_output_mode": mode}, outputs=4, opset=24)
      for mode in (0, 3)),
    *(Case("Attention", LINES, {**HEADS, "qk_matmul_output_mode": mode}, outputs=4, opset=24) for mode in (0, 3)),
    Case("RotaryEmbedding", [f32(2, 3, 5, 8), f32(9, 4), f32(9, 4), below(9, 2, 5) % 9], opset=23),
    Case("RotaryEmbedding", [f32(2, 3, 5, 8), f32(2, 5, 3), f32(2, 5, 3)], {"rotary_embedding_dim": 6}, opset=23),
    *(Case("RotaryEmbedding", [f32(2, 5, 24), f32(2, 5, 4), f32(2, 5, 4)], {"num_heads": 3, "interleaved": how}, opset=23)
      for how in (0, 1)),
]  # fmt: skip

CASES = [
    *UNARY, *ATTRIBUTES, *BINARY, *PRODUCTS, *TRANSFORMS, *WINDOWS, *REDUCTIONS, *MOVEMENT, *SCATTERS, *RESIZES, *SAMPLES,
    *QUANTIZED, *RECURRENT, *OPSETS, *ATTENTION,
]  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{c.op}" for n, c in enumerate(CASES)])
def test_an_operator_is_as_in_onnx_runtime(case: Case, tmp_path: Path) -> None:
    require_equal(case, tmp_path)


WORDS = [
    (case, name)
    for op in sorted({c.op for c in CASES})
    for case in [next(c for c in CASES if c.op == op)]
    for name, a in defs.get_schema(op, case.opset, "").attributes.items()
    if a.type == defs.OpSchema.AttrType.STRING and name != "equation"
]
"""A case of each operator with an attribute that is one of several words."""


@pytest.mark.parametrize(("case", "name"), WORDS, ids=[f"{c.op}-{n}" for c, n in WORDS])
def test_an_unknown_word_is_refused(case: Case, name: str, tmp_path: Path) -> None:
    """No translation takes what it does not know for another word."""
    with pytest.raises(TschedError) as found:
        checked(model_of(variant(case, attributes={**case.attributes, name: "no_such_word"})), tmp_path)
    (d,) = found.value.diagnostics
    assert d.code == "E0941" and f"`{name}` is `no_such_word`" in " ".join(n.text for n in d.notes)


def test_an_attribute_that_an_operator_needs_is_there(tmp_path: Path) -> None:
    with pytest.raises(TschedError) as found:
        checked(model_of(Case("BitShift", [u8(4), u8(4) % 9])), tmp_path)
    (d,) = found.value.diagnostics
    assert d.code == "E0940" and "has no attribute `direction`" in d.message


@pytest.mark.parametrize("equation", ["ij->ii", "ij->ik", "i1->i", "ij->ji->ij", "ij->i;"])
def test_an_equation_that_is_none_is_refused(equation: str, tmp_path: Path) -> None:
    with pytest.raises(TschedError) as found:
        checked(model_of(Case("Einsum", [f32(3, 3)], {"equation": equation})), tmp_path)
    (d,) = found.value.diagnostics
    assert d.code == "E0941" and f"the equation {equation}, whose" in " ".join(n.text for n in d.notes)
