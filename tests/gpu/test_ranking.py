"""What the model of time is judged by: a walk through PTX, an estimate from machine code, and times of saved schedules."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np
import pytest

from bench import gpu_ranking
from bench.gpu_calibration import correlation, cycles_of, fit
from bench.gpu_case import Row
from bench.ptx_walk import kernels_of, passes, touched, walk
from tensorc_dsl.backend.cuda.compiled import tool
from tensorc_dsl.backend.cuda.model.cycles import estimates
from tensorc_dsl.schedule.trace.distribution import Decision

PTX = """
.visible .entry k_0(
	.param .u64 .ptr .align 16 k_0_param_0
)
{
	ld.param.b64 	%rd1, [k_0_param_0];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd2, %r1, 4;
	add.s64 	%rd3, %rd1, %rd2;
	mov.b64 	%rd4, 0;
	setp.ne.b32 	%p1, %r1, 0;
$L__BB0_1:
	@%p1 bra 	$L__BB0_3;
	bar.warp.sync 	-1;
$L__BB0_3:
	ld.global.b32 	%r2, [%rd3];
	add.s64 	%rd4, %rd4, 1;
	setp.ne.b64 	%p2, %rd4, 10;
	@%p2 bra 	$L__BB0_1;
	st.global.v4.b32 	[%rd3], {%r2, %r2, %r2, %r2};
	ret;
}
"""


def test_a_walk_runs_loops_as_often_as_a_warp_does() -> None:
    """Lanes that part meet again: the loop runs ten times for all, though the first lane has a block of its own."""
    (kernel,) = kernels_of(PTX)
    did, alone = walk(kernel, 64, (1, 1, 1), {"f16": 1024}, {})
    lines = PTX.splitlines()
    load = next(n for n, x in enumerate(lines, 1) if "ld.global" in x)
    own = next(n for n, x in enumerate(lines, 1) if "bar.warp" in x)
    assert did.runs[load] == 2 * 10 and did.runs[own] == 10
    assert did.sectors == 2 * (10 * 4 + 5) and did.lines == 2 * (10 + 2)
    assert 100 < alone < 550, "nothing waits for the first load, and the others are near"


def test_sectors_and_passes() -> None:
    lanes, every = np.arange(32, dtype=np.int64), np.ones(32, np.bool_)
    assert [len(touched(lanes * n, 4, every)) for n in (4, 8, 32)] == [4, 8, 32]
    assert [passes(lanes * n, 4, every) for n in (4, 8, 128)] == [1, 2, 32]
    assert passes(lanes * 16, 16, every) == 4


SASS = """
	.section	.text.k_0,"ax",@progbits
	//## File "k.ptx", line 9
        /*0000*/                   LDG.E R2, desc[UR4][R4.64] ;
        /*0008*/              @!PT LDS RZ, [RZ] ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
	//## File "k.ptx", line 12
        /*0020*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath) ;
.L_x_1:
        /*0030*/                   EXIT ;
$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath:
        /*0040*/                   LOP3.LUT R6, R6, 0xff, RZ, 0xc0, !PT ;
        /*0050*/                   RET.REL.NODEC R2 `(k_0) ;
"""


def test_a_function_of_machine_code_is_of_no_line() -> None:
    """It stands behind the last line of a kernel, and does not run as often as that. A load that no lane makes is none."""
    assert gpu_ranking.blocks_of(SASS)["k_0"] == (
        (("LDG.E", 9), ("NOP", 9), ("BRA", 9)),
        (("CALL.REL.NOINC", 12),), (("EXIT", 12),), (),
        (("LOP3.LUT", 0), ("RET.REL.NODEC", 0)),
    )  # fmt: skip


@pytest.mark.corpus
def test_the_model_ranks_as_the_estimate_does(tmp_path: Path) -> None:
    if tool("ptxas") is None or tool("nvdisasm") is None:
        pytest.skip("ptxas or nvdisasm is not installed")
    assert gpu_ranking.main(["--draws", "6", "--only", "softmax", "--json", str(tmp_path / "found.json")]) == 0


@pytest.mark.corpus
def test_what_one_warp_stores_for_all_is_counted_once() -> None:
    """The estimate walks through all warps where one starts TMA stores, and no role loads: it has the passes of the model."""
    if tool("ptxas") is None or tool("nvdisasm") is None:
        pytest.skip("ptxas or nvdisasm is not installed")
    case = gpu_ranking.CASES["gemm f16, no roles"]
    draws: dict[str, Decision] = {"copied": "threads", "copied_1": "threads", "stored": "tma", "inner": (4, 2, 1, 64)}
    case = replace(case, text=case.text.replace("4096", "512"), draws={**case.draws, **draws}, has=r"\.bulk_group")
    task, compiled = next(gpu_ranking.drawn(case, "sm_90a", 1, 0))
    assert "mbarrier" not in compiled.ptx
    ((model,), (code,)) = estimates(compiled.program, task.target, {}), gpu_ranking.bounds(compiled, "sm_90a", {})
    assert code["shared"] == pytest.approx(model.shared, rel=0.02)


def test_a_fit_finds_the_factors() -> None:
    """Times are made with factors of 2 and 0.5, and are found; a bound that decides nowhere has none."""
    rng, factors, clock = np.random.default_rng(0), {"cache": 2.0, "products": 0.5, "launch": 1.0}, 1e9
    rows: list[Row] = []
    for n in range(60):
        bounds = [{"cache": exp(rng.uniform(9, 13)), "products": exp(rng.uniform(9, 13)), "memory": 1.0}]
        rows.append(Row(f"{n}", "", cycles_of(bounds, factors) / clock, facts={"clock": clock}, bounds=bounds))
    found = fit([*rows, Row("wrong", "results differ", 1.0, facts={"clock": clock}, bounds=rows[0].bounds)])
    assert found.schedules == 60 and set(found.factors) == set(factors)
    assert all(abs(log(found.factors[b] / factors[b])) < 0.1 for b in ("cache", "products"))
    assert found.after > 0.99 > found.before and found.off < 0.05
    with pytest.raises(ValueError, match="2 schedules have times, and a fit needs three"):
        fit(rows[:2])


def test_correlations() -> None:
    assert correlation([1, 2, 3], [10, 20, 40]) == pytest.approx(1)
    assert correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert (correlation([1, 1], [2, 2]), correlation([1, 1], [1, 2])) == (1.0, 0.0)
