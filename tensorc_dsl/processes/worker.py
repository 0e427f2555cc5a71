"""The parent's side of a child process, which may crash, hang or send invalid data at any time.

A worker is started when it is first needed, and again after the last one has ended. It runs in a process group of its
own, which is killed as a whole on a time-out and when the worker is closed; a terminal's Ctrl-C does not reach it.
If the parent dies (on Linux: or the thread that started it ends), the worker is killed at once; if the parent hangs, the
worker ends by itself.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Generic, TypeVar, cast

import msgspec

from tensorc_dsl.processes import messages
from tensorc_dsl.processes.messages import Bug, Exhausted
from tensorc_dsl.processes.start import Limits, Process, end, start_module

START_SECONDS = 60.0
"""A child that has not reported for duty after this long will not; starting one takes well under a second."""

_STDERR_TAIL = 2000

_NO_MEMORY = re.compile(
    r"memory allocation (still )?failed|cannot allocate memory|out of memory|bad_alloc", re.IGNORECASE
)
"""What OpenBLAS, libc, LLVM and libstdc++ say before they end a process that gets no more memory."""


def library_threads(count: int) -> dict[str, str]:
    """The environment variables that set the number of threads of a child's libraries; these read them when they load."""
    return {name: str(count) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


LOADED = library_threads(1)
"""The environment of the fork server for our own modules. A library of several threads would start them when it is loaded."""

Answer = TypeVar("Answer")


class WorkerCrash(Exception):
    """The child died or sent invalid data; the message states which."""


class WorkerExhausted(WorkerCrash):
    """The child needs more memory than it may have, and is gone."""


class WorkerTimeout(Exception):
    """The child did not answer in time and was killed."""


class WorkerBug(Exception):
    """An unexpected exception in the child: a mistake in the compiler or here, not in the candidate."""


class Worker(Generic[Answer]):
    """One child process at a time, running `python -m <module>`; it answers each request with one reply.

    `replies` decodes its replies, `Ready`, `Exhausted` and `Bug` included. `memory` is its limit in bytes. Each child is a
    new interpreter; with `loaded` one of the fork server, whose libraries were loaded in this environment.
    """

    def __init__(
        self,
        module: str,
        replies: msgspec.msgpack.Decoder[Answer],
        environment: Mapping[str, str] | None = None,
        memory: int | None = None,
        loaded: Mapping[str, str] | None = None,
    ) -> None:
        self._module = module
        self._replies = replies
        self._environment = dict(environment or {})
        self._memory = memory
        self._loaded = loaded
        self._process: Process | None = None
        self._stderr: BinaryIO | None = None
        self._inbox = bytearray()
        self._greeted = False
        self.generation = 0
        """The number of processes so far. A caller that initialises each new process compares it."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def greeted(self) -> bool:
        """Whether a child runs that has reported for duty."""
        return self._process is not None and self._greeted

    def start(self) -> None:
        """Start a child unless one runs. The first reply waits for a new one."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()
        self._stderr = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 (lives as long as the process)
        limits = Limits(START_SECONDS, self._memory)
        self._process = start_module(
            self._module, limits=limits, stderr=self._stderr, environment=self._environment, loaded=self._loaded
        )
        self._inbox.clear()
        self._greeted = False
        self.generation += 1
        os.set_blocking(self._pipe_in(), False)
        os.set_blocking(self._pipe_out(), False)

    def _pipe_in(self) -> int:
        assert self._process is not None and self._process.stdin is not None
        return self._process.stdin.fileno()

    def _pipe_out(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    def ready(self) -> None:
        """Start a child unless one runs, and wait until a new one is ready.

        Raises WorkerBug if it does not start: then the installation or this package is broken.
        """
        self.start()
        if self._greeted:
            return
        try:
            reply = self.receive(START_SECONDS)
        except (WorkerCrash, WorkerTimeout) as e:
            raise WorkerBug(f"`{self._module}` does not start: {e}") from e
        if not isinstance(reply, messages.Ready):
            raise WorkerBug(f"`{self._module}` starts with {type(reply).__name__}")
        self._greeted = True

    def ask(self, request: msgspec.Struct, seconds: float) -> Answer:
        """The child's reply. Raises WorkerCrash, WorkerTimeout (the child is gone after either) or WorkerBug."""
        self.ready()
        self.send(request, seconds)
        return self.receive(seconds)

    def send(self, request: msgspec.Struct, seconds: float) -> None:
        """Write the request to the pipe."""
        data = memoryview(messages.encode_request(request, seconds))
        deadline = time.monotonic() + seconds
        while data:
            self._wait(self._pipe_in(), selectors.EVENT_WRITE, deadline)
            try:
                data = data[os.write(self._pipe_in(), data) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._crash() from None

    def receive(self, seconds: float) -> Answer:
        """The next reply, within that many seconds."""
        deadline = time.monotonic() + seconds
        while (reply := self.poll()) is None:
            self._wait(self._pipe_out(), selectors.EVENT_READ, deadline)
        return reply

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(fd, event)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                self.kill()
                raise WorkerTimeout

    def poll(self) -> Answer | None:
        """The next reply if all of it is there; never waits."""
        ended = self._fill()
        body = self._take_frame()
        if body is None:
            if ended:
                raise self._crash()
            return None
        try:
            reply = self._replies.decode(body)
        except msgspec.DecodeError:
            raise self._crash("it sent nonsense") from None
        if isinstance(reply, Bug):
            self.kill()
            raise WorkerBug(reply.traceback)
        if isinstance(reply, Exhausted):
            self.kill()
            raise self._exhausted()
        return reply

    def _exhausted(self) -> WorkerExhausted:
        most = "it may have" if self._memory is None else f"the {self._memory / 1e9:.3g} GB that it may have"
        return WorkerExhausted(f"it takes more memory than {most}")

    def _fill(self) -> bool:
        """Move the data in the pipe to the inbox. Returns whether the pipe has ended."""
        try:
            while data := os.read(self._pipe_out(), 1 << 20):
                self._inbox += data
        except BlockingIOError:
            return False
        return True

    def _take_frame(self) -> bytes | None:
        if len(self._inbox) < 8:
            return None
        length = int.from_bytes(self._inbox[:8], "little")
        if length > messages.MAX_FRAME:
            raise self._crash("it sent nonsense")
        if len(self._inbox) < 8 + length:
            return None
        body = bytes(self._inbox[8 : 8 + length])
        del self._inbox[: 8 + length]
        return body

    def _crash(self, how: str = "") -> WorkerCrash:
        """The exception to raise; the child is gone afterwards."""
        process, stderr = self._process, self._stderr
        assert process is not None and stderr is not None
        if not how:
            # Its pipe is closed, so it is on its way out; what it died of is not known a moment earlier.
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                how = "it closed its pipe and went on running"
        code = process.poll()
        if code == -signal.SIGALRM:
            self.kill()
            raise WorkerTimeout  # the parent was stopped meanwhile, and had no time to notice
        if not how and code is not None:
            how = f"killed by {_signal_name(-code)}" if code < 0 else f"exit status {code}"
        stderr.seek(0, os.SEEK_END)
        stderr.seek(max(0, stderr.tell() - _STDERR_TAIL))
        said = stderr.read().decode(errors="replace").strip()
        self.kill()
        if self._memory is not None and _NO_MEMORY.search(said):
            return self._exhausted()
        return WorkerCrash(f"{how}\n{said}" if said else how)

    def kill(self) -> None:
        """Kill the child and all processes of its group."""
        process, self._process = self._process, None
        if process is None:
            return
        end(process)
        for stream in (process.stdin, process.stdout, self._stderr):
            if stream is not None:
                stream.close()
        self._stderr = None

    def close(self) -> None:
        """As `kill`, for `contextlib.closing`."""
        self.kill()

    def fileno(self) -> int:
        """The file descriptor to select on for the next reply."""
        return self._pipe_out()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def wait_any(workers: Sequence[Worker[Answer]], seconds: float) -> list[Worker[Answer]]:
    """The workers that have a reply or have ended, after at most that many seconds."""
    with selectors.DefaultSelector() as selector:
        for w in workers:
            selector.register(w.fileno(), selectors.EVENT_READ, w)
        return [cast("Worker[Answer]", key.data) for key, _ in selector.select(max(0.0, seconds))]
