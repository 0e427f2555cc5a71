"""Describes the machine of a report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
INFO = Path("/proc/cpuinfo")


def apart(cpus: Sequence[int], folder: Path = CPUS) -> list[int]:
    """The processors, with the first one of each core in front; `folder` is the system's, with an entry for each."""
    cores: dict[str, list[int]] = {}
    for cpu in cpus:
        try:
            core = (folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        except OSError:
            core = str(cpu)
        cores.setdefault(core, []).append(cpu)
    return [cpu for n in range(len(cpus)) for core in cores.values() for cpu in core[n : n + 1]]


def described(kind: str, processors: int, info: Path = INFO) -> str:
    """The system's name of the processor, with LLVM's name of its kind: AMD EPYC (znver4), 2 processors."""
    try:
        found = re.search(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return f"{f'{found[1]} ({kind})' if found else kind}, {processors} processors"
