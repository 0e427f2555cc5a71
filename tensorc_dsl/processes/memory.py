"""The memory that this process and its children can still use before the system swaps or kills processes."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

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
