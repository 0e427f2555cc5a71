"""Is there memory for a library that ends the process where there is none?

OpenBLAS does that when it is loaded, with a message of its own or, for want of a thread, as if Ctrl-C were pressed, and LLVM
when it compiles. So the room is looked at before NumPy and SciPy, each of which has an OpenBLAS, and llvmlite are imported.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

_MIB = 1 << 20

NEED = {"numpy": (48, 40), "scipy": (56, 40), "llvmlite": (205, 0)}
"""MiB of addresses that a package takes, measured with OpenBLAS 0.3 and LLVM 22 on x86-64, and some to tell that none are
left: at all, and for each thread of OpenBLAS, a buffer of 32 and the stack."""

MOST_THREADS = 64
"""The threads that the OpenBLAS in wheels is built for."""


class Room(MetaPathFinder):
    """Raises MemoryError instead of an import for which there are too few addresses; it finds nothing."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in NEED:
            fixed, each = NEED[fullname]
            if _used() + (fixed + each * _threads()) * _MIB > self._limit:
                raise MemoryError


def look_before_imports() -> None:
    """Imports look for room from now on, if this process may not have all the addresses that there are."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and not any(isinstance(f, Room) for f in sys.meta_path):
        sys.meta_path.insert(0, Room(limit))


def _used() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _threads() -> int:
    named = (os.environ.get(n, "") for n in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"))
    asked = next((int(n) for n in named if n.isdecimal() and int(n) > 0), len(os.sched_getaffinity(0)))
    return min(asked, len(os.sched_getaffinity(0)), MOST_THREADS)
