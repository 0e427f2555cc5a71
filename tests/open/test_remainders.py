"""What is behind the last whole tile of open sizes: as many rows as there are, without a test of each in each step."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorc_dsl import Task, loads

TEXT = """
compute product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
compute chain(A: f32[M, 5], B: f32[5, M], V: f32[M, 16]) -> C: f32[M, 16] {
    let S[i, j] = sum[k] A[i, k] * B[k, j]
    C[i, c] = sum[j] S[i, j] * V[j, c]
}

schedule tiled for product {
    let sums = cache_write(C, "local")
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 4], partial=true)
    let [j0, j1] = split(j, [_, 16], partial=true)
    reorder(j0, i0, k, i1, j1)
    reverse_compute_at(sums, i0)
    let zero = decompose_reduction(C, k)
    for b in [C, zero, sums] {
        unroll(b.loops[-2])
        vectorize(b.loops[-1])
    }
    parallel(j0)
}

/// Some of the sums are stored by a loop that is no part of the tile: it has all of its rows.
schedule apart for product {
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 4], partial=true)
    reorder(i0, k, i1, j)
    unroll(i1)
}

schedule pieces for chain {
    let [i, c, j] = C.loops
    let [far, near] = split(i, [_, 32], partial=true)
    compute_at(S, far)
    let [_, row, column, k] = S.loops
    let [r0, r1, r2] = split(row, [4, 4, 2])
    let [c0, c1] = split(column, [_, 64], partial=true)
    reorder(r0, c0, r1, c1, k, r2)
    let [n0, n1, n2] = split(near, [2, 2, 8])
    reorder(n0, n1, j, n2, c)
    unroll(n2)
    vectorize(c)
    parallel(far)
}

task product = product(M=0..19, N=20, K=7) with tiled
task wide = product(M=1..19, N=1..40, K=7) with tiled
task apart = product(M=0..19, N=20, K=7) with apart
task chain = chain(M=1..140) with pieces
"""


def integers(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


def code_of(task: Task) -> str:
    return task.lowered_text(task.sample(0))


def test_a_register_tile_has_code_for_each_number_of_rows() -> None:
    code = code_of(loads(TEXT, threads=2)["product"])
    rows = re.findall(r"if M % 4 == (\d) \{\s+with C_local", code)
    assert rows == ["1", "2", "3"] * (len(rows) // 3) and rows
    assert sorted(set(re.findall(r"unrolled for i_1 in 0 \.\. (\d)", code))) == ["1", "2", "3", "4"]
    for steps in code.split("for k in 0 .. 7 {")[1:]:
        assert "M" not in steps.partition("C_local[")[0]


def test_loops_over_rows_end_where_the_rows_do() -> None:
    code = code_of(loads(TEXT, threads=2)["chain"])
    assert set(re.findall(r"for j_1_1 in 0 \.\. (.*) \{", code)) == {"64", "M % 64"}
    assert set(re.findall(r"for i_1 in 0 \.\. (.*) \{", code)) == {"4", "(M % 8 + 1) / 2"}
    # No serial loop tests in each step whether its row is there.
    assert not re.search(r"\n +for (\w+) in 0 \.\. [^{]*\{\n +if \1", code)


@pytest.mark.parametrize("name", ["product", "apart"])
def test_products_are_right_for_all_rows(name: str) -> None:
    task = loads(TEXT, threads=2)[name]
    kernel = task.replay(task.sample(0))
    a, b = integers(0, (19, 7), (7, 20))
    for m in range(20):
        assert np.array_equal(kernel(a[:m].copy(), b), a[:m] @ b)


def test_products_are_right_for_all_rows_and_columns() -> None:
    task = loads(TEXT, threads=2)["wide"]
    kernel = task.replay(task.sample(0))
    a, b = integers(1, (19, 7), (7, 40))
    for m in range(1, 20):
        for n in range(1, 41):
            assert np.array_equal(kernel(a[:m].copy(), b[:, :n].copy()), a[:m] @ b[:, :n])


def test_chains_are_right_for_all_lengths() -> None:
    task = loads(TEXT, threads=2)["chain"]
    kernel = task.replay(task.sample(0))
    for m in range(1, 141):
        a, b, v = integers(m, (m, 5), (5, m), (m, 16))
        assert np.array_equal(kernel(a, b, v), a @ b @ v)
