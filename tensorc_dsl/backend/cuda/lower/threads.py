"""Statements of one thread: values for variables, buffers of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.kernels import (
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
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
from tensorc_dsl.ir.expr import ZERO, Expr, constant, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import LoopKind, Store, store_at
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    LowerError,
    Parallel,
    Shuffle,
    TmaTile,
)


def size_of(s: Alloc) -> int:
    size = constant(s.size)
    if size is None:
        raise LowerError(
            f"`{s.name}` has an open size, `{format_expr(s.size)}`, and memory of a block or a thread has a known one;"
            ' give it a size, or store it in "global"'
        )
    return max(1, size)


def plain(body: Sequence[Flat], values: Mapping[str, Expr]) -> tuple[Flat, ...]:
    """Statements of one thread: with values for bound variables, loops of one iteration gone, buffers of its own."""
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(store_at(s, values))
            case Loop() if constant(s.begin) == 0 and constant(s.end) == 1:
                out += plain(s.body, {**values, s.var: ZERO})
            case Loop():
                kind = LoopKind.SERIAL if s.kind is LoopKind.PARALLEL else s.kind
                ends = substitute(s.begin, values), substitute(s.end, values)
                out.append(Loop(s.var, *ends, kind, plain(s.body, values), s.scattered))
            case If():
                out.append(If(substitute(s.cond, values), plain(s.body, values)))
            case Alloc():
                out.append(replace(s, size=_count(s), space="stack", body=plain(s.body, values)))
            case Collective(tile=TmaTile() as tile):
                origin = tuple(substitute(e, values) for e in tile.origin)
                out.append(replace(s, body=plain(s.body, values), tile=replace(tile, origin=origin)))
            case Collective() | Shuffle():
                out.append(replace(s, body=plain(s.body, values)))
            case Parallel() | Instruction():
                raise AssertionError("no pass of GPUs makes them")
    return tuple(out)


def _count(s: Alloc) -> Expr:
    size_of(s)
    return s.size


def with_values(body: tuple[Device, ...], values: Mapping[str, Expr]) -> tuple[Device, ...]:
    """Statements of a kernel with values for variables."""
    out: list[Device] = []
    for s in body:
        match s:
            case Phase():
                out.append(replace(s, body=plain(s.body, values)))
            case Steps():
                out.append(Steps(s.var, substitute(s.end, values), with_values(s.body, values)))
            case Guard():
                out.append(Guard(substitute(s.cond, values), with_values(s.body, values)))
            case WaitGroup():
                out.append(replace(s, landed=plain(s.landed, values)))
            case TmaStore(body=inner):
                out.append(replace(s, body=plain(inner, values)))
            case TmaLoad(at=at, body=inner):
                out.append(replace(s, at=substitute(at, values), body=plain(inner, values)))
            case WaitMbarrier(at=at) | ArriveMbarrier(at=at):
                out.append(replace(s, at=substitute(at, values)))
            case Role():
                out.append(replace(s, body=with_values(s.body, values)))
            case LookBack():
                numbers = tuple(substitute(e, values) for e in (s.step, s.slot, *s.conds))
                made, before = (x for x in plain((s.made, s.before), values) if isinstance(x, Store))
                out.append(LookBack(s.chain, numbers[0], numbers[2:], numbers[1], plain(s.terms, values), made, before))
            case (
                InitMbarriers()
                | WaitTmaStores()
                | Barrier()
                | CommitGroup()
                | ProxyFence()
                | WgmmaFence()
                | WgmmaWait()
                | Ticket()
            ):
                out.append(s)
            case _:
                assert_never(s)
    return tuple(out)


def of_thread(body: tuple[Device, ...]) -> tuple[Flat, ...]:
    """What one thread runs of statements that have no barriers and no copies under way."""
    out: list[Flat] = []
    for s in body:
        match s:
            case Phase(body=inner) | TmaLoad(body=inner) | TmaStore(body=inner):
                out += inner
            case WaitMbarrier():
                pass
            case Steps(var=var, end=end, body=inner):
                out.append(Loop(var, ZERO, end, LoopKind.SERIAL, of_thread(inner)))
            case Guard(cond=cond, body=inner):
                out.append(If(cond, of_thread(inner)))
            case LookBack(terms=terms, before=before):
                out += (*terms, before)
            case (
                InitMbarriers()
                | ArriveMbarrier()
                | Role()
                | WaitTmaStores()
                | Barrier()
                | CommitGroup()
                | WaitGroup()
                | ProxyFence()
                | WgmmaFence()
                | WgmmaWait()
                | Ticket()
            ):
                raise AssertionError("statements are made plain before barriers and waits are in them")
            case _:
                assert_never(s)
    return tuple(out)
