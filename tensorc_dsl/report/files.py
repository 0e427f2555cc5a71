"""Reads files as text, and writes them as a whole or not at all. Errors are diagnostics."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
from pathlib import Path

from tensorc_dsl.diagnostic import TschedError, problem
from tensorc_dsl.report.inputs import MAX_BYTES, STDIN, TooLarge, read_bytes
from tensorc_dsl.source import Source

StrPath = str | os.PathLike[str]


@problem(
    "E0917", "`{name}` holds more than {limit:d} MiB of text, and no more is read", help="split it into several files"
)
def TOO_LARGE(*, name: str, limit: int) -> None: ...
@problem("E0901", "cannot read `{name}`: {reason}", help="{repair}")
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
@problem("E0903", "cannot write `{path}`: {reason}", help="give a path that you may write to")
def UNWRITABLE(*, path: Path, reason: str) -> None: ...
@problem("E0904", "no room to write `{path}`", help="make room, or give a path on another disk")
def NO_ROOM(*, path: Path) -> None: ...


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
    return TschedError(UNREADABLE(None, name=name, reason=_reason(e), repair=repair))


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


def check_writable(path: Path) -> None:
    """Raises TschedError (E0903, E0904) if writing to the path would, as far as that can be checked without writing."""
    _write(path, None)


def make_folder(path: Path) -> None:
    """Create the folder and those above it, unless they exist. Raises TschedError (E0903)."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise TschedError(NO_FOLDER(None, path=path, reason=_reason(e))) from e


def write_text(path: Path, text: str) -> None:
    """Write the text to the file, which keeps its old content on failure. Raises TschedError (E0903, E0904)."""
    _write(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write the data to the file, which keeps its old content on failure. Raises TschedError (E0903, E0904)."""
    _write(path, data)


def _write(path: Path, data: bytes | None) -> None:
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            _write_into(path, data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise TschedError(NO_ROOM(None, path=path)) from e
        raise TschedError(UNWRITABLE(None, path=path, reason=_reason(e))) from e


def _write_into(path: Path, data: bytes | None) -> None:
    """Write the data into a device or a pipe, which stays what it is."""
    if data is None:
        # A pipe is not opened for a check: closing it would look like the end of the data to its reader.
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return
    # A pipe without a reader is an error; the write must not block.
    file = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_blocking(file, True)
    with os.fdopen(file, "wb") as out:
        out.write(data)


def _replace(path: Path, data: bytes | None) -> None:
    """Write the data to a file beside the target, which then takes the target's name in one step."""
    _sweep(path)
    fd, temporary = _beside(path)
    try:
        with os.fdopen(fd, "wb") as out:
            if data is not None:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
                os.fchmod(out.fileno(), _mode(path))
                os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _beside(path: Path) -> tuple[int, str]:
    """A new file beside another, with a lock that the system releases when the process ends."""
    import tempfile  # slow to load, and a check writes nothing

    while True:
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        with contextlib.suppress(
            OSError
        ):  # without locks on this file system, no process removes the file as abandoned
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, temporary
        os.close(fd)  # another process removed it as abandoned before it was locked


def _sweep(path: Path) -> None:
    """Remove the files of processes that were killed while they wrote."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _mode(path: Path) -> int:
    """The permissions for the new file: those of the file that it replaces, or those of a plain `open`."""
    with contextlib.suppress(OSError):
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _reason(e: OSError) -> str:
    return (e.strerror or str(e)).lower()
