"""What it costs to compute the elements of a block where they are read: `b.work`, `b.inlined_work`, `b.is_read_in_place`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import prod

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    children,
    constant,
    dtype_of,
    free_vars,
    loads,
)
from tensorc_dsl.ir.program import Block, Program, blocks, walk
from tensorc_dsl.schedule.nests import the_block
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.queries.block import extents, is_injective
from tensorc_dsl.schedule.query import nominal, query
from tensorc_dsl.schedule.refs import BlockRef

_SLOW = 8
"""What a quotient, a maths function or a read where data say takes, in operations of a vector."""

_SHORT = 16
"""Loops of fewer iterations are unrolled."""


@query
def is_read_in_place(program: Program, block: BlockRef) -> bool:
    """Whether it maps elements, and so does its only consumer, which reads each where it computes the element of the same
    position, of as many, in the same order. `compute_inline` then computes nothing twice, and one load and one store less.
    """
    b = the_block(program, block)[1]
    others = [o for o in _readers(program, b) if o.name != b.name]
    if len(others) != 1 or not is_injective(program, block) or not is_injective(program, BlockRef(others[0].name)):
        return False
    own, other = b.body[0], others[0].body[0]
    return _extents(b, own.indices) == _extents(others[0], other.indices) and {
        x.indices for x in loads(other.value) if x.buffer == own.buffer
    } == {other.indices}


@query
def work(program: Program, block: BlockRef) -> int:
    """The operations on values and the reads for one of its elements, each distinct one counted once. Slow ones, such as
    quotients, maths functions and reads where data say, count as 8; index arithmetic is free.
    """
    return _work(the_block(program, block)[1])


@query
def inlined_work(program: Program, block: BlockRef) -> int:
    """How much more work its consumers have after `compute_inline`, for each of its elements: at most its own work if none
    is computed twice. What an element of it is read for in all values of an iterator of fewer than 16, such as that of
    channels, is computed once: such loops are unrolled. Open sizes count as in `l.nominal_extent`. Refused if
    `compute_inline` is.
    """
    program = nominal(program)
    b = the_block(program, block)[1]
    after = apply(program, "compute_inline", block).program
    more = 0
    for o in _readers(program, b):
        reader = BlockRef(o.name)
        reads = [x for s in o.body for x in loads(s.value) if x.buffer == b.body[0].buffer]
        moving = frozenset[str]().union(*map(free_vars, reads))
        sizes = zip((it.name for it in o.iters), extents(program, reader), strict=True)
        times = prod(n for name, n in sizes if n >= _SHORT or name in moving)
        more += times * (work(after, reader) - _work(o))
    return -(-more // max(1, prod(extents(program, block))))


def executed_work(program: Program) -> int:
    """The work of all blocks, as often as their loops run them. Open sizes count as in `l.nominal_extent`, and conditions as
    if they held."""
    found = walk(nominal(program).body)
    return sum(_times(x.extent for x in loops) * (1 + _work(b)) for loops, b in found if isinstance(b, Block))


def own_work(program: Program) -> int:
    """The same, if each block computed each of its elements once."""
    return sum(_times(it.extent for it in b.iters) * (1 + _work(b)) for b in blocks(nominal(program)))


def _times(sizes: Iterable[Expr]) -> int:
    """Those that data decide count as 1."""
    return prod(constant(x) or 1 for x in sizes)


def _readers(program: Program, b: Block) -> list[Block]:
    written = {s.buffer for s in b.body}
    return [o for o in blocks(program) if any(x.buffer in written for s in o.body for x in loads(s.value))]


def _extents(b: Block, indices: tuple[Expr, ...]) -> list[Expr]:
    """The extents of the iterators that are the subscripts."""
    found = {Var(it.name): it.extent for it in b.iters}
    return [found[i] for i in indices if isinstance(i, Var)]


def _work(b: Block) -> int:
    known: dict[_Made, int] = {}
    for s in b.body:
        _number(s.value, known, {})
    return sum(cost for _, cost, _ in known)


_Made = tuple[Hashable, int, tuple[int, ...]]
"""What makes an expression: what it is, its cost, and the numbers of its parts."""


def _number(e: Expr, known: dict[_Made, int], seen: dict[int, int]) -> int:
    """The number of an expression, equal for equal ones; comparing whole ones would take the square of their size."""
    if (found := seen.get(id(e))) is None:
        parts = tuple(_number(c, known, seen) for c in children(e))
        found = seen[id(e)] = known.setdefault((_what(e), _cost(e), parts), len(known))
    return found


def _what(e: Expr) -> Hashable:
    """What an expression is beside its parts."""
    match e:
        case Const() | Var() | Dim():
            return e
        case Binary(op=op) | Compare(op=op) | Logic(op=op):
            return type(e), op
        case Cast(dtype=t) | Bitcast(dtype=t):
            return type(e), t
        case Call(function=f):
            return Call, f
        case Load(buffer=b):
            return Load, b
        case _:
            return type(e)


def _cost(e: Expr) -> int:
    match e:
        case Load(indices=indices):
            return _SLOW if any(map(loads, indices)) else 1
        case Call():
            return _SLOW
        case Binary(op=op, lhs=lhs, rhs=rhs):
            if dtype_of(lhs) == INDEX:
                return 0
            return _SLOW if op in ("/", "%") and not isinstance(rhs, Const) else 1
        case Compare(lhs=operand) | Cast(operand=operand):
            return int(dtype_of(operand) != INDEX)
        case Select():
            return 1
        case _:
            return 0
