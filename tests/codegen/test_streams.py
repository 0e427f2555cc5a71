"""Outputs that are stored past the caches: in whole cache lines, followed by a fence."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.compile import Compiled, compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, LoopRef
from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen.native import program, run

TEXT = """
program scaled(A: f32[{m}, {n}], B: f32[{m}, {n}]) {{
    for i in {m}, j in {n} {{
        block B {{
            spatial vi in {m} = i
            spatial vj in {n} = j
            B[vi, vj] = A[vi, vj] * 2.0
        }}
    }}
}}
"""
X86 = Target(cpu="x86-64-v4", features="+avx512f", vector_bits=512, cores=2, triple="x86_64-unknown-linux-gnu")
ARM = Target(vector_bits=128, cores=2, triple="aarch64-unknown-linux-gnu")
FENCE = "call void @llvm.x86.sse.sfence()"


def streaming(m: int, n: int) -> Program:
    p = apply(program(TEXT.format(m=m, n=n)), "annotate", BlockRef("B"), "store.nontemporal", True).program
    p = apply(p, "vectorize", LoopRef("j")).program
    return apply(p, "parallel", LoopRef("i")).program


def code(p: Program, target: Target = X86) -> Compiled:
    return compile_kernel(lower_cpu(p), target, 2)


def past(c: Compiled) -> list[str]:
    return re.findall(r"store <\d+ x float> .*, align (\d+), !nontemporal", c.llvm_ir)


def test_whole_lines_pass_the_caches_and_a_fence_ends_each_part() -> None:
    c = code(streaming(5, 64))
    assert past(c) == ["64"] * 4
    (part,) = re.findall(r"define internal void @\S+\.tasks\(.*?\n}", c.llvm_ir.replace("\n}\n", "\n}\n\n"), re.DOTALL)[
        :1
    ]
    assert part.index("!nontemporal") < part.index(FENCE) < part.index("ret void")
    assert c.view("asm").count("vmovntps") == 4


@pytest.mark.parametrize(("n", "aligned"), [(64, 4), (1024, 4), (80, 5), (1040, 5), (8, 0), (72, 0), (33, 0), (3, 0)])
def test_only_where_rows_are_whole_vectors(n: int, aligned: int) -> None:
    """Rows that begin within a line are stored as ever; so is what is narrower than a vector."""
    assert past(code(streaming(5, n))).count("64") == aligned


@pytest.mark.parametrize(("n", "pieces"), [(240, 0), (256, 4), (1040, 5)])
def test_long_rows_pass_the_caches_from_within_a_line(n: int, pieces: int) -> None:
    """In pieces of 16 bytes, four to a vector; of short rows too much would be parts of lines."""
    c = code(streaming(5, n))
    assert past(c).count("16") == pieces
    stored = re.findall(r"vmovntps\s+%(.)mm", c.view("asm"))
    assert stored.count("x") == 4 * stored.count("z") * (pieces > 0)


@pytest.mark.parametrize("n", [64, 80, 1040, 72, 33])
def test_the_results_are_the_same(n: int) -> None:
    a = np.random.default_rng(0).standard_normal((5, n)).astype(np.float32)
    np.testing.assert_array_equal(run(streaming(5, n), {"A": a})["B"], a * 2)


@pytest.mark.parametrize("n", [64, 1040])
def test_outputs_that_begin_within_a_line(n: int) -> None:
    """Where they begin is asked at each call: at a line, at a fourth of one as NumPy's, or elsewhere."""
    kernel = load(compile_kernel(lower_cpu(streaming(5, n)), host_target(2), 2))
    a = np.random.default_rng(0).standard_normal((5, n)).astype(np.float32)
    for first in (0, 1, 4, 8, 12, 15, 16):
        b = aligned_empty((5 * n + first,), np.dtype(np.float32))[first:].reshape(5, n)
        kernel(a, b)
        np.testing.assert_array_equal(b, a * 2)


@pytest.mark.corpus
@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("dtype", ["i32", "f64"])
def test_vectors_of_all_sizes_pass_the_caches_from_anywhere(dtype: str, bits: int) -> None:
    """A copy into the middle of an array, whose other elements stay."""
    kind, n = np.dtype(f"{dtype[0]}{int(dtype[1:]) // 8}"), 1056
    text = TEXT.format(m=3, n=n).replace("f32", dtype).replace(" * 2.0", "")
    p = apply(program(text), "annotate", BlockRef("B"), "store.nontemporal", True).program
    c = code(apply(p, "vectorize", LoopRef("j")).program, replace(host_target(1), vector_bits=bits))
    assert {*re.findall(r"align (\d+), !nontemporal", c.llvm_ir)} == {"16", str(bits // 8)}
    kernel = load(c)
    a = np.random.default_rng(0).integers(0, 99, (3, n)).astype(kind)
    for first in (0, 16, 48, kind.itemsize):
        whole = aligned_empty((3 * n * kind.itemsize + 128,), np.dtype(np.uint8))
        whole[:] = 0x5A
        kernel(a, whole[first : first + a.nbytes].view(kind).reshape(3, n))
        np.testing.assert_array_equal(whole[first : first + a.nbytes].view(kind).reshape(3, n), a)
        assert (whole[:first] == 0x5A).all() and (whole[first + a.nbytes :] == 0x5A).all()


def test_turned_tiles_pass_the_caches_too() -> None:
    p = program(TEXT.format(m=64, n=64).replace("A[vi, vj]", "A[vj, vi]"))
    p = apply(p, "split", LoopRef("i"), (None, 16)).program
    p = apply(p, "split", LoopRef("j"), (None, 16)).program
    p = apply(p, "reorder", *map(LoopRef, ("i_0", "j_0", "i_1", "j_1"))).program
    p = apply(p, "unroll", LoopRef("i_1")).program
    p = apply(p, "vectorize", LoopRef("j_1")).program
    p = apply(p, "annotate", BlockRef("B"), "store.nontemporal", True).program
    assert len(past(code(p))) == 16
    a = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    np.testing.assert_array_equal(run(p, {"A": a})["B"], a.T * 2)


def test_a_note_by_hand_on_what_is_read_again_is_not_followed() -> None:
    text = """
program twice(A: f32[4, 64], B: f32[4, 64], C: f32[4, 64]) {
    for i in 4 {
        vectorized for j in 64 {
            block B @("store.nontemporal", true) {
                spatial vi in 4 = i
                spatial vj in 64 = j
                B[vi, vj] = A[vi, vj]
            }
        }
        vectorized for j_1 in 64 {
            block C {
                spatial vi in 4 = i
                spatial vj in 64 = j_1
                C[vi, vj] = B[vi, vj]
            }
        }
    }
}
"""
    c = code(program(text))
    assert "nontemporal !" not in c.llvm_ir.replace("!nontemporal !0", "") and FENCE not in c.llvm_ir


def test_other_machines_store_as_ever() -> None:
    """Their fences are others; the annotation is a hint."""
    c = code(streaming(5, 64), ARM)
    assert not past(c) and FENCE not in c.llvm_ir


def test_without_the_annotation_there_is_one_version() -> None:
    p = replace(streaming(5, 64), annotations=())
    plain = apply(p, "unannotate", BlockRef("B"), "store.nontemporal").program
    assert code(plain).llvm_ir.count("define") * 2 > code(p).llvm_ir.count("define")
    assert ".streamed" not in code(plain).llvm_ir and ".work.streamed" in code(p).llvm_ir
