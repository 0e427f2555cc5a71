"""What the end of a run and its progress look like."""

from __future__ import annotations

import io

import pytest

from tensorc_dsl.machine.baseline import Contraction, contraction, numpy_seconds
from tensorc_dsl.machine.yardsticks import Yardsticks
from tensorc_dsl.measure.outcome import Outcome, Status
from tensorc_dsl.report import units
from tensorc_dsl.report.progress import Standing, following
from tensorc_dsl.report.table import comparison, tally
from tensorc_dsl.search.events import Finished, Measured, Started
from tensorc_dsl.trace.trace import Trace
from tests import programs


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.31e-7, "431 ns"), (9.996e-7, "1.00 µs"), (1.2345e-5, "12.3 µs"), (0.00131, "1.31 ms"), (0.9996, "1.00 s"),
        (21.34, "21.3 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"), (245.0, "4 min 05 s"), (0.0, "0 ns"),
    ],
)  # fmt: skip
def test_seconds(value: float, text: str) -> None:
    assert units.seconds(value) == text


def test_the_table_lines_up() -> None:
    assert comparison(268_435_456, 0.00131, 0.00231, 220e9) == (
        "                time  GFLOP/s  of peak\n"
        "tensorc-dsl  1.31 ms      205     93 %\n"
        "NumPy        2.31 ms      116     53 %\n"
        "FMA peak                  220    100 %"
    )
    assert comparison(1, None, None, 1e9).splitlines()[1:] == ["FMA peak           1.00    100 %"]


def test_of_two_measurements_the_better_counts() -> None:
    first, second = Yardsticks(200e9, None), Yardsticks(210e9, 0.5)
    assert first.better(second) == second.better(first) == Yardsticks(210e9, 0.5)
    assert second.better(Yardsticks(1e9, 0.25)) == Yardsticks(210e9, 0.25)
    assert first.better(first).numpy_seconds is None


def test_valid_trials_are_counted_first() -> None:
    assert tally({"timeout": 2, "ok": 1, "wrong_result": 3}) == "1 ok, 3 wrong result, 2 timeout"


def test_progress_as_plain_lines() -> None:
    now = 0.0
    out = io.StringIO()
    trace = Trace("s", "matmul", (), (), programs.matmul(2, 2, 2))
    good = Outcome(Status.OK, seconds=0.002)
    with following(Standing(flops=400_000, peak=1e9, clock=lambda: now), out) as listener:
        listener(Started("mm", "random", 3, 0))
        now = 1.0
        listener(Measured(0, trace, good, 0.002))
        now = 1.1
        listener(Measured(1, trace, Outcome(Status.CRASH), 0.002))
        now = 1.2
        listener(Measured(2, trace, good, 0.002))
        listener(Finished(3, 0.002, 1.2, False))
    assert out.getvalue() == (
        "[1/3] now 2.00 ms, best 2.00 ms (0.20 GFLOP/s, 20 % of peak), 2.00 s left\n"
        "[3/3] now 2.00 ms, best 2.00 ms (0.20 GFLOP/s, 20 % of peak), 1 crash\n"
    )


def test_a_matmul_is_a_contraction_and_a_softmax_is_none() -> None:
    what = contraction(programs.matmul(5, 7, 3))
    assert what == Contraction("ac,cb->ab", ((5, 3), (3, 7)), "float32")
    assert what is not None
    seconds = numpy_seconds(what, 1)
    assert seconds is not None
    assert 0 < seconds < 1
    assert contraction(programs.softmax(4, 4)) is None


def test_a_contraction_that_numpy_refuses_has_no_time() -> None:
    assert numpy_seconds(Contraction("ac,cb->ab", ((5, 3), (4, 7)), "float32"), 1) is None
