"""Kernels of a GPU as text, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.kernels import (
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
    DeviceProgram,
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
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import format_body, format_shape
from tensorc_dsl.units import counted


def format_device(p: DeviceProgram) -> str:
    """The kernels as text, for people and golden tests; it is not parsed back."""
    args = [f"{'in ' * x.updated}{'out ' * x.output}{x.name}: {x.dtype}{format_shape(x.shape)}" for x in p.params]
    lines = [f"program {p.name}({', '.join((*args, *(d.name for d in p.dims)))}) {{"]
    lines += [f"    scratch {x.name}: {x.dtype}[{format_expr(x.size)}]" for x in p.scratch]
    for k in p.kernels:
        grid = " x ".join(format_expr(n) for n in k.grid)
        lines.append(f"    kernel {k.name}({', '.join(k.params)}) on {grid} blocks of {k.threads} threads {{")
        lines += [f"        shared {b.name}: {b.dtype}[{b.size}] at {b.offset}" for b in k.shared]
        lines += [f"        private {b.name}: {b.dtype}[{b.size}]" for b in k.local]
        lines += [f"        // {note}" for note in k.notes]
        lines += _lines(k.body, "        ")
        lines.append("    }")
    return "\n".join((*lines, "}")) + "\n"


def _lines(body: tuple[Device, ...], pad: str) -> Iterator[str]:
    for s in body:
        match s:
            case Phase(body=inner, asynchronous=asynchronous):
                yield f"{pad}threads cp.async {{" if asynchronous else f"{pad}threads {{"
                yield from (f"{pad}    {line}" for line in format_body(inner).splitlines())
                yield f"{pad}}}"
            case CommitGroup():
                yield f"{pad}cp.async.commit_group"
            case WaitGroup(groups=groups):
                yield f"{pad}cp.async.wait_group {groups}"
            case InitMbarriers(awaited=awaited):
                counts = ", ".join(str(max(n, 1)) for n in awaited)
                yield f"{pad}mbarrier.init of {counted(len(awaited), 'mbarrier')}, arrival counts {counts}"
            case TmaLoad(at=at, size=size, body=inner):
                yield f"{pad}one thread starts TMA loads, expect_tx {size} bytes at mbarrier {format_expr(at)} {{"
                yield from (f"{pad}    {line}" for line in format_body(inner).splitlines())
                yield f"{pad}}}"
            case TmaStore(body=inner):
                yield f"{pad}one thread starts TMA stores, cp.async.bulk.commit_group {{"
                yield from (f"{pad}    {line}" for line in format_body(inner).splitlines())
                yield f"{pad}}}"
            case WaitTmaStores():
                yield f"{pad}cp.async.bulk.wait_group.read 0"
            case WaitMbarrier(at=at):
                yield f"{pad}mbarrier.try_wait {format_expr(at)}"
            case ArriveMbarrier(at=at):
                yield f"{pad}mbarrier.arrive {format_expr(at)}"
            case Barrier():
                yield f"{pad}barrier"
            case ProxyFence():
                yield f"{pad}fence.proxy.async"
            case WgmmaFence(buffers=buffers):
                yield f"{pad}wgmma.fence{''.join(f' {b}' for b in buffers)}"
            case WgmmaWait(groups=groups, ends_group=ends_group):
                if ends_group:
                    yield f"{pad}wgmma.commit_group"
                yield f"{pad}wgmma.wait_group {groups}"
            case Ticket(chain=chain):
                yield f"{pad}be the block of the next number of {chain}"
            case LookBack(chain=chain, step=step, conds=conds, made=made):
                cond = "".join(f", if {format_expr(c)}" for c in conds)
                yield f"{pad}one thread looks back from step {format_expr(step)} of {chain}{cond} {{"
                yield from (f"{pad}    {line}" for line in format_body((*s.terms, made, s.before)).splitlines())
                yield f"{pad}}}"
            case Steps(var=var, end=end, body=inner):
                yield f"{pad}for {var} in 0 .. {format_expr(end)} {{"
                yield from _lines(inner, pad + "    ")
                yield f"{pad}}}"
            case Guard(cond=cond, body=inner):
                yield f"{pad}if {format_expr(cond)} {{"
                yield from _lines(inner, pad + "    ")
                yield f"{pad}}}"
            case Role(name=name, threads=threads, registers=registers, alone=alone, body=inner):
                own = f", setmaxnreg {registers}" if registers else ""
                who = f"one of {counted(threads, 'thread')}" if alone else counted(threads, "thread")
                yield f"{pad}role {name}, {who}{own} {{"
                yield from _lines(inner, pad + "    ")
                yield f"{pad}}}"
            case _:
                assert_never(s)
