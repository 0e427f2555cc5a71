"""Copies of windows at odd sizes: strides, dilation, borders, tiles that do not divide. Each step is refused, or right."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef
from tests.programs import random_inputs


def windows(out: int, stride: int, size: int, dilation: int, pad: int) -> Program:
    """`Y[t] = sum[r] P[t*stride + r*dilation]` over `P`, the input with a border of zeros."""
    length = (out - 1) * stride + (size - 1) * dilation + 1
    inner = max(length - 2 * pad, 1)
    text = f"""program windows(X: f32[{inner}], Y: f32[{out}]) {{
        buffer P: f32[{length}]
        for h in {length} {{
            block P {{
                spatial vh in {length} = h
                P[vh] = X[vh - {pad}] if {pad} <= vh and vh < {inner + pad} else 0.0
            }}
        }}
        for t in {out}, r in {size} {{
            block Y {{
                spatial vt in {out} = t
                reduce vr in {size} = r
                init {{ Y[vt] = 0.0 }}
                Y[vt] = Y[vt] + P[vt * {stride} + vr * {dilation}]
            }}
        }}
    }}"""
    return parse_program(Source("windows", text))


SHAPES = [
    (out, stride, size, dilation, pad, tile)
    for out, stride, size, dilation, pad, tile in product((1, 7, 13), (1, 2, 3), (1, 3), (1, 2), (0, 1), (1, 4, 8))
    if tile <= out
]


def check(before: Program, after: Program) -> None:
    verify(after)
    inputs = random_inputs(before)
    expected = interpret(before, inputs)
    for order in ("forward", "shuffled"):
        np.testing.assert_allclose(interpret(after, inputs, order)["Y"], expected["Y"], rtol=1e-5)


@pytest.mark.corpus
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tiles_of_windows(shape: tuple[int, ...]) -> None:
    *sizes, tile = shape
    before = windows(*sizes)
    tiled = apply(before, "split", LoopRef("t"), (None, tile), partial=True).program
    for program in (
        apply(tiled, "read_at", LoopRef("t_0"), BlockRef("Y"), BufferRef("P"), "shared").program,
        apply(tiled, "write_at", LoopRef("t_0"), BlockRef("Y"), "local").program,
        apply(tiled, "reindex", BlockRef("Y"), BufferRef("P")).program,
    ):
        check(before, program)


@pytest.mark.corpus
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rolling_windows(shape: tuple[int, ...]) -> None:
    """Accepted where windows overlap: what a tile reads is longer than the way to the next, and not all of the buffer."""
    out, stride, size, dilation, pad, tile = shape
    before = windows(out, stride, size, dilation, pad)
    tiled = apply(before, "split", LoopRef("t"), (None, tile), partial=True).program
    moved = apply(tiled, "compute_at", BlockRef("P"), LoopRef("t_0")).program
    length = (tile - 1) * stride + (size - 1) * dilation + 1
    whole = (out - 1) * stride + (size - 1) * dilation + 1
    if tile * stride < length < whole:
        rolled = apply(moved, "rolling_buffer", BlockRef("P"), LoopRef("t_0")).program
        assert [b.shape for b in rolled.buffers] != [b.shape for b in before.buffers]
        check(before, rolled)
