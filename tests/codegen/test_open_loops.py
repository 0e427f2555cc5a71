"""Steps over loops whose length is known at run time: one kernel is right for every size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.reference.interpret import interpret
from tests.codegen.native import compiled
from tests.primitives.cases import Case, before_program, run

ROWS = """program rows(A: f32[M, 7], C: f32[M, 7]) where M in 0..13 {
    for i in M, j in 7 {
        block C { spatial vi in M = i; spatial vj in 7 = j; C[vi, vj] = A[vi, vj] + 1.0 }
    }
}
"""
COLUMNS = """program columns(A: f32[7, M], C: f32[7]) where M in 1..13 {
    for i in 7, k in M {
        block C {
            spatial vi in 7 = i
            reduce vk in M = k
            init { C[vi] = 0.0 }
            C[vi] = C[vi] + A[vi, vk]
        }
    }
}
"""
TWICE = """program twice(A: f32[M, 7], C: f32[M, 7], D: f32[M, 7]) where M in 0..13 {
    for i in M, j in 7 {
        block C { spatial vi in M = i; spatial vj in 7 = j; C[vi, vj] = A[vi, vj] + 1.0 }
    }
    for i_1 in M, j_1 in 7 {
        block D { spatial vi in M = i_1; spatial vj in 7 = j_1; D[vi, vj] = C[vi, vj] * 2.0 }
    }
}
"""
STEPS = {
    "tiles": (ROWS, 'split(i, [_, 4], partial="cut")\nparallel(i_0)\nvectorize(j)\nunroll(i_1)\n'),
    "two_levels": (
        ROWS,
        'split(i, [_, 2, 3], partial="cut")\nsplit(i_tail, [_, 2], partial="cut")\nparallel(i_tail_0)\n',
    ),
    "fused": (ROWS, 'fuse(i, j)\nsplit(i_j, [_, 8], partial="cut")\nvectorize(i_j_1)\nbind(i_j_0, "block.x")\n'),
    "reduction": (COLUMNS, 'split(k, [_, 4], partial="cut")\nreorder(k_0, k_1)\nunroll(k_1)\nparallel(i)\n'),
    "perhaps_none": (COLUMNS.replace("1..13", "0..13"), "split(k, [_, 4], partial=true)\n"),
    "first": (
        COLUMNS,
        "split(k, [_, 5], partial=true)\nreorder(k_0, i)\ndecompose_reduction(C, k_0)\nvectorize(i_init)\n",
    ),
    "wavefront": (ROWS, "skew(i, j, 2)\nreorder(j_skewed, i)\nparallel(i)\n"),
    "merged": (TWICE, 'merge(i, i_1)\nmerge(j, j_1)\nsplit(i, [_, 4], partial="cut")\nparallel(i_0)\nvectorize(j)\n'),
}


@pytest.mark.corpus
@pytest.mark.parametrize("name", STEPS)
def test_one_kernel_for_every_size(name: str) -> None:
    case = Case(Path("open.md"), name, *STEPS[name], "tsched", "")
    before, after = before_program(case), run(case)
    (m,) = before.dims
    kernel = load(compiled(after))
    rng = np.random.default_rng(0)
    least = 1 if "reduce" in case.before else m.low  # a reduction of nothing is not even initialised
    for size in range(least, (m.high or 0) + 1):
        a = rng.standard_normal((7, size) if "columns" in STEPS[name][0] else (size, 7)).astype(np.float32)
        want = interpret(bind(before, {m.name: size}), {"A": a})
        again = interpret(bind(after, {m.name: size}), {"A": a}, "shuffled")
        outputs = [np.full(want[p.name].shape, np.nan, np.float32) for p in before.outputs]
        kernel(a, *outputs)
        for p, got in zip(before.outputs, outputs, strict=True):
            np.testing.assert_allclose(again[p.name], want[p.name], rtol=1e-5)
            np.testing.assert_allclose(got, want[p.name], rtol=1e-5, atol=1e-6)
