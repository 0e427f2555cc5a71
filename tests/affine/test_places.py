"""Scans that keep some of their steps only: what is accepted is compared with what the programs compute."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.sets.dependence import keeps_places
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.nests import dimension_modulo
from tests.programs import random_inputs

STEPS, ROWS = 7, 5


def scan(back: str, loops: str, read: str, falls: bool, reach: int) -> Program:
    """A scan that reads `reach` steps back, at the row `back`; then its step `read` is read."""

    def step(text: str) -> str:
        return f"{STEPS - 1} - ({text})" if falls else text

    return parse_program(
        Source(
            "scan",
            f"""program steps(A: f32[{ROWS}], B: f32[2, {ROWS}]) {{
    buffer S: f32[{STEPS}, {ROWS}]
    {loops} {{
        block S {{
            scan vt in {STEPS} = t
            spatial vi in {ROWS} = i
            S[{step("vt")}, vi] = A[vi] if vt < {reach} else S[{step(f"vt - {reach}")}, {back}] * 0.5 + A[vi]
        }}
    {"}" * (1 + loops.count("{"))}
    for u in 2, x in {ROWS} {{
        block B {{
            spatial vu in 2 = u
            spatial vi in {ROWS} = x
            B[vu, vi] = S[{step(read)}, vi]
        }}
    }}
}}
""",
        )
    )


ROW_BACK = ("vi", f"{ROWS - 1} - vi", "max(vi - 1, 0)", f"min(vi + 1, {ROWS - 1})")
LOOPS = (f"for t in {STEPS}, i in {ROWS}", f"for i in {ROWS}, t in {STEPS}")
READS = (f"{STEPS - 1}", f"{STEPS - 1} - vu", f"{STEPS - 1} - vu * 2", "vu")


@pytest.mark.corpus
@pytest.mark.parametrize("reach", [1, 2])
def test_what_is_kept_is_what_is_read(reach: int) -> None:
    accepted = 0
    for back, loops, read, falls, size in product(ROW_BACK, LOOPS, READS, (False, True), (1, 2, 3)):
        if loops is LOOPS[1] and back != "vi" and back != "max(vi - 1, 0)":
            continue  # rows in order of which a step reads a later one are no scan
        before = scan(back, loops, read, falls, reach)
        buffer = before.buffer("S")
        inputs = random_inputs(before)
        after = dimension_modulo(before, buffer, 0, size)
        right = np.array_equal(interpret(before, inputs)["B"], interpret(after, inputs)["B"])
        kept = keeps_places(before, buffer, 0, size)
        # Where it computes the same and is not accepted, rows or a number of steps make it so by chance.
        assert right or not kept, (back, loops, read, falls, size)
        accepted += kept
    assert accepted >= 30


@pytest.mark.parametrize("kind", ["parallel ", "vectorized "])
@pytest.mark.parametrize(("back", "size", "kept"), [("vi", 1, True), (ROW_BACK[1], 1, False), (ROW_BACK[1], 2, True)])
def test_rows_at_once_may_run_in_any_order(kind: str, back: str, size: int, kept: bool) -> None:
    program = scan(back, f"for t in {STEPS} {{ {kind}for i in {ROWS}", READS[0], False, 1)
    assert keeps_places(program, program.buffer("S"), 0, size) == kept
