"""The number of cores that this process may use, by its affinity and by the quota of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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
