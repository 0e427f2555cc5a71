"""Tiles transposed in registers: all types and odd sizes, against NumPy, and without a load for each element."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import LoopRef
from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen.native import compiled, program, run

TEXT = """
program turned(A: {t}[{m}, {n}], V: {t}[{m}], B: {t}[{n}, {m}]) {{
    for i in {n}, j in {m} {{
        block B {{
            spatial vi in {n} = i
            spatial vj in {m} = j
            B[vi, vj] = {value}
        }}
    }}
}}
"""
COPY = "A[vj, vi]"


def tiled(t: str, m: int, n: int, value: str, *, rows: int = 16, columns: int = 16) -> Program:
    p = program(TEXT.format(t=t, m=m, n=n, value=value))
    p = apply(p, "split", LoopRef("i"), (None, min(rows, n)), partial=True).program
    p = apply(p, "split", LoopRef("j"), (None, min(columns, m)), partial=True).program
    p = apply(p, "reorder", *map(LoopRef, ("i_0", "j_0", "i_1", "j_1"))).program
    p = apply(p, "unroll", LoopRef("i_1")).program
    return apply(p, "vectorize", LoopRef("j_1")).program


def numbers(shape: tuple[int, ...], t: str) -> Array:
    rng = np.random.default_rng(0)
    if t == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if t == "bf16":
        return (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if t.startswith("f"):
        return rng.standard_normal(shape).astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[t])
    return rng.integers(0, 100, shape).astype({"i8": np.int8, "u16": np.uint16, "i32": np.int32, "i64": np.int64}[t])


@pytest.mark.corpus
@pytest.mark.parametrize(("m", "n"), [(32, 48), (37, 53), (3, 40), (40, 3), (5, 7), (17, 2), (1, 20), (64, 9)])
@pytest.mark.parametrize("t", ["f32", "f64", "f16", "bf16", "i8", "u16", "i32", "i64", "bool"])
def test_every_type_and_odd_sizes(t: str, m: int, n: int) -> None:
    a = numbers((m, n), t)
    got = run(tiled(t, m, n, COPY), {"A": a, "V": numbers((m,), t)})["B"]
    np.testing.assert_array_equal(got, a.T)


@pytest.mark.corpus
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (4, 40), (16, 3), (33, 16), (20, 7)])
def test_tiles_of_other_sizes(rows: int, columns: int) -> None:
    a = numbers((50, 45), "f32")
    got = run(tiled("f32", 50, 45, COPY, rows=rows, columns=columns), {"A": a, "V": a[:, 0].copy()})["B"]
    np.testing.assert_array_equal(got, a.T)


@pytest.mark.corpus
@pytest.mark.parametrize(("m", "n"), [(128, 32), (67, 35), (130, 17), (61, 7)])
@pytest.mark.parametrize(("t", "rows"), [("i8", 16), ("bool", 16), ("f16", 8), ("bf16", 8), ("u16", 16)])
def test_squares_of_short_elements_fill_vectors(t: str, rows: int, m: int, n: int) -> None:
    a = numbers((m, n), t)
    got = run(tiled(t, m, n, COPY, rows=rows, columns=64), {"A": a, "V": numbers((m,), t)})["B"]
    np.testing.assert_array_equal(got, a.T)


def test_a_tile_of_bytes_is_stored_as_whole_vectors() -> None:
    text = compiled(tiled("i8", 128, 32, COPY, columns=64)).llvm_ir
    assert max(map(int, re.findall(r"store <(\d+) x i8>", text))) == host_target().vector_bits // 8
    assert not re.search(r"(load|store) i8|masked", text)


def relu(a: Array, v: Array) -> Array:
    return np.maximum(a.T, np.float32(0)) + v


def leaky(a: Array, v: Array) -> Array:
    return np.where(a.T > 0, a.T, np.float32(0.5) * v)


def cut(a: Array, _: Array) -> Array:
    """Rows 2 to 6 only, the others zeros: what is outside may not be there to be read."""
    out = np.zeros_like(a.T)
    out[2:7] = a.T[2:7]
    return out


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("value", "reference"),
    [
        ("max(A[vj, vi], 0.0) + V[vj]", relu),
        ("A[vj, vi] if A[vj, vi] > 0.0 else 0.5 * V[vj]", leaky),
        ("A[vj, vi] if 2 <= vi and vi < 7 else 0.0", cut),
    ],
)
@pytest.mark.parametrize(("m", "n"), [(37, 53), (3, 40), (40, 3)])
def test_what_is_computed_on_the_way(value: str, reference: Callable[[Array, Array], Array], m: int, n: int) -> None:
    a, v = numbers((m, n), "f32"), numbers((m,), "f32")
    np.testing.assert_array_equal(run(tiled("f32", m, n, value), {"A": a, "V": v})["B"], reference(a, v))


@pytest.mark.parametrize(("m", "n"), [(64, 64), (64, 3), (3, 64)])
def test_rows_are_loaded_and_stored_as_vectors(m: int, n: int) -> None:
    text = compiled(tiled("f32", m, n, COPY)).llvm_ir
    assert "shufflevector" in text
    assert re.search(r"load <\d+ x float>", text) and re.search(r"store <\d+ x float>", text)
    assert not re.search(r"(load|store) float|masked", text)


def test_columns_that_are_read_after_they_were_written_are_not_turned() -> None:
    """In place each element is read before or after it was overwritten as the order says."""
    p = program(
        """
program shifted(A: f32[40, 40], B: f32[40, 40]) {
    for i in 40, j in 40 {
        block B {
            spatial vi in 40 = i
            spatial vj in 40 = j
            B[vi, vj] = A[vj, vi]
        }
    }
    for i_1 in 16, j_1 in 16 {
        block C {
            spatial vi in 16 = i_1
            spatial vj in 16 = j_1
            B[vi + 16, vj] = B[vj, vi] + 1.0
        }
    }
}
"""
    )
    p = apply(p, "unroll", LoopRef("i_1")).program
    p = apply(p, "vectorize", LoopRef("j_1")).program
    a = numbers((40, 40), "f32")
    want = a.T.copy()
    want[16:32, :16] = want[:16, :16].T + np.float32(1)
    np.testing.assert_array_equal(run(p, {"A": a})["B"], want)
