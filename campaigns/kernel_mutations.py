"""Kernels of a GPU with one synchronisation taken away, moved or weakened, by operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorc_dsl.backend.cuda.lower.kernels import (
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
    DeviceProgram,
    InitMbarriers,
    Nested,
    ProxyFence,
    TmaLoad,
    TmaStore,
    WaitGroup,
    WaitMbarrier,
    WaitTmaStores,
    WgmmaFence,
    WgmmaWait,
)
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.expr import ONE, Binary

Body = tuple[Device, ...]

SYNCHRONISES = (
    ArriveMbarrier, Barrier, CommitGroup, InitMbarriers, ProxyFence, WaitGroup, WaitMbarrier, WaitTmaStores, WgmmaFence,
    WgmmaWait,
)  # fmt: skip


def _bodies(p: DeviceProgram) -> Iterator[tuple[Body, Callable[[Body], DeviceProgram]]]:
    """Every body of the kernels, and the kernels with another in its place."""

    def go(body: Body, put: Callable[[Body], DeviceProgram]) -> Iterator[tuple[Body, Callable[[Body], DeviceProgram]]]:
        yield body, put
        for n, s in enumerate(body):
            if isinstance(s, Nested):

                def put_inner(inner: Body, n: int = n, s: Nested = s) -> DeviceProgram:
                    return put((*body[:n], replace(s, body=inner), *body[n + 1 :]))

                yield from go(s.body, put_inner)

    for n, k in enumerate(p.kernels):

        def put_body(body: Body, n: int = n) -> DeviceProgram:
            changed = replace(p.kernels[n], body=body)
            return replace(p, kernels=(*p.kernels[:n], changed, *p.kernels[n + 1 :]))

        yield from go(k.body, put_body)


def _weakened(s: Device) -> Iterator[tuple[str, Device]]:
    """The statement with less, or something else, that it waits for."""
    match s:
        case WaitGroup(groups=n):
            yield "one group more under way", replace(s, groups=n + 1)
        case WgmmaWait(groups=n):
            yield "one group more under way", replace(s, groups=n + 1)
        case InitMbarriers(awaited=counts):
            for at, n in enumerate(counts):
                for off in (n - 1, n + 1) if n else ():
                    yield "count off by one", replace(s, awaited=(*counts[:at], off, *counts[at + 1 :]))
        case WaitMbarrier(at=at) | ArriveMbarrier(at=at):
            yield "another mbarrier", replace(s, at=Binary("+", at, ONE))
        case TmaLoad(at=at, size=size):
            yield "another mbarrier", replace(s, at=Binary("+", at, ONE))
            yield "bytes too few", replace(s, size=size - 16)
            yield "bytes too many", replace(s, size=size + 16)
        case _:
            pass


def kernel_mutants(p: DeviceProgram) -> dict[str, list[Callable[[], DeviceProgram]]]:
    """By what is changed, "Barrier: removed", the kernels with one such change, each made when it is called."""
    found: dict[str, list[Callable[[], DeviceProgram]]] = {}

    def add(s: Device, what: str, put: Callable[[Body], DeviceProgram], body: Body) -> None:
        found.setdefault(f"{type(s).__name__}: {what}", []).append(lambda: put(body))

    for body, put in _bodies(p):
        for n, s in enumerate(body):
            before, behind = body[:n], body[n + 1 :]
            if isinstance(s, SYNCHRONISES):
                add(s, "removed", put, (*before, *behind))
                if before:
                    add(s, "one statement earlier", put, (*before[:-1], s, before[-1], *behind))
                if behind:
                    add(s, "one statement later", put, (*before, behind[0], s, *behind[1:]))
            elif isinstance(s, TmaLoad | TmaStore):
                add(s, "removed", put, (*before, *behind))
            for what, new in _weakened(s):
                add(s, what, put, (*before, new, *behind))
    return found
