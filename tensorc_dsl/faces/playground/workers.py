"""Has the page's questions answered in processes that can be killed, so that no text can hang or end the server."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from tensorc_dsl.faces.playground.messages import Answer, Open, Opened, Question, Refused, Show, answers
from tensorc_dsl.processes.memory import available
from tensorc_dsl.processes.worker import Worker, WorkerBug, WorkerCrash, WorkerTimeout

CHECK_SECONDS, SHOW_SECONDS = 10.0, 30.0
"""How long an answer may take: a large file of the library takes a tenth of a second."""

BYTES = 3 << 30
"""The memory of a process; a tenth of it is usual."""

WAITING = 8
"""The most requests that wait for a process. A page sends one after another, so more come from many pages."""


class Busy(Exception):
    """Too many questions wait."""


class Desks:
    """Two processes, one for what a text says and one for what it becomes, so that a long answer of the second does
    not hold up the first. They start at once, and with the next question after one was killed."""

    def __init__(
        self,
        path: str,
        include: Sequence[str],
        records: str | None,
        check: float = CHECK_SECONDS,
        show: float = SHOW_SECONDS,
    ) -> None:
        opened = Open(path, tuple(include), records)
        self._check = _Desk(opened, check, "check")
        self._show = _Desk(opened, show, "show")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for desk in (self._check, self._show):
            desk.close()

    def ask(self, question: Question) -> Answer:
        """The answer; Refused if it takes too long. Raises Busy, and WorkerBug for a bug."""
        return (self._show if isinstance(question, Show) else self._check).ask(question)


class _Desk:
    """One process. The system kills it with the thread that started it, so one thread does, as long as the server runs."""

    def __init__(self, opened: Open, seconds: float, command: str) -> None:
        self._opened = opened
        self._seconds = seconds
        self._command = command
        self._worker: Worker[Answer] = Worker(
            "tensorc_dsl.faces.playground.child", answers, memory=min(BYTES, available())
        )
        self._thread = ThreadPoolExecutor(1, "playground")
        self._waiting = 0
        self._generation = 0
        self._thread.submit(self._worker.start)

    def ask(self, question: Question) -> Answer:
        if self._waiting >= WAITING:
            raise Busy
        self._waiting += 1
        try:
            return self._thread.submit(self._answer, question).result()
        finally:
            self._waiting -= 1

    def _answer(self, question: Question) -> Answer:
        try:
            self._worker.ready()
            if self._worker.generation != self._generation:
                self._generation = self._worker.generation
                if not isinstance(self._worker.ask(self._opened, self._seconds), Opened):
                    raise WorkerBug("a process of the playground does not open its text")
            return self._worker.ask(question, self._seconds)
        except WorkerTimeout:
            return self._refused(f"the answer takes longer than {self._seconds:g} s")
        except WorkerCrash as e:  # it may have taken too much memory, which the message says then
            return self._refused(f"the process that works on the answer has ended: {e}")

    def _refused(self, why: str) -> Refused:
        return Refused(f"{why}\nmake the task smaller, or ask `tensorc-dsl {self._command}`, which has no such limit")

    def close(self) -> None:
        """End the process, and the question that it works on."""
        self._worker.kill()
        self._thread.shutdown(wait=False, cancel_futures=True)
