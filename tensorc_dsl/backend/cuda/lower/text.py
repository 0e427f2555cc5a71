"""Kernels of a GPU as text, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.kernels import (
    Arm,
    Arrived,
    Barrier,
    Commit,
    Device,
    DeviceProgram,
    Engage,
    Fetch,
    Finish,
    Guard,
    LookBack,
    Phase,
    Publish,
    Release,
    Role,
    Steps,
    Ticket,
    Wait,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.lower.flat import format_body, format_shape
from tensorc_dsl.units import counted


def format_device(p: DeviceProgram) -> str:
    """The kernels as text, for people and golden tests; it is not parsed back."""
    args = [f"{'out ' * x.output}{x.name}: {x.dtype}{format_shape(x.shape)}" for x in p.params]
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
                yield f"{pad}threads start copies {{" if asynchronous else f"{pad}threads {{"
                yield from (f"{pad}    {line}" for line in format_body(inner).splitlines())
                yield f"{pad}}}"
            case Commit():
                yield f"{pad}commit copies"
            case Wait(groups=groups):
                yield f"{pad}wait for copies" + (f", but for {counted(groups, 'group')}" if groups else "")
            case Arm(awaited=awaited):
                warps = "".join(f", {awaited.count(n)} of {counted(n, 'warp')}" for n in sorted({*awaited} - {0}))
                yield f"{pad}set up {counted(len(awaited), 'arrival')}{warps}"
            case Fetch(at=at, size=size, body=inner):
                yield f"{pad}one thread fetches {size} bytes, to arrival {format_expr(at)} {{"
                yield from (f"{pad}    {line}" for line in format_body(inner).splitlines())
                yield f"{pad}}}"
            case Arrived(at=at):
                yield f"{pad}wait for arrival {format_expr(at)}"
            case Release(at=at):
                yield f"{pad}release at arrival {format_expr(at)}"
            case Barrier():
                yield f"{pad}barrier"
            case Publish():
                yield f"{pad}publish stores"
            case Engage(buffers=buffers):
                yield f"{pad}be done with {', '.join(buffers) or 'products'}"
            case Finish(buffers=buffers, groups=groups):
                but = f", but for {counted(groups, 'group')}" if groups else ""
                yield f"{pad}wait for {', '.join(buffers) or 'products'}{but}"
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
                room = f" with {registers} registers" if registers else ""
                who = f"one of {counted(threads, 'thread')}" if alone else counted(threads, "thread")
                yield f"{pad}{name}, {who}{room} {{"
                yield from _lines(inner, pad + "    ")
                yield f"{pad}}}"
            case _:
                assert_never(s)
