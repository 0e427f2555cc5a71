"""Loops that begin and end where conditions do, as machine code: the same numbers, and no read outside of an array."""

from __future__ import annotations

import os
import random

import pytest

from tensorc_dsl.api import TaskFile
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Loop, inside
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.source import Source
from tests.codegen import native
from tests.codegen.ragged import Ragged, same

COUNT = int(os.environ.get("RAGGED_FUZZ", "24"))


def _is_bounded(seed: int) -> bool:
    """Whether a random reduction is right; the result says whether a loop has bounds."""
    made = Ragged(random.Random(seed))
    task = TaskFile(load_source(Source("random.tsched", made.text())), Target())["t"]
    scheduled = task.sample(0, 0).program
    inputs = made.inputs(task.program)
    got = native.run(scheduled, inputs)
    for name, want in interpret(task.program, inputs).items():
        assert same(got[name], want), made.text()
    loops = [s for s in inside(lower_cpu(scheduled).body) if isinstance(s, Loop)]
    return any(constant(s.begin) is None or constant(s.end) is None for s in loops)


@pytest.mark.parametrize("first", range(0, COUNT, 8))
def test_random_conditions(first: int) -> None:
    bounded = [_is_bounded(seed) for seed in range(first, first + 8)]
    assert any(bounded)
