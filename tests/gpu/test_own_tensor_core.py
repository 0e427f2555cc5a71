"""`examples/use_tensor_core.tsched`: instructions and a module in a file of one's own make kernels, in few lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from bench.module_sizes import code_lines, equal_lines, modules_of
from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.ir.arrays import narrow
from tensorc_dsl.reference.evaluate import shape_of
from tests.gpu.kernels import ptx, whole

EXAMPLE = Path(__file__).parents[2] / "examples" / "use_tensor_core.tsched"

NEWER = EXAMPLE.with_name("use_warpgroups.tsched")
"""The same module for a newer GPU."""

PAPER = 82
"""The lines of Use-Tensor-Core in the paper on MetaSchedule (Shao et al., 2022), in Python, without its instructions."""


def test_it_has_fewer_lines_than_the_papers_module_from_the_instructions_up() -> None:
    assert code_lines(modules_of(EXAMPLE.read_text(encoding="utf-8"))) == 67 < PAPER


def test_on_a_newer_gpu_about_half_of_its_lines_stay() -> None:
    """The figures of docs/tensor-cores.md."""
    one, other = (modules_of(x.read_text(encoding="utf-8")) for x in (EXAMPLE, NEWER))
    assert (code_lines(other), equal_lines(one, other)) == (44, 23)
    assert [code_lines(x[x.index("module") :]) for x in (one, other)] == [40, 36]


@pytest.mark.corpus
def test_a_draw_for_a_newer_gpu_is_exact_on_small_integers(tmp_path: Path) -> None:
    file = tmp_path / "odd.tsched"
    text = NEWER.read_text(encoding="utf-8")
    file.write_text(text + "task odd = matmul(M=70, N=33, K=72, T=f16, Acc=f32) with mine\n", encoding="utf-8")
    check_a_draw(td.load(file)["odd"], 0, "sm_90a", ("wgmma.mma_async",))


@pytest.mark.corpus
def test_each_draw_is_a_kernel_that_is_exact_on_small_integers(tmp_path: Path) -> None:
    file = tmp_path / "odd.tsched"
    text = EXAMPLE.read_text(encoding="utf-8")
    file.write_text(text + "task odd = matmul(M=33, N=20, K=40, T=f16, Acc=f32) with mine\n", encoding="utf-8")
    t = td.load(file)["odd"]
    for seed in range(2):
        check_a_draw(t, seed, "sm_80", ("mma.sync", "ldmatrix"))


def check_a_draw(t: Task, seed: int, cpu: str, instructions: tuple[str, ...]) -> None:
    """A draw of a product has instructions, no private storage in memory, and is exact on small integers."""
    rng = np.random.default_rng(0)
    wide = {b.name: rng.integers(-4, 5, shape_of(b)).astype(np.float64) for b in t.program.inputs}
    inputs = {b.name: narrow(wide[b.name], b.dtype) for b in t.program.inputs}
    trace = whole(t.sample(seed))
    kernels = t.lower(trace)
    assert isinstance(kernels, DeviceProgram)
    code = ptx(kernels, cpu)
    assert all(name in code for name in instructions) and ".local" not in code
    fault, outputs = emulated(kernels, trace.program, inputs)
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["C"], wide["A"] @ wide["B"])
