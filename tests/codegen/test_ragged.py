"""Loops that begin and end where conditions do, as machine code: the same numbers, and no read outside of an array."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import TaskFile
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Loop, inside
from tensorc_dsl.reference.interpret import interpret
from tests.codegen import native
from tests.codegen.ragged import Ragged, same

ENDS = """
compute ends(R: i64[7], V: f32[40]) -> A: f32[7], B: f32[7], C: f32[7], D: f32[7], E: f32[7] {
    A[i in 7] = sum[p] (V[p] if i64(3 * p + 1) < R[i] else 0.0)
    B[i in 7] = sum[p] (V[p] if i64(5 - 2 * p) <= R[i] else 0.0)
    C[i in 7] = sum[p] (V[p] if R[i] <= i64(4 * p) + i64(3) and p <= i else 0.0)
    D[i in 7] = sum[p] (V[p] if i64(2 * p) == R[i] else 0.0)
    E[i in 7] = sum[p] (V[p] if p + i < 4 and i64(p) < R[i + 3] else 0.0)
}
schedule plain for ends {}
task t = ends() with plain
"""

COUNT = int(os.environ.get("RAGGED_FUZZ", "24"))


def _is_bounded(seed: int) -> bool:
    """Whether a random reduction is right; the result says whether a loop has bounds."""
    made = Ragged(random.Random(seed))
    task = TaskFile(load_source(Source("random.tsched", made.text())), Target())["t"]
    scheduled = task.sample(0, 0).program
    inputs = made.inputs(task.program)
    got = native.run(scheduled, inputs)
    for name, want in interpret(task.program, inputs).items():
        assert same(got[name], want), made.text()
    loops = [s for s in inside(lower_cpu(scheduled).body) if isinstance(s, Loop)]
    return any(constant(s.begin) is None or constant(s.end) is None for s in loops)


@pytest.mark.parametrize("first", range(0, COUNT, 8))
def test_random_conditions(first: int) -> None:
    bounded = [_is_bounded(seed) for seed in range(first, first + 8)]
    assert any(bounded)


def test_numbers_at_the_ends_of_their_type() -> None:
    task = TaskFile(load_source(Source("ends.tsched", ENDS)), Target())["t"]
    p = task.sample(0, 0).program
    loops = [s for s in inside(lower_cpu(p).body) if isinstance(s, Loop) and s.var.startswith("p")]
    assert loops
    assert not any(constant(s.begin) == 0 and constant(s.end) == 40 for s in loops)
    least, most = -(2**63), 2**63 - 1
    inputs = {
        "R": np.array([least, most, least + 1, 38, most - 1, 0, 40], np.int64),
        "V": np.arange(1, 41, dtype=np.float32),
    }
    got = native.run(p, inputs)
    for name, want in interpret(task.program, inputs).items():
        assert same(got[name], want), name
