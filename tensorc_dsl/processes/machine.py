"""The machine that processes share: its cores, the memory that is left, and turns of timing and building."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

import psutil
from platformdirs import user_runtime_path

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


_ROOT = Path("/")


def available(root: Path = _ROOT) -> int:
    """The number of bytes: the least of the machine's free memory, the rest of each control group, and our own limits.

    `root` is where the system's files are found.
    """
    own = [resource.getrlimit(which)[0] for which in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    limits = [n for n in own if n != resource.RLIM_INFINITY]
    return max(0, min([_free(), *limits, *_left_in_groups(root)]))


def _free() -> int:
    """The machine's free memory. Where `/proc` is not mounted, memory that caches use does not count as free."""
    try:
        return psutil.virtual_memory().available
    except OSError:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _left_in_groups(root: Path) -> Iterator[int]:
    """The rest of each memory limit, from the group of this process up, for both versions of control groups."""
    for line in _lines(root / "proc/self/cgroup"):
        number, kinds, path = line.split(":", 2)
        if number == "0":
            yield from _left(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            home = root / "sys/fs/cgroup/memory"
            yield from _left(home, path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _left(home: Path, path: str, limit: str, used: str, cache: str) -> Iterator[int]:
    """The limit less the use of a group, and of each of its ancestors. Unused file pages do not count as used."""
    here = PurePosixPath(path.lstrip("/"))
    # In a container the path is that of the host, and the group itself is mounted as the root.
    for group in (here, *here.parents):
        most, now = _number(home / group / limit), _number(home / group / used)
        if most is not None and now is not None:
            spare = next((int(v) for k, v in map(str.split, _lines(home / group / "memory.stat")) if k == cache), 0)
            yield most - now + spare


def _number(file: Path) -> int | None:
    """The number in a file; None if there is no file or no number: `max` is no limit."""
    text = "".join(_lines(file))
    return int(text) if text.isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


PATIENCE = 60.0
"""Seconds that a turn is waited for; building a candidate or timing one takes at most a third of that."""

NOTABLE = 0.5
"""Seconds from which on a wait is reported."""

_POLL = 0.005


class Use(Enum):
    """The uses of the machine that a turn is for."""

    TIMING = fcntl.LOCK_EX
    BUILDING = fcntl.LOCK_SH


class Turns:
    """The turns of one search. `told` is called once for a long wait (False), and once for a turn that did not end (True)."""

    def __init__(self, told: Callable[[bool], None] = lambda _: None, folder: Path | None = None) -> None:
        self._told = told
        self._folder = folder
        self._said: set[bool] = set()

    @contextmanager
    def use(self, use: Use) -> Generator[None]:
        """A context that holds the machine for that use."""
        gate = machine = -1
        try:
            gate, machine = self._open("gate"), self._open("machine")
            until = time.monotonic() + PATIENCE
            if gate >= 0 and machine >= 0:
                if not (self._taken(gate, fcntl.LOCK_EX, until) and self._taken(machine, use.value, until)):
                    self._tell(True)
                fcntl.flock(gate, fcntl.LOCK_UN)
            yield
        finally:
            for file in (gate, machine):
                if file >= 0:
                    os.close(file)

    def _open(self, name: str) -> int:
        """The file, which other users cannot open; -1 where the system gives no folder for such things."""
        try:
            folder = self._folder or _usual_folder()
            return os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return -1

    def _taken(self, file: int, lock: int, until: float) -> bool:
        """Whether the lock was taken in time."""
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(file, lock | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                now = time.monotonic()
                if now >= until:
                    return False
                if now - began > NOTABLE:
                    self._tell(False)
                time.sleep(_POLL)

    def _tell(self, given_up: bool) -> None:
        if given_up not in self._said:
            self._said.add(given_up)
            self._told(given_up)


def _usual_folder() -> Path:
    """The user's runtime folder; where the system has none, one below that for temporary files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the latter is told, and it does as well
        return user_runtime_path("tensorc-dsl", appauthor=False, ensure_exists=True)
