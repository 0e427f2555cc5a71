"""The counts of `bench.gpu_static`: loops, ways through them, and what is moved, of machine code that is written here."""

from __future__ import annotations

import pytest

from bench.gpu_static import CASES, Case, count, kernels_of

SASS = """\
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 BRA `(.L_x_9) ;
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_9:
        /*0030*/                   MOV R0, R1 ;
.L_x_1:
        /*0040*/               @P1 BRA `(.L_x_2) ;
        /*0050*/                   FADD R1, R1, R2 ;
        /*0060*/                   FADD R1, R1, R3 ;
.L_x_2:
        /*0070*/                   HGMMA.64x64x16.F32 R24, R56, gdesc[UR16] ;
        /*0080*/               @P0 BRA `(.L_x_1) ;
.L_x_3:
        /*0090*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2] ;
        /*00a0*/              @!P0 BRA `(.L_x_3) ;
        /*00b0*/                   STG.E desc[UR4][R2.64], R4 ;
        /*00c0*/                   EXIT ;
        /*00d0*/                   MOV R0, R1 ;
"""


def test_the_shortest_way_through_a_loop_of_products_is_counted() -> None:
    (kernel,) = kernels_of(SASS)
    assert len(kernel.ops) == 14
    assert kernel.loops == ((4, 8),)
    assert kernel.path(4, 8, lambda op: op.products) == (64 * 64 * 16 // 4, 3)
    found = count([kernel], Case("", "", {}, "", {}, products=2 * 64 * 64 * 16 // 4))
    assert (found.step, found.accesses) == (6.0, {"LDG.128": 1, "STG.32": 1})


def test_the_way_that_moves_the_most_is_counted_to_the_end() -> None:
    (kernel,) = kernels_of(SASS)
    work, steps = kernel.path(0, len(kernel.ops) - 1, lambda op: op.moved)
    assert (work, steps) == (16 + 4, 11)
    found = count([kernel], Case("", "", {}, "", {}, once="LDG."))
    assert found.loops
    assert found.step == pytest.approx(32 * 11 / 4)


def test_cases_are_over_targets_that_there_are() -> None:
    assert {t for c in CASES.values() for t in c.targets} == {"sm_80", "sm_90a"}
    assert all(c.products or c.once for c in CASES.values())
