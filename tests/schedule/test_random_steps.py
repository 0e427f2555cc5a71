"""Random schedules of small programs at odd sizes: accepted schedules are right. `make schedules` runs more of them."""

from __future__ import annotations

import random

import pytest

from campaigns.random_hints import HINTS, LEADS, TOWARDS
from campaigns.random_programs import SIZES, random_program
from campaigns.random_steps import NothingToName, random_step, random_way
from campaigns.schedules import Batch, report, run, written
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.step import ScheduleRefusal


@pytest.mark.corpus
@pytest.mark.parametrize("batch", range(2))
def test_accepted_steps_are_right(batch: int) -> None:
    tally = run(Batch(0, range(batch * 25, batch * 25 + 25)))
    assert not tally.failures, "\n".join(map(written, tally.failures))
    assert tally.accepted.total() > 30, report(tally)


@pytest.mark.corpus
def test_accepted_steps_on_loops_are_right() -> None:
    tally = run(Batch(0, range(1, 13), "nests"))
    assert not tally.failures, "\n".join(map(written, tally.failures))
    assert tally.accepted.total() > 10, report(tally)


@pytest.mark.corpus
def test_accepted_steps_behind_those_of_pages_are_right() -> None:
    rare = ("look_back", "stream_k", "online_sums", "specialize", "split_scan", "fold_scan")
    tally = run(Batch(0, range(1, 13), "pages", rare))
    assert not tally.failures, "\n".join(map(written, tally.failures))
    assert tally.accepted.total() > 10, report(tally)


@pytest.mark.corpus
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


@pytest.mark.corpus
@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_primitive_is_reached(name: str) -> None:
    rng = random.Random(name)
    for _ in range(400):
        program = random_program(rng)[0]
        for each in random_way(rng, name):
            try:
                program = random_step(program, rng, each, towards=name).apply(program).program
            except (NothingToName, ScheduleRefusal):
                continue
            if each == name:
                return
    pytest.fail("nothing accepts it: `random_hints` needs a better argument, or a way there")


def test_hints_are_for_what_there_is() -> None:
    calls = [*HINTS, *(key.partition("<")[2] for key in TOWARDS)]
    for step, _, parameter in (call.rpartition(".") for call in calls):
        found = PRIMITIVES.values() if not step else [PRIMITIVES[step]]
        assert any(parameter in p.signature.parameters for p in found), f"{step}.{parameter}"
    for towards, ways in LEADS.items():
        assert {towards, *(step for way in ways for step in way)} <= PRIMITIVES.keys()


def test_a_number_names_a_schedule() -> None:
    once, again, other = (run(Batch(seed, range(5))) for seed in (7, 7, 8))
    assert report(once) == report(again)
    assert report(once) != report(other)
