"""`compute_at`: compute a producer where its consumers read it, and only the part that they read there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorc_dsl.ir.expr import ONE, ZERO, Expr, Var, constant, free_vars, index, substitute
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    IterKind,
    Program,
    Stmt,
    find_loop,
    replace_stmt,
    used_names,
    walk,
)
from tensorc_dsl.proof.sets.accesses import follow_writes
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.reductions import OUT_OF_ORDER, is_begun_before_steps
from tensorc_dsl.proof.sets.regions import (
    RangedSubscripts,
    Region,
    inner_ranges,
    instances_within,
    instances_writing,
    required_region,
    wrapped_window,
)
from tensorc_dsl.proof.sets.sets import bindings, loop_conditions
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify_where
from tensorc_dsl.schedule.motion import (
    BEYOND,
    NO_CONSUMER,
    NOT_READY,
    VECTOR,
    InsertionPoint,
    Nest,
    Stays,
    beyond,
    columns_of,
    is_param,
    is_scan,
    own_buffer,
    own_buffers,
    own_values,
    positions,
    read_indices,
    readers,
    require_no_vector,
    same_version,
    unready_input,
    writers,
    writes_before,
)
from tensorc_dsl.schedule.nests import (
    NO_BLOCK,
    NO_LOOP,
    nest_of,
    nest_over,
    remove_block,
    replace_buffer,
    stmt_name,
    the_block,
    the_loop,
)
from tensorc_dsl.schedule.primitives.compute_inline import CHANGED, NOT_INLINABLE, PARTIAL, compute_inline
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0353",
    "cannot compute `{block}` again at each use: it writes the output `{buffer}`",
    help="move what it reads below its loops instead, or `cache_write` it first and move the copy with `reverse_compute_at`",
    at="block",
)
def OUTPUT(*focus: str, block: str, buffer: str) -> None: ...
@refusal("E0354", "cannot compute `{block}` again at each use: {reason}", at="block")
def NOT_PURE(*focus: str, block: str, reason: str, repair: str) -> None: ...
@refusal(
    "E0356",
    "`{consumer}` reads `{buffer}` and stands outside of loop `{loop}`",
    help="choose a loop around all blocks that read `{buffer}`, or move or inline `{consumer}` first",
    at="loop",
    label="not around `{consumer}`",
)
def OUTSIDE(*focus: str, consumer: str, buffer: str, loop: str) -> None: ...
@refusal(
    "E0357",
    "cannot tell which part of `{block}` computes a region of `{buffer}`: its subscripts do not determine `{iterator}`",
    help="move it before changing the layout of `{buffer}`",
    at="block",
)
def NOT_INVERTIBLE(*focus: str, block: str, buffer: str, iterator: str) -> None: ...


@refusal("E0640", "`{block}` reads `{buffer}`, which `{writer}` {overwrites}, before `{loop}`", at="loop")
def OVERWRITTEN(*focus: str, block: str, buffer: str, writer: str, overwrites: str, loop: str, repair: str) -> None: ...
@refusal(
    "E0380",
    "`{place}` is no place to compute `{block}` at",
    help="name a loop around the blocks that read it, or write {words}",
    at="loop",
)
def NO_PLACE(*focus: str, place: str, block: str, words: str) -> None: ...


@refusal(
    "E0693",
    "{multiples} are no multiples for the box of `{buffer}`: {reason}",
    help="give a positive integer per dimension, 1 where the extent stays",
    at="multiples",
)
def NO_MULTIPLES(*focus: str, multiples: str, buffer: str, reason: str) -> None: ...


ROOT, INLINE = "root", "inline"
"""The places of a block other than loops."""


@primitive(
    NO_BLOCK, NO_LOOP, OUTPUT, NOT_PURE, NO_CONSUMER, OUTSIDE, VECTOR, NOT_INVERTIBLE, BEYOND, NOT_READY, OVERWRITTEN,
    NO_PLACE, NO_MULTIPLES, NOT_INLINABLE, PARTIAL, CHANGED,
)  # fmt: skip
def compute_at(
    program: Program, block: BlockRef, loop: LoopRef | str, multiples: tuple[int, ...] = ()
) -> Rewrite[None]:
    """The block stands below `loop`, before its consumers, and computes the box of its buffer that they read there.
    Of several buffers, such as the values of a reducer, it computes one box, which contains what is read of any of them.

    for h in 8: P[h] = …                for t in 4:
    for t in 4, i in 2, r in 3:    ->       for h in 4: P[t*2 + h] = …
        Y[…] += P[t*2 + i + r]              for i in 2, r in 3: Y[…] += P[t*2 + i + r]

    If the boxes of two iterations overlap, the overlap is computed twice. If a box leaves the domain of the block, a
    condition guards it; conditions that the block has move with it. The buffer becomes private to an iteration of the loop
    (scope "local"). A scan runs all of its steps there, for the columns that are read; its steps must read no other columns.
    With `multiples`, one for each dimension of the buffer, known extents of the box are rounded up to these numbers, so that
    tiles of instructions are whole.

    The place may also be one of the words that `sample_compute_location` draws: "root" leaves the block in its place,
    "inline" does the same as `compute_inline`.
    In Halide and TVM: `compute_at`; in Exo: `compute_at` of its Halide library.  Cases: tests/primitives/compute_at.md
    """
    nest = the_block(program, block)
    if loop == INLINE:
        return compute_inline(program, block)
    if loop == ROOT:
        return Rewrite(program, None)
    if isinstance(loop, str):
        raise NO_PLACE(program, block.name, block=block.name, place=loop, words=f'"{ROOT}" or "{INLINE}"')
    outer, at = the_loop(program, loop)
    around = (*outer, at)
    buffers = (sole_buffer(program, nest[1]),) if is_scan(nest[1]) else pure_buffers(program, nest[1])
    buffer = buffers[0]
    if nest[1].init and not is_begun_before_steps(nest):
        raise _impure(program, nest[1], OUT_OF_ORDER, _stay(nest[1]))
    consumers = _consumers_below(program, nest[1], [x.name for x in buffers], at)
    require_no_vector(program, around, at.var)

    outside = {x.var for x in around}
    reads = [
        (
            tuple(substitute(i, bindings(b)) for i in indices),
            inner_ranges(loops, outside),
        )
        for loops, b in consumers
        for x in buffers
        for indices in read_indices(b, x.name)
    ]
    # Ranges have the ends of the largest size that is open.
    within = loop_conditions([x for x in around if constant(x.extent) is None])
    region = required_region(reads, extent_ranges(around), buffer.shape, (*within, *_given(consumers, outside)))
    if multiples:
        region = _rounded(program, nest[1], buffer, region, multiples)
    box = instances_writing(nest[1], nest[1].body[0].indices, region)
    wrapped: dict[int, tuple[Expr, Expr]] = {}
    if isinstance(box, str) and not is_scan(nest[1]):
        box = _at_own_values(program, nest, around, consumers, region) or box
    if isinstance(box, str):
        raise NOT_INVERTIBLE(program, block.name, block=block.name, buffer=buffer.name, iterator=box)
    if is_scan(nest[1]):
        box = columns_of(nest[1], box, around)
        if isinstance(box, Stays):
            raise _impure(program, nest[1], box.reason, box.repair)
    elif not multiples:
        wrapped = _wrapped(nest[1], buffer, reads, region, extent_ranges(around))
        box = [wrapped.get(n, part) for n, part in enumerate(box)]

    child = _first_holding(at, {b.name for _, b in consumers})
    rest = remove_block(program, block.name)
    moved = nest_over(nest[1], box, around, used_names(rest), wrapped)
    new = nest_of(moved, around)
    if not instances_within(new, nest):
        # What ran under a condition runs under it here.
        moved = _with_block(moved, _guarded(new, nest))
        new = nest_of(moved, around)
    if not instances_within(new, nest):
        raise beyond(program, nest, at.var)

    def ran_there(shared: tuple[str, ...], _: str) -> bool:
        return set(shared) <= {x.var for x in nest[0]} and instances_within(new, nest, shared)

    def current(shared: tuple[str, ...], source: str) -> bool:
        names = [b.name for _, b in consumers]
        return all(same_version(program, x.name, names, shared, source) for x in buffers)

    def before(shared: tuple[str, ...], source: str) -> bool:
        return not shared or (ran_there(shared, source) and current(shared, source))

    now = find_loop(rest, at.var)[1]
    n = next(i for i, s in enumerate(now.body) if stmt_name(s) == stmt_name(child))
    result = replace_stmt(rest, at.var, (replace(now, body=(*now.body[:n], moved, *now.body[n:])),))

    def overtakes(shared: tuple[str, ...], source: str, writer: str) -> bool:
        return writes_before(result, source, writer, block.name, len(shared))

    place = InsertionPoint(around, positions(program)[stmt_name(child)])
    if found := unready_input(program, block.name, place, ran_there, current, before, overtakes):
        facts = {"block": block.name, "loop": at.var, "buffer": found.buffer, "writer": found.writer}
        focus = (block.name, found.writer)
        if found.again is not None:
            overwrites = f"may write over in a later iteration of `{found.again}`"
            repair = f"or move it before the step that lets `{found.writer}` use an element again"
        elif found.behind:
            overwrites, repair = "writes behind it", f"or choose a loop that ends before `{found.writer}` begins"
        else:
            raise NOT_READY(program, *focus, **facts)
        repair = f"leave `{block.name}` where it is, {repair}"
        raise OVERWRITTEN(program, *focus, overwrites=overwrites, repair=repair, **facts)
    for x in buffers:
        if x.scope == "global":
            result = replace_buffer(result, x.name, (replace(x, scope="local"),))
    return Rewrite(result, None)


def _at_own_values(
    program: Program, nest: Nest, around: tuple[For, ...], consumers: tuple[Nest, ...], region: Region
) -> list[tuple[Expr, Expr]] | None:
    """The instances that write the box in an iteration of loops that are iterators of the block, and stay around it: if what
    the consumers read is written in the iteration in which they read it, other values of these iterators do not matter.
    """
    b, own = nest[1], own_values(nest, around)
    found = instances_writing(b, b.body[0].indices, region, [b.iters[n].name for n in own])
    if not own or isinstance(found, str):
        return None
    within = 1 + max(n for n, x in enumerate(around) if x.var in own.values())
    stored = {s.buffer for s in b.body}
    if not all(follow_writes(program, x, consumer.name, within) for x in stored for _, consumer in consumers):
        return None
    whole = {n for n in own if found[n] == (ZERO, b.iters[n].extent)}
    return [(Var(own[n]), ONE) if n in whole else part for n, part in enumerate(found)]


def _wrapped(
    b: Block, buffer: Buffer, reads: Sequence[RangedSubscripts], region: Region, outer: Ranges
) -> dict[int, tuple[Expr, Expr]]:
    """The windows of iterators, by their numbers, that go on with the first value behind the last one: of dimensions of
    which no box but the whole is read, as at `(i + 1) % N` and `i`.
    """
    out: dict[int, tuple[Expr, Expr]] = {}
    for d, (subscript, (low, extent), size) in enumerate(
        zip(b.body[0].indices, region, map(constant, buffer.shape), strict=True)
    ):
        if not size or low != ZERO or constant(extent) != size:
            continue
        for n, it in enumerate(b.iters):
            if it.kind is IterKind.SPATIAL and subscript == Var(it.name) and constant(it.extent) == size:
                if window := wrapped_window(reads, d, size, outer):
                    out[n] = window
    return out


def _with_block(stmt: Stmt, block: Block) -> Stmt:
    """The nest with another block."""
    return replace(stmt, body=(_with_block(stmt.body[0], block),)) if isinstance(stmt, For) else block


def _guarded(new: Nest, old: Nest) -> Block:
    """The block of `new` with the conditions of `old` that can be stated over iterators."""
    block = new[1]
    loops = {it.binding.name: n for n, it in enumerate(old[1].iters) if isinstance(it.binding, Var)}
    own = {x: block.iters[n].binding for x, n in loops.items()}
    kept = [substitute(c, own) for c in old[1].where if free_vars(c) <= own.keys()]
    return replace(block, where=(*block.where, *simplify_where(kept, extent_ranges(new[0]))))


def _rounded(program: Program, b: Block, buffer: Buffer, region: Region, multiples: tuple[int, ...]) -> Region:
    """The box with extents rounded up. More than is read may be computed: the block stays inside of its domain."""

    def refuse(reason: str) -> Exception:
        text = f"[{', '.join(map(str, multiples))}]"
        return NO_MULTIPLES(program, b.name, multiples=text, buffer=buffer.name, reason=reason)

    if len(multiples) != len(buffer.shape):
        raise refuse(f"they are {len(multiples)}, and its rank is {len(buffer.shape)}")
    if small := [n for n in multiples if n < 1]:
        raise refuse(f"{small[0]} is not positive")
    out: list[tuple[Expr, Expr]] = []
    for (low, extent), size, n in zip(region, buffer.shape, multiples, strict=True):
        known, whole = constant(extent), constant(size)
        if known is None or whole is None:
            out.append((low, extent))
        else:
            more = -(-known // n) * n
            out.append((low, index(more)) if more < whole else (ZERO, size))
    return tuple(out)


def pure_buffer(program: Program, b: Block) -> Buffer:
    """The only buffer that a block computes as a function of others, so that its instances may run any number of times."""
    buffer = sole_buffer(program, b)
    _require_pure(program, b, (buffer,))
    return buffer


def pure_buffers(program: Program, b: Block) -> tuple[Buffer, ...]:
    """The buffers of one shape that a block computes as functions of others, so that its instances may run any number of
    times. An instance stores an element of each, with the same subscripts.
    """
    buffers = _only_written_by(program, b)
    _require_pure(program, b, buffers)
    if len({x.shape for x in buffers}) > 1:
        raise _impure(program, b, f"it stores into {_names(b)}, which differ in shape", _stay(b))
    return buffers


def _require_pure(program: Program, b: Block, buffers: tuple[Buffer, ...]) -> None:
    """Refuse a scan, and a block that reads what it stores before it initialises it."""
    if is_scan(b):
        raise _impure(program, b, "it is a scan, whose steps follow one another", _stay(b))
    for x in buffers:
        own = read_indices(b, x.name)
        if own and (own != (b.body[0].indices,) or all(s.buffer != x.name for s in b.init)):
            repair = "move it before the step after which it reads what it stores"
            raise _impure(program, b, f"it reads `{x.name}` itself", repair)


def sole_buffer(program: Program, b: Block) -> Buffer:
    """The buffer that a block alone writes, an element in each instance, and that is no output."""
    if own_buffer(b) is None:
        raise _impure(program, b, f"it stores into {_names(b)} together", _stay(b))
    return _only_written_by(program, b)[0]


def _names(b: Block) -> str:
    return " and ".join(f"`{x}`" for x in sorted(own_buffers(b)))


def _only_written_by(program: Program, b: Block) -> tuple[Buffer, ...]:
    """The buffers that a block stores, and no other one does: an element of each in each instance; none is an output."""
    if len({s.indices for s in (*b.init, *b.body)}) != 1:
        reason = "it stores more than one element in an instance"
        raise _impure(program, b, reason, "move it before the step that joined its stores")
    names = dict.fromkeys(s.buffer for s in b.body)
    for name in names:
        if is_param(program, name):
            raise OUTPUT(program, b.name, block=b.name, buffer=name)
        makers = [w for _, w in writers(program, name)]
        others = [w.name for w in makers if w.name != b.name]
        if others:
            reason = f"`{others[0]}` writes `{name}` too"
            begun = [w.name for w in makers if w.is_reduction and not w.init]
            if begun:
                raise _impure(program, b, reason, f"do this before `decompose_reduction({begun[0]}, …)`")
            sums = any(w.is_reduction for w in makers)
            parts = "; `accumulate_at` adds up a sum piece by piece" if sums else ""
            raise _impure(program, b, reason, f"do this while one block writes all of `{name}`{parts}")
    return tuple(map(program.buffer, names))


def _impure(program: Program, b: Block, reason: str, repair: str) -> Exception:
    return NOT_PURE(program, b.name, block=b.name, reason=reason, repair=repair)


def _stay(b: Block) -> str:
    return f"leave `{b.name}` where it is, and move what it reads below its loops, or what reads it with `reverse_compute_at`"


def _consumers_below(program: Program, b: Block, buffers: Sequence[str], at: For) -> tuple[Nest, ...]:
    """The blocks that read one of the buffers, in text order, all of which stand below the loop."""
    found = {other.name: (buffer, loops) for buffer in buffers for loops, other in readers(program, buffer, but=b.name)}
    if not found:
        raise NO_CONSUMER(program, b.name, block=b.name, buffer=buffers[0])
    for name, (buffer, loops) in found.items():
        if all(x.var != at.var for x in loops):
            raise OUTSIDE(program, name, at.var, consumer=name, buffer=buffer, loop=at.var)
    return tuple((loops, x) for loops, x in walk(program.body) if isinstance(x, Block) and x.name in found)


def _given(consumers: tuple[Nest, ...], outside: set[str]) -> tuple[Expr, ...]:
    """Conditions over loops `outside` without which no consumer reads anything."""
    return tuple(
        c for c in consumers[0][1].where if free_vars(c) <= outside and all(c in b.where for _, b in consumers)
    )


def _first_holding(at: For, names: set[str]) -> Stmt:
    """The first statement in the body of a loop that is or contains one of the blocks."""
    return next(s for s in at.body if any(stmt_name(x) in names for _, x in walk((s,))))
