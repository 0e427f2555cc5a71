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
from tensorc_dsl.schedule.step import LoopRef
from tests.codegen.native import program, run

WIDE = Target(
    kind="llvm", triple="x86_64-unknown-linux-gnu", cpu="znver4", features="+avx512f", vector_bits=512, cores=1
)


def row(n: int, shifts: tuple[int, ...], t: str = "f32") -> Program:
    """A step from one row to another of the same buffer: each element is the sum of those so far behind it."""
    value = " + ".join(f"S[0, vj + {k}]" for k in shifts)
    p = program(f"""
program row(A: {t}[{n + max(shifts)}], B: {t}[{n}]) {{
    buffer S: {t}[2, {n + max(shifts)}]
    for a in {n + max(shifts)} {{
        block C {{ spatial va in {n + max(shifts)} = a; S[0, va] = A[va] }}
    }}
    for j in {n} {{
        block S {{ spatial vj in {n} = j; S[1, vj] = {value} }}
    }}
    for b in {n} {{
        block B {{ spatial vb in {n} = b; B[vb] = S[1, vb] }}
    }}
}}""")
    return apply(p, "vectorize", LoopRef("j")).program


def vectors(n: int, shifts: tuple[int, ...]) -> tuple[int, int]:
    """How many more vectors of 16 numbers a row loads than one that reads no neighbours, and how many are made of two."""
    text, alone = (compile_kernel(lower_cpu(p), WIDE, 1).llvm_ir for p in (row(n, shifts), row(n, shifts[:1])))
    more = text.count("load <16 x float>") - alone.count("load <16 x float>")
    return more, len(re.findall(r"shufflevector <16 x float> %", text))


@pytest.mark.corpus
@pytest.mark.parametrize("n", [1, 16, 17, 48, 64, 97, 128, 131, 300])
@pytest.mark.parametrize("shifts", [(0, 1, 2), (5, 0, 3), (0, 16, 1), (2, 31, 17), (0, 15, 30)])
def test_elements_are_those_of_the_array(n: int, shifts: tuple[int, ...]) -> None:
    a = np.arange(n + max(shifts), dtype=np.int32) ** 2
    np.testing.assert_array_equal(run(row(n, shifts, "i32"), {"A": a})["B"], sum(a[k : k + n] for k in shifts))


def test_doubles_have_half_as_many_lanes() -> None:
    a = np.random.default_rng(0).random(77)
    np.testing.assert_allclose(run(row(75, (0, 1, 2), "f64"), {"A": a})["B"], a[:75] + a[1:76] + a[2:], rtol=1e-15)


def test_vectors_between_others_are_not_loaded() -> None:
    # Of four vectors at once, those at 1, 2, 17, 18, 33 and 34 lie between those at 0, 16, 32 and 48. Others end the row.
    assert vectors(64, (0, 1, 2)) == (2, 6)
    assert vectors(16, (0, 1, 2)) == (2, 0)
    # With 1 as the beginning of all, seven would lie between two others. But those are in two lines each.
    assert vectors(64, (0, 1, 2, 17))[1] == 6
