"""The parent's side of child processes: starts them, by a fork server where there is one, sets their limits, and ends
them.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from tensorc_dsl.processes import boot
from tensorc_dsl.processes.server import NUMBER, Request

# The parent's side of the fork server: starts it, has it start children, and sees these as processes of its own.


_READ_AT_LOAD = re.compile(r"LD_|GLIBC_|MALLOC_|LC_|LANG|OMP|GOMP|KMP|OPENBLAS|GOTO|MKL|BLIS|NPY|NUMPY|PYTHON|LLVM")
"""Variables that the loader, Python or a library reads once, when it is loaded. A server has those that it started with."""

_KINDS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


class Forked:
    """A child of the server; as `subprocess.Popen`, but that its number is taken until `release`."""

    def __init__(self, stdin: int, stdout: int, answers: socket.socket) -> None:
        """Of our ends of its pipes, and of the socket for its status from the server."""
        self.stdin = os.fdopen(stdin, "wb", 0)
        self.stdout = os.fdopen(stdout, "rb", 0)
        self.returncode: int | None = None
        self._answers = answers
        self._pid: int | None = None
        self.released = False

    @property
    def pid(self) -> int:
        """Its process number, once the server has forked it; -1 if the server ended before."""
        if self._pid is None:
            number = self._number()
            self._pid = -1 if number is None else number
        return self._pid

    def poll(self) -> int | None:
        """Its status if it has ended."""
        if self.returncode is None and self._readable(0.0):
            self._finish()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its status, when it has ended. Raises TimeoutExpired."""
        if self.returncode is None:
            if not self._readable(timeout):
                raise subprocess.TimeoutExpired(str(self._pid), timeout or 0.0)
            self._finish()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None and self.pid > 0:
            os.kill(self.pid, signal.SIGKILL)

    def release(self) -> None:
        """Have the server forget it, which has ended; its number may be another process's from now on."""
        if not self.released:
            self.released = True
            with self._answers:
                try:
                    self._answers.sendall(b"\0")
                    self._answers.recv(1)
                except OSError:
                    pass  # the server has ended

    def _readable(self, timeout: float | None) -> bool:
        """Whether its status is known, or the server has ended."""
        if self._pid is None:
            if not self._ready(timeout):
                return False
            _ = self.pid
        return self._pid == -1 or self._ready(timeout)

    def _ready(self, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1e3))

    def _finish(self) -> None:
        status = None if self._pid == -1 else self._number()
        # A server that ends takes its children with it.
        self.returncode = -signal.SIGKILL if status is None else status

    def _number(self) -> int | None:
        data = b""
        while len(data) < NUMBER.size:
            try:
                more = self._answers.recv(NUMBER.size - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            data += more
        return NUMBER.unpack(data)[0]


class _Server:
    """One server, for children that inherit the same."""

    def __init__(self, orders: boot.Orders, environment: Mapping[str, str], inherited: tuple[object, ...]) -> None:
        self.inherited = inherited
        self._children: list[Forked] = []
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            orders["program"].append(str(theirs.fileno()))
            self._process = subprocess.Popen(
                [sys.executable, "-I", boot.__file__, json.dumps(orders)], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
                start_new_session=True,
            )  # fmt: skip

    @property
    def works(self) -> bool:
        return self._process.poll() is None

    @property
    def idle(self) -> bool:
        self._children = [c for c in self._children if not c.released]
        return not self._children

    def start(self, request: Request, stderr: int) -> Forked:
        """A child. OSError if the server has ended."""
        folder = given = taken = -1
        their_in = their_out = -1
        try:
            folder = os.open(os.curdir, os.O_PATH)
            os.fchdir(folder)  # the server cannot go where this process could not
            their_in, given = os.pipe()
            taken, their_out = os.pipe()
            ours, theirs = socket.socketpair()
            with theirs, tempfile.TemporaryFile() as asked:
                asked.write(json.dumps(request).encode())
                asked.seek(0)
                files = [asked.fileno(), folder, their_in, their_out, stderr, theirs.fileno()]
                try:
                    socket.send_fds(self._requests, [b"\0"], files)
                except BaseException:
                    ours.close()
                    raise
            child = Forked(given, taken, ours)
            given = taken = -1
            self._children.append(child)
            return child
        finally:
            for fd in (folder, their_in, their_out, given, taken):
                if fd >= 0:
                    os.close(fd)

    def close(self) -> None:
        """End it, with its children."""
        self._requests.close()
        self._process.kill()
        self._process.wait()


_servers: dict[int, _Server] = {}
"""The server of this process, by its number: one that a user's program forks has none yet."""


def fork_child(
    orders: boot.Orders,
    environment: Mapping[str, str],
    server: boot.Orders,
    loaded: Mapping[str, str],
    stderr: int,
) -> Forked | None:
    """A child with these orders and environment; None if no server can give one: the caller starts a new interpreter.

    The server has the orders `server` and the environment `loaded`. There is one, for children that inherit the same from
    this process; those of another kind get one when no child of the first lives. It dies with the thread that started it,
    as other children do, so only the main thread has one.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    inherited = _inherited(server, loaded)
    found = _servers.get(os.getpid())
    if found is not None and not (found.works and found.inherited == inherited):
        if found.works and not found.idle:
            return None
        found.close()
        found = None
    try:
        if found is None:
            _servers[os.getpid()] = found = _Server(server, loaded, inherited)
        return found.start({"orders": orders, "environment": dict(environment)}, stderr)
    except OSError:
        return None


def _inherited(server: boot.Orders, environment: Mapping[str, str]) -> tuple[object, ...]:
    """What a child has from this process, and cannot be given to a server's child later."""
    variables = {k: v for k, v in environment.items() if _READ_AT_LOAD.match(k)}
    return (
        server["paths"], server["packages"], variables, os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0),
        [resource.getrlimit(k) for k in _KINDS],
    )  # fmt: skip


def _close() -> None:
    if (found := _servers.pop(os.getpid(), None)) is not None:
        found.close()


atexit.register(_close)


# The parent's side of child processes: starts and ends them.


_HOME = __name__.partition(".")[0]

_SERVER = f"{_HOME}.processes.server"

Process = subprocess.Popen[bytes] | Forked
"""A child process, with pipes for its input and output."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a process: the seconds that it may live, and the bytes that it may fill."""

    seconds: float | None = None
    bytes: int | None = None


def start_module(
    module: str,
    *arguments: str,
    limits: Limits,
    stderr: IO[bytes] | int,
    environment: Mapping[str, str] | None = None,
    loaded: Mapping[str, str] | None = None,
) -> Process:
    """A process that runs a module or a function of one, `module:name`, as this one would import it, with pipes for its input
    and output.

    It leads a process group of its own, which a terminal's Ctrl-C does not reach, and dies with the thread that started it
    (on other systems than Linux with the process, if it reads its input). Nothing in the working folder is imported.
    It is a new interpreter; with `loaded` it may be a child of the fork server, whose libraries were loaded in this
    environment.
    """
    orders = _module_orders(module, *arguments, limits=limits)
    if loaded is not None and not isinstance(stderr, int):
        server = _module_orders(_SERVER, limits=Limits())
        served = fork_child(orders, _with(environment), server, _with(loaded), stderr.fileno())
        if served is not None:
            return served
    return _start(orders, subprocess.PIPE, stderr, environment)


def _module_orders(module: str, *arguments: str, limits: Limits) -> boot.Orders:
    packages = {name: _folder(name) for name in (_HOME, re.split("[.:]", module)[0])}
    found = {name: folder for name, folder in packages.items() if folder is not None}
    return _orders([module, *arguments], limits, paths(), found)


def run_module(module: str, *arguments: str, limits: Limits) -> subprocess.CompletedProcess[str]:
    """The output of a module, which gets no input; the status is -9 if it takes longer than the limit."""
    orders = _module_orders(module, *arguments, limits=limits)
    return _finish(_start(orders, subprocess.PIPE, subprocess.PIPE, None), limits)


def run_executable(program: list[str], limits: Limits) -> subprocess.CompletedProcess[str]:
    """The output of a program of the system, as `run_module`."""
    return _finish(_start(_orders(program, limits, None, {}), subprocess.DEVNULL, subprocess.PIPE, None), limits)


def run_with_input(program: list[str], data: bytes, limits: Limits) -> subprocess.CompletedProcess[bytes]:
    """The output of a program of the system that gets these bytes, as `run_module`."""
    process = _start(_orders(program, limits, None, {}), subprocess.PIPE, subprocess.PIPE, None)
    return _communicated(process, limits, data)


def start_executable(program: list[str], limits: Limits, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """A program of the system with pipes for its input and output, which ends with this process."""
    return _start(_orders(program, limits, None, {}), subprocess.PIPE, stderr, None)


def end(process: Process) -> None:
    """End the process and all processes in its group."""
    if process.pid > 0:
        try:
            # The child leads its group; its number is not reused before it is waited for.
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
    process.wait()
    if isinstance(process, Forked):
        process.release()


def paths() -> list[str]:
    """The folders in which this process looks for modules, without the working folder and that of the running script.

    These contain the user's files; a file `string.py` there must not replace a module.
    """
    apart = {_real(os.curdir)}
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is not None and not sys.flags.safe_path:
        apart.add(_real(os.path.dirname(script)))
    return [p for p in sys.path if os.path.isabs(p) and _real(p) not in apart]


def _real(path: str) -> str | None:
    try:
        return os.path.realpath(path, strict=True)
    except OSError:  # the working folder may be gone
        return None


def _folder(package: str) -> str | None:
    """The folder of a package in this process; None for a module that is a file."""
    spec = find_spec(package)
    places = None if spec is None else spec.submodule_search_locations
    return str(Path(next(iter(places))).resolve()) if places else None


def _orders(program: list[str], limits: Limits, paths: list[str] | None, packages: dict[str, str]) -> boot.Orders:
    return {
        "parent": os.getpid(), "seconds": limits.seconds or 0.0, "bytes": limits.bytes or 0, "paths": paths,
        "packages": packages, "program": program,
    }  # fmt: skip


def _with(environment: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(environment or {})}


def _start(
    orders: boot.Orders, stdin: int, stderr: IO[bytes] | int, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", boot.__file__, json.dumps(orders)],
        stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=_with(environment),
        start_new_session=True, bufsize=0,
    )  # fmt: skip


def _finish(process: subprocess.Popen[bytes], limits: Limits) -> subprocess.CompletedProcess[str]:
    done = _communicated(process, limits)
    return subprocess.CompletedProcess(
        done.args, done.returncode, _process_output(done.stdout), _process_output(done.stderr)
    )


def _communicated(
    process: subprocess.Popen[bytes], limits: Limits, data: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    with process:
        try:
            out, err = process.communicate(data, timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            end(process)
            out, err = process.communicate()
        except BaseException:
            end(process)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _process_output(said: bytes) -> str:
    return said.decode(errors="replace")
