"""The machine we run on, as a `Target`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import llvmlite.binding as llvm

from tensorc_dsl.ir.target import Target
from tensorc_dsl.measure.cores import usable_cores

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


def host_target(threads: int | None = None) -> Target:
    """This machine; kernels may use `threads` threads, by default one per core that this process may use.

    ValueError when `threads` is not positive. Cache sizes that the system does not tell are those of `Target`.
    """
    cores = usable_cores()
    if threads is not None:
        if threads < 1:
            raise ValueError(f"a target needs at least one thread, not {threads}")
        cores = threads
    features = llvm.get_host_cpu_features()
    names = {name for name, on in features.items() if on}
    default = Target()
    l1, l2, l3 = (_cache(level) or fallback for level, fallback in ((1, default.l1), (2, default.l2), (3, default.l3)))
    return Target(
        kind="llvm",
        cpu=llvm.get_host_cpu_name(),
        features=features.flatten(sort=True),
        vector_bits=vector_bits_of(names),
        cores=cores,
        l1=l1,
        l2=l2,
        l3=l3,
    )


def host_lacks(features: Iterable[str]) -> tuple[str, ...]:
    """Those of the features that this machine is known not to have; a feature that LLVM says nothing of is not among them."""
    here = llvm.get_host_cpu_features()
    return tuple(f for f in features if not here.get(f, True))


def vector_bits_of(features: Collection[str]) -> int:
    """The widest vectors whose width these features fix. SVE's is not fixed, and it has those of 128 bits."""
    if "avx512f" in features:
        return 512
    if "avx" in features or "avx2" in features:
        return 256
    return 128


def _cache(level: int) -> int | None:
    """The size of the data cache of a level in bytes, None when the system does not say."""
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
