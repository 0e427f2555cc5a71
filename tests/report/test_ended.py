"""The summary of a finished search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorc_dsl.faces.report.ended import Ended
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.baseline import Yardsticks
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.events import Exhausted
from tensorc_dsl.tuning.search.strategy import Regret
from tensorc_dsl.tuning.search.tune import TuneResult
from tests import programs

TRACE = Trace("s", "matmul", (), (), programs.matmul(2, 2, 2))
YARDSTICKS = Yardsticks(Roof(10**8, 10**6, True, "f32 FMA peak", 100e9, 1e-6), None)


def ended(
    best: float | None,
    *times: float | None,
    exhausted: Exhausted | None = None,
    timed: tuple[Sizes, ...] = ({},),
    regret: Regret | None = None,
    enough: bool = False,
) -> Ended:
    outcomes = tuple(Outcome(Status.CRASH) if t is None else Outcome(Status.OK, t) for t in times)
    statuses = {"ok": sum(t is not None for t in times), "crash": sum(t is None for t in times)}
    result = TuneResult(
        best=TRACE if best else None, best_seconds=best, verdict=None, wrong=(),
        finalists=(TRACE,) * min(5, statuses["ok"]), traces=(TRACE,) * len(times), outcomes=outcomes,
        statuses={k: n for k, n in statuses.items() if n}, elapsed_seconds=3.0, trials=len(times), seed=0, refusals=0,
        refused={}, interrupted=False, exhausted=exhausted, regret=regret, enough=enough,
    )  # fmt: skip
    return Ended("small", Target(cpu="zen9"), 1, "bayes", result, YARDSTICKS, timed)


def test_one_of_a_thing_is_no_plural() -> None:
    text = ended(0.002, 0.002).table(None)
    assert text.startswith("small on zen9, 1 thread, warm caches\n")
    assert "\n1 trial in 3.00 s: 1 ok" in text
    assert "; 1 trial, bayes, seed 0\n" in ended(0.002, 0.002).header()
    assert "2 trials in 3.00 s: 1 ok, 1 crash" in ended(0.002, 0.002, None).table(None)
    assert "3 trials in 3.00 s: 1 ok, 2 crashes" in ended(0.002, 0.002, None, None).table(None)


def test_a_search_without_trials_counts_none() -> None:
    assert ended(None).table(None).endswith("\nno trials in 3.00 s")


def test_a_regret_is_an_estimate_and_says_what_it_is_worth() -> None:
    text = ended(0.002, 0.002, regret=Regret(0.1349, 56, 52)).table(None)
    said = (
        "the model's estimate, which is no bound: with probability 90 % no schedule is more than 13 % faster; 52 of the 56 "
        "trials that it predicted were in its intervals of 95 % (`tensorc-dsl explain regret`)"
    )
    assert said in text.splitlines()
    early = ended(0.002, 0.002, regret=Regret(0.0123, 1, 1), enough=True)
    said = (
        "ended by the model's estimate, which is no bound: with probability 90 % no schedule is more than 1.2 % faster; 1 of "
        "the 1 trial that it predicted were in its intervals of 95 % (`tensorc-dsl explain regret`)"
    )
    assert said in early.table(None).splitlines()
    assert early.facts(None, None)["regret"] == 0.0123 and early.facts(None, None)["enough"] is True
    assert "regret" not in ended(0.002, 0.002).table(None) and ended(0.002, 0.002).facts(None, None)["regret"] is None


def test_a_regret_beyond_the_roof_is_not_shown() -> None:
    best = YARDSTICKS.roof.operations / (YARDSTICKS.roof.limit or 1.0) / 0.84
    text = ended(best, best, regret=Regret(6.49, 48, 42)).table(None)
    said = (
        f"no schedule can be more than 25 % faster, by the {YARDSTICKS.roof.name}; the model's estimate says no more; "
    )
    assert said in text and "649 %" not in text
    assert "with probability 90 % no schedule is more than 24 % faster" in ended(
        best, best, regret=Regret(0.24, 9, 9)
    ).table(None)


def test_a_final_time_that_differs_is_explained() -> None:
    said = (
        "the fastest trial took 2.00 ms; the best 3 were measured again, by turns and for longer, "
        "and the winner takes 2.10 ms there"
    )
    assert said in ended(0.0021, 0.003, 0.002, 0.0025).table(None)
    assert "the fastest trial took 2.00 ms; it was measured again" in ended(0.0021, 0.002).table(None)
    assert "fastest trial" not in ended(0.002, 0.003, 0.002).table(None)
    assert "fastest trial" not in ended(None, None).table(None)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Exhausted(1, True), "the space has 1 program: there was nothing more to try"),
        (Exhausted(12, True), "the space has 12 programs: there was nothing more to try"),
        (Exhausted(12, False), "the space gave nothing new after 12 programs: there was nothing more to try"),
    ],
)
def test_an_exhausted_space_is_said_so(found: Exhausted, said: str) -> None:
    assert said in ended(0.002, 0.002, exhausted=found).table(None)
    assert ended(0.002, 0.002, exhausted=found).facts(None, None)["exhausted"] is True
    assert "space" not in ended(0.002, 0.002).table(None)


def test_what_is_faster_than_the_machine_makes_one_doubt_the_machine() -> None:
    assert "more than the machine was seen to do: it was busy then" in ended(0.0009, 0.0009).table(None)
    assert "more than the machine" not in ended(0.001, 0.001).table(None)


def test_facts_without_a_peak() -> None:
    unknown = replace(YARDSTICKS, roof=replace(YARDSTICKS.roof, title="", peak=None))
    facts = replace(ended(0.002, 0.002), yardsticks=unknown).facts(None, None)
    assert (facts["peak"], facts["peak_gflops"], facts["bound_by"], facts["of_bound"]) == (None, None, None, None)
    facts = ended(0.002, 0.002).facts(None, None)
    assert (facts["peak"], facts["bound_by"], facts["of_bound"]) == ("f32 FMA peak", "computing", pytest.approx(0.5))


@pytest.mark.parametrize(
    ("timed", "words"),
    [
        (({},), ""),
        (({"M": 1}, {"M": 16}), ", timed at M = 1, 16"),
        (({"M": 1, "N": 2}, {"M": 3, "N": 4}), ", timed at M = 1, N = 2; M = 3, N = 4"),
    ],
)
def test_the_sizes_of_times_are_shown(timed: tuple[Sizes, ...], words: str) -> None:
    said = ended(0.002, 0.002, timed=timed)
    assert said.table(None).startswith(f"small on zen9, 1 thread, warm caches{words}\n")
    assert f"// on zen9, 1 thread{words}; 1 trial" in said.header()
    assert said.facts(None, None)["timed_at"] == [dict(sizes) for sizes in timed]
