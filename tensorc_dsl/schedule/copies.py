"""Copies of buffers: the copied box, the place of the copy, the blocks that use it, and the scope that it is in.

A *site* is a run of statements in the body of one loop (or of the program). A copy made before it holds the elements that
the statements read, since none of them writes the buffer. A copy written back after it holds the elements that they wrote,
since all of them use the copy instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Expr, Load, Var, constant, free_vars, index, loads, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    AT_ONCE,
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    Program,
    Stmt,
    Store,
    blocks_in,
    find_block,
    fresh,
    replace_stmt,
    used_names,
    walk,
)
from tensorc_dsl.proof.sets.accesses import follow_writes, touched
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.proof.sets.regions import (
    RangedSubscripts,
    Region,
    full_domain,
    inner_ranges,
    open_limits,
    required_region,
)
from tensorc_dsl.proof.sets.sets import NotAffine, bindings, mapping
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, iter_ranges, simplify, simplify_where
from tensorc_dsl.schedule.kinds import RACE
from tensorc_dsl.schedule.motion import own_buffers, read_indices, require_no_vector, shared_loops, writers
from tensorc_dsl.schedule.nests import guarded, map_accesses, nest_over, only_block, stmt_name
from tensorc_dsl.schedule.step import BlockRef, IndexMap, Rewrite, refusal


@refusal(
    "E0379",
    "`{buffer}` may have elements that nothing writes, and the copy would read them",
    help="{repair}",
    at="buffer",
)
def NOT_FILLED(*focus: str, buffer: str, repair: str) -> None: ...
@refusal(
    "E0366",
    "`{block}` may not write every element of `{buffer}` that a copy of it would write",
    help="copy what a block writes element by element, as `B[i, j] = exp(A[i, j])` does",
    at="block",
)
def NOT_WHOLE(*focus: str, block: str, buffer: str) -> None: ...


@frozen
class Site:
    """Statements `first` to `last`, by name, in the body of the innermost of `loops`; of the program if `loops` is empty."""

    loops: tuple[For, ...]
    first: str
    last: str


def body_at(program: Program, loops: Sequence[For]) -> tuple[Stmt, ...]:
    return loops[-1].body if loops else program.body


def block_names(program: Program, site: Site) -> tuple[str, ...]:
    """The names of the blocks in the statements of a site, in text order."""
    return tuple(b.name for b in blocks_in(_run(program, site)))


def _run(program: Program, site: Site) -> tuple[Stmt, ...]:
    body = body_at(program, site.loops)
    names = [stmt_name(s) for s in body]
    return body[names.index(site.first) : names.index(site.last) + 1]


def site_of(program: Program, block: str, depth: int) -> Site:
    """The site of the statement around a block, in the body of the loop at that depth (from 1; 0 is the program)."""
    around, b = find_block(program, block)
    name = stmt_name(around[depth]) if depth < len(around) else b.name
    return Site(around[:depth], name, name)


def widest_site(program: Program, block: str, buffer: str) -> Site:
    """The site of the outermost statement around a block in which no other block writes the buffer."""
    around, _ = find_block(program, block)
    others = [x for x, s in walk(program.body) if isinstance(s, Block) and s.name != block and buffer in own_buffers(s)]
    return site_of(program, block, max((len(shared_loops(around, x)) for x in others), default=0))


def spanning_site(program: Program, loops: tuple[For, ...], buffer: str) -> Site:
    """The site from the first to the last statement in the body of the innermost of `loops` that writes the buffer."""
    depth = len(loops)
    found = [
        stmt_name((*around, b)[depth])
        for around, b in writers(program, buffer)
        if len(shared_loops(around, loops)) == depth
    ]
    return Site(loops, found[0], found[-1])


def region_to_copy(
    program: Program, around: tuple[For, ...], buffer: Buffer, blocks: Collection[str], *, written: bool = False
) -> Region:
    """A box that contains all elements of a buffer that some blocks access in one iteration of the loops `around`; with
    `written` those that they store.
    """
    outside = {x.var for x in around}
    found: list[RangedSubscripts] = []
    for loops, b in walk(program.body):
        if isinstance(b, Block) and b.name in blocks:
            # Without loops around, the ranges of iterators apply, which are those of the loops without guarded values. Those
            # of different blocks may have one name.
            own = {it.name: Var(f"{b.name}'{it.name}") for it in b.iters}
            inner = inner_ranges(
                loops if around else [For(own[it.name].name, it.extent, ()) for it in b.iters], outside
            )
            values: Mapping[str, Expr] = bindings(b) if around else own
            for s in (*b.init, *b.body):
                indices = [s.indices] if s.buffer == buffer.name else []
                if not written:
                    indices += [x.indices for e in (s.value, *s.indices) for x in loads(e) if x.buffer == buffer.name]
                found += [(tuple(substitute(i, values) for i in x), inner) for x in indices]
    return required_region(found, extent_ranges(around), buffer.shape, open_limits(around))


def box_copy(name: str, target: str, source: Buffer, region: Region, around: Sequence[For], used: set[str]) -> Stmt:
    """A nest over a block `name`, inside `around`, that copies a box of `source` to the same place of `target`."""
    iters = tuple(Iter(f"v{n}", IterKind.SPATIAL, extent, ZERO) for n, extent in enumerate(source.shape))
    at = tuple(Var(it.name) for it in iters)
    block = Block(name, iters, (Store(target, at, Load(source.name, at, source.dtype)),))
    return nest_over(block, region, around, used)


def conditions_of_elements(program: Program, site: Site, buffer: str, copy: Block) -> tuple[Expr, ...]:
    """The conditions on elements, without which the only block of a site that writes a buffer writes none, for the block
    `copy` of the same elements, whose iterators are their subscripts.

    A condition on steps of a reduction does not restrict an element, nor does one over a loop that is a part of a subscript.
    """
    found = [(loops, b) for loops, b in writers(program, buffer) if b.name in block_names(program, site)]
    if len(found) != 1:
        return ()
    ((loops, b),) = found
    values = bindings(b)
    counted: dict[str, Expr] = {x.var: Var(x.var) for x in site.loops}
    for d, i in enumerate(next(s.indices for s in b.body if s.buffer == buffer)):
        match values.get(i.name) if isinstance(i, Var) else None:
            case Var(name=loop):
                counted[loop] = copy.iters[d].binding
            case _:
                pass
    ones: dict[str, Expr] = {x.var: ZERO for x in loops if constant(x.extent) == 1}
    where = (substitute(c, ones) for c in b.where)
    return tuple(substitute(c, counted) for c in where if free_vars(c) <= counted.keys())


def insert(program: Program, site: Site, before: tuple[Stmt, ...] = (), after: tuple[Stmt, ...] = ()) -> Program:
    """The program with statements added just before and after a site."""
    for name, new in ((site.first, "before"), (site.last, "after")):
        here = next(s for _, s in walk(program.body) if stmt_name(s) == name)
        program = replace_stmt(program, name, (*before, here) if new == "before" else (here, *after))
    return program


def redirected(program: Program, site: Site, buffer: str, to: str) -> Program:
    """The program in which all blocks of a site use the buffer `to` in place of `buffer`."""

    def moved(indices: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        return to, indices

    for name in block_names(program, site):
        b = find_block(program, name)[1]
        if buffer in touched(b):
            program = replace_stmt(program, name, (map_accesses(b, buffer, moved),))
    return program


def require_defined(result: Program, program: Program, buffer: str, copy: str) -> None:
    """Refuse if the block `copy` of the result may read elements that no block of the program has written before."""
    if not follow_writes(result, buffer, copy):
        writer = next(b for _, b in walk(program.body) if isinstance(b, Block) and buffer in own_buffers(b))
        repair = "copy it before the step that leaves them unwritten"
        if writer.init:
            repair = f"`decompose_reduction` of `{writer.name}` first, so that its initial values are there"
        raise NOT_FILLED(program, writer.name, buffer=buffer, repair=repair)


def require_order(result: Program, program: Program, site: Site) -> None:
    """Refuse a site inside a vectorized loop, and one that makes iterations of parallel loops depend on each other."""
    if site.loops:
        require_no_vector(program, site.loops, site.loops[-1].var)
    for x in site.loops:
        if x.kind in AT_ONCE and (dependence := carried(result, x.var)):
            repair = 'give the copy a scope that is private to an iteration, as "local" is'
            raise RACE(program, x.var, loop=x.var, dependence=dependence, repair=repair)


def with_buffer(program: Program, buffer: Buffer) -> Program:
    return replace(program, buffers=(*program.buffers, buffer))


# Copies of a buffer with a layout over the iterators of the block that uses it.


@refusal(
    "E0629",
    "`{block}` does not use one element of `{buffer}` that is known, in an instance: {uses}",
    help="use `cache_read` or `cache_write`, whose copies have the form of the buffer",
    at="buffer",
)
def DIFFERENT(*focus: str, block: str, buffer: str, uses: str) -> None: ...
@refusal(
    "E0630",
    "`{other}` uses `{buffer}`, too, and would not see what `{block}` puts into a copy",
    help="use it before moving `{other}` below the loops of `{block}`, on a block that alone writes its buffer",
    at="buffer",
)
def NOT_ALONE(*focus: str, other: str, buffer: str, block: str) -> None: ...
@refusal(
    "E0639",
    "`{other}` writes `{buffer}` below the loops of `{block}`, after the copy that stands before them",
    help="use it before moving `{other}` there, or `read_at` inside the loop that both are below",
    at="buffer",
)
def LATER(*focus: str, other: str, buffer: str, block: str) -> None: ...
@refusal(
    "E0631",
    "`{layout}` gives no places for what `{block}` uses of `{buffer}`: {reason}",
    help="map the {rank} iterators of `{block}` to places of their own, as `({params}) -> ({params})` does",
    at="index_map",
)
def BAD_PLACES(*focus: str, layout: str, block: str, buffer: str, reason: str, rank: int, params: str) -> None: ...


CopyAxes = tuple[tuple[Expr, Expr], ...]
"""For each dimension of a copy, the subscript over the iterators of a block, and the extent."""


def subscripts(program: Program, block: Block, buffer: Buffer) -> tuple[Expr, ...]:
    """The subscripts of the only element of a buffer that an instance of the block accesses."""
    found = [s.indices for s in (*block.init, *block.body) if s.buffer == buffer.name]
    unique = tuple(dict.fromkeys((*found, *read_indices(block, buffer.name))))
    if len(unique) != 1 or any(loads(i) for i in unique[0]):
        uses = " and ".join(f"`{buffer.name}[{', '.join(map(format_expr, i))}]`" for i in unique)
        raise DIFFERENT(program, block.name, block=block.name, buffer=buffer.name, uses=uses or "none that is known")
    return unique[0]


def by_iterators(block: Block, indices: Sequence[Expr]) -> CopyAxes:
    """Places with one dimension for each iterator that occurs in the subscripts."""
    used = frozenset[str]().union(*map(free_vars, indices))
    return tuple((Var(it.name), it.extent) for it in block.iters if it.name in used)


def copied_by_map(
    program: Program, block: Block, buffer: Buffer, layout: IndexMap, indices: Sequence[Expr]
) -> CopyAxes:
    """Places given by a map from all iterators of the block."""

    def refuse(reason: str) -> Exception:
        text = f"({', '.join(layout.params)}) -> ({', '.join(map(format_expr, layout.results))})"
        own = ", ".join(it.name for it in block.iters)
        return BAD_PLACES(
            program, block.name, block=block.name, buffer=buffer.name, layout=text, reason=reason,
            rank=len(block.iters), params=own,
        )  # fmt: skip

    if len(layout.params) != len(block.iters) or len(set(layout.params)) != len(layout.params):
        raise refuse(f"it takes ({', '.join(layout.params)}), the block has {len(block.iters)} iterators")
    values: dict[str, Expr] = {p: Var(it.name) for p, it in zip(layout.params, block.iters, strict=True)}
    extents = {it.name: it.extent for it in block.iters}
    ranges = iter_ranges(block.iters)
    out: list[tuple[Expr, Expr]] = []
    init_reads = any(x.buffer == buffer.name for s in block.init for x in loads(s.value))
    whole = init_reads or buffer.name in own_buffers(block)  # accessed outside of the steps of the reduction
    counting = {p for p, it in zip(layout.params, block.iters, strict=True) if it.kind is not IterKind.SPATIAL}
    for result in layout.results:
        if whole and (steps := sorted(free_vars(result) & counting)):
            raise refuse(f"`{steps[0]}` counts the steps for one element")
        if unknown := sorted(free_vars(result) - set(layout.params)):
            raise refuse(f"`{unknown[0]}` is not a parameter of it")
        place = simplify(substitute(result, values), ranges)
        low, high = bounds(place, ranges)
        if low is None or low < 0 or (high is None and not isinstance(place, Var)):
            raise refuse(f"`{format_expr(result)}` is not an index from 0 up to a known size")
        out.append((place, extents[place.name] if isinstance(place, Var) else index((high or 0) + 1)))
    if not one_to_one(block, [p for p, _ in out], indices):
        raise refuse(f"two elements of `{buffer.name}` may have one place")
    return tuple(out)


def one_to_one(block: Block, places: Sequence[Expr], indices: Sequence[Expr] = ()) -> bool:
    """Whether different values of the iterators in `places` and `indices` always have different places."""
    used = frozenset[str]().union(*map(free_vars, (*places, *indices)))
    iters = [it for it in block.iters if it.name in used]
    if {p.name for p in places if isinstance(p, Var)} == {it.name for it in iters}:
        return True
    limits = [c for it in iters for c in (Compare("<=", ZERO, Var(it.name)), Compare("<", Var(it.name), it.extent))]
    try:
        return mapping([it.name for it in iters], places, limits).is_injective()
    except NotAffine:
        return False


def reindexed_read(
    program: Program, block: Block, buffer: Buffer, indices: tuple[Expr, ...], places: CopyAxes, scope: str, tag: str
) -> Rewrite[BlockRef]:
    """The block reads a copy, made before the outermost loop around it, in which each instance has a place of its own."""
    site = site_of(program, block.name, 0)
    for other in block_names(program, site):
        if other != block.name and buffer.name in own_buffers(find_block(program, other)[1]):
            raise LATER(program, block.name, other, block=block.name, other=other, buffer=buffer.name)
    used = used_names(program)
    name = copy_name(buffer, tag, used)
    at = tuple(p for p, _ in places)
    nest = _nest(program, block, name, Store(name, at, Load(buffer.name, indices, buffer.dtype)), used)
    result = _using(program, block, buffer.name, name, at)
    result = insert(result, site, (nest,))
    result = with_buffer(result, Buffer(name, buffer.dtype, tuple(n for _, n in places), scope))
    if writers(program, buffer.name):
        require_defined(result, program, buffer.name, name)
    return Rewrite(result, BlockRef(name))


def reindexed_write(
    program: Program, block: Block, buffer: Buffer, indices: tuple[Expr, ...], places: CopyAxes, scope: str, tag: str
) -> Rewrite[BlockRef]:
    """The block writes a copy in which each instance has a place of its own; it is written back after the block."""
    site = site_of(program, block.name, 0)
    _require_alone(program, site, block, buffer)
    at = tuple(p for p, _ in places)
    spatial = [it for it in block.iters if it.kind is IterKind.SPATIAL and it.extent != ONE]
    loops = find_block(program, block.name)[0]
    told = all(one_to_one(block, x, [Var(it.name) for it in spatial]) for x in (indices, at))
    if not told or not full_domain(loops, block):
        raise NOT_WHOLE(program, block.name, block=block.name, buffer=buffer.name)
    used = used_names(program)
    name, out = copy_name(buffer, tag, used), fresh(f"{buffer.name}_write", used)
    nest = _nest(program, block, out, Store(buffer.name, indices, Load(name, at, buffer.dtype)), used)
    result = insert(_using(program, block, buffer.name, name, at), site, (), (nest,))
    result = with_buffer(result, Buffer(name, buffer.dtype, tuple(n for _, n in places), scope))
    return Rewrite(result, BlockRef(out))


def _require_alone(program: Program, site: Site, block: Block, buffer: Buffer) -> None:
    """Refuse if another block uses the buffer below the same outermost loop, or writes it anywhere."""
    near = [n for n in block_names(program, site) if buffer.name in touched(find_block(program, n)[1])]
    for other in (*near, *(b.name for _, b in writers(program, buffer.name))):
        if other != block.name:
            raise NOT_ALONE(program, block.name, other, block=block.name, other=other, buffer=buffer.name)


def _nest(program: Program, block: Block, name: str, store: Store, used: set[str]) -> Stmt:
    """A nest over all values of the iterators of a copy, guarded so that the subscripts lie in the buffers."""
    mentioned = frozenset[str]().union(*(free_vars(i) for s in (store.indices, _read(store)) for i in s))
    iters = tuple(Iter(it.name, IterKind.SPATIAL, it.extent, ZERO) for it in block.iters if it.name in mentioned)
    copy = Block(name, iters, (store,))
    nest = nest_over(copy, [(ZERO, it.extent) for it in iters], (), used)
    names = {it.name: b.binding for it, b in zip(iters, only_block(nest).iters, strict=True)}
    shapes = {b.name: b.shape for b in (*program.params, *program.buffers)}
    guard = [
        substitute(c, names)
        for buffer, indices in ((store.buffer, store.indices), *((x.buffer, x.indices) for x in loads(store.value)))
        for i, n in zip(indices, shapes.get(buffer, ()), strict=buffer in shapes)
        for c in simplify_where((Compare("<=", ZERO, i), Compare("<", i, n)), iter_ranges(copy.iters))
        if not (isinstance(i, Var) and next(it.extent for it in iters if it.name == i.name) == n)
    ]
    return guarded(nest, tuple(guard))


def _read(store: Store) -> tuple[Expr, ...]:
    return tuple(i for x in loads(store.value) for i in x.indices)


def _using(program: Program, block: Block, old: str, new: str, at: tuple[Expr, ...]) -> Program:
    def moved(_: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        return new, at

    return replace_stmt(program, block.name, (map_accesses(block, old, moved),))


# The scopes of buffers.
#
# "global" is memory that all iterations share. A buffer of any other scope is private to an iteration of the innermost loop
# around all its uses: "local" to a thread, "shared" and "shared.dyn" to the threads of a GPU block. "warp" is spread over the
# lanes of a warp: each has the elements that it stores in registers, and others get them by shuffles. `family.part`
# ("mma.a", "wmma.accumulator") is spread in the layout of an instruction. On a CPU all of them are local
# memory. On a GPU a statement at the top of a program is a kernel, and only global memory outlives it.


@refusal(
    "E0622",
    'there is no scope "{scope}"',
    help='write "global", "local", "warp", "shared", "shared.dyn", or a fragment as "mma.a"',
    at="scope",
)
def NO_SCOPE(*focus: str, scope: str) -> None: ...
@refusal(
    "E0641",
    '`{buffer}` is in "{scope}", which ends with a kernel; the blocks `{first}` and `{second}` use it in two kernels',
    help="move the one into the kernel of the other (`compute_at`), or leave `{buffer}` in global memory",
)
def OUTLIVES(*focus: str, buffer: str, scope: str, first: str, second: str) -> None: ...


_PLAIN = frozenset(("global", "local", "shared", "warp"))
_PART = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")


def require_scope(program: Program, scope: str) -> None:
    """Refuse a word that is not the name of a scope."""
    if scope not in _PLAIN and not _PART.fullmatch(scope):
        raise NO_SCOPE(program, scope=scope)


def copy_name(buffer: Buffer, scope: str, used: set[str]) -> str:
    """The name for a copy of a buffer in a scope; it is added to `used`."""
    return fresh(f"{buffer.name}_{scope.replace('.', '_')}", used)


def require_kernels_apart(program: Program) -> None:
    """Refuse a finished program for a GPU in which two kernels use a buffer that is not global.

    Intermediate programs may do so: a copy is first made and later moved to its readers.
    """
    users: dict[str, tuple[int, str]] = {}
    scopes = {b.name: b.scope for b in program.buffers if b.scope != "global"}
    for kernel, stmt in enumerate(program.body):
        for b in (s for _, s in walk((stmt,)) if isinstance(s, Block)):
            for name in sorted(touched(b) & scopes.keys()):
                place, first = users.setdefault(name, (kernel, b.name))
                if place != kernel:
                    facts = {"first": first, "second": b.name, "buffer": name, "scope": scopes[name]}
                    raise OUTLIVES(program, *dict.fromkeys((first, b.name, name)), **facts)
