"""What inlining computes twice, and which stages keep a part of what they map."""

from __future__ import annotations

from functools import partial

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.step import BlockRef

READ = """
program p(A: f32[6, 8], Y: f32[6, 8], Z: f32[3, 8], C: f32[6, 8, 3], D: f32[6, 8, 16]) {
    buffer S: f32[6, 8]
    for i in 6, j in 8 { block stage {
        spatial vi in 6 = i
        spatial vj in 8 = j
        S[vi, vj] = A[vi, vj] * A[vi, vj] + 1.0
    } }
    %s
}
"""


def reader(buffer: str, rows: int, value: str) -> str:
    """A block over `rows` rows of 8 elements."""
    iters = f"spatial vi in {rows} = i\nspatial vj in 8 = j\n"
    return f"for i in {rows}, j in 8 {{ block R_{buffer} {{\n{iters}{buffer}[vi, vj] = {value}\n}} }}\n"


def channels(buffer: str, count: int, value: str) -> str:
    """A block over 6 rows of 8 elements with channels."""
    iters = f"spatial vi in 6 = i\nspatial vj in 8 = j\nspatial vc in {count} = c\n"
    return f"for i in 6, j in 8, c in {count} {{ block R_{buffer} {{\n{iters}{buffer}[vi, vj, vc] = {value}\n}} }}\n"


WHOLE = partial(reader, "Y", 6)
HALF = partial(reader, "Z", 3)


@pytest.mark.parametrize(
    ("readers", "in_place", "more"),
    [
        # The stage's work is 3: a read, a product and a sum; without a read of it 2 more.
        ([WHOLE("S[vi, vj]")], True, 2),
        ([WHOLE("S[vi, vj] * S[vi, vj]")], True, 2),
        ([WHOLE("S[vi, 7 - vj]")], False, 2),
        ([WHOLE("S[vi, vj] + S[5 - vi, vj]")], False, 4),
        ([WHOLE("S[vi, vj] + A[vi, vj]")], True, 1),
        ([HALF("S[2 * vi, vj] + S[2 * vi + 1, vj]")], False, 2),
        ([HALF("S[vi, vj]")], False, 1),
        ([WHOLE("S[vi, vj]"), HALF("S[vi, vj]")], False, 3),
        ([channels("C", 3, "S[vi, vj]")], False, 2),
        ([channels("C", 3, "S[vi, vj] if vc == 1 else S[vi, 7 - vj]")], False, 4),
        ([channels("D", 16, "S[vi, vj]")], False, 32),
    ],
)  # fmt: skip
def test_what_inlining_computes_twice_is_counted(readers: list[str], in_place: bool, more: int) -> None:
    program = parse_program(Source("p", READ % " ".join(readers)))
    asked = QUERIES[BlockRef]
    assert asked["work"].function(program, BlockRef("stage")) == 3
    assert asked["is_read_in_place"].function(program, BlockRef("stage")) is in_place
    assert asked["inlined_work"].function(program, BlockRef("stage")) == more


ONE = """
program p(A: f32[1, 8], Y: f32[1, 8]) {
    buffer S: f32[1, 8]
    for i in 1, j in 8 { block stage {
        spatial vi in 1 = i
        spatial vj in 8 = j
        S[vi, vj] = A[vi, vj] + 1.0
    } }
    for i in 1, j in 8 { block reader {
        spatial vi in 1 = i
        spatial vj in 8 = j
        Y[vi, vj] = S[0, %s]
    } }
}
"""


@pytest.mark.parametrize(("read", "in_place"), [("vj", True), ("7 - vj", False)])
def test_along_a_single_iteration_each_read_is_in_place(read: str, in_place: bool) -> None:
    """Models of one image read the first of it by its number."""
    program = parse_program(Source("p", ONE % read))
    assert QUERIES[BlockRef]["is_read_in_place"].function(program, BlockRef("stage")) is in_place


ROLLED = """
program p(A: f32[9, 5], Y: f32[7, 5]) {
    buffer B: f32[3, 5]
    for i in 9, j in 5 { block keeps {
        spatial vi in 9 = i
        spatial vj in 5 = j
        B[vi % 3, vj] = A[vi, vj]
    } }
    for i in 9, j in 5 { block other {
        spatial vi in 9 = i
        spatial vj in 5 = j
        B[vi % 3, vi % 3] = A[vi, vj]
    } }
    for i in 7, j in 5 { block maps {
        spatial vi in 7 = i
        spatial vj in 5 = j
        Y[vi, vj] = B[vi % 3, vj]
    } }
}
"""


@pytest.mark.parametrize(("block", "rolled"), [("keeps", True), ("other", False), ("maps", False)])
def test_a_block_is_rolled_if_it_keeps_a_part_of_what_it_maps(block: str, rolled: bool) -> None:
    program = parse_program(Source("p", ROLLED))
    assert QUERIES[BlockRef]["is_rolled"].function(program, BlockRef(block)) is rolled
