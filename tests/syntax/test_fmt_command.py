"""`tensorc-dsl fmt`: the written files, the output, and the exit status."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.faces.cli.main import main

ROUGH, FINE = "task a=b( )\n", "task a = b()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rough.tsched").write_text(ROUGH)
    (tmp_path / "fine.tsched").write_text(FINE)
    return tmp_path


def fmt(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["fmt", *arguments], input=stdin)


def test_files_are_written_in_place(folder: Path) -> None:
    (folder / "rough.tsched").chmod(0o640)
    before = (folder / "fine.tsched").stat()
    done = fmt("rough.tsched", "fine.tsched")
    assert (done.exit_code, done.stdout) == (0, "rough.tsched: formatted\n")
    assert (folder / "rough.tsched").read_text() == FINE
    assert (folder / "rough.tsched").stat().st_mode & 0o777 == 0o640
    after = (folder / "fine.tsched").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert sorted(p.name for p in folder.iterdir()) == ["fine.tsched", "rough.tsched"]


def test_a_folder_stands_for_its_files(folder: Path) -> None:
    done = fmt(".", "--check")
    assert (done.exit_code, done.stdout) == (1, "rough.tsched: not formatted\n")


def test_a_link_stays_a_link(folder: Path) -> None:
    link = folder / "link.tsched"
    link.symlink_to("rough.tsched")
    assert fmt("link.tsched").exit_code == 0
    assert link.is_symlink()
    assert (folder / "rough.tsched").read_text() == FINE


def test_check_writes_nothing(folder: Path) -> None:
    done = fmt("--check", "rough.tsched", "fine.tsched")
    assert (done.exit_code, done.stdout) == (1, "rough.tsched: not formatted\n")
    assert (folder / "rough.tsched").read_text() == ROUGH
    assert fmt("--check", "fine.tsched").exit_code == 0


def test_diff_writes_nothing(folder: Path) -> None:
    done = fmt("--diff", "rough.tsched", "fine.tsched")
    want = "--- rough.tsched\n+++ rough.tsched (formatted)\n@@ -1 +1 @@\n-task a=b( )\n+task a = b()\n"
    assert (done.exit_code, done.stdout) == (1, want)
    assert (folder / "rough.tsched").read_text() == ROUGH


def test_standard_input_goes_to_standard_output(folder: Path) -> None:
    assert (fmt("-", stdin=ROUGH).exit_code, fmt("-", stdin=ROUGH).stdout) == (0, FINE)
    assert fmt("-", "--check", stdin=ROUGH).stdout == "<stdin>: not formatted\n"
    done = fmt("-", "--diff", stdin="task a = b()")
    assert (done.exit_code, done.stdout.split("\n")[-4:]) == (
        1, ["-task a = b()", "\\ No newline at end of file", "+task a = b()", ""],
    )  # fmt: skip
    assert (fmt("-", stdin="").exit_code, fmt("-", stdin="").stdout) == (0, "")


def test_line_ends_and_marks_are_layout(folder: Path) -> None:
    (folder / "rough.tsched").write_bytes(b"\xef\xbb\xbftask a = b()\r\n")
    assert fmt("--check", "rough.tsched").exit_code == 1
    assert fmt("rough.tsched").exit_code == 0
    assert (folder / "rough.tsched").read_bytes() == FINE.encode()


@pytest.mark.parametrize("wrong", [b"task a = \n", b"\xff\xfe", b"task a = b(\0)"])
def test_what_does_not_parse_is_left_alone(wrong: bytes, folder: Path) -> None:
    (folder / "wrong.tsched").write_bytes(wrong)
    done = fmt("wrong.tsched", "rough.tsched", "missing.tsched")
    assert done.exit_code == 1
    assert done.stderr.count("error[") == 2
    assert (folder / "wrong.tsched").read_bytes() == wrong
    assert (folder / "rough.tsched").read_text() == FINE  # the others are formatted
