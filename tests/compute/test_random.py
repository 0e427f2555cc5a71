"""Random computes: the reference, the interpreter and machine code agree. `COMPUTE_FUZZ=5000` runs as many programs."""

from __future__ import annotations

import os

import pytest

from tensorc_dsl.check.compute import check
from tensorc_dsl.diagnostic import render
from tests.compute.native import everywhere
from tests.compute.random_computes import random_compute
from tests.compute.texts import build, parsed

COUNT = int(os.environ.get("COMPUTE_FUZZ", "150"))
GROUP = 10


@pytest.mark.parametrize("group", range(-(-COUNT // GROUP)))
def test_random_computes(group: int) -> None:
    for seed in range(group * GROUP, min(COUNT, (group + 1) * GROUP)):
        text, sizes = random_compute(seed)
        assert not [render(d) for d in check(*parsed(text))], text
        everywhere(build(text, **sizes), seed=seed)
