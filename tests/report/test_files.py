"""Files are read as text and written whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.faces.report.files import read_source


def write_text(path: Path, text: str, *, typed: bool = True) -> None:
    Output(path, typed).write(text)


def check_writable(path: Path, *, typed: bool = True) -> None:
    Output(path, typed).check()


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


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    link = tmp_path / "a.tsched"
    link.symlink_to("deep/b.tsched")
    for text in ("new", "again"):
        write_text(link, text)
        assert link.is_symlink()
        assert (tmp_path / "deep" / "b.tsched").read_text() == text
    assert os.listdir(tmp_path / "deep") == ["b.tsched"]


def test_devices_and_pipes_are_written_to_and_stay_what_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]
    for device, before in ((Path(p), os.stat(p)) for p in ("/dev/null", "/dev/full")):
        check_writable(device)
        if device.name == "full":
            with pytest.raises(TschedError) as e:
                write_text(device, "text")
            assert code_of(e) == "E0904"
        else:
            write_text(device, "text")
        assert os.stat(device).st_rdev == before.st_rdev != 0


WRITER = """\
import os, signal, sys
from pathlib import Path
os.replace = lambda *_: os.kill(os.getpid(), int(sys.argv[2]))
from tensorc_dsl.base.outputs import Output
Output(Path(sys.argv[1])).write("new")
"""


def _killed(path: Path, number: signal.Signals) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(int(number))])


def test_what_a_killed_process_left_is_gone_after_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "a[1].tsched"
    path.write_text("old")
    assert _killed(path, signal.SIGKILL).wait(60) == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2 and path.read_text() == "old"
    check_writable(path)
    assert os.listdir(tmp_path) == ["a[1].tsched"]


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.tsched"
    with _killed(path, signal.SIGSTOP) as other:
        os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
        write_text(path, "ours")
        assert len(os.listdir(tmp_path)) == 2
        other.kill()
    assert path.read_text() == "ours"


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


TEXT = "compute f(A: f32[N]) -> B: f32[N] { B[i] = A[i] }  // größer\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_the_encoding_of_a_text_is_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "f.tsched"
    path.write_bytes(TEXT.encode(encoding))
    with pytest.raises(TschedError) as e:
        read_source(path)
    (found,) = e.value.diagnostics
    said = re.search("text in (UTF-[0-9LBE]+)", found.message)
    assert found.code == "E0902" and said is not None
    assert path.read_bytes().decode(said[1]) == TEXT  # `iconv -f` reads it


@pytest.mark.parametrize("data", [b"", b"//", b"// \0\0", b"\xef\xbb\xbf// a mark\n", TEXT.encode(), b"a\0b"])
def test_other_texts_are_in_utf_8(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "f.tsched"
    path.write_bytes(data)
    read_source(path)
