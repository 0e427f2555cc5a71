"""Locks that processes of one user share: while one process times a kernel, no other process times or builds.

There are two `flock` locks on files in the user's runtime folder; the system releases them when their process ends. A process
takes the lock `gate`, then the lock `machine`, and releases the gate: so a process that has just had its turn queues behind
those that wait, and none starves. Builders share the machine with each other, but not with a timed kernel. No process waits
for anything else while it holds the machine. If a turn does not end because its process was stopped, the others continue
after `PATIENCE` seconds and say so.
"""

from __future__ import annotations

import fcntl
import os
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from platformdirs import user_runtime_path

PATIENCE = 60.0
"""Seconds that a turn is waited for; building a candidate or timing one takes at most a third of that."""

NOTABLE = 0.5
"""Seconds from which on a wait is reported."""

_POLL = 0.005


class Use(Enum):
    """The uses of the machine that a turn is for."""

    TIMING = fcntl.LOCK_EX
    BUILDING = fcntl.LOCK_SH


class Turns:
    """The turns of one search. `told` is called once for a long wait (False), and once for a turn that did not end (True)."""

    def __init__(self, told: Callable[[bool], None] = lambda _: None, folder: Path | None = None) -> None:
        self._told = told
        self._folder = folder
        self._said: set[bool] = set()

    @contextmanager
    def use(self, use: Use) -> Generator[None]:
        """A context that holds the machine for that use."""
        gate = machine = -1
        try:
            gate, machine = self._open("gate"), self._open("machine")
            until = time.monotonic() + PATIENCE
            if gate >= 0 and machine >= 0:
                if not (self._taken(gate, fcntl.LOCK_EX, until) and self._taken(machine, use.value, until)):
                    self._tell(True)
                fcntl.flock(gate, fcntl.LOCK_UN)
            yield
        finally:
            for file in (gate, machine):
                if file >= 0:
                    os.close(file)

    def _open(self, name: str) -> int:
        """The file, which other users cannot open; -1 where the system gives no folder for such things."""
        try:
            folder = self._folder or _usual_folder()
            return os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return -1

    def _taken(self, file: int, lock: int, until: float) -> bool:
        """Whether the lock was taken in time."""
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(file, lock | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                now = time.monotonic()
                if now >= until:
                    return False
                if now - began > NOTABLE:
                    self._tell(False)
                time.sleep(_POLL)

    def _tell(self, given_up: bool) -> None:
        if given_up not in self._said:
            self._said.add(given_up)
            self._told(given_up)


def _usual_folder() -> Path:
    """The user's runtime folder; where the system has none, one below that for temporary files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the latter is told, and it does as well
        return user_runtime_path("tensorc-dsl", appauthor=False, ensure_exists=True)
