"""Scattered loops as machine code: sums over matches that data place, for any data, and never a loop over all places."""

from __future__ import annotations

import os
import random

import pytest

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import TaskFile
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Loop, inside
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.interpret import interpret
from tests.codegen import native
from tests.codegen.scatters import Scatter, exact
from tests.examples import FIRST

COUNT = int(os.environ.get("SCATTER_FUZZ", "10"))


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_random_sums_over_matches(seed: int) -> None:
    made = Scatter(random.Random(seed))
    task = TaskFile(load_source(Source("random.tsched", made.text())), Target())["t"]
    scheduled = task.sample(0, 0).program
    flat = lower_cpu(scheduled)
    assert not [s for s in inside(flat.body) if isinstance(s, Loop) and s.scattered]
    inputs = made.inputs(task.program)
    want = interpret(task.program, inputs)
    assert exact(native.run(scheduled, inputs), want), made.text()
    assert exact(evaluate(task.program, inputs), want), made.text()
