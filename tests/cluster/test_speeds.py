"""Machines of one target that are not equally fast: their times are corrected, and those that say little retire."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from tensorc_dsl.tuning.cluster.runner import RUNNING, UNSTEADY
from tensorc_dsl.tuning.measure.outcome import MachineChange, Outcome
from tests.cluster.stub import Stub, Turn, first_together, measured, programs, stubs, time_of


def test_times_of_a_slower_machine_count_in_those_of_the_first() -> None:
    changes: list[MachineChange] = []
    some = programs(24)
    fault = first_together(2)
    with stubs(Stub(0, fault=fault), Stub(1, fault=fault, slower=lambda: 1.3), changes=changes) as runner:
        found = measured(runner, some)
    base = next(o for o in found if o.scale == 1.0).machine
    factor = 1.3 if base == "m0" else 1 / 1.3
    assert {o.machine for o in found} == {"m0", "m1"}
    for program, o in zip(some, found, strict=True):
        mine = time_of(program) * (1.0 if base == "m0" else 1.3)
        assert o.seconds == pytest.approx(mine) and o.scale == pytest.approx(1.0 if o.machine == base else factor)
        assert o.seconds == pytest.approx(o.times[0] / o.scale)
    assert [c.change for c in changes if c.change == "drifted"] == ["drifted"]


@pytest.mark.parametrize("slower", [2.0, 7.0])
def test_a_machine_that_is_far_slower_retires(slower: float) -> None:
    changes: list[MachineChange] = []
    known = Turn(RUNNING)
    with stubs(
        Stub(0, fault=known.waits(1)), Stub(1, fault=known.others, slower=lambda: slower), changes=changes
    ) as runner:
        measured(runner, programs(1))  # the first machine is the reference
        found = measured(runner, programs(16)[1:])
    assert [(c.machine, c.change) for c in changes if c.change == "retired"] == [("m1", "retired")]
    assert f"takes {slower:.2f} times as long" in changes[-1].why
    assert all(o.seconds == pytest.approx(time_of(p)) for p, o in zip(programs(16)[1:], found, strict=True))


def unsteady() -> Callable[[], float]:
    """Other numbers at each look: before, the kernel, after."""
    turn = count()
    return lambda: (1.0, 1.0, 1.4)[next(turn) % 3]


def test_a_machine_whose_speed_changes_all_the_time_retires() -> None:
    changes: list[MachineChange] = []
    known = Turn(UNSTEADY)
    with stubs(
        Stub(0, fault=known.waits(1)), Stub(1, fault=known.others, slower=unsteady()), changes=changes
    ) as runner:
        measured(runner, programs(1))  # the first machine is the reference
        found = measured(runner, programs(16)[1:])
    assert [(c.machine, c.change) for c in changes if c.change == "retired"] == [("m1", "retired")]
    assert all(isinstance(o, Outcome) and o.seconds is not None for o in found)


def test_the_last_machine_does_not_retire() -> None:
    changes: list[MachineChange] = []
    turn = count()
    with stubs(Stub(0, slower=lambda: 1.0 if next(turn) < 3 else 3.0), changes=changes) as runner:
        found = measured(runner, programs(8))
    assert all(o.seconds is not None for o in found)
    assert "retired" not in {c.change for c in changes} and "drifted" in {c.change for c in changes}
    assert all(o.seconds == pytest.approx(time_of(p)) for p, o in zip(programs(8), found, strict=True))


def test_a_trial_is_timed_again_until_its_machine_is_as_fast_after_it_as_before() -> None:
    orders = count()

    def one_swing() -> float:
        return 1.5 if next(orders) == 4 else 1.0  # the look behind the second kernel

    with stubs(Stub(0, slower=one_swing)) as runner:
        found = measured(runner, programs(2))
    assert [o.seconds for o in found] == [time_of(p) for p in programs(2)] and all(o.scale == 1.0 for o in found)
