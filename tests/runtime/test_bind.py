"""Kernels bound to their constant inputs: the values computed once, the data that they hold, the errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.runtime import kernel as kernel_module
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.ir.arrays import Array
from tests.codegen.native import compiled, program

PACKED = """
program dense(X: f32[M, 24], W: const f32[24, N], b: const f32[N], C: f32[M, N]) where M in 0..40, N in 0..64 {
    buffer P: f32[(N + 7) / 8, 24, 8]
    buffer S: f32[N]
    parallel for j in (N + 7) / 8 {
        for k in 24, l in 8 {
            block P {
                spatial vj in (N + 7) / 8 = j
                spatial vk in 24 = k
                spatial vl in 8 = l
                where j * 8 + l < N
                P[vj, vk, vl] = W[vk, vj * 8 + vl]
            }
        }
    }
    for j_2 in N, k_2 in 24 {
        block S {
            spatial vj in N = j_2
            reduce vk in 24 = k_2
            init { S[vj] = 0.0 }
            S[vj] = S[vj] + W[vk, vj]
        }
    }
    parallel for i in M {
        for j_1 in N, k_1 in 24 {
            block C {
                spatial vi in M = i
                spatial vj in N = j_1
                reduce vk in 24 = k_1
                init { C[vi, vj] = b[vj] + S[vj] }
                C[vi, vj] = C[vi, vj] + X[vi, vk] * P[vj / 8, vk, vj % 8]
            }
        }
    }
}
"""


def dense(x: Array, w: Array, b: Array) -> Array:
    return x.astype(np.float64) @ w.astype(np.float64) + b + w.sum(0, np.float64)


def arrays(m: int, n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    return tuple(rng.random(shape, np.float32) for shape in ((m, 24), (24, n), (n,)))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def kernel() -> NativeKernel:
    return load(compiled(program(PACKED)))


@pytest.mark.parametrize("n", [0, 1, 8, 33])
def test_a_bound_kernel_is_right_at_all_sizes_of_the_others(kernel: NativeKernel, n: int) -> None:
    _, w, b = arrays(0, n)
    bound = kernel.bind(W=w, b=b)
    for m in (0, 1, 7, 40):
        x, _, _ = arrays(m, n, m)
        np.testing.assert_allclose(bound(x), dense(x, w, b), rtol=1e-5)
        np.testing.assert_allclose(kernel(x, w, b), dense(x, w, b), rtol=1e-5)


def test_it_holds_what_it_needs(kernel: NativeKernel) -> None:
    x, w, b = arrays(5, 17)
    first, second = kernel.bind(W=w, b=b), kernel.bind(W=w * 2, b=b)
    one, two = dense(x, w, b), dense(x, w * 2, b)
    w[...] = b[...] = np.nan
    for bound, want in ((first, one), (second, two), (first, one)):
        np.testing.assert_allclose(bound(x), want, rtol=1e-5)
    out = np.empty((5, 17), np.float32)
    assert first(x, out) is out
    assert len(first.time((x, out), 3)) == 3
    np.testing.assert_allclose(out, one, rtol=1e-5)


def test_with_all_inputs_it_is_right_for_whatever_is_passed(kernel: NativeKernel) -> None:
    for seed in (0, 1, 2):
        x, w, b = arrays(4, 9, seed)
        np.testing.assert_allclose(kernel(x, w, b), dense(x, w, b), rtol=1e-5)
    out = np.empty((4, 9), np.float32)
    kernel.time((x, w, b, out), 2)
    np.testing.assert_allclose(out, dense(x, w, b), rtol=1e-5)


def test_several_threads_may_bind_and_call_at_once(kernel: NativeKernel) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x, w, b = arrays(20, 40, seed)
        bound = kernel.bind(W=w, b=b)
        for _ in range(20):
            for got in (bound(x), kernel(x, w, b)):
                if not np.allclose(got, dense(x, w, b), rtol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_other_arrays_are_given_by_name(kernel: NativeKernel) -> None:
    x, w, b = arrays(4, 9)
    bound = kernel.bind(W=w, b=b)
    out = np.empty((4, 9), np.float32)
    np.testing.assert_array_equal(bound(X=x), bound(x))
    assert bound(C=out, X=x) is out
    np.testing.assert_array_equal(kernel(b=b, X=x, W=w), out)
    with pytest.raises(ValueError, match="no array 'W'"):
        bound(x, W=w)


def test_what_is_refused(kernel: NativeKernel) -> None:
    x, w, b = arrays(4, 9)
    with pytest.raises(ValueError, match="constant inputs of this kernel are W, b; given: W"):
        kernel.bind(W=w)
    with pytest.raises(ValueError, match="given: W, b, X"):
        kernel.bind(W=w, b=b, X=x)
    with pytest.raises(ValueError, match=r"b: dimension 0 is 8, expected N \(N = 9 from W\)"):
        kernel.bind(W=w, b=b[:8])
    with pytest.raises(ValueError, match="W: expected float32"):
        kernel.bind(W=w.astype(np.float64), b=b)
    with pytest.raises(ValueError, match="W: the array is not C-contiguous"):
        kernel.bind(W=np.asfortranarray(w), b=b)
    bound = kernel.bind(W=w, b=b)
    with pytest.raises(ValueError, match=r"takes 2 arrays \(X, C\), or its 1 input; 3 given"):
        bound(x, w, b)
    with pytest.raises(ValueError, match=r"C: dimension 1 is 8, expected N \(N = 9 from W\)"):
        bound(x, np.empty((4, 8), np.float32))


def test_a_kernel_without_constants_binds_none() -> None:
    plain = load(compiled(program(PACKED.replace("const ", ""))))
    x, w, b = arrays(3, 5)
    np.testing.assert_allclose(plain.bind()(x, w, b), dense(x, w, b), rtol=1e-5)
    with pytest.raises(ValueError, match="constant inputs of this kernel are none; given: W"):
        plain.bind(W=w)


def test_all_inputs_may_be_constant() -> None:
    text = """
program p(W: const f32[6], C: f32[6], D: f32[6]) {
    buffer P: f32[6] @("align.0", 4)
    for i in 6 { block P { spatial vi in 6 = i
        P[vi] = W[5 - vi] * 2.0 } }
    for j in 6 { block C { spatial vi in 6 = j
        C[vi] = W[vi] + 1.0 } }
    for k in 6 { block D { spatial vi in 6 = k
        D[vi] = P[vi] + C[vi] } }
}
"""
    kernel = load(compiled(program(text)))
    w = np.arange(6, dtype=np.float32)
    bound = kernel.bind(W=w)
    for c, d in (kernel(w), bound(), bound(np.empty(6, np.float32), np.empty(6, np.float32))):
        np.testing.assert_array_equal(c, w + 1)
        np.testing.assert_array_equal(d, w[::-1] * 2 + w + 1)


def test_timed_calls_take_copies_of_the_constants_in_turn(
    monkeypatch: pytest.MonkeyPatch, kernel: NativeKernel
) -> None:
    """Each call computes the same; the next series goes on with the copy behind the last one."""
    x, w, b = arrays(7, 33)
    out = np.zeros((7, 33), np.float32)
    firsts: list[int] = []
    native = kernel_module.time_native

    def watched(*args: int, **places: int) -> list[float]:
        firsts.append(places["first"])
        assert places["count"] == 3
        return native(*args, **places)

    monkeypatch.setattr(kernel_module, "time_native", watched)
    timed = kernel.turning([x, w, b, out], 3)
    w[:] = np.nan  # the copies are the kernel's own
    assert [len(timed(n)) for n in (1, 4, 2)] == [1, 4, 2] and firsts == [0, 1, 2]
    np.testing.assert_allclose(out, dense(x, arrays(7, 33)[1], b), rtol=1e-5)
