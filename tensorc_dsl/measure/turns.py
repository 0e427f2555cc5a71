"""Whose turn it is on this machine: while one process times a kernel, no other of the same user times or builds.

Two locks of the system (`flock`) on files in the user's runtime folder, which go with the process that holds them, however it
ends. Who wants the machine first takes the gate, then the machine, and lets go of the gate: so a process that has just had
its turn comes behind those that wait, and nobody waits for ever. Builders share the machine with each other and with no
kernel that is timed; nobody holds the machine while he waits for anything else. Where a turn does not end, since whoever has
it was stopped, the others go on after `PATIENCE` and say so.
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
"""A wait that is longer is told."""

_POLL = 0.005


class Use(Enum):
    """What the machine is wanted for."""

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
        """Inside, the machine is ours for that use."""
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
        """Whether the lock is ours; False where it is not free in time."""
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
