"""The first file that a child process runs, in an interpreter that takes nothing from its surroundings (`-I`).

When it hands over, the system kills the process with its parent, the limits hold, no core is dumped, the signals that end
a command are left to the parent, and modules are found where the parent finds them.
"""

from __future__ import annotations

import ctypes
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
"""On Linux the memory that a process may fill. Elsewhere that counts little, and all addresses are counted instead."""


class Orders(TypedDict):
    """What the parent wants; JSON on the command line. `seconds` and `bytes` are 0 where there is no limit.

    `program` is a module with its arguments, or where `paths` is None another program. `packages` are loaded from their
    folders, before any path is searched.
    """

    parent: int
    seconds: float
    bytes: int
    paths: list[str] | None
    packages: dict[str, str]
    program: list[str]


def main() -> None:
    """Become what the orders name; it sees its own arguments only."""
    orders: Orders = json.loads(sys.argv[1])
    die_with(orders["parent"])
    _limit(resource.RLIMIT_CORE, 0)
    if orders["bytes"]:
        _limit(DATA_LIMIT, orders["bytes"])
    # A signal to all processes of a job must not look like the end of a candidate.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    # It ends the process even while native code runs, and outlives `exec`.
    signal.setitimer(signal.ITIMER_REAL, orders["seconds"])
    name, *arguments = orders["program"]
    if orders["paths"] is None:
        _limit(resource.RLIMIT_CPU, math.ceil(orders["seconds"]))  # which its own children have too
        os.execvp(name, [name, *arguments])
    sys.path[:] = orders["paths"]
    for package, folder in orders["packages"].items():
        _load(package, folder)
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def die_with(parent: int) -> None:
    """Have the system kill this process when its parent dies, even while native code runs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before
        os._exit(0)


def _limit(which: int, wanted: int) -> None:
    """The limit is what is wanted, or what it was where that is less."""
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
