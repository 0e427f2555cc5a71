"""Reading is bounded: large files, pipes without a writer, endless devices."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.faces.report import files
from tensorc_dsl.faces.report.files import MAX_BYTES, TooLarge, read_bytes

TEXT = "compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "NOBODY", 0.2)
    monkeypatch.setattr(files, "SILENT", 0.4)
    return tmp_path


def call(*arguments: str, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=text)


@pytest.mark.parametrize("size", [0, 1, MAX_BYTES - 1, MAX_BYTES])
def test_all_of_a_file_is_read(size: int) -> None:
    Path("x").write_bytes(b"x" * size)
    assert len(read_bytes("x")) == size


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 1 << 40])
def test_a_larger_file_is_refused(size: int) -> None:
    with Path("x").open("wb") as file:
        file.truncate(size)
    with pytest.raises(TooLarge):
        read_bytes("x")


def test_standard_input_has_a_bound() -> None:
    result = call("check", "-", text="/" * (MAX_BYTES + 1))
    assert (result.exit_code, "E0917" in result.stderr) == (1, True)
    assert call("check", "-", text=f"//{'/' * (MAX_BYTES - 2)}").exit_code == 0


@pytest.fixture
def special() -> Iterator[None]:
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("link").symlink_to("/dev/zero")
    Path("circle").symlink_to("circle")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("socket")
        yield


SPECIAL = [
    "pipe",
    "folder/",
    "socket",
    "link",
    "circle",
    "/dev/zero",
    "/dev/null",
    "/dev/full",
    "/dev/random",
    "/dev/tty",
]


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize(
    "command",
    [
        ("check", "NAME"),
        ("check", "NAME", "--output-format", "json"),
        ("fmt", "NAME"),
        ("show", "NAME", "t"),
        ("show", "NAME", "t", "--stage", "ast"),
        ("verify", "NAME"),
        ("sample", "f.tsched", "t", "--replay", "NAME"),
        ("replay", "f.tsched", "t", "NAME"),
    ],
    ids=" ".join,
)
def test_what_is_no_file_is_an_error(special: None, name: str, command: tuple[str, ...]) -> None:
    Path("f.tsched").write_text(f"{TEXT}schedule s for copy {{ }}\ntask t = copy(M=8)")
    result = call(*(name if word == "NAME" else word for word in command))
    assert result.exit_code == 1, result.output
    assert "E0901" in result.output


def test_a_pipe_that_stays_silent_is_an_error() -> None:
    os.mkfifo("pipe")
    file = os.open("pipe", os.O_RDWR)  # somebody has it open, and says nothing
    try:
        with pytest.raises(TimeoutError, match="nothing came from this pipe"):
            read_bytes("pipe")
        os.write(file, b"x")
        with pytest.raises(TimeoutError, match="nothing came from this pipe"):
            read_bytes("pipe")
    finally:
        os.close(file)


def test_a_pipe_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "NOBODY", 60.0)
    monkeypatch.setattr(files, "SILENT", 61.0)
    data = TEXT.encode() * 10_000  # many times what a pipe holds
    os.mkfifo("pipe")

    def write() -> None:
        with open("pipe", "wb") as pipe:
            pipe.write(data)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_bytes("pipe") == data
    writer.join()


def test_a_pipe_that_never_ends_is_too_large() -> None:
    script = "from tensorc_dsl.faces.cli.main import main; main()"
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -c "{script}" check <(yes)'], capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert (done.returncode, "E0917" in done.stderr) == (1, True), done.stderr


def test_what_a_shell_makes_of_a_command_is_read() -> None:
    script = "from tensorc_dsl.faces.cli.main import main; main()"
    done = subprocess.run(
        ["bash", "-c", f"\"{sys.executable}\" -c '{script}' check <(echo '{TEXT.strip()}')"], capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, "ok, 0 tasks" in done.stdout) == (0, True), done.stderr


def test_a_pipe_is_not_formatted_in_place() -> None:
    read, write = os.pipe()
    os.write(write, TEXT.replace("{", "{ ").encode())
    os.close(write)
    result = call("fmt", f"/dev/fd/{read}")
    os.close(read)
    assert (result.exit_code, "E0903" in result.stderr) == (1, True), result.output


def test_devices_and_pipes_take_what_is_written() -> None:
    Path("f.tsched").write_text(f"{TEXT}schedule s for copy {{ }}\ntask t = copy(M=8)")
    Path("null").symlink_to("/dev/null")
    assert call("compile", "f.tsched", "t", "--emit", "header", "-o", "null").exit_code == 0
    assert Path("null").is_char_device()
    read, write = os.pipe()
    assert call("compile", "f.tsched", "t", "--emit", "header", "-o", f"/dev/fd/{write}").exit_code == 0
    os.close(write)
    with os.fdopen(read) as pipe:
        assert "t_metadata" in pipe.read()
    os.mkfifo("pipe")
    result = call("compile", "f.tsched", "t", "--emit", "header", "-o", "pipe")
    assert (result.exit_code, "E0903" in result.stderr) == (1, True)
    result = call("compile", "f.tsched", "t", "--emit", "header", "-o", "/dev/full")
    assert (result.exit_code, "E0904" in result.stderr) == (1, True)
