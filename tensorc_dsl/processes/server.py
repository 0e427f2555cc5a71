"""The fork server: a process of one thread that loads modules once, and forks a child for each request (Linux).

A child is ready in milliseconds, where a new interpreter loads NumPy, isl and LLVM for half a second. `forked` has the
parent's side. The server ends with its parent, and the system kills its children with it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from types import FrameType
from typing import TypedDict

from tensorc_dsl.processes import boot

NUMBER = struct.Struct("=q")
"""What a child's socket carries to the parent: the child's process number, and when it has ended its status, negative for a
signal. A byte from the parent requests the release of the number; the end of the stream confirms it."""

FILES = 6
"""The descriptors of a request: its text, the working folder, the three standard streams, the child's socket."""

_HOME = boot.__name__.partition(".")[0]


class Request(TypedDict):
    """The orders for a child, and its whole environment; JSON in a file."""

    orders: boot.Orders
    environment: dict[str, str]


class _Server:
    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._awake, self._wake = socket.socketpair()  # a byte for each end of a child
        self._children: dict[int, socket.socket] = {}
        self._ended: set[int] = set()
        self._loaded: set[str] = set()
        self._poll = select.poll()

    def serve(self) -> boot.Orders | None:
        """In a child its orders, after it was separated from the server; None in the server, once the parent is gone."""
        for end in (self._awake, self._wake):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, _heard)
        signal.set_wakeup_fd(self._wake.fileno())
        for waited in (self._requests, self._awake):
            self._poll.register(waited, select.POLLIN)
        while True:
            ready = {fd for fd, _ in self._poll.poll()}
            if self._awake.fileno() in ready:
                self._awake.recv(4096)
                self._tell()
            for pid, answers in [*self._children.items()]:
                if answers.fileno() in ready:
                    self._release(pid)
            if self._requests.fileno() in ready:
                _, files, _, _ = socket.recv_fds(self._requests, 1, FILES)
                if not files:
                    return None
                if (orders := self._start(files)) is not None:
                    return orders

    def _start(self, files: list[int]) -> boot.Orders | None:
        asked, folder, *streams, answers = files
        with open(asked, encoding="utf-8") as file:
            request: Request = json.load(file)
        orders = request["orders"]
        orders["parent"] = os.getpid()
        os.fchdir(folder)
        self._load(orders["program"][0].partition(":")[0])
        pid: int | None = None
        # A fork would copy the locks of other threads, but not who opens them.
        with suppress(OSError):  # no process more is allowed: the parent hears of one that has ended
            pid = os.fork() if _threads() == 1 else _spawn(request, streams)
        if pid == 0:
            # An object that is closed later would close what has its number by then.
            for held in (self._requests, self._awake, self._wake, *self._children.values()):
                held.close()
            _become(request, streams)
            return orders
        for fd in (folder, *streams):
            os.close(fd)
        if pid is None:
            os.close(answers)
            return None
        self._children[pid] = control = socket.socket(fileno=answers)
        self._poll.register(control, select.POLLIN)
        _send(control, pid)
        return None

    def _load(self, module: str) -> None:
        """Load a module of this package that the child will run, and what its `preload` loads. The child tells the errors."""
        if module in self._loaded or module.partition(".")[0] != _HOME:
            return
        self._loaded.add(module)
        try:
            loaded = importlib.import_module(module)
            getattr(loaded, "preload", lambda: None)()
        except Exception:
            return
        gc.collect()
        gc.freeze()  # a search for garbage in a child would copy the pages of all that is shared

    def _tell(self) -> None:
        """Tell the parent of children that have ended; their numbers stay taken until it releases them."""
        for pid in self._children.keys() - self._ended:
            if (end := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                self._ended.add(pid)
                _send(self._children[pid], end.si_status if end.si_code == os.CLD_EXITED else -end.si_status)

    def _release(self, pid: int) -> None:
        """The parent no longer needs a child: it has ended, or its result is not used."""
        if pid not in self._ended:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._ended.discard(pid)
        answers = self._children.pop(pid)
        self._poll.unregister(answers)
        answers.close()


def _send(answers: socket.socket, number: int) -> None:
    # If the parent looks no more, its hang-up releases the child.
    with suppress(BrokenPipeError, ConnectionResetError):
        answers.sendall(NUMBER.pack(number))


def _heard(number: int, frame: FrameType | None) -> None:
    """Let the signal interrupt the wait, and not this process."""


def _threads() -> int:
    """The number of threads of this process; 0 if `/proc` does not tell."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def _become(request: Request, streams: list[int]) -> None:
    """Separate a forked child from the server: session, signals, files and environment are as in a new process."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    boot.confine(request["orders"])
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    # What the server holds, the ends of other children's pipes among it, must not live as long as this child.
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    # Its command line is the server's.
    program = request["orders"]["program"][0]
    with suppress(OSError), open("/proc/self/comm", "w", encoding="utf-8") as name:
        name.write(program.rpartition(".")[2])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.modules.pop(program, None)  # a module runs as `__main__`
    importlib.invalidate_caches()


def _spawn(request: Request, streams: list[int]) -> int:
    return os.posix_spawn(
        sys.executable, [sys.executable, "-I", boot.__file__, json.dumps(request["orders"])], request["environment"],
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(streams)], setsid=True,
        setsigdef=[signal.SIGCHLD],
    )  # fmt: skip


def main() -> None:
    """Serve the socket whose number is the argument; in a child, run what it is for."""
    orders = _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if orders is not None:
        boot.execute(orders)


if __name__ == "__main__":
    main()
