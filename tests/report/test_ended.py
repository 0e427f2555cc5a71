"""What is said at the end of a search."""

from __future__ import annotations

import pytest

from tensorc_dsl.ir.bind import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.machine.yardsticks import Yardsticks
from tensorc_dsl.report.ended import Ended
from tensorc_dsl.search.tune import TuneResult


def ended(*timed: Sizes) -> Ended:
    result = TuneResult(None, 1e-3, (), (), (), {"ok": 2}, 1.0, 2, 0, 0, False)
    return Ended("t", 10**6, Target(cpu="some"), 2, "bayes", result, Yardsticks(1e10, None), timed)


@pytest.mark.parametrize(
    ("timed", "words"),
    [
        (({},), ""),
        (({"M": 1}, {"M": 16}), ", timed at M = 1, 16"),
        (({"M": 1, "N": 2}, {"M": 3, "N": 4}), ", timed at M = 1, N = 2; M = 3, N = 4"),
    ],
)
def test_the_sizes_of_times_are_shown(timed: tuple[Sizes, ...], words: str) -> None:
    said = ended(*timed)
    assert said.table(None).startswith(f"t on some, 2 threads{words}\n")
    assert f"// on some, 2 threads{words}; 2 trials" in said.header()
    assert said.facts(None)["timed_at"] == [dict(sizes) for sizes in timed]
