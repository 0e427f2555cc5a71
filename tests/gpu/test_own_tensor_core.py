"""`examples/use_tensor_core.tsched`: instructions and a module in a file of one's own make kernels, in few lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tensorc_dsl as td
from bench.module_sizes import code_lines
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.ir.arrays import narrow
from tensorc_dsl.reference.evaluate import shape_of
from tests.gpu.kernels import emulated, ptx

EXAMPLE = Path(__file__).parents[2] / "examples" / "use_tensor_core.tsched"

PAPER = 82
"""The lines of Use-Tensor-Core in the paper on MetaSchedule (Shao et al., 2022), in Python, without its instructions."""


def test_it_has_fewer_lines_than_the_papers_module_from_the_instructions_up() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert code_lines(text[text.index("intrinsic") : text.index("space")]) < PAPER


def test_each_draw_is_a_kernel_that_is_exact_on_small_integers(tmp_path: Path) -> None:
    file = tmp_path / "odd.tsched"
    text = EXAMPLE.read_text(encoding="utf-8")
    file.write_text(text + "task odd = matmul(M=33, N=20, K=40, T=f16, Acc=f32) with mine\n", encoding="utf-8")
    t = td.load(file)["odd"]
    rng = np.random.default_rng(0)
    wide = {b.name: rng.integers(-4, 5, shape_of(b)).astype(np.float64) for b in t.program.inputs}
    inputs = {b.name: narrow(wide[b.name], b.dtype) for b in t.program.inputs}
    for seed in range(2):
        trace = t.sample(seed)
        kernels = t.lower(trace)
        assert isinstance(kernels, DeviceProgram)
        code = ptx(kernels, "sm_80")
        assert "mma.sync" in code and "ldmatrix" in code and ".local" not in code
        fault, outputs = emulated(kernels, trace.program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out["C"], wide["A"] @ wide["B"])
