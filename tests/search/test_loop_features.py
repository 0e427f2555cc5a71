"""The numbers of loops: distances and footprints by hand, sizes that do not divide, and every program of the library."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc_dsl
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.tuning.search.loop_features import COLUMNS, Nest, loop_features, nests

GEMM = """program mm(A: f32[8, 12], B: f32[12, 16], C: f32[8, 16]) {
    for i in 8 {
        for k in 12 {
            vectorized for j in 16 {
                block C {
                    spatial vi in 8 = i
                    reduce vk in 12 = k
                    spatial vj in 16 = j
                    init { C[vi, vj] = 0.0 }
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
                }
            }
        }
    }
}
"""


def program(text: str) -> Program:
    return parse_program(Source("program", text))


@pytest.fixture
def gemm() -> Nest:
    (found,) = nests(program(GEMM))
    return found


def touch(nest: Nest, buffer: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    (found,) = (t for t in nest.touches if t.buffer == buffer)
    return found.steps, found.spans


def test_distances_between_iterations(gemm: Nest) -> None:
    assert gemm.extents == (8, 12, 16)
    assert gemm.operations == 2
    assert touch(gemm, "A") == ((12, 1, 0), (84, 11, 0))
    assert touch(gemm, "B") == ((0, 16, 1), (0, 176, 15))
    assert touch(gemm, "C") == ((16, 0, 1), (112, 0, 15))


def test_footprints_and_runs(gemm: Nest) -> None:
    a, b = (next(t for t in gemm.touches if t.buffer == name) for name in ("A", "B"))
    assert [a.distinct(list(range(d, 3)), gemm.extents) for d in range(4)] == [96, 12, 1, 1]
    assert [b.distinct(list(range(d, 3)), gemm.extents) for d in range(4)] == [192, 192, 16, 1]
    assert b.run([1, 2], gemm.extents) == 192
    assert b.run([2], gemm.extents) == 16
    assert a.run([0], gemm.extents) == 1


def named(text: str, target: Target) -> dict[str, float]:
    return dict(zip(COLUMNS, loop_features(program(text), target).tolist(), strict=True))


def test_a_vector_that_fits_wastes_nothing() -> None:
    fits = named(GEMM, Target(vector_bits=512))
    wide = named(GEMM.replace("j in 16", "j in 12").replace("16", "12"), Target(vector_bits=512))
    assert fits["vector waste of nest 1"] == 0.0
    assert wide["vector waste of nest 1"] == pytest.approx(0.25)
    assert fits["operations"] == pytest.approx(np.log2(2 * 8 * 12 * 16))
    assert fits["share of nest 1"] == 1.0
    assert fits["share of nest 2"] == 0.0


def test_parallel_work_is_shared() -> None:
    parallel = named(GEMM.replace("    for i in 8", "    parallel for i in 8"), Target(vector_bits=512, cores=4))
    serial = named(GEMM, Target(vector_bits=512, cores=4))
    assert serial["compute"] - parallel["compute"] == pytest.approx(2.0)
    assert parallel["tasks of nest 1"] == 3.0
    odd = named(GEMM.replace("    for i in 8", "    parallel for i in 8"), Target(vector_bits=512, cores=3))
    assert odd["imbalance of nest 1"] == pytest.approx(3 * 3 / 8 - 1)


def test_data_as_subscripts_move_at_random() -> None:
    text = """program pick(W: f32[1000], I: i32[64], Y: f32[64]) {
    for n in 64 {
        block Y {
            spatial vn in 64 = n
            Y[vn] = W[min(max(index(I[vn]), 0), 999)]
        }
    }
}
"""
    (nest,) = nests(program(text))
    (w,) = (t for t in nest.touches if t.buffer == "W")
    assert w.is_random
    assert w.distinct([0], nest.extents) == 64


@pytest.mark.corpus
@pytest.mark.parametrize("file", ["matmul", "softmax", "conv2d", "dense_any", "quantized_matmul"])
def test_every_draw_has_all_numbers(file: str) -> None:
    for task in tensorc_dsl.load(f"examples/{file}.tsched").values():
        for number in range(4):
            trace = task.sample(3, number)
            found = loop_features(bind(trace.program, sizing(task.program).timed[-1]), task.target)
            assert found.shape == (len(COLUMNS),)
            assert np.isfinite(found).all()


@pytest.mark.parametrize(("old", "new"), [("i in 8", "i in 0"), ("k in 12", "k in 0"), ("j in 16", "j in 0")])
@pytest.mark.parametrize("kind", ["", "parallel "])
def test_a_nest_that_never_runs_costs_nothing(old: str, new: str, kind: str) -> None:
    empty = GEMM.replace(old, new).replace("    for i", f"    {kind}for i")
    found = named(empty, Target(vector_bits=512, cores=4))
    nothing = named("program nothing(C: f32[8]) { }", Target(vector_bits=512, cores=4))
    assert found == {**nothing, "regions": 1.0}
