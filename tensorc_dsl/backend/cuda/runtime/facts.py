"""The facts of the GPU of this machine, as a target has them."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.backend.cuda.codegen.ptx import TRIPLE
from tensorc_dsl.backend.cuda.lower.kernels import ALIGNMENT
from tensorc_dsl.backend.cuda.runtime.driver import Device
from tensorc_dsl.backend.protocol import Processor

_FACTS = {
    "cores": "MULTIPROCESSOR_COUNT",
    "threads": "MAX_THREADS_PER_BLOCK",
    "shared_memory": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "registers": "MAX_REGISTERS_PER_BLOCK",
    "l1": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "l2": "L2_CACHE_SIZE",
}
"""The facts of a target, and CUDA's names of them. Shared memory and the first-level cache are one memory, of which CUDA
reports only the part that may be shared."""


def number_of(cpu: str) -> int:
    """The compute capability in LLVM's name of a GPU: 90 for `sm_90` and `sm_90a`."""
    return int("".join(filter(str.isdigit, cpu)))


def processor_of(device: Device, known: Sequence[str]) -> Processor:
    """The GPU as the newest of the `known` ones, the oldest first, whose code it runs.

    Code for `sm_90a` runs on GPUs of this very capability. The features are the names of all whose code it runs.
    """
    major, minor = device.capability
    own = 10 * major + minor
    runs = [cpu for cpu in known if (number_of(cpu) <= own if cpu[-1].isdigit() else cpu == f"sm_{own}a")]
    facts: dict[str, int | str] = {name: device.attribute(theirs) for name, theirs in _FACTS.items()}
    facts["device"] = device.described
    name = runs[-1] if runs else f"sm_{major}{minor}"
    return Processor(name, ",".join(f"+{cpu}" for cpu in runs), 8 * ALIGNMENT, TRIPLE, facts)
