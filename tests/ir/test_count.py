"""Operations and bytes."""

from __future__ import annotations

import pytest

from tensorc_dsl.ir.dtypes import BF16, F32, I8, I16, I32, I64, U8
from tensorc_dsl.reference.work import Work, bytes_moved, bytes_needed, flops, work
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
    assert all(not k.sums for k in work(p))
    assert flops(p) == 2 * 3 * 5 * 7 + 15
    assert bytes_needed(p) == 21 + 35 + 20 + 60


@pytest.mark.parametrize(
    ("types", "value", "kind"),
    [
        (("u8", "i8", "i32"), "(i32(A[i, k]) - 128) * (i32(B[k, j]) - 3)", Work(I32, U8)),
        (("u8", "i8", "i32"), "i32(A[i, k]) + i32(B[k, j])", Work(I32, U8)),
        (("i16", "i8", "i32"), "i32(A[i, k]) * i32(B[k, j])", Work(I32, I16)),
        (("i32", "i32", "i64"), "i64(A[i, k]) * i64(B[k, j])", Work(I64, I32)),
        (("i32", "i8", "i32"), "A[i, k] * i32(B[k, j])", Work(I32)),
        (("i32", "i32", "i32"), "A[i, k] * B[k, j]", Work(I32)),
        (("i32", "i32", "i32"), "max(A[i, k], B[k, j])", Work(I32, sums=True)),
        (("i32", "i32", "i32"), "A[i, k] * 8 - B[k, j] * 3", Work(I32, sums=True)),
        (("i64", "i64", "i64"), "min(A[i, k], 7) * B[k, j] + A[i, k]", Work(I64, sums=True)),
        (("f32", "f32", "f32"), "max(A[i, k], B[k, j])", Work(F32)),
        (("bf16", "bf16", "f32"), "f32(A[i, k]) * f32(B[k, j])", Work(F32, BF16)),
        (("bf16", "bf16", "f32"), "f32(A[i, k]) * f32(B[k, j]) * 2.0", Work(F32)),
        (("bf16", "f32", "f32"), "f32(A[i, k]) * B[k, j]", Work(F32)),
    ],
)
def test_what_other_instructions_do_is_another_kind(types: tuple[str, str, str], value: str, kind: Work) -> None:
    """Products of integers that were bytes need no multiplication of their own type, sums none at all."""
    t, u, v = types
    text = f"compute f(A: {t}[M, K], B: {u}[K, N]) -> C: {v}[M, N] {{ C[i, j] = sum[k] {value} }}"
    assert set(work(build(text, M=3, N=5, K=7))) == {kind}


def test_a_sum_over_matches_counts_its_terms_and_not_the_places_that_each_is_compared_with() -> None:
    histogram = "compute f(X: u8[N]) -> C: i32[256] { C[v] = sum[i] (1 if X[i] == u8(v) else 0) }"
    assert flops(build(histogram, N=1000)) == 1000
    rows = """compute f(I: i32[K], J: i32[K], V: f32[K, D]) -> Y: f32[M, N, D] where M = 5, N = 7 {
        Y[h, w, d] = sum[k] (V[k, d] * 2.0 if I[k] == i32(h) and J[k] == i32(w) else 0.0)
    }"""
    assert flops(build(rows, K=11, D=3)) == 2 * 11 * 3
    other = "compute f(X: u8[N]) -> C: i32[256] { C[v] = sum[i] (1 if X[i] <= u8(v) else 0) }"
    assert flops(build(other, N=1000)) == 256 * 1000
