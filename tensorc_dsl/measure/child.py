"""The child's side: read a request, answer it, until the parent is gone."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

import msgspec

from tensorc_dsl.measure import messages
from tensorc_dsl.measure.messages import Bug, Ready

_PR_SET_PDEATHSIG = 1

Question = TypeVar("Question")


def serve(requests: msgspec.msgpack.Decoder[Question], answer: Callable[[Question], msgspec.Struct]) -> None:
    """Answer the parent's requests, read by `requests`, with `answer` until its pipe closes; then end the process.

    An exception out of `answer` is reported as a bug and ends the process too: its state is not to be trusted.
    """
    _die_with(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The pipes move away from 0 and 1, so that nothing that prints can spoil a frame.
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    _write(sink, Ready())
    while (frame := _read(source)) is not None:
        try:
            reply = answer(requests.decode(frame))
        except Exception:
            _write(sink, Bug(traceback.format_exc()))
            os._exit(1)
        _write(sink, reply)
    os._exit(0)


def _die_with(parent: int) -> None:
    """Have the system kill this process when its parent dies, even while native code runs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _read(fd: int) -> bytes | None:
    """The next frame's body; None when the parent has closed its end."""
    head = _exactly(fd, 8)
    return None if head is None else _exactly(fd, int.from_bytes(head, "little"))


def _exactly(fd: int, count: int) -> bytes | None:
    out = bytearray()
    while len(out) < count:
        data = os.read(fd, min(count - len(out), 1 << 20))
        if not data:
            return None
        out += data
    return bytes(out)


def _write(fd: int, message: msgspec.Struct) -> None:
    data = memoryview(messages.encode(message))
    while data:
        data = data[os.write(fd, data) :]
