"""Teams: who makes an expansion does not change it, and no failure of a process loses or repeats one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensorc_dsl.backend import once
from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.faces.api import kernel as kernel_module
from tensorc_dsl.processes.machine import Turns
from tensorc_dsl.schedule.trace.handlers import block, condition, trace
from tensorc_dsl.schedule.trace.trace import Decider, Model, Trace
from tensorc_dsl.tuning.search import team as teams
from tensorc_dsl.tuning.search.expansion import Order, described, here
from tensorc_dsl.tuning.search.space import Explorer
from tensorc_dsl.tuning.search.team import Ground, Team

FILE = """\
use std.cpu.default
use std.ops.{matmul}

task product = matmul(M=48, N=64, K=32)
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("team") / "product.tsched"
    path.write_text(FILE)
    return load(path, threads=1)["product"]


def orders(count: int, purpose: str = "prior") -> list[Order]:
    return [Order(3, "product", f"{purpose}/{n}", None) for n in range(count)]


def texts(found: list[Trace | None]) -> list[str | None]:
    return [None if t is None else t.text for t in found]


@pytest.mark.corpus
def test_a_team_makes_what_one_process_makes(task: Task, tmp_path: Path) -> None:
    ground = Ground(task.space, task.target, {})
    wanted = orders(12)
    alone = here(task.space)(wanted)
    with Team(2, 0.0) as team:
        expand = team.expander(ground, Turns(folder=tmp_path))
        expand(orders(8, "start"))
        _until(lambda: all(m.worker.greeted and m.idle for m in team.members), lambda: expand(orders(4, "wait")))
        together = expand(wanted)
        made_there = [t for t in together if t is not None]
        assert texts(together) == texts(alone)
        for a, b in zip(alone, together, strict=True):
            if a is not None and b is not None:
                assert (a.program, a.draws, a.refused) == (b.program, b.draws, b.refused)
                assert lowered_once(a.program, task.target).key == lowered_once(b.program, task.target).key
                assert (described(a.program, {}, task.target) == described(b.program, {}, task.target)).all()
    assert made_there


def test_a_request_leaves_nothing_to_lower(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the search would lower its own part after the request, while the processes beside it wait."""
    with Team(1, 0.0) as team:
        expand = team.expander(Ground(task.space, task.target, {}), Turns(folder=tmp_path))
        found = [t for t in expand(orders(8, "lowered")) if t is not None]

        def asked(_: object) -> None:
            raise AssertionError("it is lowered again")

        monkeypatch.setattr(once, "lowering_for", asked)
        assert found and all(lowered_once(t.program, task.target).key for t in found)


@pytest.mark.corpus
def test_a_search_is_the_same_with_a_team(task: Task, tmp_path: Path) -> None:
    def asked(explorer: Explorer) -> list[str]:
        drawn = explorer.draws(10)
        moved = explorer.replays([dict(t.decisions) | {"unroll": 0} for t in drawn])
        return [t.text for t in (*drawn, *moved, *explorer.draws(3))]

    with Team(1, 0.0) as team:
        expander = team.expander(Ground(task.space, task.target, {}), Turns(folder=tmp_path))
        together = Explorer(task.space, 5, "product", task.target, expander=expander)
        assert asked(together) == asked(Explorer(task.space, 5, "product", task.target))


def test_the_order_of_a_process_that_dies_is_made_here(task: Task, tmp_path: Path) -> None:
    wanted = orders(10)
    alone = here(task.space)(wanted)
    with Team(2, 0.0) as team:
        expand = team.expander(Ground(task.space, task.target, {}), Turns(folder=tmp_path))
        expand(orders(8, "start"))
        first = team.members[0].worker.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert texts(expand(wanted)) == texts(alone)
        _until(lambda: len(team.members) == 1, lambda: expand(orders(4, "wait")))
        assert texts(expand(wanted)) == texts(alone)


def test_an_interrupt_ends_the_processes(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Team(1, 0.0) as team:
        expand = team.expander(Ground(task.space, task.target, {}), Turns(folder=tmp_path))
        expand(orders(8, "start"))

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(teams, "expanded", interrupted)
            with pytest.raises(KeyboardInterrupt):
                expand(orders(8))
        assert team.members == []
        assert texts(expand(orders(3))) == texts(here(task.space)(orders(3)))


class Counting(Model):
    """A user's model, which changes as it is used."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.calls = 0

    def expand(self, decide: Decider) -> Trace:
        self.calls += 1
        return self._model.expand(decide)


@pytest.mark.corpus
@pytest.mark.parametrize(("worth", "alone"), [(0.0, 1), (2.5, 3), (8.0, 8), (60.0, 20)])
def test_a_team_is_started_when_its_start_is_spent(
    worth: float, alone: int, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search of a few trials would end before a process has begun."""
    seconds = count()
    monkeypatch.setattr(teams, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))  # an expansion takes one
    began, plain = list[int](), here(task.space)
    made = list[Order]()
    monkeypatch.setattr(teams, "here", lambda _: lambda some: made.extend(some) or plain(some))
    with Team(1, worth) as team:
        monkeypatch.setattr(team, "_begin", lambda: began.append(len(made)))
        expand = team.expander(Ground(task.space, task.target, {}), Turns(folder=tmp_path))
        found = [t for part in (orders(1), orders(7), orders(8), orders(4)) for t in expand(part)]
    assert len(found) == 20
    assert began[:1] == ([alone] if alone < 20 else [])


@pytest.mark.corpus
def test_models_that_change_stay_in_this_process(task: Task, tmp_path: Path) -> None:
    counting, kept = Counting(task.space), trace(task.space)
    with Team(2, 0.0) as team:
        for model in (counting, kept, condition(counting, {})):
            found = team.expander(Ground(model, task.target, {}), Turns(folder=tmp_path))(orders(8))
            assert texts(found) == texts(here(task.space)(orders(8)))
        assert counting.calls == 2 * 8 and kept.last is not None and not team.members


@pytest.mark.corpus
def test_handled_models_have_a_team(task: Task, tmp_path: Path) -> None:
    drawn = next(t for t in here(task.space)(orders(4)) if t is not None)
    name = drawn.open_draws[0].name
    model = block(condition(task.space, {name: drawn.decisions[name]}), [drawn.open_draws[-1].name])
    with Team(1, 0.0) as team:
        expand = team.expander(Ground(model, task.target, {}), Turns(folder=tmp_path))
        expand(orders(8, "start"))
        assert len(team.members) == 1
        _until(lambda: all(m.worker.greeted and m.idle for m in team.members), lambda: expand(orders(4, "wait")))
        assert texts(expand(orders(8))) == texts(here(model)(orders(8)))


@pytest.mark.corpus
def test_a_first_choice_is_the_same_with_any_number_of_processes(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(kernel_module, "_kept", lambda _: None)
    alone = kernel_module.chosen_soon(task, None)
    with Team(0, 0.0) as nobody, Team(2, 0.0) as two:
        assert kernel_module.chosen_soon(task, None, nobody).text == alone.text and not nobody.members
        choose = partial(kernel_module.chosen_soon, task, None, two)
        _until(lambda: bool(two.members) and all(m.worker.greeted and m.idle for m in two.members), choose)
        found = choose()
        assert (found.text, found.program) == (alone.text, alone.program)


def test_one_core_is_no_team(task: Task, tmp_path: Path) -> None:
    with Team(0, 0.0) as team:
        found = team.expander(Ground(task.space, task.target, {}), Turns(folder=tmp_path))(orders(8))
        assert texts(found) == texts(here(task.space)(orders(8))) and not team.members


def _until(reached: Callable[[], bool], do: Callable[[], object]) -> None:
    """Do it until it is reached; a start of a process takes a second, on a busy machine more."""
    for _ in range(2000):
        if reached():
            return
        do()
    raise AssertionError("it is never reached")
