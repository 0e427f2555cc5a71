"""The progress of a search in the cell of a notebook, by a kernel and widgets that only remember."""

from __future__ import annotations

import builtins
import io
import sys
import threading
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

import tensorc_dsl

TEXT = """\
compute twice(A: f32[M]) -> B: f32[M] { B[i] = A[i] + A[i] }
schedule plain for twice { let n ~ sample_categorical([2, 4, 8, 16]); split(B.loops[0], [_, n]) }
task twice = twice(M=4096)
"""


class Cell:
    """What a cell shows: texts in order, and widgets among them."""

    def __init__(self) -> None:
        self.shown: list[str | Widget] = []
        self.inside: list[Widget] = []
        self.threads: set[threading.Thread] = set()

    def display(self, what: Any) -> None:
        if isinstance(what, Widget):
            self.shown.append(what)
            return
        self.threads.add(threading.current_thread())
        text = what._repr_mimebundle_([], [])["text/plain"]
        (self.inside[-1].texts if self.inside else self.shown).append(text)

    @property
    def lines(self) -> list[str]:
        return [line for t in self.shown if isinstance(t, str) for line in t.splitlines() if line.strip()]

    @property
    def widgets(self) -> list[Widget]:
        return [w for w in self.shown if isinstance(w, Widget)]


class Widget:
    """An area that is overwritten; `texts` is all that it ever showed."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.texts: list[str] = []
        self.closed = False

    def __enter__(self) -> Self:
        self.cell.inside.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.cell.inside.pop()

    def clear_output(self, wait: bool) -> None:
        assert wait  # else it flickers

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A notebook's kernel, without widgets."""
    cell = Cell()
    shell: Any = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    vars(display)["display"] = cell.display
    vars(ipython)["display"] = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    return cell


@pytest.fixture
def widgets(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("ipywidgets")
    vars(module)["Output"] = lambda: Widget(cell)
    monkeypatch.setitem(sys.modules, "ipywidgets", module)


Tune = Callable[[], str]


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """Searches, and gives what went to standard error."""

    def run(**options: Any) -> str:
        stderr = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stderr)
        made = tensorc_dsl.loads(TEXT, threads=1)["twice"].tune(trials=4, records=tmp_path / "r.sqlite", **options)
        assert made.search is not None and made.search.trials == 4
        assert sys.stderr is stderr  # what was in its place meanwhile is gone
        return stderr.getvalue()

    return run


PHASES = ["measuring what this machine can do", "building the first 4 programs", "computing the reference",
          "comparing the best 4 by turns", "verifying the best 4 against the task"]  # fmt: skip


@pytest.mark.usefixtures("widgets")
def test_phases_are_lines_and_the_counter_is_overwritten(cell: Cell, tune: Tune) -> None:
    before = sys.stdout
    assert tune() == ""
    assert sys.stdout is before
    assert [p for p in PHASES if not any(line.startswith(p) for line in cell.lines)] == []
    assert not any(line.startswith("[") for line in cell.lines)
    (widget,) = cell.widgets
    assert any(text.startswith("[4/4] best ") for text in widget.texts)
    assert widget.closed


@pytest.mark.usefixtures("widgets")
def test_a_widget_takes_no_line_away(cell: Cell, tune: Tune) -> None:
    """What any thread shows while another one writes into a widget lands there, and is overwritten."""
    tune()
    assert cell.threads == {threading.main_thread()}
    (widget,) = cell.widgets
    assert not any(p in text for text in widget.texts for p in PHASES)


@pytest.mark.usefixtures("widgets")
def test_who_wants_no_progress_sees_nothing(cell: Cell, tune: Callable[..., str]) -> None:
    assert tune(progress=False) == ""
    assert cell.shown == []


def test_without_widgets_there_are_lines(cell: Cell, tune: Tune) -> None:
    said = tune()
    assert "[4/4] best " in said and all(p in said for p in PHASES)
    assert cell.shown == []


def test_widgets_that_cannot_be_loaded_are_none(
    cell: Cell, tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ipywidgets.py").write_text("raise ImportError('made for another version')")
    monkeypatch.delitem(sys.modules, "ipywidgets")
    monkeypatch.syspath_prepend(tmp_path)
    with warnings.catch_warnings(record=True) as told:
        said = tune()
    assert "[4/4] best " in said and all(p in said for p in PHASES)
    assert [w.message for w in told if "ipywidgets" in str(w.message)] == []
    assert cell.shown == []


def test_a_shell_on_a_terminal_is_no_notebook(cell: Cell, tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    shell: Any = type("TerminalInteractiveShell", (), {})
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)
    assert tune() == ""
    assert cell.shown == []
