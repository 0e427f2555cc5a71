"""ResNet-50, MobileNet-V2 and V3, DenseNet-121, BERT-base and ViT-B/16 as ONNX files with random weights, by their papers.

`python -m bench.models.networks FOLDER` writes them; sizes are those of one image of 224² or of 128 tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET = 17


@dataclass(slots=True)
class Network:
    """A graph that grows by nodes. Each method returns the name of the value that it adds."""

    name: str
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[NodeProto] = field(default_factory=list[NodeProto])
    constants: list[TensorProto] = field(default_factory=list[TensorProto])
    inputs: list[ValueInfoProto] = field(default_factory=list[ValueInfoProto])

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.float32(value))

    def weight(self, *shape: int, fan: int = 0) -> str:
        """Normal numbers, by He: values keep their size from layer to layer."""
        scale = sqrt(2 / (fan or int(np.prod(shape[1:])) or 1))
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def ones(self, *shape: int) -> str:
        return self.constant(np.ones(shape, np.float32))

    def zeros(self, *shape: int) -> str:
        return self.constant(np.zeros(shape, np.float32))

    def conv(self, x: str, made: int, taken: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        """A convolution and a batch norm."""
        return self.batch_norm(self.plain_conv(x, made, taken, kernel, stride, groups), made)

    def plain_conv(self, x: str, made: int, taken: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        pad = kernel // 2
        w = self.weight(made, taken // groups, kernel, kernel)
        return self.node("Conv", x, w, kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2, group=groups)

    def batch_norm(self, x: str, channels: int) -> str:
        variance = self.constant(self.rng.uniform(0.9, 1.1, channels).astype(np.float32))
        return self.node(
            "BatchNormalization", x, self.ones(channels), self.zeros(channels), self.zeros(channels), variance
        )

    def dense(self, x: str, taken: int, made: int) -> str:
        """A product of the last dimension, and a bias."""
        w = self.constant((self.rng.standard_normal((taken, made)) / sqrt(taken)).astype(np.float32))
        return self.node("Add", self.node("MatMul", x, w), self.zeros(made))

    def norm(self, x: str, width: int) -> str:
        return self.node("LayerNormalization", x, self.ones(width), self.zeros(width), axis=-1, epsilon=1e-6)

    def gelu(self, x: str) -> str:
        e = self.node("Erf", self.node("Div", x, self.number(sqrt(2))))
        return self.node("Mul", self.node("Mul", x, self.node("Add", e, self.number(1.0))), self.number(0.5))

    def shaped(self, x: str, *shape: int) -> str:
        return self.node("Reshape", x, self.constant(np.array(shape)))

    def attention(self, x: str, length: int, width: int, heads: int) -> str:
        each = width // heads
        q, k, v = (
            self.node("Transpose", self.shaped(self.dense(x, width, width), 1, length, heads, each), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = self.node("Div", self.node("MatMul", q, k), self.number(sqrt(each)))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        joined = self.shaped(self.node("Transpose", mixed, perm=[0, 2, 1, 3]), 1, length, width)
        return self.dense(joined, width, width)

    def model(self, output: str) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, self.name, self.inputs, [ValueInfoProto(name=output)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def resnet50() -> onnx.ModelProto:
    """He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, table 1."""
    n = Network("resnet50")
    x = n.node("Relu", n.conv(n.input("x", (1, 3, 224, 224)), 64, 3, 7, 2))
    x = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    taken = 64
    for stage, (width, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(count):
            stride = 2 if block == 0 and stage > 0 else 1
            short = n.conv(x, width * 4, taken, 1, stride) if block == 0 else x
            y = n.node("Relu", n.conv(x, width, taken, 1))
            y = n.node("Relu", n.conv(y, width, width, 3, stride))
            x = n.node("Relu", n.node("Add", n.conv(y, width * 4, width, 1), short))
            taken = width * 4
    x = n.node("Flatten", n.node("GlobalAveragePool", x))
    return n.model(n.dense(x, 2048, 1000))


def mobilenet_v2() -> onnx.ModelProto:
    """Sandler, Howard, Zhu, Zhmoginov, Chen: MobileNetV2, table 2."""
    n = Network("mobilenet_v2")

    def relu6(x: str) -> str:
        return n.node("Clip", x, n.number(0.0), n.number(6.0))

    x = relu6(n.conv(n.input("x", (1, 3, 224, 224)), 32, 3, 3, 2))
    taken = 32
    for expansion, made, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(count):
            stride = first if block == 0 else 1
            wide = taken * expansion
            y = x if expansion == 1 else relu6(n.conv(x, wide, taken, 1))
            y = relu6(n.conv(y, wide, wide, 3, stride, wide))
            y = n.conv(y, made, wide, 1)
            x = n.node("Add", x, y) if stride == 1 and taken == made else y
            taken = made
    x = relu6(n.conv(x, 1280, 320, 1))
    return n.model(n.dense(n.node("Flatten", n.node("GlobalAveragePool", x)), 1280, 1000))


def mobilenet_v3() -> onnx.ModelProto:
    """Howard et al.: Searching for MobileNetV3, table 2, the small one."""
    n = Network("mobilenet_v3")

    def factors(x: str, wide: int, narrow: int) -> str:
        """Squeeze and excite: a factor for each channel."""
        y = n.node("GlobalAveragePool", x)
        y = n.node("Relu", n.node("Conv", y, n.weight(narrow, wide, 1, 1), n.zeros(narrow)))
        return n.node("HardSigmoid", n.node("Conv", y, n.weight(wide, narrow, 1, 1), n.zeros(wide)), alpha=1 / 6)

    x = n.node("HardSwish", n.conv(n.input("x", (1, 3, 224, 224)), 16, 3, 3, 2))
    taken = 16
    for kernel, wide, made, squeezed, active, stride in (
        (3, 16, 16, True, "Relu", 2), (3, 72, 24, False, "Relu", 2), (3, 88, 24, False, "Relu", 1),
        (5, 96, 40, True, "HardSwish", 2), (5, 240, 40, True, "HardSwish", 1), (5, 240, 40, True, "HardSwish", 1),
        (5, 120, 48, True, "HardSwish", 1), (5, 144, 48, True, "HardSwish", 1), (5, 288, 96, True, "HardSwish", 2),
        (5, 576, 96, True, "HardSwish", 1), (5, 576, 96, True, "HardSwish", 1),
    ):  # fmt: skip
        y = x if wide == taken else n.node(active, n.conv(x, wide, taken, 1))
        y = n.node(active, n.conv(y, wide, wide, kernel, stride, wide))
        y = n.node("Mul", y, factors(y, wide, -(-wide // 32) * 8)) if squeezed else y
        y = n.conv(y, made, wide, 1)
        x = n.node("Add", x, y) if stride == 1 and taken == made else y
        taken = made
    x = n.node("HardSwish", n.conv(x, 576, 96, 1))
    x = n.node("HardSwish", n.dense(n.node("Flatten", n.node("GlobalAveragePool", x)), 576, 1024))
    return n.model(n.dense(x, 1024, 1000))


def densenet121() -> onnx.ModelProto:
    """Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks, table 1."""
    n = Network("densenet121")
    x = n.node("Relu", n.conv(n.input("x", (1, 3, 224, 224)), 64, 3, 7, 2))
    x, width = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    for stage, count in enumerate((6, 12, 24, 16)):
        parts = [x]
        for _ in range(count):
            y = n.node("Concat", *parts, axis=1) if len(parts) > 1 else x
            y = n.node("Relu", n.conv(n.node("Relu", n.batch_norm(y, width)), 128, width, 1))
            parts.append(n.plain_conv(y, 32, 128, 3))
            width += 32
        x = n.node("Relu", n.batch_norm(n.node("Concat", *parts, axis=1), width))
        if stage < 3:
            width //= 2
            x = n.node("AveragePool", n.plain_conv(x, width, 2 * width, 1), kernel_shape=[2, 2], strides=[2, 2])
    return n.model(n.dense(n.node("Flatten", n.node("GlobalAveragePool", x)), width, 1000))


def bert_base() -> onnx.ModelProto:
    """Devlin, Chang, Lee, Toutanova: BERT, with 12 layers of 768 on 128 tokens."""
    length, width, heads, words = 128, 768, 12, 30522
    n = Network("bert_base")
    tokens = n.input("tokens", (1, length), TensorProto.INT64)
    x = n.node("Gather", n.weight(words, width, fan=width), tokens)
    x = n.norm(n.node("Add", x, n.weight(length, width, fan=width)), width)
    for _ in range(12):
        x = n.norm(n.node("Add", x, n.attention(x, length, width, heads)), width)
        y = n.dense(n.gelu(n.dense(x, width, 4 * width)), 4 * width, width)
        x = n.norm(n.node("Add", x, y), width)
    return n.model(x)


def vit_b16() -> onnx.ModelProto:
    """Dosovitskiy et al.: An Image is Worth 16x16 Words, ViT-B/16."""
    width, heads, patches = 768, 12, 196
    n = Network("vit_b16")
    x = n.node("Conv", n.input("x", (1, 3, 224, 224)), n.weight(width, 3, 16, 16), n.zeros(width), strides=[16, 16])
    x = n.node("Transpose", n.shaped(x, 1, width, patches), perm=[0, 2, 1])
    x = n.node("Concat", n.weight(1, 1, width), x, axis=1)
    x = n.node("Add", x, n.weight(1, patches + 1, width, fan=width))
    for _ in range(12):
        x = n.node("Add", x, n.attention(n.norm(x, width), patches + 1, width, heads))
        y = n.dense(n.gelu(n.dense(n.norm(x, width), width, 4 * width)), 4 * width, width)
        x = n.node("Add", x, y)
    x = n.node("Gather", n.norm(x, width), n.constant(np.array(0)), axis=1)
    return n.model(n.dense(x, width, 1000))


NETWORKS = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3": mobilenet_v3,
    "densenet121": densenet121,
    "bert_base": bert_base,
    "vit_b16": vit_b16,
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in NETWORKS.items():
        (folder / f"{name}.onnx").write_bytes(make().SerializeToString())
        print(folder / f"{name}.onnx")


if __name__ == "__main__":
    main()
