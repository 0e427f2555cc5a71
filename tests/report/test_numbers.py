"""The text of progress and of the end of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorc_dsl.base import units
from tensorc_dsl.faces.report.results import comparison, tally
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.machine import baseline
from tensorc_dsl.tuning.machine.baseline import Fastest, Measuring, Yardsticks
from tensorc_dsl.tuning.machine.roof import Roof
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


COMPUTING = Roof(268_435_456, 3 * 2**20, True, "f32 FMA peak", 220e9, 1e-4)
MOVING = Roof(2**20, 2**21, True, "f32 FMA peak", 220e9, 2**21 / 40e9)


def test_the_table_lines_up() -> None:
    assert comparison(COMPUTING, 0.00131, 0.00231) == (
        "                 time  GFLOP/s  of peak\n"
        "tensorc-dsl   1.31 ms      205     93 %\n"
        "NumPy         2.31 ms      116     53 %\n"
        "f32 FMA peak               220    100 %"
    )
    assert comparison(COMPUTING, None, None).splitlines()[1:] == ["f32 FMA peak            220    100 %"]


def test_what_memory_bounds_is_told_in_bytes() -> None:
    assert comparison(MOVING, 2**21 / 30e9, None) == (
        "                time  GB/s  of bandwidth\n"
        "tensorc-dsl  69.9 µs  30.0          75 %\n"
        "bandwidth             40.0         100 %"
    )


def test_without_a_peak_there_is_no_share() -> None:
    unknown = Roof(10**9, 10**6, False, "", None, 1e-5)
    assert comparison(unknown, 0.01, None) == "                time  Gop/s\ntensorc-dsl  10.0 ms    100"
    assert unknown.share(0.01) is None
    assert unknown.described(0.01) == "100 Gop/s"


def test_what_computes_nothing_moves() -> None:
    copied = Roof(0, 10**6, False, "", None, 1e-4)
    assert (copied.by_memory, copied.limit, copied.share(2e-4)) == (True, 1e10, 0.5)


def test_of_two_measurements_the_better_counts() -> None:
    other = replace(COMPUTING, peak=230e9, moving=2e-4)
    assert COMPUTING.better(other) == other.better(COMPUTING) == replace(COMPUTING, peak=230e9)


def test_a_search_waits_for_the_roof_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy is timed behind it, once, and the roof again, of which the better counts."""
    said: list[str] = []
    roofs = iter((COMPUTING, COMPUTING, replace(COMPUTING, peak=230e9, moving=2e-4)))
    waited: list[float] = []

    def measured(_program: Program, _target: Target, _threads: int, patience: float) -> Roof:
        waited.append(patience)
        return next(roofs)

    monkeypatch.setattr(baseline, "roof_of", measured)
    monkeypatch.setattr(baseline, "numpy_seconds", lambda *_: said.append("NumPy") or Fastest(0.5, False))
    measuring = Measuring(programs.matmul(4, 4, 4), Target(), 2, said.append)
    first = measuring.first()
    assert (first, said) == (Yardsticks(COMPUTING), ["measuring what this machine can do on 2 threads"])
    known = measuring.beside_numpy(first)
    assert (known, said[1:]) == (Yardsticks(COMPUTING, 0.5), ["timing NumPy", "NumPy"])
    assert measuring.again(known) == Yardsticks(replace(COMPUTING, peak=230e9), 0.5)
    assert said[3:] == ["measuring the machine again"]
    assert waited[0] == waited[1] < waited[2]


@pytest.mark.parametrize(
    ("then", "disturbed", "told"),
    [
        (COMPUTING, False, False),
        (COMPUTING, True, True),  # its calls did not agree
        (replace(COMPUTING, peak=(COMPUTING.peak or 0.0) / 2), False, True),  # a busy core
        (replace(COMPUTING, moving=COMPUTING.moving * 2), False, True),  # a busy memory
    ],
)
def test_a_disturbed_time_of_numpy_is_told(
    then: Roof, disturbed: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    roofs = iter((COMPUTING, then))
    monkeypatch.setattr(baseline, "roof_of", lambda *_: next(roofs))
    monkeypatch.setattr(baseline, "numpy_seconds", lambda *_: Fastest(0.068, disturbed))
    measuring = Measuring(programs.matmul(4, 4, 4), Target(), 2, lambda _: None)
    known = measuring.beside_numpy(measuring.first())
    assert known.numpy_disturbed == told
    table = comparison(known.roof, 0.00131, known.numpy_seconds, known.numpy_disturbed)
    assert ("NumPy, disturbed" in table) == told


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(0, "trial", "no trials"), (1, "trial", "1 trial"), (2, "crash", "2 crashes"), (3, "finish", "3 finishes")],
)
def test_plurals(count: int, noun: str, text: str) -> None:
    assert units.counted(count, noun) == text


def test_valid_trials_are_counted_first() -> None:
    assert (
        tally({"refused": 1, "crash": 1, "ok": 62, "compile_error": 2}) == "62 ok, 2 compile errors, 1 crash, 1 refused"
    )
    assert tally({"timeout": 2, "ok": 1, "wrong_result": 3}) == "1 ok, 3 wrong results, 2 timeouts"
