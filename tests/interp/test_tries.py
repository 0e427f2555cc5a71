"""A space is tried again where its draws are refused; a schedule without draws would be refused in the same way."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api.schedules import TRIES, sample
from tensorc_dsl.interp.space import Space
from tensorc_dsl.schedule.trace.trace import Decider, Model, Trace
from tests.interp.spaces import schedule


class Counted(Model):
    """A space that counts its expansions."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.count = 0

    def expand(self, decide: Decider) -> Trace:
        self.count += 1
        return self.space.expand(decide)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("parallel(C.loops[2])", 1),
        ("let k ~ sample_categorical([0, 2]) := 2; parallel(C.loops[k])", 1),
        ("let k ~ sample_categorical([2, 3]); parallel(C.loops[2])", TRIES),
    ],
    ids=["no draw", "a pinned draw", "a draw"],
)
def test_a_refused_schedule_is_tried_again_if_it_draws(line: str, count: int) -> None:
    counted = Counted(schedule(line))
    with pytest.raises(TschedError, match="E0330"):
        sample(counted, "t", 0)
    assert counted.count == count
