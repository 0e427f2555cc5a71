"""Choices in whole runs: what is measured of which choice, and which rounds count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, pairwise

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.measure import in_context
from tensorc_dsl.tuning.measure.in_context import Lineup, by_turns, compare_in_context, copies_of_constants, lineups


class Machine:
    """A clock that calls move on, and whose calls take longer from a time on, until another."""

    def __init__(self, slow: tuple[float, float] = (0.0, 0.0)) -> None:
        self.now = 0.0
        self.flushed = 0
        self._slow = slow

    def clock(self) -> float:
        return self.now

    @property
    def disturbed(self) -> bool:
        return self._slow[0] <= self.now < self._slow[1]

    def call(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds * (3.0 if self.disturbed else 1.0)

        return run

    def after_a_flush(self, first: float, later: float) -> Callable[[], None]:
        """A call that takes longer the first time after a flush."""
        seen = -1

        def run() -> None:
            nonlocal seen
            self.now += later if seen == self.flushed else first
            seen = self.flushed

        return run

    def flush(self) -> None:
        self.flushed += 1

    def runs(self, *calls: tuple[str, Sequence[Callable[[], None]]]) -> list[Lineup]:
        """The runs of a round of such calls, each with its choices."""

        def run(choices: Mapping[str, int]) -> list[float]:
            marks = [self.now]
            for task, some in calls:
                some[choices[task]]()
                marks.append(self.now)
            return [end - begin for begin, end in pairwise(marks)]

        tasks = [task for task, _ in calls]
        return [Lineup(tasks, c, partial(run, c)) for c in lineups({task: len(some) for task, some in calls})]


def test_each_choice_of_each_task_is_in_a_round() -> None:
    assert lineups({"a": 3, "b": 2, "c": 1}) == [
        {"a": 0, "b": 0, "c": 0}, {"a": 1, "b": 1, "c": 0}, {"a": 2, "b": 0, "c": 0},
    ]  # fmt: skip
    assert lineups({}) == [{}]


def test_each_choice_has_its_time() -> None:
    m = Machine()
    runs = m.runs(
        ("a", (m.call(0.1), m.call(0.3), m.call(0.2))),
        ("b", (m.call(0.5), m.call(0.4))),
        ("a", (m.call(0.3), m.call(0.1), m.call(0.8))),
    )
    found = compare_in_context(runs, m.flush, clock=m.clock)
    assert found.trusted and found.rounds >= in_context.FEWEST
    assert found.seconds("a") == pytest.approx((0.2, 0.2, 0.5)) and found.seconds("b") == pytest.approx((0.5, 0.4))
    assert m.flushed == 3 * (found.rounds + 1)


def test_runs_of_other_calls_are_in_a_round() -> None:
    """Two ways to make the calls of a model have some of their tasks in common."""
    m = Machine()
    one = m.runs(("a", (m.call(0.1), m.call(0.3))), ("b", (m.call(0.5),)))
    other = m.runs(("c", (m.call(0.4), m.call(0.2))), ("b", (m.call(0.5),)))
    found = compare_in_context([*one, *other], m.flush, clock=m.clock)
    assert found.trusted and {task: found.seconds(task) for task in "abc"} == {
        "a": pytest.approx((0.1, 0.3)), "b": pytest.approx((0.5,)), "c": pytest.approx((0.4, 0.2)),
    }  # fmt: skip


def test_caches_are_empty_before_each_run() -> None:
    """The second kernel is the better one alone, and the first one where its weights are cold."""
    m = Machine()
    runs = m.runs(("a", (m.after_a_flush(1.0, 0.9), m.after_a_flush(2.0, 0.5))))
    assert compare_in_context(runs, m.flush, clock=m.clock).seconds("a") == pytest.approx((1.0, 2.0))


def test_rounds_beside_other_work_do_not_count() -> None:
    m = Machine(slow=(5.0, 15.0))
    found = compare_in_context(m.runs(("a", (m.call(0.1), m.call(0.2)))), m.flush, clock=m.clock)
    assert found.trusted and found.seconds("a") == pytest.approx((0.1, 0.2))


def test_nothing_is_trusted_while_a_disturbance_lasts() -> None:
    m = Machine()
    asked = count()
    runs = m.runs(("a", (m.call(0.1), m.call(0.2))))
    found = compare_in_context(runs, m.flush, slower=lambda: 1.0 if next(asked) == 0 else 1.5, clock=m.clock)
    assert not found.trusted and found.seconds("a") == pytest.approx((0.1, 0.2))
    assert m.now >= in_context.LIMIT


def test_a_model_without_calls_has_nothing_to_compare() -> None:
    ticks = count()
    runs = Machine().runs()
    assert compare_in_context(runs, lambda: None, clock=lambda: 0.01 * next(ticks)).times == {}


def test_turns_are_as_many_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_context, "PAUSE", 0.0)
    m = Machine()
    first, second = by_turns([m.call(1.0), m.call(2.0)], 20.0, m.clock)
    assert set(first) == {1.0} and set(second) == {2.0} and len(first) == len(second) >= in_context.FEWEST_TURNS


@pytest.mark.parametrize(
    ("passing", "columns", "copies"),
    [
        (1 << 18, 64, 1),
        (1 << 20, 64, 1),
        (1 << 21, 256, 17),
        (1 << 21, 1 << 20, 2),
        (1 << 21, 1, 64),
        (1 << 30, 4096, 33),
    ],
)
def test_weights_of_other_calls_push_those_of_this_one_out(passing: int, columns: int, copies: int) -> None:
    """Two cores with a second cache of 512 KiB each, and a last one of 32 MiB: a weight has 512 bytes for each column."""
    program = parse_program(
        Source(
            "p.tsched",
            f"program dense(X: f32[1, 128], W: const f32[128, {columns}], Y: f32[1, {columns}]) {{"
            f" for j in {columns}, k in 128 {{"
            f" block Y {{ spatial vj in {columns} = j\n reduce vk in 128 = k\n init {{ Y[0, vj] = 0.0 }}\n"
            " Y[0, vj] = Y[0, vj] + X[0, vk] * W[vk, vj] } } }",
        )
    )
    target = Target(cores=2, l2=1 << 19, l3=1 << 25)
    assert copies_of_constants(program, target, passing) == copies
    inner = replace(program, params=tuple(replace(p, constant=False) for p in program.params))
    assert copies_of_constants(inner, target, passing) == 1
