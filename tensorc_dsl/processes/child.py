"""The child's side of the protocol: it reads requests and answers them until the parent is gone."""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable
from typing import TypeVar

import msgspec

from tensorc_dsl.processes import messages
from tensorc_dsl.processes.messages import HEAD, Bug, Exhausted, Ready

GRACE = 5.0
"""Seconds that a child lives beyond what a request may take: the parent ends it earlier, unless it is stopped."""

Question = TypeVar("Question")


def serve(
    requests: msgspec.msgpack.Decoder[Question],
    answer: Callable[[Question], msgspec.Struct],
    crashes: tuple[type[Exception], ...] = (),
) -> None:
    """Answer the parent's requests, read by `requests`, with `answer` until its pipe closes; then end the process.

    An exception from `answer` is reported as a bug and ends the process, whose state may be corrupt. Too little memory is no
    bug, and one of `crashes` ends the process as a crash would. A request that takes far longer than it may ends the process.
    """
    # The pipes move away from 0 and 1, so that nothing that prints can spoil a frame.
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    threading.Thread(target=_die_with_pipe, args=(source,), daemon=True).start()
    signal.setitimer(signal.ITIMER_REAL, 0.0)  # it has started in time
    _write(sink, Ready())
    while (frame := _read(source)) is not None:
        seconds, body = frame
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
        try:
            reply = answer(requests.decode(body))
        except crashes as e:
            # The parent takes the end of the process for a crash of the candidate, and this for its reason.
            os.write(2, f"{e}\n".encode())
            os._exit(1)
        except Exception as e:
            exhausted = isinstance(e, MemoryError) or (isinstance(e, OSError) and e.errno == errno.ENOMEM)
            _write(sink, Exhausted() if exhausted else Bug(traceback.format_exc()))
            os._exit(1)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        _write(sink, reply)
    os._exit(0)


def _die_with_pipe(source: int) -> None:
    """End the process when the parent has closed its end of the pipe, also where the system does not tell of its death."""
    poll = select.poll()
    poll.register(source, 0)
    poll.poll()  # it requests no events, so it is notified of a hang-up only
    os._exit(0)


def _read(fd: int) -> tuple[float, bytes] | None:
    """The next request's seconds and body; None when the parent has closed its end."""
    head = _exactly(fd, HEAD.size)
    if head is None:
        return None
    length, seconds = HEAD.unpack(head)
    body = _exactly(fd, length)
    return None if body is None else (seconds, body)


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
