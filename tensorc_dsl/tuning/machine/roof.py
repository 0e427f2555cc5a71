"""The roof: the least time of a kernel on this machine, for its operations at the peak, or its bytes at the bandwidth.

The longer of the two bounds the kernel (Williams, Waterman and Patterson, Roofline, CACM 2009).
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace

from tensorc_dsl.backend.once import lowered_once, lowering_for
from tensorc_dsl.backend.protocol import Backend, require_backend
from tensorc_dsl.base import units
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import Sizes, bind
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.reference.work import Work, bytes_needed, sizing, work

MEASURING = "measuring what this machine can do"
"""The message while a roof is measured."""

PATIENCE = 2.0
"""The time limit in seconds for waiting for a quiet moment. One measurement takes some 50 ms."""

GLANCE = 0.2
"""The same limit for a roof that is only shown beside progress, or measured again later."""

CREDIBLE = 0.75
"""Threads on cores of their own reach about their number times the rate of one; below this share of it, cores were busy."""

LOOKS = 2
"""The number of measurements of the bandwidth, which threads share, so that one thread's rate does not predict it."""

LARGEST = 2
"""Bandwidth is measured over the task's size, up to this many times the last cache; it does not change beyond that."""


@frozen
class Roof:
    """The bound of a kernel whose call does `operations` on values and moves `bytes_` of its arrays.

    `peak` is in operations/s, None if no measured instruction does this work; `title` names the
    instruction. `moving` is the time of the arrays at the measured bandwidth in seconds, 0 without arrays.
    """

    operations: int
    bytes_: int
    is_float: bool
    title: str
    peak: float | None
    moving: float

    @property
    def is_measured(self) -> bool:
        """Whether it has a limit of a machine."""
        return self.peak is not None or self.moving > 0

    @property
    def by_memory(self) -> bool:
        """Whether moving the arrays takes longer than computing; false if that is unknown."""
        return self.operations == 0 or (self.peak is not None and self.moving > self.operations / self.peak)

    @property
    def unit(self) -> str:
        return "GB/s" if self.by_memory else "GFLOP/s" if self.is_float else "Gop/s"

    @property
    def name(self) -> str:
        return "bandwidth" if self.by_memory else self.title

    @property
    def limit(self) -> float | None:
        """The limit in bytes/s or operations/s, as `unit` says; None if it is unknown."""
        if self.by_memory:
            return self.bytes_ / self.moving if self.moving else None
        return self.peak

    def rate(self, seconds: float) -> float:
        """The rate of a call that takes this time, in bytes/s or operations/s."""
        return (self.bytes_ if self.by_memory else self.operations) / seconds

    def share(self, seconds: float) -> float | None:
        """The rate as a share of the limit; None if that is unknown."""
        return None if self.limit is None else self.rate(seconds) / self.limit

    def facts(self, seconds: float) -> tuple[str, ...]:
        """`205 GFLOP/s` and, if it is known, `93 % of f32 FMA peak`."""
        share = self.share(seconds)
        rate = f"{units.giga(self.rate(seconds))} {self.unit}"
        return (rate,) if share is None else (rate, f"{units.share(share)} of {self.name}")

    def described(self, seconds: float) -> str:
        """`205 GFLOP/s, 93 % of f32 FMA peak`."""
        return ", ".join(self.facts(seconds))

    def better(self, other: Roof) -> Roof:
        """The same work under the higher peak and the higher bandwidth of two measurements."""
        best = other if (other.peak or 0.0) > (self.peak or 0.0) else self
        return replace(best, moving=min(self.moving, other.moving))


@dataclass(slots=True)
class Rates:
    """What was measured of this machine for the roofs of several programs on as many threads, each once: peaks by their
    instruction, and bandwidths by the size of the arrays up to the next power of two."""

    peaks: dict[str, float] = field(default_factory=dict[str, float])
    bandwidths: dict[int, float] = field(default_factory=dict[int, float])

    def bandwidth(self, backend: Backend, target: Target, threads: int, size: int) -> float:
        """In bytes/s."""
        rounded = 1 << (size - 1).bit_length()
        if rounded not in self.bandwidths:
            self.bandwidths[rounded] = _bandwidth(backend, target, threads, rounded)
        return self.bandwidths[rounded]

    def peak(self, backend: Backend, title: str, target: Target, threads: int, patience: float) -> float:
        """In operations/s."""
        if title not in self.peaks:
            self.peaks[title] = _undisturbed(backend, title, target, threads, patience)
        return self.peaks[title]


def unmeasured(program: Program) -> Roof:
    """The work of an unscheduled program without the limits of a machine; for open sizes a mean, with the weights of a
    kernel's time."""
    found = sizing(program)
    bound = [bind(program, sizes) for sizes in found.timed]
    kinds = [work(p) for p in bound]
    total = sum(w * k.total() for w, k in zip(found.weights, kinds, strict=True))
    size = sum(w * bytes_needed(p) for w, p in zip(found.weights, bound, strict=True))
    dominant = _most(kinds[-1])
    return Roof(round(total), round(size), dominant is not None and dominant.values.is_float, "", None, 0.0)


def roof_of(
    program: Program, target: Target, threads: int, patience: float = PATIENCE, rates: Rates | None = None
) -> Roof:
    """The roof of an unscheduled program, measured now but for the known `rates`; for open sizes a mean, as `unmeasured`.

    On a busy machine a run may never have all its threads on cores at once; then the measurement is repeated, for at most
    `patience` seconds.
    """
    backend = require_backend(target.kind, program.name)
    found = sizing(program)
    moved = [bytes_needed(bind(program, sizes)) for sizes in found.timed]
    largest = LARGEST * target.l3

    def bandwidth(size: int) -> float:
        if rates is not None:
            return rates.bandwidth(backend, target, threads, min(size, largest))
        return _bandwidth(backend, target, threads, min(size, largest))

    moving = sum(w * size / bandwidth(size) for w, size in zip(found.weights, moved, strict=True) if size)
    title, rate = _peak(backend, kind_of(program), target, threads, patience, rates or Rates())
    return replace(unmeasured(program), title=title, peak=rate, moving=moving)


def unreached(program: Program, target: Target, sizes: Sizes) -> str:
    """In a line, what keeps a scheduled program from its roof by the backend's model of time; "" if nothing does, or there is
    no model."""
    try:
        kernel = lowered_once(program, target).kernel
    except LowerError:
        return ""
    return lowering_for(target).explain(kernel, target, sizes, brief=True)


def kind_of(program: Program) -> Work | None:
    """What most operations of an unscheduled program are, at the last of its sizes; the peak is that of these."""
    return _most(work(bind(program, sizing(program).timed[-1])))


def _most(kinds: Counter[Work]) -> Work | None:
    return max(kinds, key=lambda k: kinds[k], default=None)


def _bandwidth(backend: Backend, target: Target, threads: int, size: int) -> float:
    return max(backend.bandwidth(target, threads, size) for _ in range(LOOKS))


def _peak(
    backend: Backend, kind: Work | None, target: Target, threads: int, patience: float, rates: Rates
) -> tuple[str, float | None]:
    """The title and the rate of the best instruction for the work; the rate is None if there is no instruction."""
    found = () if kind is None else backend.multipliers(kind, target)
    peaks = {title: rates.peak(backend, title, target, threads, patience) for title in found}
    best = max(peaks, key=lambda i: peaks[i], default=None)
    return ("", None) if best is None else (best, peaks[best])


def _undisturbed(backend: Backend, title: str, target: Target, threads: int, patience: float) -> float:
    """The rate at a moment in which each thread had a core, if there is one within `patience` seconds."""
    until = time.monotonic() + patience
    rate = backend.peak(title, target, threads)
    wanted = CREDIBLE * threads * backend.peak(title, target, 1) if threads > 1 else 0.0
    while rate < wanted and time.monotonic() < until:
        time.sleep(0.02)
        rate = max(rate, backend.peak(title, target, threads))
    return rate
