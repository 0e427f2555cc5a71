"""The target of a compilation, as a value: schedules query it, code generators obey it, records carry it; and the kinds of
targets, of which each backend declares its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.extensions import BACKENDS, KINDS
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.base.units import counted
from tensorc_dsl.ir.program import Intrinsic


def architecture_of(triple: str) -> str:
    """The instruction set of a machine under its canonical name: `x86_64`, `aarch64`."""
    name = triple.partition("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


CACHE_LINE = 64
"""The bytes of a line of the caches of CPUs, x86 and AArch64, and of the widest vector."""

REGISTER_FILE = 32 * CACHE_LINE
"""The bytes of the largest file of vector registers: a larger buffer cannot be in registers."""


@frozen
class Target:
    """A machine. Cache sizes are in bytes, per core (`l3`: shared); `cores` is the number of threads that a kernel may use.

    `triple` is LLVM's name for the kind of machine, `aarch64-unknown-linux-gnu`; if it is empty, the target is the current
    machine. `features` is LLVM's list of instruction sets, `+avx2,-sse4a`. For a GPU, `cores` is the number of
    multiprocessors, and a block has at most `threads` threads, `shared_memory` bytes and `registers` registers of 32 bits.
    `device` describes the GPU that was found here, its name first; it is empty for a described target, and for CPUs.
    """

    kind: str = "llvm"
    cpu: str = "generic"
    features: str = ""
    vector_bits: int = 128
    cores: int = 1
    l1: int = 32 * 1024
    l2: int = 512 * 1024
    l3: int = 8 * 1024 * 1024
    shared_memory: int = 0
    threads: int = 0
    registers: int = 0
    triple: str = ""
    device: str = ""

    @property
    def key(self) -> str:
        """A short name of the target: its kind, triple, CPU, vector width and number of cores, and the name of the GPU.

        Machines with other instruction sets can have the same one, so records are not kept by it.
        """
        machine = f"{self.triple}:" if self.triple else ""
        name = self.device.partition(",")[0]
        return f"{self.kind}:{machine}{self.cpu}:{self.vector_bits}:{self.cores}" + (f":{name}" if name else "")

    @property
    def starts_grids(self) -> bool:
        """Whether a kernel is a grid of blocks of threads: on a GPU."""
        return self.threads > 0

    def workers(self, count: int) -> str:
        """So many of what a kernel runs on: `2 threads`, or `132 multiprocessors` of a GPU that was found."""
        return counted(count, "multiprocessor" if self.device else "thread")

    @property
    def vector_registers(self) -> int:
        """The number of architectural vector registers: 32 with AVX-512 and on AArch64, 16 on other x86."""
        arm = architecture_of(self.triple) == "aarch64" or "neon" in self.features
        return 32 if arm or self.vector_bits >= 512 else 16

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The instruction sets of the target, sorted."""
        return tuple(sorted(f[1:] for f in self.features.split(",") if f.startswith("+")))


# The kinds of targets: no layer above the backends knows one by its name.


@frozen
class TargetKind:
    """A kind of targets.

    Code of an instruction has one of `forms`, and `faults` says what is wrong with it. `facts` are those that each `target`
    of this kind states: they are 0 for other machines, and within limits of 0 there is no schedule.
    """

    forms: tuple[str, ...] = ("asm", "call")
    facts: tuple[str, ...] = ()
    faults: Callable[[Intrinsic, str, Span], Iterable[Diagnostic]] | None = None


@cache
def kind_of(name: str) -> TargetKind:
    """What the backend of that kind declares; a backend need not declare anything. Raises TschedError (E0930)."""
    found = KINDS.load(name)
    return TargetKind() if found is None else found


def kinds() -> tuple[str, ...]:
    """All kinds of targets, sorted: those of the backends that are installed."""
    return BACKENDS.names()


def own_kinds() -> tuple[str, ...]:
    """The kinds of targets that exist whatever is installed, sorted."""
    return tuple(sorted(BACKENDS.own()))


def is_kind(name: str) -> bool:
    """Whether `name` is a kind of targets."""
    return BACKENDS.module(name) is not None


GRAPH = "graph"
"""What a space is for whose rules join the calls of models, in the place of a kind of targets."""


def has_spaces(name: str) -> bool:
    """Whether a space can be for it: a kind of targets, or the graphs of models."""
    return name == GRAPH or is_kind(name)
