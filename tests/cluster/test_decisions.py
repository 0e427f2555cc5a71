"""What a search on many workers decides: what one with a local runner does that has the same answers in the same batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tensorc_dsl.ir.program import Program
from tensorc_dsl.tuning.cluster.runner import ClusterRunner
from tensorc_dsl.tuning.cluster.station import Orders, TimeOrder
from tensorc_dsl.tuning.measure.outcome import Late, Outcome, RunnerLike, Status
from tensorc_dsl.tuning.records.database import Database, Queue
from tensorc_dsl.tuning.records.trial import program_key, target_key
from tensorc_dsl.tuning.search.events import Event, Measured, Proposed
from tensorc_dsl.tuning.search.log import SearchInput
from tensorc_dsl.tuning.search.options import SearchOptions
from tensorc_dsl.tuning.search.several import tune_all
from tensorc_dsl.tuning.search.tune import Search, TuneResult
from tests.cluster.stub import TARGET, Stub, stubs, task, time_of


class Alone:
    """The answers of the stubs, without workers, and as many lanes."""

    def __init__(self, lanes: int, late: frozenset[int] = frozenset()) -> None:
        self.lanes = lanes
        self._late = late
        self._number = 0
        self._held: list[tuple[Program, Outcome]] = []

    def measure(self, programs: Sequence[Program], best: float | None) -> Iterator[Outcome | Late]:
        for p in programs:
            number, self._number = self._number, self._number + 1
            if number in self._late:
                self._held.append((p, answer(p)))
                yield Late(p)
            else:
                yield answer(p)

    def late(self, wait: bool = False) -> list[tuple[Program, Outcome]]:
        found, self._held = self._held, []
        return found

    def compare(self, programs: Sequence[Program]) -> list[Outcome]:
        return [answer(p) for p in programs]


def answer(p: Program) -> Outcome:
    seconds = time_of(p)
    return Outcome(Status.OK, seconds, (seconds,) * 8)


def searched(
    runner: RunnerLike, strategy: str = "bayes", trials: int = 28, records: Database | None = None, resume: bool = False
) -> tuple[TuneResult, list[Event]]:
    events: list[Event] = []
    (result,) = tune_all([search_of(runner, strategy, trials, records, resume, events)], [1.0])
    return result, events


def search_of(
    runner: RunnerLike, strategy: str, trials: int, records: Database | None, resume: bool, events: list[Event]
) -> Search:
    given = SearchInput(
        space=task().model,
        program=task().program,
        target=TARGET,
        options=SearchOptions(trials=trials, strategy=strategy, seed=3, resume=resume),
        runner=runner,
        threads=1,
        many=runner,  # pyright: ignore[reportArgumentType]
        on_event=events.append,
        records=None if records is None else Queue(lambda: records),
        clock=lambda: 0.0,
    )
    return Search(given)


def batches(events: list[Event]) -> list[int]:
    return [len(e.traces) for e in events if isinstance(e, Proposed)]


@pytest.mark.parametrize("strategy", ["bayes", "evolutionary", "random"])
def test_decisions_equal_those_of_one_machine_with_the_same_answers(strategy: str) -> None:
    alone, local = searched(Alone(6), strategy)
    with stubs(*(Stub(n, timing=0.01 * (1 + n % 3)) for n in range(6))) as runner:
        many, events = searched(runner, strategy)
    assert batches(local) == batches(events) == [12, 12, 4]
    assert [t.text for t in many.traces] == [t.text for t in alone.traces]
    assert [o.seconds for o in many.outcomes] == [o.seconds for o in alone.outcomes]
    assert many.best is not None and alone.best is not None and many.best.text == alone.best.text


def test_the_next_batch_is_proposed_while_machines_have_the_last_trials_of_one() -> None:
    """Two for each machine, but no more than three quarters of the first batch: no machine waits for proposals."""
    _, events = searched(Alone(6), "random")
    steps = [e for e in events if isinstance(e, Proposed | Measured)]
    before = [sum(isinstance(x, Measured) for x in steps[:n]) for n, e in enumerate(steps) if isinstance(e, Proposed)]
    assert before == [0, 12 - 9, 24 - 12]


def test_searches_of_several_targets_go_on_side_by_side_and_decide_as_alone() -> None:
    alone, _ = searched(Alone(1), "evolutionary")
    log: list[tuple[str, str, int, float, float]] = []
    other = replace(TARGET, cpu="znver3")
    ahead = threading.Event()

    def told(order: Orders) -> None:
        if isinstance(order, TimeOrder) and sum(what == "TimeOrder" for what, *_ in log) > 20:
            ahead.set()

    def held(order: Orders) -> None:
        if isinstance(order, TimeOrder):
            assert ahead.wait(60.0)  # a search that waited for another one's batch would never get there

    with stubs(Stub(0, fault=held, log=log), Stub(1, target=other, fault=told, log=log)) as slow:
        fast = ClusterRunner(task().program, other, slow._pool, threads=1)
        events: list[list[Event]] = [[], []]
        searches = [
            search_of(runner, "evolutionary", 28, None, False, heard)
            for runner, heard in zip((slow, fast), events, strict=True)
        ]
        results = tune_all(searches, [1.0, 1.0], groups=[0, 1])
        fast.close()
    for n, (result, heard) in enumerate(zip(results, events, strict=True)):
        assert result.trials == 28 and {o.machine for o in result.outcomes} == {f"m{n}"}
        assert [t.text for t in result.traces] == [t.text for t in alone.traces]
        assert batches(heard) == [8, 8, 8, 4]
    trials = [number for what, key, number, *_ in log if what == "TimeOrder"]
    assert trials.index(0) > 20  # the fast one does not wait for the slow one


def test_trials_that_are_held_back_are_neither_proposed_again_nor_lost() -> None:
    result, events = searched(Alone(4, late=frozenset({3, 9, 17, 24})))
    keys = [program_key(t.program) for t in result.traces]
    assert result.trials == 28 == len(set(keys))
    assert sorted(e.trial for e in events if isinstance(e, Measured)) == list(range(28))
    # Each is among the trials behind its batch, and before the next one is proposed it is learnt.
    assert [o.seconds for o in result.outcomes] == [time_of(t.program) for t in result.traces]


def test_a_search_on_workers_is_resumed_and_measures_nothing_twice(tmp_path: Path) -> None:
    log: list[tuple[str, str, int, float, float]] = []
    with Database.open(tmp_path / "r.sqlite") as db:
        with stubs(Stub(0, log=log), Stub(1, log=log)) as runner:
            first, _ = searched(runner, trials=16, records=db)
        before = len(log)
        with stubs(Stub(0, log=log), Stub(1, log=log)) as runner:
            second, _ = searched(runner, trials=16, records=db, resume=True)
        rows = [r for r in db.trials(program_key(task().program), target_key(TARGET, 1)) if r.phase == "trial"]
        facts = {k: msgspec.json.decode(v)["machine"] for k, v in db.machines().items() if "machine" in v}
    assert [t.text for t in second.traces] == [t.text for t in first.traces]
    assert [r.trial for r in rows] == list(range(16)) and len({r.run for r in rows}) == 1
    assert {what for what, *_ in log[before:]} <= {"BuildOrder", "TimeOrder"}
    assert sum(what == "TimeOrder" for what, *_ in log[before:]) == 1  # the finalists
    assert {facts[r.fingerprint] for r in rows} == {"m0", "m1"}  # each record has its machine
