"""Copies of buffers: the copied box, the place of the copy, and the blocks that use it.

A *site* is a run of statements in the body of one loop (or of the program). A copy made before it holds the elements that
the statements read, since none of them writes the buffer. A copy written back after it holds the elements that they wrote,
since all of them use the copy instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tensorc_dsl.ir.expr import ZERO, Expr, Load, Var, constant, free_vars, loads, substitute
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
    replace_stmt,
    walk,
)
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.proof.sets.private import follow_writes
from tensorc_dsl.proof.sets.regions import RangedSubscripts, Region, inner_ranges, open_limits, required_region
from tensorc_dsl.proof.sets.sets import bindings
from tensorc_dsl.proof.sets.simplify import extent_ranges
from tensorc_dsl.schedule.kinds import RACE
from tensorc_dsl.schedule.motion import own_buffers, require_no_vector, shared_loops, writers
from tensorc_dsl.schedule.nests import map_accesses, nest_over, stmt_name
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0379",
    "`{buffer}` may have elements that nothing writes, and the copy would read them",
    help="copy it before the step that leaves them unwritten",
    at="buffer",
)
def NOT_FILLED(*focus: str, buffer: str) -> None: ...
@refusal(
    "E0366",
    "`{block}` may not write every element of `{buffer}` that a copy of it would write",
    help="copy what a block writes element by element, as `{buffer}[i, j] = …` does",
    at="block",
)
def NOT_WHOLE(*focus: str, block: str, buffer: str) -> None: ...


@dataclass(frozen=True, slots=True)
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


def region_at(
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
        writer = next(b.name for _, b in walk(program.body) if isinstance(b, Block) and buffer in own_buffers(b))
        raise NOT_FILLED(program, writer, buffer=buffer)


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
