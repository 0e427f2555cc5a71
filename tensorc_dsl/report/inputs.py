"""Reads the bytes of files, pipes and standard input, with a limit on their size and on waiting."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys

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
