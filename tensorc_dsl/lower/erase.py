"""Turns blocks into plain stores: bindings replace iterators, guards replace `where`, stores of their own replace `init`.

The initialiser of a reduction stands before the outermost loop that runs its reduction, in a copy of the spatial loops
below it. If this is not proved to be equivalent, it stays in place under "all reduction iterators are 0", and stands before
that loop for the sizes at which the reduction is empty.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.annotations import fetched_ahead
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Expr,
    Load,
    Logic,
    Var,
    add,
    children,
    conjunction,
    constant,
    dims_in,
    floordiv,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    blocks,
    fresh,
    is_atomic,
    is_scattered,
    replace_stmt,
    store_at,
    used_names,
    walk,
    with_body,
)
from tensorc_dsl.ir.reductions import REDUCER, needed_later
from tensorc_dsl.lower.flat import Flat, If, Loop, span
from tensorc_dsl.proof.sets.linear_forms import Interval, Ranges
from tensorc_dsl.proof.sets.reductions import begins_once, may_be_empty, where_begun
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, is_multiple, linear_form, prove, simplify


@frozen
class Erased:
    """Statements without blocks; `carried[v]` has the buffers whose contents outlive an iteration of loop `v`."""

    body: tuple[Flat, ...]
    carried: dict[str, frozenset[str]]


def with_old_elements(program: Program) -> Program:
    """The program with a buffer for each element that a reducer needs after it has stored a new one.

    Only what stores are at once changes: a block whose stores run in their order reads such an element from the buffer.
    """
    used = used_names(program)
    for b in blocks(program):
        body: list[Store] = []
        kept: dict[str, Load] = {}
        for name in needed_later(b):
            old = next(Load(s.buffer, s.indices, program.buffer(s.buffer).dtype) for s in b.body if s.buffer == name)
            own = Buffer(fresh(f"{name}_before", used), old.dtype, (), "local")
            program = replace(program, buffers=(*program.buffers, own))
            kept[name] = Load(own.name, (), own.dtype)
            body.append(Store(own.name, (), old))
        if not kept:
            continue

        def before(e: Expr, kept: dict[str, Load] = kept) -> Expr:
            return kept.get(e.buffer, e) if isinstance(e, Load) else e

        body += (replace(s, value=rewrite_expr(s.value, before)) for s in b.body)
        annotations = tuple(a for a in b.annotations if a[0] != REDUCER)
        program = replace_stmt(program, b.name, (replace(b, body=tuple(body), annotations=annotations),))
    return program


def erase(program: Program) -> Erased:
    """The program as loops, guards and stores; subscripts still have one expression per dimension."""
    carried: dict[str, frozenset[str]] = {}
    for _, s in walk(program.body):
        if isinstance(s, Block):
            written = frozenset(x.buffer for x in (*s.init, *s.body))
            for it in s.iters:
                if it.kind is not IterKind.SPATIAL:
                    for v in free_vars(it.binding):
                        carried[v] = carried.get(v, frozenset()) | written
    return Erased(_stmts(program.body, {}, frozenset()), carried)


def _stmts(body: tuple[Stmt, ...], ranges: Ranges, done: frozenset[str]) -> tuple[Flat, ...]:
    """The statements without blocks; `done` names the blocks whose init already stands further out."""
    out: list[Flat] = []
    for s in body:
        if isinstance(s, Block):
            out.extend(_block(s, ranges, s.name not in done))
            continue
        inner: Ranges = {**ranges, s.var: span(s.extent)}
        hoisted: list[str] = []
        starting = [(x, b) for x, b in walk(s.body) if isinstance(b, Block) and b.init and b.name not in done]
        if starting:
            below: Ranges = {**inner, **{x.var: span(x.extent) for _, x in walk(s.body) if isinstance(x, For)}}
            for around, b in starting:
                path = (s, *around)
                if _separable(path, b, below):
                    out.extend(_init_nest(path, b, below))
                    hoisted.append(b.name)
                elif may_be_empty(b) and s.var in (counting := _counting(b)) and counting.isdisjoint(ranges):
                    out.append(If(_empty(b), _init_nest(path, b, below)))
        below_it = _stmts(s.body, inner, done | set(hoisted))
        out.append(Loop(s.var, ZERO, s.extent, _kind(s), below_it, is_scattered(s), fetched_ahead(s)))
    return tuple(out)


def _kind(loop: For) -> LoopKind:
    """The kind of the loop on a CPU: pipelines and loops bound to a GPU's axes run in order."""
    return LoopKind.SERIAL if loop.kind in (LoopKind.PIPELINED, LoopKind.BOUND) else loop.kind


def _guard(conds: tuple[Expr, ...], body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    cond = conjunction(conds)
    return body if cond is None else (If(cond, body),)


def _block(b: Block, ranges: Ranges, with_init: bool) -> tuple[Flat, ...]:
    values = {it.name: it.binding for it in b.iters}
    atomic = b.name if is_atomic(b) else ""
    body: tuple[Flat, ...] = tuple(replace(store_at(s, values), atomic=atomic) for s in b.body)
    if b.init and with_init:
        first = tuple(Compare("==", it.binding, ZERO) for it in b.iters if it.kind is IterKind.REDUCE)
        open_conds = tuple(c for c in first if prove(c, ranges) is not True)
        body = (*_guard(open_conds, tuple(store_at(s, values) for s in b.init)), *body)
    return _guard(b.where, body)


def _runs(loop: For, b: Block) -> bool:
    """Whether a loop over an open extent is proved to run at all; otherwise there may be nothing to initialise, unless the
    reduction may be empty."""
    return not dims_in(loop.extent) or (bounds(loop.extent, {})[0] or 0) >= 1 or may_be_empty(b)


def _counting(b: Block) -> frozenset[str]:
    return frozenset[str]().union(*(free_vars(it.binding) for it in b.iters if it.kind is IterKind.REDUCE))


def _empty(b: Block) -> Expr:
    """The condition on sizes under which the reduction has no steps."""
    extents = [it.extent for it in b.iters if it.kind is IterKind.REDUCE and constant(it.extent) is None]
    return reduce(lambda a, c: Logic("or", a, c), (Compare("==", e, ZERO) for e in extents))


def _reduction_vars(b: Block, ranges: Ranges) -> frozenset[str] | None:
    """The loops that run the reduction; None unless its iterators are all 0 exactly if these loops are all 0."""
    out: set[str] = set()
    for it in b.iters:
        if it.kind is IterKind.REDUCE:
            terms, rest = linear_form(it.binding, ranges)
            if rest or any(not isinstance(a, Var) or c < 0 for a, c in terms.items()):
                return None
            out.update(a.name for a in terms if isinstance(a, Var))
    if may_be_empty(b):  # a loop of at most one iteration may have none
        out |= _counting(b)
    return frozenset(out)


def _separable(path: tuple[For, ...], b: Block, ranges: Ranges) -> bool:
    """Whether `b`, inside the loops of `path`, may be initialised before the first of them, which runs its reduction."""
    reduction = _reduction_vars(b, ranges)
    if reduction is None or path[0].var not in reduction or not all(_runs(x, b) for x in path if x.var in reduction):
        return False
    if not reduction <= {x.var for x in path}:
        return False  # a loop further out runs it too, and is handled there
    for it in b.iters:
        if it.kind is not IterKind.REDUCE and free_vars(simplify(it.binding, ranges)) & reduction:
            return False
    if not begins_once(path, b, reduction, ranges):  # a block that runs again begins again between its steps
        return False
    initialised = {s.buffer for s in b.init}
    sources = {x.buffer for s in b.init for x in loads(s.value)}
    for _, other in walk(path[0].body):
        if isinstance(other, Block):
            written = {s.buffer for s in (*other.init, *other.body)}
            read = {x.buffer for s in (*other.init, *other.body) for e in (s.value, *s.indices) for x in loads(e)}
            if written & sources or (other is not b and (written | read) & initialised):
                return False
    return True


def _init_nest(path: tuple[For, ...], b: Block, ranges: Ranges) -> tuple[Flat, ...]:
    """The loops of `path` that do not run the reduction, around the initialiser."""
    reduction = _reduction_vars(b, ranges)
    reduction = _counting(b) if reduction is None else reduction
    zero: dict[str, Expr] = dict.fromkeys(reduction, ZERO)
    values = {it.name: substitute(it.binding, zero) for it in b.iters}
    body: tuple[Flat, ...] = tuple(store_at(s, values) for s in b.init)
    body = _guard(tuple(substitute(c, zero) for c in where_begun(b)), body)
    for loop in reversed(path):
        if loop.var not in reduction:
            body = (Loop(loop.var, ZERO, loop.extent, _kind(loop), body),)
    return body


# Splits fused loops again if only their parts are used: `f` with `f / n` and `f % n` becomes two loops.
#
# Subscripts then stay linear, guards on a part can be cut off, and no loop contains a division. A vectorized loop keeps its
# innermost part as the vector if that is still wide; otherwise it stays as it is.


_NARROWEST_VECTOR = 4


def defuse(program: Program) -> Program:
    """The program with the same instances in the same order, and fused loops split at the strides of their uses."""
    used = used_names(program)
    return replace(program, body=_defuse_stmts(program.body, {}, {}, used))


def _defuse_stmts(
    body: tuple[Stmt, ...], values: dict[str, Expr], ranges: dict[str, Interval], used: set[str]
) -> tuple[Stmt, ...]:
    return tuple(
        _defuse_block(s, values, ranges) if isinstance(s, Block) else _loop(s, values, ranges, used) for s in body
    )


def _defuse_block(b: Block, values: dict[str, Expr], ranges: dict[str, Interval]) -> Block:
    if not values:
        return b
    # A loop of at most one iteration may have none, where `init` runs: a reduction keeps the names of loops that count it.
    counted = {v: (0, 1) if r == (0, 0) else r for v, r in ranges.items()} if may_be_empty(b) else ranges
    known = {kind: counted if kind is IterKind.REDUCE else ranges for kind in IterKind}
    return replace(
        b,
        iters=tuple(replace(it, binding=simplify(substitute(it.binding, values), known[it.kind])) for it in b.iters),
        where=tuple(simplify(substitute(c, values), ranges) for c in b.where),
    )


def _loop(s: For, values: dict[str, Expr], ranges: dict[str, Interval], used: set[str]) -> For:
    cuts = [] if is_scattered(s) else _cuts(s)  # data choose an iteration of the whole loop
    if not cuts:
        return with_body(s, _defuse_stmts(s.body, values, {**ranges, **extent_ranges((s,))}, used))
    value: Expr = index(0)
    inner = dict(ranges)
    parts: list[For] = []
    top = s.extent
    for cut in (*reversed(cuts), 1):
        name = fresh(f"{s.var}_{len(parts)}", used)
        parts.append(For(name, simplify(floordiv(top, index(cut)), ranges), ()))
        value = add(value, mul(Var(name), index(cut)))
        top = index(cut)
    inner |= extent_ranges(parts)
    body = _defuse_stmts(s.body, {**values, s.var: value}, inner, used)
    for part in reversed(parts):
        outer_of_vector = s.kind is LoopKind.VECTORIZED and part is not parts[-1]
        kind = LoopKind.UNROLLED if outer_of_vector else s.kind
        body = (For(part.var, part.extent, body, kind, s.annotations),)
    loop = body[0]
    assert isinstance(loop, For)  # there is at least one part
    return loop


def _cuts(s: For) -> list[int]:
    """The strides, ascending, at which the uses of the loop's variable cut it; none if they are not nested."""
    found: set[int] = set()
    for b in _blocks(s.body):
        for e in (*(it.binding for it in b.iters), *b.where):
            if s.var in free_vars(e):
                _collect(e, s.var, found)
    extent = constant(s.extent)
    cuts = sorted(c for c in found if c > 1 and (extent is None or c < extent))
    if not cuts or any(b % a for a, b in pairwise(cuts)) or not is_multiple(s.extent, cuts[-1], {}):
        return []
    if s.kind is LoopKind.VECTORIZED and cuts[0] < _NARROWEST_VECTOR:
        return []
    return cuts


def _blocks(body: tuple[Stmt, ...]) -> list[Block]:
    return [b for s in body for b in ([s] if isinstance(s, Block) else _blocks(s.body))]


def _collect(e: Expr, var: str, found: set[int]) -> int | None:
    """The stride of `e` if it is `var` under a chain of divisions by constants, else None. Adds strides to `found`."""
    if isinstance(e, Var):
        return 1 if e.name == var else None
    if isinstance(e, Binary) and e.op in ("/", "%") and (c := constant(e.rhs)) is not None and c > 0:
        stride = _collect(e.lhs, var, found)
        if stride is None:
            return None
        found.add(stride * c)
        return stride * c if e.op == "/" else stride
    for part in children(e):
        _collect(part, var, found)
    return None
