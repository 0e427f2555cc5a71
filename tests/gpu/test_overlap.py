"""Products of a round that are under way in the next: where they may be, and that a wait for too few is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, sass_of, tool
from tensorc_dsl.backend.cuda.lower.kernels import (
    Barrier,
    Device,
    DeviceProgram,
    Guard,
    Steps,
    WgmmaWait,
    format_device,
)
from tensorc_dsl.ir.program import Program
from tests.gpu.kernels import ptx
from tests.gpu.tensor_cores import whole_numbers
from tests.gpu.test_hopper import drawn, hopper
from tests.gpu.test_pipeline_faults import changed


@cache
def product(by: str, late: bool) -> tuple[Program, DeviceProgram]:
    """Five rounds, with copies two ahead, by TMA or by threads, which start before the products or behind them."""
    with TemporaryDirectory() as folder:
        t = hopper(Path(folder), "half_transposed(M=64, N=64, K=320)")
        alone = {"beside": False} if by == "tma" else {}
        return drawn(t, {"warpgroups": True, "copied": by, "copied_1": by, "ahead": 2, "late": late, **alone})[0]


def run(found: DeviceProgram, program: Program) -> tuple[str, bool]:
    inputs, (a, b) = whole_numbers(program)
    fault, outputs = emulated(found, program, inputs)
    return fault, all(np.array_equal(x["C"], a @ b.T) for x in outputs)


@pytest.mark.corpus
def test_products_are_under_way_where_loads_start_behind_them(tmp_path: Path) -> None:
    program, found = product("tma", True)
    lines = [x.strip() for x in format_device(found).splitlines()]
    of_interest = ("barrier", "mbarrier.try", "for k", "one", "wgmma", "if")
    assert [x.split("_m64")[0] for x in lines if x.startswith(of_interest)] == [
        "barrier",
        "for k_0.first in 0 .. 2 {",
        "one thread starts TMA loads, expect_tx 16384 bytes at mbarrier k_0.first % 3 {",
        "for k_0 in 0 .. 5 {",
        "mbarrier.try_wait k_0 % 3",
        "wgmma.fence C_wgmma_c",
        "wgmma",
        "wgmma.commit_group",
        "wgmma.wait_group 1",
        "if k_0 + 2 < 5 {",
        "barrier",
        "one thread starts TMA loads, expect_tx 16384 bytes at mbarrier (k_0 + 2) % 3 {",
        "wgmma.wait_group 0",
    ]
    assert run(found, program) == ("", True)
    code = ptx(found, "sm_90a")
    assert re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", code) == ["1", "0"]
    if tool("ptxas") is not None:
        assert "C75" not in assemble(code, "sm_90a", tmp_path / "k.cubin")
    if tool("ptxas") is not None and tool("nvdisasm") is not None:
        assert re.findall(r"DEPBAR\.LE gsb0, (0x\d)", sass_of(code, "sm_90a")) == ["0x1", "0x0"]


@pytest.mark.corpus
@pytest.mark.parametrize(("by", "late"), [("tma", False), ("threads", True)])
def test_they_are_waited_for_at_once_where_what_they_read_may_be_overwritten(by: str, late: bool) -> None:
    """Loads that start first fill what the round before has read, and behind copies of threads no barrier stands."""
    program, found = product(by, late)
    assert "wgmma.wait_group 1" not in format_device(found)
    assert run(found, program) == ("", True)


def too_few(s: Device) -> Device:
    return replace(s, groups=s.groups + 1) if isinstance(s, WgmmaWait) and s.groups else s


def no_last(s: Device) -> Device | None:
    return None if isinstance(s, WgmmaWait) and not s.groups else s


def none_in_the_loop(s: Device) -> Device | None:
    return None if isinstance(s, WgmmaWait) and s.groups else s


def no_barrier(s: Device) -> Device:
    return replace(s, body=tuple(x for x in s.body if not isinstance(x, Barrier))) if isinstance(s, Guard) else s


def loads_first(s: Device) -> Device:
    """The loads of a round start before its products: they fill what those of the round before still read."""
    if not isinstance(s, Steps) or not isinstance(s.body[-1], Guard):
        return s
    return replace(s, body=(s.body[-1], *s.body[:-1]))


CHANGED = r"to which an asynchronous copy is in flight|has stored before wgmma.wait_group"

FAULTS: dict[str, tuple[Callable[[Device], Device | None], str]] = {
    "one group too many is left": (too_few, CHANGED),
    "no wait behind the loop": (no_last, r"has not waited for its accumulators"),
    "no wait in the loop": (none_in_the_loop, r"has not waited for its accumulators|" + CHANGED),
    "no barrier": (no_barrier, r"meet without a barrier"),
    "loads first": (loads_first, CHANGED),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_is_waited_for_too_late_is_found(case: str) -> None:
    change, said = FAULTS[case]
    program, found = product("tma", True)
    fault, _ = run(changed(found, change), program)
    assert re.search(said, fault), fault
