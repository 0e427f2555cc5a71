"""Describes the current machine, or the GPU in it, as a `Target`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from operator import index
from pathlib import Path

from tensorc_dsl.backend.protocol import backend_of, native
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.machine import usable_cores

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


def host_target(threads: int | None = None) -> Target:
    """The current machine; kernels may use `threads` threads, by default one per core that this process may use.

    Raises ValueError if `threads` is not positive, TypeError if it is no whole number. Cache sizes that the system does not
    report are the defaults of `Target`.
    """
    cores = usable_cores()
    if threads is not None:
        try:
            threads = index(threads)
        except TypeError:
            raise TypeError(f"threads is a whole number, not {threads!r}") from None
        if threads < 1:
            raise ValueError(f"a target needs at least one thread, not {threads}")
        cores = threads
    processor = native().processor()
    default = Target()
    l1, l2, l3 = (_cache(level) or fallback for level, fallback in ((1, default.l1), (2, default.l2), (3, default.l3)))
    return Target(
        cpu=processor.name,
        features=processor.features,
        vector_bits=processor.vector_bits,
        cores=cores,
        l1=l1,
        l2=l2,
        l3=l3,
    )


def machine_target(kind: str) -> Target | None:
    """The target that this machine is for that kind, such as its GPU; None if there is no such kind.

    Raises TschedError if the machine has none.
    """
    backend = backend_of(kind)
    if backend is None:
        return None
    if kind == Target().kind:
        return host_target()
    p = backend.processor()
    return replace(Target(kind, p.name, p.features, p.vector_bits), **p.facts)


@cache
def _cache(level: int) -> int | None:
    """The size of the data cache of a level in bytes; None if the system does not report it."""
    for folder in sorted(_CACHES.glob("index*")):
        try:
            own = int((folder / "level").read_text())
            kind = (folder / "type").read_text().strip()
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if own == level and kind != "Instruction" and size[:-1].isdigit() and size[-1:] in _UNITS:
            return int(size[:-1]) * _UNITS[size[-1]]
    return None
