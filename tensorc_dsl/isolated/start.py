"""The parent's side of child processes: starts and ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from tensorc_dsl.isolated import boot, forked

_HOME = __name__.partition(".")[0]

_SERVER = f"{_HOME}.isolated.server"

Process = subprocess.Popen[bytes] | forked.Forked
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
    """A process that runs a module, as this one would import it, with pipes for its input and output.

    It leads a process group of its own, which a terminal's Ctrl-C does not reach, and dies with the thread that started it
    (on other systems than Linux with the process, if it reads its input). Nothing in the working folder is imported.
    It is a new interpreter; with `loaded` it may be a child of the fork server, whose libraries were loaded in this
    environment.
    """
    orders = _module_orders(module, *arguments, limits=limits)
    if loaded is not None and not isinstance(stderr, int):
        server = _module_orders(_SERVER, limits=Limits())
        served = forked.start(orders, _with(environment), server, _with(loaded), stderr.fileno())
        if served is not None:
            return served
    return _start(orders, subprocess.PIPE, stderr, environment)


def _module_orders(module: str, *arguments: str, limits: Limits) -> boot.Orders:
    packages = {name: _folder(name) for name in (_HOME, module.partition(".")[0])}
    found = {name: folder for name, folder in packages.items() if folder is not None}
    return _orders([module, *arguments], limits, paths(), found)


def run_module(module: str, *arguments: str, limits: Limits) -> subprocess.CompletedProcess[str]:
    """The output of a module, which gets no input; the status is -9 if it takes longer than the limit."""
    orders = _module_orders(module, *arguments, limits=limits)
    return _finish(_start(orders, subprocess.PIPE, subprocess.PIPE, None), limits)


def run_program(program: list[str], limits: Limits) -> subprocess.CompletedProcess[str]:
    """The output of a program of the system, as `run_module`."""
    return _finish(_start(_orders(program, limits, None, {}), subprocess.DEVNULL, subprocess.PIPE, None), limits)


def end(process: Process) -> None:
    """End the process and all processes in its group."""
    if process.pid > 0:
        try:
            # The child leads its group; its number is not reused before it is waited for.
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
    process.wait()
    if isinstance(process, forked.Forked):
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
    with process:
        try:
            out, err = process.communicate(timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            end(process)
            out, err = process.communicate()
        except BaseException:
            end(process)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, _text(out), _text(err))


def _text(said: bytes) -> str:
    return said.decode(errors="replace")
