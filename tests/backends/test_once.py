"""Kernels as bytes for another process: equal again, and however deep they are."""

from __future__ import annotations

import pickle
import sys

import pytest

import tensorc_dsl
from tensorc_dsl.backend.llvm.backend import BACKEND
from tensorc_dsl.backend.once import lowered_once, pack
from tensorc_dsl.ir.expr import index
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Kernel, LowerError, format_kernel

PRODUCT = """
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }
schedule tiled for matmul {
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 4])
    let [j0, j1] = split(j, [_, 16])
    reorder(i0, j0, k, i1, j1); parallel(i0); unroll(i1); vectorize(j1)
}
task t = matmul(M=40, N=32, K=7) with tiled
"""


def test_a_kernel_is_the_same_again() -> None:
    task = tensorc_dsl.loads(PRODUCT, threads=1)["t"]
    kernel = BACKEND.lower(task.sample(0).program, task.target)
    assert pack(kernel).unpack() == kernel


def test_deep_kernels_are_packed_too() -> None:
    """So many nests of memory are more than a pickle, which goes down by recursion, can hold."""
    lets = "".join(f"    let t{k}[i] = t{k - 1}[i] * 2.0 + t{max(0, k - 7)}[i]\n" for k in range(1, 250))
    inner = f"t249[i] + {'(A[i] + ' * 80}1.0{')' * 80}"
    text = f"compute f(A: f32[4]) -> C: f32[4] {{\n    let t0[i] = A[i]\n{lets}    C[i] = {inner}\n}}\n"
    task = tensorc_dsl.loads(f"{text}schedule s for f {{}}\ntask t = f() with s\n", threads=1)["t"]
    kernel = BACKEND.lower(task.sample(0).program, task.target)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(500)  # a process that packs is in the middle of something
    try:
        if sys.version_info < (3, 12):  # later ones count what is called from C on its own
            with pytest.raises(RecursionError):
                pickle.dumps(kernel)
        packed = pack(kernel)
        again = packed.unpack()
    finally:
        sys.setrecursionlimit(limit)
    assert isinstance(again, Kernel) and isinstance(kernel, Kernel)
    assert format_kernel(again) == format_kernel(kernel)


def test_what_is_refused_is_refused_again() -> None:
    from tensorc_dsl.ir.dtypes import F32
    from tensorc_dsl.ir.expr import Dim, floordiv
    from tensorc_dsl.ir.program import Buffer

    n = Dim("N", 1, 9)
    program = Program("f", (Buffer("C", F32, (floordiv(n, index(2)),)),), (), (), (n,))
    for _ in range(2):
        with pytest.raises(LowerError, match="the shapes of the arguments of f do not tell N"):
            lowered_once(program, Target())
