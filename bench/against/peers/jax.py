"""JAX on the CPU: one compiled function of the arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.against.layouts import convolution
from bench.against.problem import CONVOLUTIONS, Job, Ready

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")


def prepare(job: Job) -> Ready | None:
    make = MAKERS.get(job.problem.compute)
    if make is None:
        return None
    kinds = job.problem.types
    arrays = {n: a.view(jnp.bfloat16) if kinds[n] == "bf16" else a for n, a in job.inputs.items()}
    compiled = jax.jit(make(job))
    given = [jax.device_put(a) for a in arrays.values()]
    held: list[Any] = []

    def run() -> None:
        held[:] = [compiled(*given).block_until_ready()]

    return Ready(run, lambda: np.asarray(held[0]))


def _plain(f: Callable[..., Any]) -> Callable[[Job], Callable[..., Any]]:
    return lambda _: f


def _conv(job: Job) -> Callable[..., Any]:
    c = convolution(job)
    letters = "DHW"[3 - c.rank :]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")

    def conv(x: Any, f: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            f.reshape(c.f.shape),
            [c.stride] * c.rank,
            [(c.pad, c.pad)] * c.rank,
            rhs_dilation=[c.dilation] * c.rank,
            dimension_numbers=numbers,
            feature_group_count=c.groups,
        )

    return conv


def _conv_bn_relu(job: Job) -> Callable[..., Any]:
    conv = _conv(job)

    def layer(x: Any, f: Any, bias: Any, scale: Any, offset: Any) -> Any:
        return jnp.maximum((conv(x, f) + bias) * scale + offset, 0)

    return layer


def _conv_transpose(job: Job) -> Callable[..., Any]:
    c = convolution(job)
    *sides, _, _ = c.f.shape
    padding = [(k - 1 - c.pad, k - 1 - c.pad) for k in sides]

    def conv(x: Any, f: Any) -> Any:
        # lax.conv_transpose flips the weight, which a plain transposed convolution does not.
        return lax.conv_general_dilated(
            x, f[::-1, ::-1], [1, 1], padding, lhs_dilation=[c.stride] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    return conv


def _product(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def _integer_product(a: Any, b: Any) -> Any:
    return jnp.matmul(a.astype(jnp.int32), b.astype(jnp.int32))


def _dense_gelu(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.gelu(x @ w + b, approximate=False)


def _layer_norm(x: Any, gain: Any, shift: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) * lax.rsqrt(x.var(1, keepdims=True) + 1e-5) * gain + shift


def _attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1], dtype=np.float32), -1) @ v


MAKERS: dict[str, Callable[[Job], Callable[..., Any]]] = {
    "matmul": _plain(_product),
    "batch_matmul": _plain(_product),
    "matmul_u8i8": _plain(_integer_product),
    "transpose_batch_matmul": _plain(partial(jnp.einsum, "bihd,bjhd->bhij")),
    "dense_gelu": _plain(_dense_gelu),
    **dict.fromkeys(CONVOLUTIONS, _conv),
    "conv2d_transpose_nhwc": _conv_transpose,
    "conv2d_bn_relu_nhwc": _conv_bn_relu,
    "norm_bmn": _plain(partial(jnp.linalg.norm, axis=(1, 2))),
    "softmax": _plain(partial(jax.nn.softmax, axis=1)),
    "layer_norm": _plain(_layer_norm),
    "attention": _plain(_attention),
    "transpose": _plain(jnp.transpose),
    "add": _plain(jnp.add),
    "copy": _plain(jnp.copy),
}
