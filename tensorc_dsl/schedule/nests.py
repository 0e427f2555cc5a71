"""Rewrites programs by path and by buffer, and makes nests of new loops over a block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace as replace_fields
from operator import is_
from typing import TypeVar

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Expr,
    Load,
    Var,
    add,
    conjunction,
    constant,
    floormod,
    free_vars,
    index,
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.graph import Graph, Links, links
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    blocks,
    find_block,
    find_loop,
    fresh,
    is_scattered,
    replace_stmt,
    with_body,
)
from tensorc_dsl.proof.sets.accesses import home, touched
from tensorc_dsl.proof.sets.linear_forms import Interval
from tensorc_dsl.proof.sets.simplify import extent_ranges, iter_ranges, prove, simplify, simplify_where
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, NodeRef, ScheduleRefusal, refusal


def stmt_name(s: Stmt) -> str:
    return s.var if isinstance(s, For) else s.name


def remove_block(program: Program, block: str) -> Program:
    """The program without a block and without the loops that contained nothing else."""
    return replace_stmt(program, block, ())


Noted = TypeVar("Noted", bound=For | Block | Buffer | Program)


def noted(part: Noted, notes: Mapping[str, int | float | str | None]) -> Noted:
    """The part with annotations added; a key that exists gets the new value, or goes if that is None."""
    items = ((k, v) for k, v in {**dict(part.annotations), **notes}.items() if v is not None)
    return replace(part, annotations=tuple(sorted(items)))


def with_annotations(
    program: Program, part: For | Block | Program, notes: Mapping[str, int | float | str | None]
) -> Program:
    """The program with the annotations of a loop, a block or of itself changed, as `noted` does it."""
    if isinstance(part, Program):
        return noted(part, notes)
    return replace_stmt(program, stmt_name(part), (noted(part, notes),))


def replace_buffer(program: Program, name: str, new: tuple[Buffer, ...]) -> Program:
    """The program with an intermediate buffer's declaration replaced."""
    out = tuple(n for b in program.buffers for n in (new if b.name == name else (b,)))
    return replace(program, buffers=out)


def map_accesses(
    block: Block, buffer: str, access: Callable[[tuple[Expr, ...]], tuple[str, tuple[Expr, ...]]]
) -> Block:
    """The block with every load and store of a buffer moved to another buffer and other subscripts."""

    def load(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer == buffer:
            name, indices = access(e.indices)
            return Load(name, indices, e.dtype)
        return e

    def store(s: Store) -> Store:
        indices = tuple(rewrite_expr(i, load) for i in s.indices)
        name, indices = access(indices) if s.buffer == buffer else (s.buffer, indices)
        return Store(name, indices, rewrite_expr(s.value, load))

    return replace(block, init=tuple(map(store, block.init)), body=tuple(map(store, block.body)))


def stem(iterator: str, n: int) -> str:
    """The name for the loop of an iterator: `i` for `vi`, `ax0` if there is no better one."""
    rest = iterator[1:]
    return rest if iterator.startswith("v") and rest.isidentifier() else f"ax{n}"


def nest_over(
    block: Block,
    box: Sequence[tuple[Expr, Expr]],
    around: Sequence[For],
    used: set[str],
    wrapped: Collection[int] = (),
) -> Stmt:
    """A nest of new loops, inside `around`, that runs `block` for the iterator values in a box.

    The box has a lower bound over `around` and an extent per iterator; a guard excludes values outside an iterator's own
    extent, but those of the iterators with the numbers `wrapped` count modulo it. An iterator with one value has no loop.
    The names of the loops are added to `used`, and those of the block.
    """
    used |= {block.name, *(it.name for it in block.iters)}
    loops: list[For] = []
    bindings: list[Expr] = []
    for n, (it, (lower, extent)) in enumerate(zip(block.iters, box, strict=True)):
        value = lower
        if constant(extent) != 1:
            loop = For(fresh(stem(it.name, n), used), extent, ())
            loops.append(loop)
            value = add(lower, Var(loop.var))
        bindings.append(Binary("%", value, it.extent) if n in wrapped else value)
    ranges = extent_ranges((*around, *loops))
    iters = tuple(replace(it, binding=simplify(b, ranges)) for it, b in zip(block.iters, bindings, strict=True))
    guards = [
        c
        for n, (it, (lower, extent)) in enumerate(zip(iters, box, strict=True))
        if n not in wrapped and not (lower == ZERO and extent == it.extent)
        for c in (Compare("<=", ZERO, it.binding), Compare("<", it.binding, it.extent))
    ]
    open_loops = [x for x in (*around, *loops) if constant(x.extent) is None]
    known = simplify_where([Compare("<", Var(x.var), x.extent) for x in open_loops], ranges)
    where = tuple(c for c in simplify_where(guards, ranges) if c not in known)
    stmt: Stmt = replace(block, iters=iters, where=where)
    for loop in reversed(loops):
        stmt = replace(loop, body=(stmt,))
    return stmt


def nest_of(stmt: Stmt, around: Sequence[For]) -> tuple[tuple[For, ...], Block]:
    """The block in a nest that stands inside `around`, with all loops around it."""
    loops = list(around)
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body[0]
    return tuple(loops), stmt


def copy_nest(name: str, target: str, source: Buffer, box: Sequence[tuple[Expr, Expr]], used: set[str]) -> Stmt:
    """A nest over a block `name` that copies a box of `source` to `target`, starting at index 0."""
    iters = tuple(Iter(f"v{n}", IterKind.SPATIAL, extent, ZERO) for n, (_, extent) in enumerate(box))
    at = tuple(Var(it.name) for it in iters)
    value = Load(source.name, tuple(add(v, lower) for v, (lower, _) in zip(at, box, strict=True)), source.dtype)
    return nest_over(Block(name, iters, (Store(target, at, value),)), [(ZERO, e) for _, e in box], (), used)


def only_block(nest: Stmt) -> Block:
    """The block in a nest of loops without other statements."""
    while not isinstance(nest, Block):
        nest = nest.body[0]
    return nest


def guarded(nest: Stmt, guard: tuple[Expr, ...]) -> Stmt:
    """A nest of loops, with conditions added to each block in it."""
    if isinstance(nest, Block):
        return replace(nest, where=(*nest.where, *guard))
    return replace(nest, body=tuple(guarded(s, guard) for s in nest.body))


# Rewrites the statements below a loop when its variable is replaced by an expression over new loops.


def replace_variables(
    stmts: tuple[Stmt, ...],
    values: Mapping[str, Expr],
    around: tuple[For, ...],
    guard: tuple[Expr, ...] = (),
) -> tuple[Stmt, ...]:
    """`stmts`, which stand inside the loops `around`, with variables replaced and `guard` added to every block.

    Expressions with a replaced variable are simplified for the ranges of the loops around them.
    """
    return _statements(stmts, values, extent_ranges(around), guard)


def _statements(
    stmts: tuple[Stmt, ...], values: Mapping[str, Expr], ranges: Mapping[str, Interval], guard: tuple[Expr, ...]
) -> tuple[Stmt, ...]:
    names = values.keys()

    def new(e: Expr) -> Expr:
        return e if names.isdisjoint(free_vars(e)) else simplify(substitute(e, values), ranges)

    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, For):
            loop = s if (extent := new(s.extent)) is s.extent else replace(s, extent=extent)
            body = _statements(s.body, values, {**ranges, **extent_ranges((loop,))}, guard)
            out.append(loop if all(map(is_, body, s.body)) else with_body(loop, body))
        else:
            iters = tuple(
                [it if (e := new(it.binding)) is it.binding else Iter(it.name, it.kind, it.extent, e) for it in s.iters]
            )
            where = s.where
            if guard or any(not names.isdisjoint(free_vars(c)) for c in where):
                where = simplify_where((*(substitute(c, values) for c in where), *guard), ranges)
            same = where is s.where and all(map(is_, iters, s.iters))
            out.append(s if same else replace(s, iters=iters, where=where))
    return tuple(out)


def without_single(loop: For, around: tuple[For, ...]) -> For:
    """The loop; if it runs at most once, with 0 in place of its variable in all statements below it.

    So no reduction iterator depends on a loop that does not run in order, even if the loop has a single iteration.
    """
    extent = constant(loop.extent)
    if extent is None or extent > 1:
        return loop
    return replace(loop, body=replace_variables(loop.body, {loop.var: ZERO}, (*around, loop)))


def loops_below(loop: For) -> tuple[For, ...]:
    """The loops inside a loop, itself not included, in text order."""
    out: list[For] = []
    for s in loop.body:
        if isinstance(s, For):
            out += (s, *loops_below(s))
    return tuple(out)


# Finds the loops, blocks and buffers that a step names, with the refusals that all steps over loops share.


@refusal("E0310", "cannot {step} `{loop}`: it is already {kind}", at="loop")
def NOT_SERIAL(*focus: str, step: str, loop: str, kind: str, repair: str) -> None: ...
@refusal(
    "E0320",
    "`{loop}` is named twice",
    help="name each loop once, in the order they shall have",
    at="loop",
    label="the second time",
)
def REPEATED(*focus: str, loop: str) -> None: ...
@refusal(
    "E0340",
    "there is no loop `{loop}` at this point",
    help="a step that replaces a loop gives the new ones; name those",
    at="loop",
)
def NO_LOOP(*focus: str, loop: str) -> None: ...
@refusal(
    "E0341",
    "there is no block `{block}` at this point",
    help="the blocks here are: {blocks}",
    at="block",
)
def NO_BLOCK(*focus: str, block: str, blocks: str) -> None: ...
@refusal(
    "E0352",
    "there is no buffer `{buffer}` at this point",
    help="the buffers here are: {buffers}",
    at="buffer",
)
def NO_BUFFER(*focus: str, buffer: str, buffers: str) -> None: ...
@refusal(
    "E0666", "`{name}` is no graph of a model, and has no nodes", help="use steps of programs, on loops and blocks"
)
def NO_GRAPH(*focus: str, name: str) -> None: ...


def the_loop(program: Program, ref: LoopRef) -> tuple[tuple[For, ...], For]:
    """The loops around the loop, and the loop. Raises ScheduleRefusal if there is none of that name (any more)."""
    try:
        return find_loop(program, ref.name)
    except KeyError:
        raise NO_LOOP(program, loop=ref.name) from None


def refuse_repeated(program: Program, loops: Sequence[LoopRef]) -> None:
    """Refuse loops of which one is named twice."""
    names = [x.name for x in loops]
    for n, name in enumerate(names):
        if name in names[:n]:
            raise REPEATED(program, name, loop=name)


def the_block(program: Program, ref: BlockRef) -> tuple[tuple[For, ...], Block]:
    """The loops around the block, and the block. Raises ScheduleRefusal if there is none of that name (any more)."""
    try:
        return find_block(program, ref.name)
    except KeyError:
        names = sorted(b.name for b in blocks(program))
        raise NO_BLOCK(program, block=ref.name, blocks=", ".join(names)) from None


def the_statement(program: Program, ref: LoopRef | BlockRef) -> tuple[tuple[For, ...], Stmt]:
    """The loops around the loop or block, and it. Raises ScheduleRefusal if there is none of that name (any more)."""
    return the_loop(program, ref) if isinstance(ref, LoopRef) else the_block(program, ref)


def the_part(program: Program, ref: LoopRef | BlockRef | None) -> For | Block | Program:
    """The loop or the block, or the whole program. Raises ScheduleRefusal if there is none of that name (any more)."""
    return program if ref is None else the_statement(program, ref)[1]


def the_graph(program: Program) -> Graph:
    """The program, which is the graph of a model. Raises ScheduleRefusal if it is another one."""
    if not isinstance(program, Graph):
        raise NO_GRAPH(program, name=program.name)
    return program


def the_node(program: Program, ref: NodeRef) -> tuple[Links, int]:
    """The links of the graph, and the position of the node that has the call of that name: no step takes a call away.

    Raises ScheduleRefusal if the program is no graph.
    """
    found = links(the_graph(program))
    return found, found.position[ref.name]


def the_buffer(program: Program, ref: BufferRef) -> Buffer:
    """The buffer of that name. Raises ScheduleRefusal if there is none (any more)."""
    try:
        return program.buffer(ref.name)
    except KeyError:
        names = ", ".join(b.name for b in (*program.params, *program.buffers))
        raise NO_BUFFER(program, buffer=ref.name, buffers=names) from None


def mode_of(loop: For) -> str:
    """How a loop runs: its kind, or "scattered"."""
    return "scattered" if is_scattered(loop) else str(loop.kind)


def not_serial(program: Program, loop: For, step: str) -> ScheduleRefusal:
    """The refusal of a step that would take apart or move a loop that has a kind."""
    kind = mode_of(loop)
    facts = {"kind": kind, "repair": f"{step} `{loop.var}` first, then make a loop {kind}"}
    return NOT_SERIAL(program, loop.var, step=step, loop=loop.var, **facts)


def require_serial(program: Program, loop: For, step: str) -> None:
    """Refuse a loop that is parallel, vectorized, unrolled, pipelined or scattered for a step that takes it apart."""
    if mode_of(loop) != LoopKind.SERIAL:
        raise not_serial(program, loop, step)


def require_no_kind(program: Program, loop: For, step: str) -> None:
    """Refuse a loop that already has a kind for a step that gives it one."""
    if (kind := mode_of(loop)) != LoopKind.SERIAL:
        repair = "a loop has one kind; choose another loop"
        raise NOT_SERIAL(program, loop.var, step=step, loop=loop.var, kind=kind, repair=repair)


# Cuts the range of a loop into sibling loops that run one after another, each over a copy of the statements below.


@frozen
class Part:
    """The iterations `begin .. begin + extent - 1` of a loop, to run in a loop `name`.

    Names in its copy get `suffix` appended; with None it has the original statements instead of a copy.
    """

    name: str
    begin: Expr
    extent: Expr
    suffix: str | None


def cut_loop(
    program: Program, around: tuple[For, ...], loop: For, parts: Sequence[Part], used: set[str]
) -> tuple[tuple[For, ...], tuple[Buffer, ...]]:
    """A loop for each part, and the new buffers of the copies, which replace buffers that are private to an iteration.

    Loops and blocks of a copy get names that are not in `used`, and these are added to it.
    """
    own = [b for b in program.buffers if any(x.var == loop.var for x in home(program, b) or ())]
    loops: list[For] = []
    buffers: list[Buffer] = []
    for part in parts:
        body, values = loop.body, {loop.var: add(part.begin, Var(part.name))}
        if part.suffix is not None:
            copies = {b.name: replace_fields(b, name=fresh(b.name + part.suffix, used)) for b in own}
            buffers += copies.values()
            body = _copied(body, part.suffix, {b: copy.name for b, copy in copies.items()}, used, values)
        head = For(part.name, part.extent, (), annotations=loop.annotations)
        inside = (*around, head)
        body = _without_dead_init(replace_variables(body, values, inside), inside)
        loops.append(replace_fields(head, body=body))
    return tuple(loops), tuple(buffers)


def _copied(
    stmts: tuple[Stmt, ...], suffix: str, buffers: Mapping[str, str], used: set[str], values: dict[str, Expr]
) -> tuple[Stmt, ...]:
    """The statements with new names for loops, blocks and `buffers`; new loop variables are added to `values`."""
    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, For):
            name = fresh(s.var + suffix, used)
            values[s.var] = Var(name)
            out.append(replace_fields(s, var=name, body=_copied(s.body, suffix, buffers, used, values)))
        else:
            # A block with the name of the buffer that it writes gets the buffer's new name.
            b = replace_fields(s, name=buffers.get(s.name) or fresh(s.name + suffix, used))
            for old, new in buffers.items():
                b = map_accesses(b, old, lambda indices, new=new: (new, indices))
            out.append(b)
    return tuple(out)


def _without_dead_init(stmts: tuple[Stmt, ...], around: tuple[For, ...]) -> tuple[Stmt, ...]:
    """The statements, without the `init` of blocks that never run the first step of their reduction."""
    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, For):
            out.append(replace_fields(s, body=_without_dead_init(s.body, (*around, s))))
            continue
        first = conjunction(tuple(Compare("==", it.binding, ZERO) for it in s.iters if it.kind is IterKind.REDUCE))
        dead = first is not None and prove(first, extent_ranges(around)) is False
        out.append(replace_fields(s, init=()) if dead else s)
    return tuple(out)


def dimension_modulo(program: Program, buffer: Buffer, axis: int, size: int) -> Program:
    """The program in which the dimension has `size` places, and all subscripts of it are taken modulo that."""
    for b in blocks(program):
        if buffer.name in touched(b):
            ranges = iter_ranges(b.iters)

            def at(indices: tuple[Expr, ...], ranges: Mapping[str, tuple[int | None, int | None]] = ranges):
                place = simplify(floormod(indices[axis], index(size)), ranges)
                return buffer.name, (*indices[:axis], place, *indices[axis + 1 :])

            program = replace_stmt(program, b.name, (map_accesses(b, buffer.name, at),))
    shape = (*buffer.shape[:axis], index(size), *buffer.shape[axis + 1 :])
    return replace_buffer(program, buffer.name, (replace_fields(buffer, shape=shape),))


def computes_the_same(program: Program, result: Program) -> bool:
    """Whether it is proved that both give the same results: no element is read after another one took its place."""
    # The validator loads isl and NumPy, which a check of a file does without.
    from tensorc_dsl.proof.equivalence.validate import proves

    return proves(program, result)
