"""The work of a step: how often it walks through a program does not depend on the number of nests in the program."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 (declares them)
from tensorc_dsl.ir.program import Program, walk
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, BufferRef
from tests.compute.texts import build

_WALK = walk.__wrapped__.__code__  # type: ignore[attr-defined]


def chain(count: int) -> Program:
    """A program of one nest for each of `count` stages, each of which reads the one before."""
    stages = [f"let T{k}[i] = {'X' if k == 0 else f'T{k - 1}'}[i] + 1.0" for k in range(count)]
    joined = "\n".join(stages)
    return build(f"compute f(X: f32[M]) -> Y: f32[M] {{\n{joined}\nY[i] = T{count - 1}[i]\n}}", M=8)


def walks(program: Program, name: str, args: tuple[object, ...]) -> int:
    """How often a step walks through some statements, those not counted that it remembers."""
    seen = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal seen
        seen += event == "call" and frame.f_code is _WALK

    sys.setprofile(count)
    try:
        apply(program, name, *args)
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("cache_write", (BlockRef("T3"), "local")),
        ("cache_read", (BlockRef("T3"), BufferRef("T2"), "local")),
        ("compute_inline", (BlockRef("T3"),)),
    ],
)
def test_a_step_walks_through_a_long_program_as_often_as_through_a_short_one(
    name: str, args: tuple[object, ...]
) -> None:
    # A walk that an earlier test left behind may be remembered, and one fewer is counted.
    assert abs(walks(chain(60), name, args) - walks(chain(10), name, args)) <= 1
    assert walks(chain(10), name, args) < 20
