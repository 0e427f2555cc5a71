"""Notebooks: cells in the language, and what is shown below them. IPython runs the cells; no browser is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from traitlets.config import Config

import tensorc_dsl
from tensorc_dsl.faces.api import Kernel, Task, TaskFile
from tensorc_dsl.faces.api.searching import Insight
from tensorc_dsl.faces.notebook import SHOWN_LINES, kernel_html, notebook_markup
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.insight import Importance, Learnt, Value
from tests.docs.pages import fences
from tests.editors.oracle import ROOT
from tests.page.test_page import Parts

TEXT = """\
compute twice(A: f32[M]) -> B: f32[M] { B[i] = A[i] + A[i] }
schedule s for twice {
    let cut ~ sample_perfect_tile(B.loops[0], parts=2)
    let [a, b] = split(B.loops[0], cut)
    vectorize(b)
}
task small = twice(M=64) with s
task all = twice(M=1..64) with s
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.ipython_dir = str(tmp_path_factory.mktemp("ipython"))
    made = InteractiveShell(config=config)
    assert run(made, "%load_ext tensorc_dsl").success
    yield made
    assert run(made, "%unload_ext tensorc_dsl").success
    assert not run(made, f"%%tsched\n{TEXT}").success


def run(shell: InteractiveShell, cell: str) -> ExecutionResult:
    return shell.run_cell(cell, store_history=True)


def html(shell: InteractiveShell, value: object) -> Parts:
    """What a notebook shows of a value."""
    formatter: Any = shell.display_formatter
    data, _ = formatter.format(value)
    parts = Parts(data["text/html"])
    assert parts.open == [] and not {"script", "style", "img", "link"} & {tag for tag, _ in parts.elements}
    return parts


@pytest.fixture(scope="module")
def file(shell: InteractiveShell) -> TaskFile:
    found = run(shell, f"%%tsched layer\n{TEXT}")
    assert found.success and isinstance(found.result, TaskFile) and shell.user_ns["layer"] is found.result
    return found.result


@pytest.fixture(scope="module")
def small(file: TaskFile) -> Task:
    return file["small"]


def test_a_cell_is_a_file_of_tasks(shell: InteractiveShell, file: TaskFile) -> None:
    assert list(file) == ["small", "all"]
    shown = html(shell, file)
    assert [data for tag, data in shown.texts if tag == "td"][:3] == ["small", "A: f32[64]", "B: f32[64]"]
    assert run(shell, f"%%tsched\n{TEXT}").success
    assert run(shell, "layer['small'].name").result == "small"


def test_a_wrong_cell_shows_its_findings_alone(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(shell, "%%tsched wrong\ntask t = nothing(M=1)\ntask u = none(M=1)\n")
    assert isinstance(found.error_in_exec, tensorc_dsl.TschedError) and "wrong" not in shell.user_ns
    said = capsys.readouterr().out
    assert said.count("error[E0") == 2 and "--> In[" in said and "task t = nothing(M=1)" in said
    assert "Traceback" not in said and ".py" not in said


def test_what_the_first_schedules_are_refused_is_told(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = TEXT.replace("vectorize(b)", "parallel(a); parallel(a)")
    assert run(shell, f"%%tsched\n{refused}").success
    assert capsys.readouterr().err.count("error[E0310]") == 1
    rule = "module twice_parallel(b: Block) { for n in [0, 1] { parallel(b.loops[0]) } } space r for llvm { twice_parallel }"
    assert run(shell, f"%%tsched made\n{TEXT.splitlines()[0]}\n{rule}\ntask small = twice(M=64) with r").success
    assert "warning[E0310]" in capsys.readouterr().err
    shown = html(shell, shell.user_ns["made"]["small"].sample(0))
    assert "rule `twice_parallel` is left out on `B`" in shown.shown


def test_warnings_are_told_and_the_cell_counts(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shell, f"%%tsched\n{TEXT.replace('    vectorize(b)', '    let x = 1')}").success
    assert "warning[W0201]" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["1a", "for", "a b", "a.b"])
def test_what_is_no_name_is_said(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert not run(shell, f"%%tsched {name}\n{TEXT}").success
    assert "takes the name of a variable" in capsys.readouterr().err


def test_a_task_that_has_no_space_here_has_a_row(shell: InteractiveShell) -> None:
    text = "compute f(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\ntask lost = f(M=4)\n"
    row = [data for tag, data in html(shell, tensorc_dsl.loads(text)).texts if tag == "td"]
    assert row[0] == "lost" and "how `f` may be computed" in row[1]
    assert html(shell, tensorc_dsl.loads("")).shown.strip() == "no tasks"


def test_a_task_a_schedule_a_program_and_a_proof_are_shown(shell: InteractiveShell, small: Task) -> None:
    said = " ".join("".join(t for _, t in html(shell, small).texts).split())
    assert said.startswith("small(A: f32[64]) → B: f32[64]: 64 operations, on ") and "for i in 64" in said
    trace = small.sample(0)
    shown = html(shell, trace)
    assert next(data for tag, data in shown.texts if tag == "td") == "cut"
    assert "".join(t for tag, t in shown.texts if tag in ("pre", "span")).startswith(trace.text)
    assert "vectorized for" in " ".join("".join(t for _, t in html(shell, trace.program).texts).split())
    assert html(shell, small.verify(trace)).shown == "valid"
    other = tensorc_dsl.loads(TEXT.replace("A[i] + A[i]", "A[i]"))["small"]
    wrong = html(shell, other.verify(trace)).shown
    assert "invalid" in wrong and "E08" in wrong


def test_a_kernel_is_shown(shell: InteractiveShell, small: Task) -> None:
    kernel = small.replay(small.sample(0))
    assert "small" in html(shell, kernel).shown and "let cut ~" in "".join(t for _, t in html(shell, kernel).texts)
    timed: Any = Kernel(kernel._native, "small", kernel.target, kernel.trace, 2.5e-6)
    assert "small: 2.50 µs" in kernel_html(timed)


def test_an_insight_is_a_table(shell: InteractiveShell, small: Task) -> None:
    cut = Importance("cut", "cut", 0.001, 0.75, 1.0)
    learnt = Learnt("cut", small.sample(0).draws[0].distribution, 1.0, 1.0, (Value((8, 8), 0.1, 0.6),))
    insight = Insight(12, 2, 0.5, {"cut": (4, 16)}, (cut,), (learnt,), ())
    shown = html(shell, insight)
    cells = [data for tag, data in shown.texts if tag == "td"]
    assert cells == ["cut", "75 %", "< 1 %", "[4, 16]", "[8, 8], 60 %"]
    trust = "a model of 12 valid trials explains 50 % of the variance of others; 2 trials of other spaces left out"
    assert trust in shown.shown and repr(insight).startswith(f"Insight(cut 75 %; {trust}")


def test_foreign_text_stays_text() -> None:
    parts = Parts(notebook_markup('task t = f() // </pre><script>alert(1)</script> \u202e "<'))
    assert {tag for tag, _ in parts.elements} == {"pre", "span"} and "\u202e" not in parts.shown


def test_long_texts_are_cut(shell: InteractiveShell, small: Task) -> None:
    trace = small.sample(0)
    many = replace(trace, lines=trace.lines * SHOWN_LINES)
    assert "more lines" in "".join(t for _, t in html(shell, many).texts)


def test_the_cells_of_the_page_run(shell: InteractiveShell) -> None:
    cells = [f.text for f in fences((ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8"))]
    assert len(cells) == 3
    results = [run(shell, cell) for cell in cells]
    assert all(r.success for r in results) and isinstance(results[-1].result, Trace)
    assert "schedule" in "".join(t for _, t in html(shell, results[-1].result).texts)
