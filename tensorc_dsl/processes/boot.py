"""The first file that a child process runs, in an isolated interpreter (`-I`).

When it runs the program, the system kills the process with its parent, the limits are set, no core is dumped, signals that
end a command are ignored, and modules are found in the same folders as in the parent.

Those folders are the parent's own without the working folder and that of the script. `-I` alone loses what is installed for
one user; `-P` alone keeps an empty part of `PYTHONPATH`, which is the working folder. Three things end a child: the system;
the pipe from the parent, which a thread waits for while native code runs; an alarm, when a request exceeds its limit and the
parent is stopped. Only the parent handles signals that end a command: a builder that ended by itself would be recorded as a
candidate that crashes.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import os
import resource
import runpy
import signal
import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import TypedDict

_PR_SET_PDEATHSIG = 1

DATA_LIMIT = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
"""The limited resource: on Linux the memory that a process fills; elsewhere its address space."""


class Orders(TypedDict):
    """The parent's request; JSON on the command line. `seconds` and `bytes` are 0 without a limit.

    `program` is a module or a function of one, `module:name`, with its arguments or, if `paths` is None, another program.
    `packages` are loaded from their folders, before any path is searched.
    """

    parent: int
    seconds: float
    bytes: int
    paths: list[str] | None
    packages: dict[str, str]
    program: list[str]


def main() -> None:
    """Run the program of the orders in this process, with its own arguments."""
    orders: Orders = json.loads(sys.argv[1])
    confine(orders)
    execute(orders)


def confine(orders: Orders) -> None:
    """From here on this process ends with its parent, has its limits, and ignores the signals that end a command."""
    die_with(orders["parent"])
    _limit(resource.RLIMIT_CORE, 0)
    if orders["bytes"]:
        _limit(DATA_LIMIT, orders["bytes"])
    # A signal to all processes of a job must not look like a crash of the candidate.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    # The alarm ends the process even while native code runs, and stays set after `exec`.
    signal.setitimer(signal.ITIMER_REAL, orders["seconds"])


def execute(orders: Orders) -> None:
    """Run the program of the orders; a package that is loaded already stays."""
    name, *arguments = orders["program"]
    if orders["paths"] is None:
        _limit(resource.RLIMIT_CPU, math.ceil(orders["seconds"]))  # its own children inherit it
        os.execvp(name, [name, *arguments])
    sys.path[:] = orders["paths"]
    for package, folder in orders["packages"].items():
        if package not in sys.modules:
            _load(package, folder)
    sys.argv = [name, *arguments]
    module, _, function = name.partition(":")
    if function:
        getattr(importlib.import_module(module), function)()
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def die_with(parent: int) -> None:
    """Have the system kill this process when its parent dies, even while native code runs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before
        os._exit(0)


def _limit(which: int, wanted: int) -> None:
    """Set the limit to `wanted`, or leave it if it is lower."""
    hard = resource.getrlimit(which)[1]
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (most, hard))


def _load(package: str, folder: str) -> None:
    spec = spec_from_file_location(package, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    sys.modules[package] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main()
