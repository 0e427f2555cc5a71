"""The queue of a search on many workers, with stations whose answers and durations are made up."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest
from distributed import wait

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.protocol import WorkerBug
from tensorc_dsl.tuning.cluster import pool as pool_module
from tensorc_dsl.tuning.cluster import runner as runner_module
from tensorc_dsl.tuning.cluster import station as station_module
from tensorc_dsl.tuning.cluster.access import Address
from tensorc_dsl.tuning.cluster.pool import Pool, Seen
from tensorc_dsl.tuning.cluster.runner import ClusterRunner
from tensorc_dsl.tuning.cluster.station import Orders, TimeOrder
from tensorc_dsl.tuning.measure.child import Prepare
from tensorc_dsl.tuning.measure.outcome import Late, MachineChange, Outcome, Status
from tests.cluster.stub import TARGET, TOKEN, Stub, Turn, first_together, measured, programs, stubs, task, time_of

Log = list[tuple[str, str, int, float, float]]


def timings(log: Log) -> Log:
    return [row for row in log if row[0] == "TimeOrder"]


def test_answers_are_in_order_and_of_the_right_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = []
    recall, recalled = Pool.recall, list[str]()

    def counting(self: Pool, order: str) -> bool:
        found = recall(self, order)
        recalled.extend([order] * found)
        return found

    monkeypatch.setattr(Pool, "recall", counting)
    some = programs(24)
    fault = first_together(3)
    with stubs(*(Stub(n, timing=0.01, log=log, fault=fault) for n in range(3))) as runner:
        assert runner.lanes == 3
        found = [*runner.measure(some, None)]
    assert [o.seconds for o in found if isinstance(o, Outcome)] == [time_of(p) for p in some]
    assert {o.machine for o in found if isinstance(o, Outcome)} == {
        "m0",
        "m1",
        "m2",
    }  # no healthy device without a task
    times = Counter(key for _, key, *_ in timings(log))
    assert len(times) >= 24
    # Each runs once; one that is taken back as it begins runs once more at most, and its first answer counts.
    assert all(n <= 1 + recalled.count(key) for key, n in times.items())


def test_a_device_times_one_kernel_at_a_time_and_has_at_most_two_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = []
    most: Counter[str] = Counter()
    give = Pool.give

    def counting(self: Pool, worker: object, order: Orders) -> None:
        give(self, worker, order)  # pyright: ignore[reportArgumentType]
        for seen in self.workers():
            most[seen.name] = max(most[seen.name], sum(isinstance(o, TimeOrder) for o in self.at(seen.address)))

    monkeypatch.setattr(Pool, "give", counting)
    with stubs(*(Stub(n, timing=0.02, log=log) for n in range(2))) as runner:
        measured(runner, programs(16))
    assert set(most.values()) == {runner_module.IN_FLIGHT}
    for number in range(2):
        spans = sorted((began, ended) for *_, n, began, ended in timings(log) if n == number)
        assert all(a[1] <= b[0] + 1e-3 for a, b in pairwise(spans))


def test_answers_whose_transfer_dask_cancels_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a worker ends meanwhile: Dask's call has neither a result nor an error then."""
    some = programs(4)
    with stubs(Stub(0)) as runner:
        assert runner.lanes == 1
        fetched, cancelled = pool_module._fetched, list[bool]()

        async def broken(client: object, keys: Sequence[str]) -> dict[str, bytes]:
            if len(cancelled) < 2:
                cancelled.append(True)
                raise asyncio.CancelledError
            return await fetched(client, keys)

        monkeypatch.setattr(pool_module, "_fetched", broken)
        found = measured(runner, some)
    assert len(cancelled) == 2
    assert sorted(o.seconds or 0.0 for o in found) == sorted(map(time_of, some))


def test_answers_of_a_worker_that_is_gone_take_no_others_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask waits for the answers of a dead worker for ever. All that were fetched at once were lost with them, and so many
    failures at once retired workers that had answered."""
    some, changes = programs(24), list[MachineChange]()
    monkeypatch.setattr(pool_module, "ANSWER_SECONDS", 0.3)
    with stubs(Stub(0, builders=8), Stub(1, builders=8), changes=changes) as runner:
        assert runner.lanes == 2
        pool, hung = runner._pool, list[int]()
        client = pool._client
        fetched, dead = pool_module._fetched, next(s.address for s in pool.workers() if s.name == "m0")

        async def stuck(client: object, keys: Sequence[str]) -> dict[str, bytes]:
            # All at once, as after a stall: more orders than the failures that retire a worker.
            if dead in {pool_worker[key] for key in keys} and not hung:
                hung.append(len(keys))
                monkeypatch.setattr(pool_module, "ANSWER_SECONDS", 60.0)  # a busy machine answers late
                await asyncio.sleep(3600)
            return await fetched(client, keys)

        pool_worker: dict[str, str] = {}
        give = pool.give

        def noted(worker: Seen, order: Orders) -> None:
            give(worker, order)
            pool_worker.update((g.future.key, g.worker) for g in pool._given.values())

        monkeypatch.setattr(pool, "give", noted)
        monkeypatch.setattr(pool_module, "_fetched", stuck)
        answers = runner.measure(some, None)
        with client.as_current():
            wait([g.future for g in pool._given.values()])
        found = [*answers]
    assert hung and hung[0] > runner_module.DEATHS
    assert [o.seconds for o in found if isinstance(o, Outcome)] == [time_of(p) for p in some]
    assert not [c for c in changes if c.change == "retired"]


def test_waiting_in_the_queue_is_no_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each order takes 15 seconds of a clock, of 20 that it may take; the last one waits for more than a minute."""
    now, longest = [0.0], list[float]()
    monkeypatch.setattr(station_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def working(order: Orders) -> None:
        if isinstance(order, TimeOrder):
            with one._busy(order.id, 20.0):
                now[0] += 15.0
                longest.append(one.standing().seconds)
                assert not one.standing().hangs

    one = Stub(0, fault=working)
    with stubs(one) as runner:
        found = measured(runner, programs(8))
    assert all(o.status is Status.OK for o in found)
    assert longest == [15.0] * 8 and now[0] == 120.0


def test_an_order_that_hangs_costs_its_worker_and_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    changes: list[MachineChange] = []

    def hang(order: Orders) -> None:
        if isinstance(order, TimeOrder):
            one._busy(order.id, 0.1).__enter__()
            gate.wait(60)

    one = Stub(1, fault=hang)
    with stubs(Stub(0, timing=0.01), one, changes=changes) as runner:
        found = measured(runner, programs(8))
        gate.set()
    assert [o.status for o in found] == [Status.OK] * 8 and {o.machine for o in found} == {"m0"}
    assert [(c.machine, c.change) for c in changes if c.change == "retired"] == [("m1", "retired")]
    assert "it hangs" in next(c.why for c in changes if c.change == "retired")


def test_nobody_has_the_target_and_it_says_what_is_there() -> None:
    others = Stub(0, target=replace(TARGET, cpu="znver3")), Stub(1, target=TARGET, times=False)
    with stubs(*others, patience=0.6) as runner, pytest.raises(TschedError, match=r"E0878.*none came within 0.6 s"):
        measured(runner, programs(2))
    with pytest.raises(TschedError, match=r"E0876.*m0: it times kernels for `llvm:cpu0:128:1`; m1"):
        target_at("local:2#llvm:haswell")
    with pytest.raises(TschedError, match=r"E0877.*2 kinds of machines"):
        target_at("local:2")
    assert target_at("local:2#llvm:cpu1").cpu == "cpu1"


def target_at(address: str) -> Target:
    """The target of a search at workers of two kinds."""
    with Pool(Address.of(address), TOKEN, lambda n: Stub(n, target=Target(cpu=f"cpu{n}"))) as pool:
        return pool.target(0.1)


def test_workers_of_another_version_or_token_are_refused_with_the_reason() -> None:
    old, strange = Stub(0), Stub(1, token=b"another token, which is of no use here")
    old.facts = msgspec.structs.replace(old.facts, version="0.1.0", code="0" * 32)
    stations = [old, strange]
    with Pool(Address.of("local:2"), TOKEN, lambda n: stations[n]) as pool:
        assert [s.unfit.split(" (")[0] for s in pool.workers()] == [
            "it has another tensorc-dsl",
            "it has another token",
        ]
        with pytest.raises(TschedError, match=r"E0876.*m0: it has another tensorc-dsl \(0\.1\.0, code 00000000"):
            pool.target(0.1)


def test_what_a_search_leaves_under_way_is_its_own_while_others_wait() -> None:
    """One leaves the last trials of a batch under way, and another one of the same workers hears of their ends."""
    some = programs(16)
    with stubs(Stub(0), Stub(1)) as one:
        other = ClusterRunner(task().program, TARGET, one._pool, threads=1)
        answers = one.measure(some[:8], None)
        first = [next(answers) for _ in range(6)]
        between = measured(other, some[8:])
        for _ in range(400):  # they end meanwhile, or soon
            if one.open:
                other.pump()
        assert one.open == 0
        rest = [*answers]
        other.close()
        again = measured(one, some[:2])
    assert [o.seconds for o in (*first, *rest, *between, *again) if isinstance(o, Outcome)] == [
        time_of(p) for p in (*some, *some[:2])
    ]


def test_workers_of_one_search_go_on_while_another_one_of_other_workers_is_waited_for() -> None:
    others, ahead = replace(TARGET, cpu="znver3"), Turn(8)
    some = programs(8)
    with stubs(Stub(0, fault=ahead.waits()), Stub(1, target=others, fault=ahead.others)) as slow:
        fast = ClusterRunner(task().program, others, slow._pool, threads=1)
        theirs = fast.measure(some, None)
        assert len(measured(slow, some)) == 8
        assert fast.open == 0
        found = [o for o in theirs if isinstance(o, Outcome)]
        fast.close()
    assert {o.machine for o in found} == {"m1"} and len(found) == 8


def test_late_workers_take_part() -> None:
    """The second station joins when the first has begun."""
    import asyncio

    from distributed import Worker

    from tensorc_dsl.tuning.cluster import pool as pool_module

    joins = Turn()
    second = Stub(1, fault=joins.others)
    with stubs(Stub(0, fault=joins.waits(1))) as runner:
        answers = runner.measure(programs(24), None)
        next(answers)
        assert runner.timing == 1
        cluster = runner._pool._cluster
        pool_module._stations[second.facts.id] = second

        async def join() -> Worker:
            return await Worker(cluster.scheduler.address, protocol="inproc", **pool_module._announced(second))

        worker = asyncio.run_coroutine_threadsafe(join(), cluster.loop.asyncio_loop).result(60)
        found = [o for o in answers if isinstance(o, Outcome)]
        asyncio.run_coroutine_threadsafe(worker.close(), cluster.loop.asyncio_loop).result(60)
        del pool_module._stations[second.facts.id]
        second.close()
    assert len(found) == 23 and {o.machine for o in found} == {"m0", "m1"}


def test_machines_that_only_build_and_only_time_work_together() -> None:
    log: Log = []
    with stubs(Stub(0, builders=0, log=log), Stub(1, times=False, builders=2, log=log)) as runner:
        assert len(measured(runner, programs(6))) == 6
    assert {(what, n) for what, _, n, *_ in log} == {("TimeOrder", 0), ("BuildOrder", 1)}


def test_the_search_builds_where_no_worker_does() -> None:
    with stubs(Stub(0, builders=0)) as runner:
        found = measured(runner, programs(2))
    assert [o.status for o in found] == [Status.OK] * 2  # the code is that of LLVM, and the stub times anything


def test_an_order_that_was_answered_is_not_carried_out_again() -> None:
    log: Log = []
    station = Stub(0, log=log)
    order = TimeOrder("one", Prepare("", "", 0, 1), 1, ())
    first = station.begin(order).result(60)
    assert station.begin(order).result(60) is first and len(log) == 1
    station.close()


def test_a_slow_worker_does_not_hold_a_batch() -> None:
    goes_on = Turn()
    slow = Stub(3, fault=goes_on.waits())
    with stubs(*(Stub(n) for n in range(3)), slow) as runner:
        found = [*runner.measure(programs(12), None)]
        goes_on.there.set()
        late = runner.late(wait=True)
    assert 1 <= sum(isinstance(o, Late) for o in found) == len(late) <= 12 * (1 - runner_module.MOST_OF)
    assert [o.seconds for _, o in late] == [time_of(p) for p, _ in late]


def test_a_bug_of_ours_is_one_and_trouble_of_a_machine_retires_it() -> None:
    def full(order: Orders) -> None:
        if isinstance(order, TimeOrder):
            raise OSError(28, "No space left on device")

    def broken(order: Orders) -> None:
        raise ZeroDivisionError

    changes: list[MachineChange] = []
    with stubs(Stub(0, timing=0.02), Stub(1, fault=full), changes=changes) as runner:
        assert {o.machine for o in measured(runner, programs(8))} == {"m0"}
    assert [c.why for c in changes if c.change == "retired"] == ["OSError: [Errno 28] No space left on device"]
    with stubs(Stub(0, fault=broken)) as runner, pytest.raises(WorkerBug, match=r"(?s)on m0: .*ZeroDivisionError"):
        measured(runner, programs(1))


def test_failures_of_candidates_are_outcomes() -> None:
    some = programs(4)
    from tensorc_dsl.backend.once import lowered_once

    bad = lowered_once(some[1], TARGET).packed.data
    words = {bad: Outcome(Status.CRASH, message="SIGSEGV")}
    with stubs(Stub(0, words=words)) as runner:
        found = measured(runner, some)
        again = runner.compare(some)
    assert [o.status for o in found] == [o.status for o in again]
    assert [o.status for o in found] == [Status.OK, Status.CRASH, Status.OK, Status.OK]


def test_finalists_are_timed_by_turns_on_one_machine() -> None:
    log: Log = []
    with stubs(Stub(0, log=log), Stub(1, log=log)) as runner:
        found = runner.compare(programs(5))
    assert len({o.machine for o in found}) == 1 and len(timings(log)) == 1


def test_a_batch_that_is_given_up_leaves_nothing_behind() -> None:
    log: Log = []
    with stubs(Stub(0, timing=0.05, log=log)) as runner:
        answers = runner.measure(programs(20), None)
        next(answers)
        answers.close()  # pyright: ignore[reportAttributeAccessIssue]
        before = len(timings(log))
        runner.again(programs(21)[20])
    assert len(timings(log)) <= before + 4
