"""Attention whose exponentials are computed while products of its warpgroups are under way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, remarks, sass_of, tool
from tensorc_dsl.backend.cuda.lower.kernels import Device, DeviceProgram, WgmmaWait, format_device
from tensorc_dsl.faces.api.tasks import Task
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tests.gpu.kernels import ptx
from tests.gpu.test_group_rows import BY_THREADS, LOADED, SPACE, drawn, task
from tests.gpu.test_pipeline_faults import changed
from tests.programs import proof_fault

SPACES = SPACE + SPACE[SPACE.index("space ") :].replace("held=few,", "held=few, finite=true,").replace(
    "space group_rows", "space finite_groups"
)

OVERLAPPED: dict[str, Decision] = {"overlap": True, "length": 64, "ahead": 1}

CASES: Mapping[str, tuple[str, dict[str, Decision]]] = {
    "TMA loads": ("half(B=1, H=1, M=64, N=192, D=64, E=64) with group_rows", LOADED),
    "copies of threads, two groups, a mask": (
        "causal(M=128, N=128, D=64, E=64, after=-3) with group_rows",
        {"width": 256, **BY_THREADS},
    ),
    "roles": ("half(B=1, H=1, M=64, N=128, D=64, E=64) with group_rows", {**LOADED, "beside": True}),
    "roles, fewer steps for some blocks": (
        "causal(M=128, N=128, D=64, E=64) with finite_groups",
        {"width": 128, **LOADED, "beside": True},
    ),
}


@lru_cache(maxsize=4)
def kernels(case: str) -> tuple[Task, Trace, DeviceProgram]:
    text, decisions = CASES[case]
    t = task(*text.split(" with "))
    return t, *drawn(t, 0, **{**decisions, **OVERLAPPED})


@pytest.fixture(autouse=True)
def _spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.gpu.test_group_rows.SPACE", SPACES)


@pytest.mark.corpus("wrong rows of attention")
@pytest.mark.parametrize("case", CASES)
def test_they_are_exact(case: str) -> None:
    """In three orders of threads, and by proof."""
    t, trace, _ = kernels(case)
    found = t.emulate(trace)
    assert (found.fault, found.max_error <= 1) == ("", True), trace.text
    assert proof_fault(t.program, trace.program) == ""


@pytest.mark.corpus("wrong rows of attention")
def test_scores_of_the_next_step_and_values_of_this_one_are_under_way_together(tmp_path: Path) -> None:
    _, _, found = kernels("TMA loads")
    lines = [x.strip() for x in format_device(found).splitlines()]
    body = lines[lines.index("for p in 0 .. 2 {") :]
    end = next(n for n, x in enumerate(body) if x == "wgmma.wait_group 0")
    of_interest = re.compile(r"wgmma|e_run\[|.*exp\(|mbarrier.try")
    kept = [re.sub(r"_m64.*| \w+\.arrive.*|(?<=e_run\[).*", "", x) for x in body[: end + 1] if of_interest.match(x)]
    assert list(dict.fromkeys(kept)) == [
        "mbarrier.try_wait (p + 1) % 3",
        "wgmma.fence S",
        "wgmma",
        "wgmma.commit_group",
        "wgmma.wait_group 1",
        "wgmma.fence U_part e_run_wgmma_a",
        "e_run[",
        "wgmma.wait_group 0",
    ]
    code = ptx(found, "sm_90a")
    if tool("ptxas") is not None:
        said = assemble(code, "sm_90a", tmp_path / "k.cubin")
        assert " 0 bytes spill stores, 0 bytes spill loads" in said and not remarks(said)
    if tool("ptxas") is not None and tool("nvdisasm") is not None:
        names = re.findall(r"HGMMA|MUFU\.EX2|gsb0, (?=0x)0x\d", sass_of(code, "sm_90a"))
        steps = " ".join(f"{name.removeprefix('gsb0, ')} {len(list(some))}" for name, some in groupby(names))
        assert "HGMMA 4 0x1 1 HGMMA 4 0x1 1 MUFU.EX2 32 0x0 1" in steps


def too_few(s: Device) -> Device:
    return replace(s, groups=s.groups + 1) if isinstance(s, WgmmaWait) and s.buffers else s


def none_for_scores(s: Device) -> Device:
    return replace(s, groups=2) if isinstance(s, WgmmaWait) and s.groups == 1 else s


def none_for_values(s: Device) -> Device | None:
    return None if isinstance(s, WgmmaWait) and not s.ends_group else s


FAULTS: dict[str, Callable[[Device], Device | None]] = {
    "one group too many is left": too_few,
    "scores are not waited for": none_for_scores,
    "products with values are not waited for": none_for_values,
}


@pytest.mark.corpus("faults of rows")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wait_for_too_few_is_found(fault: str) -> None:
    t, _, found = kernels("TMA loads")
    said, _ = emulated(changed(found, FAULTS[fault]), t.program, make_inputs(t.program, 0))
    assert re.search("has not waited for its accumulators", said), said
