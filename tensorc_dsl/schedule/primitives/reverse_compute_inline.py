"""`reverse_compute_inline`: let the producer of elements compute its consumer's result."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Load, loads, rewrite_expr, substitute
from tensorc_dsl.ir.program import Block, IterKind, LoopKind, Program, map_store, replace_stmt
from tensorc_dsl.proof.sets.accesses import follow_writes
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.proof.sets.digits import solve
from tensorc_dsl.proof.sets.regions import instances_within
from tensorc_dsl.proof.sets.sets import bindings
from tensorc_dsl.proof.sets.simplify import extent_ranges, iter_ranges, simplify, simplify_where
from tensorc_dsl.schedule.kinds import RACE
from tensorc_dsl.schedule.motion import (
    ORDER,
    InsertionPoint,
    Nest,
    is_param,
    positions,
    read_indices,
    readers,
    require_one_each,
    same_version,
    shared_loops,
    unready_input,
    writers,
)
from tensorc_dsl.schedule.nests import NO_BLOCK, remove_block, replace_buffer, the_block
from tensorc_dsl.schedule.primitives.compute_inline import CHANGED
from tensorc_dsl.schedule.stale import refuse_long
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal(
    "E0626",
    "cannot inline `{block}` into a block that it reads from: {reason}",
    help="inline blocks that make one element of each that they read, as `C[i, j] = f(B[i, j])` does",
    at="block",
)
def NOT_A_MAP(*focus: str, block: str, reason: str) -> None: ...
@refusal(
    "E0627",
    "cannot inline `{block}` into `{producer}`: {reason}",
    help="move it there with `reverse_compute_at` instead",
    at="block",
)
def NO_PRODUCER(*focus: str, block: str, producer: str, reason: str) -> None: ...
@refusal(
    "E0628",
    "cannot inline `{block}` into `{producer}`: they do not run for the same elements of `{buffer}`",
    help="inline before the steps that left out elements of either, or use `reverse_compute_at`",
    at="block",
)
def NOT_SAME(*focus: str, block: str, producer: str, buffer: str) -> None: ...


@primitive(NO_BLOCK, NOT_A_MAP, NO_PRODUCER, NOT_SAME, CHANGED, ORDER, RACE)
def reverse_compute_inline(program: Program, block: BlockRef) -> Rewrite[None]:
    """The producer of the elements that `block` reads computes its result; `block` and the buffer between are removed.

    for i: B[i] = A[i] + 1   ->   for i: C[i] = exp(A[i] + 1)
    for i: C[i] = exp(B[i])

    The producer keeps its loops, name and conditions, and gets the conditions under which the consumer uses an element. With
    several producers it is the last one. In TVM: `reverse_compute_inline`; in Halide: `compute_at` at the innermost loop.
    Cases: tests/primitives/reverse_compute_inline.md
    """
    consumer = the_block(program, block)
    b = consumer[1]
    producer, buffer = _producer(program, b)
    subscripts = _subscripts(program, b, buffer)
    made = producer[1].body[0]
    _check_producer(program, b, producer[1], buffer)
    values = solve(b, subscripts, made.indices)
    if values is None:
        raise NOT_A_MAP(program, b.name, block=b.name, reason=f"its subscripts of `{buffer}` do not tell its iterators")

    ranges = iter_ranges(producer[1].iters)
    conditions = [c for it in b.iters for c in _within(values[it.name], it.extent)]
    conditions += [Compare("==", substitute(s, values), i) for s, i in zip(subscripts, made.indices, strict=True)]
    guard = [substitute(c, bindings(producer[1])) for c in simplify_where(conditions, ranges)]
    around = extent_ranges(producer[0])
    where = simplify_where((*producer[1].where, *guard), around)
    bound = {n: substitute(e, bindings(producer[1])) for n, e in values.items()}
    iters = tuple(replace(it, binding=simplify(bound[it.name], around)) for it in b.iters)
    new = (producer[0], replace(b, iters=iters, where=where))
    if not (instances_within(consumer, new) and instances_within(new, consumer)):
        raise NOT_SAME(program, b.name, producer[1].name, block=b.name, producer=producer[1].name, buffer=buffer)

    def element(e: Expr) -> Expr:
        return made.value if isinstance(e, Load) and e.buffer == buffer else e

    # The producer's value is over its own iterators, so it is inserted after those of the block are replaced.
    (s,) = b.body
    bound = map_store(s, lambda e: simplify(substitute(e, values), ranges))
    store = replace(bound, value=rewrite_expr(bound.value, element))
    merged = replace(producer[1], body=(store,), where=where)
    refuse_long("reverse_compute_inline", program, (merged,))
    result = replace_stmt(remove_block(program, b.name), merged.name, (merged,))
    result = replace_buffer(result, buffer, ())
    _check_order(program, result, consumer, producer, new, s.buffer, buffer)
    return Rewrite(result, None)


def _within(value: Expr, extent: Expr) -> tuple[Expr, Expr]:
    return Compare("<=", ZERO, value), Compare("<", value, extent)


def _producer(program: Program, b: Block) -> tuple[Nest, str]:
    """The last block that writes an input of the block, and that input."""
    if len(b.body) != 1 or b.init or any(it.kind is not IterKind.SPATIAL for it in b.iters):
        raise NOT_A_MAP(program, b.name, block=b.name, reason="it needs more than one step for an element")
    own = b.body[0].buffer
    if read_indices(b, own):
        raise NOT_A_MAP(program, b.name, block=b.name, reason=f"it reads `{own}` itself")
    order = positions(program)
    names = [x.name for x in (*program.params, *program.buffers) if read_indices(b, x.name)]
    found = [(nest, name) for name in names for nest in writers(program, name) if order[nest[1].name] < order[b.name]]
    if not found:
        raise NOT_A_MAP(program, b.name, block=b.name, reason="no block writes what it reads")
    return max(found, key=lambda f: order[f[0][1].name])


def _subscripts(program: Program, b: Block, buffer: str) -> tuple[Expr, ...]:
    found = read_indices(b, buffer)
    if len(found) != 1 or any(loads(i) for i in found[0]):
        raise NOT_A_MAP(program, b.name, block=b.name, reason=f"it reads more than one element of `{buffer}`")
    return found[0]


def _check_producer(program: Program, b: Block, producer: Block, buffer: str) -> None:
    def refuse(reason: str, *focus: str) -> Exception:
        names = (b.name, producer.name, *focus)
        return NO_PRODUCER(program, *dict.fromkeys(names), block=b.name, producer=producer.name, reason=reason)

    if len(producer.body) != 1 or producer.init or any(it.kind is not IterKind.SPATIAL for it in producer.iters):
        raise refuse("it needs more than one step for an element")
    if read_indices(producer, buffer):
        raise refuse(f"it reads `{buffer}` itself")
    if is_param(program, buffer):
        raise refuse(f"it writes the output `{buffer}`")
    for _, other in writers(program, buffer):
        if other.name != producer.name:
            raise refuse(f"`{other.name}` writes `{buffer}` too", other.name)
    for _, other in readers(program, buffer, but=b.name):
        raise refuse(f"`{other.name}` reads `{buffer}` too", other.name)


def _require_current(program: Program, b: Block, reader: Nest, writer: Nest, buffer: str) -> None:
    """Refuse to move a block if a reader may see what an earlier iteration of loops around it and a writer has written."""
    shared = shared_loops(reader[0], writer[0])
    if not same_version(program, buffer, [reader[1].name], shared, buffer):
        names = {"loop": shared[-1], "reader": reader[1].name, "writer": writer[1].name}
        reason = "`{reader}` may read what `{writer}` wrote in an earlier iteration of `{loop}`".format(**names)
        raise ORDER(program, reader[1].name, writer[1].name, block=b.name, reason=reason)


def _check_order(
    program: Program, result: Program, consumer: Nest, producer: Nest, new: Nest, target: str, between: str
) -> None:
    """Refuse unless all inputs of the block are complete at the producer, and its result is written before it is read."""
    b, order = consumer[1], positions(program)

    def ready(shared: tuple[str, ...], buffer: str) -> bool:
        return buffer == between or (
            set(shared) <= {x.var for x in consumer[0]} and instances_within(new, consumer, shared)
        )

    place = InsertionPoint(producer[0], order[producer[1].name] + 1)
    if found := unready_input(program, b.name, place, ready):
        facts = {"block": b.name, "reader": producer[1].name, "buffer": found.buffer, "writer": found.writer}
        raise CHANGED(program, b.name, producer[1].name, **facts)
    for _, other in writers(program, target):
        if other.name != b.name:
            raise ORDER(program, b.name, other.name, block=b.name, reason=f"`{other.name}` writes `{target}` too")
    _require_current(program, b, consumer, producer, between)
    require_one_each(program, consumer, producer[0])
    for around, other in readers(program, target, but=b.name):
        if order[other.name] < order[b.name] or not follow_writes(result, target, other.name):
            reason = f"`{other.name}` reads `{target}` above the new place"
            raise ORDER(program, b.name, other.name, block=b.name, reason=reason)
        _require_current(program, b, (around, other), consumer, target)
    for x in producer[0]:
        if x.kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED) and (dependence := carried(result, x.var)):
            raise RACE(program, x.var, loop=x.var, dependence=dependence, repair="inline before making it so")
