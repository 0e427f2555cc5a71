"""Rows of open length have whole vectors between their borders, and are right where there is nothing between."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.lower.flat import format_body
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.tuning.measure.check import Guarded, poison, read_only
from tests.codegen.native import compiled, program

ROW = """
program f(X: f32[H, W], Y: f32[H, W]) where H in 0..9, W in 0..999 {{
    for y in H, far in (W + 31) / 32 {{ {kind}for near in 32 {{ block Y {{
        spatial vy in H = y
        spatial vx in W = far * 32 + near
        where far * 32 + near < W
        Y[vy, vx] = {element}
    }} }} }}
}}
"""
ELEMENTS = {
    "clamped": "X[min(max(vy - 1, 0), H - 1), min(max(vx - 1, 0), W - 1)] + X[vy, min(vx + 2, W - 1)]",
    "zeros": "(X[vy, vx - 1] if vx >= 1 else 0.0) + (X[vy, vx + 40] if vx + 40 < W else 0.0)",
    "repeated": "X[vy, (vx - 1) % W] + X[vy, (vx + 2) % W]",
    "mirrored": "X[vy, min((vx - 2) % (2 * W), 2 * W - 1 - (vx - 2) % (2 * W))]",
    "one_side": "X[vy, max(vx - 3, 0)]",
    "across_tiles": "X[vy, min(max(vx - 70, 0), W - 1)] - X[vy, min(vx + 70, W - 1)]",
}
SIZES = (*range(6), 31, 32, 33, 37, 63, 64, 65, 95, 96, 97, 101, 127, 139, 140, 141, 193, 211)


@pytest.mark.parametrize("name", ELEMENTS)
def test_between_the_borders_of_an_open_row_nothing_is_asked(name: str) -> None:
    p = program(ROW.format(kind="vectorized ", element=ELEMENTS[name]))
    found = format_body(lower_cpu(p).body)
    lines = [x for x in found.splitlines() if "Y[far * 32 + near + " in x]
    inside = [x for x in lines if not re.search(r"(min|max)\([^()]*(far|near)|%|\bif\b", x)]
    assert len(inside) == 1


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["vectorized ", ""])
@pytest.mark.parametrize("name", ELEMENTS)
def test_open_rows_of_all_sizes_are_right(name: str, kind: str) -> None:
    p = program(ROW.format(kind=kind, element=ELEMENTS[name]))
    kernel = load(compiled(p))
    for w in SIZES:
        h = (1, 2, 5)[w % 3]
        x = np.random.default_rng(w).random((h, w)).astype(np.float32)
        guard = Guarded((h, w), np.dtype(np.float32))
        poison(guard.array)
        kernel(read_only(x), guard.array)
        want = interpret(bind(p, {"H": h, "W": w}), {"X": x})["Y"]
        np.testing.assert_array_equal(guard.array, want.astype(np.float32), err_msg=f"{h} x {w}")


def test_columns_of_a_parallel_loop_are_branches() -> None:
    text = ROW.format(kind="vectorized ", element=ELEMENTS["clamped"])
    text = text.replace("for y in H, far in", "parallel for y in H { parallel for far in").replace(
        "} } }", "} } } }", 1
    )
    p = program(text)
    kernel = load(compiled(p))
    for w in SIZES:
        x = np.random.default_rng(w).random((3, w)).astype(np.float32)
        want = interpret(bind(p, {"H": 3, "W": w}), {"X": x})["Y"]
        np.testing.assert_array_equal(kernel(x), want.astype(np.float32), err_msg=str(w))
    assert format_body(lower_cpu(p).body).count("parallel for") == 1


SCALED = """
program f(X: f32[H, W], Y: f32[H, W]) where H in 1..9, W in 1..999 {
    buffer m: f32[H] in "local"
    for y in H {
        block m { spatial vy in H = y; m[vy] = X[vy, 0] + 1.0 }
        for far in (W + 31) / 32 { vectorized for near in 32 { block Y {
            spatial vy in H = y
            spatial vx in W = far * 32 + near
            where far * 32 + near < W
            Y[vy, vx] = exp(X[vy, vx] - m[vy])
        } } }
    }
}
"""


def test_rows_whose_elements_share_a_register_have_one_line_with_masks() -> None:
    p = program(SCALED)
    text = format_body(lower_cpu(p).body)
    assert len(re.findall(r"if [^{]*\bnear\b[^{]*\{\s+Y\[", text)) == 1
    assert re.search(r"for near\.line in [^{]*\{\s+vectorized for near in 0 \.\. 16 \{\s+Y\[", text)
    kernel = load(compiled(p))
    for w in SIZES[1:]:
        x = np.random.default_rng(w).random((5, w)).astype(np.float32)
        np.testing.assert_allclose(kernel(x), np.exp(x - (x[:, :1] + 1)), rtol=1e-5, err_msg=str(w))


TILES = """
program f(X: f32[H, W], Y: f32[H, W]) where H in 1..99, W in 1..999 {
    buffer S: f32[H + 2, W + 2] in "local"
    parallel for top in (H + 7) / 8 { for left in (W + 63) / 64 {
        for y in 10 { vectorized for x in 66 { block S {
            spatial vy in H + 2 = top * 8 + y
            spatial vx in W + 2 = left * 64 + x
            where top * 8 + y < H + 2
            where left * 64 + x < W + 2
            S[vy, vx] = X[min(max(vy - 1, 0), H - 1), min(max(vx - 1, 0), W - 1)] * 2.0
        } } }
        for above in 2, across in 4 { unrolled for below in 4 { vectorized for near in 16 { block Y {
            spatial vy in H = top * 8 + (above * 4 + below)
            spatial vx in W = left * 64 + (across * 16 + near)
            where top * 8 + (above * 4 + below) < H
            where left * 64 + (across * 16 + near) < W
            Y[vy, vx] = S[vy, vx] + S[vy + 2, vx + 2] + X[vy, min(vx + 1, W - 1)]
        } } } }
    } }
}
"""


def test_tiles_with_stages_have_one_copy_between_borders_and_one_at_them() -> None:
    text = format_body(lower_cpu(program(TILES)).body)
    assert text.count("with S") == 2
    assert text.count("parallel for") == 1
    inside = text[text.index("with S") : text.index("with S", text.index("with S") + 1)]
    assert not re.search(r"(min|max)\([^()]*\b(x|near)\b|if [^{]*\b(x|near)\b", inside)


def test_tiles_of_open_images_are_right_at_all_sizes() -> None:
    p = program(TILES)
    kernel = load(compiled(p))
    for h, w in (
        (1, 1),
        (2, 3),
        (7, 15),
        (8, 16),
        (9, 17),
        (3, 61),
        (17, 64),
        (5, 65),
        (23, 127),
        (16, 128),
        (31, 193),
    ):
        x = np.random.default_rng(w).random((h, w)).astype(np.float32)
        guard = Guarded((h, w), np.dtype(np.float32))
        poison(guard.array)
        kernel(read_only(x), guard.array)
        want = interpret(bind(p, {"H": h, "W": w}), {"X": x})["Y"]
        np.testing.assert_allclose(guard.array, want, rtol=1e-6, err_msg=f"{h} x {w}")
