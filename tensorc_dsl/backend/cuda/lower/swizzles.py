"""Gives the elements of swizzled buffers their places: the last step, when all proofs about elements are done.

The place is a permutation of the elements of a buffer, the same in all accesses. So it changes nothing of what threads race
for, own or copy, and these were decided for plain subscripts. Elements of one access stay adjacent, since it is
aligned and no larger than a unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.affine.simplify import is_multiple, linear_form, simplify
from tensorc_dsl.backend.cuda.lower.collectives import element_of, is_of_group, operands_of
from tensorc_dsl.backend.cuda.lower.descriptors import descriptors_of, require_described, require_whole_lines
from tensorc_dsl.backend.cuda.lower.kernels import (
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
    launch_ranges,
)
from tensorc_dsl.ir.expr import ZERO, Expr, Load, Var, add, constant, free_vars, substitute, transform
from tensorc_dsl.ir.program import LoopKind
from tensorc_dsl.ir.swizzle import Swizzle, swizzled
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
    Store,
    store_loads,
    stores,
)
from tensorc_dsl.lower.ranges import span, within

Orders = Mapping[str, Swizzle]
"""The buffers that are not in plain order."""


def with_swizzles(k: DeviceKernel) -> DeviceKernel:
    """The kernel with the elements of its shared buffers in their orders. Raises LowerError if an instruction takes more
    adjacent elements than an order keeps together."""
    orders = {b.name: b.swizzle for b in k.shared if b.swizzle is not None}
    described = bool(k.maps) or any(is_of_group(s.intrinsic) for s in collectives_in(k.body))
    return replace(k, body=_device(k.body, orders, launch_ranges(k))) if orders or described else k


def _device(body: tuple[Device, ...], orders: Orders, ranges: Ranges) -> tuple[Device, ...]:
    out: list[Device] = []
    for s in body:
        match s:
            case Phase():
                out.append(replace(s, body=_flat(s.body, orders, ranges, ())))
            case Steps(var=var, end=end):
                out.append(replace(s, body=_device(s.body, orders, {**ranges, var: span(end)})))
            case Guard(cond=cond):
                out.append(Guard(_expr(cond, orders, ranges, ()), _device(s.body, orders, ranges)))
            case WaitGroup():
                out.append(replace(s, landed=_flat(s.landed, orders, ranges, ())))
            case TmaLoad(body=inner) | TmaStore(body=inner):
                require_whole_lines(inner, orders, ranges)
                out.append(s)
            case Role(first=first, threads=threads, body=inner):
                mine: Ranges = {**ranges, THREAD: (first, first + threads - 1)}
                out.append(replace(s, body=_device(inner, orders, mine)))
            case LookBack():
                out.append(replace(s, terms=_flat(s.terms, orders, ranges, ())))
            case (
                InitMbarriers()
                | WaitMbarrier()
                | WaitTmaStores()
                | ArriveMbarrier()
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


def _flat(body: tuple[Flat, ...], orders: Orders, ranges: Ranges, lanes: tuple[str, ...]) -> tuple[Flat, ...]:
    """The statements; `lanes` are the variables that count what is accessed at once."""
    out: list[Flat] = []
    for s in body:
        match s:
            case Store(buffer=buffer, indices=(at,), value=value):
                at = _place(at, orders[buffer], ranges, lanes) if buffer in orders else at
                out.append(replace(s, indices=(at,), value=_expr(value, orders, ranges, lanes)))
            case Loop(var=var, body=inner):
                # Bounds may be numbers of the data, which are in shared memory too.
                begin, end = (_expr(e, orders, ranges, lanes) for e in (s.begin, s.end))
                if s.kind is LoopKind.VECTORIZED and not _is_whole(s, orders):
                    s = replace(s, kind=LoopKind.UNROLLED)
                own = (*lanes, var) if s.kind is LoopKind.VECTORIZED else lanes
                inside = _flat(inner, orders, within(ranges, s), own)
                out.append(replace(s, begin=begin, end=end, body=inside))
            case If(cond=cond, body=inner):
                out.append(If(_expr(cond, orders, ranges, lanes), _flat(inner, orders, ranges, lanes)))
            case Alloc(body=inner) | Shuffle(body=inner):
                out.append(replace(s, body=_flat(inner, orders, ranges, lanes)))
            case Collective(body=inner):
                _require_together(s, orders)
                require_described(s, orders, ranges)
                own = tuple(element_of(b.name) for b in s.intrinsic.operands)
                plain = {d.buffer for d in descriptors_of(s).values()}  # the instruction permutes these itself
                others = {name: order for name, order in orders.items() if name not in plain}
                out.append(replace(s, body=_flat(inner, others, ranges, own)))
            case _:
                assert not isinstance(s, Store | Parallel | Instruction), "no pass of GPUs makes them"
                assert_never(s)
    return tuple(out)


def _expr(e: Expr, orders: Orders, ranges: Ranges, lanes: tuple[str, ...]) -> Expr:
    def load(x: Expr) -> Expr:
        if isinstance(x, Load) and x.buffer in orders:
            return Load(x.buffer, (_place(x.indices[0], orders[x.buffer], ranges, lanes),), x.dtype)
        return x

    return transform(e, load)


def _place(e: Expr, s: Swizzle, ranges: Ranges, lanes: tuple[str, ...]) -> Expr:
    """The place of an element: that of the first one that is accessed at once, and the number among these."""
    first = substitute(e, dict.fromkeys(lanes, ZERO))
    out = simplify(swizzled(*linear_form(first, ranges), s), ranges)
    for v in lanes:
        out = add(out, Var(v)) if v in free_vars(e) else out
    return out


def _is_whole(loop: Loop, orders: Orders) -> bool:
    """Whether the lanes of a vector are in one unit of each buffer that is not in plain order."""
    count = constant(loop.end) or 0
    for s in stores(loop.body):
        for buffer, (at, *_) in ((s.buffer, s.indices), *((x.buffer, x.indices) for x in store_loads(s))):
            if buffer in orders and loop.var in free_vars(at):
                first = substitute(at, {loop.var: ZERO})
                if orders[buffer].unit % count or not is_multiple(first, count, {}):
                    return False
    return True


def _require_together(s: Collective, orders: Orders) -> None:
    for a in operands_of(s).values():
        n = a.held.adjacent if a.held.addresses else 1
        if a.buffer in orders and orders[a.buffer].unit % n:
            raise LowerError(
                f"{s.intrinsic.name} takes {n} adjacent elements of `{a.buffer}`, of which the swizzle keeps"
                f" {orders[a.buffer].unit} together; swizzle it in units of a multiple of {n}"
            )
