"""The places in which the files of a `use` are looked for, and files that are never read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.base.resources import stdlib_files
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_file
from tensorc_dsl.faces import api, packages
from tensorc_dsl.faces.packages import Disk, Overlay, Resolver
from tensorc_dsl.faces.report.files import StrPath, read_source

MODULE = "module {}(b: Block) {{ parallel(b.loops[0]) }}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder `here`, with others beside it, and nothing installed."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("TSCHED_PATH", raising=False)
    monkeypatch.setattr(packages, "installed_folders", lambda: ())
    return tmp_path


def write(path: str | Path, text: str) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def check(text: str, *include: str) -> CheckedFile:
    """The file `main.tsched` with that text."""
    file = write("main.tsched", text)
    return load_file(read_source(file), Resolver(file, include))


def said(checked: CheckedFile) -> str:
    return "\n\n".join(map(render, checked.diagnostics))


def test_each_kind_of_place_is_looked_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("own.tsched", MODULE.format("a"))
    write("pyproject.toml", '[tool.tensorc-dsl]\nmodule-paths = ["mods"]')
    write("mods/project.tsched", MODULE.format("b"))
    write("../given/option.tsched", MODULE.format("c"))
    write("../first/one.tsched", MODULE.format("d"))
    write("../second/two/deep.tsched", MODULE.format("e"))
    monkeypatch.setenv("TSCHED_PATH", os.pathsep.join(["../first", "", "../nowhere", "../second"]))
    checked = check(
        "use own\nuse project\nuse option\nuse one\nuse two.deep.{e}\nuse std.cpu.{unroll_root}", "../given"
    )
    assert said(checked) == ""
    assert {"a", "b", "c", "d", "e", "unroll_root"} <= set(checked.modules)
    assert "two.deep.e" in checked.modules


def test_a_file_from_two_places_lists_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("lib.tsched", MODULE.format("a"))
    write("../given/lib.tsched", MODULE.format("a"))
    monkeypatch.setenv("TSCHED_PATH", ".")
    assert said(check("use lib")) == ""  # one file by two ways is one file
    text = said(check("use lib", "../given"))
    assert "error[E0234]: `lib` is found in several places\n --> main.tsched:1:5" in text
    assert "note: lib.tsched: the folder of main.tsched" in text
    assert "given/lib.tsched: -I" in text


def test_a_name_from_two_files_lists_both(folder: Path) -> None:
    write("lib.tsched", MODULE.format("a"))
    write("../given/other.tsched", MODULE.format("a"))
    text = said(check("use lib\nuse other", "../given"))
    assert "E0234" in text
    assert "one: lib.tsched:1:8" in text
    assert "the other: ../given/other.tsched:1:8" in text


def test_nothing_shadows_std(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in (".", "../given", "../path"):
        write(f"{at}/std/cpu.tsched", MODULE.format("mine"))
        write(f"{at}/std.tsched", MODULE.format("mine"))
    monkeypatch.setenv("TSCHED_PATH", "../path")
    checked = check("use std.cpu", "../given")
    assert checked.diagnostics == ()
    assert "multi_level_tiling" in checked.modules
    assert "mine" not in checked.modules
    assert "E0232" in said(check("use std", "../given"))


def test_a_used_file_looks_in_its_own_folder_first(folder: Path) -> None:
    write("../given/lib/outer.tsched", "use helpers\nmodule outer(b: Block) { help(b) }")
    write("../given/lib/helpers.tsched", MODULE.format("help"))
    write("helpers.tsched", MODULE.format("other"))
    checked = check("use lib.outer\nuse helpers\nspace s for llvm { other; outer }", "../given")
    assert said(checked) == ""
    assert "lib.helpers.help" in checked.modules
    assert "helpers.other" in checked.modules


def test_errors_point_into_the_used_file(folder: Path) -> None:
    write("../given/lib.tsched", "\nmodule a(b: Block) { unrol(b.loops[0]) }")
    checked = check("use lib", "../given")
    assert "--> ../given/lib.tsched:2:22" in said(checked)
    write("../given/lib.tsched", "module a(")
    assert "--> ../given/lib.tsched:1:9" in said(check("use lib.{a}\nspace s for llvm { a }", "../given"))


def test_what_is_not_found_says_where_it_was_looked_for(folder: Path) -> None:
    write("kernels.tsched", MODULE.format("a"))
    text = said(check("use kernel.{a}\nspace s for llvm { a }", "../nowhere"))
    assert text.count("error[") == 1
    assert "looked for `kernel.tsched` in" in text
    assert ". (the folder of main.tsched)" in text
    assert "../nowhere (-I): there is no such folder" in text
    assert "did you mean `kernels`?" in text
    assert "did you mean `cpu`?" in said(check("use std.cpv"))


def test_files_that_use_each_other_and_themselves(folder: Path) -> None:
    write("lib.tsched", "use main\n")
    assert "E0233" in said(check("use lib"))
    assert "files use each other: main.tsched > main.tsched" in said(check("use main"))


@pytest.mark.parametrize("use", ["../../x", "/etc/x", "..secret", ".secret", "a/b", '"secret"', "~", "a.../b"])
def test_a_path_is_made_of_names(folder: Path, use: str) -> None:
    write("../secret.tsched", MODULE.format("a"))
    write("../../x.tsched", MODULE.format("a")) if folder.parent.name.startswith("pytest-") else None
    checked = check(f"use {use}\n")
    assert {d.code[:3] for d in checked.diagnostics} == {"E01"}  # the syntax has no way to say it
    assert checked.modules == {}


@pytest.mark.parametrize(
    "path", [("..", "secret"), ("", "secret"), ("/",), ("a/../../secret",), ("lib\0",), ("x" * 5000,)]
)
def test_a_resolver_that_is_asked_for_more_than_names_reads_nothing(folder: Path, path: tuple[str, ...]) -> None:
    write("../secret.tsched", MODULE.format("a"))
    with pytest.raises(Exception, match="is not found") as caught:
        Resolver("main.tsched", [".."])(path, Source("main.tsched", ""))
    assert type(caught.value).__name__ == "TschedError"


def test_links_do_not_lead_out(folder: Path) -> None:
    write("../secret.tsched", MODULE.format("a"))
    write("../private/b.tsched", MODULE.format("b"))
    write("inside/real.tsched", MODULE.format("c"))
    Path("lib.tsched").symlink_to("../secret.tsched")
    Path("folder").symlink_to("../private")
    Path("link.tsched").symlink_to("inside/real.tsched")
    Path("loop.tsched").symlink_to("loop.tsched")
    for use in ("lib", "folder", "folder.b"):
        checked = check(f"use {use}")
        assert "is a link that leads out of" in said(checked)
        assert checked.modules == {}
    assert "is not found" in said(check("use loop"))
    assert said(check("use link\nuse inside.real")) == ""


def test_what_is_no_text_is_said_where_it_is_used(folder: Path) -> None:
    Path("lib.tsched").write_bytes(b"\xff\xfe")
    text = said(check("use lib"))
    assert "error[E0902]" in text
    assert "--> main.tsched:1:5" in text
    os.mkfifo("pipe.tsched")
    assert "is not found" in said(check("use pipe"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('module-paths = ["../given"]', "leads out of the project"),
        ('module-paths = ["/"]', "leads out of the project"),
        ('module-paths = "mods"', "is not a list of strings"),
        ('modulepaths = ["mods"]', "there is no setting `modulepaths`"),
        ("module-paths = [", "pyproject.toml"),
    ],
)
def test_settings_that_are_wrong(folder: Path, table: str, message: str) -> None:
    write("pyproject.toml", f"[tool.tensorc-dsl]\n{table}\n")
    text = said(check("use lib"))
    assert "error[E0909]" in text
    assert message in text
    assert said(check("use std.cpu")) == ""


def test_the_nearest_project_with_settings_counts(folder: Path) -> None:
    write("../pyproject.toml", '[tool.tensorc-dsl]\nmodule-paths = ["mods"]')
    write("pyproject.toml", '[project]\nname = "x"')
    write("../mods/lib.tsched", MODULE.format("a"))
    assert said(check("use lib")) == ""
    write("pyproject.toml", "[tool.tensorc-dsl]\n")
    assert "E0232" in said(check("use lib"))


def test_standard_input_lies_in_the_working_folder(folder: Path) -> None:
    write("lib.tsched", MODULE.format("a"))
    assert load_file(Source("<stdin>", "use lib"), Resolver("-")).diagnostics == ()


def test_a_text_without_foreign_uses_looks_at_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object) -> None:
        raise AssertionError("looked")

    monkeypatch.setattr(packages, "of_project", touched)
    monkeypatch.setattr(packages, "from_environment", touched)
    assert said(check("use std.cpu\n" + MODULE.format("a"))) == ""


def test_an_overlay_stands_for_what_is_stored(folder: Path) -> None:
    Path("lib.tsched").write_text("module old(b: Block) {}\n")
    Path("main.tsched").write_text("use lib.{new}\nspace s for llvm { new }\n")
    files = Overlay({"lib.tsched": "module new(b: Block) {}\r\n"}, Disk())
    resolver = Resolver("main.tsched", (), files)
    checked = load_file(files.read("main.tsched"), resolver)
    assert checked.diagnostics == ()
    assert checked.spaces["s"].rules[0].span.text == "new"
    used = checked.modules["new"].span.source
    assert (used.name, used.text) == ("lib.tsched", "module new(b: Block) {}\n")
    assert resolver.path_of(used) == Path("lib.tsched").resolve()
    assert load_file(Disk().read("main.tsched"), Resolver("main.tsched")).errors != ()


def test_an_overlay_may_have_files_that_are_not_stored(folder: Path) -> None:
    texts: dict[StrPath, str] = {
        "new.tsched": "const one = 1\n",
        "box/inner.tsched": "const two = 2\n",
        "box/a.txt": "no file of these",
    }
    resolver = Resolver("main.tsched", (), Overlay(texts, Disk()))
    main = Source("main.tsched", "")
    assert [s.name for s in resolver(("new",), main).sources] == ["new.tsched"]
    assert [s.name for s in resolver(("box",), main).sources] == ["box/inner.tsched"]
    assert [s.name for s in resolver(("box", "inner"), main).sources] == ["box/inner.tsched"]
    with pytest.raises(TschedError) as caught:
        resolver(("ne",), main)
    assert "did you mean `new`" in render(caught.value.diagnostics[0])


def test_an_overlay_of_the_standard_library(folder: Path) -> None:
    (name, file), *_ = stdlib_files(("cpu",))
    files = Overlay({file: "module mine(b: Block) {}\n"}, Disk())
    found = Resolver("main.tsched", (), files)(("std", "cpu"), Source("main.tsched", ""))
    assert [s.text for s in found.sources if s.name == name] == ["module mine(b: Block) {}\n"]


def test_a_file_is_loaded_through_an_overlay(folder: Path) -> None:
    Path("main.tsched").write_text("task t = nothing()\n")
    text = "compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\ntask other = copy(M=4)\n"
    assert [*api.load("main.tsched", files=Overlay({"main.tsched": text}, Disk()))] == ["other"]
