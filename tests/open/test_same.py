"""Open sizes that are always equal, `N=M`: one size, for calls, steps and proofs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl import load, loads
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.proof.equivalence.validate import Valid

PAIRS = """
compute pairs(X: f32[N, D], Y: f32[M, D]) -> S: f32[M, N] where N % 4 == 0 {
    S[i, j] = sum[d] Y[i, d] * X[j, d]
}
schedule tiles for pairs {
    let [i, j, d] = S.loops
    let [i0, i1] = split(i, [_, 2])
    let [j0, j1] = split(j, [_, 4])
    reorder(i0, j0, d, i1, j1)
    vectorize(j1)
}
task some = pairs(M=4..64, N=M, D=5) with tiles
"""


def test_both_are_one_size() -> None:
    task = loads(PAIRS)["some"]
    trace = task.sample(0)
    assert [(d.name, d.low, d.high) for d in task.program.dims] == [("M_by_4", 1, 16)]
    # Neither of the tiles needs `partial`: what is said of N holds for M.
    assert task.verify(trace) == Valid()
    kernel = task.replay(trace)
    rng = np.random.default_rng(0)
    for n in (4, 8, 28, 64):
        x, y = (rng.random((n, 5), np.float32) for _ in range(2))
        np.testing.assert_allclose(kernel(x, y), y @ x.T, rtol=1e-5)
    for n, m in ((8, 12), (6, 6), (0, 0), (68, 68)):
        with pytest.raises(ValueError, match=r"M|N|shape"):
            kernel(np.zeros((n, 5), np.float32), np.zeros((m, 5), np.float32))


def test_a_number_and_a_file_of_its_own(tmp_path: Path) -> None:
    fixed = loads(PAIRS.replace("M=4..64", "M=8"))["some"].program
    assert not fixed.dims and [str(e) for e in fixed.outputs[0].shape] == [str(e) for e in fixed.outputs[0].shape[::-1]]
    path = tmp_path / "pairs.tsched"
    path.write_text(PAIRS)
    task = load(str(path))["some"]
    kept = tmp_path / "kept.tsched"
    task.replay(task.sample(0)).save(kept)
    assert load(str(kept))["some"].program.dims == task.program.dims


@pytest.mark.parametrize("bindings", ["M=N, N=M", "M=4..64, N=Q", "M=4..64, N=N", "M=D, N=M"])
def test_what_is_the_size_of_nothing(bindings: str) -> None:
    with pytest.raises(TschedError):
        loads(PAIRS.replace("M=4..64, N=M", bindings))["some"].sample(0)
