"""Files are read as text and written whole or not at all."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.report.files import check_writable, read_source, write_text


def code_of(e: pytest.ExceptionInfo[TschedError]) -> str:
    (diagnostic,) = e.value.diagnostics
    return diagnostic.code


def test_a_written_file_holds_the_text_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.tsched"
    write_text(path, "π\n")
    write_text(path, "β\n")
    assert path.read_bytes() == "β\n".encode()
    assert os.listdir(tmp_path) == ["a.tsched"]


def test_permissions_are_those_of_the_replaced_file_or_of_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "a.tsched"
    before = os.umask(0o027)
    try:
        write_text(path, "")
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o604)
        write_text(path, "x")
        assert path.stat().st_mode & 0o777 == 0o604
    finally:
        os.umask(before)


def test_a_full_disk_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tsched"
    write_text(path, "before")

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TschedError) as e:
        write_text(path, "after")
    assert code_of(e) == "E0904"
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.tsched"]


@pytest.mark.parametrize("where", ["missing/a.tsched", "folder", "file/a.tsched"])
def test_where_nothing_can_be_written(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(TschedError) as e:
        check_writable(tmp_path / where)
    assert code_of(e) == "E0903"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_looking_whether_a_file_can_be_written_leaves_it_alone(tmp_path: Path) -> None:
    check_writable(tmp_path / "a.tsched")
    assert os.listdir(tmp_path) == []


def test_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tsched"
    path.write_bytes(b"a\r\nb\n")
    assert read_source(path).text == "a\nb\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"\xef\xbb\xbfc\r\n")))
    source = read_source("-")
    assert (source.name, source.text) == ("<stdin>", "c\n")
    with pytest.raises(TschedError) as e:
        read_source(tmp_path / "missing.tsched")
    assert code_of(e) == "E0901"
    path.write_bytes(b"ab\xff")
    with pytest.raises(TschedError, match="0xff at offset 2") as e:
        read_source(path)
    assert code_of(e) == "E0902"
