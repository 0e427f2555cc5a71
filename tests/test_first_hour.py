"""The package used from Python for the first time: texts, progress, reprs, pickles, types."""

from __future__ import annotations

import builtins
import copy
import io
import json
import pickle
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorc_dsl
from tensorc_dsl import Kernel, NoValidCandidate, TschedError, WrongSchedule
from tensorc_dsl.base.diagnostic import Diagnostic, render
from tensorc_dsl.ir.target import Target

TEXT = """\
compute double(A: f32[N]) -> B: f32[N] { B[i] = A[i] + A[i] }
compute scaled(A: f32[N], W: const f32[N]) -> B: f32[N] { B[i] = A[i] * W[i] }
schedule plain for double {
    let wide ~ sample_categorical([2, 4, 5, 8])
    split(B.loops[0], [_, wide], partial=true)
}
schedule still for scaled { parallel(B.loops[0]) }
task twice = double(N=9)
task any = double(N=1..64 at [3, 7])
task heavy = scaled(N=4)
"""

A = np.arange(9, dtype=np.float32)


@pytest.fixture
def file() -> tensorc_dsl.TaskFile:
    return tensorc_dsl.loads(TEXT, name="secret/place/file.tsched", threads=2)


def kernel(file: tensorc_dsl.TaskFile, name: str = "twice") -> Kernel:
    return file[name].replay(file[name].sample(0))


# --- texts -------------------------------------------------------------------------------------------------------------


def test_a_text_is_as_good_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "f.tsched").write_text(TEXT)
    of_file, of_text = tensorc_dsl.load(tmp_path / "f.tsched", threads=1), tensorc_dsl.loads(TEXT, threads=1)
    assert list(of_file) == list(of_text)
    assert of_file["twice"].sample(1).text == of_text["twice"].sample(1).text
    np.testing.assert_array_equal(kernel(of_text)(A), A + A)


@pytest.mark.parametrize(("named", "shown"), [({}, "<text>"), ({"name": "my cell"}, "my cell")])
def test_findings_are_in_the_text(named: Any, shown: str) -> None:
    with pytest.raises(TschedError) as e:
        tensorc_dsl.loads(TEXT.replace("double(N=9)", "dubble(N=9)"), **named)
    assert str(e.value) == f"E0227: there is no compute `dubble` ({shown}:8:14)"
    assert f"--> {shown}:8:14" in render(e.value.diagnostics[0])
    with pytest.raises(TschedError, match=f"`{shown}`"):
        tensorc_dsl.loads(TEXT, **named)["twise"]


def test_arguments_of_another_type_are_named() -> None:
    """At once: before a search begins, and not as letters of a word that were taken for folders."""
    with pytest.raises(TypeError, match=r"include is a list of folders: include=\['lib'\]"):
        tensorc_dsl.loads(TEXT, include="lib")
    with pytest.raises(TypeError, match="the text of a file is a str, not bytes"):
        tensorc_dsl.loads(TEXT.encode())  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="threads is a whole number, not '2'"):
        tensorc_dsl.loads(TEXT, threads="2")  # pyright: ignore[reportArgumentType]


def test_a_seed_that_is_no_number(file: tensorc_dsl.TaskFile) -> None:
    with pytest.raises(TypeError, match="seed is a whole number, not '1'"):
        file["twice"].sample("1")  # pyright: ignore[reportArgumentType]
    assert file["twice"].sample(np.int64(1)).text == file["twice"].sample(1).text  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"trials": "3"}, TypeError, "trials is a whole number, not '3'"),
    ({"trials": 1.5}, TypeError, "trials is a whole number, not 1.5"),
    ({"seed": "1"}, TypeError, "seed is a whole number, not '1'"),
    ({"seed": -1}, ValueError, "the seed must be from 0"),
    ({"seed": 2**63}, ValueError, "the seed must be from 0"),
    ({"budget": "10m"}, TypeError, "budget is a number, seconds, not '10m'"),
    ({"until": "2%"}, TypeError, "until is a number, a share, such as 0.02, not '2%'"),
    ({"strategy": None}, TypeError, "strategy is the name of one"),
    ({"strategy": "bays"}, KeyError, "did you mean `bayes`"),
    ({"trial": 3}, TypeError, "a search has no option 'trial'; did you mean `trials`?"),
])  # fmt: skip
def test_options_of_another_type_are_named(
    file: tensorc_dsl.TaskFile, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        file["twice"].tune(**options, records=tmp_path / "records.sqlite")


def test_numbers_of_numpy_are_numbers() -> None:
    options = tensorc_dsl.SearchOptions(trials=np.int64(3), seed=np.uint8(4), budget=np.float32(1.5))  # pyright: ignore[reportArgumentType]
    assert json.dumps([options.trials, options.seed]) == "[3, 4]"


def test_a_search_without_trials_says_why_it_has_none(file: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    with pytest.raises(NoValidCandidate, match="no candidate was tried: it was given no trials, or no time for one"):
        file["twice"].tune(trials=0, records=tmp_path / "records.sqlite")


def test_line_ends_of_any_kind() -> None:
    for end in ("\r\n", "\r"):
        assert list(tensorc_dsl.loads(TEXT.replace("\n", end))) == ["twice", "any", "heavy"]


def test_a_text_uses_what_a_file_of_its_name_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "ops.tsched").write_text(TEXT)
    use = "use ops.{double, plain}\ntask t = double(N=4) with plain\n"
    monkeypatch.chdir(tmp_path / "own")
    assert list(tensorc_dsl.loads(use)) == ["t"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TschedError):
        tensorc_dsl.loads(use)
    assert list(tensorc_dsl.loads(use, name="own/text")) == ["t"]
    assert list(tensorc_dsl.loads(use, include=[tmp_path / "own"])) == ["t"]


# --- what things say they are ------------------------------------------------------------------------------------------


def test_reprs_are_short_and_tell_no_paths(file: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    assert repr(file) == "TaskFile(file.tsched: twice, any, heavy)"
    assert repr(tensorc_dsl.loads("")) == "TaskFile(<text>: no tasks)"
    cpu = file["any"].target.cpu
    assert repr(file["any"]) == f"Task(any(A: f32[N]) -> B: f32[N], 2 threads of {cpu})"
    assert repr(file["heavy"]) == f"Task(heavy(A: f32[4], W: const f32[4]) -> B: f32[4], 2 threads of {cpu})"
    k = kernel(file, "heavy")
    assert repr(k) == "Kernel(A: f32[4], W: f32[4], B: f32[4])"
    assert repr(k.bind(W=A[:4])) == "BoundKernel(A: f32[4], B: f32[4]; bound: W)"
    result = file["twice"].search(trials=1, records=tmp_path / "r.sqlite")
    assert repr(result).startswith("SearchResult(best_seconds=")
    assert "statuses={'ok': 1}" in repr(result)
    assert "secret" not in f"{file!r}{file['any']!r}{k!r}{result!r}"
    assert len(repr(result)) < 200


# --- progress ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("out", "progress", "shown"),
    [
        (io.StringIO, None, False),
        (io.StringIO, False, False),
        (io.StringIO, True, True),
        (Terminal, None, True),
        (Terminal, False, False),
        (Terminal, True, True),
    ],
)
def test_progress_is_for_who_looks(
    file: tensorc_dsl.TaskFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    out: type[io.StringIO], progress: bool | None, shown: bool,
) -> None:  # fmt: skip
    stderr = out()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    made = file["twice"].tune(trials=2, records=tmp_path / "r.sqlite", progress=progress)
    assert made.search is not None and made.search.trials == 2
    assert ("best" in stderr.getvalue()) == shown
    assert ("2/2" in stderr.getvalue()) == shown
    assert capsys.readouterr().out == ""


def test_a_notebook_without_widgets_gets_lines(
    file: tensorc_dsl.TaskFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell: Any = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    file["twice"].tune(trials=1, records=tmp_path / "r.sqlite")
    assert "[1/1] best " in stderr.getvalue()
    quiet = io.StringIO()
    monkeypatch.setattr(sys, "stderr", quiet)
    file["twice"].tune(trials=1, records=tmp_path / "r.sqlite", progress=False)
    assert quiet.getvalue() == ""


def test_nobody_has_standard_error(file: tensorc_dsl.TaskFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert file["twice"].tune(trials=1, records=tmp_path / "r.sqlite").search is not None


# --- copies and pickles ------------------------------------------------------------------------------------------------


def test_a_kernel_comes_back_from_a_pickle(file: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    k = file["twice"].tune(trials=1, records=tmp_path / "r.sqlite")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(k, protocol))
        assert isinstance(again, Kernel)
        np.testing.assert_array_equal(again(A), A + A)
        assert (again.trace.text, again.threads, again.seconds) == (k.trace.text, 2, k.seconds)
        assert again.search is None
    opened = pickle.loads(pickle.dumps(kernel(file, "any")))
    np.testing.assert_array_equal(opened(A[:5]), A[:5] * 2)


def test_another_process_loads_it(file: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(pickle.dumps(kernel(file)))
    program = "import pickle, numpy as np; print(pickle.load(open('k', 'rb'))(np.ones(9, np.float32)).sum())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "18.0\n"


def test_copies_are_the_kernel(file: tensorc_dsl.TaskFile) -> None:
    k = kernel(file)
    assert copy.copy(k) is k
    assert copy.deepcopy({"layers": [k]})["layers"][0] is k
    bound = kernel(file, "heavy").bind(W=A[:4])
    assert copy.deepcopy(bound) is bound


def test_a_bound_kernel_says_why_not(file: tensorc_dsl.TaskFile) -> None:
    bound = kernel(file, "heavy").bind(W=A[:4])
    with pytest.raises(TypeError, match="pickle the kernel, and bind again"):
        pickle.dumps(bound)


def test_a_pickle_of_another_machine_says_so(file: tensorc_dsl.TaskFile, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(kernel(file))
    monkeypatch.setattr("tensorc_dsl.backend.llvm.backend.native_triple", lambda: "riscv64-unknown-linux-gnu")
    with pytest.raises(TschedError, match=r"E0914: `twice` is for .*, and this machine is riscv64"):
        pickle.loads(data)
    monkeypatch.undo()

    def lacks(_: object) -> list[str]:
        return ["amx-tile"]

    monkeypatch.setattr("tensorc_dsl.backend.llvm.backend.host_lacks", lacks)
    with pytest.raises(TschedError, match=r"E0914: .*lacks amx-tile"):
        pickle.loads(data)


def test_errors_come_back_from_pickles(file: tensorc_dsl.TaskFile, tmp_path: Path) -> None:
    """Whoever tunes in a pool of processes gets them from there."""
    result = file["twice"].search(trials=1, records=tmp_path / "r.sqlite")
    finding = Diagnostic("E0908", "the schedule is not", None)
    with pytest.raises(TschedError) as e:
        file["twise"]
    for error in (
        NoValidCandidate(result),
        WrongSchedule(file["twice"].sample(0), finding),
        TschedError(finding),
        e.value,
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
        assert vars(again) == vars(error)


def test_a_kernel_knows_what_it_is_for(file: tensorc_dsl.TaskFile) -> None:
    k = kernel(file)
    assert (k.task, k.threads) == ("twice", 2)
    assert isinstance(k.target, Target)
    assert k.target == file["twice"].target


# --- types -------------------------------------------------------------------------------------------------------------

USER = """\
from pathlib import Path
import numpy as np
import tensorc_dsl
from tensorc_dsl import Kernel, NoValidCandidate, Task, TaskFile, TschedError, TuneResult, handlers

def build(path: Path, text: str) -> Kernel:
    files: TaskFile = tensorc_dsl.load(path, threads=2, include=["more"])
    files = tensorc_dsl.loads(text, name="cell")
    task: Task = files["small"]
    task = task.drawn_from(handlers.condition(task.model, {"rows": (4, 16)}))
    try:
        kernel = task.tune(trials=16, seed=1, records=path, progress=False)
    except NoValidCandidate as e:
        print(e.result.statuses)
        raise
    except TschedError as e:
        print([d.code for d in e.diagnostics])
        raise
    found: TuneResult | None = kernel.search
    seconds: float | None = kernel.seconds
    print(found, seconds, kernel.trace.text, tensorc_dsl.__version__.upper(), task.timed_at)
    c = kernel(np.zeros((4, 4), np.float32), np.zeros((4, 4), np.float32))
    print(c @ c, kernel.bind(W=c)(c))
    kernel.save("small.tsched")
    return task.replay("small.tsched")

tensorc_dsl.laod("x")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
tensorc_dsl.load(3)  # pyright: ignore[reportArgumentType]
tensorc_dsl.loads("", thread=2)  # pyright: ignore[reportCallIssue]
"""


def test_a_users_program_checks(tmp_path: Path) -> None:
    """Strictly, and its mistakes are found: what is ignored is there."""
    (tmp_path / "user.py").write_text(USER)
    root = Path(tensorc_dsl.__file__).resolve().parent.parent
    settings = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": True, "extraPaths": [str(root)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"include": ["user.py"], **settings}))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable], cwd=tmp_path, check=False,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
