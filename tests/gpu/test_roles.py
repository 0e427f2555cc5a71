"""Roles: a producer warp starts TMA loads for the consumers, exact for all numbers of slots, and what is wrong is found."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, remarks, sass_of, tool
from tensorc_dsl.backend.cuda.lower.kernels import Role, format_device, inside
from tensorc_dsl.backend.cuda.lower.lower import lower_device, require_room
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tests.gpu.kernels import ptx
from tests.gpu.roles import WORDS, exact, lines, product, roles
from tests.gpu.tensor_cores import run, whole_numbers
from tests.gpu.test_tma import BOX, FEATURES, OPEN, PADDED, hand


def test_what_is_outside_of_an_array_is_zero() -> None:
    program = hand(changes=(*PADDED, *roles()))
    inputs, (a, b) = whole_numbers(program)
    fault, outputs = emulated(lower_device(program, FEATURES), program, inputs)
    expected = np.zeros((16, 32))
    expected[:11, :24] = a @ b
    assert fault == "" and all(np.array_equal(x["C"], expected) for x in outputs)


def test_an_array_of_open_size_is_loaded() -> None:
    assert "has no roles" not in format_device(lower_device(hand(changes=(*OPEN, *roles())), FEATURES))


def test_what_stands_around_roles_is_placed() -> None:
    """No barrier is in the rounds. One warp loads, and each warp of the others says when it has read."""
    assert lines(lower_device(hand(changes=roles()), FEATURES), WORDS) == [
        "mbarrier.init of 6 mbarriers, arrival counts 1, 1, 1, 2, 2, 2",
        "barrier",
        "role fetch, one of 32 threads {",
        "for s in 0 .. 5 {",
        "mbarrier.try_wait 3 + s % 3",
        "one thread starts TMA loads, expect_tx 3072 bytes at mbarrier s % 3 {",
        "role use, 64 threads {",
        "for s in 0 .. 5 {",
        "mbarrier.try_wait s % 3",
        "mbarrier.arrive 3 + s % 3",
    ]


@pytest.mark.corpus
def test_products_are_under_way_while_the_last_slot_is_released(tmp_path: Path) -> None:
    """Two warpgroups take registers from the producer. The products of a round read its slot until the next round
    has waited for them, so it is released there."""
    program, found = product(128, 5, 2)
    assert lines(found, (*WORDS, "wgmma", "for k")) == [
        "mbarrier.init of 6 mbarriers, arrival counts 1, 1, 1, 8, 8, 8",
        "barrier",
        "role producer, one of 128 threads, setmaxnreg 32 {",
        "for k_0 in 0 .. 5 {",
        "mbarrier.try_wait 3 + k_0 % 3",
        "one thread starts TMA loads, expect_tx 24576 bytes at mbarrier k_0 % 3 {",
        "role consumer, 256 threads, setmaxnreg 232 {",
        "for k_0 in 0 .. 5 {",
        "mbarrier.try_wait k_0 % 3",
        "wgmma.fence C_wgmma_c",
        "wgmma",
        "wgmma.commit_group",
        "wgmma.wait_group 1",
        "if k_0 > 0 {",
        "mbarrier.arrive (k_0 + 2) % 3 + 3",
        "wgmma.wait_group 0",
        "mbarrier.arrive 4",
    ]
    assert exact(program, found) == ("", True)
    code = ptx(found, "sm_90a")
    assert re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32 \d+", code) == [
        "setmaxnreg.dec.sync.aligned.u32 32",
        "setmaxnreg.inc.sync.aligned.u32 232",
    ]
    if tool("ptxas") is not None:
        said = assemble(code, "sm_90a", tmp_path / "k.cubin")
        assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)) == {"0"}
        assert not remarks(said) and "Used 168 registers" in said
        # What ptxas says where it cannot know the registers at the start is what the line above looks for.
        open_ended = re.sub(r"\.maxntid [\d, ]+", "", code)
        told = remarks(assemble(open_ended, "sm_90a", tmp_path / "k.cubin"))
        assert any("C7508" in line for line in told)
    if tool("ptxas") is not None and tool("nvdisasm") is not None:
        machine = sass_of(code, "sm_90a")
        assert re.findall(r"USETMAXREG\.(\w+)", machine) == ["DEALLOC", "TRY_ALLOC"]
        assert machine.count("BAR.SYNC") == 1


def test_one_warpgroup_has_a_producer_warp_and_keeps_its_registers() -> None:
    program, found = product(64, 3, 1)
    assert "role producer, one of 32 threads {" in lines(found, ("role ",))
    assert exact(program, found) == ("", True)


REGISTERS: dict[str, tuple[int, str, str]] = {
    "too many": (
        256,
        "40, 240",
        (
            "40 registers for each of 128 threads of `fetch` and 240 for each of 256 of `use` do not add up: all begin with"
            " 168, 64512 together, which a thread of `fetch` gives and one of `use` takes; give `use` 168 to 232"
        ),
    ),
    "fewer than at the start": (
        256,
        "40, 160",
        (
            "40 registers for each of 128 threads of `fetch` and 160 for each of 256 of `use` do not add up: all begin with"
            " 168, 64512 together, which a thread of `fetch` gives and one of `use` takes; give `use` 168 to 232"
        ),
    ),
    "few threads": (
        128,
        "40, 240",
        (
            "40 registers for each of 128 threads of `fetch` and 240 for each of 128 of `use` do not add up: all begin with"
            " 255, 65280 together, which a thread of `fetch` gives and one of `use` takes; leave `registers` out, or give"
            " others"
        ),
    ),
    "no whole warpgroups": (
        64,
        "40, 240",
        "the 64 threads of `s` are no whole warpgroups, which change their registers together",
    ),
}


def threads(count: int) -> tuple[tuple[str, str], ...]:
    """The threads of the product by hand: so many for each row, of whose columns each has one or more."""
    parts = count // 16
    return (
        ("for t in 64", f"for t in {count}"),
        ("t / 4", f"t / {parts}"),
        ("for j_1 in COLUMNS / 4", f"for j_1 in {32 // parts}"),
        ("t % 4 * (COLUMNS / 4)", f"t % {parts} * {32 // parts}"),
    )


@pytest.mark.parametrize("case", REGISTERS)
def test_registers_that_do_not_add_up_are_refused(case: str) -> None:
    count, registers, message = REGISTERS[case]
    with pytest.raises(LowerError) as e:
        lower_device(hand(changes=(*roles(registers=registers), *threads(count))), FEATURES)
    assert str(e.value) == message


def test_registers_that_add_up_are_taken() -> None:
    program = hand(changes=(*roles(registers="40, 232"), *threads(256)))
    found = lower_device(program, FEATURES)
    assert found.kernels[0].threads == 384 and run(program, found) == ("", True)


def test_more_threads_than_a_block_can_have_are_refused() -> None:
    found = lower_device(hand(changes=roles()), FEATURES)
    require_room(found, Target(threads=96))
    with pytest.raises(LowerError) as e:
        require_room(found, Target(threads=95))
    assert str(e.value) == (
        "a block has 96 threads with those of all roles, and up to 95 are there: `fetch` 32, `use` 64; make tiles smaller, or"
        " leave roles out"
    )


NOTES: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "a copy in another role": (
        roles(names="fetch, use, use"),
        "one role has to start TMA loads that run ahead and nothing else, and a second one all other statements",
    ),
    "three roles": (
        roles(names="fetch, load, use"),
        "one role has to start TMA loads that run ahead and nothing else, and a second one all other statements",
    ),
    "waited for at once": (
        (*roles(), ('@("pipeline.asynchronous", "0") ', "")),
        "one role has to start TMA loads that run ahead and nothing else, and a second one all other statements",
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", NOTES)
def test_a_pipeline_without_roles_says_why_and_is_right(case: str) -> None:
    changes, why = NOTES[case]
    program = hand(changes=changes)
    found = lower_device(program, FEATURES)
    assert f"// `s` has no roles: {why}" in format_device(found)
    assert not any(isinstance(s, Role) for k in found.kernels for s in inside(k.body))
    assert run(program, found) == ("", True)


TILES = """
program p(A: f16[48, 96], C: f32[48, 32]) {
    buffer As: f16[16, 32] in "shared" @("swizzle.0", 8)
    buffer T: f32[16] in "shared"
    bound("block.x") for b in 1 {
        for tile in 3 {
            pipelined for s in 3 NOTES {
                for r in 2 {
                    tensorized for i in 8 @("intrinsic", "box") {
                        tensorized for k in 32 {
                            block As {
                                spatial vi in 16 = r * 8 + i; spatial vk in 32 = k
                                spatial vs in 3 = s; spatial vt in 3 = tile
                                As[vi, vk] = A[vt * 16 + vi, vs * 32 + vk]
                            }
                        }
                    }
                }
                bound("thread.x") for t in 64 {
                    block T {
                        spatial vi in 16 = t / 4; spatial vs in 3 = s; spatial vt in 3 = tile
                        where t % 4 < 1
                        T[vi] = f32(As[vi, 31]) * 2.0
                    }
                }
                bound("thread.x") for t_1 in 64 {
                    for j in 8 {
                        block C {
                            spatial vi in 16 = t_1 / 4; spatial vj in 32 = t_1 % 4 * 8 + j
                            spatial vt in 3 = tile; reduce vs in 3 = s
                            init { C[vt * 16 + vi, vj] = 0.0 }
                            C[vt * 16 + vi, vj] = C[vt * 16 + vi, vj] + f32(As[vi, vj]) + T[15 - vi]
                        }
                    }
                }
            }
        }
    }
}
"""


NOTED = (
    '@("pipeline.asynchronous", "0") @("pipeline.order", "0, 1, 2") @("pipeline.stages", "0, 1, 1")'
    ' @("specialize.roles", "fetch, use, use")'
)


def tiles() -> Program:
    box = BOX.replace("COLUMNS", "32").replace("SWIZZLE", "64")
    return parse_program(Source("p.tsched", box + TILES.replace("NOTES", NOTED)))


def test_phases_go_on_in_the_next_tile_and_barriers_are_those_of_a_role() -> None:
    """Three tiles of three rounds by two slots: the copies of a tile begin while the one before is computed. The threads
    that use them meet at barriers of their own."""
    program = tiles()
    found = lower_device(program, FEATURES)
    assert lines(found, tuple(w for w in WORDS if w != "if")) == [
        "mbarrier.init of 4 mbarriers, arrival counts 1, 1, 2, 2",
        "barrier",
        "role fetch, one of 32 threads {",
        "for tile in 0 .. 3 {",
        "for s in 0 .. 3 {",
        "mbarrier.try_wait 2 + s % 2",
        "one thread starts TMA loads, expect_tx 1024 bytes at mbarrier s % 2 {",
        "role use, 64 threads {",
        "for tile in 0 .. 3 {",
        "for s in 0 .. 3 {",
        "mbarrier.try_wait s % 2",
        "barrier",
        "barrier",
        "mbarrier.arrive 2 + s % 2",
    ]
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (48, 96)).astype(np.float16)
    fault, outputs = emulated(found, program, {"A": a})
    parts = a.astype(float).reshape(3, 16, 3, 32)
    expected = (parts + 2 * parts[:, ::-1, :, 31:]).sum(axis=2).reshape(48, 32)
    assert fault == "" and all(np.array_equal(x["C"], expected) for x in outputs)
    assert len(re.findall(r"bar\S*sync\S*\s+1, 64", ptx(found, "sm_90a"))) == 2
