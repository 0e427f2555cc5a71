"""The view in CUDA C++ says what the kernels do: compiled for the CPU, with a thread for each of theirs, it does the same."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.cuda.codegen.view import c_name, cuda_text
from tensorc_dsl.backend.cuda.compiled import tool
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram, barriers_in
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tests.stdlib.gpu_checks import task

SHIM = """
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __shared__
#define __restrict__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
struct Dim3 { unsigned x, y, z; };
static thread_local Dim3 threadIdx, blockIdx;
static std::barrier<> *meeting;
static void __syncthreads() { meeting->arrive_and_wait(); }
static float rsqrtf(float x) { return 1 / std::sqrt(x); }
alignas(128) unsigned char shared_[1 << 18];
template <class F> void launch(unsigned blocks, unsigned threads, F kernel) {
    for (unsigned b = 0; b < blocks; b++) {
        std::barrier<> all(threads);
        meeting = &all;
        std::vector<std::thread> ours;
        for (unsigned t = 0; t < threads; t++)
            ours.emplace_back([=] { threadIdx = {t, 0, 0}; blockIdx = {b, 0, 0}; kernel(); });
        for (auto &t : ours) t.join();
    }
}
"""

ODD = """
program p(A: i32[8], X: f32[8], B: i32[8], Y: f32[8]) {
    bound("block.x") for b in 2 {
        bound("thread.x") for t in 4 {
            block B { spatial vi in 8 = b * 4 + t; B[vi] = (A[vi] - 7) / 3 + (A[vi] - 5) % 3 + max(A[vi], 2) - abs(A[vi]) }
        }
        bound("thread.x") for u in 4 {
            block Y {
                spatial vj in 8 = b * 4 + u
                Y[vj] = sigmoid(X[7 - vj]) * rsqrt(abs(X[vj]) + 1.0) if X[vj] > 0.0 and vj != 3 else round(min(X[vj], 0.25))
            }
        }
    }
}
"""


SPACES = """
use std.gpu.default.{default}
use std.gpu.hopper.{hopper}
use std.gpu.targets.{sm_80, sm_90a}

compute half_matmul(A: f16[M, K], B: f16[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] f32(A[i, k]) * f32(B[k, j]) }

compute extremes(X: f32[N], L: i32[N]) -> M: f32[5] { M[c] = max[i] (X[i] if L[i] == i32(c) else -inf) }

compute half(Q: T[B, H, M, D], K: T[B, H, N, D], V: T[B, H, N, E]; T: dtype = f16) -> O: f32[B, H, M, E] {
    let S[b, h, i, j] = sum[d] f32(Q[b, h, i, d]) * f32(K[b, h, j, d])
    let m[b, h, i] = max[j] S[b, h, i, j]
    let e[b, h, i, j] = T(exp((S[b, h, i, j] - m[b, h, i]) * rsqrt(f32(D))))
    let s[b, h, i] = sum[j] f32(e[b, h, i, j])
    let U[b, h, i, c] = sum[j] f32(e[b, h, i, j]) * f32(V[b, h, j, c])
    O[b, h, i, c] = U[b, h, i, c] / s[b, h, i]
}
"""


def run(folder: Path, p: DeviceProgram, program: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of the text, compiled for the CPU."""
    text = "\n".join(x for x in cuda_text(p).splitlines() if not x.startswith("#include"))
    text = text.replace("    extern __shared__ __align__(128) unsigned char shared_[];\n", "")
    calls = [f"char *{x.name} = new char[{int(constant(x.size) or 0) * x.dtype.bytes}];" for x in p.scratch]
    given = {x.name: n for n, x in enumerate(p.params)}
    for k in p.kernels:
        names = [f"a[{given[n]}]" if n in given else n for n in k.params]
        types = {x.name: x.dtype.name for x in (*p.params, *p.scratch)}
        c = {"f32": "float", "i32": "int"}
        arguments = ", ".join(f"({c[types[n]]} *){x}" for n, x in zip(k.params, names, strict=True))
        calls.append(f"launch({constant(k.grid[0])}, {k.threads}, [=] {{ {k.name}({arguments}); }});")
    source = folder / "view.cpp"
    source.write_text(f'{SHIM}{text}\nextern "C" void run(void **a) {{ {" ".join(calls)} }}\n')
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-Wno-unknown-pragmas"]
    subprocess.run(["c++", *flags, "-o", "view.so", source.name], cwd=folder, check=True, timeout=120)
    arrays = [
        np.ascontiguousarray(inputs[b.name]) if b.name in inputs else np.zeros(shape_of(b), inputs_dtype(b.dtype.name))
        for b in program.params
    ]
    ctypes.CDLL(str(folder / "view.so")).run((ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)))
    return {b.name: a for b, a in zip(program.params, arrays, strict=True) if b.name not in inputs}


def inputs_dtype(name: str) -> str:
    return {"f32": "f4", "i32": "i4"}[name]


@pytest.mark.corpus
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(
    "text", ["matmul(M=16, N=8, K=8)", "softmax(M=3, N=20)", ODD], ids=["matmul", "softmax", "odd"]
)
def test_the_view_computes_what_the_task_does(tmp_path: Path, text: str) -> None:
    if text is ODD:
        program = scheduled = parse_program(Source("p.tsched", text))
    else:
        t = task(tmp_path, text)
        program, scheduled = t.program, t.sample(1).program
    p = lower_device(scheduled)
    if text.startswith("matmul"):
        assert any(barriers_in(k.body) for k in p.kernels)
    inputs = make_inputs(program, 0)
    got = run(tmp_path, p, program, inputs)
    expected = interpret(program, inputs)
    for name, a in got.items():
        np.testing.assert_allclose(a, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_view_names_what_people_look_for(tmp_path: Path) -> None:
    t = task(tmp_path, "matmul(M=64, N=64, K=32)")
    trace = t.sample(0)
    shown = t.compile(trace).view("cuda")
    (k,) = lower_device(trace.program).kernels
    assert f"__launch_bounds__({k.threads}, 1) t_0(" in shown
    assert shown.count("__syncthreads();") == barriers_in(k.body)
    assert "const float *__restrict__ A /* [64, 32] */" in shown
    assert t.library(trace).make("cuda") == shown.encode()


def test_an_instruction_of_a_warp_is_assembly_over_the_elements_that_a_lane_has(tmp_path: Path) -> None:
    head = "use std.ops\nuse std.gpu.tensor_core.{tensor_core}\nuse std.gpu.targets.{sm_80}\n"
    t = td.loads(f"{head}task t = matmul(M=64, N=64, K=32, T=f16, Acc=f32) with tensor_core")["t"]
    shown = t.compile(t.sample(0)).view("cuda")
    (product, *_) = (x.strip() for x in shown.splitlines() if "mma.sync" in x)
    text, outputs, inputs, clobbered = product.removeprefix("asm volatile(").split(" : ")
    mma, a = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "{%8, %9, %10, %11}"
    left, right = "{%0, %1, %2, %3}", "{%4, %5, %6, %7}"
    assert text == f'"{mma} {left}, {a}, {{%12, %13}}, {left}; {mma} {right}, {a}, {{%14, %15}}, {right};"'
    assert (outputs.count('"+&f"'), inputs.count('"r"')) == (8, 8)
    assert clobbered.startswith('"memory"')
    assert '"r"((unsigned)__cvta_generic_to_shared(&' in shown


BESIDE = {
    "roles": "half_matmul(M=128, N=64, K=256) with hopper",
    "attention": "half(B=1, H=1, M=64, N=512, D=64, E=64) with hopper",
    "an exchange": "extremes(N=64) with default",
}


@pytest.mark.corpus
@pytest.mark.skipif(tool("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize("case", BESIDE)
def test_nvcc_takes_the_view(case: str, tmp_path: Path) -> None:
    t = td.loads(f"{SPACES}task t = {BESIDE[case]}\n", target="sm_90a")["t"]
    wanted: dict[str, Decision] = {"warpgroups": True, "copied": "tma", "copied_1": "tma", "beside": True}
    if case == "attention":
        wanted = {"tensor_online": True, "inline": False, "inline_1": False, "length": 64, "scores": "groups"}
    trace = t.drawn_from(condition(t.model, {} if case == "an exchange" else wanted)).sample(0)
    (tmp_path / "view.cu").write_text(t.view(trace, "cuda"))
    command = [str(tool("nvcc")), "-arch=sm_90a", "-cubin", "-o", "view.cubin", "view.cu"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stage_that_has_no_words_for_it_says_so() -> None:
    t = td.loads(f"{SPACES}use std.ops.{{cumsum}}\ntask t = cumsum(N=20000, M=2) with default\n", target="sm_80")["t"]
    passed: dict[str, Decision] = {"together": True, "each": 8, "width": 64, "staged": True, "passed": True}
    trace = t.drawn_from(condition(t.model, passed)).sample(0)
    with pytest.raises(td.TschedError, match="has no stage `cuda`: the view in CUDA C\\+\\+ has no words for scans"):
        t.view(trace, "cuda")


def test_a_dot_and_an_underscore_are_told_apart() -> None:
    assert len({c_name(n) for n in ("x_1", "x.1", "x__1", "x_.1", "x._1", "x.1.2", "x.1_2")}) == 7
