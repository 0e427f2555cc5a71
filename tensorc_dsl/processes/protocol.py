"""One protocol for child processes, of typed requests and replies: what the two sides agree on, the client of the parent, and
the loop of the child.

A reply is a frame of MessagePack: its length (8 bytes, little-endian) and its bytes. In a request, between the two, stand the
seconds that it may take, as a double. Nothing that a child says is unpickled here, so one that a kernel has run wild in can
at worst send a wrong answer or nonsense, and nonsense is taken for a crash.

A worker is started when it is first needed, and again after the last one has ended. It runs in a process group of its
own, which is killed as a whole on a time-out and when the worker is closed; a terminal's Ctrl-C does not reach it.
If the parent dies (on Linux: or the thread that started it ends), the worker is killed at once; if the parent hangs, the
worker ends by itself.
"""

from __future__ import annotations

import errno
import os
import re
import select
import selectors
import signal
import struct
import subprocess
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Generic, NoReturn, TypeVar, cast

import msgspec

from tensorc_dsl.processes.start import Limits, Process, end, start_module

MAX_FRAME = 1 << 30

HEAD = struct.Struct("<Qd")
"""What precedes a request: its length and its seconds."""

LENGTH = struct.Struct("<Q")
"""What precedes a reply."""

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Ready(msgspec.Struct, tag=True, frozen=True):
    """From any child: it has started."""


class Exhausted(msgspec.Struct, tag=True, frozen=True):
    """From any child, which ends: the request takes more memory than it may have."""


class Bug(msgspec.Struct, tag=True, frozen=True):
    """From any child: a bug, an exception that no candidate should be able to cause."""

    traceback: str


@dataclass(frozen=True, slots=True)
class Purpose(Generic[Request, Answer]):
    """What child processes are for: `program` is their function, `module:name`, which serves the purpose. `requests` and
    `answers` are the types of its messages, a structure with a tag or a union of such.
    """

    program: str
    requests: Any
    answers: Any

    def serve(self, answer: Callable[[Request], Answer], crashes: tuple[type[Exception], ...] = ()) -> NoReturn:
        """Answer the parent's requests with `answer` until its pipe closes; then end the process.

        An exception from `answer` is reported as a bug and ends the process, whose state may be corrupt. Too little memory is
        no bug, and one of `crashes` ends the process as a crash would. A request that takes far longer than it may ends the
        process.
        """
        decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(self.requests)
        source, sink = _apart()
        signal.setitimer(signal.ITIMER_REAL, 0.0)  # it has started in time
        _write(sink, Ready())
        while (frame := _read(source)) is not None:
            seconds, body = frame
            signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
            try:
                reply = answer(decoder.decode(body))
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


# The parent's side, whose child may crash, hang or send invalid data at any time.


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


class WorkerCrash(Exception):
    """The child died or sent invalid data; the message states which."""


class WorkerExhausted(WorkerCrash):
    """The child needs more memory than it may have, and is gone."""


class WorkerTimeout(Exception):
    """The child did not answer in time and was killed."""


class WorkerBug(Exception):
    """An unexpected exception in the child: a mistake in the compiler or here, not in the candidate."""


class Worker(Generic[Request, Answer]):
    """One child process at a time for a purpose; it answers each request with one reply.

    `memory` is its limit in bytes. Each child is a new interpreter; with `loaded` one of the fork server, whose libraries
    were loaded in this environment.
    """

    def __init__(
        self,
        purpose: Purpose[Request, Answer],
        environment: Mapping[str, str] | None = None,
        memory: int | None = None,
        loaded: Mapping[str, str] | None = None,
    ) -> None:
        self._program = purpose.program
        self._replies: msgspec.msgpack.Decoder[Answer | Ready | Exhausted | Bug] = msgspec.msgpack.Decoder(
            purpose.answers | Ready | Exhausted | Bug
        )
        self._environment = dict(environment or {})
        self._memory = memory
        self._loaded = loaded
        self._process: Process | None = None
        self._stderr: BinaryIO | None = None
        self._inbox = bytearray()
        self._greeted = False
        self._prepared = 0
        self.generation = 0
        """The number of processes so far."""

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
            self._program, limits=limits, stderr=self._stderr, environment=self._environment, loaded=self._loaded
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
        deadline = time.monotonic() + START_SECONDS
        try:
            while not self._greeted:
                self._wait(self._pipe_out(), selectors.EVENT_READ, deadline)
                self._take()
        except (WorkerCrash, WorkerTimeout) as e:
            raise WorkerBug(f"`{self._program}` does not start: {e}") from e

    @property
    def prepared(self) -> bool:
        """Whether this child has had the request of `prepare`."""
        return self._prepared == self.generation

    def prepare(self, request: Request, seconds: float) -> Answer:
        """The reply to the first request to a new child. Raises as `ask`."""
        answer = self.ask(request, seconds)
        self._prepared = self.generation
        return answer

    def ask(self, request: Request, seconds: float) -> Answer:
        """The child's reply. Raises WorkerCrash, WorkerTimeout or WorkerBug. The child is gone after any exception, since
        a late answer must not be taken for that to the next request.
        """
        try:
            self.ready()
            self.send(request, seconds)
            return self.receive(seconds)
        except BaseException:
            self.kill()
            raise

    def send(self, request: Request, seconds: float) -> None:
        """Write the request to the pipe of a child that is ready."""
        body = msgspec.msgpack.encode(request)
        data = memoryview(HEAD.pack(len(body), seconds) + body)
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
        """The next reply if all of it is there, once the child has started; never waits."""
        while isinstance(reply := self._take(), Ready):
            pass
        return reply

    def _take(self) -> Answer | Ready | None:
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
        match reply:
            case Ready():
                self._greeted = True
            case Bug(traceback=told):
                self.kill()
                raise WorkerBug(told)
            case Exhausted():
                self.kill()
                raise self._exhausted()
            case _:
                pass
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
        if len(self._inbox) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._inbox)
        if length > MAX_FRAME:
            raise self._crash("it sent nonsense")
        end = LENGTH.size + length
        if len(self._inbox) < end:
            return None
        body = bytes(self._inbox[LENGTH.size : end])
        del self._inbox[:end]
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


def wait_any(workers: Sequence[Worker[Request, Answer]], seconds: float) -> list[Worker[Request, Answer]]:
    """The workers that have a reply or have ended, after at most that many seconds."""
    with selectors.DefaultSelector() as selector:
        for w in workers:
            selector.register(w.fileno(), selectors.EVENT_READ, w)
        return [cast("Worker[Request, Answer]", key.data) for key, _ in selector.select(max(0.0, seconds))]


# The child's side.


GRACE = 5.0
"""Seconds that a child lives beyond what a request may take: the parent ends it earlier, unless it is stopped."""


def _apart() -> tuple[int, int]:
    """The descriptors of requests and of replies, moved away from 0 and 1, so that nothing that prints can spoil a frame. The
    process ends when the parent has closed its end."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    threading.Thread(target=_die_with_pipe, args=(source,), daemon=True).start()
    return source, sink


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


def _write(fd: int, message: object) -> None:
    body = msgspec.msgpack.encode(message)
    data = memoryview(LENGTH.pack(len(body)) + body)
    while data:
        data = data[os.write(fd, data) :]
