"""Vectors of a row that lie between two others are made of these: the same elements, fewer loads, none beyond the array."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.codegen.compile import compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.refs import LoopRef
from tests.codegen.native import program, run

WIDE = Target(
    kind="llvm", triple="x86_64-unknown-linux-gnu", cpu="znver4", features="+avx512f", vector_bits=512, cores=1
)


def row(n: int, shifts: tuple[int, ...], t: str = "f32", buffer: str = "A") -> Program:
    """A row of which each element is the sum of those at the given distances behind it, from 0 on."""
    value = " + ".join(f"{buffer}[vj + {k}]" for k in shifts)
    p = program(f"""
program row(A: {t}[{n + max(shifts)}], B: {t}[{n}]) {{
    for j in {n} {{
        block B {{ spatial vj in {n} = j; B[vj] = {value} }}
    }}
}}""")
    return apply(p, "vectorize", LoopRef("j")).program


def vectors(p: Program) -> tuple[int, int]:
    """The vectors of 16 numbers that are loaded, and those that are made of two others."""
    text = compile_kernel(lower_cpu(p), WIDE, 1).llvm_ir
    return len(re.findall(r"load <16 x float>", text)), len(re.findall(r"shufflevector <16 x float> %", text))


@pytest.mark.parametrize("n", [1, 16, 17, 48, 64, 97, 128, 131, 300])
@pytest.mark.parametrize("shifts", [(0, 1, 2), (5, 0, 3), (0, 16, 1), (2, 31, 17), (0, 15, 30)])
def test_elements_are_those_of_the_array(n: int, shifts: tuple[int, ...]) -> None:
    a = np.arange(n + max(shifts), dtype=np.int32) ** 2
    np.testing.assert_array_equal(run(row(n, shifts, "i32"), {"A": a})["B"], sum(a[k : k + n] for k in shifts))


def test_doubles_have_half_as_many_lanes() -> None:
    a = np.random.default_rng(0).random(77)
    np.testing.assert_allclose(run(row(75, (0, 1, 2), "f64"), {"A": a})["B"], a[:75] + a[1:76] + a[2:], rtol=1e-15)


def test_vectors_between_others_are_not_loaded() -> None:
    # Four vectors at once: eight of the twelve begin at a number of their own; six of these lie between two others.
    assert vectors(row(64, (0, 1, 2))) == (6, 6)
    assert vectors(row(64, (0,))) == (4, 0)
    assert vectors(row(16, (0, 1, 2))) == (3, 0)
    # Vectors at 16, 32, and so on are those of 0 of the next one.
    assert vectors(row(64, (0, 16))) == (5, 0)
    # Most begin one number behind a line. What is made is that which would be in two lines.
    assert vectors(row(64, (0, 1, 17))) == (6, 3)
