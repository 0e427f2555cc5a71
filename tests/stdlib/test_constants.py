"""Weights of the library's operators under its space: packed before the first call, and recognised by rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tensorc_dsl
from tensorc_dsl.faces.api.schedules import sample
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.proof.sets.constants import preparation
from tests.stdlib.cases import case, library


def test_most_samples_pack_a_constant_weight_and_fewer_an_activation() -> None:
    packed = {"dense": 0, "matmul": 0}
    target = Target(vector_bits=512, cores=2, features="+avx2,+fma")
    for name in packed:
        program = case(name, -1).program
        space = Space(library().spaces["default"], name, program, target, library().modules)
        for seed in range(24):
            scheduled = sample(space, name, seed).program
            packed[name] += any(b.name.endswith("_global") for b in scheduled.buffers)
            assert not any(b.name.startswith("X") for b in preparation(scheduled).prepared)
    assert packed["dense"] > packed["matmul"]


def test_a_kernel_of_the_library_is_bound_to_its_weights(tmp_path: Path) -> None:
    file = tmp_path / "layer.tsched"
    file.write_text(
        "use std.ops.dense\nuse std.cpu.{default}\ntask layer = dense(M=12, N=48, K=20)\n", encoding="utf-8"
    )
    task = tensorc_dsl.load(file, threads=2)["layer"]
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s, np.float32) for s in ((12, 20), (20, 48), (48,)))
    want = np.maximum(x @ w + b, 0)
    for seed in range(4):
        kernel = task.replay(task.sample(seed))
        assert kernel.constants == ("W", "b")
        bound = kernel.bind(W=w.copy(), b=b.copy())
        np.testing.assert_allclose(bound(x), want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(kernel(x, w, b), want, rtol=1e-4, atol=1e-5)
