"""Tuned kernels beside torch: what networks spend their time on, the most important first."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu_case import Asked, CannotRun, Row, by_turns, device, loaded, task_of
from bench.ptxas import COMPUTES
from tensorc_dsl.backend.cuda.runtime.driver import Device, time_launches
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task
from tensorc_dsl.reference.evaluate import shape_of


@dataclass(frozen=True, slots=True)
class Peer:
    """A task, and the function of torch that computes the same on the tensors of its inputs."""

    text: str
    theirs: Callable[..., Callable[[], Any]]
    """What prepares torch's call, as for weights that are the same in many calls, and gives it."""


LEAST = 30.0
"""The seconds that a search gets at least: with less, what is compared is a first draw."""

MOST_APART = 0.01
"""How far results may be from torch's, of their norm: those of factors of f16, by other orders of sums, are a thousandth."""

SHARE = 0.8
"""The part of a case's time that is for its search; the rest is for checking and for turns."""


def _product(torch: Any, a: Any, b: Any) -> Callable[[], Any]:
    return lambda: torch.matmul(a, b)


def _convolution(torch: Any, x: Any, f: Any) -> Callable[[], Any]:
    weights = f.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    places, pad = x.permute(0, 3, 1, 2), f.shape[0] // 2
    return lambda: torch.nn.functional.conv2d(places, weights, padding=pad).permute(0, 2, 3, 1)


def _layer_norm(torch: Any, x: Any, gain: Any, shift: Any) -> Callable[[], Any]:
    return lambda: torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift)


def _softmax(torch: Any, x: Any) -> Callable[[], Any]:
    return lambda: torch.softmax(x, -1)


def _attention(torch: Any, q: Any, k: Any, v: Any) -> Callable[[], Any]:
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


def _product_of(kind: str, size: int) -> dict[str, Peer]:
    more = "" if kind == "f32" else f", T={kind}, Acc=f32"
    return {f"matmul {kind} {size}": Peer(f"matmul(M={size}, N={size}, K={size}{more})", _product)}


def _convolution_of(size: int, c: int, more: str = "") -> dict[str, Peer]:
    text = f"conv2d_nhwc(N=16, H={size}, W={size}, CI={c}, KH=3, KW=3, CO={c}, pad=1{more})"
    return {f"conv2d {size}×{size}×{c}{' f16' * bool(more)}": Peer(text, _convolution)}


PEERS = {
    **_product_of("bf16", 4096),
    **_product_of("f16", 4096),
    **_product_of("f32", 4096),
    **_product_of("bf16", 8192),
    "attention f16": Peer("half_attention(B=1, H=16, M=1024, N=1024, D=64, E=64, T=f16)", _attention),
    "softmax": Peer("softmax(M=4096, N=4096)", _softmax),
    "layer_norm": Peer("layer_norm(M=4096, N=4096)", _layer_norm),
    **_convolution_of(56, 64, ", T=f16, Acc=f32"),
    "attention": Peer("attention(B=1, H=16, M=1024, N=1024, D=64, E=64)", _attention),
    **_convolution_of(56, 64),
    **_product_of("bf16", 2048),
    **_product_of("f16", 8192),
    **_product_of("f32", 2048),
    "batch_matmul": Peer("batch_matmul(G=32, M=512, N=512, K=64)", _product),
    **_convolution_of(28, 128),
    **_convolution_of(14, 256),
    **_convolution_of(7, 512),
    **_product_of("bf16", 1024),
    **_product_of("f16", 2048),
    **_product_of("f32", 1024),
    **_product_of("f16", 1024),
    **_product_of("f32", 8192),
}
"""The cases beside torch, the most important first: products, what networks spend their time on, and the layers of
ResNet-50 with windows of 3×3."""


def torch_beside(asked: Asked) -> Iterator[Row]:
    """Tuned kernels beside torch, on random data; each search has its share of the time, if that is enough."""
    gpu = device()
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as e:
        raise CannotRun(f"there is no torch ({e})") from e
    todo = [name for name in PEERS if name not in asked.done]
    for n, name in enumerate(todo):
        if not asked.begins(name, LEAST / SHARE):
            continue
        try:
            yield _beside(gpu, torch, name, PEERS[name], max(LEAST, asked.left / (len(todo) - n) * SHARE))
        except (TschedError, ValueError, MemoryError) as e:
            yield Row(name, str(e))


def _beside(gpu: Device, torch: Any, name: str, peer: Peer, seconds: float) -> Row:
    task = task_of(peer.text, COMPUTES)
    with tempfile.TemporaryDirectory() as folder:
        best = task.tune(budget=seconds, records=Path(folder, "records.sqlite"), progress=False)
    kernel = loaded(task, task.compile(best.trace))
    outputs = {b.name for b in task.program.outputs}
    tensors = tensors_of(torch, task)
    given = [t for t, b in zip(tensors, task.program.params, strict=True) if b.name not in outputs]
    call = peer.theirs(torch, *given)
    times = by_turns(lambda n: kernel.time(tensors, n), lambda n: time_launches(gpu, call, n))
    theirs = call()
    error = float((tensors[-1].float() - theirs.float()).norm() / theirs.float().norm())
    wrong = "" if error < MOST_APART else f"results are {error:.2g} of their norm apart"
    return Row(name, wrong, *times, "torch", best.trace.text)


def tensors_of(torch: Any, task: Task) -> list[Any]:
    """Random inputs on the GPU, and room for outputs. Numbers are normal: any weights that sum up to 1, as those of
    attention, would give uniform ones nearly the same average."""
    outputs = {b.name for b in task.program.outputs}
    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    return [
        (torch.empty if b.name in outputs else torch.randn)(shape_of(b), device="cuda", dtype=kinds[b.dtype.name])
        for b in task.program.params
    ]
