"""The number of cores that this process may use, by its affinity and its control group; and the threads of NumPy's
libraries.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

# The number of cores that this process may use, by its affinity and by the quota of its control groups.


_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_cores(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """At least 1. A quota of 2.5 cores is 2: a third thread would wait half of the time, and the others for it.

    Quotas are read once in a process: each load of a file needs them, and they rarely change.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *map(int, _quotas(groups, own))]))


@cache
def _quotas(groups: Path, own: Path) -> tuple[float, ...]:
    return tuple(_read(groups, own))


def _read(groups: Path, own: Path) -> Iterator[float]:
    """The number of cores that each control group of the process allows, its ancestors included."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = groups / "cpu" if controllers else groups
        group = root / path.lstrip("/")
        # In a container the file may name the group as the host sees it, where here only the root is.
        for folder in (group, *(p for p in group.parents if p.is_relative_to(root))):
            quota = _new_quota(folder) if not controllers else _old_quota(folder)
            if quota is not None:
                yield quota


def _new_quota(folder: Path) -> float | None:
    """The quota of control groups of version 2: `max 100000`, or two numbers of microseconds."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _old_quota(folder: Path) -> float | None:
    """The quota of control groups of version 1; -1 is no limit."""
    try:
        quota, period = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota / period if quota > 0 else None
    except (OSError, ValueError):
        return None


# Limits the threads of NumPy's libraries, so that they do not compete with kernels, builders and each other.


_Control = tuple[Callable[[], int], Callable[[int], None]]


@contextmanager
def one_blas_thread() -> Generator[None]:
    """Linear algebra inside runs on one thread, in the whole process; that of a library that is loaded inside does after
    `all_alike`.

    OpenBLAS cuts even small products into parts and spins until all are done. Where something else runs on one of the
    cores, each call then waits for that: a batch's question took 0.5 s instead of 0.03 s. Does nothing for other libraries
    than the OpenBLAS that NumPy's and SciPy's wheels for Linux carry.
    """
    before = {path: get() for path, (get, _) in _controls().items()}
    try:
        for _, set_ in _controls().values():
            set_(1)
        yield
    finally:
        for path, (_, set_) in _controls().items():
            set_(before.get(path, max(before.values(), default=1)))


def all_alike() -> None:
    """The libraries have as many threads as the one with the fewest. SciPy's is loaded by its first use, and then has a
    thread for each core, whatever the others were told."""
    controls = _controls().values()
    fewest = min((get() for get, _ in controls), default=1)
    for _, set_ in controls:
        set_(fewest)


def use_blas_threads(count: int) -> None:
    """From here on linear algebra has so many threads, of the libraries that are loaded."""
    for _, set_ in _controls().values():
        set_(count)


def _controls() -> dict[str, _Control]:
    """For each OpenBLAS in this process now, by its path, the functions that get and set its number of threads.

    Both libraries are loaded by an import, after which there is another module. So `/proc` is read once for each number of
    modules: a search asks several times a batch, and the list has a line for each part of each kernel too.
    """
    return _mapped(len(sys.modules))


@lru_cache(maxsize=1)
def _mapped(_modules: int) -> dict[str, _Control]:
    if sys.platform != "linux":
        return {}
    try:
        maps = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # `/proc` is not mounted, or hidden
        return {}
    paths = sorted({line.split(maxsplit=5)[5] for line in maps if "openblas" in line.rpartition("/")[2]})
    return {path: control for path in paths if (control := _control_of(path)) is not None}


@cache
def _control_of(path: str) -> _Control | None:
    return _control(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW))


def _control(library: ctypes.CDLL) -> _Control | None:
    # The wheels' builds rename their symbols, so that several can live in one process.
    for prefix in ("", "scipy_"):
        for suffix in ("", "64_"):
            try:
                get = library[f"{prefix}openblas_get_num_threads{suffix}"]
                set_ = library[f"{prefix}openblas_set_num_threads{suffix}"]
            except AttributeError:
                continue
            get.restype, get.argtypes = ctypes.c_int, ()
            set_.restype, set_.argtypes = None, (ctypes.c_int,)
            return get, set_
    return None
