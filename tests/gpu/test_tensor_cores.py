"""Instructions of warps: kernels with tensor cores are exact, and what is wrong with one is found.

`make gpu DRAWS=20` draws more schedules of each case.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, sass_of, tool
from tensorc_dsl.backend.cuda.lower.kernels import (
    THREAD,
    Guard,
    Phase,
    collectives_in,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import ONE, Compare, Load, Var, add, index, rewrite_expr
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Block, For, Program, Store, walk
from tensorc_dsl.lower.flat import Collective, Flat, LowerError
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.query import QUERIES
from tensorc_dsl.schedule.step import BlockRef, LoopRef, ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tests.gpu.kernels import ptx
from tests.gpu.tensor_cores import CASES, DRAWS, HAND, STDLIB, changed, drawn, hand, kernels, run, whole_numbers
from tests.gpu.test_barriers import check_each_is_needed
from tests.stdlib.gpu_checks import task


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_kernels_are_exact_on_small_integers(case: str, tmp_path: Path) -> None:
    text, reference = CASES[case]
    t = task(tmp_path, text, "tensor_core")
    inputs, wide = whole_numbers(t.program)
    (name,) = (b.name for b in t.program.outputs)
    for program, found in kernels(t, DRAWS):
        code = ptx(found, "sm_80")
        assert "mma.sync.aligned.m16n8k16" in code and "ldmatrix" in code and ".local" not in code
        fault, outputs = emulated(found, program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out[name], reference(*wide))


@pytest.mark.corpus
@pytest.mark.skipif(tool("ptxas") is None, reason="there is no ptxas")
def test_ptxas_takes_the_code_and_keeps_it_in_registers(tmp_path: Path) -> None:
    t = task(tmp_path, "half_matmul(M=128, N=128, K=64)", "tensor_core")
    for _, found in kernels(t, max(2, DRAWS)):
        said = assemble(ptx(found, "sm_80"), "sm_80", tmp_path / "k.cubin")
        assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)) == {"0"}


@pytest.mark.corpus
def test_steps_between_barriers_follow_each_other_without_a_branch(tmp_path: Path) -> None:
    """So ptxas loads the fragments of a step while it multiplies those of the one before."""
    t = task(tmp_path, "half_matmul(M=64, N=64, K=128)", "tensor_core")
    decisions: dict[str, Decision] = {"tensor_core": True, "inner": (2, 2, 1, 16), "inner_1": (2, 2, 1, 16), "step": 0}
    for steps in (2, 4):
        ((_, found),) = drawn(t, 1, {**decisions, "inner_2": (8 // steps, steps, 16)})
        code = ptx(found, "sm_80")
        assert code.count("mma.sync") == 2 * steps
        assert "bra" not in code[code.index("ldmatrix") : code.rindex("mma.sync")]


READS = re.compile(r"^ *(?:/\*[0-9a-f]+\*/)? *(?!@!PT )(?:@\S+ )?LDS\b.*", re.MULTILINE)
"""Loads of shared memory that are no LDSM. ptxas makes `@!PT LDS RZ`, which never loads, to fill a slot."""


@pytest.mark.corpus
@pytest.mark.skipif(tool("ptxas") is None or tool("nvdisasm") is None, reason="there is no nvdisasm")
def test_machine_code_has_the_instructions(tmp_path: Path) -> None:
    t = task(tmp_path, "half_matmul(M=64, N=64, K=64)", "tensor_core")
    for program, found in kernels(t, max(2, DRAWS)):
        for k in found.kernels:
            if any(True for _ in collectives_in(k.body)):
                code = sass_of(ptx(replace(found, kernels=(k,)), "sm_80"), "sm_80")
                assert "HMMA.16816.F32" in code and "LDSM.16.M88" in code and "LDSM.16.MT88" in code
                assert READS.findall(code) == [], program.name


def test_each_barrier_of_a_product_is_needed(tmp_path: Path) -> None:
    t = task(tmp_path, "half_matmul(M=32, N=32, K=32)", "tensor_core")
    inputs, _ = whole_numbers(t.program)
    assert sum(check_each_is_needed(found, program, inputs) for program, found in kernels(t, 2)) >= 2


def test_the_lowered_stage_shows_what_a_lane_accesses(tmp_path: Path) -> None:
    t = task(tmp_path, "half_matmul(M=32, N=32, K=32)", "tensor_core")
    trace = next(x for seed in range(40) if "tensorize(" in (x := t.sample(seed)).text)
    text = t.lowered_text(trace)
    assert 'mma_m16n16k16_f16 by "mma.sync.aligned' in text and "tensorized for S.element in 0 .. 8 {" in text


# A kernel by hand, of two warps


def test_a_kernel_by_hand_is_right() -> None:
    program = hand()
    found = lower_device(program)
    assert found.kernels[0].threads == 64
    assert [(b.name, b.size) for b in found.kernels[0].local] == [("Af", 8), ("Bf", 4), ("Cf", 4)]
    assert run(program, found) == ("", True)


SHIFTED = 'buffer As: f16[32, 16] in "shared" @("align.0", 16) @("offset.0", 4)'


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([('buffer As: f16[32, 16] in "shared"', SHIFTED)], r"takes 16 bytes of `As` at addresses that are multiples of 16"),
        ([("As[vi, vk] = A[", "As[vk, vi] = A["), ("= As[vi, vk]", "= As[vk, vi]"), ("As: f16[32, 16]", "As: f16[16, 32]")],
         r"takes 8 adjacent elements of `As`, and they are not adjacent"),
        ([("Cf[vi, vj] = 0.0", "Cf[vi % 16, vj] = 0.0"), ("Cf[vi, vj] + ", "Cf[vi % 16, vj] + "),
          ("Cf[vi, vj] = Cf", "Cf[vi % 16, vj] = Cf"), ("= Cf[vi, vj] }", "= Cf[vi % 16, vj] }")],
         r"two threads touch the same element of `Cf`"),
        ([('tensorized for i in 16 @("intrinsic", "mma_zero")', "for i in 16"), ("tensorized for j in 8", "for j in 8")],
         r"`Cf\[.*\] = 0.0` is no instruction, and `Cf` is in a fragment"),
        ([('buffer As: f16[32, 16] in "shared"', 'buffer As: f16[32, 16] in "global"')],
         r'`S` of ldmatrix_a_f16 is in "shared"'),
        ([('bound("warp") for w_1 in 2', 'bound("thread.y") for w_1 in 2')], r'inside of `w_1`, which counts threads'),
    ],
)  # fmt: skip
def test_what_no_warp_can_do_is_refused(changes: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(LowerError, match=why):
        lower_device(hand(*changes))


IDLE = [
    *((f"for {w} in 2", f"for {w} in 3") for w in ("w", "w_1", "w_2")),
    *((f"= {w} * 16 + {i};", f"= {w} * 16 + {i}; where {w} < 2;") for w, i in
      (("w", "i"), ("w_1", "i_1"), ("w_1", "i_3"), ("w_2", "i_4"))),
    ("spatial vk in 16 = k_2;", "spatial vk in 16 = k_2; where w_1 < 2;"),
]  # fmt: skip
"""A third warp, which has no tile."""


def test_a_warp_without_a_tile_does_not_run_the_instruction() -> None:
    program = hand(*IDLE)
    found = lower_device(program)
    assert found.kernels[0].threads == 96 and "mma.sync" in ptx(found, "sm_80")
    assert run(program, found) == ("", True)


def test_instructions_of_later_gpus_are_loops() -> None:
    text = (STDLIB.read_text(encoding="utf-8") + HAND).replace('requires "sm_80"', 'requires "sm_100"')
    program = parse_program(Source("p.tsched", text))
    found = lower_device(program)
    assert "mma.sync" not in ptx(found, "sm_80")
    assert run(program, found) == ("", True)
    assert "mma.sync" in ptx(lower_device(program, ("sm_80", "sm_100")), "sm_80")


def moved(s: Collective, buffer: str) -> Collective:
    """The instruction with one operand one element further on."""

    def load(e: object) -> object:
        return replace(e, indices=(add(e.indices[0], ONE),)) if isinstance(e, Load) and e.buffer == buffer else e

    def flat(x: Flat) -> Flat:
        if isinstance(x, Store):
            return replace(x, value=rewrite_expr(x.value, load))  # pyright: ignore[reportArgumentType]
        return replace(x, body=tuple(map(flat, x.body)))

    return replace(s, body=tuple(map(flat, s.body)))


def test_a_row_that_is_not_aligned_is_told() -> None:
    program = hand()
    wrong = changed(lower_device(program), lambda s: moved(s, "As") if s.intrinsic.name == "ldmatrix_a_f16" else None)
    fault, _ = run(program, wrong)
    assert "accesses element 1 of `As` in `ldmatrix_a_f16(Af, As)`, whose address is not a multiple of 16" in fault


def test_instructions_in_divergent_code_are_told() -> None:
    program = hand()
    (k,) = lower_device(program).kernels
    (phase,) = (s for s in k.body[2:] if isinstance(s, Phase))
    some = Guard(Compare("<", Var(THREAD), index(40)), (phase,))
    fault, _ = run(program, replace(lower_device(program), kernels=(replace(k, body=(*k.body[:2], some)),)))
    assert "thread 40 of block 0 and thread 32 come to different barriers or instructions" in fault


def test_the_emulation_goes_by_the_layouts() -> None:
    """With another layout in one of the instructions elements are where others do not look for them."""
    other = STDLIB.read_text(encoding="utf-8")
    program = hand()

    def wrong(s: Collective) -> Collective | None:
        if s.intrinsic.name != "mma_store":
            return None
        places = {"C": "lane: i / 2 * 4 + j / 2, reg: i % 2 * 2 + j % 2"}
        text = (
            other[other.index("intrinsic mma_store") :]
            .partition("\n\n")[0]
            .replace("lane: i % 8 * 4 + j / 2, reg: i / 8 * 2 + j % 2", places["C"])
        )
        (found,) = parse_program(
            Source("q.tsched", text + "\nprogram q(A: f32[1]) { block A { A[0] = 1.0 } }")
        ).intrinsics
        return replace(s, intrinsic=found)

    assert run(program, changed(lower_device(program), wrong)) == ("", False)


LOCAL = """
intrinsic scale_row
    desc (D: f32[1, 64] in "tile.row", S: f32[1, 64]) {
        D[i, j] = S[i, j] * 2.0
    }
    layout "tile.row" (i, j) -> (lane: j / 2, reg: j % 2 + i)
    layout "global" (lane, element) -> (i: 0, j: lane * 2 + element)
    lower cuda asm "{ .reg .f32 x, y; ld.v2.f32 {x, y}, [S]; add.f32 D0, x, x; add.f32 D1, y, y; }"

intrinsic put_row
    desc (D: f32[1, 64], S: f32[1, 64] in "tile.row") {
        D[i, j] = S[i, j]
    }
    layout "tile.row" (i, j) -> (lane: j / 2, reg: j % 2 + i)
    layout "global" (lane, element) -> (i: 0, j: lane * 2 + element)
    lower cuda asm "st.v2.f32 [D], {S0, S1};"

program p(A: f32[4, 64], C: f32[4, 64]) {
    buffer T: f32[4, 64] in "tile.row"
    buffer L: f32[4, 64] in "local"
    bound("block.x") for b in 2 {
        bound("warp") for w in 2 {
            tensorized for i in 1 @("intrinsic", "scale_row") {
                tensorized for j in 64 {
                    block T { spatial vi in 4 = b * 2 + w + i; spatial vj in 64 = j; T[vi, vj] = A[vi, vj] * 2.0 }
                }
            }
        }
        bound("warp") for w_1 in 2 {
            tensorized for i_1 in 1 @("intrinsic", "put_row") {
                tensorized for j_1 in 64 {
                    block L { spatial vi in 4 = b * 2 + w_1 + i_1; spatial vj in 64 = j_1; L[vi, vj] = T[vi, vj] }
                }
            }
        }
        bound("warp") for w_2 in 2 {
            bound("lane") for l in 32 {
                for e in 2 {
                    block C { spatial vi in 4 = b * 2 + w_2; spatial vj in 64 = l * 2 + e; C[vi, vj] = L[vi, vj] + 1.0 }
                }
            }
        }
    }
}
"""


def test_instructions_with_axes_of_one_iteration_and_private_memory() -> None:
    """Each lane takes from its own memory what an instruction has put there for it."""
    program = parse_program(Source("p.tsched", LOCAL))
    found = lower_device(program)
    assert "ld.v2.f32" in ptx(found, "sm_80") and "st.v2.f32" in ptx(found, "sm_80")
    a = np.arange(256, dtype=np.float32).reshape(4, 64)
    fault, outputs = emulated(found, program, {"A": a})
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["C"], a * 2 + 1)


BYTES = """
intrinsic product
    desc (A: i8[16, 32] in "byte.a", B: i8[32, 8] in "byte.b", C: i32[16, 8] in "byte.c") {
        C[i, j] += sum[k] i32(A[i, k]) * i32(B[k, j])
    }
    layout "byte.a" (i, k) -> (lane: i % 8 * 4 + k % 16 / 4, reg: k / 16 * 8 + i / 8 * 4 + k % 4)
    layout "byte.b" (k, j) -> (lane: j * 4 + k % 16 / 4, reg: k / 16 * 4 + k % 4)
    layout "byte.c" (i, j) -> (lane: i % 8 * 4 + j / 2, reg: i / 8 * 2 + j % 2)
    lower cuda asm "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 C, A, B, C;"

intrinsic rows
    desc (D: i8[16, 32] in "byte.a", S: i8[16, 32] in "shared") { D[i, k] = S[i, k] }
    layout "byte.a" (i, k) -> (lane: i % 8 * 4 + k % 16 / 4, reg: k / 16 * 8 + i / 8 * 4 + k % 4)
    layout "shared" (lane, element) -> (i: lane % 16, k: lane / 16 * 16 + element)
    lower cuda asm "ldmatrix.sync.aligned.m8n8.x4.shared.b16 D, [S];"

intrinsic columns
    desc (D: i8[32, 8] in "byte.b", S: i8[8, 32] in "shared") { D[k, j] = S[j, k] }
    layout "byte.b" (k, j) -> (lane: j * 4 + k % 16 / 4, reg: k / 16 * 4 + k % 4)
    layout "shared" (lane, element) -> (j: lane % 8, k: lane / 8 % 2 * 16 + element)
    lower cuda asm "ldmatrix.sync.aligned.m8n8.x2.shared.b16 D, [S];"

intrinsic clear
    desc (C: i32[16, 8] in "byte.c") { C[i, j] = 0 }
    layout "byte.c" (i, j) -> (lane: i % 8 * 4 + j / 2, reg: i / 8 * 2 + j % 2)
    lower cuda asm "mov.b32 C0, 0; mov.b32 C1, 0; mov.b32 C2, 0; mov.b32 C3, 0;"

intrinsic put
    desc (D: i32[16, 8], C: i32[16, 8] in "byte.c") { D[i, j] = C[i, j] }
    layout "byte.c" (i, j) -> (lane: i % 8 * 4 + j / 2, reg: i / 8 * 2 + j % 2)
    layout "global" (lane, address, element) -> (i: address * 8 + lane / 4, j: lane % 4 * 2 + element)
    lower cuda asm "st.v2.b32 [D0], {C0, C1}; st.v2.b32 [D1], {C2, C3};"

program p(A: i8[16, 32], B: i8[8, 32], C: i32[16, 8]) {
    buffer As: i8[16, 32] in "shared"
    buffer Bs: i8[8, 32] in "shared"
    buffer Af: i8[16, 32] in "byte.a"
    buffer Bf: i8[8, 32] in "byte.b"
    buffer Cf: i32[16, 8] in "byte.c"
    bound("block.x") for b in 1 {
        bound("thread.x") for t in 32 {
            for r in 16 {
                block As { spatial vi in 16 = t / 2; spatial vk in 32 = t % 2 * 16 + r; As[vi, vk] = A[vi, vk] }
            }
        }
        bound("thread.x") for t_1 in 32 {
            for r_1 in 8 {
                block Bs { spatial vj in 8 = t_1 / 4; spatial vk in 32 = t_1 % 4 * 8 + r_1; Bs[vj, vk] = B[vj, vk] }
            }
        }
        tensorized for i in 16 @("intrinsic", "clear") {
            tensorized for j in 8 { block Cz { spatial vi in 16 = i; spatial vj in 8 = j; Cf[vi, vj] = 0 } }
        }
        tensorized for i_1 in 16 @("intrinsic", "rows") {
            tensorized for k_1 in 32 { block Af { spatial vi in 16 = i_1; spatial vk in 32 = k_1; Af[vi, vk] = As[vi, vk] } }
        }
        tensorized for j_2 in 8 @("intrinsic", "columns") {
            tensorized for k_2 in 32 { block Bf { spatial vj in 8 = j_2; spatial vk in 32 = k_2; Bf[vj, vk] = Bs[vj, vk] } }
        }
        tensorized for i_3 in 16 @("intrinsic", "product") {
            tensorized for j_3 in 8 {
                tensorized for k_3 in 32 {
                    block Cs {
                        spatial vi in 16 = i_3; spatial vj in 8 = j_3; reduce vk in 32 = k_3
                        Cf[vi, vj] = Cf[vi, vj] + i32(Af[vi, vk]) * i32(Bf[vj, vk])
                    }
                }
            }
        }
        tensorized for i_4 in 16 @("intrinsic", "put") {
            tensorized for j_4 in 8 { block C { spatial vi in 16 = i_4; spatial vj in 8 = j_4; C[vi, vj] = Cf[vi, vj] } }
        }
    }
}
"""


def test_products_of_bytes_are_declared_without_python(tmp_path: Path) -> None:
    """A warp that no loop is bound to is the first one; four bytes are in a register."""
    program = parse_program(Source("p.tsched", BYTES))
    found = lower_device(program)
    code = ptx(found, "sm_80")
    assert "m16n8k32" in code
    if tool("ptxas") is not None:
        assert "0 bytes spill stores" in assemble(code, "sm_80", tmp_path / "k.cubin")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((16, 32), (8, 32)))
    fault, outputs = emulated(found, program, {"A": a, "B": b})
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["C"], a.astype(np.int64) @ b.T.astype(np.int64))


@pytest.mark.corpus
@pytest.mark.parametrize("text", ["half_transposed(M=32, N=32, K=32)", "half_matmul(M=32, N=32, K=32)"])
def test_an_operand_is_loaded_by_one_instruction_whichever_way_it_lies(text: str, tmp_path: Path) -> None:
    """No rule is left out: the first one has instructions of 16 columns, whose fragments are as high as they are wide."""
    t = task(tmp_path, text, "tensor_core")
    trace = t.drawn_from(condition(t.model, {"tensor_core": True})).sample(0)
    assert (trace.refused, "tensorize(" in trace.text and "m16n16k16" in trace.text) == ((), True)


OF_BLOCKS = ("compute_inline", "reverse_compute_inline")
OF_LOOPS = ("parallel", "vectorize")


def accepted(step: str, p: Program, subject: BlockRef | LoopRef) -> bool:
    try:
        apply(p, step, subject)
    except ScheduleRefusal:
        return False
    return True


def test_a_query_knows_what_the_whole_program_refuses() -> None:
    """A step that would take an instruction apart is refused after it was made: queries say so."""
    plain = (
        ("tensorized for k_2", "for k_2"),
        (' @("intrinsic", "ldmatrix_b_f16")', ""),
        ("tensorized for j_2", "for j_2"),
    )
    for p in (hand(), hand(*plain)):
        found = [s for _, s in walk(p.body)]
        for step in OF_BLOCKS:
            for b in (BlockRef(s.name) for s in found if isinstance(s, Block)):
                assert QUERIES[BlockRef][f"can_{step}"].function(p, b) == accepted(step, p, b), (step, b)
        for step in OF_LOOPS:
            for x in (LoopRef(s.var) for s in found if isinstance(s, For)):
                assert QUERIES[LoopRef][f"can_{step}"].function(p, x) == accepted(step, p, x), (step, x)
