"""What a worker does with real kernels: it builds and times them in children, and survives theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.faces.api import Task, load, loads
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.cluster.access import Address
from tensorc_dsl.tuning.cluster.pool import connect
from tensorc_dsl.tuning.cluster.station import (
    BuildOrder,
    Job,
    Made,
    RoofOrder,
    Station,
    Timed,
    TimeOrder,
    Trouble,
    answer_of,
    sealed,
)
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.child import Build, Prepare
from tensorc_dsl.tuning.measure.outcome import Status
from tests.cluster.stub import FILE, TOKEN
from tests.measure.faults import kernel
from tests.measure.faults import task as faulty


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    found = Station(host_target(1), TOKEN)
    yield found
    found.close()


@pytest.fixture(scope="module")
def task() -> Task:
    return loads(FILE, threads=1)["p"]


def prepare(task: Task) -> Prepare:
    return Prepare(format_program(task.program), task.target.kind, 0, 1)


def test_a_kernel_is_built_and_timed_beside_a_reference(station: Station, task: Task) -> None:
    packed = lowered_once(task.sample(0).program, task.target).packed
    made = station.begin(BuildOrder("b", Build("p", packed.data, packed.parts, task.target, 1))).result(60)
    assert isinstance(made, Made) and made.code is not None and made.outcome is None
    alone = station.begin(TimeOrder("t", prepare(task), 1, (Job(made.code),))).result(60)
    assert isinstance(alone, Timed) and alone.before is None and alone.outcomes[0].status is Status.OK
    unit = alone.outcomes[0].seconds or 0.0
    order = TimeOrder("u", prepare(task), 1, (Job(made.code), Job(made.code)), None, 2, made.code, unit)
    beside = station.begin(order).result(60)
    assert isinstance(beside, Timed) and len(beside.outcomes) == 2 and beside.before and beside.after
    standing = station.standing()
    assert (standing.timed, standing.built, standing.doing) == (3, 1, "") and standing.drift is not None


def test_a_kernel_that_crashes_ends_no_worker(station: Station, task: Task) -> None:
    bad = Prepare(format_program(faulty()), Target().kind, 0, 1)
    crashed = station.begin(TimeOrder("c", bad, 1, (Job(kernel("null").code),))).result(60)
    right = station.begin(TimeOrder("d", bad, 1, (Job(kernel("none").code),))).result(60)
    assert isinstance(crashed, Timed) and crashed.outcomes[0].status is Status.CRASH
    assert isinstance(right, Timed) and right.outcomes[0].status is Status.OK


def test_what_a_machine_cannot_do_is_trouble_and_no_bug(
    station: Station, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorc_dsl.tuning.measure.local.available", lambda: 1000)
    small = msgspec.structs.replace(prepare(task), seed=7)
    found = station.begin(TimeOrder("m", small, 1, (Job(kernel("none").code),))).result(60)
    assert isinstance(found, Trouble) and not found.bug and found.why.startswith("E0706: ")
    assert station.standing().error.startswith("E0706: ")


def test_a_bug_is_told_as_one(station: Station) -> None:
    found = station.begin(RoofOrder("r", "no program", 1, 0.0)).result(60)
    assert isinstance(found, Trouble)


def test_an_order_of_another_token_is_not_carried_out(station: Station) -> None:
    with pytest.raises(PermissionError, match="without the token"):
        asyncio.run(station.perform(sealed(b"other", RoofOrder("s", "", 1, 0.0))))
    assert "took none" in station.standing().error
    answer = asyncio.run(station.perform(sealed(TOKEN, RoofOrder("r", "no program", 1, 0.0))))
    assert isinstance(answer_of(TOKEN, answer), Trouble)


def test_python(tmp_path: str) -> None:
    at = f"{tmp_path}/f.tsched"
    with open(at, "w") as out:
        out.write(FILE)
    with connect("local:2", threads=1) as pool:
        task = load(at, native=pool.target(10.0))["p"]
        assert task.target == host_target(1) and Address.of("local:2").here == 2
        found = task.search(trials=3, strategy="random", on=pool, records=f"{tmp_path}/r.sqlite")
    assert found.best is not None and found.statuses == {"ok": 3} and all(o.machine for o in found.outcomes)
    assert found.verdict is not None
