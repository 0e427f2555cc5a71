"""`reverse_compute_at`: run a consumer in the iterations of a loop that complete its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Expr, Var, add, free_vars, loads, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    Block,
    For,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    find_loop,
    replace_stmt,
    used_names,
    walk,
)
from tensorc_dsl.proof.sets.reductions import OUT_OF_ORDER, is_begun_before_steps
from tensorc_dsl.proof.sets.regions import (
    RangedSubscripts,
    Region,
    axis,
    covers_once,
    full_domain,
    inner_ranges,
    instances_reading,
    instances_within,
    repeating_loop,
    required_region,
)
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify_where
from tensorc_dsl.proof.sets.store_guards import cuts
from tensorc_dsl.schedule.motion import (
    BEYOND,
    NOT_READY,
    ORDER,
    VECTOR,
    InsertionPoint,
    Nest,
    beyond,
    own_buffers,
    own_values,
    positions,
    read_indices,
    readers,
    require_no_vector,
    require_one_each,
    require_versions,
    shared_loops,
    stored_at,
    unready_input,
    writers,
)
from tensorc_dsl.schedule.nests import (
    NO_BLOCK,
    NO_LOOP,
    guarded,
    nest_of,
    nest_over,
    remove_block,
    stmt_name,
    the_block,
    the_loop,
)
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0367",
    "`{block}` reads nothing that is written below `{loop}`",
    help="choose a loop around a block that writes what `{block}` reads",
    at="loop",
)
def NOTHING_BELOW(*focus: str, block: str, loop: str) -> None: ...
@refusal(
    "E0369",
    "an iteration of `{loop}` does not complete its part of `{buffer}`: every iteration of `{repeats}` writes that part",
    at="loop",
    label="inside `{repeats}`",
)
def INCOMPLETE(*focus: str, loop: str, buffer: str, repeats: str, repair: str) -> None: ...
@refusal("E0370", "the iterations of `{loop}` do not divide `{block}` exactly: {reason}", at="loop")
def NOT_ONCE(*focus: str, loop: str, block: str, reason: str, repair: str) -> None: ...


@primitive(NO_BLOCK, NO_LOOP, VECTOR, NOTHING_BELOW, ORDER, NOT_READY, INCOMPLETE, NOT_ONCE, BEYOND)
def reverse_compute_at(program: Program, block: BlockRef, loop: LoopRef) -> Rewrite[None]:
    """The block stands below `loop`, after its producers, and runs for the elements that an iteration completes.

    for t in 4, i in 8, k: L[t*8 + i] += …        for t in 4:
    for x in 32: C[x] = L[x]                 ->       for i in 8, k: L[t*8 + i] += …
                                                      for x in 8: C[t*8 + x] = L[t*8 + x]

    Each instance runs once: the parts that the iterations complete are proved to be disjoint and complete; if this needs
    the producer's guards of partial tiles, the block gets them too. Where both stand in an outer loop, each of its iterations
    counts by itself. The producer may be a scan that keeps all of its steps;
    `fold_scan` comes afterwards. In TVM:
    `reverse_compute_at`; in Halide: `compute_at` of the stage before it; in Exo: `fuse`.
    Cases: tests/primitives/reverse_compute_at.md
    """
    nest = the_block(program, block)
    outer, at = the_loop(program, loop)
    around, b = (*outer, at), nest[1]
    require_no_vector(program, around, at.var)
    produced = _produced(program, b, at)
    _check_alone(program, b)
    if b.init and not is_begun_before_steps(nest):
        raise ORDER(program, b.name, block=b.name, reason=OUT_OF_ORDER)
    if not full_domain(*nest):
        raise beyond(program, nest, at.var)
    box, cut = _completed(program, nest, around, produced)

    last = [s for s in at.body if any(x.name != b.name and own_buffers(x) & produced for x in _blocks((s,)))][-1]
    rest = remove_block(program, b.name)
    moved = _cut(nest_over(b, box, around, used_names(rest)), cut, around)
    new = nest_of(moved, around)

    def same_iteration(shared: tuple[str, ...]) -> bool:
        return set(shared) <= {x.var for x in nest[0]} and instances_within(new, nest, shared)

    def ready(shared: tuple[str, ...], buffer: str) -> bool:
        return len(shared) == len(around) if buffer in produced else same_iteration(shared)

    order = positions(program)
    place = InsertionPoint(around, 1 + max(order[stmt_name(s)] for _, s in walk((last,))))
    if found := unready_input(program, b.name, place, ready, before=lambda shared, _: same_iteration(shared)):
        if found.again is not None:
            reason = f"`{found.writer}` may write `{found.buffer}` again in a later iteration of `{found.again}`"
            raise ORDER(program, b.name, found.writer, block=b.name, reason=reason)
        if found.behind:
            reason = f"`{found.writer}` writes `{found.buffer}` behind it, and may do so before the new place"
            raise ORDER(program, b.name, found.writer, block=b.name, reason=reason)
        facts = {"block": b.name, "loop": at.var, "buffer": found.buffer, "writer": found.writer}
        raise NOT_READY(program, b.name, found.writer, **facts)
    for buffer in sorted(own_buffers(b)):
        for _, other in readers(program, buffer, but=b.name):
            if order[other.name] < max(order[b.name], place.before):
                reason = f"`{other.name}` reads `{buffer}` above the new place"
                raise ORDER(program, b.name, other.name, block=b.name, reason=reason)
    common = shared_loops(around, nest[0])
    if common and not same_iteration(common):
        raise ORDER(program, b.name, block=b.name, reason=f"it may run in an earlier iteration of `{common[-1]}`")
    require_one_each(program, nest, around)
    require_versions(program, nest, common)

    now = find_loop(rest, at.var)[1]
    n = next(i for i, s in enumerate(now.body) if stmt_name(s) == stmt_name(last)) + 1
    return Rewrite(replace_stmt(rest, at.var, (replace(now, body=(*now.body[:n], moved, *now.body[n:])),)), None)


def _blocks(stmts: tuple[Stmt, ...]) -> tuple[Block, ...]:
    return tuple(s for _, s in walk(stmts) if isinstance(s, Block))


def _produced(program: Program, b: Block, at: For) -> frozenset[str]:
    """The buffers that the block reads and other blocks below the loop write."""
    written = frozenset[str]().union(*(own_buffers(x) for x in _blocks(at.body) if x.name != b.name))
    found = frozenset(x for x in written if read_indices(b, x))
    if not found:
        raise NOTHING_BELOW(program, b.name, at.var, block=b.name, loop=at.var)
    return found


def _check_alone(program: Program, b: Block) -> None:
    """Refuse unless the block alone writes its buffers, as a function of other buffers."""
    if any(it.kind is IterKind.SCAN for it in b.iters):
        raise ORDER(program, b.name, block=b.name, reason="it is a scan, whose steps follow one another")
    for buffer in sorted(own_buffers(b)):
        for _, other in writers(program, buffer):
            if other.name != b.name:
                raise ORDER(program, b.name, other.name, block=b.name, reason=f"`{other.name}` writes `{buffer}` too")
        own = read_indices(b, buffer)
        if own and not (b.init and own == tuple({s.indices for s in b.body})):
            raise ORDER(program, b.name, block=b.name, reason=f"it reads `{buffer}` itself")


def _completed(
    program: Program, nest: Nest, around: tuple[For, ...], produced: frozenset[str]
) -> tuple[list[tuple[Expr, Expr]], tuple[Expr, ...]]:
    """For each iterator of the block, the values whose inputs an iteration of the innermost of `around` completes.

    They form a box. If the boxes of several iterations overlap, the conditions cut them into disjoint parts.
    """
    b = nest[1]
    loop = around[-1].var
    again, own = _runs_again_in(nest, around), own_values(nest, around)
    box: list[tuple[Expr, Expr]] | None = None
    found_cuts: set[tuple[Expr, ...]] = set()
    for buffer in sorted(produced):
        below = _writers_below(program, buffer, around)
        region = _written_region(program, buffer, around, below)
        shape = program.buffer(buffer).shape
        apart = again.union(own.values()).difference(*(free_vars(low) for low, _ in region))
        counted = [x for x in around if x.var not in apart]
        repeats = repeating_loop(counted, [(low, n, size) for (low, n), size in zip(region, shape, strict=True)])
        for indices in read_indices(b, buffer):
            moving, fixed = _moving(b, indices, region)
            cut = (*fixed, *_shared_cuts(b, indices, around, below, buffer))
            found = instances_reading(
                b, [indices[d] for d in moving], tuple(region[d] for d in moving), [shape[d] for d in moving]
            )
            found = None if found is None else _at_own_values(b, found, own, cut)
            if found is None or (box is not None and found != box):
                what = ", ".join(map(format_expr, indices))
                reason = f"what it completes of `{buffer}` is not a box of the instances that read `{buffer}[{what}]`"
                outside = (
                    f"choose a loop outside of `{loop}`" if len(around) > 1 else f"leave `{b.name}` behind `{loop}`"
                )
                repair = f"{outside}, or tiles of another size"
                raise NOT_ONCE(program, loop, b.name, loop=loop, block=b.name, reason=reason, repair=repair)
            box = found
            if repeats is not None and not any(repeats in free_vars(c) for c in cut):
                facts = {"loop": loop, "buffer": buffer, "repeats": repeats}
                raise INCOMPLETE(program, repeats, b.name, **facts, repair=_instead(around, repeats))
            found_cuts.add(cut)
    assert box is not None  # each buffer in `produced` is read
    for it, (_, extent) in zip(b.iters, box, strict=True):
        if it.kind is not IterKind.SPATIAL and extent != it.extent:
            reason = f"one completes a part of its reduction over `{it.name}` only"
            outside = f"choose a loop outside of `{loop}`, each iteration of which completes all terms of some elements"
            repair = outside if len(around) > 1 else f"leave it behind `{loop}`"
            raise NOT_ONCE(program, loop, b.name, loop=loop, block=b.name, reason=reason, repair=repair)
    boxes = [(low, n, it.extent) for (low, n), it in zip(box, b.iters, strict=True)]
    # The completed parts of all inputs must be equal: different conditions for another input would break that.
    cut = found_cuts.pop() if len(found_cuts) == 1 else ()
    used = frozenset[str]().union(*map(free_vars, (*(low for low, _ in box), *cut)))
    counted = tuple(x for x in around if x.var not in again - used)
    if covers_once(counted, boxes):
        return box, ()
    if not cut or not covers_once(counted, boxes, cut):
        reason = "what two of them complete overlaps, or something is left over"
        repair = f"choose a loop whose iterations write separate parts of what `{b.name}` reads"
        raise NOT_ONCE(program, loop, b.name, loop=loop, block=b.name, reason=reason, repair=repair)
    return box, cut


def _runs_again_in(nest: Nest, around: tuple[For, ...]) -> frozenset[str]:
    """The loops around both places in each iteration of which the block runs again, for all that it runs for."""
    loops, b = nest
    used = frozenset[str]().union(*map(free_vars, (*(it.binding for it in b.iters), *b.where)))
    return frozenset(shared_loops(around, loops)) - used


def _moving(b: Block, indices: Sequence[Expr], region: Region) -> tuple[list[int], tuple[Expr, ...]]:
    """The dimensions in which different instances read different elements, and the conditions under which an iteration
    completes the element that all of them read in the others: the last step of a scan.
    """
    names = {it.name for it in b.iters}
    moving = [d for d, i in enumerate(indices) if not names.isdisjoint(free_vars(i)) or loads(i)]
    fixed = [(i, *region[d]) for d, i in enumerate(indices) if d not in moving]
    return moving, tuple(
        c
        for i, low, extent in fixed
        for c in (
            [Compare("==", low, i)] if extent == ONE else [Compare("<=", low, i), Compare("<", i, add(low, extent))]
        )
    )


def _at_own_values(
    b: Block, box: list[tuple[Expr, Expr]], own: Mapping[int, str], cut: tuple[Expr, ...]
) -> list[tuple[Expr, Expr]]:
    """The box with the iterators that loops around both places are, where what is completed does not say which they are."""
    used = frozenset[str]().union(*map(free_vars, cut))
    return [
        (Var(own[n]), ONE) if n in own and own[n] not in used and part == (ZERO, b.iters[n].extent) else part
        for n, part in enumerate(box)
    ]


def _instead(around: tuple[For, ...], repeats: str) -> str:
    """What to do where each iteration of one of the loops writes the part that the last of them is to complete."""
    outside = f"choose a loop outside of `{repeats}`" if around[0].var != repeats else ""
    below = around[[x.var for x in around].index(repeats) :]
    movable = len(below) > 1 and all(len(x.body) == 1 and x.kind is LoopKind.SERIAL for x in below[:-1])
    inside = f"reorder `{repeats}` to the inside" if movable else ""
    return ", or ".join(filter(None, (outside, inside))) or "leave it where it is"


def _writers_below(program: Program, buffer: str, around: tuple[For, ...]) -> list[Nest]:
    return [nest for nest in writers(program, buffer) if any(x.var == around[-1].var for x in nest[0])]


def _written_region(program: Program, buffer: str, around: tuple[For, ...], below: Sequence[Nest]) -> Region:
    """The box of a buffer that the blocks below the innermost of `around` write in one of its iterations."""
    outside = {x.var for x in around}
    found: list[RangedSubscripts] = []
    for loops, w in below:
        inner = inner_ranges(loops, outside)
        found += [(indices, inner) for indices in stored_at(w, buffer)]
    return required_region(found, extent_ranges(around), program.buffer(buffer).shape)


def _shared_cuts(
    b: Block, indices: Sequence[Expr], around: tuple[For, ...], below: Sequence[Nest], buffer: str
) -> tuple[Expr, ...]:
    """Conditions on the instances of the block, over `axis(d)`, that hold for all instances whose input is written."""
    points = {it.name: axis(d) for d, it in enumerate(b.iters)}
    element = [substitute(i, points) for i in indices]
    outside = {x.var for x in around}
    shared: list[Expr] | None = None
    for loops, w in below:
        for subscripts in stored_at(w, buffer):
            ranges = extent_ranges(loops)
            found = cuts(subscripts, w.where, {x.var for x in loops} - outside, ranges, element)
            found = simplify_where(found, extent_ranges(around))
            shared = [c for c in found if shared is None or c in shared]
    return tuple(shared or ())


def _cut(nest: Stmt, cut: tuple[Expr, ...], around: tuple[For, ...]) -> Stmt:
    """The nest of a moved block with those conditions on its iterators that it does not have yet."""
    loops, b = nest_of(nest, around)
    points = {axis(d).name: it.binding for d, it in enumerate(b.iters)}
    where = simplify_where((*b.where, *(substitute(c, points) for c in cut)), extent_ranges(loops))
    return guarded(nest, tuple(c for c in where if c not in b.where)) if cut else nest
