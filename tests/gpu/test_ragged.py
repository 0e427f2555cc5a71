"""Loops of GPUs end where the conditions of their work do: for each thread, or for a block where its threads meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.kernels import Phase, Steps, barriers_in, inside
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.ir.expr import constant, loads
from tensorc_dsl.lower.flat import Loop
from tensorc_dsl.lower.flat import inside as inside_flat
from tensorc_dsl.reference.interpret import interpret
from tests.gpu.kernels import ptx
from tests.stdlib.gpu_checks import target_of_few

TEXT = """
compute triangular(A: f32[M, M], B: f32[M, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] (A[i, k] * B[k, j] if k <= i else 0.0)
}

compute rows(R: i32[M + 1], V: f32[P]; M: int) -> Y: f32[M] {
    Y[i in M] = sum[p] (V[p] if R[i] <= i32(p) and i32(p) < R[i + 1] else 0.0)
}

compute columns(R: i32[M, 16], V: f32[P]; M: int) -> Y: f32[M, 8] {
    Y[i in M, j in 8] = sum[p] (V[p] if R[i, j] <= i32(p) and i32(p) < R[i, j + 8] else 0.0)
}

schedule copied for columns {
    let [i, j, p] = Y.loops
    let [b, t] = split(i, [_, 8])
    reorder(b, t, j, p)
    bind(b, "block.x")
    let copy = cache_read(Y, R, "shared")
    compute_at(copy, b)
    storage_swizzle(copy.writes[0], 0, 4)
    let [_, part] = split(fuse(copy.loops[-2:]), [_, 64])
    bind(part, "thread.x")
    bind(fuse(t, j), "thread.x")
}

schedule tiled for triangular {
    let [i, j, k] = C.loops
    let [i0, i1] = split(i, [_, 8])
    let [j0, j1] = split(j, [_, 4])
    let [k0, k1] = split(k, [_, 4])
    reorder(i0, j0, k0, i1, j1, k1)
    bind(fuse(i0, j0), "block.x")
    let copy = cache_read(C, A, "shared")
    compute_at(copy, k0)
    bind(fuse(copy.loops[-2:]), "thread.x")
    bind(fuse(i1, j1), "thread.x")
    decompose_reduction(C, k0)
}

schedule by_threads for rows {
    let [i, p] = Y.loops
    let [b, t] = split(i, [_, 8], partial=true)
    bind(b, "block.x")
    bind(t, "thread.x")
}
"""


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("task", "meet"), [("triangular(M=24, N=8) with tiled", True), ("rows(M=19, P=40) with by_threads", False)]
)
def test_each_loop_has_bounds_and_is_right(task: str, meet: bool, tmp_path: Path) -> None:
    (tmp_path / "t.tsched").write_text(f"{target_of_few('one', 1, 256)}{TEXT}task t = {task}\n")
    t = td.load(tmp_path / "t.tsched", target="one")["t"]
    scheduled = t.sample(0).program
    found = lower_device(scheduled, cores=1)
    every = [s for k in found.kernels for s in inside(k.body)]
    steps = [s for s in every if isinstance(s, Steps) and barriers_in(s.body)]
    own = [x for s in every if isinstance(s, Phase) for x in inside_flat(s.body) if isinstance(x, Loop)]
    assert bool(steps) == meet
    assert all(constant(s.end) is None for s in steps)
    assert any(constant(s.end) is None for s in own) != meet  # the loop inside of the tiles is short
    assert ".entry" in ptx(found, "sm_80")
    rng = np.random.default_rng(0)
    inputs = {
        b.name: rng.integers(-5, 50, 20).astype(np.int32) if b.name == "R" else _floats(b.shape, rng)
        for b in t.program.inputs
    }
    fault, outputs = emulated(found, t.program, inputs)
    assert fault == ""
    ((name, want),) = interpret(t.program, inputs).items()
    assert len(outputs) == 3
    for out in outputs:
        np.testing.assert_array_equal(out[name], want)


@pytest.mark.corpus
def test_bounds_are_loaded_from_where_a_swizzle_puts_them(tmp_path: Path) -> None:
    (tmp_path / "t.tsched").write_text(
        f"{target_of_few('one', 1, 256)}{TEXT}task t = columns(M=16, P=200) with copied\n"
    )
    t = td.load(tmp_path / "t.tsched", target="one")["t"]
    found = lower_device(t.sample(0).program, cores=1)
    every = [x for k in found.kernels for s in inside(k.body) if isinstance(s, Phase) for x in inside_flat(s.body)]
    assert any(x.buffer == "R_shared" for s in every if isinstance(s, Loop) for x in loads(s.end))
    rng = np.random.default_rng(0)
    ends = np.concatenate([rng.integers(0, 100, (16, 8)), rng.integers(100, 200, (16, 8))], axis=1)
    inputs = {"R": ends.astype(np.int32), "V": rng.integers(-9, 10, 200).astype(np.float32)}
    fault, outputs = emulated(found, t.program, inputs)
    assert fault == ""
    want = interpret(t.program, inputs)
    assert len(outputs) == 3
    for out in outputs:
        np.testing.assert_array_equal(out["Y"], want["Y"])


def _floats(shape: tuple[object, ...], rng: np.random.Generator) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return rng.integers(-9, 10, [int(getattr(e, "value", 0)) for e in shape]).astype(np.float32)
