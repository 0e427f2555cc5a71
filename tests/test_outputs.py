"""Files are written through one module, and never through what somebody put in the place of an output."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensorc_dsl
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.records import emulated_counts
from tests.started import ALONE

PACKAGE = Path(tensorc_dsl.__file__).parent

FILE = """\
use std.cpu
use std.ops.{matmul}

task small = matmul(M=16, N=16, K=16)
"""

# --- one writer ------------------------------------------------------------------------------------------------------

OTHERS = {
    "backend/cuda/compiled.py": "a temporary folder of its own, for NVIDIA's tools",
    "backend/llvm/ahead/library.py": "a temporary folder of its own, for the C compiler",
    "faces/cli/failures.py": "/dev/null in place of a closed output",
    "faces/cli/options.py": "/dev/null in place of a closed output",
    "tuning/cluster/access.py": "the secret of a user's own workers, which no other user may read for a moment",
    "processes/server.py": "the name of the process, in /proc",
    "processes/machine.py": "locks in the user's runtime folder, opened with O_NOFOLLOW and never written",
    "faces/report/terminal.py": "/dev/null in place of a closed output",
}
"""Modules that open something for writing by themselves, and what."""

WRITING = {"write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "copyfile", "copy2", "copytree", "touch"}
OF_OS = {"replace", "rename", "renames", "link", "symlink", "truncate"}
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND"}


CALLS = re.compile(rf"\b(?:open|{'|'.join(WRITING)}|os\s*\.\s*(?:{'|'.join(OF_OS)}))\s*\(")


def writes(text: str) -> Iterator[str]:
    """The calls that open a file for writing, make one or give one another name."""
    for node in ast.walk(ast.parse(text)) if CALLS.search(text) else ():
        if not isinstance(node, ast.Call):
            continue
        of = node.func
        name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
        owner = of.value.id if isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name) else ""
        given = [*node.args, *(k.value for k in node.keywords)]
        modes = [str(a.value) for a in given if isinstance(a, ast.Constant)]
        flags = {a.attr for arg in given for a in ast.walk(arg) if isinstance(a, ast.Attribute)}
        opens = name == "open" and any(re.fullmatch("[rwaxbt+]*[wax+][rwaxbt+]*", m) for m in modes)
        if opens or (name == "open" and flags & FLAGS) or name in WRITING or (name in OF_OS and owner == "os"):
            yield ast.unparse(node)


def test_everything_is_written_by_one_module() -> None:
    found = {
        str(file.relative_to(PACKAGE)): calls
        for file in sorted(PACKAGE.rglob("*.py"))
        if (calls := list(writes(file.read_text(encoding="utf-8"))))
    }
    others = {file: calls for file, calls in found.items() if file not in OTHERS}
    assert others.keys() == {"base/outputs.py"}, others
    assert found.keys() == {"base/outputs.py", *OTHERS}


# --- what is in the way ----------------------------------------------------------------------------------------------


def code(e: pytest.ExceptionInfo[TschedError]) -> str:
    return e.value.diagnostics[0].code


def link(path: Path) -> None:
    (path.parent / "victim").write_text("secret")
    path.symlink_to("victim")


def dangling(path: Path) -> None:
    path.symlink_to("victim")


def linked_folder(path: Path) -> None:
    (path.parent / "folder").mkdir()
    path.symlink_to("folder")


OBSTACLES: Sequence[Callable[[Path], None]] = (link, dangling, linked_folder, os.mkfifo)


@pytest.mark.parametrize("plant", OBSTACLES)
def test_a_path_that_nobody_typed_leads_nowhere(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    path = tmp_path / "a.tsched"
    plant(path)
    before = {p.name: p.read_text() if p.is_file() else "" for p in tmp_path.iterdir()}
    for write in (lambda: Output(path).check(), lambda: Output(path).write("new")):
        with pytest.raises(TschedError) as e:
            write()
        assert code(e) == "E0932"
    assert {p.name: p.read_text() if p.is_file() else "" for p in tmp_path.iterdir()} == before


def test_a_hard_link_is_replaced_and_its_other_names_keep_what_they_have(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("secret")
    os.link(tmp_path / "victim", tmp_path / "a.tsched")
    Output(tmp_path / "a.tsched").write("new")
    assert (tmp_path / "victim").read_text() == "secret"
    assert (tmp_path / "a.tsched").read_text() == "new"


@pytest.mark.parametrize("name", [".a.tsched.x.tmp", ".a.tsched.abcdefgh.tmp"])
@pytest.mark.parametrize("plant", OBSTACLES)
def test_names_of_temporary_files_may_be_taken(tmp_path: Path, name: str, plant: Callable[[Path], None]) -> None:
    plant(tmp_path / name)
    before = sorted(os.listdir(tmp_path))
    Output(tmp_path / "a.tsched").write("new")
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "a.tsched"])
    assert not (tmp_path / "victim").exists() or (tmp_path / "victim").read_text() == "secret"


@pytest.mark.parametrize("plant", OBSTACLES)
def test_counts_are_not_kept_in_what_is_in_the_way(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    path = tmp_path / emulated_counts.NAME
    plant(path)
    search = emulated_counts.SearchKey("about", 0, "random")
    one = emulated_counts.Emulation(search, "program", "{}", emulated_counts.Counted(refused="it spills"))
    with pytest.raises(TschedError) as e:
        emulated_counts.keep(path, one)
    assert code(e) == "E0703"
    with pytest.raises(TschedError) as e:
        emulated_counts.kept(path, search)
    assert code(e) == "E0708"


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.tsched").write_text(FILE)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(
    ("output", "command"),
    [
        ("small.best.tsched", "tune f.tsched --trials 1 --threads 1 --records r.sqlite"),
        ("f_prior.tsched", "tune f.tsched --trials 1 --threads 1 --records r.sqlite --output x.tsched --write-prior"),
        ("small.report.html", "report f.tsched --records r.sqlite"),
        ("small.o", "compile f.tsched --emit obj --seed 0 --threads 1"),
        ("small.h", "compile f.tsched --seed 0 --threads 1 -o ."),
    ],
)
@pytest.mark.parametrize("plant", [link, os.mkfifo])
def test_commands_write_through_nothing(folder: Path, output: str, command: str, plant: Callable[[Path], None]) -> None:
    plant(folder / output)
    done = call(*command.split())
    assert done.exit_code == 1, done.output
    assert f"error[E0932]: cannot write `{output}`: it is a " in done.stderr
    assert not (folder / "victim").exists() or (folder / "victim").read_text() == "secret"
    assert "building" not in done.stderr  # it is told before a search begins


def test_a_link_that_is_named_is_followed(folder: Path) -> None:
    link(folder / "out.h")
    assert call(*"compile f.tsched --emit header --seed 0 --threads 1 -o out.h".split()).exit_code == 0
    assert (folder / "out.h").is_symlink() and "small" in (folder / "victim").read_text()


def test_a_folder_is_formatted_as_far_as_it_reaches(folder: Path) -> None:
    loose = FILE + "\n\n\n"
    (folder / "in").mkdir()
    (folder / "outside.tsched").write_text(loose)
    (folder / "in" / "inside.tsched").write_text(loose)
    (folder / "in" / "a.tsched").symlink_to("inside.tsched")
    (folder / "in" / "z.tsched").symlink_to("../outside.tsched")
    done = call("fmt", "in")
    assert done.exit_code == 1 and "error[E0932]: cannot write `in/z.tsched`: it is a link" in done.stderr
    assert (folder / "outside.tsched").read_text() == loose
    assert (folder / "in" / "a.tsched").is_symlink() and (folder / "in" / "inside.tsched").read_text() == FILE
    assert call("fmt", "in/z.tsched").exit_code == 0 and (folder / "outside.tsched").read_text() == FILE


def test_a_pipe_beside_the_output_of_a_search_does_not_hold_it_up(folder: Path) -> None:
    for name in (".small.best.tsched.x.tmp", ".small.best.tsched.abcdefgh.tmp", "emulated.jsonl"):
        os.mkfifo(folder / name)
    command = ALONE + "from tensorc_dsl.faces.cli.main import main; main(prog_name='tensorc-dsl')"
    words = "tune f.tsched --trials 1 --threads 1 --records r.sqlite".split()
    done = subprocess.run(
        [sys.executable, "-c", command, *words], cwd=folder, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "small.best.tsched").is_file()


@pytest.mark.parametrize("name", ["lock", "wal", "shm"])
def test_what_a_database_has_beside_it_is_no_way_out(folder: Path, name: str) -> None:
    link(folder / f"r.sqlite{'.' if name == 'lock' else '-'}{name}")
    done = call(*"tune f.tsched --trials 1 --threads 1 --records r.sqlite".split())
    assert done.exit_code != 4, done.output
    assert (folder / "victim").read_text() == "secret"
