"""Searches of functions: `tune_function`, and the assignments of their spaces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorc_dsl
from tensorc_dsl import tune_function
from tensorc_dsl.faces.api import functions
from tensorc_dsl.faces.api.functions import listed_space
from tensorc_dsl.tuning.search import assignments
from tensorc_dsl.tuning.search.assignments import Assignments, ListedExplorer
from tensorc_dsl.tuning.search.gp import Hyper, Posterior, Sweep
from tensorc_dsl.tuning.search.strategy import strategies

SPACE: dict[str, list[Any]] = {"block": [16, 32, 64, 128, 256], "unroll": [1, 2, 4, 8], "pad": [False, True]}

SCHEDULE = """
schedule tuned for kernel {
    let block ~ sample_categorical([16, 32, 64])
    let below = for v in [8, 16, 32] if v < block { yield v }
    let unroll ~ sample_categorical(below)
    let staged ~ sample_categorical([true, false])
    if staged {
        let layout ~ sample_categorical(["rows", "columns"])
    }
    maybe split {
        let parts ~ sample_int(2..3)
    }
    let fixed ~ sample_int(1..4) := 2
}
"""


def one(**_: object) -> float:
    return 1.0


def seconds(block: int, unroll: int, pad: bool) -> float:
    return 1e-3 * (1.0 + abs(math.log2(block / 64)) + 0.5 * abs(math.log2(unroll / 4)) + 0.2 * pad)


def fits(block: int, unroll: int) -> bool:
    return block * unroll <= 256


def asked(result: tensorc_dsl.FunctionResult) -> list[Mapping[str, Any]]:
    return [t.decisions for t in result.trials]


def test_the_best_is_found() -> None:
    result = tune_function(seconds, SPACE, where=fits, trials=20)
    assert result.best == {"block": 64, "unroll": 4, "pad": False}
    assert result.seconds == 1e-3
    assert len(result.trials) == 20


@pytest.mark.parametrize("strategy", strategies())
def test_constraints_hold_and_nothing_is_tried_twice(strategy: str) -> None:
    result = tune_function(seconds, SPACE, where=fits, trials=24, strategy=strategy)
    tried = asked(result)
    assert all(fits(d["block"], d["unroll"]) for d in tried)
    assert len({tuple(d.items()) for d in tried}) == len(tried) == 24


def test_a_search_is_a_function_of_its_seed() -> None:
    one, same, other = (asked(tune_function(seconds, SPACE, trials=12, seed=seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_every_assignment_is_tried_and_then_the_search_ends() -> None:
    result = tune_function(seconds, SPACE, where=fits, trials=1000)
    legal = [x for x in product(*SPACE.values()) if fits(x[0], x[1])]
    assert sorted(tuple(d.values()) for d in asked(result)) == sorted(legal)
    assert result.exhausted


def test_a_space_of_one_assignment() -> None:
    result = tune_function(one, {"x": [3]}, trials=8)
    assert (result.best, len(result.trials), result.exhausted) == ({"x": 3}, 1, True)


def test_a_space_without_assignments_is_an_error() -> None:
    with pytest.raises(ValueError, match="no assignment"):
        tune_function(seconds, SPACE, where=lambda block: block < 0)
    with pytest.raises(ValueError, match="'x' has no values"):
        tune_function(one, {"x": []})


def test_a_slip_in_a_space_or_a_constraint_is_named() -> None:
    values: list[Any] = ["-O2", 5]
    for given in values:
        with pytest.raises(TypeError, match="values of 'x' are a list"):
            tune_function(one, {"x": given})
    text: Any = "x > 1"
    with pytest.raises(TypeError, match="a constraint is a function"):
        tune_function(one, {"x": [1, 2]}, where=text)
    with pytest.raises(ZeroDivisionError) as failed:
        tune_function(one, {"x": [0, 1]}, where=lambda x: 1 / x > 0)
    assert failed.value.__notes__ == ["the constraint was asked for x=0"]
    with pytest.raises(ValueError, match="records"):
        tune_function(one, {"x": [0, 1]}, resume=True)


@pytest.mark.parametrize("name", ["let", "block size", "größe"])
def test_a_name_that_the_language_does_not_have_is_searched_and_not_written(name: str) -> None:
    result = tune_function(one, {name: [1, 2]}, trials=2)
    assert (len(result.trials), result.text) == (2, "")
    assert name in repr(result)


def test_failures_are_trials() -> None:
    def f(x: int) -> Any:
        match x:
            case 0:
                raise RuntimeError("too many registers")
            case 1:
                return None
            case 2:
                return math.inf
            case 3:
                return "fast"
            case 4:
                return -1.0
            case 5:
                return True
            case _:
                return [3.0, 2.0, 2.0, 2.0]

    result = tune_function(f, {"x": range(7)}, trials=10)
    failed = {t.decisions["x"]: t.message for t in result.trials if t.seconds is None}
    assert sorted(failed) == [0, 1, 2, 3, 4, 5]
    assert failed[0] == "RuntimeError: too many registers"
    assert (result.best, result.seconds) == ({"x": 6}, 2.0)


def test_if_every_call_fails_there_is_no_best() -> None:
    def f(x: int) -> float:
        raise RuntimeError("no device")

    result = tune_function(f, {"x": range(4)}, trials=10)
    assert (result.best, result.seconds, result.text) == (None, None, "")
    assert "no device" in repr(result)


def test_ctrl_c_keeps_the_trials() -> None:
    calls: list[int] = []

    def f(x: int) -> float:
        calls.append(x)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return 1.0 + x

    result = tune_function(f, {"x": range(100)}, trials=50)
    assert result.interrupted
    assert [t.decisions["x"] for t in result.trials] == calls[:3]
    assert result.best == {"x": min(calls[:3])}


def test_stop_iteration_ends_the_search() -> None:
    calls: list[int] = []

    def f(x: int) -> float:
        if len(calls) == 3:
            raise StopIteration
        calls.append(x)
        return 1.0

    result = tune_function(f, {"x": range(100)}, trials=50)
    assert len(result.trials) == 3
    assert not result.interrupted


def test_a_resumed_search_calls_nothing_twice(tmp_path: Path) -> None:
    records = tmp_path / "trials.jsonl"
    whole = asked(tune_function(seconds, SPACE, trials=16))
    first = asked(tune_function(seconds, SPACE, trials=6, records=records))
    with records.open("ab") as file:
        file.write(b'not a line of a trial\n{"function": 3}\n')
    calls: list[tuple[Any, ...]] = []

    def counted(block: int, unroll: int, pad: bool) -> float:
        calls.append((block, unroll, pad))
        return seconds(block, unroll, pad)

    result = tune_function(counted, SPACE, trials=16, records=records, resume=True, name="seconds")
    assert whole == asked(result)
    assert calls == [tuple(d.values()) for d in whole[len(first) :]]
    assert tune_function(counted, SPACE, trials=0, records=records, resume=True, name="seconds").seconds == min(
        seconds(**d) for d in whole
    )


def test_records_of_another_search_are_not_taken(tmp_path: Path) -> None:
    records = tmp_path / "trials.jsonl"
    tune_function(seconds, SPACE, trials=4, records=records, seed=1)
    others: list[dict[str, Any]] = [{"seed": 2}, {"strategy": "random", "seed": 1}, {"name": "another", "seed": 1}]
    for other in others:
        assert len(tune_function(seconds, SPACE, trials=0, records=records, resume=True, **other).trials) == 0


def test_a_function_that_cannot_take_the_decisions_is_refused_before_a_call() -> None:
    with pytest.raises(TypeError, match=r"fits.* cannot be called with the draws block, unroll, pad: .*'pad'"):
        tune_function(fits, SPACE)
    with pytest.raises(ValueError, match="'tile'"):
        tune_function(seconds, SPACE, where=lambda tile: tile > 0)
    with pytest.raises(ValueError, match="regret"):
        tune_function(seconds, SPACE, until=0.1)


def test_a_budget_of_no_time_makes_no_call() -> None:
    assert tune_function(seconds, SPACE, budget=0.0).trials == ()


# Schedules as spaces.


def expected_of_the_schedule() -> list[dict[str, Any]]:
    return [
        {"block": b, "unroll": u, "staged": s is not None, **({"layout": s} if s else {}), "split": p is not None}
        | ({"parts": p} if p else {})
        | {"fixed": 2}
        for b in (16, 32, 64)
        for u in (8, 16, 32)
        if u < b
        for s in ("rows", "columns", None)
        for p in (2, 3, None)
    ]


def test_the_assignments_of_a_schedule() -> None:
    listed, _, name = listed_space(SCHEDULE)
    found = [listed.decisions(n) for n in range(len(listed))]
    assert name == "tuned"
    assert sorted(map(repr, found)) == sorted(map(repr, expected_of_the_schedule()))


def test_a_schedule_is_written_with_the_best_decisions_and_is_a_space_again(tmp_path: Path) -> None:
    def f(**values: Any) -> float:
        return 1.0 + (values["block"] != 32) + ("layout" in values) + values.get("parts", 2)

    def small(block: int, unroll: int) -> bool:
        return block * unroll < 1024

    file = tmp_path / "tuned.tsched"
    file.write_text(SCHEDULE)
    result = tune_function(f, file, where=small, trials=100)
    assert result.best is not None
    assert result.best["block"] == 32
    assert "let block ~ sample_categorical([16, 32, 64]) := 32" in result.text
    assert str(result) == result.text
    again, _, _ = listed_space(result.text)
    assert [again.decisions(n) for n in range(len(again))] == [result.best]


def test_values_by_name_are_written_as_a_schedule() -> None:
    result = tune_function(seconds, SPACE, trials=20)
    again, _, _ = listed_space(result.text)
    assert [again.decisions(n) for n in range(len(again))] == [result.best]


def test_a_schedule_with_draws_of_loops_is_refused() -> None:
    with pytest.raises(ValueError, match="`order`"):
        tune_function(one, "schedule s for f { let order ~ sample_permutation([1, 2, 3]) }")
    with pytest.raises(ValueError, match="one schedule"):
        tune_function(one, "compute f(A: f32[4]) -> B: f32[4] { B[i] = A[i] }")


def test_a_schedule_of_too_many_assignments_is_sampled_in_its_own_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "MOST", 12)
    monkeypatch.setattr(functions, "SAMPLED", 8)
    listed, _, _ = listed_space(SCHEDULE)
    assert not listed.complete
    for n in range(8):
        listed.near(n)
    found = {frozenset(listed.decisions(n).items()) for n in range(len(listed))}
    assert len(found) == len(listed) > 8
    assert found < {frozenset(d.items()) for d in expected_of_the_schedule()}


# Assignments.


def test_a_space_without_draws_is_one_call() -> None:
    assert len(tune_function(one, {}, trials=3).trials) == 1


def test_a_draw_of_many_values_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "PAIRS", 256)
    listed = Assignments.of({"a": range(100), "b": range(100)})
    assert not listed.complete
    assert 200 < len(listed) <= 256


def test_a_list_of_assignments_is_a_space() -> None:
    rows = [{"x": 1, "kind": "a"}, {"x": 2, "kind": "b"}, {"x": 3}]
    result = tune_function(lambda **v: float(v["x"]), [*rows, *rows], trials=10)
    assert sorted(map(repr, asked(result))) == sorted(map(repr, rows))


def test_features_of_values() -> None:
    listed = Assignments.of(
        {"size": [16, 32, 48, 64], "power": [1, 2, 4], "kind": ["a", "b", "c"], "zero": [0, 5], "same": [1]}
    )
    first = [
        listed.columns[listed.row(listed.decisions(0) | change)].round(3).tolist() for change in ({}, {"size": 48})
    ]
    third = round(float(np.log2(3)), 3)
    # The place on a scale, divisibility; the place; a column for each; the place; the place of size * power.
    assert first[0] == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert first[1] == [round(third / 2, 3), 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, round(third / 4, 3)]
    assert listed.columns[listed.row(listed.decisions(0) | {"size": 64})][1] == 1.0


def test_a_large_space_is_sampled_and_searched_beside_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "MOST", 4096)
    monkeypatch.setattr(assignments, "SAMPLED", 512)
    space = {name: list(range(32)) for name in "abcdef"}

    def cube(a: Any, b: Any) -> bool:
        return a + b < 40

    listed = Assignments.of(space, cube)
    assert not listed.complete
    assert all(cube(d["a"], d["b"]) for d in map(listed.decisions, range(0, len(listed), 97)))
    before = len(listed)
    near = listed.near(0)
    assert len(near) <= 6 * 31
    assert len(listed) > before
    assert listed.row(listed.decisions(near[-1])) == near[-1]
    assert all(sum(a != b for a, b in zip(listed.codes[0], listed.codes[n], strict=True)) == 1 for n in near)
    result = tune_function(lambda **v: 1.0 + sum(abs(x - 9) for x in v.values()), space, where=cube, trials=16)
    assert all(cube(d["a"], d["b"]) for d in asked(result))


def test_all_of_a_sampled_space_is_tried_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "MOST", 30)
    monkeypatch.setattr(assignments, "SAMPLED", 8)
    space = {name: range(4) for name in "abc"}
    result = tune_function(lambda a, b, c: 1.0 + a + abs(b - 2) + c, space, trials=100)
    assert len(asked(result)) == len({tuple(d.values()) for d in asked(result)}) == 64


def test_a_space_of_more_rows_than_are_judged_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "JUDGED", 12)
    result = tune_function(seconds, SPACE, trials=100)
    assert len(asked(result)) == 40
    assert result.best == {"block": 64, "unroll": 4, "pad": False}


def test_a_row_is_taken_once() -> None:
    explorer = ListedExplorer(Assignments.of(SPACE), 0, "f")
    assert len(explorer.replays([{"block": 16, "unroll": 1, "pad": True}] * 2)) == 1
    assert explorer.replays([{"block": 16, "unroll": 3, "pad": True}, {"block": 16, "unroll": 1, "pad": 1}]) == []
    assert len(explorer.draws(100)) == 39
    assert explorer.followed([])


@pytest.mark.parametrize("rough", [False, True])
def test_a_sweep_believes_what_a_posterior_does(rough: bool) -> None:
    rng = np.random.default_rng(0)
    x, points, y = rng.random((12, 3)), rng.random((40, 3)), rng.standard_normal(12)
    hyper = Hyper.initial(3, rough)
    noise = rng.random(12)
    sweep = Sweep(points, hyper, x[:4], noise[:4])
    for row, known in zip(x[4:], noise[4:], strict=True):
        sweep.add(row, known)
    beliefs = Posterior.of(x, y, hyper, noise).at(points)
    np.testing.assert_allclose(sweep.mean(y), beliefs.mean, atol=1e-9)
    np.testing.assert_allclose(sweep.variance, beliefs.variance, atol=1e-9)


def test_trials_that_cannot_be_written_are_not_lost(tmp_path: Path) -> None:
    """A full disk, and what is no file: the search goes on, and says so once."""
    if Path("/dev/full").exists():
        full = tune_function(seconds, SPACE, trials=4, records=Path("/dev/full"))
        assert len(full.trials) == 4 and full.best is not None and "/dev/full" in full.unkept
    found = tune_function(seconds, SPACE, trials=4, records=tmp_path)
    assert len(found.trials) == 4 and str(tmp_path) in found.unkept and found.unkept in repr(found)
    assert not tune_function(seconds, SPACE, trials=4, records=tmp_path / "new" / "trials.jsonl").unkept
