"""What a program for a GPU becomes: axes, private and shared storage, and what is refused, with the reason."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.kernels import DeviceKernel
from tensorc_dsl.backend.cuda.lower.lower import lower_device, require_room
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.reference.interpret import interpret
from tests.gpu.kernels import ptx, whole
from tests.programs import random_inputs
from tests.stdlib.gpu_checks import task


def program(text: str) -> Program:
    return parse_program(Source("p.tsched", text))


def check(text: str) -> tuple[DeviceKernel, ...]:
    """The kernels of a program, which compute what it does, in all orders of threads."""
    p = program(text)
    kernels = lower_device(p)
    assert ".version" in ptx(kernels, "sm_80")
    inputs = random_inputs(p)
    expected = interpret(p, inputs, "forward")
    fault, found = emulated(kernels, p, inputs)
    assert fault == ""
    for outputs in found:
        for name, array in outputs.items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-6)
    return kernels.kernels


AXES = """
program p(A: f32[SHAPE], C: f32[SHAPE]) {
    bound("OUTER") for i in M {
        bound("INNER") for j in N {
            block C { spatial vi in M = i; spatial vj in N = j; C[vi, vj] = A[vi, vj] * 2.0 }
        }
    }
}
"""


def axes(outer: str, m: int, inner: str, n: int) -> DeviceKernel:
    text = AXES.replace("SHAPE", f"{m}, {n}").replace("OUTER", outer).replace("INNER", inner)
    (k,) = check(text.replace(" M", f" {m}").replace(" N", f" {n}"))
    return k


@pytest.mark.parametrize(
    ("outer", "m", "inner", "n", "grid", "threads"),
    [
        ("block.x", 5, "thread.x", 7, (5, 1, 1), 7),
        ("block.y", 5, "block.x", 7, (7, 5, 1), 1),
        ("block.z", 3, "thread.y", 7, (1, 1, 3), 7),
        ("thread.y", 5, "thread.x", 7, (1, 1, 1), 35),
        ("thread.x", 5, "thread.z", 7, (1, 1, 1), 35),
        ("warp", 3, "lane", 32, (1, 1, 1), 96),
        ("warp", 3, "lane", 20, (1, 1, 1), 96),
        ("warpgroup", 2, "warp", 3, (1, 1, 1), 256),
        ("block.x", 2, "lane", 9, (2, 1, 1), 32),
    ],
)
def test_loops_are_bound_to_axes(
    outer: str, m: int, inner: str, n: int, grid: tuple[int, int, int], threads: int
) -> None:
    k = axes(outer, m, inner, n)
    assert tuple(map(constant, k.grid)) == grid
    assert k.threads == threads


def test_nests_of_one_kernel_may_count_threads_in_different_ways() -> None:
    (k,) = check(
        """
program p(A: f32[2, 64], C: f32[2, 64], D: f32[2, 2]) {
    buffer T: f32[64] in "shared"
    bound("block.x") for i in 2 {
        bound("thread.x") for j in 64 {
            block T { spatial vi in 2 = i; spatial vj in 64 = j; T[vj] = A[vi, vj] + 1.0 }
        }
        bound("warp") for w in 2 {
            block D { spatial vi in 2 = i; spatial vw in 2 = w; D[vi, vw] = T[vw * 32 + 31] }
        }
        bound("warp") for w_1 in 2 {
            bound("lane") for l in 32 {
                block C {
                    spatial vi in 2 = i; spatial vw in 2 = w_1; spatial vl in 32 = l
                    C[vi, vw * 32 + vl] = T[vl * 2 + vw]
                }
            }
        }
    }
}
"""
    )
    assert k.threads == 64 and k.shared_bytes == 256


def test_a_statement_outside_of_threads_runs_once() -> None:
    check(
        """
program p(A: f32[2, 8], C: f32[2, 8]) {
    buffer T: f32[1] in "shared"
    bound("block.x") for i in 2 {
        block T { spatial vi in 2 = i; T[0] = A[vi, 3] }
        bound("thread.x") for j in 8 {
            block C { spatial vi in 2 = i; spatial vj in 8 = j; C[vi, vj] = T[0] + A[vi, vj] }
        }
    }
}
"""
    )


LOCAL = """
program p(A: f32[4, 64], C: f32[4, 64]) {
    buffer L: f32[64] in "local"
    bound("block.x") for i in 4 {
        bound("thread.x") for t in 8 {
            for r in 8 {
                block L { spatial vi in 4 = i; spatial vj in 64 = WRITE; L[vj] = A[vi, vj] * 3.0 }
            }
        }
        bound("thread.x") for t_1 in 8 {
            for r_1 in 8 {
                block C { spatial vi in 4 = i; spatial vj in 64 = READ; C[vi, vj] = L[vj] }
            }
        }
    }
}
"""


def local(write: str, read: str) -> str:
    return LOCAL.replace("WRITE", write).replace("READ", read)


@pytest.mark.parametrize(
    ("write", "read"),
    [
        ("t * 8 + r", "t_1 * 8 + r_1"),
        ("r * 8 + t", "r_1 * 8 + t_1"),
        ("r / 4 * 32 + t * 4 + r % 4", "r_1 / 4 * 32 + t_1 * 4 + r_1 % 4"),
    ],
)
def test_a_thread_has_storage_for_its_own_elements_alone(write: str, read: str) -> None:
    (k,) = check(local(write, read))
    assert [b.size for b in k.local] == [8]


def test_elements_that_change_threads_are_refused() -> None:
    with pytest.raises(LowerError, match=r"threads own other elements of `L` in one nest than in another: dimension 0"):
        lower_device(program(local("t * 8 + r", "r_1 * 8 + t_1")))


LATER = """
program p(A: f32[72], C: f32[72], D: f32[64]) {
    buffer L: f32[72] in "local"
    bound("block.x") for i in 1 {
        bound("thread.x") for t in 8 {
            for r in 8 {
                block L { spatial vj in 64 = t * 8 + r; where t < 4; L[vj] = A[vj] * 3.0 }
            }
        }
        bound("thread.x") for t_1 in 8 {
            for r_1 in 8 {
                block M { spatial vj in 72 = (t_1 + t_1 / 4) * 8 + r_1; where t_1 >= 4; L[vj] = A[vj] * 5.0 }
            }
        }
        bound("thread.x") for t_2 in 8 {
            for r_2 in 8 {
                block D { spatial vj in 64 = t_2 * 8 + r_2; where READ; D[vj] = L[vj] }
            }
        }
    }
}
"""


def test_elements_that_change_threads_behind_the_first_nest_are_refused() -> None:
    """The threads that the first nest leaves out own other elements in the second one than in the third."""
    with pytest.raises(LowerError, match=r"threads own other elements of `L` in one nest than in another: dimension 0"):
        lower_device(program(LATER.replace("READ", "t_2 != 4")))
    lower_device(program(LATER.replace("READ", "t_2 < 4")))


def test_elements_of_two_threads_are_refused() -> None:
    text = local("t * 8 + r", "t_1 * 8 + r_1").replace("C[vi, vj] = L[vj]", "C[vi, vj] = L[vj] + L[min(vj + 1, 63)]")
    with pytest.raises(LowerError, match=r"`L`"):
        lower_device(program(text))


def test_a_small_local_buffer_of_all_threads_is_refused() -> None:
    text = """
program p(A: f32[8], C: f32[8]) {
    buffer L: f32[1] in "local"
    bound("block.x") for b in 1 {
        block L { spatial vi in 1 = 0; L[0] = A[vi] }
        bound("thread.x") for t in 8 {
            block C { spatial vi in 8 = t; C[vi] = L[0] + A[vi] }
        }
    }
}
"""
    with pytest.raises(LowerError, match=r'two threads touch the same element of `L`.*store it in "shared"'):
        lower_device(program(text))
    check(text.replace('"local"', '"shared"'))


def test_a_statement_beside_a_grid_is_refused() -> None:
    text = """
program p(A: f32[8], C: f32[8], D: f32[8]) {
    bound("block.x") for b in 4 {
        block D { spatial vi in 4 = b; D[vi] = A[vi] }
        bound("block.y") for c in 2 {
            block C { spatial vi in 8 = b * 2 + c; C[vi] = A[vi] }
        }
    }
}
"""
    with pytest.raises(LowerError, match=r"`D\[b\] = A\[b\]` is outside of `c`.*make it a statement at the top"):
        lower_device(program(text))


@pytest.mark.parametrize("scope", ["shared", "local", "warp"])
def test_the_memory_of_a_block_does_not_outlive_its_kernel(scope: str) -> None:
    """The reader was given memory of its own, which nothing wrote."""
    text = f"""
program p(A: f32[4, 8], C: f32[4, 8]) {{
    buffer T: f32[4, 8] in "{scope}"
    bound("block.x") for b in 4 {{ bound("thread.x") for t in 8 {{ block T {{
        spatial vi in 4 = b; spatial vj in 8 = t; T[vi, vj] = A[vi, vj]
    }} }} }}
    bound("block.x") for c in 4 {{ bound("thread.x") for u in 8 {{ block C {{
        spatial vi in 4 = c; spatial vj in 8 = u; C[vi, vj] = T[vi, vj]
    }} }} }}
}}
"""
    says = f'`T` is in "{scope}" and passes from one kernel to another, but does not outlive the first; store it in "global"'
    with pytest.raises(LowerError, match=re.escape(says)):
        lower_device(program(text))
    check(text.replace(f' in "{scope}"', ""))


@pytest.mark.corpus
@pytest.mark.parametrize("text", ["matmul(M=1..40, N=9, K=8)", "softmax(M=1..20, N=33)", "cumsum(N=1..9, M=5)"])
def test_open_sizes_are_arguments_of_a_kernel(text: str, tmp_path: Path) -> None:
    t = task(tmp_path, text)
    for seed in range(2):
        found = t.emulate(whole(t.sample(seed)))
        assert found.fault == "" and found.max_error <= 1.0
        assert re.search(r"\.param \.u64 \w+_param_", t.compile(t.sample(seed)).view("ptx"))


CUT = """
program p(A: f32[80, 8], C: f32[8, LINES]) {
    buffer T: f32[80, 8] in "shared"
    bound("block.x") for b in 1 {
        for r in 11 {
            bound("thread.x") for t in 48 {
                block T {
                    spatial vi in 80 = 16 + r * 6 + t / 8
                    spatial vj in 8 = t % 8
                    where r * 48 + t < LINES * 8
                    T[vi, vj] = A[vi, vj] + 1.0
                }
            }
        }
        for q in 11 {
            bound("thread.x") for t_1 in 48 {
                block C {
                    spatial vi in LINES = q * 6 + t_1 / 8
                    spatial vj in 8 = t_1 % 8
                    where q * 48 + t_1 < LINES * 8
                    C[vj, vi] = T[vi + 16, vj]
                }
            }
        }
    }
}
"""


@pytest.mark.parametrize("lines", [61, 64])
def test_a_copy_that_is_cut_has_no_more_lines_than_it_stores(lines: int) -> None:
    """The last round of a copy by 48 threads goes beyond what there is, and its guard says so."""
    (k,) = check(CUT.replace("LINES", str(lines)))
    assert [b.size for b in k.shared] == [lines * 8]


@pytest.mark.parametrize(
    ("axis", "size", "says"),
    [
        ("thread.x", 1025, "a block has 1025 threads, and up to 1024 are there; make tiles smaller"),
        ("block.x", 65536, ""),
        ("block.y", 65536, "a grid has 65536 blocks along `block.y`, and up to 65535 are there; split"),
    ],
)
def test_no_kernel_is_larger_than_a_grid_or_a_block_can_be(axis: str, size: int, says: str) -> None:
    text = f"""
    program copy(A: f32[{size}], B: f32[{size}]) {{
        bound("{axis}") for i in {size} {{ block B {{ spatial v in {size} = i; B[v] = A[v] }} }}
    }}"""
    made = lower_device(parse_program(Source("copy", text)))
    with pytest.raises(LowerError, match=re.escape(says)) if says else nullcontext():
        require_room(made, Target(threads=1024))
