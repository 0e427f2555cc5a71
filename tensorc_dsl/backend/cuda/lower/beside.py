"""Instructions that run beside the threads that start them: what stands before and behind each run of them.

They read shared memory, and read and write registers of four warps, while threads go on. So before a run a thread is done
with these registers, and behind it it waits, before anything else: the run ends where another statement begins. In a loop
where nothing that they read is written meanwhile, a thread waits for those of the round before (`overlap`). What threads have
stored in memory that such an instruction reads is made known to it before the next barrier, which stands there by proof.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.collectives import accesses_of, is_of_group, operands_of
from tensorc_dsl.backend.cuda.lower.kernels import (
    BLOCK_AXES,
    THREAD,
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
    DeviceKernel,
    Guard,
    InitMbarriers,
    LookBack,
    Phase,
    ProxyFence,
    Role,
    Steps,
    Ticket,
    TmaLoad,
    TmaStore,
    WaitGroup,
    WaitMbarrier,
    WaitTmaStores,
    WgmmaFence,
    WgmmaWait,
    collectives_in,
    outgoing_in,
)
from tensorc_dsl.backend.cuda.lower.overlap import Around, overlapped
from tensorc_dsl.ir.expr import index
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.warp import is_described
from tensorc_dsl.lower.flat import Collective, Flat, stores


def with_waits(k: DeviceKernel) -> DeviceKernel:
    """The kernel with what its instructions of warpgroups and its TMA stores need around them."""
    described = described_in(collectives_in(k.body))
    known = described | outgoing_in(k.body).keys()
    if not known:
        return k
    _, body = _published(k.body, known, False)
    sizes = (*zip(BLOCK_AXES, k.grid, strict=True), (THREAD, index(k.threads)))
    return replace(k, body=_waited(body, Around(sizes, described)))


def described_in(every: Iterable[Collective]) -> frozenset[str]:
    """The buffers of which instructions get descriptors."""
    return frozenset(x.buffer for s in every for b, x in accesses_of(s) if is_described(b.scope))


def registers_in(body: tuple[Device, ...]) -> tuple[str, ...]:
    """The buffers in registers that instructions of warpgroups access: sums, and factors without a descriptor."""
    every = (s for s in collectives_in(body) if is_of_group(s.intrinsic))
    return tuple(dict.fromkeys(x.buffer for s in every for x in operands_of(s).values()))


def _waited(body: tuple[Device, ...], around: Around) -> tuple[Device, ...]:
    out: list[Device] = []
    run: list[Device] = []

    def end() -> None:
        if run:
            names = registers_in(tuple(run))
            out.extend((WgmmaFence(names), *run, WgmmaWait(names)))
            run.clear()

    for s in body:
        if _runs_beside(s):
            run.append(s)
            continue
        end()
        if isinstance(s, Steps):
            deeper = replace(around, extents=(*around.extents, (s.var, s.end)))
            s = replace(s, body=_waited(s.body, deeper))
            out.extend(overlapped(s, around) or (s,))
        elif isinstance(s, Role):
            out.append(replace(s, body=_waited(s.body, around.among(s.threads))))
        else:
            out.append(replace(s, body=_waited(s.body, around)) if isinstance(s, Guard) else s)
    end()
    return tuple(out)


def _runs_beside(s: Device) -> bool:
    """Whether a statement is such instructions alone."""
    match s:
        case Phase(body=inner):
            return not s.asynchronous and all(map(_is_alone, inner))
        case Steps(body=inner) | Guard(body=inner):
            return bool(inner) and all(map(_runs_beside, inner))
        case _:
            return False


def _is_alone(s: Flat) -> bool:
    if isinstance(s, Collective):
        return is_of_group(s.intrinsic)
    return not isinstance(s, Store) and all(map(_is_alone, s.body))


def _published(body: tuple[Device, ...], described: Collection[str], stored: bool) -> tuple[bool, tuple[Device, ...]]:
    """The statements with what makes stores known before barriers, and whether there are others behind the last one.

    `stored` says so of those before.
    """
    out: list[Device] = []
    for s in body:
        match s:
            case Phase(body=inner):
                stored |= not s.asynchronous and _stores(inner, described)
                out.append(s)
            case WaitGroup(landed=landed):
                stored |= _stores(landed, described)
                out.append(s)
            case Barrier():
                out += [ProxyFence(), s] if stored else [s]
                stored = False
            case Steps() | Guard() | Role():
                before = stored
                if isinstance(s, Steps):  # its body follows itself
                    stored |= _published(s.body, described, stored)[0]
                after, inner = _published(s.body, described, stored)
                out.append(replace(s, body=inner))
                stored = before | after
            case LookBack():
                stored |= _stores(s.shown, described)
                out.append(s)
            case TmaStore():  # what its own thread has stored needs no barrier
                out += [ProxyFence(), s] if stored else [s]
                stored = False
            case (
                CommitGroup()
                | ProxyFence()
                | WgmmaFence()
                | WgmmaWait()
                | InitMbarriers()
                | TmaLoad()
                | WaitTmaStores()
                | WaitMbarrier()
                | ArriveMbarrier()
                | Ticket()
            ):
                out.append(s)
            case _:
                assert_never(s)
    return stored, tuple(out)


def _stores(body: tuple[Flat, ...], described: Collection[str]) -> bool:
    return any(s.buffer in described for s in stores(body))
