"""Counts the statements that the threads of kernels run."""

from __future__ import annotations

import math
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.collectives import is_of_group
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
from tensorc_dsl.ir.expr import Const, Expr
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.warp import GROUP, LANES
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, Parallel, Shuffle

_TERMS = 4
"""The terms of an instruction's sums that take as long as a statement."""


def most_statements(p: DeviceProgram) -> float:
    """The statements that all threads of all kernels run together, at most; infinity if an extent is no number."""
    return sum(math.prod(map(_number, k.grid)) * k.threads * _most(k.body) for k in p.kernels)


def _most(body: tuple[Device | Flat, ...]) -> float:
    """The statements that one thread runs at most."""
    count = 0.0
    for s in body:
        match s:
            case (
                Store()
                | CommitGroup()
                | WaitGroup()
                | Barrier()
                | ProxyFence()
                | WgmmaFence()
                | WgmmaWait()
                | InitMbarriers()
                | WaitMbarrier()
                | ArriveMbarrier()
            ):
                count += 1
            case Ticket() | LookBack():
                count += 1
            case TmaLoad() | TmaStore() | WaitTmaStores():  # of one thread
                count += 1
            case Phase(body=inner) | Guard(body=inner) | Role(body=inner) | If(body=inner) | Alloc(body=inner):
                count += _most(inner)
            case Instruction(body=inner) | Shuffle(body=inner):
                count += _most(inner)
            case Collective(
                intrinsic=i, body=inner
            ):  # a lane loads and stores its elements, and has a part of the sums
                lanes = GROUP if is_of_group(i) else LANES
                count += _elements(inner) + math.prod(a.extent for a in i.axes) / lanes / _TERMS
            case Steps(end=end, body=inner):
                count += _number(end) * _most(inner)
            case Loop(begin=begin, end=end, body=inner):
                count += (_number(end) - _least(begin)) * _most(inner)
            case Parallel(extents=extents, body=inner):
                count += math.prod(map(_number, extents)) * _most(inner)
            case _:
                assert_never(s)
    return count


def _elements(body: tuple[Flat, ...]) -> float:
    """The elements of all operands that a lane has: `body` is one loop over them in the other."""
    return sum(_number(s.end) + _elements(s.body) for s in body if isinstance(s, Loop))


def _number(e: Expr) -> float:
    return e.value if isinstance(e, Const) else math.inf


def _least(begin: Expr) -> float:
    return begin.value if isinstance(begin, Const) else -math.inf
