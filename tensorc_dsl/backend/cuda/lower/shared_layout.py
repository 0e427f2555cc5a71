"""The descriptors of operands in shared memory that an instruction takes as a whole: where they begin, and how they lie.

Eight lines of 16, 32, 64 or 128 bytes follow each other; the next eight are at a distance, and what is beyond the width of a
line at another one. Both distances follow from the strides of the buffer, and each element is checked to be where they say.
The instruction permutes units of 16 bytes itself, by bits of the address: so the buffer has to have the same swizzle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.collectives import accesses_of, dimension_of, element_of, is_of_group, lane_operands
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
    tma_in,
)
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.annotations import Swizzle, swizzled
from tensorc_dsl.ir.expr import (
    ZERO,
    Expr,
    Load,
    Var,
    add,
    constant,
    floordiv,
    floormod,
    free_vars,
    index,
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.identity import by_first
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.warp import LINES, UNIT, Described, described, points
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
    span,
    store_loads,
    stores,
    stride,
    within,
)
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import bounds, is_multiple, linear_form, simplify

ALIGNMENT = LINES * 128
"""The alignment in bytes of buffers with descriptors: that of eight of the longest lines, in which swizzles repeat."""


@frozen
class Descriptor:
    """An operand in shared memory: its first element, the bytes between groups of eight lines, and those to what is beyond
    the width of a line."""

    operand: Described
    buffer: str
    first: Expr
    groups: int
    beyond: int

    @property
    def unit(self) -> Expr:
        """The number of the unit of 16 bytes in the buffer with which it begins: see `require_described`."""
        return simplify(floordiv(self.first, index(UNIT // self.operand.operand.dtype.bytes)), {})


def descriptors_of(s: Collective) -> dict[str, Descriptor]:
    """The descriptors of operands in shared memory that an instruction takes. Raises LowerError if none says how one lies."""
    out: dict[str, Descriptor] = {}
    for b, x in accesses_of(s):
        d = described(s.intrinsic, b)
        if d is not None and b.scope.partition(".")[0] == "shared":
            at = x.indices[0]
            dims = [dimension_of(b.name, n) for n in range(len(b.shape))]
            steps = [stride(at, v) for v in dims]
            out[b.name] = _descriptor(s, d, x.buffer, substitute(at, dict.fromkeys(dims, ZERO)), steps)
    return out


def _descriptor(s: Collective, d: Described, buffer: str, first: Expr, steps: list[int | None]) -> Descriptor:
    size = d.operand.dtype.bytes
    known = tuple(n for n in steps if n is not None)
    if len(known) == len(steps) and (found := _distances(d, known)) is not None:
        return Descriptor(d, buffer, first, *found)
    raise LowerError(
        f"{s.intrinsic.name} takes `{d.operand.name}` in lines of {d.width} bytes, eight of them in a row, and those of"
        f" `{buffer}` are not so: its elements are {' and '.join('…' if n is None else str(n) for n in steps)} apart; let the"
        f" rows of `{buffer}` have {d.width // size} elements"
    )


@by_first(64)
def _distances(d: Described, steps: tuple[int, ...]) -> tuple[int, int] | None:
    """The bytes between groups of eight lines, and those to what is beyond the width of a line, where an operand has these
    strides; None if its elements are elsewhere."""
    size = d.operand.dtype.bytes
    places = {
        (line, number * size): size * sum(x * n for x, n in zip(point, steps, strict=True))
        for line, number, point in zip(d.lines, d.numbers, points(d.operand.shape), strict=True)
    }
    groups, beyond = places.get((LINES, 0), 0), places.get((0, d.width), 0)
    if min(groups, beyond) >= 0 == groups % UNIT == beyond % UNIT and all(
        place == line % LINES * d.width + line // LINES * groups + at % d.width + at // d.width * beyond
        for (line, at), place in places.items()
    ):
        return groups, beyond
    return None


def require_described(s: Collective, orders: Mapping[str, Swizzle], ranges: Ranges) -> None:
    """Raises LowerError unless the buffers of descriptors are permuted as these say, and operands begin where they can."""
    for d in descriptors_of(s).values():
        size, width = d.operand.operand.dtype.bytes, d.operand.width
        name, operand = s.intrinsic.name, d.operand.operand.name
        found, wanted = orders.get(d.buffer), swizzle_of(d.operand)
        if found != wanted:
            has = (
                "none"
                if found is None
                else f"one of {found.bits} bits in units of {found.unit} and {found.shift} further up"
            )
            how = (
                f"`storage_swizzle` it in units of {UNIT // size} elements, with rows of {width // size}"
                if wanted is not None
                else "leave its rows as they are"
            )
            raise LowerError(
                f"{name} takes `{operand}` with a swizzle of {d.operand.swizzle} bytes, and `{d.buffer}` has {has}; {how}"
            )
        atom = simplify(floormod(d.first, index(LINES * width // size)), ranges)
        low, high = bounds(atom, ranges)
        length = min(width, (max(d.operand.numbers) + 1) * size)
        if (
            low is None
            or high is None
            or high * size + length > width
            or not is_multiple(d.first, UNIT // size, ranges)
        ):
            raise LowerError(
                f"{name} takes `{operand}` from element `{format_expr(simplify(d.first, ranges))}` of `{d.buffer}` on, which"
                f" is not known to be in the first of {LINES} lines of {width} bytes, at a multiple of {UNIT} bytes; let"
                f" tiles have a multiple of {LINES} lines"
            )


def swizzle_of(d: Described) -> Swizzle | None:
    """The swizzle of a buffer that a descriptor speaks of."""
    size = d.operand.dtype.bytes
    bits = (d.width // UNIT).bit_length() - 1
    return Swizzle(UNIT // size, bits, 3) if bits else None


def require_whole_lines(body: Sequence[Flat], orders: Mapping[str, Swizzle], ranges: Ranges) -> None:
    """Raises LowerError unless each tile is, in shared memory, as the machine writes it."""
    for s in tma_in(tuple(body)):
        require_described(s, orders, ranges)
        for d in descriptors_of(s).values():
            if max(d.operand.lines) >= LINES and d.groups != LINES * d.operand.width:
                raise LowerError(
                    f"{s.intrinsic.name} stores lines of {d.operand.width} bytes one behind the other, and those of"
                    f" `{d.buffer}` are apart; let a tile be of adjacent rows of `{d.buffer}`"
                )


def targets_of(body: Sequence[Flat]) -> Iterator[str]:
    """The buffers to which tiles are copied."""
    return (d.buffer for s in tma_in(tuple(body)) for d in descriptors_of(s).values())


# Gives the elements of swizzled buffers their places: the last step, when all proofs about elements are done.
#
# The place is a permutation of the elements of a buffer, the same in all accesses. So it changes nothing of what threads
# race for, own or copy, and these were decided for plain subscripts. Elements of one access stay adjacent, since it is
# aligned and no larger than a unit.


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
            case Role(threads=threads, body=inner):
                mine: Ranges = {**ranges, THREAD: (0, threads - 1)}
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

    return rewrite_expr(e, load)


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
    for a in lane_operands(s).values():
        n = a.held.adjacent if a.held.addresses else 1
        if a.buffer in orders and orders[a.buffer].unit % n:
            raise LowerError(
                f"{s.intrinsic.name} takes {n} adjacent elements of `{a.buffer}`, of which the swizzle keeps"
                f" {orders[a.buffer].unit} together; swizzle it in units of a multiple of {n}"
            )
