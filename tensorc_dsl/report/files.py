"""Files that people name: read as text, and written whole or not at all. What goes wrong is a diagnostic."""

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
@problem("E0901", "cannot read `{name}`: {reason}", help="give the path of a `.tsched` file")
def UNREADABLE(*, name: str, reason: str) -> None: ...
@problem("E0901", "there is no `.tsched` file in `{folder}`", help="give another folder, or a file")
def NO_FILES(*, folder: Path) -> None: ...
@problem("E0902", "`{name}` is not UTF-8 text: byte {byte:#04x} at offset {offset}", help="save the file as UTF-8")
def NOT_UTF8(*, name: str, byte: int, offset: int) -> None: ...
@problem("E0903", "cannot make `{path}`: {reason}", help="give a path that you may write to")
def NO_FOLDER(*, path: Path, reason: str) -> None: ...
@problem("E0903", "cannot write `{path}`: {reason}", help="give a path that you may write to")
def UNWRITABLE(*, path: Path, reason: str) -> None: ...
@problem("E0904", "no room to write `{path}`", help="make room, or give a path on another disk")
def NO_ROOM(*, path: Path) -> None: ...


def read_text(path: StrPath) -> bytes:
    """What a file holds, a pipe, or for `-` standard input: UTF-8. Raises TschedError (E0901, E0902, E0917)."""
    name = os.fspath(path)
    try:
        data = read_bytes(name)
        data.decode()
    except TooLarge as e:
        raise TschedError(TOO_LARGE(None, name=name, limit=MAX_BYTES >> 20)) from e
    except OSError as e:
        raise TschedError(UNREADABLE(None, name=name, reason=_reason(e))) from e
    except UnicodeDecodeError as e:
        raise TschedError(NOT_UTF8(None, name=name, byte=e.object[e.start], offset=e.start)) from e
    return data


def source_of(data: bytes, path: StrPath, shown: str | None = None) -> Source:
    """The text that was read from a path; `shown` is its name in messages."""
    name = os.fspath(path)
    return Source.of(data, "<stdin>" if name == STDIN else shown or name)


def read_source(path: StrPath, shown: str | None = None) -> Source:
    """The text of a file, of a pipe, or of standard input for `-`. Raises TschedError (E0901, E0902, E0917)."""
    return source_of(read_text(path), path, shown)


def sources_below(folder: Path) -> list[Path]:
    """All `.tsched` files in a folder and in those below, in order; hidden folders and virtual environments are left out.

    Raises TschedError (E0901) when there are none.
    """
    found: list[Path] = []
    for at, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and not Path(at, f, "pyvenv.cfg").exists()]
        found += [Path(at, f) for f in files if f.endswith(".tsched")]
    if not found:
        raise TschedError(NO_FILES(None, folder=folder))
    return sorted(found)


def check_writable(path: Path) -> None:
    """Nothing is written; raises TschedError (E0903, E0904) where writing would, as far as one can tell before."""
    _write(path, None)


def make_folder(path: Path) -> None:
    """The folder exists afterwards, and those above it. Raises TschedError (E0903)."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise TschedError(NO_FOLDER(None, path=path, reason=_reason(e))) from e


def write_text(path: Path, text: str) -> None:
    """The file holds the text afterwards, or what it held before. Raises TschedError (E0903, E0904)."""
    _write(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """The file holds the data afterwards, or what it held before. Raises TschedError (E0903, E0904)."""
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
    """Devices and pipes take what is written, and stay what they are."""
    if data is None:
        # A pipe is not opened for a look: whoever reads it would take the end of that for the end of all.
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return
    # A pipe that nobody reads is an error, not a wait.
    file = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_blocking(file, True)
    with os.fdopen(file, "wb") as out:
        out.write(data)


def _replace(path: Path, data: bytes | None) -> None:
    """The data goes to a file beside the target, which then takes the target's name in one step."""
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
    """A new file beside another, with a lock on it that goes with the process."""
    import tempfile  # slow to load, and a check writes nothing

    while True:
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        with contextlib.suppress(OSError):  # no lock on this file system: nobody takes the file for a left one either
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, temporary
        os.close(fd)  # another process took it for a left one, before it was locked


def _sweep(path: Path) -> None:
    """What processes left here that were killed while they wrote is gone."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _mode(path: Path) -> int:
    """The permissions that a plain `open` would leave: those of the file that is replaced, or the umask's."""
    with contextlib.suppress(OSError):
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _reason(e: OSError) -> str:
    return (e.strerror or str(e)).lower()
