"""Instructions in machine code: every one of the standard library against its meaning, and nests that become one."""

from __future__ import annotations

from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.compile import compile_kernel, write_module
from tensorc_dsl.backend.llvm.codegen.statements import code_for
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.base.resources import stdlib_files
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.intrinsics import meaning
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import For, Intrinsic, LoopKind, Program, find_loop
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Flat, Instruction, body_of
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.reference.evaluate import evaluate, shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, LoopRef
from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen.native import check, compiled, program, run

STANDARD: dict[str, Intrinsic] = {
    i.name: i
    for i in load_source(
        Source("all", "".join(f"use std.intrinsics.{path.stem}\n" for _, path in stdlib_files(("intrinsics",))))
    ).instructions
}
HOST = host_target(1)


def here(i: Intrinsic) -> bool:
    return code_for(i, HOST.feature_names) is not None


def tensorized(i: Intrinsic) -> Program:
    """The meaning of an instruction, computed by it."""
    p = meaning(i)
    (nest,) = p.body
    assert isinstance(nest, For)
    p = apply(p, "decompose_reduction", BlockRef(i.name), LoopRef(nest.var)).program
    return apply(p, "tensorize", LoopRef(nest.var), i.name).program


def extremes(p: Program, rng: np.random.Generator) -> dict[str, Array]:
    """Values at the ends of the integer types, the accumulator close to overflow."""
    out: dict[str, Array] = {}
    for b in p.inputs:
        info = np.iinfo(stored_dtype(b.dtype))
        out[b.name] = rng.choice([info.min, info.max, 0, 1], shape_of(b)).astype(info.dtype)
    return out


def calls(body: tuple[Flat, ...]) -> int:
    """How many instructions a body has."""
    return sum(isinstance(s, Instruction) + calls(body_of(s)) for s in body)


@pytest.mark.corpus
@pytest.mark.parametrize("name", sorted(STANDARD))
def test_an_instruction_does_what_its_item_says(name: str) -> None:
    i = STANDARD[name]
    if not here(i):
        pytest.skip(f"this machine has no {name}")
    p = tensorized(i)
    assert calls(lower_cpu(p).body) == 1
    assert (code_for(i, HOST.feature_names) or "").split("(")[0].split()[-1] in compiled(p).llvm_ir
    for seed in range(8):
        check(p, make_inputs(p, seed), rtol=1e-5, atol=1e-5)


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["sdot_4x4", "vnni_dot_16x4", "vnni_signed_dot_16x4"])
def test_integers_wrap_around_and_saturate_nowhere(name: str) -> None:
    i = STANDARD[name]
    p = tensorized(i)
    rng = np.random.default_rng(0)
    for _ in range(16):
        inputs = extremes(p, rng)
        want = interpret(p, inputs)["C"]
        np.testing.assert_array_equal(want, evaluate(meaning(i), inputs)["C"])
        np.testing.assert_array_equal(run(p, inputs)["C"], want)


MATMUL = """
program mm(A: u8[6, 32], B: i8[48, 32], C: i32[6, 48]) {
    for i in 6, j in 48, k in 32 {
        block C {
            spatial vi in 6 = i
            spatial vj in 48 = j
            reduce vk in 32 = k
            init { C[vi, vj] = 0 }
            C[vi, vj] = C[vi, vj] + i32(A[vi, vk]) * i32(B[vj, vk])
        }
    }
}
"""


def scheduled(text: str = MATMUL) -> Program:
    p = replace(program(text), intrinsics=tuple(STANDARD.values()))
    p = apply(p, "split", LoopRef("j"), (None, 16)).program
    p = apply(p, "split", LoopRef("k"), (None, 4)).program
    p = apply(p, "reorder", LoopRef("k_0"), LoopRef("j_1"), LoopRef("k_1")).program
    p = apply(p, "decompose_reduction", BlockRef("C"), LoopRef("k_0")).program
    return apply(p, "tensorize", LoopRef("j_1"), "vnni_dot_16x4").program


@pytest.mark.parametrize(
    ("params", "a", "b", "c"),
    [
        ("A: u8[6, 32], B: i8[48, 32], C: i32[6, 48]", "vi, vk", "vj, vk", "vi, vj"),
        ("A: u8[6, 32], B: i8[32, 48], C: i32[6, 48]", "vi, vk", "vk, vj", "vi, vj"),
        ("A: u8[32, 6], B: i8[32, 48], C: i32[48, 6]", "vk, vi", "vk, vj", "vj, vi"),
        ("A: u8[6, 32], B: i8[8, 48, 4], C: i32[6, 48]", "vi, vk", "vk / 4, vj, vk % 4", "vi, vj"),
    ],
    ids=["rows", "columns", "turned", "packed"],
)
def test_tiles_lie_as_they_like(params: str, a: str, b: str, c: str) -> None:
    text = MATMUL.replace("A: u8[6, 32], B: i8[48, 32], C: i32[6, 48]", params)
    text = text.replace("[vi, vk]", f"[{a}]").replace("B[vj, vk]", f"B[{b}]").replace("C[vi, vj]", f"C[{c}]")
    p = scheduled(text)
    assert calls(lower_cpu(p).body) == 1
    check(p, make_inputs(p, 0))
    check(p, extremes(p, np.random.default_rng(1)))
    if here(STANDARD["vnni_dot_16x4"]):
        assert "vpdpbusd" in compiled(p).view("asm")


def test_open_sizes() -> None:
    """How many rows there are, and how far apart those of an operand lie, may be open."""
    text = """
program mm(A: u8[M, K], B: i8[16, K], C: i32[M, 16]) where M in 1..9, K in 4..32 {
    for i in M, j in 16 {
        block C_init {
            spatial vi in M = i
            spatial vj in 16 = j
            C[vi, vj] = 0
        }
    }
    for i in M, k0 in K / 4, j in 16, k1 in 4 {
        block C {
            spatial vi in M = i
            spatial vj in 16 = j
            reduce vk in K / 4 * 4 = k0 * 4 + k1
            C[vi, vj] = C[vi, vj] + i32(A[vi, vk]) * i32(B[vj, vk])
        }
    }
}
"""
    p = replace(program(text), intrinsics=tuple(STANDARD.values()))
    p = apply(p, "tensorize", LoopRef("j_1"), "vnni_dot_16x4").program
    assert calls(lower_cpu(p).body) == 1
    for sizes in ({"M": 1, "K": 4}, {"M": 7, "K": 22}):
        bound = bind(p, sizes)
        inputs = make_inputs(bound, 0)
        got = load(compiled(p))(*(inputs[b.name] for b in p.inputs))
        np.testing.assert_array_equal(got, interpret(bound, inputs)["C"])


def test_a_machine_without_it_runs_the_loops() -> None:
    p = scheduled()
    plain = Target(vector_bits=128)
    text = compile_kernel(lower_cpu(p), plain, 1).llvm_ir
    assert "vpdpbusd" not in text
    assert "mul i32" in text


def test_the_mark_is_not_believed() -> None:
    """A program by hand that says of a nest that it is an instruction, and is wrong."""
    p = scheduled()
    text = format_program(p).replace("i32(A[vi, vk]) * i32(B[vj, vk])", "i32(A[vi, vk]) + i32(B[vj, vk])")
    wrong = parse_program(Source("by hand", text))
    assert find_loop(wrong, "j_1")[1].kind is LoopKind.TENSORIZED
    assert calls(lower_cpu(wrong).body) == 0
    check(wrong, make_inputs(wrong, 0))


def test_aarch64() -> None:
    """SDOT, in the assembly of a machine that we are not on."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = MATMUL.replace("u8", "i8")
    p = replace(program(text), intrinsics=tuple(STANDARD.values()))
    p = apply(p, "split", LoopRef("j"), (None, 4)).program
    p = apply(p, "split", LoopRef("k"), (None, 4)).program
    p = apply(p, "reorder", LoopRef("k_0"), LoopRef("j_1"), LoopRef("k_1")).program
    p = apply(p, "decompose_reduction", BlockRef("C"), LoopRef("k_0")).program
    kernel = lower_cpu(apply(p, "tensorize", LoopRef("j_1"), "sdot_4x4").program)
    module = llvm.parse_assembly(write_module(kernel, "mm", 128, 1, ("dotprod",)))
    arm = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    assembly = arm.create_target_machine(features="+dotprod", opt=3).emit_assembly(module)
    assert "sdot\tv" in assembly


BY_MODULE = """
use std.cpu.{{tensorize_block}}
use std.intrinsics.x86.{{vnni_dot_16x4}}

intrinsic mma
    desc (A: f32[4, 8], B: f32[8, 16], C: f32[4, 16]) {{
        C[i, j] += sum[k] A[i, k] * B[k, j]
    }}

compute product(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {{ C[i, j] = sum[k] A[i, k] * B[k, j] }}
compute bytes(A: u8[M, K], B: i8[K, N]) -> C: i32[M, N] {{ C[i, j] = sum[k] i32(A[i, k]) * i32(B[k, j]) }}
compute batched(A: f32[R, M, K], B: f32[R, K, N]) -> C: f32[R, M, N] {{
    C[r, i, j] = sum[k] A[r, i, k] * B[r, k, j]
}}

schedule s for {compute} {{ tensorize_block(C, {instruction}) }}

task t = {compute}({sizes})
"""


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("compute", "instruction", "sizes", "drawn"),
    [
        ("product", "mma", "M=8, N=32, K=16", {"i=vi, j=vj, k=vk", "i=vj, j=vi, k=vk"}),
        ("product", "mma", "M=5, N=17, K=9", {"i=vi, j=vj, k=vk", "i=vj, j=vi, k=vk"}),
        ("batched", "mma", "R=3, M=6, N=20, K=11", {"i=vi, j=vj, k=vk", "i=vj, j=vi, k=vk"}),
        ("bytes", "vnni_dot_16x4", "M=5, N=33, K=10", {"i=vj, k=vk"}),
    ],
)
def test_a_module_applies_every_mapping(compute: str, instruction: str, sizes: str, drawn: set[str]) -> None:
    text = BY_MODULE.format(compute=compute, instruction=instruction, sizes=sizes)
    space = task_space(load_source(Source("t.tsched", text)), "t", HOST)
    found: dict[str, Program] = {}
    for n in range(12):
        trace = space.sample(np.random.Generator(np.random.Philox(n)))
        (mapping,) = (m for m in drawn if f':= "{m}"' in trace.text)
        found[mapping] = trace.program
    assert found.keys() == drawn
    for p in found.values():
        assert calls(lower_cpu(p).body) == 1
        inputs = make_inputs(p, 0)
        check(p, inputs, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            interpret(p, inputs)["C"], evaluate(space.program, inputs)["C"], rtol=1e-6, atol=1e-6
        )
        assert validate(space.program, p) == Valid()
