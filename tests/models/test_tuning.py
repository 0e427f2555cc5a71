"""Models are tuned as a whole: which tasks have trials, what is chosen in the model, and what an interruption leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import model_tuning, models, schedules, searching
from tensorc_dsl.faces.api.model_tuning import TuningDisplay, lagging, negligible, tune_model
from tensorc_dsl.faces.api.models import LoadedModel, load_model
from tensorc_dsl.faces.api.tasks import Task, UnknownTask
from tensorc_dsl.faces.cli import measured
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure import in_context
from tensorc_dsl.tuning.measure.in_context import InContext, Lineup
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, program_key
from tensorc_dsl.tuning.search.events import Event, Listener, Measured
from tensorc_dsl.tuning.search.team import Team
from tests.models import simulated
from tests.models.simulated import FILE, Simulated, seconds_of

RECORDS = Path("r.sqlite")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches are simulated, and comparisons in the model take a moment."""
    monkeypatch.chdir(tmp_path)
    Path("net.tsched").write_text(FILE)
    monkeypatch.setattr(searching, "LocalRunner", Simulated)
    monkeypatch.setattr(Simulated, "timed", [])
    for name, value in (("PART", 0.0), ("ROUNDS", 4), ("PAUSE", 0.0), ("DISTURBED", 1e9)):
        monkeypatch.setattr(in_context, name, value)
    monkeypatch.setattr(model_tuning, "TURNS_SECONDS", 0.0)
    monkeypatch.setattr(model_tuning, "flusher", lambda _: lambda: None)
    monkeypatch.setattr(model_tuning, "NEGLIGIBLE", 0.0)
    monkeypatch.setattr(measured, "MOST_SECONDS", 0.0)
    monkeypatch.setattr(models, "chosen_soon", lambda task, _records, _team: task.sample(0))
    monkeypatch.setattr(model_tuning._Calm, "slower", lambda _: 1.0)  # pyright: ignore[reportPrivateUsage]


def loaded() -> LoadedModel:
    return load_model("net.tsched", threads=1, records=RECORDS)


def test_other_processes_help_where_many_tasks_are_chosen_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[int | None] = []

    class Told(Team):
        def __init__(self, processes: int | None = None) -> None:
            wanted.append(processes)
            super().__init__(processes)

    monkeypatch.setattr(models, "Team", Told)
    model = load_model("net.tsched", threads=1)
    model.schedules_beside({}, None)  # for two tasks
    monkeypatch.setattr(models, "FEW", 1)
    model.schedules_beside({}, None)
    model.schedules_beside(model.schedules(), None)
    assert wanted == [0, None, None, 0]


def rows(phase: str = "trial") -> list[Trial]:
    with Database.open(RECORDS) as db:
        found = [k.trial for k in db.all()]
    return [t for t in found if isinstance(t, Trial) and t.phase == phase]


def decided(monkeypatch: pytest.MonkeyPatch, choice: int, trusted: bool = True) -> None:
    """In the model this choice is the fastest of each task, the last of fewer."""

    def compare(runs: Sequence[Lineup], *_: Any, **__: Any) -> InContext:
        counts = {task: 1 + max(r.choices[task] for r in runs) for task in {t for r in runs for t in r.tasks}}
        times = {t: tuple((1e-6 if k == min(choice, n - 1) else 1e-5,) for k in range(n)) for t, n in counts.items()}
        return InContext(times, 4, trusted)

    monkeypatch.setattr(model_tuning, "compare_in_context", compare)


@pytest.mark.corpus
def test_all_tasks_share_trials_and_the_model_has_what_was_chosen() -> None:
    model = loaded()
    inputs = model.random_inputs()
    with pytest.raises(Exception, match="E0711"):
        model(**inputs)  # there are no records yet
    found = tune_model(model, trials=11, strategy="random")
    assert found.trials == 11 == len(rows()) and {t.task: t.calls for t in found.tasks} == {"matmul": 2, "relu": 2}
    assert found.before and found.after and found.trusted and not found.interrupted and not found.left_out
    for t in found.tasks:
        recorded = loaded().tasks[t.task].recorded(RECORDS)
        assert recorded is not None and recorded.text == t.schedule.text == model.kernel(t.task).trace.text
        assert t.before and t.after and t.after <= t.before
    x, w = inputs["x"], inputs["w"]
    np.testing.assert_allclose(model(**inputs), np.maximum(np.maximum(x @ w, 0) @ w, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.corpus
@pytest.mark.parametrize("choice", [0, 1, 2])
def test_the_fastest_in_the_model_is_recorded_as_the_best(choice: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decided(monkeypatch, choice)
    found = tune_model(loaded(), tasks=["matmul"], trials=6, strategy="random")
    (task,) = found.tasks
    assert task.changed == (choice > 0) and (task.after == pytest.approx(2e-6))
    recorded = loaded().tasks["matmul"].recorded(RECORDS)
    assert recorded is not None and recorded.text == task.schedule.text
    alone = sorted(rows("final"), key=lambda t: t.seconds or 0.0)
    if choice:
        assert task.schedule.text == alone[choice - 1].trace
    else:
        assert task.schedule.text == loaded().tasks["matmul"].sample(0).text


@pytest.mark.corpus
def test_of_equal_ones_the_model_keeps_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock has steps, and small kernels take few of them."""

    def compare(runs: Sequence[Lineup], *_: Any, **__: Any) -> InContext:
        counts = {task: 1 + max(r.choices[task] for r in runs) for task in {t for r in runs for t in r.tasks}}
        return InContext({t: ((1e-7,),) * n for t, n in counts.items()}, 4, True)

    monkeypatch.setattr(model_tuning, "compare_in_context", compare)
    for seed in range(3):
        (task,) = tune_model(loaded(), tasks=["matmul"], trials=6, strategy="random", seed=seed).tasks
        recorded = loaded().tasks["matmul"].recorded(RECORDS)
        assert not task.changed and recorded is not None and recorded.text == task.schedule.text


@pytest.mark.corpus
def test_times_with_weights_out_of_caches_are_ranked_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model has what is recorded of its task alone, until it has been tuned itself."""
    alone = loaded().tasks["matmul"]
    alone.search(trials=3, strategy="random", records=RECORDS)
    near, before = alone.target_key, alone.recorded(RECORDS)
    monkeypatch.setattr(schedules, "copies_of_constants", lambda *_: 4)
    inside = loaded().tasks["matmul"]
    assert inside.target_keys == (inside.target_key, near) and inside.copies == 4
    assert before is not None and (known := inside.recorded(RECORDS)) is not None and known.text == before.text
    decided(monkeypatch, 2)
    found = tune_model(loaded(), tasks=["matmul"], trials=6, strategy="random")
    (task,) = found.tasks
    assert {t.target_key for t in rows()} == {near, inside.target_key}
    assert {t.target_key for t in rows("context")} == {inside.target_key}
    chosen = loaded().tasks["matmul"].recorded(RECORDS)
    assert chosen is not None and chosen.text == task.schedule.text != before.text
    monkeypatch.setattr(schedules, "copies_of_constants", lambda *_: 1)
    after = loaded().tasks["matmul"].recorded(RECORDS)
    assert after is not None and after.text == before.text


@pytest.mark.corpus
def test_while_a_disturbance_lasts_the_fastest_alone_stays_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    decided(monkeypatch, 2, trusted=False)
    found = tune_model(loaded(), tasks=["matmul"], trials=6, strategy="random")
    fastest = min(rows("final"), key=lambda t: t.seconds or 0.0)
    assert found.after is not None and found.tasks[0].after is None
    assert not found.trusted and rows("context") == [] and found.tasks[0].schedule.text == fastest.trace


@pytest.mark.corpus
def test_only_chosen_tasks_are_searched() -> None:
    found = tune_model(loaded(), tasks=["relu"], trials=4, strategy="random")
    assert [t.task for t in found.tasks] == ["relu"] and {r.task for r in rows()} == {"relu"} and found.elsewhere > 0
    with pytest.raises(UnknownTask, match="has no task `rely`"):
        tune_model(loaded(), tasks=["rely"])


def test_tasks_that_take_next_to_nothing_keep_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    assert negligible({"a": 1.0, "b": 0.0, "c": 0.5}) == []
    monkeypatch.setattr(model_tuning, "NEGLIGIBLE", 0.02)
    assert negligible({"a": 1.0, "b": 0.01, "c": 0.005, "d": 0.01}) == ["c", "b"]
    monkeypatch.setattr(model_tuning, "negligible", lambda _: ["relu"])
    found = tune_model(loaded(), trials=4, strategy="random")
    assert [t.task for t in found.tasks] == ["matmul"] and found.trials == 4 and found.elsewhere > 0
    assert (
        found.kept["relu"].text == loaded().tasks["relu"].sample(0).text and "schedule relu for relu" in found.schedules
    )
    named = tune_model(loaded(), tasks=["relu"], trials=4, strategy="random")
    assert [t.task for t in named.tasks] == ["relu"] and not named.kept


def test_few_trials_go_to_the_tasks_that_take_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tune_model(loaded(), trials=1, strategy="random").trials == 1


class Broken(TuningDisplay):
    """Ctrl-C after so many trials."""

    def __init__(self, trials: int) -> None:
        self._left = trials

    def begin(self, line: str) -> None:
        pass

    @contextmanager
    def searching(self, names: Sequence[str], roofs: Sequence[Any], trials: int) -> Iterator[Sequence[Listener]]:
        def hear(event: Event) -> None:
            if isinstance(event, Measured):
                self._left -= 1
                if self._left == 0:
                    raise KeyboardInterrupt

        yield [hear for _ in names]


def test_what_is_interrupted_is_kept_and_goes_on() -> None:
    found = tune_model(loaded(), trials=12, strategy="random", display=Broken(5))
    assert found.interrupted and found.trials == 5 == len(rows()) and found.after is None
    assert "schedule matmul for matmul {" in found.schedules
    again = tune_model(loaded(), trials=12, strategy="random", resume=True)
    assert again.trials == 12 == len(rows()) == len(Simulated.timed) and not again.interrupted
    assert len(set(Simulated.timed)) == 12 and again.before is not None
    # What it had is what it had before the first of the two.
    assert all(t.before is not None for t in again.tasks)


def test_tasks_that_lag_behind_their_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tune_model(loaded(), trials=8, strategy="random", display=Broken(7))
    (one, other) = (found.tasks[0], found.tasks[1])
    task = loaded().tasks["matmul"]
    tasks: dict[str, Task] = dict.fromkeys(("a", "b", "c", "d"), task)
    roof = replace(one.roof, operations=1000, bytes_=8, peak=1e9, moving=1e-9, is_float=True)
    roofs: dict[str, Roof] = dict.fromkeys(tasks, roof)

    def results(*seconds: float | None) -> dict[str, Any]:
        return {n: replace(one.result, best_seconds=s) for n, s in zip(tasks, seconds, strict=True)}

    assert lagging(tasks, roofs, results(1e-6, 1.1e-6, 2.5e-6, 1.2e-6)) == ["c"]
    assert lagging(tasks, roofs, results(1e-6, 1.1e-6, 1.9e-6, 1.2e-6)) == []
    assert lagging(tasks, roofs, results(1e-6, None, 1e-6, 1e-6)) == ["b"]
    strange = tasks | {"c": loaded().tasks["relu"]}
    assert lagging(strange, roofs, results(1e-6, 1.1e-6, 9e-6, 1.2e-6)) == []
    assert other.task != one.task


@pytest.mark.corpus
def test_a_task_behind_its_siblings_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_tuning, "lagging", lambda *_: ["relu"])
    found = tune_model(loaded(), trials=8, strategy="random")
    again = {t.task: t.again for t in found.tasks}
    assert again["matmul"] is None and again["relu"] is not None and again["relu"].seed == 1
    assert found.trials == len(rows()) > 8


def call(*words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--threads", "1", "--records", "r.sqlite"])


TUNE = ("tune", "net.tsched", "--strategy", "random", "--trials", "6")


def test_the_command_writes_the_schedules_that_it_tells_of() -> None:
    done = call(*TUNE, "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["model"] == "net" and told["trials"] == 6 and told["best_file"] == "net.best.tsched"
    assert {t["task"]: t["calls"] for t in told["tasks"]} == {"matmul": 2, "relu": 2}
    text = Path("net.best.tsched").read_text()
    assert "schedule matmul for matmul {" in text and "schedule relu for relu {" in text
    model = load_model("net.tsched", threads=1, schedules="net.best.tsched")
    same, recorded = ({n: program_key(t.program) for n, t in m.schedules().items()} for m in (model, loaded()))
    assert same == recorded
    replayed = CliRunner().invoke(main, ["replay", "net.tsched", "net.best.tsched", "--threads", "1"])
    assert replayed.exit_code == 0 and "net: " in replayed.stdout, replayed.stderr
    table = call(*TUNE, "--resume")
    assert table.exit_code == 0 and "times as fast, by turns" in table.stdout, table.stderr
    assert len(Simulated.timed) == 6
    full = call(*TUNE, "--resume", "--output", "/dev/full")
    assert full.exit_code == 1 and "error[E0904]" in full.stderr and "among the records" in full.stderr
    events = [json.loads(line) for line in call(*TUNE, "net", "relu", "--json-lines").stdout.splitlines()]
    assert {e["event"] for e in events} >= {"started", "measured", "finished", "result"}
    assert {e["task"] for e in events if e["event"] == "measured"} == {"relu"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("rely",), 1, "has no task `rely`"),
        (("net", "rely"), 1, "has no task `rely`"),
        (("--weight", "relu=2"), 2, "`--weight` is about single tasks"),
        (("--no-keep-better",), 2, "`--keep-better` is about single tasks"),
        (("--output", "net.tsched"), 2, "the schedules would replace net.tsched"),
        (("--output", "no/where.tsched"), 1, "error[E0903]"),
        (("--until", "2%"), 2, "does not say how much faster"),
    ],
)
def test_wrong_words(words: tuple[str, ...], status: int, said: str) -> None:
    done = call(*TUNE, *words)
    assert done.exit_code == status and said in done.stderr, done.stderr


def test_a_file_of_two_models_or_of_none() -> None:
    both = FILE + FILE[FILE.index("model") :].replace("net(", "other(")
    Path("net.tsched").write_text(both)
    for words in (TUNE, ("profile", "net.tsched"), ("compare", "net.tsched", "net.onnx")):
        done = call(*words)
        assert done.exit_code == 1 and "`net.tsched` has 2 models; say which one" in done.stderr
    Path("net.tsched").write_text("use std.cpu\n")
    assert "error[E0925]" in call(*TUNE).stderr
    assert "there is no model in `net.tsched`" in call("profile", "net.tsched").stderr


def test_simulated_times_are_apart() -> None:
    model = loaded()
    some = {seconds_of(model.tasks["matmul"].sample(n).program) for n in range(4)}
    assert len(some) > 1


TURNED = """\
    maybe turned {
        let [i, j, k] = C.loops
        let [k0, k1] = split(k, [_, 4])
        reorder(k1, k0)
        annotate(root, "turned", 1)
    }
"""


def test_a_model_that_keeps_bits_takes_no_record_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """What adds up in another order is the fastest."""
    text = FILE.replace("schedule products for matmul {\n", "schedule products for matmul {\n" + TURNED)
    Path("net.tsched").write_text(text)
    monkeypatch.setattr(
        simulated, "seconds_of", lambda p: seconds_of(p) / (4 if '"turned"' in format_program(p) else 1)
    )
    tune_model(loaded(), trials=24, strategy="random")
    free = loaded().schedules()["matmul"]
    kept = load_model("net.tsched", threads=1, records=RECORDS, same_bits=True)
    assert "reorder" in free.text and not kept.tasks["matmul"].holds(free)

    def require_kept() -> None:
        chosen = kept.schedules()
        assert kept.recorded == {"matmul", "relu"}
        assert all(kept.tasks[name].holds(s) and "reorder" not in s.text for name, s in chosen.items())

    require_kept()
    inputs = kept.random_inputs()
    before = kept(**inputs).tobytes()
    found = tune_model(kept, trials=8, strategy="random", seed=1)
    assert all("reorder" not in t.schedule.text for t in found.tasks)
    require_kept()
    assert kept(**inputs).tobytes() == before


def test_schedules_of_a_file_that_change_bits_are_refused_by_a_model_that_keeps_them() -> None:
    Path("net.tsched").write_text(FILE.replace("for matmul {\n", "for matmul {\n" + TURNED))
    Path("s.tsched").write_text("schedule matmul for matmul {\n" + TURNED.replace("maybe turned", "if true") + "}\n")
    load_model("net.tsched", threads=1, schedules="s.tsched").schedules()
    with pytest.raises(TschedError, match="E0346"):
        load_model("net.tsched", threads=1, schedules="s.tsched", same_bits=True)


def test_the_command_says_what_the_schedules_keep(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "net.tsched", "--same-bits", "--trials", "4", "--records", str(RECORDS), "--threads", "1"]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert (
        "// keeps the bits of the compute's own order: proved, and compared in each trial"
        in Path("net.best.tsched").read_text()
    )
    assert CliRunner().invoke(main, ["run", "net.tsched", "--same-bits", "--records", str(RECORDS)]).exit_code == 0
