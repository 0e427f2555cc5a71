"""Handles the signals that end a command: the first one ends it in order, a Ctrl-C after that at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

PAUSE = 0.1
"""Seconds in which further signals count as one, since programs that forward a signal, such as `timeout`, send it twice."""


@dataclass(slots=True)
class Ending:
    """Whether a command was `told` to end, and by which signal. While `held`, signals are only recorded."""

    number: int = signal.SIGINT
    held: bool = False
    told: bool = False

    @property
    def status(self) -> int:
        """The exit status that shells use for the signal: 130, 143, 129."""
        return 128 + self.number


@contextmanager
def in_order(ending: Ending) -> Generator[None]:
    """A context in which the first of the signals is a KeyboardInterrupt; a Ctrl-C after it ends the process at once.

    Signals that this process was started to ignore stay ignored, as with `nohup`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def leave(number: int, _: FrameType | None) -> None:
        for n in before:
            signal.signal(n, signal.SIG_IGN)
        ending.number, ending.told = number, True
        if number == signal.SIGHUP:
            _silence(terminals)
        time.sleep(PAUSE)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not ending.held:
            raise KeyboardInterrupt

    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {n: handler for n in ENDINGS if (handler := signal.getsignal(n)) in usual}
    try:
        for n in before:
            signal.signal(n, leave)
        yield
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)


def _silence(terminals: list[int]) -> None:
    """Drop output to a terminal that is gone, without an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in terminals:
        os.dup2(null, fd)
    os.close(null)


@contextmanager
def interruptible(ending: Ending) -> Generator[None]:
    """What is inside may be cut short by a signal, a KeyboardInterrupt; before and behind it the ending is held."""
    ending.held = False
    try:
        yield
    finally:
        ending.held = True


@contextmanager
def finishing(ending: Ending) -> Generator[None]:
    """A context that runs to its end, unless two signals arrive."""
    ending.held = True
    try:
        yield
    finally:
        ending.held = False
