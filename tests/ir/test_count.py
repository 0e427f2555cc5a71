"""Operations and bytes."""

from __future__ import annotations

from tensorc_dsl.ir.dtypes import F32, I8, I32
from tensorc_dsl.reference.count import Work, bytes_moved, bytes_needed, flops, work
from tests.compute.texts import build, made, std


def test_a_matrix_product_is_two_operations_per_term() -> None:
    p = made(std("matmul"), M=3, N=5, K=7)
    assert flops(p) == 2 * 3 * 5 * 7
    assert bytes_moved(p) == 4 * (3 * 7 + 7 * 5 + 3 * 5)


def test_a_convolution_counts_its_products_only() -> None:
    p = made(std("conv2d"), N=1, H=8, W=8, CI=4, CO=6, KH=3, KW=3, pad=1)
    assert flops(p) == 2 * 8 * 8 * 6 * 3 * 3 * 4


def test_softmax_and_mixed_expressions() -> None:
    assert flops(made(std("softmax"), M=3, N=5)) == 15 * (1 + 2 + 1 + 2)
    text = "compute f(A: f32[M]) -> C: f32[M] { C[i] = max(A[M - 1 - i], 0) if A[i] > f32(i) else exp(A[i] * 2) }"
    assert flops(build(text, M=10)) == 20


def test_types_weigh_what_they_weigh() -> None:
    assert bytes_moved(build("compute f(A: i8[M]) -> C: f64[M] { C[i] = f64(A[i]) }", M=10)) == 90


def test_operations_by_kind() -> None:
    text = """compute f(A: i8[M, K], B: i8[K, N], S: f32[N]) -> C: f32[M, N] {
        let acc[i, j] = sum[k] i32(A[i, k]) * i32(B[k, j])
        C[i, j] = f32(acc[i, j]) * S[j]
    }"""
    p = build(text, M=3, N=5, K=7)
    assert work(p) == {Work(I32, I8): 2 * 3 * 5 * 7, Work(F32): 15}
    assert flops(p) == 2 * 3 * 5 * 7 + 15
    assert bytes_needed(p) == 21 + 35 + 20 + 60
