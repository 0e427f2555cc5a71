"""Finds writers and readers of buffers, and decides whether a block may run at another place.

A block may move to a place if each buffer that it reads has the same contents there as at the old place. This holds if three
conditions do. First, every other writer stands above both places, and either shares no loop with the new one (so it has run
to its end), or the block runs only instances there that it ran before in the same iteration of the shared loops; or it stands
behind both places, and in each iteration of the loops that it shares with both it has not begun. Second, no
writer stays in a loop that the block leaves and writes an element in it after the block has read it. Third, a reader of the
block's result does not get what an earlier iteration of such shared loops computed, from contents that are gone
(`same_version`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.expr import ONE, ZERO, Expr, Var, free_vars, loads, substitute
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, Buffer, For, IterKind, LoopKind, Program, Stmt, find_block, walk
from tensorc_dsl.proof.sets.accesses import Access, accesses, common_loops, follow_writes, touched
from tensorc_dsl.proof.sets.dependence import happens_before
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, linear
from tensorc_dsl.proof.sets.regions import apart, full_domain, not_affine, repeating_loop, undetermined
from tensorc_dsl.proof.sets.sets import bindings
from tensorc_dsl.proof.sets.simplify import iter_ranges
from tensorc_dsl.schedule.nests import stmt_name
from tensorc_dsl.schedule.step import refusal

Nest = tuple[tuple[For, ...], Block]
"""A block with the loops around it, outermost first."""


@refusal(
    "E0355",
    "no other block reads `{buffer}`, which `{block}` writes",
    help="leave `{block}` where it is",
    at="block",
)
def NO_CONSUMER(*focus: str, buffer: str, block: str) -> None: ...
@refusal(
    "E0358",
    "`{block}` reads `{buffer}`, which `{writer}` has not finished below `{loop}`",
    help="choose a loop outside of it, or move `{writer}` first",
    at="loop",
)
def NOT_READY(*focus: str, block: str, buffer: str, writer: str, loop: str) -> None: ...
@refusal("E0359", "cannot move `{block}` below `{loop}`: {reason}", at="block")
def BEYOND(*focus: str, block: str, loop: str, reason: str, repair: str) -> None: ...
@refusal(
    "E0360",
    "cannot move a nest below `{loop}`: loop `{vector}` is vectorized",
    help="move first, vectorize last",
    at="loop",
)
def VECTOR(*focus: str, loop: str, vector: str) -> None: ...


def beyond(program: Program, nest: Nest, loop: str) -> Exception:
    """The refusal of a block that is not proved to run for all values that its iterators would have below a loop."""
    block = nest[1]
    unknown = not_affine(*nest)
    if unknown is None:
        reason = "it would run there with iterator values that it does not have now"
        repair = f"`{block.name}` runs for a part of its domain only; move it before the step that left out the rest"
    else:
        reason = f"with which values it runs now cannot be told of `{unknown.name} = {format_expr(unknown.binding)}`"
        repair = "no loop may be multiplied by an open size: split it by numbers, or move the block before that step"
    return BEYOND(program, block.name, loop, block=block.name, loop=loop, reason=reason, repair=repair)


def positions(program: Program) -> dict[str, int]:
    """The position of each loop and block in text order."""
    return {stmt_name(s): n for n, (_, s) in enumerate(walk(program.body))}


def writers(program: Program, buffer: str) -> tuple[Nest, ...]:
    """The blocks that store into a buffer, in text order."""
    return tuple(
        (around, s)
        for around, s in walk(program.body)
        if isinstance(s, Block) and any(x.buffer == buffer for x in (*s.init, *s.body))
    )


def read_indices(block: Block, buffer: str) -> tuple[tuple[Expr, ...], ...]:
    """The subscripts, over the block's iterators, at which it reads a buffer, without duplicates."""
    stores = (*block.init, *block.body)
    found = (x for s in stores for e in (s.value, *s.indices) for x in loads(e))
    return tuple(dict.fromkeys(x.indices for x in found if x.buffer == buffer))


def readers(program: Program, buffer: str, but: str = "") -> tuple[Nest, ...]:
    """The blocks, other than `but`, that read a buffer, in text order."""
    return tuple(
        (around, s)
        for around, s in walk(program.body)
        if isinstance(s, Block) and s.name != but and read_indices(s, buffer)
    )


def copy_step(program: Program, buffer: str) -> str:
    """The step that copies a tensor of the caller, for a repair: what a block writes, else what one reads."""
    for _, b in writers(program, buffer):
        return f"cache_write({b.name})"
    for _, b in readers(program, buffer):
        return f"cache_read({b.name}, {buffer})"
    return f"cache_read(…, {buffer})"


@by_identity(512)
def own_buffers(block: Block) -> frozenset[str]:
    """The buffers that a block writes."""
    return frozenset(s.buffer for s in (*block.init, *block.body))


def top_statement(around: Sequence[For], block: Block) -> Stmt:
    """The statement of the program's body that is or contains the block."""
    return around[0] if around else block


def is_param(program: Program, buffer: str) -> bool:
    """Whether a buffer is an argument, or a view of one."""
    return any(b.name == buffer for b in program.params) or program.buffer(buffer).view is not None


def own_buffer(block: Block) -> str | None:
    """The buffer that all stores of a block write; None if there are several."""
    names = own_buffers(block)
    return next(iter(names)) if len(names) == 1 else None


def shared_loops(a: Sequence[For], b: Sequence[For]) -> tuple[str, ...]:
    """The loops around both blocks, outermost first."""
    out: list[str] = []
    for x, y in zip(a, b, strict=False):
        if x.var != y.var:
            break
        out.append(x.var)
    return tuple(out)


def own_values(nest: Nest, around: Sequence[For]) -> dict[int, str]:
    """The loops around a block and the place below `around` that are spatial iterators of the block, by the number of the
    iterator: in one iteration of such a loop all instances of the block have that value.
    """
    shared = shared_loops(around, nest[0])
    spatial = ((n, it.binding) for n, it in enumerate(nest[1].iters) if it.kind is IterKind.SPATIAL)
    return {n: e.name for n, e in spatial if isinstance(e, Var) and e.name in shared}


def fills(around: Sequence[For], block: Block, buffer: Buffer) -> bool:
    """Whether the block is proved to write every element of a buffer: its subscripts are iterators over the whole shape."""
    extents = {it.name: it.extent for it in block.iters}
    for s in block.body:
        names = [i.name for i in s.indices if isinstance(i, Var)]
        if s.buffer == buffer.name and len(set(names)) == len(s.indices):
            return tuple(extents[n] for n in names) == buffer.shape and full_domain(around, block)
    return False


def _is_partial(program: Program, buffer: str, writer: Block, loops: Sequence[str]) -> bool:
    """Whether an iteration of the outer `loops` around a writer may leave elements of the buffer unfinished: a reduction runs
    over one of them, or a scan that writes an element in several of its steps.
    """
    carried = [it for it in writer.iters if not free_vars(it.binding).isdisjoint(loops)]
    if any(it.kind is IterKind.REDUCE for it in carried):
        return True
    if not any(it.kind is IterKind.SCAN for it in carried):
        return False
    # Of a buffer that is private to the loops of its users, an iteration would lose what the one before made.
    return program.buffer(buffer).scope != "global" or not written_once(program, buffer, loops)


def require_no_vector(program: Program, around: Sequence[For], loop: str) -> None:
    """Refuse a place inside a vectorized loop."""
    for x in around:
        if x.kind is LoopKind.VECTORIZED:
            raise VECTOR(program, x.var, loop=loop, vector=x.var)


@frozen
class InsertionPoint:
    """A place for a statement: the loops around it, and the position in text order of the statement behind it."""

    loops: tuple[For, ...]
    before: int

    @property
    def names(self) -> frozenset[str]:
        return frozenset(x.var for x in self.loops)


@frozen
class Unready:
    """A buffer whose contents may differ at the new place, and the block that writes it."""

    buffer: str
    writer: str
    again: str | None = None
    """A loop in a later iteration of which the writer may overwrite the elements that the block reads."""
    behind: bool = False
    """Whether the writer stands behind the block as it is, which reads the contents before."""


def unready_input(
    program: Program,
    block: str,
    place: InsertionPoint,
    within: Callable[[tuple[str, ...], str], bool],
    current: Callable[[tuple[str, ...], str], bool] = lambda _shared, _buffer: True,
    before: Callable[[tuple[str, ...], str], bool] = lambda shared, _buffer: not shared,
    overtakes: Callable[[tuple[str, ...], str, str], bool] = lambda _shared, _buffer, _writer: True,
) -> Unready | None:
    """The first input of a block that may not have its contents at `place`; None if the block may run there.

    `within(shared, buffer)` tells whether the elements of `buffer` that the instances at the place read are written in the
    same iteration of the shared loops, for instance since all these instances ran in it at the old place. `current(shared,
    buffer)` tells whether what is read of the block now comes from the same contents of `buffer`, as `same_version` does.
    `before(shared, buffer)` tells whether both hold for a writer that stands behind both places. `overtakes(shared, buffer,
    writer)` tells whether such a writer, in one iteration of the loops that it shares with the old place, may write at the
    new one what is read there.
    """
    loops, b = find_block(program, block)
    order = positions(program)
    for buffer in sorted(touched(b) - own_buffers(b)):
        for around, writer in writers(program, buffer):
            at = order[writer.name]
            common = shared_loops(around, loops)
            there = shared_loops(around, place.loops)
            if at > max(order[block], place.before) and common == there and before(there, buffer):
                continue
            if at > order[block] and len(common) <= len(there) and before(common, buffer):
                if not overtakes(common, buffer, writer.name):
                    continue
            above = at < order[block] and at < place.before
            partial = above and _is_partial(program, buffer, writer, max(common, there, key=len))
            if not above or partial or (there and not within(there, buffer)):
                return Unready(buffer, writer.name, behind=at > order[block])
            if there and not current(there, buffer):
                return Unready(buffer, writer.name, there[-1])
        if found := _overwritten(program, loops, place, buffer, block):
            return found
    return None


def _overwritten(
    program: Program, loops: tuple[For, ...], place: InsertionPoint, buffer: str, block: str
) -> Unready | None:
    """Whether an input of a block below `loops` is written before the place, in the loops that the block leaves, after the
    block has read it: in a later iteration, or behind it.
    """
    for around, w in writers(program, buffer):
        shared = shared_loops(around, loops)
        left = tuple(v for v in shared if v not in place.names)
        if left and _reads_before(program, buffer, block, w.name, len(shared) - len(left)):
            return Unready(buffer, w.name, left[0])
    return None


def _reads_before(program: Program, buffer: str, reader: str, writer: str, equal: int) -> bool:
    """Whether an instance of one block may read an element of a buffer before an instance of the other one writes it, in one
    iteration of the outermost `equal` loops."""
    reads, writes = _reads_and_writes(program, buffer, reader, writer)
    return any(happens_before(r, w, equal) for r in reads for w in writes)


def _reads_and_writes(program: Program, buffer: str, reader: str, writer: str) -> tuple[list[Access], list[Access]]:
    found = accesses((), program.body, frozenset((buffer,)))
    return (
        [x for x in found if not x.is_write and x.block.name == reader],
        [x for x in found if x.is_write and x.block.name == writer],
    )


def writes_before(program: Program, buffer: str, writer: str, reader: str, equal: int) -> bool:
    """Whether an instance of one block may write an element of a buffer before an instance of the other one reads it, in one
    iteration of the outermost `equal` loops; and always where iterations around both, inside of these, have no order.
    """
    reads, writes = _reads_and_writes(program, buffer, reader, writer)
    inside = [x for w in writes[:1] for r in reads[:1] for x in common_loops(w, r)[equal:]]
    if any(x.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED) for x in inside):
        return True
    return any(happens_before(w, r, equal) for w in writes for r in reads)


def written_once(program: Program, buffer: str, loops: Sequence[str]) -> bool:
    """Whether all writers of a buffer stand in these loops, and no element is written in two iterations of them."""
    found = writers(program, buffer)
    if not all(set(loops) <= {x.var for x in around} for around, _ in found):
        return False
    return apart([((around, w), at) for around, w in found for at in stored_at(w, buffer)], (), loops)


def same_version(program: Program, buffer: str, consumers: Iterable[str], shared: Sequence[str], source: str) -> bool:
    """Whether what the consumers read of `buffer` comes from the contents that `source` has where they read it.

    A writer of `source` stands in the `shared` loops with the consumers. Either an element of `source` is written in one
    iteration of these only, or all that the consumers read of `buffer` is computed in the iteration in which they read it.
    """
    if not shared or written_once(program, source, shared):
        return True
    if not all(set(shared) <= {x.var for x in around} for around, _ in writers(program, buffer)):
        return False
    return all(follow_writes(program, buffer, name, len(shared)) for name in consumers)


def stored_at(w: Block, buffer: str) -> list[tuple[Expr, ...]]:
    """The subscripts of a buffer at which a block stores, over the loops around the block."""
    values = bindings(w)
    return [tuple(substitute(i, values) for i in s.indices) for s in (*w.init, *w.body) if s.buffer == buffer]


# Decides which part of a scan can run by itself: all of its steps, for some of its columns.
#
# The *columns* of a scan are its elements at one step. A part of them runs by itself if no step of it reads another column.
# All steps run where one is needed, since each needs those before it.


Ranges = list[tuple[Expr, Expr]]
"""A range `(lower, extent)` for each iterator of a block."""


@frozen
class Stays:
    """Why a part of a scan cannot run by itself, and what to do."""

    reason: str
    repair: str


def is_scan(b: Block) -> bool:
    return any(it.kind is IterKind.SCAN for it in b.iters)


def columns_of(b: Block, box: Ranges, around: Sequence[For]) -> Ranges | Stays:
    """The ranges of the instances of a scan that compute those in the box: all steps of their columns, and all values of an
    iterator at another value of which a step reads.

    In the order of the iterators, each of these instances reads its own buffer only where an earlier one of them stored. Each
    of the loops `around` moves the box, so that its iterations do not run the same steps again.
    """
    reads = [_back(b, r) for r in read_indices(b, b.body[0].buffer)]
    mixed = {name for r in reads if r is not None for name, by in r.items() if by.terms or by.constant}
    wide = mixed | {it.name for it in b.iters if it.kind is IterKind.SCAN}
    found = [(ZERO, it.extent) if it.name in wide else part for it, part in zip(b.iters, box, strict=True)]
    if b.is_reduction or not all(r is not None and _is_earlier(r) for r in reads):
        repair = f"leave `{b.name}` where it is"
        return Stays("it is a scan, and what its steps read is not known to be stored by earlier ones", repair)
    extents = [(lower, extent, it.extent) for it, (lower, extent) in zip(b.iters, found, strict=True)]
    if loop := repeating_loop(around, extents):
        repair = f"choose a loop outside of `{loop}`, each iteration of which reads other columns"
        return Stays(f"it is a scan, and each iteration of `{loop}` would run all of its steps", repair)
    return found


def _back(b: Block, indices: Sequence[Expr]) -> dict[str, Linear] | None:
    """How far before its own value of each iterator a step stored what it reads at `indices`; None if that is not known.
    Iterators with one value are left out.
    """
    context = Context(iter_ranges(b.iters))
    stored = [linear(i, context) for i in b.body[0].indices]
    places = {next(iter(s.terms)): d for d, s in enumerate(stored) if [*map(abs, s.terms.values())] == [1]}
    out: dict[str, Linear] = {}
    for it in b.iters:
        if it.extent == ONE:
            continue
        if it.name not in places:
            return None
        d = places[it.name]
        out[it.name] = stored[d].minus(linear(indices[d], context)).times(stored[d].terms[it.name])
    return out


def _is_earlier(back: Mapping[str, Linear]) -> bool:
    """Whether what is read is stored by an earlier instance, in the order of the iterators: the first of them that is not
    known to have the same value has a smaller one.
    """
    for by in back.values():
        if by.terms or by.constant < 0:
            return False
        if by.constant > 0:
            return True
    return False


# Conditions under which a block may run its instances in another order, and earlier.


@refusal(
    "E0368",
    "`{block}` cannot move: {reason}",
    help="leave it where it is, or move it before the step that made it so",
    at="block",
)
def ORDER(*focus: str, block: str, reason: str) -> None: ...


def require_one_each(program: Program, nest: Nest, around: Sequence[For]) -> None:
    """Refuse a block of which two instances may store one element in one iteration of the loops around it and the place below
    `around`: what the element holds in the end depends on their order.
    """
    b = nest[1]
    known = [b.iters[n].name for n in own_values(nest, around)]
    over = [For(it.name, it.extent, ()) for it in b.iters]
    others = [it.name for it in b.iters if it.kind is IterKind.SPATIAL and it.name not in known]
    for s in b.body:
        unknown = undetermined(b, s.indices, known)
        if unknown and not apart([((over, replace(b, where=())), s.indices)], known, others):
            reason = f"instances with different `{unknown}` store the same element of `{s.buffer}`"
            raise ORDER(program, b.name, block=b.name, reason=reason)


def require_versions(program: Program, nest: Nest, shared: Sequence[str]) -> None:
    """Refuse a block that stores an element again in later iterations of the `shared` loops, around it and its new place, if
    another one reads there what an earlier iteration stored.
    """
    b = nest[1]
    for buffer in sorted(own_buffers(b)):
        if not shared or written_once(program, buffer, shared):
            continue
        for loops, other in readers(program, buffer, but=b.name):
            inside = set(shared) <= {x.var for x in loops}
            if inside and not follow_writes(program, buffer, other.name, len(shared)):
                reason = f"`{other.name}` may read what an earlier iteration of `{shared[-1]}` left in `{buffer}`"
                raise ORDER(program, b.name, other.name, block=b.name, reason=reason)
