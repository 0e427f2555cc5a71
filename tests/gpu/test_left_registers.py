"""Instructions of warpgroups whose left factor is in registers: what they compute, and what threads must not do meanwhile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram, WgmmaFence, WgmmaWait, format_device
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tests.gpu.tensor_cores import run, whole_numbers
from tests.gpu.test_barriers import check_each_is_needed
from tests.gpu.test_pipeline_faults import changed
from tests.gpu.test_warpgroups import FEATURES, HAND, MISSING, PRODUCT, removed

LIBRARY = Path(__file__).parents[2] / "stdlib" / "intrinsics" / "hopper_registers.tsched"

OWN = """
            bound("warpgroup") for g_3 in 2 {
                bound("warp") for w_3 in 4 {
                    bound("lane") for l_3 in 32 {
                        for r in 4 {
                            for u in 2 {
                                for h_3 in 2 {
                                    vectorized for e in 2 {
                                        block As {
                                            spatial vi in 128 = g_3 * 64 + w_3 * 16 + h_3 * 8 + l_3 / 4
                                            spatial vk in 64 = r * 16 + u * 8 + l_3 % 4 * 2 + e
                                            spatial vs in 2 = s
                                            As[vi, vk] = A[vi, vs * 64 + vk]
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
"""


def hand(*changes: tuple[str, str]) -> Program:
    """The kernel by hand with its left factor in registers, each lane's own."""
    text = HAND.replace("PRODUCT", PRODUCT).replace("m64n64k16_f16", "m64n64k16_f16_left_registers")
    text = text.replace('As: f16[128, 64] in "shared" @("swizzle.0", 8)', 'As: f16[128, 64] in "wgmma.a"')
    begin, end = (
        text.index('            bound("thread.x") for t in'),
        text.index('            bound("thread.x") for t_1 in'),
    )
    text = text[:begin] + OWN + text[end:]
    library = LIBRARY.read_text(encoding="utf-8")
    text = library[: library.index("/// As `wgmma_m64n64k16_f16_left_registers`")] + text
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse_program(Source("p.tsched", text))


def found() -> tuple[Program, DeviceProgram]:
    program = hand()
    return program, lower_device(program, FEATURES)


def test_a_kernel_by_hand_is_right() -> None:
    program, device = found()
    (kernel,) = device.kernels
    assert {b.name: b.size for b in kernel.local} == {"As": 32, "Cf": 32}
    assert run(program, device) == ("", True)
    lines = [x.strip() for x in format_device(device).splitlines()]
    assert [x for x in lines if x.startswith("wgmma.")] == [
        "wgmma.fence Cf As", "wgmma.commit_group", "wgmma.wait_group 0",
    ]  # fmt: skip


@pytest.mark.corpus
def test_each_barrier_is_needed() -> None:
    program, device = found()
    inputs, _ = whole_numbers(program)
    assert check_each_is_needed(device, program, inputs) == 2


SAID = {
    "no fence": (WgmmaFence, MISSING["sums are not done with"][1]),
    "no wait": (WgmmaWait, r"runs `As\[.*\] = A\[.*\]`, and has not waited for its accumulators"),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", SAID)
def test_what_is_missing_around_products_is_found(case: str) -> None:
    """Without a wait the second step stores the factor that the first product still reads."""
    kind, said = SAID[case]
    program, device = found()
    fault, _ = run(program, changed(device, removed(kind)))
    assert re.search(said, fault)


OTHER_LANES = {
    "k % 8 / 2, reg: k / 8 * 4": "k / 4, reg: k % 4 / 2 * 4",
    "i % 16 / 8 * 2 + k % 2": "i % 16 / 8 + k % 2 * 2",
    "warp: i / 16, lane: i % 8 * 4 + k": "warp: 3 - i / 16, lane: i % 8 * 4 + k",
}


@pytest.mark.parametrize("old", OTHER_LANES)
def test_another_layout_of_the_factor_is_refused(old: str) -> None:
    with pytest.raises(TschedError, match=r"lane \d+ of warp 0 has row \d+, term \d+ as element \d+, and row"):
        hand((old, OTHER_LANES[old]))


def test_the_factor_has_no_number_of_lines() -> None:
    with pytest.raises(TschedError, match=r"its operands are `C, A, B, p, 1, 1, 0, 1`"):
        hand(("p, 1, 1, 1; }", "p, 1, 1, 0, 1; }"))
