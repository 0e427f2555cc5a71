"""Allocates intermediate buffers: each in the innermost loop that contains all its uses, with the size that one iteration
needs, and with subscripts relative to the corner of that box, flattened in row-major order. Outputs that update inputs take
the memory of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod
from operator import is_

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Compare,
    Expr,
    Load,
    Var,
    add,
    ceildiv,
    constant,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
    sub,
)
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import (
    ALIGN,
    OFFSET,
    SWIZZLE,
    Block,
    Buffer,
    For,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    walk,
    with_body,
)
from tensorc_dsl.ir.sizes import spanned_expr
from tensorc_dsl.lower.flat import (
    Alloc,
    Flat,
    If,
    Loop,
    LowerError,
    Parallel,
    Param,
    Space,
    buffers_of,
    most,
    span,
    store_loads,
)
from tensorc_dsl.proof.sets.dependence import overwritten
from tensorc_dsl.proof.sets.linear_forms import Atom, Context, Linear, Ranges, depends_on_data, linear, to_expr
from tensorc_dsl.proof.sets.sets import extremes
from tensorc_dsl.proof.sets.simplify import conjuncts, simplify
from tensorc_dsl.schedule.nests import map_accesses

# Computes the box of a buffer that one iteration accesses: a box per access, with its corner over the outer loops.


@frozen
class GuardedAccess:
    """One read or write inside a loop body, with the ranges of the loops in between and the guards around it.

    If `exact`, the loops run through their whole ranges; a loop with an open end may stop earlier.
    """

    write: bool
    indices: tuple[Expr, ...]
    inner: Ranges
    conds: tuple[Expr, ...]
    exact: bool


@frozen
class Side:
    """One dimension of a box: from `corner` + low to `corner` + high, inclusive; `corner` is over outer loops."""

    corner: Linear
    low: int
    high: int


def accesses(body: tuple[Flat, ...], buffer: str) -> list[GuardedAccess]:
    """Every access to `buffer`, in the order of one iteration: the reads of a store come before its write."""

    def go(part: tuple[Flat, ...], inner: Ranges, conds: tuple[Expr, ...], exact: bool) -> Iterator[GuardedAccess]:
        for s in part:
            match s:
                case Store():
                    if buffer not in buffers_of(s):
                        continue
                    for x in store_loads(s):
                        if x.buffer == buffer:
                            yield GuardedAccess(False, x.indices, inner, conds, exact)
                    if s.buffer == buffer:
                        yield GuardedAccess(True, s.indices, inner, conds, exact)
                case Loop(var=v, end=end):
                    known = exact and constant(end) is not None
                    yield from go(s.body, {**inner, v: span(end)}, conds, known)
                case Parallel(vars=names, extents=extents):
                    more = {v: span(e) for v, e in zip(names, extents, strict=True)}
                    known = exact and all(constant(e) is not None for e in extents)
                    yield from go(s.body, {**inner, **more}, conds, known)
                case If(cond=cond):
                    yield from go(s.body, inner, (*conds, *conjuncts(cond)), exact)
                case _:
                    yield from go(s.body, inner, conds, exact)

    return list(go(body, {}, (), True))


def side(e: Expr, inner: Ranges, outer: Ranges) -> Side | None:
    """The values of a subscript over the inner loops; None if they are unbounded or cannot be separated."""
    context = Context({**outer, **inner})
    form = linear(e, context)
    own: dict[Atom, int] = {}
    around: dict[Atom, int] = {}
    for a, c in form.terms.items():
        names = frozenset((a,)) if isinstance(a, str) else free_vars(a)
        moves = names & inner.keys() or (not isinstance(a, str) and depends_on_data((a,)))
        (own if moves else around)[a] = c
    low, high = context.range_of_terms(own, form.constant)
    return None if low is None or high is None else Side(Linear(around, 0), low, high)


def join(a: Side, b: Side) -> Side | None:
    """The smallest side that contains both; None if the difference of their corners is not a number."""
    if a.corner.terms != b.corner.terms:
        return None
    return Side(a.corner, min(a.low, b.low), max(a.high, b.high))


def reached(found: Sequence[GuardedAccess], d: int, outer: Ranges) -> Side | None:
    """The side along dimension `d` that contains what all accesses reach; None if it is not known.

    The guards of an access are used where it alone would make the side larger: the last round of a copy by many threads is
    cut, and has lines after the box that are not stored.
    """
    own = [side(a.indices[d], a.inner, outer) for a in found]
    box: Side | None = None
    for a, s in sorted(zip(found, own, strict=True), key=lambda x: bool(x[0].conds)):
        if s is None or (box is not None and join(box, s) is None):
            return None
        if a.conds and (box is None or s.low < box.low or s.high > box.high):
            s = _guarded(s, a, d, outer)
        box = s if box is None else join(box, s)
    return box


def _guarded(s: Side, a: GuardedAccess, d: int, outer: Ranges) -> Side:
    """The part of a side that an access reaches where its guards hold."""
    ends = extremes(sub(a.indices[d], to_expr(s.corner)), {**outer, **a.inner}, a.conds)
    return s if ends is None else Side(s.corner, max(s.low, ends[0]), min(s.high, ends[1]))


def clip(s: Side, extent: Expr) -> Side:
    """The part of a side inside the buffer; it is cut only if the corner is a number."""
    n = most(extent)
    return s if s.corner.terms else Side(s.corner, max(s.low, 0), s.high if n is None else min(s.high, n - 1))


def corner(s: Side) -> Expr:
    """The least subscript of a side."""
    return to_expr(s.corner.plus_constant(s.low))


def bounds_own_index(cond: Expr, indices: tuple[Expr, ...], shape: tuple[Expr, ...], ranges: Ranges) -> bool:
    """Whether a guard only requires that one of the subscripts is in bounds."""
    want = simplify(cond, ranges)
    for i, n in zip(indices, shape, strict=True):
        from_below, from_above = Compare(">=", i, ZERO), Compare("<", i, n)
        if want in (simplify(from_below, ranges), simplify(from_above, ranges)):
            return True
    return False


STACK_BYTES = 16 * 1024
"""Larger buffers are on the heap: worker threads have small stacks, and frames must not touch new pages in a loop."""

Subscripts = Callable[[str, tuple[Expr, ...]], Expr]
"""From the name of a buffer and its subscripts to a single subscript."""


def shape_of(b: Buffer) -> tuple[Expr, ...]:
    """The extents of a buffer: numbers, or expressions over open dimensions."""
    return tuple(simplify(e, {}) for e in b.shape)


@frozen
class _Subject:
    """The buffer that is being allocated. `home` and `carried` name loops: those each of whose iterations has a buffer of its
    own by its scope (see `buffer_loops`), and those that keep its contents from one iteration to the next."""

    buffer: Buffer
    shape: tuple[Expr, ...]
    home: frozenset[str]
    carried: frozenset[str]


@frozen
class _Around:
    """The loops around a place: their ranges, the vectorized ones with their lanes, and whether one is parallel."""

    ranges: Ranges
    lanes: tuple[tuple[str, int], ...] = ()
    parallel: bool = False


def buffer_loops(program: Program) -> dict[str, frozenset[str]]:
    """For each buffer that is not global, the loops around all blocks that access it. Where that is one block, which reduces,
    they are those around all of its steps, unless each step writes what it reads of the buffer.

    By its scope it is private to an iteration of the innermost of these loops; accepting a parallel loop may rely on
    that.
    """
    users: dict[str, list[tuple[tuple[str, ...], Block]]] = {}
    scopes = {b.name: b.scope for b in program.buffers}
    for around, s in walk(program.body):
        if isinstance(s, Block):
            for name in _mentioned(s):
                if scopes.get(name, "global") != "global":
                    users.setdefault(name, []).append((tuple(loop.var for loop in around), s))
    return {name: _around_all(name, found) for name, found in users.items()}


def _around_all(name: str, users: list[tuple[tuple[str, ...], Block]]) -> frozenset[str]:
    path, first = users[0]
    if len(users) > 1:
        return frozenset(path).intersection(*(other for other, _ in users[1:]))
    if _is_written_first(first, name):
        return frozenset(path)
    steps = {v for it in first.iters if it.kind is IterKind.REDUCE for v in free_vars(it.binding)}
    return frozenset(path[: next((n for n, v in enumerate(path) if v in steps), len(path))])


def _is_written_first(b: Block, name: str) -> bool:
    """Whether each instance of the block writes the element of the buffer that it reads."""
    used = next(s for s in (*b.init, *b.body) if name in {s.buffer, *(x.buffer for x in store_loads(s))})
    reads = [x.indices for s in b.body for x in store_loads(s) if x.buffer == name]
    return (
        all(s.buffer != name for s in b.init)
        and used.buffer == name
        and all(x.buffer != name for x in store_loads(used))
        and all(i == used.indices for i in reads)
    )


def _mentioned(b: Block) -> set[str]:
    every = (*b.init, *b.body)
    return {s.buffer for s in every} | {x.buffer for s in every for x in store_loads(s)}


def place(
    body: tuple[Flat, ...],
    buffers: tuple[Buffer, ...],
    home: dict[str, frozenset[str]],
    carried: dict[str, frozenset[str]],
) -> tuple[Flat, ...]:
    """The body with an `Alloc` around the uses of each buffer, and one subscript in all accesses to them."""
    for b in buffers:
        if any(b.name in _touched(s) for s in body):
            loops = frozenset(v for v, names in carried.items() if b.name in names)
            body = _place(body, _Subject(b, shape_of(b), home.get(b.name, frozenset()), loops), _Around({}))
    return body


def flatten_params(body: tuple[Flat, ...], params: tuple[Buffer, ...]) -> tuple[Flat, ...]:
    """The body with row-major subscripts for the arguments and for prepared buffers."""
    strides = {b.name: b.strides or _strides(shape_of(b), _pitches(b)) for b in params}
    return _rewrite(body, strides.keys(), lambda name, indices: _offset(indices, strides[name]))


def element_count(b: Buffer) -> Expr:
    """The number of elements that a whole buffer spans, including the space between rows."""
    shape = shape_of(b)
    if b.strides:
        return simplify(spanned_expr(shape, b.strides), {})
    return simplify(mul(shape[0], _strides(shape, _pitches(b))[0]), {}) if shape else ONE


def _offset(indices: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Expr:
    out: Expr = ZERO
    for i, stride in zip(indices, strides, strict=False):
        out = add(out, mul(i, stride))
    return out


def _strides(shape: tuple[Expr, ...], pitches: Mapping[int, tuple[int, int]]) -> tuple[Expr, ...]:
    """The distance of neighbours along each dimension, at least as large as the inner dimensions need.

    With a pitch (factor, offset) for a dimension it is the least such distance that is a multiple of factor plus offset.
    """
    out: list[Expr] = []
    inner: Expr = ONE
    for d, n in reversed(list(enumerate(shape))):
        if d in pitches:
            factor, offset = pitches[d]
            inner = simplify(
                add(mul(ceildiv(sub(inner, index(offset)), index(factor)), index(factor)), index(offset)), {}
            )
        out.append(inner)
        inner = mul(n, inner)
    return tuple(reversed(out))


def _pitches(b: Buffer) -> dict[int, tuple[int, int]]:
    """The dimensions of a buffer with pitches from annotations, with their factors and offsets."""
    given = dict(b.annotations)
    out: dict[int, tuple[int, int]] = {}
    for d in range(len(b.shape)):
        factor, offset = given.get(f"{ALIGN}.{d}"), given.get(f"{OFFSET}.{d}", 0)
        if isinstance(factor, int) and isinstance(offset, int) and factor > 0:
            out[d] = (factor, offset % factor)
    return out


@by_identity(512)
def _touched(s: Flat) -> frozenset[str]:
    """The buffers that a statement accesses."""
    return buffers_of(s) if isinstance(s, Store) else frozenset[str]().union(*map(_touched, s.body))


def _place(body: tuple[Flat, ...], subject: _Subject, around: _Around) -> tuple[Flat, ...]:
    used = [k for k, s in enumerate(body) if subject.buffer.name in _touched(s)]
    first, last = used[0], used[-1]
    only = body[first]
    if first == last and not isinstance(only, Store):
        inside = _enter(only, subject, around) if isinstance(only, Loop) else around
        if inside is not None:
            inner = _place(only.body, subject, inside)
            return (*body[:first], replace(only, body=inner), *body[first + 1 :])
    return (*body[:first], _allocate(body[first : last + 1], subject, around), *body[last + 1 :])


def _enter(loop: Loop, subject: _Subject, around: _Around) -> _Around | None:
    """The surroundings inside `loop` if each iteration may have a buffer of its own, else None."""
    n = constant(loop.end)
    ranges: Ranges = {**around.ranges, loop.var: span(loop.end)}
    if loop.var not in subject.home and (loop.var in subject.carried or not _private(loop.body, subject, ranges)):
        return None
    parallel = around.parallel or loop.kind is LoopKind.PARALLEL
    if loop.kind is not LoopKind.VECTORIZED:
        return _Around(ranges, around.lanes, parallel)
    return None if n is None else _Around(ranges, (*around.lanes, (loop.var, n)), parallel)


def _private(body: tuple[Flat, ...], subject: _Subject, outer: Ranges) -> bool:
    """Whether each iteration writes every element of the buffer before it reads it.

    This holds if the first access is a write whose box contains the boxes of all reads. A guard of that write may only keep
    it in bounds, or be over outer loops, so that it is the same for the whole iteration.
    """
    shape = subject.shape
    found = accesses(body, subject.buffer.name)
    if not found or not found[0].write or not found[0].exact:
        return False
    first = found[0]
    for cond in first.conds:
        known = {**outer, **first.inner}
        if not bounds_own_index(cond, first.indices, shape, known):
            return False
    for d, n in enumerate(shape):
        whole = side(first.indices[d], first.inner, outer)
        if whole is None:
            return False
        for a in found:
            if not a.write:
                part = side(a.indices[d], a.inner, outer)
                if part is None or join(whole, part) is None:
                    return False
                part = clip(part, n)
                if part.low < whole.low or part.high > whole.high:
                    return False
    return True


def _allocate(part: tuple[Flat, ...], subject: _Subject, around: _Around) -> Alloc:
    """The allocation around `part`, no larger than the box that `part` accesses."""
    b, shape = subject.buffer, subject.shape
    found = accesses(part, b.name)
    sides: list[Side | None] = []
    for d, n in enumerate(shape):
        box = reached(found, d, around.ranges)
        limit = most(n)
        sides.append(None if box is None or (limit is not None and box.high - box.low + 1 >= limit) else box)
    sizes = tuple(n if s is None else index(s.high - s.low + 1) for s, n in zip(sides, shape, strict=True))
    corners = tuple(ZERO if s is None else corner(s) for s in sides)
    # A vectorized loop around needs one copy per lane, interleaved, so that a vector of them is contiguous.
    sizes = _on_stack((*sizes, *(index(n) for _, n in around.lanes)), b.dtype.bytes)
    lane_vars: tuple[Expr, ...] = tuple(Var(v) for v, _ in around.lanes)
    strides = _strides(sizes, {} if lane_vars else _pitches(b))

    def subscript(_: str, indices: tuple[Expr, ...]) -> Expr:
        own = tuple(sub(i, c) for i, c in zip(indices, corners, strict=True))
        return _offset((*own, *lane_vars), strides)

    count = mul(sizes[0], strides[0]) if sizes else ONE
    elements = constant(count)
    small = elements is not None and elements * b.dtype.bytes <= STACK_BYTES
    space: Space = "stack" if small else "worker" if around.parallel else "shared"
    return Alloc(b.name, b.dtype, count, space, _rewrite(part, {b.name}, subscript), _swizzle(b, strides))


def _swizzle(b: Buffer, strides: tuple[Expr, ...]) -> tuple[int, Expr] | None:
    """The unit and the distance of rows from an annotation."""
    given = dict(b.annotations)
    for d, stride in zip(range(len(b.shape)), strides, strict=False):
        if isinstance(unit := given.get(f"{SWIZZLE}.{d}"), int):
            return unit, stride
    return None


def _on_stack(sizes: tuple[Expr, ...], element: int) -> tuple[Expr, ...]:
    """The sizes at their largest if even these fit the stack, so that none is open; else as they are."""
    largest = [most(n) for n in sizes]
    if None in largest or prod(n for n in largest if n is not None) * element > STACK_BYTES:
        return sizes
    return tuple(index(n) for n in largest if n is not None)


def _rewrite(body: tuple[Flat, ...], names: Collection[str], subscript: Subscripts) -> tuple[Flat, ...]:
    """The body with one subscript in each access to a buffer of those names."""

    def expr(e: Expr) -> Expr:
        return (
            Load(e.buffer, (subscript(e.buffer, e.indices),), e.dtype)
            if isinstance(e, Load) and e.buffer in names
            else e
        )

    def stmt(s: Flat) -> Flat:
        if not isinstance(s, Store):
            body = tuple(map(stmt, s.body))
            # Unchanged statements stay the same objects, so that the next buffer's pass can skip them.
            return s if all(map(is_, body, s.body)) else replace(s, body=body)
        if buffers_of(s).isdisjoint(names):
            return s
        indices = tuple([rewrite_expr(i, expr) if loads(i) else i for i in s.indices])
        value = rewrite_expr(s.value, expr) if loads(s.value) else s.value
        return replace(s, indices=(subscript(s.buffer, indices),) if s.buffer in names else indices, value=value)

    return tuple(map(stmt, body))


# Outputs in the memory of the inputs that they update: from here on a program has one array for both.


def callers_params(program: Program) -> tuple[Buffer, ...]:
    """The arguments of the kernel of a program. One that is input and output updates itself."""
    over = {p.updates for p in program.params if p.updates}
    kept = (p for p in program.params if p.updates in ("", p.name))
    return tuple(replace(p, updates=p.name if p.name in over else "") for p in kept)


def params_of(program: Program) -> tuple[Param, ...]:
    """The arguments of the kernel of a program, as its code takes them."""
    written = {p.name for p in program.outputs}
    return tuple(Param.of(p, output=bool(p.updates) or p.name in written) for p in callers_params(program))


def in_place(program: Program) -> Program:
    """The program with one array for an output and the input that it updates.

    Raises LowerError unless integer sets prove that each element is read for the last time before it is written.
    """
    names = {p.name: p.updates for p in program.params if p.updates not in ("", p.name)}
    for written, read in names.items():
        if found := overwritten(program, written, read):
            raise LowerError(
                f"`{written}` cannot update `{read}`: {found}; reorder the loops or keep `{read}` and `{written}` apart"
            )

    def moved(s: Stmt) -> Stmt:
        if isinstance(s, For):
            return with_body(s, tuple(map(moved, s.body)))
        for old, new in names.items():
            s = _renamed(s, old, new)
        return s

    if not names:
        return program
    return replace(program, params=callers_params(program), body=tuple(map(moved, program.body)))


def _renamed(b: Block, old: str, new: str) -> Block:
    return map_accesses(b, old, lambda indices: (new, indices))
