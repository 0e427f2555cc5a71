"""Kernels of Triton as its tutorials write them, compiled to machine code without a GPU, for `bench.gpu_static`."""

# Triton reads the source of kernels: their names, types and calls are its own.
# pyright: basic, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false
# pyright: reportReturnType=false
# ruff: noqa: N803, ARG001

from __future__ import annotations

import warnings

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def _attention(
    q_ptr, k_ptr, v_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, scale: tl.constexpr,
):  # fmt: skip
    first, head = tl.program_id(0) * BM, tl.program_id(1)
    rows, columns, keys = first + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    q = tl.load(q_ptr + head * M * D + rows[:, None] * D + columns[None, :])
    k_ptrs = k_ptr + head * N * D + keys[None, :] * D + columns[:, None]
    v_ptrs = v_ptr + head * N * D + keys[:, None] * D + columns[None, :]
    m = tl.full([BM], -float("inf"), tl.float32)
    s = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    whole = first if CAUSAL else N
    for _ in tl.range(0, whole, BN):
        scores = tl.dot(q, tl.load(k_ptrs))
        above = tl.maximum(m, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - above[:, None])
        step = tl.exp2(m - above)
        s = s * step + tl.sum(p, 1)
        acc = acc * step[:, None]
        acc = tl.dot(p.to(tl.float16), tl.load(v_ptrs), acc)
        m = above
        k_ptrs += BN * D
        v_ptrs += BN * D
    if CAUSAL:
        for start in tl.range(first, first + BM, BN):
            scores = tl.dot(q, tl.load(k_ptrs)) * scale
            scores = tl.where(rows[:, None] >= (start + keys)[None, :], scores, -1.0e6)
            above = tl.maximum(m, tl.max(scores, 1))
            p = tl.exp2(scores - above[:, None])
            step = tl.exp2(m - above)
            s = s * step + tl.sum(p, 1)
            acc = acc * step[:, None]
            acc = tl.dot(p.to(tl.float16), tl.load(v_ptrs), acc)
            m = above
            k_ptrs += BN * D
            v_ptrs += BN * D
    tl.store(o_ptr + head * M * D + rows[:, None] * D + columns[None, :], acc / s[:, None])


@triton.jit
def _gemm(
    a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows, columns, terms = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
        tl.arange(0, BK),
    )
    a_ptrs = a_ptr + rows[:, None] * K + terms[None, :]
    b_ptrs = b_ptr + terms[:, None] * N + columns[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for _ in tl.range(0, K, BK):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BK
        b_ptrs += BK * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


@triton.jit
def _softmax(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + at)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + at, e * (1.0 / tl.sum(e, 0)))


@triton.jit
def _layer_norm(x_ptr, g_ptr, b_ptr, y_ptr, N: tl.constexpr):
    own = tl.arange(0, N)
    x = tl.load(x_ptr + tl.program_id(0) * N + own)
    d = x - tl.sum(x, 0) / N
    r = tl.rsqrt(tl.sum(d * d, 0) / N + 1e-5)
    y = d * r * tl.load(g_ptr + own) + tl.load(b_ptr + own)
    tl.store(y_ptr + tl.program_id(0) * N + own, y)


@triton.jit
def _row_sums(x_ptr, y_ptr, N: tl.constexpr):
    tl.store(y_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N)), 0))


@triton.jit
def _transpose(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :])
    tl.store(y_ptr + columns[:, None] * M + rows[None, :], tl.trans(x))


@triton.jit
def _map(x_ptr, z_ptr, y_ptr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.maximum(x, 0.0) + tl.load(z_ptr + at) * x)


KERNELS = {
    "attention": (_attention, "q k v", "o", "fp16"),
    "gemm": (_gemm, "a b", "c", "fp16"),
    "softmax": (_softmax, "x", "y", "fp32"),
    "layer_norm": (_layer_norm, "x g b", "y", "fp32"),
    "row_sums": (_row_sums, "x", "y", "fp32"),
    "transpose": (_transpose, "x", "y", "fp32"),
    "map": (_map, "x z", "y", "fp32"),
}
"""Each kernel with the names of its inputs and of its output, which is of f32, and the type of the inputs."""


def cubin(kernel: str, target: str, constants: dict[str, int | float], warps: int) -> bytes:
    """Machine code of a kernel for `sm_80` or `sm_90a`."""
    function, inputs, output, kind = KERNELS[kernel]
    signature = {f"{name}_ptr": f"*{kind}" for name in inputs.split()} | {f"{output}_ptr": "*fp32"}
    count = len(signature)
    signature |= dict.fromkeys(constants, "constexpr")
    constexprs = {(n,): value for n, value in enumerate(constants.values(), count)}
    attrs = {(n,): [["tt.divisibility", 16]] for n in range(count)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = ASTSource(function, signature, constexprs=constexprs, attrs=attrs)
        made = triton.compile(
            source, target=GPUTarget("cuda", int(target[3:5]), 32), options={"num_warps": warps, "num_stages": 3}
        )
    return made.asm["cubin"]
