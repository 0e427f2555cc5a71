"""The model of time: what it counts is what emulations count, and schedules that must be faster are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from bench.ptx_walk import kernels_of, walk
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import (
    DeviceProgram,
    Shared,
    WaitGroup,
    WaitMbarrier,
    barriers_in,
    collectives_in,
    inside,
    roles_in,
    tma_loads_in,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.model.counts import Counted, Waits, counted
from tensorc_dsl.backend.cuda.model.cycles import Estimate, estimates
from tensorc_dsl.backend.cuda.model.issue import issued_instructions, loops_in_ptx, loops_in_sass
from tensorc_dsl.backend.cuda.model.machine import machine_of
from tensorc_dsl.backend.protocol import CodeLoop, Registers
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition
from tensorc_dsl.tuning.measure.emulation import emulate
from tests.gpu.kernels import ptx
from tests.gpu.tensor_cores import drawn
from tests.gpu.test_hopper import hopper
from tests.gpu.test_lowering import program
from tests.stdlib.gpu_checks import task

A100 = Target("cuda", "sm_80", cores=108, threads=1024, shared_memory=166912, registers=65536)


@pytest.mark.parametrize(
    ("cpu", "threads", "registers", "shared", "resident"),
    [
        ("sm_80", 256, 32, 0, 8),  # 64 warps
        ("sm_80", 32, 32, 0, 32),  # as many blocks as there may be
        ("sm_80", 1024, 64, 0, 1),  # all registers
        ("sm_80", 256, 65, 0, 3),  # registers are given to a warp by 256: 72 a thread
        ("sm_80", 128, 32, 48 * 1024, 3),  # with the 1 KB of each block
        ("sm_80", 128, 32, 163 * 1024, 1),
        ("sm_80", 128, 32, 164 * 1024, 0),
        ("sm_86", 256, 32, 0, 6),
        ("sm_86", 32, 32, 0, 16),
        ("sm_89", 32, 32, 0, 24),
        ("sm_90", 128, 32, 227 * 1024, 1),
        ("sm_90a", 33, 32, 0, 32),
        ("sm_100", 1024, 32, 0, 2),  # as the last one that is known
    ],
)
def test_blocks_that_are_resident(cpu: str, threads: int, registers: int, shared: int, resident: int) -> None:
    assert machine_of(cpu).resident(threads, registers, shared) == resident


def test_a_target_without_a_name_of_its_gpu_has_the_model_of_the_oldest(tmp_path: Path) -> None:
    """`target t = cuda(threads=1024, …)` has "generic" for its name, as the code for it has."""
    t = task(tmp_path, "matmul(M=32, N=32, K=16)")
    trace = t.sample(0)
    lowered = lower_device(trace.program, t.target.feature_names)
    named, without = (
        [e.cycles for e in estimates(lowered, replace(t.target, cpu=cpu), {})] for cpu in ("sm_80", "generic")
    )
    assert named == without


@pytest.mark.corpus
@pytest.mark.parametrize(
    "text", ["matmul(M=64, N=64, K=32)", "softmax(M=8, N=64)", "half_matmul(M=32, N=32, K=32)", "cumsum(N=32, M=32)"]
)
def test_counts_are_those_of_an_emulation(text: str, tmp_path: Path) -> None:
    """Where warps and iterations are alike; random ones stand for all. An emulation makes each access alone, and the code for
    a GPU, which a walk runs, has adjacent ones as one."""
    t = task(tmp_path, text)
    for seed in range(2):
        kernels = lower_device(t.sample(seed).program)
        codes = kernels_of(ptx(kernels, "sm_80"))
        found = emulate(t.program, emulation(kernels))
        sizes = {x.name: x.dtype.bytes for x in (*kernels.params, *kernels.scratch)}
        for k, c, code in zip(kernels.kernels, found.counts, codes, strict=True):
            grid = tuple(constant(n) or 1 for n in k.grid)
            did, _ = walk(code, k.threads, (grid[0], grid[1], grid[2]), {"f16": 1024}, {}, blocks=prod(grid), warps=32)
            joined = counted(k, {}, sizes)
            if "softmax" not in text:  # of whose stages LLVM loads once what several read
                assert joined.sectors == pytest.approx(did.sectors * prod(grid), rel=0.02), (text, seed)
                assert joined.lines == pytest.approx(did.lines * prod(grid), rel=0.02), (text, seed)
            mine = counted(k, {}, sizes, joins=False)
            assert mine.sectors == pytest.approx(c.moves(False), rel=0.15), (text, seed)
            # What stays in a register is loaded once on a GPU, and each time in an emulation.
            assert c.moves(True) / 16 <= mine.passes <= 1.15 * c.moves(True), (text, seed)
            if "matmul" not in text:
                assert mine.passes == pytest.approx(c.moves(True), rel=0.15), (text, seed)


COPY = """
program p(A: f32[1024, 1024], C: f32[1024, 1024]) {
    bound("block.x") for i in 1024 {
        bound("thread.x") for j in 256 { KIND for k in 4 {
            block C { spatial vi in 1024 = i; spatial vj in 1024 = PLACE; C[WHERE] = A[WHERE] }
        } }
    }
}
"""


def copy(place: str = "k * 256 + j", where: str = "vi, vj", kind: str = "") -> DeviceProgram:
    text = COPY.replace("PLACE", place).replace("WHERE", where).replace("KIND", kind)
    return lower_device(program(text))


def estimate(p: DeviceProgram) -> Estimate:
    (found,) = estimates(p, A100, {})
    return found


def test_registers_that_are_known_are_those_of_the_model() -> None:
    """By its own count there are 32 and those of private storage, and eight blocks of 256 threads at one time."""
    p = copy()
    (own,), (few,), (many,) = (
        estimates(p, A100, {}, Registers({p.kernels[0].name: n} if n else {})) for n in (0, 32, 128)
    )
    assert own == few and (few.resident, many.resident) == (8, 2)


def test_neighbours_before_distant_elements() -> None:
    near, far = estimate(copy()), estimate(copy(where="vj, vi"))
    assert near.cache * 8 == far.cache and near.cycles < far.cycles


def test_vectors_before_single_elements() -> None:
    wide, single = estimate(copy("j * 4 + k", kind="vectorized")), estimate(copy())
    assert wide.cache == single.cache and wide.instructions * 2 < single.instructions and wide.latency < single.latency


TURNED = """
program p(A: f32[1024, 1024], C: f32[1024, 1024]) {
    bound("block.x") for b in 512 {
        bound("thread.x") for j in 512 { unrolled for t in 4 {
            block C {
                spatial vi in 1024 = (b * 4 + t) / 2; spatial vj in 1024 = (b * 4 + t) % 2 * 512 + j
                C[vi, vj] = A[vj, vi]
            }
        } }
    }
}
"""


def test_adjacent_accesses_of_unrolled_iterations_are_one() -> None:
    """As LLVM makes them, which finds them wherever no branch is between: of neighbours, and of iterations that are apart."""
    wide, single = (copy("j * 4 + k", kind=kind) for kind in ("vectorized", "unrolled"))
    assert "ld.global.v4" in (code := ptx(single, "sm_80").replace("global.nc", "global")) and "st.global.v4" in code
    assert (estimate(single).lines, estimate(single).cache) == (estimate(wide).lines, estimate(wide).cache)
    apart = copy("k * 256 + j", kind="unrolled")
    assert estimate(apart).lines == estimate(copy()).lines == estimate(wide).lines

    turned = lower_device(program(TURNED))
    code = ptx(turned, "sm_80").replace("global.nc", "global")
    assert len(re.findall(r"ld\.global\.v2", code)) == 2 and len(re.findall(r"st\.global\.b32", code)) == 4
    warps = 512 * 512 / 32
    found = counted(turned.kernels[0], {}, {"A": 4, "C": 4})
    assert found.requests == {"global load": 2 * warps, "global store": 4 * warps}
    assert found.lines == (2 * 32 + 4) * warps


def test_accesses_between_which_a_branch_or_a_store_may_be_are_several() -> None:
    """A condition of each iteration, and a sum in memory that the next iteration may read."""
    whole = copy("j * 4 + k", kind="unrolled")
    text = COPY.replace("PLACE", "j * 4 + k").replace("WHERE", "vi, vj").replace("KIND", "unrolled")
    added = lower_device(program(text.replace("= A[vi, vj]", "= C[vi, vj] + A[vi, vj]")))
    own, more = (counted(x.kernels[0], {}, {"A": 4, "C": 4}) for x in (whole, added))
    assert own.requests["global store"] * 4 == more.requests["global store"]


SHARED = """
program p(A: f32[64, 256], C: f32[64, 256]) {
    buffer T: f32[SIZE] in "shared"
    bound("block.x") for i in 64 {
        bound("thread.x") for j in 256 {
            block T { spatial vi in 64 = i; spatial vj in 256 = j; T[vj] = A[vi, vj] }
        }
        bound("thread.x") for j_1 in 256 { for r in 64 {
            block C { spatial vi in 64 = i; spatial vj in 256 = j_1; reduce vr in 64 = r
                init { C[vi, vj] = 0.0 }
                C[vi, vj] = C[vi, vj] + T[PLACE] }
        } }
    }
}
"""


def test_banks_without_conflicts_before_eight_at_once() -> None:
    def passes(place: str) -> float:
        return estimate(lower_device(program(SHARED.replace("SIZE", "4096").replace("PLACE", place)))).shared

    free = passes("(vj + vr) % 256")
    assert passes("vj % 32 * 8 + vr % 8") > 6 * free
    assert passes("(vj % 32 * 9 + vr % 8) % 256") < 1.2 * free


def test_tiles_before_none(tmp_path: Path) -> None:
    """The best of a few tiled products beats the one where each thread reads whole rows and columns."""
    t = task(tmp_path, "matmul(M=512, N=512, K=512)")
    tiled = [t.sample(seed) for seed in range(8)]
    assert all("shared" in {b.scope for b in x.program.buffers} for x in tiled)
    cycles = [sum(e.cycles for e in estimates(lower_device(x.program), A100, {})) for x in tiled]
    plain = """
program p(A: f32[512, 512], B: f32[512, 512], C: f32[512, 512]) {
    bound("block.x") for i in 1024 { bound("thread.x") for j in 256 { for k in 512 {
        block C { spatial vi in 512 = i / 2; spatial vj in 512 = i % 2 * 256 + j; reduce vk in 512 = k
            init { C[vi, vj] = 0.0 }
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj] }
    } } }
}
"""
    assert min(cycles) < estimate(lower_device(program(plain))).cycles / 2


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "type_", "count", "rate", "each"),
    [
        ("half_matmul(M=64, N=16, K=32)", "f16", 64 * 16 * 32, 1024, 16 * 8 * 16),
        ("half_matmul(M=32, N=48, K=32, T=bf16)", "bf16", 32 * 48 * 32, 1024, 16 * 8 * 16),
        ("rounded_product(M=32, N=16, K=64)", "f32", 32 * 16 * 64, 512, 16 * 8 * 8),
        ("any_product(M=16, N=16, K=64, T=i8, Acc=i32)", "i8", 16 * 16 * 64, 2048, 16 * 8 * 32),
    ],
)
def test_products_of_tensor_cores_take_time(
    text: str, type_: str, count: int, rate: int, each: int, tmp_path: Path
) -> None:
    """`each` has the multiplications of one instruction, of which there are several in a declared one."""
    ((_, found),) = drawn(task(tmp_path, text, "tensor_core"), 1, {"tensor_core": True})
    (k,) = (k for k in found.kernels if any(collectives_in(k.body)))
    c = counted(k, {}, {x.name: x.dtype.bytes for x in (*found.params, *found.scratch)})
    assert c.products == {(type_, False): count} and c.requests["product"] == count / each
    blocks = prod(constant(n) or 0 for n in k.grid)
    (e,) = (e for e in estimates(found, A100, {}) if e.kernel == k.name)
    assert e.products == pytest.approx(count / rate / blocks * -(-blocks // 108))


def test_products_of_warpgroups_take_the_time_of_four_warps(tmp_path: Path) -> None:
    t = hopper(tmp_path, "half_matmul(M=128, N=64, K=128)")
    trace = t.drawn_from(condition(t.model, {"warpgroups": True})).sample(0)
    (k,) = lower_device(trace.program, t.target.feature_names).kernels
    assert counted(k, {}, {"A": 2, "B": 2, "C": 4}).products == {("f16", True): 128 * 64 * 128}
    h100 = machine_of("sm_90a")
    assert h100.product_cycles("f16", 2048.0, of_group=True) == 1 < h100.product_cycles("f16", 2048.0, of_group=False)


@pytest.mark.corpus
@pytest.mark.parametrize("copied", ["tma", "threads"])
def test_copies_that_run_ahead_hide_their_latency(copied: str, tmp_path: Path) -> None:
    t = hopper(tmp_path, "half_transposed(M=64, N=64, K=512)")
    decided: dict[str, Decision] = {"warpgroups": True, "copied": copied, "copied_1": copied, "width": 8, "width_1": 8}
    waits: list[float] = []
    for ahead in (1, 3):
        trace = t.drawn_from(condition(t.model, {**decided, "ahead": ahead})).sample(0)
        found = lower_device(trace.program, t.target.feature_names)
        assert (any(True for k in found.kernels for _ in tma_loads_in(k.body))) == (copied == "tma")
        waits += [e.latency for e in estimates(found, t.target, {})]
    assert waits[1] < 0.8 * waits[0]


@pytest.mark.corpus
def test_copies_of_a_round_are_awaited_together(tmp_path: Path) -> None:
    """What threads and TMA copy for the next round is under way at the same time."""
    t = hopper(tmp_path, "half_transposed(M=64, N=64, K=512)")
    waits: list[float] = []
    for both in (("tma", "tma"), ("tma", "threads")):
        decided: dict[str, Decision] = {"copied": both[0], "copied_1": both[1], "width": 8, "width_1": 8, "ahead": 1}
        model = condition(t.model, {"warpgroups": True, "beside": False, "late": False, **decided})
        found = lower_device(t.drawn_from(model).sample(0).program, t.target.feature_names)
        kinds = {type(s) for k in found.kernels for s in inside(k.body)}
        assert WaitMbarrier in kinds and (WaitGroup in kinds) == ("threads" in both)
        waits += [e.latency for e in estimates(found, t.target, {})]
    assert waits[1] < 1.3 * waits[0]


STRAIGHT = """
program p(A: f32[64, 256], B: f32[64, 256], C: f32[64, 256], D: f32[64, 256]) {
    bound("block.x") for i in 64 {
        bound("thread.x") for j in 64 {
            unrolled for k in 4 {
                block C { spatial vi in 64 = i; spatial vj in 256 = k * 64 + j; C[vi, vj] = A[vi, vj] }
            }
            FOR l in 4 {
                block D { spatial vi in 64 = i; spatial vj in 256 = l * 64 + j; D[vi, vj] = LOADED }
            }
        }
    }
}
"""


def test_loads_without_a_branch_between_are_awaited_together() -> None:
    """An assembler starts all of them before a result is needed, unless one may read what was stored, or is in a loop."""
    unrolled, none, looped, stored = (
        estimate(lower_device(program(STRAIGHT.replace("FOR", kind).replace("LOADED", value)))).latency
        for kind, value in (
            ("unrolled for", "B[vi, vj]"), ("unrolled for", "1.0"), ("for", "B[vi, vj]"), ("unrolled for", "C[vi, vj]")
        )
    )  # fmt: skip
    assert unrolled < 1.2 * none and 1.8 * none < min(looped, stored)


def test_instructions_beyond_what_is_counted_take_their_pipe() -> None:
    """Addresses wait for no result. A barrier waits as long, however many instructions the code has."""
    c = Counted({"integers": 10.0, "others": 1.0}, waits=(Waits(arithmetic=40.0, others=20.0, share=0.5),))
    pipes = {"integers": 2.0, "others": 1.0}
    assert [c.latency({"integers": n, "others": 1.0}, pipes) for n in (10.0, 110.0, 5.0)] == [60.0, 160.0, 40.0]
    text = SHARED.replace("SIZE", "256").replace("PLACE", "255 - vj")
    (k,) = lower_device(program(text)).kernels
    found = counted(k, {}, {"A": 4, "C": 4})
    assert barriers_in(k.body) and found.instructions["others"] == 64 * 8 * barriers_in(k.body)


def test_more_blocks_at_once_hide_more() -> None:
    """With most of the shared memory for each block, one runs at a time."""
    p = copy()
    (k,) = p.kernels
    shared = (Shared("S", p.params[0].dtype, 40000, 0),)
    alone = replace(p, kernels=(replace(k, shared=shared, shared_bytes=160000),))
    assert estimate(p).resident == 8 and estimate(alone).resident == 1
    assert estimate(alone).latency > 4 * estimate(p).latency
    none = replace(p, kernels=(replace(k, shared_bytes=170000),))
    assert estimate(none).cycles == float("inf")


@pytest.mark.corpus
def test_what_a_role_loads_counts_once(tmp_path: Path) -> None:
    """As many bytes come by TMA with roles as without, and only who uses them waits for them."""
    t = hopper(tmp_path, "half_matmul(M=256, N=256, K=512)")
    alike = {
        "warpgroups": True,
        "copied": "tma",
        "copied_1": "tma",
        "in_parts": False,
        "streamed": False,
        "cluster": -1,
    }
    moved: list[float] = []
    for beside in (False, True):
        model = condition(t.model, {**alike, "beside": beside})
        some = t.drawn_from(model)
        programs = (lower_device(some.sample(0, n).program, t.target.feature_names) for n in range(40))
        p = next(p for p in programs if bool(roles_in(p.kernels[0].body)) == beside and len(p.kernels[0].maps) > 1)
        (k,) = p.kernels
        loaded = sum(x.size for x in tma_loads_in(k.body))
        found = counted(k, {}, {x.name: x.dtype.bytes for x in p.params})
        stored = 256 * 256 * 4
        blocks = prod(int(constant(n) or 1) for n in k.grid)
        moved.append((found.sectors * 32 - stored) / (loaded * blocks))
    assert moved[0] > 1 and moved[1] == pytest.approx(8, rel=0.05), "a role loads each of eight steps once"


def test_strided_stores_touch_more_lines() -> None:
    near, far = estimate(copy()), estimate(copy(where="vj, vi"))
    assert far.lines == 32 * near.lines > near.lines


UNEVEN = """
program p(A: f32[ROWS, 4096], C: f32[ROWS, 4096]) {
    bound("block.x") for i in ROWS @("persistent", true) {
        bound("thread.x") for j in 256 { for k in 16 {
            block C { spatial vi in ROWS = i; spatial vj in 4096 = k * 256 + j; C[vi, vj] = A[vi, vj] }
        } }
    }
}
"""


def test_the_busiest_block_of_a_persistent_grid_decides() -> None:
    """One iteration more than multiprocessors takes as long as two for each, where memory is no limit."""
    cores = A100.cores
    even, uneven, full = (
        estimate(lower_device(program(UNEVEN.replace("ROWS", str(n))), cores=cores))
        for n in (cores, cores + 1, 2 * cores)
    )
    assert uneven.lines == full.lines == 2 * even.lines and uneven.memory < 1.02 * even.memory
    assert uneven.latency == pytest.approx(full.latency, rel=0.05) and uneven.latency > 1.8 * even.latency


def test_the_last_block_of_a_triangle_decides() -> None:
    """Its row is twice as long as the average one."""
    text = (
        SHARED.replace("SIZE", "256")
        .replace("PLACE", "vr")
        .replace("reduce vr in 64 = r", "reduce vr in 64 = r\n where r <= i")
    )
    (k,) = (p := lower_device(program(text))).kernels
    every, last = (counted(k, {}, {"A": 4, "C": 4}, block=n) for n in (None, 63))
    assert last.passes * 64 > 1.8 * every.passes
    assert estimate(p).shared == last.passes


def test_functions_that_may_be_near_are_an_instruction() -> None:
    """The hardware has one for what is rounded to 16 bits; a function of a constant is a constant."""
    warps, text = 1024 * 1024 / 32, COPY.replace("PLACE", "k * 256 + j").replace("WHERE", "vi, vj").replace("KIND", "")

    def found(value: str, type_: str, approx: float = 0.0) -> dict[str, float]:
        p = lower_device(program(text.replace("C: f32", f"C: {type_}").replace("= A[vi, vj]", f"= {value}")))
        c = counted(p.kernels[0], {}, {"A": 4, "C": 2}, approx=approx)
        return {of: n / warps for of, n in c.instructions.items() if of in ("floats", "special")}

    assert found("f16(exp(A[vi, vj]))", "f16") == {"special": 1}
    assert found("exp(A[vi, vj])", "f32", 1.0) == {"floats": 1, "special": 1}
    assert found("exp(A[vi, vj])", "f32")["floats"] > 10
    assert found("A[vi, vj] * rsqrt(64.0)", "f32") == {"floats": 1}


PTX = """
.visible .entry k_0(
{
	mov.u32 	%r1, %tid.x;
$L__BB0_1:
	ld.global.b32 	%r2, [%rd1];
	mul.rn.f32 	%r3, %r2, %r2;
	add.s64 	%rd1, %rd1, 4;
	setp.ne.b64 	%p1, %rd1, 64;
	@%p1 bra 	$L__BB0_1;
	st.global.b32 	[%rd2], %r3;
	ret;
}
"""

SASS = """
	.section	.text.k_0,"ax",@progbits
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   LDG.E R2, desc[UR4][R4.64] ;
        /*0020*/                   FMUL R3, R2, R2 ;
        /*0030*/                   IADD3 R4, P0, R4, 0x4, RZ ;
        /*0040*/               @P0 BRA `(.L_x_1) ;
        /*0050*/                   STG.E desc[UR4][R6.64], R3 ;
        /*0060*/                   EXIT ;
.L_x_2:
        /*0070*/                   BRA `(.L_x_2) ;
"""


@pytest.mark.parametrize(("loops", "text", "each"), [(loops_in_ptx, PTX, 2), (loops_in_sass, SASS, 1)])
def test_a_loop_runs_as_often_as_explains_its_loads(
    loops: Callable[[str], dict[str, tuple[CodeLoop, ...]]], text: str, each: int
) -> None:
    """The loop has one load, and ten warps load 160 times: so it runs 160 times, and what is outside ten times."""
    found = loops(text)["k_0"]
    assert [(x.around, dict(x.requests)) for x in found] == [(-1, {"global store": 1}), (0, {"global load": 1})]
    c = Counted({"floats": 160.0}, {"global load": 160.0, "global store": 10.0})
    told = issued_instructions(c, found, 10)
    assert told["floats"] == pytest.approx(160, rel=0.01) and told["accesses"] == pytest.approx(170, rel=0.01)
    assert told["integers"] == pytest.approx(160 * each, rel=0.1)
    assert issued_instructions(c, (), 10) == c.instructions, "without code it is the count"


WAITING = """
	.section	.text.k_0,"ax",@progbits
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2] ;
        /*0020*/              @!P0 BRA `(.L_x_3) ;
.L_x_2:
        /*0028*/              @!PT LDS RZ, [RZ] ;
        /*0030*/                   LDS R3, [R4] ;
        /*0040*/                   BRA.DIV UR4, `(.L_x_5) ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/                   STG.E desc[UR4][R6.64], R3 ;
        /*0070*/                   CALL.REL.NOINC `($__internal_0) ;
.L_x_5:
        /*0080*/                   EXIT ;
.L_x_3:
        /*0090*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2] ;
        /*00a0*/              @!P0 BRA `(.L_x_3) ;
        /*00b0*/                   BRA `(.L_x_2) ;
$__internal_0:
        /*00c0*/                   LOP3.LUT R6, R6, 0xff, RZ, 0xc0, !PT ;
        /*00d0*/                   RET.REL.NODEC R2 `(k_0) ;
.L_x_4:
        /*00e0*/                   BRA `(.L_x_4) ;
"""


def test_a_wait_behind_the_kernel_is_in_the_loop_that_waits() -> None:
    """And what stands between is in none; functions and what fills up the code do not run, nor loads that no lane makes."""
    found = loops_in_sass(WAITING)["k_0"]
    assert [x.around for x in found] == [-1, 0, 1]
    assert [dict(x.requests) for x in found] == [{"global store": 1}, {"shared load": 1}, {}]
    assert [dict(x.instructions) for x in found] == [
        {"others": 3, "accesses": 1},
        {"accesses": 2, "others": 5},
        {"accesses": 1, "others": 1},
    ]
