"""The PTX of kernels: vectors of 16 bytes where their alignment is proved, launch bounds, registers, what has no code."""

from __future__ import annotations

import re
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, tool
from tensorc_dsl.backend.cuda.lower import lower
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.inputs import make_inputs
from tests.gpu.kernels import ptx
from tests.stdlib.gpu_checks import task

COPY = """
program p(A: TYPE[COUNT], C: TYPE[COUNT]) {
    bound("block.x") for b in BLOCKS {
        bound("thread.x") for t in 32 {
            vectorized for v in LANES {
                block C {
                    spatial vi in COUNT = INDEX
                    where INDEX < COUNT
                    C[vi] = A[vi]
                }
            }
        }
    }
}
"""


def copy(t: str, lanes: int, count: int, index: str = "", blocks: int = 4) -> Program:
    at = index or f"(b * 32 + t) * {lanes} + v"
    text = COPY.replace("TYPE", t).replace("COUNT", str(count)).replace("LANES", str(lanes)).replace("INDEX", at)
    return parse_program(Source("p.tsched", text.replace("BLOCKS", str(blocks))))


@pytest.mark.parametrize(
    ("t", "lanes", "count", "wide"),
    [
        ("f32", 4, 512, ".v4.b32"),
        ("f32", 2, 256, ".v2.b32"),
        ("f64", 2, 256, ".v2.b64"),
        ("f16", 8, 1024, ".v4.b32"),
        ("i8", 16, 2048, ".v4.b32"),
        ("f32", 4, 508, ".v4.b32"),  # the last thread is guarded, and all of its lanes alike
    ],
)
def test_adjacent_lanes_are_one_access(t: str, lanes: int, count: int, wide: str) -> None:
    p = copy(t, lanes, count)
    kernels = lower_device(p)
    text = ptx(kernels, "sm_80")
    assert re.search(rf"ld\.global\S*{re.escape(wide)}", text) and re.search(rf"st\.global{re.escape(wide)}", text)
    assert emulated(kernels, p, make_inputs(p, 0))[0] == ""


@pytest.mark.parametrize(
    ("lanes", "count", "index"), [(4, 510, ""), (4, 512, "b * 128 + t * 3 + v"), (4, 509, "b * 127 + t * 4 + v")]
)
def test_lanes_that_are_guarded_or_not_aligned_are_single(
    lanes: int, count: int, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower, "require_independent", lambda _: None)  # threads store the same elements of a copy
    text = ptx(lower_device(copy("f32", lanes, count, index)), "sm_80")
    assert ".v4" not in text


def test_a_kernel_has_its_bounds_and_its_shared_memory(tmp_path: Path) -> None:
    t = task(tmp_path, "matmul(M=128, N=128, K=64)")
    trace = t.sample(0)
    (kernel,) = lower_device(trace.program).kernels
    text = t.compile(trace).view("ptx")
    assert f".maxntid {kernel.threads}" in text and ".minnctapersm 1" in text
    assert re.search(r"\.extern \.shared \.align 128 \.b8 shared\[\];", text)
    assert "ld.shared" in text and ("st.shared" in text or "cp.async" in text) and "bar.sync" in text
    assert ".local" not in text  # sums are in registers


@pytest.mark.corpus
@pytest.mark.skipif(tool("ptxas") is None, reason="there is no ptxas")
@pytest.mark.parametrize(
    "text", ["matmul(M=128, N=128, K=64)", "softmax(M=64, N=512)", "half_matmul(M=64, N=64, K=64)"]
)
def test_ptxas_takes_the_code(text: str, tmp_path: Path) -> None:
    t = task(tmp_path, text)
    for seed in range(2):
        said = assemble(t.compile(t.sample(seed)).view("ptx"), "sm_80", tmp_path / "k.cubin")
        assert "Used" in said


def test_an_llvm_without_what_kernels_need_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM 20 makes PTX without a word: barriers are calls of a function that is nowhere, and blocks have any size."""
    program = lower_device(copy("f32", 4, 512))
    assert ".maxntid" in ptx(program, "sm_80")
    monkeypatch.setattr(llvm, "llvm_version_info", (20, 1, 8))
    with pytest.raises(CompileError, match=r"needs LLVM 22, and the llvmlite that is here has LLVM 20\.1\.8; install"):
        ptx(program, "sm_80")
