"""Writes files, each as a whole or not at all. All that this package writes for a user passes through here.

A file is written under a random name beside its own, and renamed over it. A path that the user typed may be a link, a pipe or
a device: a link is followed, and the others are written into. A path that the user did not type must be missing or a regular
file: what else is there may have been put in the way of the output. Replacing a link would be as safe, but a user who made it
would lose it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Generator, Iterable
from pathlib import Path

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen


@problem("E0903", "cannot write `{path}`: {reason}", help="give a path that you may write to")
def UNWRITABLE(*, path: Path, reason: str) -> None: ...
@problem("E0904", "no room to write `{path}`", help="make room, or give a path on another disk")
def NO_ROOM(*, path: Path) -> None: ...
@problem(
    "E0932",
    "cannot write `{path}`: it is {kind}, and you did not name this path",
    help="remove it, or name the output: a path that you name may be a link, a pipe or a device",
)
def IN_THE_WAY(*, path: Path, kind: str) -> None: ...


Parts = Iterable[bytes | memoryview]
"""The content of a file, as bytes that are written one after another."""


@frozen
class Output:
    """A file to be written; `typed` if the user gave this very path, `executable` if the system may run it."""

    path: Path
    typed: bool = False
    executable: bool = False

    @staticmethod
    def at(typed: str | None, usual: str, executable: bool = False) -> Output:
        """The output at the path that the user typed, else at the usual one."""
        return Output(Path(typed or usual), bool(typed), executable)

    def check(self) -> None:
        """Raises TschedError (E0903, E0904, E0932) if a write would, as far as that can be checked without writing."""
        self._write(None)

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """A context in which no other process is in one of an output in the same folder, where the file system has locks."""
        folder = -1
        try:
            with contextlib.suppress(OSError):
                folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            if folder >= 0:
                os.close(folder)

    def content(self, most: int) -> bytes:
        """What is in the file, up to so many bytes; empty if there is none, or it is a pipe or a device."""
        with contextlib.suppress(OSError):
            if self.path.is_file():
                with self.path.open("rb") as file:
                    return file.read(most)
        return b""

    def write(self, data: str | bytes | Parts) -> None:
        """Write the data. The file keeps its old content on failure. Raises TschedError (E0903, E0904, E0932)."""
        data = data.encode() if isinstance(data, str) else data
        self._write([data] if isinstance(data, bytes) else data)

    def _write(self, data: Parts | None) -> None:
        path = self.path
        with explained(path):
            if path.is_dir() and (self.typed or not path.is_symlink()):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not self.typed:
                if kind := _obstacle(path):
                    raise TschedError(IN_THE_WAY(None, path=path, kind=kind))
                replace_file(path, data, self.executable)
            elif path.exists() and not path.is_file():
                _write_into(path, data)
            else:
                replace_file(Path(os.path.realpath(path)), data, self.executable)


@contextlib.contextmanager
def explained(path: Path) -> Generator[None]:
    """Errors of the file system become diagnostics (E0903, E0904)."""
    try:
        yield
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise TschedError(NO_ROOM(None, path=path)) from e
        raise TschedError(UNWRITABLE(None, path=path, reason=reason(e))) from e


def reason(e: OSError) -> str:
    return (e.strerror or str(e)).lower()


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of the regular file at the path, which is made if it is missing and `flags` have O_CREAT.

    Raises OSError for a link, and for what is no regular file; neither is opened, nor waited for.
    """
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file")
    return file


def append_line(path: Path, line: bytes) -> None:
    """The line is the last one of the file, which is made if it is missing, with its folder; one that was cut off is ended.

    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        size = os.fstat(file).st_size
        whole = not size or os.pread(file, 1, size - 1) == b"\n"
        os.write(file, (b"" if whole else b"\n") + line + b"\n")
    finally:
        os.close(file)


def lines_of(path: Path) -> list[bytes]:
    """The lines of a regular file; none if it is missing. Raises OSError."""
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            return file.read().split(b"\n")
    except FileNotFoundError:
        return []


def replace_file(path: Path, data: Parts | None, executable: bool = False) -> None:
    """Write the data to a file beside the path, which then takes its name in one step; without data only try the first.

    What is at the path is not followed. Raises OSError.
    """
    _sweep(path)
    fd, temporary = _beside(path)
    try:
        with os.fdopen(fd, "wb") as out:
            if data is not None:
                out.writelines(data)
                out.flush()
                os.fsync(out.fileno())
                mode = _mode(path)
                # Who may read a program may run it.
                os.fchmod(out.fileno(), mode | (mode & 0o444) >> 2 if executable else mode)
                os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def _obstacle(path: Path) -> str:
    """What is at the path, if it is there and is neither a regular file nor a folder; else empty."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return ""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")


def _write_into(path: Path, data: Parts | None) -> None:
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
        out.writelines(data)


def _beside(path: Path) -> tuple[int, str]:
    """A new file beside another, with a lock that the system releases when the process ends."""
    import tempfile  # slow to load, and a check writes nothing

    while True:
        # The name is random, and the file is made with O_EXCL and O_NOFOLLOW.
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        with contextlib.suppress(
            OSError
        ):  # without locks on this file system, no process removes the file as abandoned
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, temporary
        os.close(fd)  # another process removed it as abandoned before it was locked


def _sweep(path: Path) -> None:
    """Remove the files of this user's processes that were killed while they wrote; nothing else is opened or removed."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.tmp")  # as `tempfile.mkstemp` names them
    try:
        names = os.listdir(path.parent)
    except PermissionError:
        return  # one may write there, and not look
    for left in filter(ours.fullmatch, names):
        with contextlib.suppress(OSError):
            file = open_regular(path.parent / left, os.O_RDONLY)
            try:
                if os.fstat(file).st_uid == os.geteuid():
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(path.parent / left)
            finally:
                os.close(file)


def _mode(path: Path) -> int:
    """The permissions for the new file: those of the regular file that it replaces, or those of a plain `open`."""
    with contextlib.suppress(OSError):
        found = os.lstat(path).st_mode
        if stat.S_ISREG(found):
            return found & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
