"""What the page is told: findings with repairs, the program after each step, what draws can be, and the code."""

from __future__ import annotations

import math
import os
import re
import signal
from pathlib import Path

import pytest

from tensorc_dsl.faces.api.tasks import loads
from tensorc_dsl.faces.playground.answers import Desk
from tensorc_dsl.faces.playground.messages import (
    Answer,
    Check,
    Checked,
    Choice,
    Complete,
    Completed,
    Describe,
    Described,
    Open,
    Position,
    Question,
    Refused,
    Show,
    Shown,
)
from tensorc_dsl.faces.playground.page import first
from tensorc_dsl.faces.playground.server import Desks, Playground
from tensorc_dsl.schedule.trace.trace import shown as spelt
from tests.playground.conftest import RECORD

TEXT = first().text


@pytest.fixture(scope="module")
def desks(playground: Playground) -> Desks:
    return playground.desks


def checked(desks: Desks, text: str) -> Checked:
    found = desks.ask(Check(text))
    assert isinstance(found, Checked)
    return found


def shown(
    desks: Desks,
    text: str = TEXT,
    stage: str = "program",
    step: int | None = None,
    seed: int = 0,
    decisions: dict[str, str] | None = None,
) -> Shown:
    found = desks.ask(Show(text, "small", decisions or {}, seed, stage, step))
    assert isinstance(found, Shown), found
    return found


def draw(found: Shown, name: str) -> Choice:
    return next(d for d in found.draws if d.name == name)


# --- findings --------------------------------------------------------------------------------------------------------


def test_a_text_without_errors_has_its_tasks(desks: Desks) -> None:
    assert checked(desks, TEXT) == Checked((), ("small",), False)


REFUSED = """
compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }
module race(b: Block) { parallel(b.loops[-1]) }
space rules for llvm { race }
schedule refused for mm {
    let [i, j, k] = C.loops
    parallel(k)
}
schedule pinned for mm { let f ~ sample_perfect_tile(C.loops[0], parts=2) := [4, 17]; split(C.loops[0], f) }
task small = mm(M=16, N=16, K=8) with rules
task one = mm(M=16, N=16, K=8) with refused
task two = mm(M=16, N=16, K=8) with pinned
"""


def test_what_the_first_schedules_are_refused_is_found_and_the_program_is_shown_up_to_there(desks: Desks) -> None:
    answer = checked(desks, REFUSED)
    assert {(f.at.start.line, f.grade, f.code) for f in answer.findings} == {
        (2, "warning", "E0330"), (6, "error", "E0330"), (8, "error", "E0504"),
    }  # fmt: skip
    assert not answer.wrong and answer.tasks == ("small", "one", "two")
    assert checked(desks, REFUSED.replace("parallel", "paralel")).wrong
    (told,) = shown(desks, REFUSED).redrawn
    assert told.startswith("rule race is refused on C and left out: the iterations of `k` cannot run at once")


def test_a_finding_has_its_place_and_its_repair(desks: Desks) -> None:
    (found,) = checked(desks, TEXT.replace("unroll(", "unrol(")).findings
    line = TEXT[: TEXT.index("unroll(")].count("\n")
    assert (found.at.start.line, found.at.start.character, found.at.end.character) == (line, 4, 9)
    assert (found.grade, found.code) == ("error", "E0223") and "`unrol`" in found.message
    (fix,) = found.fixes
    assert fix.title == "Change to `unroll`" and [(e.at, e.text) for e in fix.edits] == [(found.at, "unroll")]


def test_places_count_as_browsers_do(desks: Desks) -> None:
    (found,) = checked(desks, 'const a = ["🙂", b]\n').findings
    assert (found.at.start.character, found.at.end.character) == (17, 18)


def test_a_warning_is_none_of_the_errors(desks: Desks) -> None:
    found = checked(desks, TEXT.replace("    unroll(i1)\n", "    let x = 1\n")).findings
    assert [(f.grade, f.code) for f in found] == [("warning", "W0201")]


@pytest.mark.parametrize("text", ["", "\0", "(" * 5_000, "task t = f(M=1)", "use nowhere", "let", "🙂" * 1_000])
def test_a_text_that_is_none_has_findings_or_no_task(desks: Desks, text: str) -> None:
    assert checked(desks, text).tasks == ()
    assert isinstance(desks.ask(Show(text, "t", {}, 0, "program")), Refused)


def test_what_a_text_uses_is_looked_for_beside_it_and_in_the_folders_that_are_named(tmp_path: Path) -> None:
    for name, value in (("beside", 1), ("elsewhere/apart", 2)):
        file = tmp_path / f"{name}.tsched"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"const {file.stem}_value = {value}\n", encoding="utf-8")
    text = "use beside.{beside_value}\nuse apart.{apart_value}\n"
    opened = Open(str(tmp_path / "mine.tsched"), (str(tmp_path / "elsewhere"),), None)
    assert Desk(opened).check(Check(text)) == Checked((), (), False)
    found = Desk(Open(opened.path, (), None)).check(Check(text))
    assert isinstance(found, Checked) and len(found.findings) == 1


# --- words ---------------------------------------------------------------------------------------------------------


def place(text: str, before: str) -> Position:
    """The position behind a part of the text."""
    head = text[: text.index(before) + len(before)]
    return Position(head.count("\n"), len(head.rpartition("\n")[2].encode("utf-16-le")) // 2)


def test_what_can_stand_at_a_place(desks: Desks) -> None:
    text = TEXT.replace("    unroll(i1)\n", '    let s = "🙂"; unro\n')
    found = desks.ask(Complete(text, place(text, "unro")))
    assert isinstance(found, Completed)
    offers = {o.text: o for o in found.offers}
    assert offers["unroll"].kind == "function" and offers["i1"].detail == "a loop"
    assert "<p>" in offers["unroll"].about and offers["i1"].order < offers["unroll"].order
    assert desks.ask(Complete("// a", Position(0, 4))) == Completed(())


def test_what_a_word_is(desks: Desks) -> None:
    found = desks.ask(Describe(TEXT, place(TEXT, "split(i, ro")))
    assert isinstance(found, Described) and found.at is not None
    assert "<strong>[32, 2]</strong> in the best record of <code>small</code>" in found.about and "<td>" in found.about
    assert TEXT.split("\n")[found.at.start.line][found.at.start.character : found.at.end.character] == "rows"
    assert desks.ask(Describe(TEXT, Position(0, 0))) == Described("", None)
    assert isinstance(desks.ask(Describe(TEXT, Position(0, 10**9))), Described)


def test_a_description_in_the_text_is_text(desks: Desks) -> None:
    text = "/// <img src=x onerror=alert(1)> [a](javascript:alert(1))\n" + TEXT.replace("/// C = A · B\n", "")
    found = desks.ask(Describe(text, place(text, "compute mat")))
    assert isinstance(found, Described)
    assert "&lt;img" in found.about and "<img" not in found.about and "<a" not in found.about


# --- programs --------------------------------------------------------------------------------------------------------


def test_the_program_after_each_step(desks: Desks) -> None:
    last = shown(desks)
    steps = [s.text for s in last.steps]
    assert steps[0] == "let [i0, i1] = split(i, rows)" and steps[-1] == "parallel(i0)" and last.step == len(steps)
    before = shown(desks, step=0)
    assert before.step == 0 and before.changed == () and "for i in 64, j in 96, k in 64" in before.text
    one = shown(desks, step=1)
    assert [one.text.split("\n")[n].strip() for n in one.changed] == [
        "for i_0 in 8, i_1 in 8, j in 96, k in 64 {",
        "spatial vi in 64 = i_0 * 8 + i_1",
    ]
    assert "parallel for i_0" in last.text and "parallel" not in one.text
    assert shown(desks, step=99).text == last.text


def test_a_step_has_its_place_in_the_text(desks: Desks) -> None:
    lines = TEXT.split("\n")
    for step in shown(desks).steps:
        assert step.at is not None and step.at.start.line == step.at.end.line
        assert lines[step.at.start.line][step.at.start.character : step.at.end.character] == step.text


def test_steps_of_a_rule_that_is_left_out_are_none(desks: Desks) -> None:
    """The rule splits, then a step is refused: the program is as it was, and no step is told of."""
    text = (
        "compute f(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\n"
        "module bad(b: Block) { let [x, y] = split(b.loops[0], [_, 2]); let d ~ sample_categorical([2, 3, 4])"
        "; split(y, [7, d]) }\n"
        "module good(b: Block) { parallel(b.loops[0]) }\n"
        "space both for llvm { bad; good }\n"
        "task small = f(M=64) with both\n"
    )
    found = shown(desks, text)
    assert [s.text for s in found.steps] == ["parallel(b.loops[0])"] and found.draws == () and found.problem == ""


def test_steps_of_the_library_name_their_file(desks: Desks) -> None:
    text = "use std.cpu\nuse std.ops.{matmul}\ntask small = matmul(M=64, N=64, K=32)\n"
    found = shown(desks, text)
    assert {s.at for s in found.steps} == {None} and all(s.place.startswith("std/cpu/") for s in found.steps)
    assert found.draws and all(d.value in d.values for d in found.draws)


# --- draws -----------------------------------------------------------------------------------------------------------


def test_a_draw_that_is_moved_leaves_the_others(desks: Desks) -> None:
    before = shown(desks)
    values = {d.name: d.value for d in before.draws}
    assert draw(before, "rows").values == ("[64, 1]", "[32, 2]", "[16, 4]", "[8, 8]")
    assert draw(before, "depth").values == ("1", "2", "4", "8")
    after = shown(desks, decisions={**values, "columns": "[3, 32]"})
    assert {d.name: d.value for d in after.draws} == {**values, "columns": "[3, 32]"} and after.redrawn == ()
    assert "for j_0 in 3" in after.text and after.text != before.text


def test_what_is_not_legal_is_drawn_anew_and_told(desks: Desks) -> None:
    found = shown(desks, decisions={"rows": "[1, 64]", "depth": "3"})
    assert [r.split(" is ")[0] for r in found.redrawn] == ["rows", "depth"]
    assert "since 3 is not legal beside the others: it can be one of 1, 2, 4, 8" in found.redrawn[1]
    pinned = TEXT.replace("max_innermost=8)", "max_innermost=8) := [16, 4]")
    found = shown(desks, pinned, decisions={"rows": "[8, 8]"})
    assert draw(found, "rows").pinned and draw(found, "rows").values == ("[16, 4]",)
    assert found.redrawn == ("rows is [16, 4] now, since [8, 8] is not legal beside the others: the text pins it",)


def test_all_values_of_a_draw_are_there_in_order(desks: Desks) -> None:
    text = (
        TEXT.replace("M=64", "M=4096")
        .replace("parts=2, max_innermost=8)", "parts=4)")
        .replace("split(i, rows)", "split(i, rows[:2])")
    )
    text = text.replace("let [i0, i1] = split(i, rows[:2])", "let [i0, i1, i2, i3] = split(i, rows)").replace(
        "i0, j0, k0, k1, i1, j1", "i0, j0"
    )
    rows = draw(shown(desks, text), "rows")
    assert rows.whole and len(rows.values) == len({*rows.values}) == math.comb(12 + 3, 3)
    assert rows.values[0] == "[4096, 1, 1, 1]" and rows.values[-1] == "[1, 1, 1, 4096]"
    many = draw(
        shown(
            desks,
            text.replace("let [i0, i1, i2, i3]", "let all")
            .replace("i0", "all[0]")
            .replace("i1", "all[1]")
            .replace("parts=4", "parts=6"),
        ),
        "rows",
    )
    assert not many.whole and many.value in many.values and len(many.values) == 200


def test_what_a_record_decided_is_told(desks: Desks) -> None:
    found = shown(desks)
    threads = loads(TEXT)["small"].threads  # as many as there are processors
    on = f"{threads} thread{'s' if threads > 1 else ''}"
    assert found.record is not None and found.record.said == f"best record: 1.00 µs on {on}, of 1 valid trial"
    assert found.record.decisions == {name: spelt(d) for name, d in RECORD.items()}
    assert {d.name: d.best for d in found.draws} == found.record.decisions
    best = shown(desks, decisions=found.record.decisions)
    assert {d.name: d.value for d in best.draws} == found.record.decisions and best.redrawn == ()
    other = shown(desks, TEXT.replace("M=64", "M=32"))
    assert other.record is None and {d.best for d in other.draws} == {""}
    assert draw(shown(desks, TEXT.replace("max_innermost=32", "max_innermost=16")), "columns").best == ""


def test_seeds_draw_anew(desks: Desks) -> None:
    assert len({str([d.value for d in shown(desks, seed=n).draws]) for n in range(4)}) > 1


def test_a_refused_step_is_explained_and_the_program_is_there(desks: Desks) -> None:
    found = shown(desks, TEXT.replace("vectorize(j1)", "vectorize(k1)"))
    line = TEXT[: TEXT.index("vectorize")].count("\n") + 1
    assert re.match(rf"error\[E0330\]: .*\n  +--> playground.tsched:{line}:15\n", found.problem), found.problem
    assert "vectorize(k1)" in found.problem and "= help:" in found.problem and "at this point" not in found.problem
    assert found.steps and found.text.startswith("program small")
    code = shown(desks, TEXT.replace("vectorize(j1)", "vectorize(k1)"), "asm")
    assert code.text == "" and code.problem == found.problem


def test_a_decision_that_is_none_and_a_task_that_is_none_are_refused(desks: Desks) -> None:
    found = desks.ask(Show(TEXT, "small", {"rows": "[8"}, 0, "program"))
    assert isinstance(found, Refused) and found.message.startswith("error[E0557]")
    assert isinstance(desks.ask(Show(TEXT, "large", {}, 0, "program")), Refused)


# --- code ------------------------------------------------------------------------------------------------------------


def test_the_code_of_the_last_program(desks: Desks) -> None:
    assert [name for name, _ in shown(desks).stages] == ["program", "loops", "llvm", "asm"]
    assert "ret" in shown(desks, stage="asm").text and "define" in shown(desks, stage="llvm").text
    assert "for" in shown(desks, stage="loops").text
    none = shown(desks, stage="ptx")
    assert none.text == "" and none.problem == "there is no stage `ptx` for targets of kind `llvm`"


# --- processes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "seconds", "said"),
    [(signal.SIGSTOP, 0.1, "longer than"), (signal.SIGKILL, 60.0, "has ended: killed by SIGKILL")],
)
def test_a_question_that_hangs_or_kills_its_process_is_refused_and_the_next_is_answered(
    desks: Desks, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, seconds: float, said: str
) -> None:
    desk = desks._check
    checked(desks, TEXT)
    pid, send = desk._worker.pid, desk._worker.send
    assert pid is not None

    def strike(request: Open | Question, limit: float) -> None:
        os.kill(pid, number)  # the process is known to run by now: one that ended before is started anew
        send(request, limit)

    with monkeypatch.context() as patch:
        patch.setattr(desk._worker, "send", strike)
        patch.setattr(desk, "_seconds", seconds)
        answer: Answer = desks.ask(Check(TEXT))
    assert isinstance(answer, Refused) and said in answer.message
    assert checked(desks, TEXT).tasks == ("small",) and desk._worker.pid != pid
