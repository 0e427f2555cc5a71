"""Instructions of warpgroups: kernels that multiply beside their threads are exact, and what is wrong with one is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorc_dsl.backend.cuda.codegen import ptx as code
from tensorc_dsl.backend.cuda.lower import shared_layout
from tensorc_dsl.backend.cuda.lower.kernels import (
    Device,
    Guard,
    ProxyFence,
    Steps,
    WgmmaFence,
    WgmmaWait,
    format_device,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.lower.shared_layout import Descriptor
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import Compare, index
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import LowerError
from tests.gpu.kernels import ptx
from tests.gpu.tensor_cores import run, whole_numbers
from tests.gpu.test_barriers import check_each_is_needed
from tests.gpu.test_pipeline_faults import changed

STDLIB = Path(__file__).parents[2] / "stdlib" / "intrinsics" / "hopper.tsched"

FEATURES = ("sm_80", "sm_90", "sm_90a")

HAND = """
program p(A: f16[128, 128], B: f16[128, 64], C: f32[128, 64]) {
    buffer As: f16[128, 64] in "shared" @("swizzle.0", 8)
    buffer Bs: f16[64, 64] in "shared" @("swizzle.0", 8)
    buffer Cf: f32[128, 64] in "wgmma.c"
    bound("block.x") for b in 1 {
        bound("warpgroup") for g in 2 {
            bound("warp") for w in 4 {
                bound("lane") for l in 32 {
                    for n in 8 {
                        for h in 2 {
                            for p in 2 {
                                block Cz {
                                    spatial vi in 128 = g * 64 + w * 16 + h * 8 + l / 4
                                    spatial vj in 64 = n * 8 + l % 4 * 2 + p
                                    Cf[vi, vj] = 0.0
                                }
                            }
                        }
                    }
                }
            }
        }
        for s in 2 {
            bound("thread.x") for t in 256 {
                for r in 4 {
                    vectorized for e in 8 {
                        block As {
                            spatial vi in 128 = r * 32 + t / 8; spatial vk in 64 = t % 8 * 8 + e
                            spatial vs in 2 = s
                            As[vi, vk] = A[vi, vs * 64 + vk]
                        }
                    }
                }
            }
            bound("thread.x") for t_1 in 256 {
                for r_1 in 2 {
                    vectorized for e_1 in 8 {
                        block Bs {
                            spatial vk in 64 = r_1 * 32 + t_1 / 8; spatial vj in 64 = t_1 % 8 * 8 + e_1
                            spatial vs in 2 = s
                            Bs[vk, vj] = B[vs * 64 + vk, vj]
                        }
                    }
                }
            }
            bound("warpgroup") for g_1 in 2 {
                for q in 4 {
                    PRODUCT
                }
            }
        }
        bound("warpgroup") for g_2 in 2 {
            bound("warp") for w_1 in 4 {
                bound("lane") for l_1 in 32 {
                    for n_1 in 8 {
                        for h_1 in 2 {
                            vectorized for p_1 in 2 {
                                block C {
                                    spatial vi in 128 = g_2 * 64 + w_1 * 16 + h_1 * 8 + l_1 / 4
                                    spatial vj in 64 = n_1 * 8 + l_1 % 4 * 2 + p_1
                                    C[vi, vj] = Cf[vi, vj]
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
"""


def hand(*changes: tuple[str, str], swizzle: int = 128) -> Program:
    """The kernel with changes; the lines of its left factor have so many bytes."""
    text = HAND
    for old, new in changes or (("PRODUCT", PRODUCT),):
        assert old in text, old
        text = text.replace(old, new)
    library = STDLIB.read_text(encoding="utf-8")
    first = library[: library.index("///", library.index("intrinsic"))]
    first = first.replace("(line: i, element: k, swizzle: 128)", f"(line: i, element: k, swizzle: {swizzle})")
    return parse_program(Source("p.tsched", first + PLAIN + text))


PRODUCT = """
tensorized for i in 64 @("intrinsic", "wgmma_m64n64k16_f16") {
    tensorized for j in 64 {
        tensorized for k in 16 {
            block Cs {
                spatial vi in 128 = g_1 * 64 + i; spatial vj in 64 = j; reduce vk in 64 = q * 16 + k
                Cf[vi, vj] = Cf[vi, vj] + f32(As[vi, vk]) * f32(Bs[vk, vj])
            }
        }
    }
}
"""

SHORT = """
tensorized for i in 64 @("intrinsic", "plain") {
    tensorized for m in 8 {
        tensorized for j in 8 {
            tensorized for h in 2 {
                tensorized for k in 8 {
                    block Cs {
                        spatial vi in 128 = g_1 * 64 + i; spatial vm in 8 = m; spatial vj in 8 = j
                        reduce vh in 8 = q * 2 + h; reduce vk in 8 = k
                        Cf[vi, vm, vj] = Cf[vi, vm, vj] + f32(As[vh, vi, vk]) * f32(Bs[vm, vh, vk, vj])
                    }
                }
            }
        }
    }
}
"""

TEXT = (
    "{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 C, A, B, p, 1, 1, 0, 1; }"
)

PLAIN = """
intrinsic plain
    desc (A: f16[2, 64, 8] in "shared.a", B: f16[8, 2, 8, 8] in "shared.b", C: f32[64, 8, 8] in "wgmma.c") {
        C[i, m, j] += sum[h, k] f32(A[h, i, k]) * f32(B[m, h, k, j])
    }
    layout "shared.a" (h, i, k) -> (line: i, element: h * 8 + k, swizzle: 0)
    layout "shared.b" (m, h, k, j) -> (line: h * 8 + k, element: m * 8 + j, swizzle: 0)
    layout "wgmma.c" (i, m, j) -> (warp: i / 16, lane: i % 8 * 4 + j / 2, reg: m * 4 + i % 16 / 8 * 2 + j % 2)
    lower cuda requires "sm_90a" asm "TEXT"
""".replace("TEXT", TEXT)

SHORT_LINES = (
    ('As: f16[128, 64] in "shared" @("swizzle.0", 8)', 'As: f16[8, 128, 8] in "shared"'),
    ('Bs: f16[64, 64] in "shared" @("swizzle.0", 8)', 'Bs: f16[8, 8, 8, 8] in "shared"'),
    ("Cf: f32[128, 64]", "Cf: f32[128, 8, 8]"),
    ("As[vi, vk] = A", "As[vk / 8, vi, vk % 8] = A"),
    ("Bs[vk, vj] = B", "Bs[vj / 8, vk / 8, vk % 8, vj % 8] = B"),
    ("Cf[vi, vj] = 0.0", "Cf[vi, vj / 8, vj % 8] = 0.0"),
    ("= Cf[vi, vj]\n", "= Cf[vi, vj / 8, vj % 8]\n"),
    ("PRODUCT", SHORT),
)
"""The kernel without swizzles: lines have 16 bytes, so both distances of a descriptor count."""


def short_lines() -> Program:
    return hand(*SHORT_LINES)


def test_lines_without_a_swizzle_have_two_distances() -> None:
    program = short_lines()
    assert run(program, lower_device(program, FEATURES)) == ("", True)


def test_a_kernel_by_hand_is_right() -> None:
    program = hand()
    found = lower_device(program, FEATURES)
    assert found.kernels[0].threads == 256
    assert [(b.name, b.size) for b in found.kernels[0].local] == [("Cf", 32)]
    assert run(program, found) == ("", True)


@pytest.mark.parametrize("lines", ["long", "short"])
def test_descriptors_of_a_step_are_a_constant_apart(lines: str) -> None:
    """Between two products stand at most an addition of 32 bits for each factor, and the constant half of its descriptor."""
    code = ptx(lower_device(hand() if lines == "long" else short_lines(), FEATURES), "sm_90a")
    _, *between, _ = code.split("wgmma.mma_async")
    assert len(between) == 3
    for part in between:
        opcodes = [x.split()[0] for x in map(str.strip, part.splitlines()[1:]) if x and not x.startswith(("//", "{"))]
        assert [x for x in opcodes if x != "add.s32"] == ["mov.b64"] * 2 and len(opcodes) <= 4


def narrow(depth: int) -> tuple[tuple[str, str], ...]:
    """Steps of fewer products: lines of the left factor have so many numbers."""
    parts, lanes = depth // 8, depth // 4
    return (
        ("PRODUCT", PRODUCT),
        ("As: f16[128, 64]", f"As: f16[128, {depth}]"),
        ("Bs: f16[64, 64]", f"Bs: f16[{depth}, 64]"),
        ("s in 2 {", f"s in {128 // depth} {{"),
        ("spatial vs in 2 = s", f"spatial vs in {128 // depth} = s"),
        ("for r in 4", f"for r in {depth // 16}"),
        ("vi in 128 = r * 32 + t / 8", f"vi in 128 = r * {256 // parts} + t / {parts}"),
        ("spatial vk in 64 = t % 8 * 8 + e\n", f"spatial vk in {depth} = t % {parts} * 8 + e\n"),
        ("vs * 64", f"vs * {depth}"),
        ("for r_1 in 2", "for r_1 in 1"),
        ("for e_1 in 8", f"for e_1 in {lanes}"),
        ("spatial vk in 64 = r_1 * 32 + t_1 / 8", f"spatial vk in {depth} = r_1 * 32 + t_1 / {64 // lanes}"),
        ("t_1 % 8 * 8 + e_1", f"t_1 % {64 // lanes} * {lanes} + e_1"),
        ("for q in 4", f"for q in {depth // 16}"),
        ("reduce vk in 64", f"reduce vk in {depth}"),
    )


@pytest.mark.parametrize("swizzle", [64, 32])
def test_shorter_lines_have_swizzles_of_their_own(swizzle: int) -> None:
    program = hand(*narrow(swizzle // 2), swizzle=swizzle)
    assert run(program, lower_device(program, FEATURES)) == ("", True)


def test_what_stands_around_products_is_placed() -> None:
    """Stores are made known before the barrier, sums are done with before the first product, and waited for at the end."""
    text = format_device(lower_device(hand(), FEATURES))
    lines = [x.strip() for x in text.splitlines()]
    of_interest = ("fence", "barrier", "for s", "wgmma")
    assert [x.split("_m64")[0] for x in lines if x.startswith(of_interest)] == [
        "for s in 0 .. 2 {", "barrier", "fence.proxy.async", "barrier", "wgmma.fence Cf", "wgmma",
        "wgmma.commit_group", "wgmma.wait_group 0",
    ]  # fmt: skip


def removed(kind: type[Device]) -> Callable[[Device], Device | None]:
    return lambda s: None if isinstance(s, kind) else s


HIDDEN = (
    r"an instruction of warpgroup 0 of block 0 reads element \d+ of `[AB]s` in `wgmma_m64n64.*\(Cf, As, Bs\)`, which"
)

MISSING: dict[str, tuple[type[Device], str]] = {
    "stores are not made known": (ProxyFence, HIDDEN + r" thread \d+ has stored without fence.proxy.async"),
    "sums are not done with": (
        WgmmaFence,
        r"thread \d+ of block 0 starts `wgmma_m64n.*\)`, and has used its accumulators since wgmma.fence",
    ),
    "no wait": (WgmmaWait, r"runs `C\[.*\] = Cf\[.*\]`, and has not waited for its accumulators"),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", MISSING)
def test_what_is_missing_around_products_is_found(case: str) -> None:
    kind, said = MISSING[case]
    program = hand()
    fault, _ = run(program, changed(lower_device(program, FEATURES), removed(kind)))
    assert re.search(said, fault)


def test_each_barrier_is_needed() -> None:
    program = hand()
    inputs, _ = whole_numbers(program)
    assert check_each_is_needed(lower_device(program, FEATURES), program, inputs) == 2


def test_a_store_before_the_wait_is_found() -> None:
    """The wait stands behind the loop, so the second step stores what the first one reads."""
    program = hand()
    found = lower_device(program, FEATURES)

    def late(s: Device) -> Device:
        if not isinstance(s, Steps):
            return s
        inner = tuple(x for x in s.body if not isinstance(x, WgmmaWait))
        return Guard(Compare("==", index(0), index(0)), (replace(s, body=inner), WgmmaWait(("Cf",))))

    fault, _ = run(program, changed(found, late))
    assert re.search(r"reads element \d+ of `As` .*which thread \d+ has stored before wgmma.wait_group", fault)


@pytest.mark.corpus
@pytest.mark.parametrize("mode", [0, 2, 3])
def test_another_swizzle_in_the_descriptor_is_told_by_the_result(mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(code._MODES, 128, mode)  # pyright: ignore[reportPrivateUsage]
    program = hand()
    fault, right = run(program, lower_device(program, FEATURES))
    assert fault or not right


@pytest.mark.parametrize("name", ["groups", "beyond"])
def test_another_distance_in_the_descriptor_is_told_by_the_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = shared_layout._descriptor  # pyright: ignore[reportPrivateUsage]

    def other(*args: Any) -> Descriptor:
        d = plain(*args)
        return replace(d, groups=d.groups // 2) if name == "groups" else replace(d, beyond=d.beyond // 2)

    monkeypatch.setattr(shared_layout, "_descriptor", other)
    program = short_lines()
    fault, right = run(program, lower_device(program, FEATURES))
    assert fault or not right


LONGER = ("As: f16[128, 64] in", "As: f16[136, 64] in")
"""The left factor has rows to spare."""


def test_a_gpu_without_the_instruction_is_told() -> None:
    with pytest.raises(
        LowerError, match="wgmma_m64n64k16_f16 is for GPUs that are sm_90a, and this one is sm_80, sm_90; draw"
    ):
        lower_device(hand(), FEATURES[:2])


REFUSED: dict[str, tuple[tuple[str, str], str]] = {
    "no swizzle": (
        (' @("swizzle.0", 8)\n    buffer Bs', "\n    buffer Bs"),
        (
            "wgmma_m64n64k16_f16 takes `A` with a swizzle of 128 bytes, and `As` has none; `storage_swizzle` it in units of "
            "8 elements, with rows of 64"
        ),
    ),
    "longer rows": (
        (
            'Bs: f16[64, 64] in "shared" @("swizzle.0", 8)',
            'Bs: f16[64, 64] in "shared" @("align.0", 16) @("offset.0", 8)',
        ),
        (
            "wgmma_m64n64k16_f16 takes `B` in lines of 128 bytes, eight of them in a row, and those of `Bs` are not so: its "
            "elements are 72 and 1 apart; let the rows of `Bs` have 64 elements"
        ),
    ),
    "a tile that begins between": (
        ("f32(As[vi, vk])", "f32(As[vi + 4, vk])"),
        (
            "wgmma_m64n64k16_f16 takes `A` from element `thread / 128 * 4096 + q * 16 + 256` of `As` on, which is not known "
            "to be in the first of 8 lines of 128 bytes, at a multiple of 16 bytes; let tiles have a multiple of 8 lines"
        ),
    ),
    "lanes that have other rows": (
        ("g_2 * 64 + w_1 * 16 + h_1 * 8 + l_1 / 4", "g_2 * 64 + (3 - w_1) * 16 + h_1 * 8 + l_1 / 4"),
        (
            "which is in a fragment, where warp `3 - w_1` has it, and warp `w_1` runs it; divide the loops as the layout "
            '"wgmma.c" does'
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_warpgroup_can_do_is_refused(case: str) -> None:
    change, message = REFUSED[case]
    with pytest.raises(LowerError) as e:
        lower_device(hand(("PRODUCT", PRODUCT), LONGER, change), FEATURES)
    assert str(e.value).endswith(message)
