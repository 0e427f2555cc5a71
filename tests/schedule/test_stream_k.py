"""Ranges over the steps of tiles: random sizes against the reference, and wrong ranges, which the validator finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.primitives import stream_k
from tensorc_dsl.schedule.primitives.stream_k import EqualRanges
from tensorc_dsl.schedule.step import BlockRef, LoopRef
from tests.affine.test_ranges import FAULTS
from tests.examples import examples
from tests.programs import proof_fault, random_inputs

PRODUCT = """
program product(A: i32[{m}, {k}], B: i32[{k}, {n}], C: i32[{m}, {n}]) {{
    for i in {m}, j in {n}, k in {k} {{
        block C {{
            spatial vi in {m} = i
            spatial vj in {n} = j
            reduce vk in {k} = k
            init {{ C[vi, vj] = 0 }}
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        }}
    }}
}}
"""


def product_of(m: int, n: int, k: int) -> Program:
    return parse_program(Source("product", PRODUCT.format(m=m, n=n, k=k)))


def streamed(program: Program, tile: tuple[int, int, int], ranges: int) -> Program:
    """The product in tiles, whose steps are shared among so many ranges, or as many as there are steps."""
    for loop, size in zip("ijk", tile, strict=True):
        program = apply(program, "split", LoopRef(loop), (None, size), partial=True).program
    names = [LoopRef(f"{v}_{n}") for v, n in (("i", 0), ("j", 0), ("k", 0), ("i", 1), ("j", 1), ("k", 1))]
    program = apply(program, "reorder", *names).program
    program = apply(program, "fuse", *names[:2]).program
    sizes = [program.buffer("C").shape[d] for d in (0, 1)] + [program.buffer("A").shape[1]]
    steps = np.prod([-(-getattr(e, "value", 0) // n) for e, n in zip(sizes, tile, strict=True)])
    refs = BlockRef("C"), LoopRef("i_0_j_0"), LoopRef("k_0")
    return stream_k.stream_k(program, *refs, min(ranges, int(steps))).program  # `apply` would keep the result


SMALL, TILES, TERMS = st.integers(1, 11), st.integers(1, 5), st.integers(6, 30)


@settings(max_examples=examples(25))
@given(sizes=st.tuples(SMALL, SMALL, TERMS), tile=st.tuples(TILES, TILES, TILES), ranges=st.integers(1, 30))
def test_any_product_in_any_ranges_is_exact(
    sizes: tuple[int, int, int], tile: tuple[int, int, int], ranges: int
) -> None:
    before = product_of(*sizes)
    after = streamed(before, tile, ranges)
    inputs = random_inputs(before)
    np.testing.assert_array_equal(interpret(after, inputs)["C"], interpret(before, inputs)["C"])


@pytest.mark.corpus
@pytest.mark.parametrize("sizes", [(8, 8, 24), (1, 1, 29), (4, 8, 24), (9, 7, 20)])
@pytest.mark.parametrize("ranges", [1, 3, 7])
def test_the_validator_proves_them(sizes: tuple[int, int, int], ranges: int) -> None:
    before = product_of(*sizes)
    assert proof_fault(before, streamed(before, (4, 4, 3), ranges)) == ""


@pytest.mark.corpus
@pytest.mark.parametrize("fault", FAULTS)
def test_the_validator_finds_a_wrong_range(fault: type[EqualRanges], monkeypatch: pytest.MonkeyPatch) -> None:
    before = product_of(8, 12, 24)
    assert proof_fault(before, streamed(before, (4, 4, 2), 4)) == ""
    monkeypatch.setattr(stream_k, "EqualRanges", fault)
    assert proof_fault(before, streamed(before, (4, 4, 2), 4)) != ""
