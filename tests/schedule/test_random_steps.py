"""Random schedules of small programs at odd sizes: what is accepted is right. More of them: `make schedules`."""

from __future__ import annotations

import random

import pytest

from bench.random_programs import SIZES, random_program
from bench.random_steps import NothingToName, random_step
from bench.schedules import Batch, report, run, written
from tensorc_dsl.schedule.primitives import PRIMITIVES


@pytest.mark.parametrize("batch", range(4))
def test_accepted_steps_are_right(batch: int) -> None:
    tally = run(Batch(0, range(batch * 25, batch * 25 + 25)))
    assert not tally.failures, "\n".join(map(written, tally.failures))
    assert tally.accepted.total() > 30, report(tally)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_there_are_arguments_for_every_primitive(name: str) -> None:
    rng, made = random.Random(name), 0
    for compute in SIZES:
        try:
            step = random_step(random_program(rng, compute)[0], rng, name)
        except NothingToName:
            continue
        PRIMITIVES[name].signature.bind(*step.args, **dict(step.kwargs))
        made += 1
    assert made


def test_a_number_names_a_schedule() -> None:
    once, again, other = (run(Batch(seed, range(5))) for seed in (7, 7, 8))
    assert report(once) == report(again)
    assert report(once) != report(other)
