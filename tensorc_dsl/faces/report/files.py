"""Reads files, pipes and standard input as text, with limits, and makes folders. Errors are diagnostics, with the nearest
known name.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.outputs import reason
from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.names import listed

# Reads the bytes of files, pipes and standard input, with a limit on their size and on waiting.


STDIN = "-"
"""The path that means standard input."""

MAX_BYTES = 4 << 20
"""The largest text that is read, some 70,000 computes, which take a minute to check and a gigabyte of memory."""

NOBODY, SILENT = 5.0, 60.0
"""Seconds to wait for a writer of a pipe, and for its next data."""

_PIECE = 1 << 16


class TooLarge(Exception):
    """The input has more than MAX_BYTES."""


def read_bytes(name: str) -> bytes:
    """The content of a file, a pipe or, for `-`, standard input. Raises OSError and TooLarge."""
    if name == STDIN:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            data = _read(file)
        finally:
            os.close(file)
    if len(data) > MAX_BYTES:
        raise TooLarge
    return data


def _read(file: int) -> bytes:
    mode = os.fstat(file).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISFIFO(mode):
        return _from_pipe(file)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a device")
    data = bytearray()
    while len(data) <= MAX_BYTES and (piece := os.read(file, _PIECE)):
        data += piece
    return bytes(data)


def _from_pipe(file: int) -> bytes:
    """All data until the last writer has closed the pipe."""
    data = bytearray()
    try:
        data += os.read(file, _PIECE)
        seconds = SILENT if data else NOBODY  # a pipe without a writer yet looks like one at its end
    except BlockingIOError:
        seconds = SILENT
    poll = select.poll()
    poll.register(file, select.POLLIN)
    while len(data) <= MAX_BYTES:
        if not poll.poll(seconds * 1000):
            what = (
                "nobody writes to this pipe" if seconds == NOBODY else f"nothing came from this pipe for {seconds:g} s"
            )
            raise TimeoutError(errno.ETIMEDOUT, what)
        piece = os.read(file, _PIECE)
        if not piece:
            break
        data += piece
        seconds = SILENT
    return bytes(data)


# Reads files as text, and makes folders. Errors are diagnostics.


StrPath = str | os.PathLike[str]


@problem(
    "E0917", "`{name}` holds more than {limit:d} MiB of text, and no more is read", help="split it into several files"
)
def TOO_LARGE(*, name: str, limit: int) -> None: ...
@problem("E0901", "cannot read `{name}`: {reason}")
def UNREADABLE(*, name: str, reason: str, repair: str) -> None: ...
@problem("E0901", "there is no `.tsched` file in `{folder}`", help="give another folder, or a file")
def NO_FILES(*, folder: Path) -> None: ...
@problem("E0902", "`{name}` is not UTF-8 text: byte {byte:#04x} at offset {offset}", help="save the file as UTF-8")
def NOT_UTF8(*, name: str, byte: int, offset: int) -> None: ...
@problem(
    "E0902",
    "`{name}` is text in {encoding}, and not in UTF-8",
    help="save the file as UTF-8: `iconv -f {encoding} -t UTF-8 OLD >NEW`",
)
def OTHER_ENCODING(*, name: str, encoding: str) -> None: ...
@problem("E0903", "cannot make `{path}`: {reason}", help="give a path that you may write to")
def NO_FOLDER(*, path: Path, reason: str) -> None: ...


def read_text(path: StrPath) -> bytes:
    """The content of a file, a pipe, or for `-` standard input: UTF-8. Raises TschedError (E0901, E0902, E0917)."""
    name = os.fspath(path)
    try:
        data = read_bytes(name)
        if encoding := _encoding(data):
            raise TschedError(OTHER_ENCODING(None, name=name, encoding=encoding))
        data.decode()
    except TooLarge as e:
        raise TschedError(TOO_LARGE(None, name=name, limit=MAX_BYTES >> 20)) from e
    except OSError as e:
        raise unreadable(name, e, "give the path of a `.tsched` file") from e
    except UnicodeDecodeError as e:
        raise TschedError(NOT_UTF8(None, name=name, byte=e.object[e.start], offset=e.start)) from e
    return data


def unreadable(name: str, e: OSError, repair: str) -> TschedError:
    """The finding for a file that cannot be read (E0901)."""
    return TschedError(UNREADABLE(None, name=name, reason=reason(e), repair=repair))


def source_of(data: bytes, path: StrPath, shown: str | None = None) -> Source:
    """The source for data that were read from a path; `shown` is its name in messages."""
    name = os.fspath(path)
    return Source.of(data, "<stdin>" if name == STDIN else shown or name)


_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""How a text in another encoding begins. The longer ones stand first: UTF-16's is the beginning of one of UTF-32's."""


def _encoding(data: bytes) -> str:
    """The encoding of a text with a zero byte in each of its first characters or a mark at its start; empty for others."""
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            return name
    begin = data[:64]
    zeros = [{k % 4 for k, byte in enumerate(begin) if (byte == 0) == is_zero} for is_zero in (True, False)]
    layouts = {"UTF-16LE": {1, 3}, "UTF-16BE": {0, 2}, "UTF-32LE": {1, 2, 3}, "UTF-32BE": {0, 1, 2}}
    found = (name for name, at in layouts.items() if zeros == [at, {0, 1, 2, 3} - at])
    return next(found, "") if len(begin) >= 4 else ""


def read_source(path: StrPath, shown: str | None = None) -> Source:
    """The text of a file, of a pipe, or of standard input for `-`. Raises TschedError (E0901, E0902, E0917)."""
    return source_of(read_text(path), path, shown)


def sources_below(folder: Path) -> list[Path]:
    """All `.tsched` files in a folder and below, in order, without hidden folders and virtual environments.

    Raises TschedError (E0901) if there are none.
    """
    found: list[Path] = []
    for at, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and not Path(at, f, "pyvenv.cfg").exists()]
        found += [Path(at, f) for f in files if f.endswith(".tsched")]
    if not found:
        raise TschedError(NO_FILES(None, folder=folder))
    return sorted(found)


def make_folder(path: Path) -> None:
    """Create the folder and those above it, unless they exist. Raises TschedError (E0903)."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise TschedError(NO_FOLDER(None, path=path, reason=reason(e))) from e


# Errors for unknown names, with the nearest known one.


@problem("E0905", "`{file}` has no task `{name}`")
def NO_TASK(*, file: str, name: str, repair: str) -> None: ...
@problem("E0906", "`{file}` has no item `{name}`")
def NO_ITEM(*, file: str, name: str, repair: str) -> None: ...


def no_such_task(name: str, known: Sequence[str], file: str) -> Diagnostic:
    """`file` has no task of that name."""
    return NO_TASK(None, file=file, name=name, repair=_nearest("task", name, known))


def no_such_item(name: str, known: Sequence[str], file: str) -> Diagnostic:
    """`file` has no item of that name."""
    return NO_ITEM(None, file=file, name=name, repair=_nearest("item", name, known))


def _nearest(kind: str, name: str, known: Sequence[str]) -> str:
    """The nearest known name, or the list of known names."""
    near = get_close_matches(name, known, 1)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"it has {listed(known)}" if known else f"it has no {kind} at all"
