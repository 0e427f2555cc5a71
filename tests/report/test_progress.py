"""The progress display of a search."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from rich.console import Console

from bench import first_seconds
from bench.first_seconds import new_text, written
from tensorc_dsl.faces.report.live import Line
from tensorc_dsl.faces.report.progress import Standing, show_progress
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import MachineChange, Outcome, Status
from tensorc_dsl.tuning.search.events import (
    Comparing,
    Crew,
    Event,
    Exhausted,
    Finished,
    Measured,
    Prepared,
    Preparing,
    Proposed,
    Started,
    Verifying,
)
from tensorc_dsl.tuning.search.strategy import Regret
from tests import programs
from tests.started import MOMENT

TRACE = Trace("s", "matmul", (), (), programs.matmul(2, 2, 2))
ROOF = Roof(400_000, 1, True, "f32 FMA peak", 1e9, 0.0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def good(trial: int, seconds: float = 0.002, run: float = 0.25, build: float = 0.5) -> Measured:
    return Measured(trial, TRACE, Outcome(Status.OK, seconds, build_seconds=build, run_seconds=run), seconds)


def batch(count: int = 8) -> Proposed:
    return Proposed((TRACE,) * count, 0.0)


def test_rates_of_workers() -> None:
    clock = Clock()
    standing = Standing(clock)
    for machines in (1, 2):
        standing.take(Crew(MachineChange(f"m{machines}", "joined"), machines))
    standing.take(batch())
    for trial, name in enumerate(("board", "rack", "rack", "a\x1b[1mb")):
        clock.now += 15.0
        outcome = Outcome(Status.OK, 0.002, build_seconds=0.5, run_seconds=0.25, machine=name)
        standing.take(Measured(trial, TRACE, outcome, 0.002))
    assert "2 workers: rack 2 trials/min, board 1, a\\u{1B}[1mb 1" in standing.text()


def test_progress_as_plain_lines() -> None:
    clock, out = Clock(), io.StringIO()
    standing = Standing(clock)
    with show_progress(standing, out) as follower:
        follower.begin("measuring what this machine can do")
        standing.roof = ROOF
        for after, event in (
            (0, Started("mm", "random", 3, 0)), (0, batch(3)), (0.1, Preparing()), (0, Prepared()), (0.9, good(0)),
            (0.1, Measured(1, TRACE, Outcome(Status.CRASH), 0.002)), (0.1, good(2)), (0, Comparing(2)),
            (0, Verifying(0, 2)), (0, Verifying(1, 2)), (0, Finished(3, 0.002, 1.2, False)),
        ):  # fmt: skip
            clock.now += after
            follower(event)
    assert out.getvalue() == (
        "measuring what this machine can do\n"
        "building the first 3 programs\n"
        "computing the reference that results are compared with\n"
        "[1/3] best 2.00 ms, 0.20 GFLOP/s, 20 % of f32 FMA peak, now 2.00 ms\n"
        "[3/3] best 2.00 ms, 0.20 GFLOP/s, 20 % of f32 FMA peak, 1 crash, now 2.00 ms\n"
        "comparing the best 2 by turns\n"
        "verifying the best 2 against the task\n"
    )


def test_every_slow_build_has_a_line() -> None:
    """Of two builds that end at once, the second one was not told."""
    clock, out = Clock(), io.StringIO()
    with show_progress(Standing(clock), out) as follower:
        late = Outcome(Status.TIMEOUT, build_seconds=20.0)
        for after, event in (
            (0, Started("mm", "random", 9, 0)), (0, batch()), (20, Measured(0, TRACE, late, None)),
            (0, good(1, build=14.6)), (0, good(2)),
        ):  # fmt: skip
            clock.now += after
            follower(event)
    assert [line.partition("now ")[2] for line in out.getvalue().splitlines()] == [
        "", "timeout after a build of 20.0 s", "2.00 ms after a build of 14.6 s",
    ]  # fmt: skip


def test_an_exhausted_space_is_said_so_and_the_counter_ends_there() -> None:
    standing = Standing(Clock())
    events = (Started("mm", "random", 64, 0), batch(1), good(0), Exhausted(1, True), Comparing(1), Verifying(0, 1))
    lines = [standing.take(e) for e in events]
    assert lines == [
        None, "building the first 1 program", None, "the space has 1 program", "measuring the best one again",
        "verifying it against the task",
    ]  # fmt: skip
    assert standing.text().startswith("[1/1] ")
    assert standing.take(Exhausted(5, False)) == "the space gave nothing new after 5 programs"


def played(batches: Iterable[tuple[float, float]], trials: int = 64) -> tuple[Standing, Clock]:
    """Batches of 8, each after so many seconds of building, with so many seconds for each trial."""
    clock = Clock()
    standing = Standing(clock)
    standing.take(Started("mm", "random", trials, 0))
    done = 0
    for build, run in batches:
        standing.take(batch())
        clock.now += build
        for _ in range(8):
            clock.now += run
            standing.take(good(done, run=run, build=0.25))
            done += 1
    return standing, clock


def test_no_time_is_left_before_it_can_be_known() -> None:
    """A reference that takes 20 s comes once, and so do the processes: none of the first trials tells the pace."""
    standing, _ = played([(21.0, 0.25)])
    assert standing.left() is None
    assert "left" not in standing.text()
    standing.take(batch())
    left = standing.left()
    assert left is not None
    assert left < 70
    standing, clock = played([(21.0, 0.25), (1.0, 0.25)])
    standing.take(batch())
    left = standing.left() or 0.0
    truth = 6 * (1.0 + 8 * 0.25) + 5 * 3 * 0.25 + 5 * 0.25 / 2
    assert left == pytest.approx(truth, rel=0.3)
    clock.now += 0.5
    assert standing.left() == pytest.approx(left - 0.5)  # it runs down between trials


def test_the_time_left_is_never_negative() -> None:
    standing, clock = played([(1.0, 0.1), (1.0, 0.1)])
    standing.take(batch())
    clock.now += 1000
    assert (standing.left() or 0) > 0


def test_the_regret_is_part_of_the_line() -> None:
    standing = Standing(Clock())
    for event in (Started("mm", "bayes", 64, 0), batch(), good(0), Regret(0.374, 8, 8)):
        standing.take(event)
    assert standing.text() == "[1/64] best 2.00 ms, regret 37 %, now 2.00 ms"
    standing.take(Regret(0.0213, 16, 15))
    assert standing.text() == "[1/64] best 2.00 ms, regret 2.1 %, now 2.00 ms"
    standing.take(Started("mm", "bayes", 64, 0, until=0.02))
    assert "regret 2.1 % of 2.0 %" in standing.text()


def shown(standing: Standing, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None).print(Line(standing))
    return out.getvalue()


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 100, 120, 200])
def test_narrow_terminals_keep_the_counter_and_the_time_left(width: int) -> None:
    standing, _ = played([(21.0, 0.25), (1.0, 0.25)])
    standing.roof = ROOF
    standing.take(batch())
    standing.take(Measured(16, TRACE, Outcome(Status.WRONG_RESULT), 0.002))
    text = shown(standing, width)
    assert text.count("\n") == 1
    assert len(text.rstrip("\n")) <= width
    counter, left = re.search(r"\[\d+/\d+\]", text), re.search(r"[\d.]+ s left", text)
    assert counter is not None and left is not None
    assert "…" not in text
    wanted = {
        40: ["best 2.00 ms"],
        60: ["1 wrong result"],
        80: ["GFLOP/s"],
        120: ["20 % of", "now wrong result"],
        200: ["━"],
    }
    for least, parts in wanted.items():
        assert width < least or all(part in text for part in parts)


def test_what_has_no_trials_shows_how_long_it_takes() -> None:
    clock = Clock()
    standing = Standing(clock)
    standing.enter()
    clock.now += 12.3
    assert shown(standing, 40).strip() == "12.3 s"


FILE = """\
compute twice(A: f32[M]) -> B: f32[M] { B[i] = A[i] + A[i] }
schedule plain for twice {
    let [i] = B.loops
    let n ~ sample_categorical([2, 4, 8, 16, 32])
    split(i, [_, n])
}
task only = twice(M=4096) with plain
"""


def tuned(folder: Path, columns: int | None) -> str:
    """All that a search of a small space writes, on a terminal of that width or in a pipe."""
    (folder / "f.tsched").write_text(FILE)
    environment = {**os.environ, "XDG_DATA_HOME": str(folder / "data")}
    arguments = ("tune", "f.tsched", "--trials", "64", "--threads", "1")
    found = written(arguments, columns=columns, seconds=300, folder=folder, environment=environment)
    return "".join(text for _, text in found)


@pytest.fixture(autouse=True)
def numpy_is_timed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    python, option, program = first_seconds.COMMAND
    monkeypatch.setattr(first_seconds, "COMMAND", (python, option, MOMENT + program))


@pytest.mark.corpus
@pytest.mark.parametrize("columns", [40, 80])
def test_a_search_on_a_terminal(tmp_path: Path, columns: int) -> None:
    text = tuned(tmp_path, columns)
    assert text.startswith("reading f.tsched\r\n")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    order = [
        "reading f.tsched", "measuring what this machine can do on 1 thread",
        "building the first 5 programs", "computing the reference", "the space has 5 programs", "comparing the best 5",
        "verifying the best 5", "timing NumPy", "measuring the machine again", "only on ", "5 trials in ",
        "nothing more to try",
        "best schedule: only.best.tsched",
    ]  # fmt: skip
    places = [plain.find(part) for part in order]
    assert -1 not in places, (order[places.index(-1)], plain)
    assert places == sorted(places)
    for line in re.split(r"[\r\n]+", plain):
        assert not line.startswith("[") or len(line.rstrip()) <= columns
    assert re.search(r"\[[1-5]/64\] ", plain)  # the counter was on the screen
    assert "1 trials" not in plain
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is back


def test_a_search_in_a_pipe(tmp_path: Path) -> None:
    text = tuned(tmp_path, None)
    assert text.startswith("reading f.tsched\nmeasuring what this machine can do on 1 thread\n")
    assert "\x1b" not in text and "\r" not in text
    assert "\nthe space has 5 programs\n" in text


def test_the_listing_of_a_screen() -> None:
    chunks = [
        (0.1, "reading f\r\n"),
        (0.5, "\x1b[?25l\r1.0 s"),
        (0.7, "\r\x1b[2K1.2 s"),
        (1.6, "\r\x1b[2Kdone\r\n2.1 s"),
    ]
    assert list(new_text(iter(chunks))) == [(0.1, "reading f"), (0.5, "1.0 s"), (1.6, "done"), (1.6, "2.1 s")]


def test_everything_that_is_emitted_is_shown_or_counted() -> None:
    standing = Standing(Clock())
    every: list[Event] = [
        Started("mm", "random", 9, 0), batch(), Preparing(), Prepared(), good(0), Exhausted(1, True), Comparing(2),
        Finished(1, 0.002, 1.0, False), Verifying(1, 2),
    ]  # fmt: skip
    for event in every:
        standing.take(event)
    assert standing.done == standing.trials == 1
