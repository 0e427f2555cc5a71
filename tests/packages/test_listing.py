"""`module list` and `module which`: all items that can be used, by their names."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.base.resources import stdlib_root
from tensorc_dsl.faces import packages
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.syntax.parse import parse

PARSED = cache(parse)


@pytest.fixture(autouse=True)
def a_text_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command reads all files of the library."""
    monkeypatch.setattr(packages, "parse", PARSED)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here" / "lib").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("TSCHED_PATH", raising=False)
    monkeypatch.setattr(packages, "installed_folders", lambda: ())
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["module", *arguments])


def test_the_library_is_listed(folder: Path) -> None:
    result = call("list")
    assert result.exit_code == 0
    assert result.stdout.startswith("std\n")
    lines = [line.split() for line in result.stdout.split("\n")]
    (line,) = [words for words in lines if words[:1] == ["std.cpu.multi_level_tiling"]]
    assert line[1] == "module"
    file, _, number = line[2].rpartition(":")
    assert Path(file).read_text().split("\n")[int(number) - 1].startswith("module multi_level_tiling(")
    assert ["std.cpu.default", "space"] in [words[:2] for words in lines]
    assert ["std.ops.matmul", "compute"] in [words[:2] for words in lines]
    assert "\n      C = A · B\n" in result.stdout


def test_own_files_come_first_and_once(folder: Path) -> None:
    Path("a.tsched").write_text("/// First.\n/// Second.\nmodule one(b: Block) {}\ntask t = x()\n")
    Path("lib/b.tsched").write_text("module two(b: Block) {}\nmodule same(b: Block) {}\n")
    Path("lib/c.tsched").write_text("module same(b: Block) {}\n")
    Path("lib/no-name.d").mkdir()
    Path("lib/no-name.d/x.tsched").write_text("module hidden(b: Block) {}\n")
    result = call("list", "-I", ".")
    head = result.stdout.partition("\n\nstd\n")[0].split("\n")
    assert [line.split()[0] for line in head] == ["this", "a.one", "First.", "lib.two", "lib.b.same", "lib.c.same"]


def test_a_file_that_does_not_parse_is_named(folder: Path) -> None:
    Path("broken.tsched").write_text("module (")
    Path("lib/link.tsched").symlink_to("/etc/hostname")
    result = call("list")
    assert result.exit_code == 0
    assert "broken.tsched: cannot be read; `tensorc-dsl check broken.tsched` says why" in result.stderr
    assert "lib/link.tsched: cannot be read" in result.stderr


@pytest.mark.parametrize("name", ["std.cpu.auto_inline", "std.cpu.inline.auto_inline", "auto_inline"])
def test_which(folder: Path, name: str) -> None:
    result = call("which", name)
    file, _, line = result.stdout.strip().rpartition(":")
    assert Path(file) == stdlib_root() / "cpu" / "inline.tsched"
    assert Path(file).read_text().split("\n")[int(line) - 1].startswith("module auto_inline(")


def test_which_of_several_and_of_none(folder: Path) -> None:
    Path("matmul.tsched").write_text("compute matmul(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\n")
    assert len(call("which", "matmul").stdout.split()) == 2
    assert call("which", "matmul.matmul").stdout == "matmul.tsched:1\n"
    result = call("which", "std.cpu.unroll_rot")
    assert result.exit_code == 1
    assert "did you mean `std.cpu.unroll_root`?" in result.stderr
    assert "`tensorc-dsl module list` shows what there is" in call("which", "qqqq").stderr


def test_which_takes_what_a_use_takes(folder: Path) -> None:
    def which(name: str) -> list[str]:
        result = call("which", name)
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    std = stdlib_root()
    assert which("std.cpu.inline") == [str(std / "cpu" / "inline.tsched")]
    assert which("std.cpu") == [str(f) for f in sorted((std / "cpu").glob("*.tsched"))]
    both = which("std.cpu.{default, auto_inline}")
    assert [Path(line.rpartition(":")[0]).name for line in both] == ["default.tsched", "inline.tsched"]
    assert which("std.cpu.{ auto_inline , }") == which("std.cpu.inline.auto_inline") == both[1:]
    Path("lib/more.tsched").write_text("reducer most(a, b) = max(a, b) identity 0\nprogram p(A: f32[1]) {}\n")
    assert which("lib.more.{most}") == which("lib.more.most") == ["lib/more.tsched:1"]
    assert which("lib.more") == ["lib/more.tsched"]
    for wrong in ("std.cpu.{nothing}", "std.cpu.{default, nothing}", "lib.more.p", "a b", "std", "std.cpu.{", "-"):
        assert call("which", wrong).exit_code == 1, wrong


def test_what_lies_in_the_folder_does_not_hide_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that holds the library's own files, they are listed once, under the folder's names."""
    monkeypatch.chdir(stdlib_root().parent)
    result = CliRunner().invoke(main, ["module", "which", "std.cpu.auto_inline"])
    assert (result.exit_code, result.stderr) == (0, "")


def test_new_writes_only_where_nothing_is(folder: Path) -> None:
    result = call("new", "vendor")
    assert result.exit_code == 0
    assert "vendor/vendor/tiles.tsched" in result.stdout.split()
    assert CliRunner().invoke(main, ["check", "vendor"]).exit_code == 0
    again = call("new", "vendor")
    assert (again.exit_code, "E0903" in again.stderr) == (1, True)
    assert call("new", "vendor", "--folder", "elsewhere/deep").exit_code == 0
    assert Path("elsewhere/deep/pyproject.toml").is_file()
    Path("file").write_text("")
    assert "E0903" in call("new", "vendor", "--folder", "file/below").stderr
    wrong = call("new", "no-name")
    assert (wrong.exit_code, "no name for a package" in wrong.stderr) == (2, True)
