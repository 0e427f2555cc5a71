"""A search replaces the file of its best schedule only by a better one, and says what it replaced."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.faces.api import Task
from tensorc_dsl.faces.cli import tuned
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.faces.cli.options import Ending
from tensorc_dsl.faces.cli.tuned import replace_schedule
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.records.database import Queue

FILE = """\
use std.cpu
use std.ops.{matmul}

task small = matmul(M=96, N=96, K=96)
"""
NAIVE = "schedule naive for matmul {}\n"
BEST = "small.best.tsched"
WORDS = (
    "tune",
    "f.tsched",
    "small",
    "--threads",
    "1",
    "--records",
    "r.sqlite",
    "--strategy",
    "random",
    "--trials",
    "1",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("f.tsched").write_text(FILE)
    Path("naive.tsched").write_text(NAIVE)
    return tmp_path


@pytest.fixture
def task() -> Task:
    return tensorc_dsl.load("f.tsched", threads=1)["small"]


def call(*words: str) -> Result:
    done = CliRunner().invoke(main, [*WORDS, *words])
    assert done.exit_code == 0, done.output
    return done


def note(done: Result) -> str:
    return next((line for line in done.stdout.splitlines() if line.startswith(("kept: ", "replaced: "))), "")


class Times:
    """Comparisons with these times of the schedule that is there and of the one found, None for one that fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float | None) -> None:
        self.asked = 0

        def compare(_: Task, traces: Sequence[Trace]) -> list[Outcome]:
            self.asked += 1
            assert len(traces) == len(seconds)
            return [Outcome(Status.OK, s) if s is not None else Outcome(Status.CRASH) for s in seconds]

        monkeypatch.setattr(Task, "compare", compare)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (
            (3.22e-6, 8.95e-6),
            "kept: its schedule takes 3.22 µs, and the one found takes 8.95 µs, by turns; `--no-keep-better`",
        ),
        ((8.95e-6, 3.22e-6), "replaced: its schedule takes 8.95 µs, and the one found takes 3.22 µs, by turns"),
        ((3.22e-6, None), "kept: its schedule takes 3.22 µs, and the one found fails, by turns"),
        ((None, 3.22e-6), "replaced: its schedule fails, and the one found takes 3.22 µs, by turns"),
        ((None, None), "replaced: its schedule fails, and the one found fails, by turns"),
    ],
)
def test_the_faster_one_is_in_the_file(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float | None, float | None], said: str
) -> None:
    Path(BEST).write_text(NAIVE)
    times = Times(monkeypatch, *seconds)
    done = call()
    assert times.asked == 1 and note(done).startswith(said), done.stdout
    assert (Path(BEST).read_text() == NAIVE) == said.startswith("kept")
    Path(BEST).write_text(NAIVE)
    facts = json.loads(call("--json").stdout)
    assert facts["best_file"] == BEST and facts["kept"] == said.startswith("kept")
    assert facts["best_note"].startswith(said.removesuffix("`--no-keep-better`"))


@pytest.mark.corpus
def test_a_search_over_worse_schedules_keeps_the_better_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernels are: a loop nest as written takes twenty times as long as one of the library's schedules."""
    assert note(call()) == ""
    best = Path(BEST).read_bytes()
    assert note(call("--replay", "naive.tsched")).startswith("kept: ")
    assert Path(BEST).read_bytes() == best
    assert note(call("--replay", "naive.tsched", "--no-keep-better")) == (
        "replaced: the file held another schedule for the task"
    )
    assert Path(BEST).read_bytes() != best
    assert note(call()).startswith("replaced: its schedule takes ")
    times = Times(monkeypatch)
    assert note(call()) == "" and not times.asked  # the same schedule


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("held", "said"),
    [
        (FILE.replace("96", "32") + NAIVE.replace("naive", "own").replace("{}", "{ parallel(C.loops[0]) }"), ""),
        ("use nowhere.{matmul}\nschedule s for matmul {}\ntask small = matmul(M=96, N=96, K=96) with s\n", "(E0232: "),
        ("notes of mine\n", "no schedule for this task (E0101: "),
        ("schedule s for other {}\n", "no schedule for this task (E0227: "),
        ("\udcff", "no text"),
    ],
)
def test_what_is_replaced_is_told(held: str, said: str) -> None:
    Path(BEST).write_bytes(held.encode(errors="surrogateescape"))
    said = said or "the schedule of another task, small(A: f32[32, 32], B: f32[32, 32]) -> C: f32[32, 32]"
    line = note(call())
    assert line.startswith("replaced: the file held ") and said in line, line
    assert "matmul(M=96" in Path(BEST).read_text()


def test_the_task_of_another_file_is_not_mistaken_for_this_one() -> None:
    """Its schedule fits: the computes and the names are the same, and the sizes are not."""
    Path("g.tsched").write_text(FILE.replace("96", "48"))
    call()
    done = CliRunner().invoke(main, [WORDS[0], "g.tsched", *WORDS[2:]])
    assert "replaced: the file held the schedule of another task, small(A: f32[96, 96]" in done.stdout, done.output
    assert "matmul(M=48" in Path(BEST).read_text()


def test_the_searched_file_is_not_replaced() -> None:
    before = Path("f.tsched").read_bytes()
    Path("link").symlink_to("f.tsched")
    Path(BEST).write_text(FILE)
    for words in (["--output", "f.tsched"], ["--output", "link"]):
        done = CliRunner().invoke(main, [*WORDS, *words])
        assert done.exit_code == 2 and "the best schedule would replace f.tsched" in done.stderr
    done = CliRunner().invoke(main, [WORDS[0], BEST, *WORDS[2:]])
    assert done.exit_code == 2 and f"the best schedule would replace {BEST}" in done.stderr
    assert Path("f.tsched").read_bytes() == before and Path(BEST).read_text() == FILE


def test_an_open_schedule_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(BEST).write_text('schedule s for matmul { let x ~ sample_categorical([2, 4]); annotate(C, "x", x) }\n')
    times = Times(monkeypatch)
    assert note(call()) == "replaced: the file held a schedule with open draws" and not times.asked


def test_what_another_process_writes_meanwhile_is_judged_too(task: Task) -> None:
    """Two searches with one output: the second to write finds the file of the first."""
    Path(BEST).write_text(NAIVE)
    judged: list[str] = []

    def judge(held: Trace) -> tuple[bool, str]:
        judged.append(held.name)
        if len(judged) == 1:
            Output(Path(BEST)).write(NAIVE.replace("naive", "later"))
        return held.name == "later", "told"

    found = replace_schedule(Output(Path(BEST)), task, task.sample(0), "text", judge)
    assert judged == ["naive", "later"] and found.kept
    assert Path(BEST).read_text() == NAIVE.replace("naive", "later")


def test_after_an_interruption_the_records_decide(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(monkeypatch)
    call("--trials", "3")
    naive = task.frozen("naive.tsched")
    with Queue.at(Path("r.sqlite")) as queue:
        fastest = task.recorded("r.sqlite")
        assert fastest is not None
        slower = next(t for t in map(task.sample, range(1), range(3)) if t.text != fastest.text)
        for interrupted, told in ((True, False), (False, True)):
            ending = Ending(told=told)
            kept, why = tuned._judged(task, slower, queue, ending, interrupted, None, fastest)
            assert kept and why == "by the records, its schedule is faster than the one found"
            kept, why = tuned._judged(task, fastest, queue, ending, interrupted, None, naive)
            assert kept and "not compared" in why
    assert not times.asked


@pytest.mark.parametrize("place", ["link", "/dev/stdout"])
def test_outputs_of_other_kinds_have_no_schedule(folder: Path, place: str) -> None:
    if place == "link":
        Path("there.tsched").write_text(NAIVE)
        Path("link").symlink_to("there.tsched")
        assert note(call("--output", "link")).startswith("replaced: its schedule takes ")
        assert Path("link").is_symlink() and "matmul(M=96" in Path("there.tsched").read_text()
    else:
        assert note(call("--output", place)) == ""


def test_code_that_a_file_declares_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may have put the file there."""
    compute = "compute twice(A: f32[N]) -> B: f32[N] { B[i] = A[i] * 2.0 }\n"
    end = "schedule plain for twice { parallel(B.loops[0]) }\ntask small = twice(N=16) with plain\n"
    Path("f.tsched").write_text(compute + end)
    instruction = (
        "intrinsic evil\n    desc (A: f32[16], B: f32[16]) {\n        B[i] = A[i] * 2.0\n    }\n"
        '    lower llvm call "<16 x float> llvm.sqrt.v16f32(<16 x float> A)"\n'
    )
    Path(BEST).write_text(
        "use f.{twice}\n" + instruction + end.replace("parallel(B.loops[0])", 'tensorize(B.loops[0], "evil")')
    )
    assert CliRunner().invoke(main, ["check", BEST]).exit_code == 0
    times = Times(monkeypatch)
    line = note(call())
    assert line == "replaced: the file held no schedule for this task (E0680: there is no instruction `evil`)"
    assert not times.asked


@pytest.mark.corpus
def test_a_file_of_any_length_is_looked_at(folder: Path) -> None:
    with Path(BEST).open("wb") as file:
        file.truncate(1 << 40)
    assert note(call()).startswith("replaced: the file held no schedule for this task (E01")
