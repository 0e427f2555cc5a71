"""Random computes: the reference, the interpreter and machine code agree, unscheduled and under random schedules.

`make computes COUNT=5000` runs as many programs; a fifth of them is scheduled too.
"""

from __future__ import annotations

import os
import random

import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from campaigns.random_steps import random_schedule
from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.elaborate.compute import check
from tests.compute.native import everywhere
from tests.compute.random_computes import random_compute
from tests.compute.texts import build, parsed
from tests.examples import FIRST
from tests.open.random_open import check_everywhere

COUNT = int(os.environ.get("COMPUTE_FUZZ", "25"))
GROUP = 10


@pytest.mark.corpus
@pytest.mark.parametrize("group", range(-(-COUNT // GROUP)))
def test_random_computes(group: int) -> None:
    for seed in range(FIRST + group * GROUP, FIRST + min(COUNT, (group + 1) * GROUP)):
        text, sizes = random_compute(seed)
        assert not [render(d) for d in check(*parsed(text))], text
        everywhere(build(text, **sizes), seed=seed)


@pytest.mark.parametrize("group", range(-(-COUNT // (5 * GROUP))))
def test_random_computes_under_random_schedules(group: int) -> None:
    for seed in range(FIRST + group * GROUP, FIRST + min(COUNT // 5, (group + 1) * GROUP)):
        text, sizes = random_compute(seed)
        original = build(text, **sizes)
        program, history = random_schedule(original, random.Random(seed), 16)
        try:
            check_everywhere(original, program, [{}], seed, orders=True)
        except AssertionError as e:
            e.add_note("\n".join([text, str(sizes), *map(str, history)]))
            raise
