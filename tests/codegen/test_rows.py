"""What several elements need is computed and loaded once: inputs, which nothing writes, and nothing else."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen.native import check, compiled, program

WINDOW = """
program window(X: f32[{h}, {w}], Y: f32[{h}, {w}]) {{
    for far in {far} {{ for left in {left} {{ unrolled for y in {rows} {{ vectorized for x in 16 {{ block Y {{
        where far * {rows} + y < {h} and left * 16 + x < {w}
        spatial vy in {h} = far * {rows} + y
        spatial vx in {w} = left * 16 + x
        Y[vy, vx] = {value}
    }} }} }} }} }}
}}
"""
VALUES = [
    "X[max(vy - 1, 0), vx] + X[vy, vx] * 2.0 + X[min(vy + 1, {h} - 1), vx]",
    "X[max(vy - 2, 0), max(vx - 1, 0)] - X[vy, vx] + X[(vy + 1) % {h}, (vx + 1) % {w}]",
    "(X[vy - 1, vx] if vy >= 1 else 0.5) - (X[vy + 1, vx] if vy + 1 < {h} else X[vy, {w} - 1 - vx])",
    "X[vy / 2, vx] + X[(vy + 1) / 2, vx / 2] + exp(X[vy, 0])",
]


def window(value: str, h: int, w: int, rows: int) -> str:
    sizes = {"h": h, "w": w, "rows": rows, "far": -(-h // rows), "left": -(-w // 16)}
    return WINDOW.format(value=value.format(**sizes), **sizes)


@pytest.mark.corpus
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("h", "w", "rows"), [(1, 1, 4), (13, 37, 4), (7, 16, 7)])
def test_rows_written_out_compute_what_rows_one_by_one_do(value: str, h: int, w: int, rows: int) -> None:
    rng = np.random.default_rng(h)
    check(program(window(value, h, w, rows)), {"X": rng.random((h, w), dtype=np.float32)})


def test_a_row_that_several_rows_read_is_loaded_once() -> None:
    """In the middle of the image, 8 rows with windows of three read ten."""
    text = compiled(program(window(VALUES[0], 64, 64, 8)), threads=1).llvm_ir
    lanes = min(16, host_target(1).vector_bits // 32)
    assert len(re.findall(rf"= load <{lanes} x float>", text)) == 10 * (16 // lanes)


def test_what_is_stored_between_is_loaded_again() -> None:
    """Rows that a kernel writes, its own result and a buffer, are not taken for what they were before."""
    check(
        program("""
program again(X: f32[4, 16], Y: f32[4, 16]) {
    buffer B: f32[2, 16] in "local"
    for k in 3 {
        vectorized for a in 16 { block A { spatial v in 16 = a; scan t in 3 = k; B[0, v] = X[t, v] + 1.0 } }
        vectorized for b in 16 { block C { spatial v in 16 = b; scan t in 3 = k; B[1, v] = B[0, v] * X[t + 1, v] } }
        unrolled for y in 2 { vectorized for c in 16 { block Y {
            spatial v in 16 = c
            scan t in 3 = k
            spatial u in 2 = y
            Y[t + u, v] = B[u, v] + B[0, v]
        } } }
    }
}
"""),
        {"X": np.random.default_rng(1).random((4, 16), dtype=np.float32)},
    )
