"""Arguments with declared strides: transposed and sliced arrays are taken as they lie, others refused, none copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tensorc_dsl.backend.llvm.ahead.interface import Status
from tensorc_dsl.backend.llvm.ahead.library import FORMS
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task, load, loads
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.proof.equivalence.validate import Valid
from tests.ahead.made import needs_compiler, python

Array = NDArray[Any]

MATMUL = """
compute matmul(A: f32[M, K] strides [1, S], B: f32[K, N]) -> C: f32[M, N] strides [R, 1] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}
schedule tiled for matmul {
    let [i, j, k] = C.loops
    let [j0, j1] = split(j, [_, 8], partial=true)
    reorder(i, j0, k, j1)
    vectorize(j1)
}
task fixed = matmul(M=7, N=20, K=8, S=9, R=23) with tiled
task any = matmul(M=1..64, N=1..64, K=1..64, S=1..4096, R=1..4096) with tiled
"""


def task(name: str, text: str = MATMUL) -> Task:
    return loads(f"use std.cpu\n{text}", threads=1)[name]


def kernel(name: str, text: str = MATMUL) -> Any:
    found = task(name, text)
    return found.replay(found.sample(0))


def sliced(rows: int, columns: int, more: int) -> tuple[Array, Array]:
    """An array of NaN, and the view of its first columns."""
    whole = np.full((rows, columns + more), np.nan, np.float32)
    return whole, whole[:, :columns]


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 20, 8), (64, 64, 64), (13, 1, 5), (1, 17, 3), (31, 37, 1)])
def test_transposed_inputs_and_sliced_outputs(sizes: tuple[int, int, int], more: int) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(0)
    _, turned = sliced(k, m, more)
    turned[...] = rng.random((k, m), np.float32)
    whole, c = sliced(m, n, more)
    b = rng.random((k, n), np.float32)
    assert kernel("any")(turned.T, b, c) is c
    np.testing.assert_allclose(c, turned.T @ b, rtol=1e-5)
    assert np.isnan(whole[:, n:]).all()  # what lies between the rows is not the kernel's


def test_new_outputs_have_the_declared_strides() -> None:
    _, turned = sliced(8, 7, 2)
    turned[...] = 1
    out = kernel("fixed")(turned.T, np.ones((8, 20), np.float32))
    assert out.strides == (92, 4) and (out == 8).all()


@pytest.mark.parametrize(
    ("name", "a", "c", "message"),
    [
        ("any", np.ones((4, 3), np.float32), None, r"A: expected strides \[1, S\].*got \(12, 4\) in bytes"),
        ("any", np.ones((3, 4), np.float32).T[:, ::-1], None, "A: S is -4; this kernel takes 1 to 4096"),
        ("any", np.ones((3, 4), np.float32).T[::-1], None, r"A: expected strides \[1, S\]"),
        ("any", None, np.zeros((5, 4), np.float32).T, r"C: expected strides \[R, 1\]"),
        ("any", None, as_strided(np.zeros(99, np.float32), (4, 5), (12, 4)), "share a place"),
        ("any", None, None, "the arrays given do not tell the size R; pass the outputs too"),
    ],
)
def test_other_layouts_are_refused(name: str, a: Array | None, c: Array | None, message: str) -> None:
    a = np.ones((3, 4), np.float32).T if a is None else a
    arrays = [a, np.ones((3, 5), np.float32), *([] if c is None else [c])]
    if c is None and "A:" in message:
        arrays.append(np.zeros((4, 5), np.float32))
    with pytest.raises(ValueError, match=message):
        kernel(name)(*arrays)


def test_an_array_that_is_not_dense_is_told_how_to_declare_it() -> None:
    text = "compute twice(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = X[i, j] * 2.0 }\ntask t = twice(M=4, N=3)"
    with pytest.raises(ValueError, match=r"declare its layout: `X: f32\[…\] strides \[1, S\]`"):
        kernel("t", text)(np.ones((3, 4), np.float32).T)


def test_a_view_that_overlaps_an_output_is_refused() -> None:
    whole = np.zeros((8, 64), np.float32)
    with pytest.raises(ValueError, match="share memory"):
        kernel("any")(whole[:, :8].T, np.zeros((8, 5), np.float32), whole[:, 5:10])


def test_inputs_may_share_places_and_outputs_not() -> None:
    rows = "compute add(X: f32[M, N] strides [0, 1], Y: f32[M, N]) -> Z: f32[M, N] { Z[i, j] = X[i, j] + Y[i, j] }"
    found = task("t", f"{rows}\ntask t = add(M=5, N=13)")
    y = np.arange(65, dtype=np.float32).reshape(5, 13)
    x = np.broadcast_to(np.arange(13, dtype=np.float32), (5, 13))
    np.testing.assert_array_equal(found.replay(found.sample(0))(x, y), x + y)
    assert found.measure(found.sample(0)).message == ""
    text = "compute f(X: f32[N, M]) -> Y: f32[N, M] strides [4, 1] { Y[i, j] = X[i, j] }\ntask t = f(N=3, M=5)"
    with pytest.raises(TschedError, match="share a place for all sizes"):
        task("t", text)


def test_constant_inputs_with_strides_are_packed() -> None:
    text = """
compute linear(X: f32[M, K], W: const f32[K, N] strides [1, S]) -> Y: f32[M, N] {
    let P[j, k] = W[k, j] * 2.0
    Y[i, j] = sum[k] X[i, k] * P[j, k] + W[k, j]
}
task t = linear(M=1..8, N=1..8, K=1..8, S=1..64)
"""
    run = kernel("t", text)
    whole, turned = sliced(5, 7, 4)
    turned[...] = np.random.default_rng(1).random((5, 7), np.float32)
    x = np.ones((3, 7), np.float32)
    want = x @ turned.T * 3
    np.testing.assert_allclose(run(x, turned.T), want, rtol=1e-5)
    bound = run.bind(W=turned.T)
    whole[...] = 0  # it has copies
    np.testing.assert_allclose(bound(x), want, rtol=1e-5)


@pytest.mark.parametrize("name", ["fixed", "any"])
def test_the_program_says_its_strides_and_the_kernel_is_measured_and_proved(name: str) -> None:
    found = task(name)
    text = format_program(found.program)
    assert "strides [" in text and parse_program(Source("p", text)) == found.program
    trace = found.sample(0)
    assert isinstance(found.verify(trace), Valid)
    assert found.measure(trace).message == ""


def test_threads_of_a_gpu() -> None:
    text = (
        MATMUL.replace("with tiled", "with bound")
        + """
target gpu = cuda(cpu="sm_80", cores=4, threads=1024, shared_memory=49152, registers=65536)
schedule bound for matmul {
    let [i, j, k] = C.loops
    bind(i, "block.x")
    let [j0, j1] = split(j, [_, 32], partial=true)
    bind(j1, "thread.x")
}
"""
    )
    found = loads(text.replace("task any = matmul(M=1..64", "task any = matmul(M=1..9"), target="gpu")["any"]
    assert found.emulate(found.sample(0)).fault == ""


@needs_compiler
def test_c_takes_arrays_with_strides(tmp_path: Path) -> None:
    found = task("any")
    file = tmp_path / f"any{FORMS['so'].suffix}"
    found.export(found.sample(0), file, "so")
    header = found.library(found.sample(0)).make("header").decode()
    assert "A: input, f32[M, K] strides [1, S]" in header and "_A_STRIDES(S)" in header
    program = """
def product(m, n, k, s, r, a=None, c=None):
    x = array("f", [0.0] * (s * k))
    for i in range(m):
        for p in range(k):
            x[i + p * s] = i + 2.0 * p
    y = array("f", [float(q % 5) for q in range(k * n)])
    z = array("f", [-1.0] * (r * m + n))
    status = call("any", describe(x, [m, k], strides=ints(a or [1, s])), describe(y, [k, n]),
                  describe(z, [m, n], strides=ints(c or [r, 1])))
    right = all(z[i * r + j] == sum(x[i + p * s] * y[p * n + j] for p in range(k)) for i in range(m) for j in range(n))
    kept = all(z[i * r + j] == -1.0 for i in range(m) for j in range(n, r))
    return [*status, right and kept]
print(json.dumps([product(5, 7, 3, 5, 7), product(5, 7, 3, 9, 12), product(1, 7, 1, 9, 7, a=[77, 9999]),
                  product(5, 7, 3, 9, 12, a=[2, 9]), product(5, 7, 3, 9, 6), product(5, 7, 3, 9, 7, c=[-7, 1])]))
"""
    dense, wide, single, other, meets, negative = python(file, program)
    assert dense == wide == [0, 0, True] and single[:2] == [0, 0]
    assert other[:2] == [Status.STRIDES, 0]
    assert meets[:2] == [Status.STRIDES, 2]
    assert negative[0] == Status.SIZE


def test_a_file_with_strides_is_formatted_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "m.tsched"
    file.write_text(
        "compute f(strides: f32[N] strides [2], const: f32[N]) -> Y: f32[N] { Y[i] = strides[i] + const[i] }\n"
    )
    assert load(file) is not None
    with pytest.raises(TschedError, match="has 2 dimensions, and 1 strides"):
        loads("compute f(A: f32[M, N] strides [1]) -> B: f32[M] { B[i] = sum[j] A[i, j] }")


def test_a_call_takes_the_tensors_of_its_caller_where_they_are() -> None:
    text = f"""{MATMUL}
compute twice(A: f32[M, K], B: f32[K, N] strides [1, T]) -> C: f32[M, N] {{
    let P = matmul(A, B)
    C[i, j] = P[i, j] * 2.0
}}
task t = twice(M=3, N=5, K=4, T=6)
"""
    _, turned = sliced(5, 4, 2)
    turned[...] = np.arange(20).reshape(5, 4)
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(kernel("t", text)(a, turned.T), a @ turned.T * 2)
