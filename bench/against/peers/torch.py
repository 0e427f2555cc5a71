"""PyTorch on the CPU, eagerly: channels last, no gradients, oneDNN where PyTorch uses it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.against.layouts import channels_first, channels_last, convolution, weight_first
from bench.against.problem import CONVOLUTIONS, Array, Job, Ready

torch: Any = import_module("torch")
F: Any = torch.nn.functional

Make = Callable[[Job], Callable[[], Any]]


def prepare(job: Job) -> Ready | None:
    make = MAKERS.get(job.problem.compute)
    if make is None:
        return None
    torch.set_num_threads(job.threads)
    torch.set_grad_enabled(False)
    compute = make(job)
    first = job.problem.compute in CHANNELS_FIRST
    held: list[Any] = []

    def run() -> None:
        held[:] = [compute()]

    def result() -> Array:
        out = held[0].float().numpy() if held[0].is_floating_point() else held[0].numpy()
        return channels_last(out) if first else out

    return Ready(run, result)


def _tensors(job: Job) -> list[Any]:
    """The inputs, in order."""
    bits = job.problem.types
    return [
        torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if bits[n] == "bf16" else torch.from_numpy(a)
        for n, a in job.inputs.items()
    ]


def _of(f: Callable[..., Any]) -> Make:
    """A function of the inputs."""

    def make(job: Job) -> Callable[[], Any]:
        tensors = _tensors(job)
        return lambda: f(*tensors)

    return make


def _into(f: Callable[..., Any]) -> Make:
    """A function of the inputs and of what it fills."""

    def make(job: Job) -> Callable[[], Any]:
        tensors = _tensors(job)
        out = f(*tensors, torch.empty(0)).clone(memory_format=torch.contiguous_format)
        return lambda: f(*tensors, out)

    return make


def _format(rank: int) -> Any:
    return {4: torch.channels_last, 5: torch.channels_last_3d}.get(rank, torch.contiguous_format)


def _image(job: Job) -> tuple[Any, Any, dict[str, Any]]:
    """The input and the weight with channels last in memory, and the attributes of a convolution."""
    c = convolution(job)
    x, f = torch.from_numpy(channels_first(c.x)), torch.from_numpy(weight_first(c.f))
    form = _format(x.ndim)
    told = {"stride": c.stride, "padding": c.pad, "dilation": c.dilation, "groups": c.groups}
    return x.contiguous(memory_format=form), f.contiguous(memory_format=form), told


def _conv(job: Job) -> Callable[[], Any]:
    x, f, told = _image(job)
    conv = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
    return lambda: conv(x, f, **told)


def _conv_bn_relu(job: Job) -> Callable[[], Any]:
    x, f, told = _image(job)
    # Batch normalization folded into the convolution, as torch.nn.utils.fusion does it.
    bias, scale, offset = map(torch.from_numpy, job.take("bias", "scale", "offset"))
    folded = (f * scale[:, None, None, None]).contiguous(memory_format=torch.channels_last)
    shift = bias * scale + offset
    return lambda: F.conv2d(x, folded, shift, **told).relu_()


def _conv_transpose(job: Job) -> Callable[[], Any]:
    c = convolution(job)
    x = torch.from_numpy(channels_first(c.x)).contiguous(memory_format=torch.channels_last)
    f = torch.from_numpy(np.ascontiguousarray(c.f.transpose(2, 3, 0, 1)))
    return lambda: F.conv_transpose2d(x, f, stride=c.stride, padding=c.pad)


def _scores(q: Any, k: Any) -> Any:
    return q.transpose(1, 2) @ k.permute(0, 2, 3, 1)


def _dense_gelu(job: Job) -> Callable[[], Any]:
    x, w, b = _tensors(job)
    held = w.t().contiguous()
    return lambda: F.gelu(F.linear(x, held, b))


def _matmul_u8i8(job: Job) -> Callable[[], Any]:
    # A quantized layer, as TorchInductor calls oneDNN for it: scales of 1, zero points of 0, a result in f32.
    a, b = _tensors(job)
    held = torch.ops.onednn.qlinear_prepack(b.t().contiguous(), None)
    scales, zeros = torch.ones(b.shape[1]), torch.zeros(b.shape[1], dtype=torch.int64)
    told: tuple[Any, ...] = (1.0, 0, held, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")
    return lambda: torch.ops.onednn.qlinear_pointwise(a, *told)


def _layer_norm(x: Any, gain: Any, shift: Any) -> Any:
    return F.layer_norm(x, x.shape[1:], gain, shift, 1e-5)


def _transpose(x: Any, out: Any) -> Any:
    return out.resize_(x.shape[::-1]).copy_(x.t())


def _add(a: Any, b: Any, out: Any) -> Any:
    return torch.add(a, b, out=out)


def _copy(x: Any, out: Any) -> Any:
    return out.resize_(x.shape).copy_(x)


MAKERS: dict[str, Make] = {
    "matmul": _of(torch.matmul),
    "batch_matmul": _of(torch.bmm),
    "transpose_batch_matmul": _of(_scores),
    "matmul_u8i8": _matmul_u8i8,
    "dense_gelu": _dense_gelu,
    **dict.fromkeys(CONVOLUTIONS, _conv),
    "conv2d_transpose_nhwc": _conv_transpose,
    "conv2d_bn_relu_nhwc": _conv_bn_relu,
    "norm_bmn": _of(partial(torch.linalg.vector_norm, dim=(1, 2))),
    "softmax": _of(partial(torch.softmax, dim=1)),
    "layer_norm": _of(_layer_norm),
    "attention": _of(F.scaled_dot_product_attention),
    "transpose": _into(_transpose),
    "add": _into(_add),
    "copy": _into(_copy),
}

CHANNELS_FIRST = frozenset(name for name in MAKERS if "conv" in name)
