"""Queries about a block: `b.loops`, `b.has_reuse`, `b.work`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import prod
from typing import TypeGuard

from tensorc_dsl.base.frozen import replace
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
    index,
    loads,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, For, IterKind, LoopKind, Program, blocks, is_scattered, walk
from tensorc_dsl.ir.program import blocks as all_blocks
from tensorc_dsl.ir.reductions import not_atomic
from tensorc_dsl.proof.sets.running import running
from tensorc_dsl.proof.sets.store_guards import Chosen, NotChosen, chosen_iteration, needed, never_negative_zero
from tensorc_dsl.schedule.motion import is_param
from tensorc_dsl.schedule.nests import the_block
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.queries.loop import LETTERS
from tensorc_dsl.schedule.query import nominal, query
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, refusal

# Questions about reductions of which data say where they begin or end: rows of a sparse matrix, sequences of any length.


def ragged_iterators(program: Program, b: Block) -> frozenset[str]:
    """The spatial iterators for each value of which data say where the reduction begins or ends.

    Lowering gives a loop such bounds (decision 92) if it is inside of the loops of these iterators.
    """
    reduced = {it.name for it in b.iters if it.kind is IterKind.REDUCE}
    spatial = {it.name for it in b.iters if it.kind is IterKind.SPATIAL}
    out = frozenset[str]()
    if not reduced or not any(loads(s.value) for s in b.body):
        return out
    above_zero = never_negative_zero(program)
    for s in b.body:
        for c in needed(s, above_zero):
            read = frozenset[str]().union(*map(free_vars, loads(c)))
            if read and read.isdisjoint(reduced) and not free_vars(c).isdisjoint(reduced):
                out |= read & spatial
    return out


@query
def is_ragged(program: Program, block: BlockRef) -> bool:
    """Whether it is a reduction of which data say where it begins or ends, such as a product with a sparse matrix, row by
    row: `sum[p] (V[p] * X[J[p]] if R[i] <= i32(p) and i32(p) < R[i + 1] else 0.0)`.
    """
    return bool(ragged_iterators(program, the_block(program, block)[1]))


@refusal(
    "E0384",
    "iterator `{iterator}` of `{block}` runs over `{extent}`, not over a number",
    help="ask its loops first: `l.is_open`",
)
def OPEN_ITERATOR(*focus: str, iterator: str, block: str, extent: str) -> None: ...


def _own_reads(b: Block) -> tuple[Load, ...]:
    """The loads of the block, without the running value of its own reduction."""
    written = {s.buffer for s in b.body}
    found = [x for s in b.body for x in (*loads(s.value), *(y for i in s.indices for y in loads(i)))]
    return tuple(x for x in found if not (b.is_reduction and x.buffer in written))


def _buffers(names: list[str]) -> tuple[BufferRef, ...]:
    return tuple(BufferRef(n) for n in dict.fromkeys(names))


@query
def name(program: Program, block: BlockRef) -> str:
    """Its name."""
    return the_block(program, block)[1].name


@query
def annotated(program: Program, block: BlockRef, key: str, value: int | float | str | bool) -> bool:
    """Whether it carries an annotation with this value: of its stage, `@("key", value)`, or of `annotate`."""
    found = dict(the_block(program, block)[1].annotations)
    return key in found and found[key] == value and isinstance(found[key], bool) == isinstance(value, bool)


# --- loops and iterators ---------------------------------------------------------------------------------------------


@query
def loops(program: Program, block: BlockRef) -> tuple[LoopRef, ...]:
    """The loops around it, outermost first."""
    return tuple(LoopRef(loop.var) for loop in the_block(program, block)[0])


def _loops_of(program: Program, block: BlockRef, spatial: bool) -> tuple[LoopRef, ...]:
    around, b = the_block(program, block)
    used: dict[bool, set[str]] = {True: set(), False: set()}
    for it in b.iters:
        used[it.kind is IterKind.SPATIAL] |= free_vars(it.binding)
    keep = used[True] - used[False] if spatial else used[False]
    return tuple(LoopRef(loop.var) for loop in around if loop.var in keep)


@query
def spatial_loops(program: Program, block: BlockRef) -> tuple[LoopRef, ...]:
    """The loops around it that only its spatial iterators use, outermost first."""
    return _loops_of(program, block, True)


@query
def reduce_loops(program: Program, block: BlockRef) -> tuple[LoopRef, ...]:
    """The loops around it that its reductions (or scans) use, outermost first."""
    return _loops_of(program, block, False)


@query
def iters(program: Program, block: BlockRef) -> tuple[str, ...]:
    """The names of its iterators, in order. They stay when loops are split and moved."""
    return tuple(it.name for it in the_block(program, block)[1].iters)


@query
def kinds(program: Program, block: BlockRef) -> tuple[str, ...]:
    """The kinds of its iterators, in order: "S" spatial, "R" reduction, "C" scan."""
    return tuple(LETTERS[it.kind] for it in the_block(program, block)[1].iters)


@query
def extents(program: Program, block: BlockRef) -> tuple[int, ...]:
    """The number of values of each of its iterators, in order; refused if one is open."""
    out: list[int] = []
    for it in the_block(program, block)[1].iters:
        extent = constant(it.extent)
        if extent is None:
            facts = {"iterator": it.name, "block": block.name, "extent": format_expr(it.extent)}
            raise OPEN_ITERATOR(program, block.name, **facts)
        out.append(extent)
    return tuple(out)


# --- data ------------------------------------------------------------------------------------------------------------


@query
def reads(program: Program, block: BlockRef) -> tuple[BufferRef, ...]:
    """The buffers that it reads, without those that its reduction accumulates into."""
    return _buffers([x.buffer for x in _own_reads(the_block(program, block)[1])])


@query
def writes(program: Program, block: BlockRef) -> tuple[BufferRef, ...]:
    """The buffers that it writes."""
    return _buffers([s.buffer for s in the_block(program, block)[1].body])


@query
def producers(program: Program, block: BlockRef) -> tuple[BlockRef, ...]:
    """The blocks that write the buffers that it reads, in the order of the text."""
    read = {x.buffer for x in _own_reads(the_block(program, block)[1])}
    others = (o for o in all_blocks(program) if o.name != block.name)
    return tuple(BlockRef(o.name) for o in others if any(s.buffer in read for s in o.body))


@query
def ancestors(program: Program, block: BlockRef) -> tuple[BlockRef, ...]:
    """The blocks that its inputs depend on: its producers, their producers, and so on, in the order of the text."""
    found: dict[str, BlockRef] = {}
    waiting = [block]
    while waiting:
        above = producers(program, waiting.pop())
        waiting += [p for p in above if p.name not in found]
        found |= {p.name: p for p in above}
    return tuple(BlockRef(o.name) for o in all_blocks(program) if o.name in found and o.name != block.name)


@query
def consumers(program: Program, block: BlockRef) -> tuple[BlockRef, ...]:
    """The blocks that read the buffers that it writes, in the order of the text."""
    written = {s.buffer for s in the_block(program, block)[1].body}
    others = (o for o in all_blocks(program) if o.name != block.name)
    return tuple(BlockRef(o.name) for o in others if any(x.buffer in written for x in _own_reads(o)))


@query
def is_untouched(program: Program, block: BlockRef) -> bool:
    """Whether its loops contain no other block, and the outermost one is serial, so that no step has given it a kind.
    False without loops.
    """
    around = the_block(program, block)[0]
    if not around or around[0].kind is not LoopKind.SERIAL:
        return False
    return sum(isinstance(s, Block) for _, s in walk(around[0].body)) == 1


# --- what it is ------------------------------------------------------------------------------------------------------


@query
def is_output(program: Program, block: BlockRef) -> bool:
    """Whether it writes an output of the kernel."""
    return any(is_param(program, s.buffer) for s in the_block(program, block)[1].body)


@query
def is_reduction(program: Program, block: BlockRef) -> bool:
    """Whether it accumulates along some of its iterators."""
    return the_block(program, block)[1].is_reduction


@query
def is_scan(program: Program, block: BlockRef) -> bool:
    """Whether it runs along one of its iterators in order, each step reading the one before."""
    return any(it.kind is IterKind.SCAN for it in the_block(program, block)[1].iters)


@query
def is_scaled_scan(program: Program, block: BlockRef) -> bool:
    """Whether it is a scan that scales the value before and adds a term, such as `A[t] * Y[t - 1] + X[t]`."""
    scan = running(the_block(program, block)[1])
    return scan is not None and scan.scale is not None


@query
def is_segmented_scan(program: Program, block: BlockRef) -> bool:
    """Whether it is a scan that begins anew in some steps, such as `X[t] if F[t] != 0 else Y[t - 1] + X[t]`."""
    scan = running(the_block(program, block)[1])
    return scan is not None and scan.reset is not None


@query
def is_injective(program: Program, block: BlockRef) -> bool:
    """Whether it maps elements: no reduction or scan, and one store whose subscripts are its iterators, each once."""
    b = the_block(program, block)[1]
    if any(it.kind is not IterKind.SPATIAL for it in b.iters) or len(b.body) != 1:
        return False
    return _are_iterators(b.body[0].indices)


def _are_iterators(indices: tuple[Expr, ...]) -> bool:
    names = [i.name for i in indices if isinstance(i, Var)]
    return len(names) == len(indices) and len(set(names)) == len(names)


@query
def is_rolled(program: Program, block: BlockRef) -> bool:
    """Whether it maps elements into a buffer that keeps a part of them, as after `rolling_buffer`: one store, whose
    subscripts are its iterators, each once, some of them modulo a number.
    """
    b = the_block(program, block)[1]
    if any(it.kind is not IterKind.SPATIAL for it in b.iters) or len(b.body) != 1 or b.init:
        return False
    indices = b.body[0].indices
    whole = tuple(i.lhs if _is_wrapped(i) else i for i in indices)
    return whole != indices and _are_iterators(whole)


def _is_wrapped(e: Expr) -> TypeGuard[Binary]:
    return isinstance(e, Binary) and e.op == "%" and constant(e.rhs) is not None


@query
def functions(program: Program, block: BlockRef) -> tuple[str, ...]:
    """The maths functions that it calls, each once, in alphabetical order: `["exp"]`."""
    b = the_block(program, block)[1]
    waiting, found = [s.value for s in b.body], set[str]()
    while waiting:
        e = waiting.pop()
        waiting += children(e)
        if isinstance(e, Call):
            found.add(e.function)
    return tuple(sorted(found))


@query
def inlined_reads(program: Program, block: BlockRef) -> int:
    """The most reads that an element of a consumer would take with `compute_inline`: each read of an element of this block
    becomes the reads of that element, as often as it is written. Code grows with it, and so does the time to compile it.
    """
    b = the_block(program, block)[1]
    written = {s.buffer for s in b.body}
    own = sum(len(loads(s.value)) for s in b.body)
    others = (
        [x.buffer in written for s in o.body for x in loads(s.value)] for o in all_blocks(program) if o.name != b.name
    )
    return max((len(reads) + reads.count(True) * (own - 1) for reads in others if any(reads)), default=0)


@query
def has_reuse(program: Program, block: BlockRef) -> bool:
    """Whether it is a reduction that reads some element more than once: it reads a buffer without a spatial iterator.

    Iterators with a single value do not count, nor do those for each of which data say where the reduction begins or ends.
    False for a reduction in the step of a scan, where tiles would hold several steps, and for one that is scattered, which
    adds each term once.
    """
    around, b = the_block(program, block)
    if not b.is_reduction or any(it.kind is IterKind.SCAN for it in b.iters) or any(map(is_scattered, around)):
        return False
    spatial = {it.name for it in b.iters if it.kind is IterKind.SPATIAL and constant(it.extent) != 1}
    spatial -= ragged_iterators(program, b)
    return any(spatial - frozenset[str]().union(*map(free_vars, x.indices)) for x in _own_reads(b))


@query
def is_window(program: Program, block: BlockRef) -> bool:
    """Whether it is a reduction over a window that moves with its elements, as a stencil is: it reads some buffer at sums of
    spatial and other iterators, and each buffer with all of the spatial iterators, or, as it reads taps, with none.
    """
    b = the_block(program, block)[1]
    if not b.is_reduction or any(it.kind is IterKind.SCAN for it in b.iters):
        return False
    spatial = {it.name for it in b.iters if it.kind is IterKind.SPATIAL and constant(it.extent) != 1}
    reads = _own_reads(b)
    moving = [x for x in reads if not spatial.isdisjoint(free_vars(x))]
    return all(spatial <= free_vars(x) for x in moving) and any(
        not spatial.isdisjoint(free_vars(i)) and not free_vars(i) <= spatial for x in moving for i in x.indices
    )


@query
def reuses(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether it reads some buffer without the iterators that the loop drives, so that all iterations of the loop read
    the same elements of it. A register tile along a loop without reuse, such as that of a batch, saves no load; one along a
    loop for each of whose iterations data say where the reduction begins or ends has no bounds of its own.
    """
    b = the_block(program, block)[1]
    driven = {it.name for it in b.iters if loop.name in free_vars(it.binding)}
    return driven.isdisjoint(ragged_iterators(program, b)) and any(
        driven.isdisjoint(frozenset[str]().union(*map(free_vars, x.indices))) for x in _own_reads(b)
    )


# Questions about sums over matches: where data choose the element that a term is added to, and who may add to it at once.


def _chosen(program: Program, block: BlockRef) -> dict[str, Chosen]:
    """The spatial loops of which data choose one iteration for each term, if all other loops were around them."""
    around, b = the_block(program, block)
    found: dict[str, Chosen] = {}
    if not b.is_reduction:
        return found
    mine = {x.name for x in spatial_loops(program, block)}
    for x in around:
        if x.var in mine and constant(x.extent) != 1:
            others = tuple(o for o in around if o is not x)
            alone: For = replace(x, body=(replace(b, init=()),))
            try:
                found[x.var] = chosen_iteration(others, alone)
            except NotChosen:
                continue
    return found


@query
def scatter_loops(program: Program, block: BlockRef) -> tuple[LoopRef, ...]:
    """Its spatial loops of which data choose one iteration for each term, outermost first: `scatter` takes them inside of its
    reduction loops, after `decompose_reduction`.
    """
    found = _chosen(program, block)
    return tuple(x for x in spatial_loops(program, block) if x.name in found)


@query
def scatter_rows(program: Program, block: BlockRef) -> tuple[LoopRef, ...]:
    """Its spatial loops along which data choose the same place, as along the rows of a table, outermost first: they may stand
    inside of those that are scattered. None if no loop can be scattered.
    """
    found = _chosen(program, block)
    deciding = frozenset[str]().union(*(free_vars(e) for c in found.values() for e in (c.at, *c.path)))
    rows = (x for x in spatial_loops(program, block) if x.name not in found and x.name not in deciding)
    return tuple(rows) if found else ()


@query
def can_be_atomic(program: Program, block: BlockRef, any_order: bool = False) -> bool:
    """Whether threads may make its updates at once, behind `decompose_reduction`: `atomic` would be accepted."""
    _, b = the_block(program, block)
    return b.is_reduction and not_atomic(replace(b, init=()), "any order" if any_order else "exact") is None


# What it costs to compute the elements of a block where they are read: `b.work`, `b.inlined_work`, `b.is_read_in_place`.


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
    own, reader = b.body[0], others[0]
    other = reader.body[0]
    return _extents(b, own.indices) == _extents(reader, other.indices) and {
        _place(reader, x.indices) for x in loads(other.value) if x.buffer == own.buffer
    } == {_place(reader, other.indices)}


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
    """The extents of the iterators that are the subscripts, but for those of one value."""
    found = {Var(it.name): it.extent for it in b.iters}
    return [found[i] for i in _place(b, indices) if isinstance(i, Var)]


def _place(b: Block, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The subscripts with 0 for each that is an iterator of one value."""
    ones = {Var(it.name) for it in b.iters if constant(it.extent) == 1}
    return tuple(index(0) if i in ones else i for i in indices)


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
