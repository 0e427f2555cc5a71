"""The passes of CPUs: the common ones, then vectors, choices that lanes share, partial results across lanes, unrolling and
registers; how much code flat statements become, which limits them; and which lines of caches a loop fetches ahead.

A few lines are fetched at the beginning of an iteration, many by the loops inside. A tile of a product reads the next panel
for the first time all at once, and waits for memory; the tiles after it read the panel from caches. A line that is fetched in
every few steps of the tiles before comes while they compute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from operator import is_

from tensorc_dsl.backend.llvm.lower.code_size import (
    code_size,
    fits_registers,
    is_long,
    steps,
    written_stores,
)
from tensorc_dsl.backend.llvm.lower.remainders import copy_tiles, end_loops, fill_lanes
from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    Compare,
    Expr,
    Logic,
    Not,
    Select,
    Var,
    add,
    children,
    conjunction,
    constant,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
    sub,
    substitute,
)
from tensorc_dsl.ir.program import MAX_STEP, Annotation, For, LoopKind, Program, Store, is_in_order, map_store, walk
from tensorc_dsl.ir.reductions import fold_of
from tensorc_dsl.ir.target import CACHE_LINE
from tensorc_dsl.lower.flat import (
    Alloc,
    Flat,
    If,
    Kernel,
    Loop,
    Parallel,
    body_of,
    buffers_of,
    inside,
    store_loads,
    stores,
    stride,
)
from tensorc_dsl.lower.lower import COMMON, Pass, Unit, bind_instructions, instructions, lower
from tensorc_dsl.lower.storage import element_count
from tensorc_dsl.lower.trim_bounds import Around, known_of
from tensorc_dsl.proof.sets.linear_forms import Context, difference
from tensorc_dsl.proof.sets.simplify import conjuncts, simplify

# Takes choices that all lanes share out of vectorized loops: those of a row that may be the border of an image.
#
# for j in 0 .. 64 vectorized { S[…] = a if i > 0 else b }
#   ->  if i > 0 { for j … { S[…] = a } } if not i > 0 { for j … { S[…] = b } }
#
# A choice in a vector is a branch for each vector otherwise, and what several vectors load is not shared across it. Most
# such choices are decided where loops are cut; those of tiles that move with time are not, since their rows depend on
# several loops.


MOST = 8
"""The largest number of versions of a loop."""


def take_out_choices(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The body with vectorized loops under the conditions that their lanes share."""
    out: list[Flat] = []
    for is_row, run in groupby(body, _is_row):
        if is_row:
            out.extend(_versions(tuple(run), MOST))
        else:
            out.extend(s if isinstance(s, Store) else replace(s, body=take_out_choices(s.body)) for s in run)
    return tuple(out)


def _is_row(s: Flat) -> bool:
    """Whether a statement is a vectorized loop over stores that read other elements of the buffer they store to: steps of a
    scan. What adds to its own element is in registers."""
    return isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED and all(map(_is_step, s.body))


def _is_step(x: Flat) -> bool:
    own = [r for r in store_loads(x) if r.buffer == x.buffer] if isinstance(x, Store) else []
    return isinstance(x, Store) and bool(own) and all(r.indices != x.indices for r in own)


def _versions(run: tuple[Flat, ...], most: int) -> tuple[Flat, ...]:
    """At most so many versions of some rows, each under its conditions."""
    cond = next(_shared(run), None) if most > 1 else None
    if cond is None:
        return run
    yes, no = (tuple(_decided(s, cond, holds) for s in run) for holds in (True, False))
    return (If(cond, _versions(yes, most // 2)), If(Not(cond), _versions(no, most // 2)))


def _shared(run: tuple[Flat, ...]) -> Iterator[Expr]:
    """The conditions of choices that the lanes of all rows share, those of outer choices first."""
    lanes = frozenset(s.var for s in run if isinstance(s, Loop))
    for s in run:
        for x in body_of(s):
            stack = [x.value] if isinstance(x, Store) else []
            while stack:
                e = stack.pop()
                cond = _uniform(e, lanes) if isinstance(e, Select) else None
                if cond is not None:
                    yield cond
                stack.extend(reversed(children(e)))


def _uniform(e: Select, lanes: frozenset[str]) -> Expr | None:
    """The part of a choice's condition that is about positions and none of the lanes; None if there is none."""
    return conjunction(tuple(c for c in conjuncts(e.cond) if _is_about_positions(c) and lanes.isdisjoint(free_vars(c))))


def _is_about_positions(c: Expr) -> bool:
    """Whether a condition compares indices and loads nothing."""
    if isinstance(c, Compare):
        return dtype_of(c.lhs) == INDEX and not loads(c)
    return isinstance(c, (Logic, Not)) and all(map(_is_about_positions, children(c)))


def _decided(s: Flat, cond: Expr, holds: bool) -> Flat:
    """A row in which choices by that condition are made."""
    assert isinstance(s, Loop)  # see `_is_row`
    lanes = frozenset({s.var})

    def made(e: Expr) -> Expr:
        if not isinstance(e, Select) or _uniform(e, lanes) != cond:
            return e
        rest = conjunction(tuple(c for c in conjuncts(e.cond) if c not in conjuncts(cond)))
        return e.other if not holds else e.then if rest is None else Select(rest, e.then, e.other)

    return replace(s, body=tuple(replace(x, value=rewrite_expr(x.value, made)) for x in s.body if isinstance(x, Store)))


# Makes two versions of a loop whose choices stay the same while it runs: those of a tile that may be at an image's border.
#
# for c in 0 .. 64 { for i in 0 .. 4 unrolled { S[i] += (a if x + i > 0 else 0) * b } }
#   ->  if x > 0 { for c … { S[i] += a * b } } if not x > 0 { for c … { S[i] += (a if x + i > 0 else 0) * b } }
#
# Else each row of the tile is a branch in every round, which keeps sums out of registers. The loop around, over the tiles,
# could be cut instead, but its pieces are copies of all that is in it.


VERSIONED_CODE = 512
"""The largest `code_size` of a loop of which there are two versions."""


def settle_choices(body: tuple[Flat, ...], known: frozenset[Expr] = frozenset()) -> tuple[Flat, ...]:
    """The body with innermost serial loops without their choices where conditions before the loop settle all of these, and
    with them elsewhere. `known` holds around the body."""
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(s)
            case Loop(kind=LoopKind.SERIAL) if all(isinstance(x, (Store, Loop)) for x in inside(s.body)) and not any(
                isinstance(x, Loop) and x.kind is LoopKind.SERIAL for x in inside(s.body)
            ):
                out += _settled(s, known)
            case If():
                own = frozenset(c for c in conjuncts(s.cond) if _is_about_positions(c))
                out.append(replace(s, body=settle_choices(s.body, known | own)))
            case _:
                bound = {s.var} if isinstance(s, Loop) else set(s.vars) if isinstance(s, Parallel) else set[str]()
                here = frozenset(c for c in known if bound.isdisjoint(free_vars(c)))
                out.append(replace(s, body=settle_choices(s.body, here)))
    return tuple(out)


def _settled(s: Loop, known: frozenset[Expr]) -> tuple[Flat, ...]:
    """A loop, or its two versions."""
    bound = {x.var for x in inside((s,)) if isinstance(x, Loop)}
    body = _without((s,), [c for c in known if bound.isdisjoint(free_vars(c))])
    needs: dict[Expr, dict[Expr | None, None]] = {}
    for cond, need in _steady(body, ()):
        needs.setdefault(cond, {})[need] = None
    settled = {cond: found for cond, found in needs.items() if None not in found}
    cond = conjunction(tuple(dict.fromkeys(c for found in settled.values() for c in found if c is not None)))
    if cond is None or code_size(body) > VERSIONED_CODE:
        return body
    return (If(cond, _without(body, settled.keys())), If(Not(cond), body))


def _steady(body: tuple[Flat, ...], around: tuple[Loop, ...]) -> Iterator[tuple[Expr, Expr | None]]:
    """The conditions on positions of choices, each with one under which it holds in all iterations of the loops `around`."""
    for s in body:
        if isinstance(s, Loop):
            yield from _steady(s.body, (*around, s))
        elif isinstance(s, Store):
            stack = [s.value]
            while stack:
                e = stack.pop()
                if isinstance(e, Select):
                    yield from ((c, _in_all(c, around)) for c in conjuncts(e.cond) if _is_about_positions(c))
                stack.extend(children(e))


def _in_all(c: Expr, around: tuple[Loop, ...]) -> Expr | None:
    """That a comparison holds in all iterations of loops; None if that is not known, or changes in the loops that stay."""
    if not isinstance(c, Compare) or c.op not in {"<", "<=", ">", ">="}:
        return None
    for s in reversed(around):
        begin, end = constant(s.begin), constant(s.end)
        form = difference(c.lhs, c.rhs, Context({}))
        if any(not isinstance(a, str) and s.var in free_vars(a) for a in form.terms):
            return None
        if (factor := form.terms.get(s.var, 0)) == 0:
            continue
        if s.kind is not LoopKind.UNROLLED or begin is None or end is None or begin >= end:
            return None
        largest = (factor > 0) == (c.op in {"<", "<="})
        at = {s.var: index(end - 1 if largest else begin)}
        c = Compare(c.op, substitute(c.lhs, at), substitute(c.rhs, at))
    return simplify(c, {})


def _without(body: tuple[Flat, ...], settled: Collection[Expr]) -> tuple[Flat, ...]:
    """Statements whose choices no longer ask for conditions that hold."""

    def made(e: Expr) -> Expr:
        if not isinstance(e, Select):
            return e
        rest = tuple(c for c in conjuncts(e.cond) if c not in settled)
        return (
            e
            if len(rest) == len(conjuncts(e.cond))
            else replace(e, cond=left)
            if (left := conjunction(rest))
            else e.then
        )

    return tuple(
        map_store(s, lambda e: rewrite_expr(e, made))
        if isinstance(s, Store)
        else replace(s, body=_without(s.body, settled))
        for s in body
    )


# Makes vectorized loops serial unless a code generator can run their lanes in lock step.
#
# A loop is one vector operation per store if every store goes to a different element in each lane.
# The scheduler has proved that lanes have no dependences; this pass checks the form of the stores only.


def legalise_vectors(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The body with the innermost vectorized loops; one around another, around threads, or with shared stores is serial."""
    return tuple(_legal(s) for s in body)


def _legal(s: Flat) -> Flat:
    if isinstance(s, Store):
        return s
    s = replace(s, body=legalise_vectors(s.body))
    if isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED and not _has_lanes(s):
        return replace(s, kind=LoopKind.SERIAL)
    return s


def _has_lanes(s: Loop) -> bool:
    if constant(s.begin) is None or constant(s.end) is None or _holds_wide(s.body, s.var):
        return False
    return all(s.var in free_vars(x.indices[0]) for x in stores(s.body))


def _holds_wide(body: tuple[Flat, ...], var: str) -> bool:
    """Whether a body contains a parallel loop, another vectorized loop, or a loop whose length depends on the lane."""
    for s in body:
        if isinstance(s, Parallel):
            return True
        if isinstance(s, Loop):
            if s.kind is LoopKind.VECTORIZED or var in free_vars(s.begin) | free_vars(s.end):
                return True
        if _holds_wide(body_of(s), var):
            return True
    return False


def lanes_are_independent(s: Loop) -> bool:
    """Whether a serial loop of plain stores may run as a vector: contiguous stores that no other iteration reads.

    It may if each store moves by one element per iteration, and its buffer is read, if at all, at exactly
    the stored element. Other accesses are allowed for buffers that are only read.
    """
    written: dict[str, set[object]] = {}
    for x in s.body:
        if not isinstance(x, Store) or stride(x.indices[0], s.var) != 1:
            return False
        written.setdefault(x.buffer, set()).add(x.indices[0])
    if any(len(places) > 1 for places in written.values()):
        return False
    for x in s.body:
        assert isinstance(x, Store)
        for r in store_loads(x):
            if r.buffer in written and {r.indices[0]} != written[r.buffer]:
                return False
            if r.buffer not in written and stride(r.indices[0], s.var) not in (0, 1):
                return False
        if dtype_of(x.value).bits < 8:
            return False
    return True


# Keeps small private buffers in registers: vectorizes or unrolls loops over them until their subscripts are constant.
#
# A buffer is in registers if every access has a subscript over unrolled variables, lanes of a vectorized loop
# and constants. LLVM then finds one value per vector, carried around the reduction loop. A single access in a serial loop
# would force the whole buffer into memory, so short serial loops that access such a buffer are changed with it.


UNROLLED_CODE = 2048
"""The largest `code_size` that unrolling for registers may leave in one loop."""

NARROWEST_VECTOR = 4

MAPPED_CODE = 1024
"""The largest `code_size` to which a loop that only maps elements is unrolled: longer code gains nothing."""

UNROLLED_STORES = 512
"""The largest number of stores of one unrolled nest: LLVM compares the stores of a loop with each other, which takes two
seconds for this number and ten for twice as many. It is the whole register file as f32, lane by lane."""


def keep_in_registers(body: tuple[Flat, ...], *, in_lanes: bool = False) -> tuple[Flat, ...]:
    """The body with serial loops that keep small stack buffers out of registers vectorized or, if `in_lanes`, unrolled."""
    return tuple(_keep(s, in_lanes) for s in body)


def _keep(s: Flat, in_lanes: bool) -> Flat:
    if isinstance(s, Store):
        return s
    lanes = in_lanes or (isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED)
    s = replace(s, body=keep_in_registers(s.body, in_lanes=lanes))
    if not isinstance(s, Alloc) or not fits_registers(s) or any(isinstance(x, Parallel) for x in inside(s.body)):
        return s  # a buffer that several threads share is in memory in any case
    walkers = set(_walkers(s.body, s.name, {}))
    fixed = _fix(s.body, walkers, in_lanes)
    return replace(s, body=fixed) if walkers and not any(_walkers(fixed, s.name, {})) else s


def _walkers(body: tuple[Flat, ...], name: str, serial: dict[str, Loop]) -> Iterator[str]:
    """The serial loops inside `body` whose variables occur in the subscripts of `name`."""
    for s in body:
        if isinstance(s, Store):
            if name not in buffers_of(s):
                continue
            used = [i for i in s.indices if s.buffer == name]
            used += [i for x in store_loads(s) if x.buffer == name for i in x.indices]
            for i in used:
                yield from free_vars(i) & serial.keys()
        elif isinstance(s, Loop):
            inner = {k: v for k, v in serial.items() if k != s.var}
            yield from _walkers(s.body, name, {**inner, s.var: s} if s.kind is LoopKind.SERIAL else inner)
        else:
            yield from _walkers(s.body, name, serial)


def _fix(body: tuple[Flat, ...], walkers: set[str], in_lanes: bool) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store):
            out.append(s)
            continue
        lanes = in_lanes or (isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED)
        s = replace(s, body=_fix(s.body, walkers, lanes))
        if isinstance(s, Loop) and s.kind is LoopKind.SERIAL and s.var in walkers:
            begin, end = constant(s.begin), constant(s.end)
            if begin is not None and end is not None:
                if not in_lanes and end - begin >= NARROWEST_VECTOR and lanes_are_independent(s):
                    s = replace(s, kind=LoopKind.VECTORIZED)
                elif _straight(s.body) and (end - begin) * code_size(s.body) <= UNROLLED_CODE:
                    s = replace(s, kind=LoopKind.UNROLLED)
        out.append(s)
    return tuple(out)


def _straight(body: tuple[Flat, ...]) -> bool:
    """Whether no loop is left in `body` after unrolling."""
    return not any(isinstance(x, Parallel) or (isinstance(x, Loop) and x.kind is LoopKind.SERIAL) for x in inside(body))


def unroll_small(body: tuple[Flat, ...], step: int) -> tuple[Flat, ...]:
    """Apply `"unroll.max_step"`: innermost serial loops of at most `step` iterations times steps are unrolled.

    What only maps elements keeps nothing from one iteration to the next, and is left once its code is long. What asks in
    each iteration the same again is the work of a last tile, which is short, while masks make its code long: it is left, too.
    """
    return _map_loops(body, lambda s: _unroll_step(s, step))


def _unroll_step(s: Loop, step: int) -> Loop:
    begin, end = constant(s.begin), constant(s.end)
    if s.kind is not LoopKind.SERIAL or begin is None or end is None:
        return s
    if any(isinstance(x, Loop) and (x.kind is LoopKind.SERIAL or is_long(x)) for x in inside(s.body)):
        return s
    if any(isinstance(x, If) and s.var not in free_vars(x.cond) for x in inside(s.body)):
        return s
    if (end - begin) * code_size(s.body) > MAPPED_CODE and not any(map(_store_accumulates, stores(s.body))):
        return s
    return replace(s, kind=LoopKind.UNROLLED) if (end - begin) * steps(s.body) <= step else s


def _store_accumulates(s: Store) -> bool:
    """Whether a store reads the buffer that it writes."""
    return any(x.buffer == s.buffer for x in store_loads(s))


def limit_unrolling(body: tuple[Flat, ...], limit: int) -> tuple[Flat, ...]:
    """The body with unrolled loops that would leave more code than `limit`, or more than `UNROLLED_STORES`, as serial loops;
    loops inside them stay unrolled if they fit."""

    def lower(s: Loop) -> Loop:
        if s.kind is not LoopKind.UNROLLED:
            return s
        known = constant(s.begin) is not None and constant(s.end) is not None
        fits = known and code_size((s,)) <= limit and written_stores((s,)) <= UNROLLED_STORES
        return s if fits else replace(s, kind=LoopKind.SERIAL)

    return _map_loops(body, lower)


def _map_loops(body: tuple[Flat, ...], f: Callable[[Loop], Loop]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store) and not all(map(is_, body := _map_loops(s.body, f), s.body)):
            s = replace(s, body=body)
        out.append(f(s) if isinstance(s, Loop) else s)
    return tuple(out)


# Combines partial results in registers across the lanes of vectors, as a tree instead of a chain.
#
# A loop qualifies if it only folds contiguous elements of small private buffers into one element, such as the loop that
# `rfactor` leaves after a vectorized loop. Its order is free, since folds are associative and commutative.


FEWEST = 4
"""The number of partial results below which a tree is no shorter than a chain."""


def fold_across(body: tuple[Flat, ...], small: frozenset[str] = frozenset()) -> tuple[Flat, ...]:
    """The body with serial and unrolled loops over partial results vectorized; `small` has the private buffers around."""
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                pass
            case Loop(kind=LoopKind.VECTORIZED):
                pass  # the lanes are already in use
            case Loop() if _is_lane_fold(s, small):
                s = replace(s, kind=LoopKind.VECTORIZED)
            case Alloc(name=name, space=space):
                s = replace(s, body=fold_across(s.body, small | {name} if space == "stack" else small - {name}))
            case Parallel():
                s = replace(s, body=fold_across(s.body))
            case _:
                s = replace(s, body=fold_across(s.body, small))
        out.append(s)
    return tuple(out)


def _is_lane_fold(s: Loop, small: frozenset[str]) -> bool:
    begin, end = constant(s.begin), constant(s.end)
    if begin is None or end is None or end - begin < FEWEST or len(s.body) != 1:
        return False
    (store,) = s.body
    if not isinstance(store, Store) or fold_of(store) is None or s.var in free_vars(store.indices[0]):
        return False
    moving = [x for x in store_loads(store) if s.var in free_vars(x.indices[0])]
    return bool(moving) and all(x.buffer in small and stride(x.indices[0], s.var) == 1 for x in moving)


# The passes of CPUs: the common ones, then vectors, unrolling and registers.


UNROLL_LIMIT = 4096
"""The largest `code_size` of one unrolled nest: larger code leaves the instruction cache and takes long to compile."""


def max_step(program: Program) -> int:
    """The largest `unroll.max_step` of a program; 0 if there is none."""
    found: list[Annotation] = list(program.annotations)
    for _, s in walk(program.body):
        if isinstance(s, For):
            found.extend(s.annotations)
    return max((int(v) for k, v in found if k == MAX_STEP and isinstance(v, int)), default=0)


def _unroll(u: Unit) -> Unit:
    step = max_step(u.whole)
    return replace(u, flat=unroll_small(u.loops, step)) if step else u


def _fold_across(u: Unit) -> Unit:
    return u if is_in_order(u.whole) else replace(u, flat=fold_across(u.loops))


def _rows(u: Unit) -> Unit:
    known = known_of(u.whole, u.program.params)
    return replace(u, flat=copy_tiles(end_loops(u.loops, known, Around({})), known)) if u.program.dims else u


def _lanes(u: Unit) -> Unit:
    if not u.program.dims:
        return u
    sizes = {b.name: element_count(b) for b in u.program.params if not b.strides}
    return replace(u, flat=fill_lanes(u.loops, known_of(u.whole, u.program.params), sizes, {}))


def _bind(u: Unit) -> Unit:
    return replace(u, flat=bind_instructions(u.loops, instructions(u.program)))


PASSES = (
    *COMMON,
    Pass("vectors", lambda u: replace(u, flat=legalise_vectors(u.loops)), "vectorized loops that cannot be are serial"),
    Pass(
        "choices",
        lambda u: replace(u, flat=take_out_choices(u.loops)),
        "choices that all lanes of a row share are made before it",
    ),
    Pass("lanes", _lanes, "lanes behind the last column of a register tile, which nobody reads, are computed as well"),
    Pass("across", _fold_across, "partial results are combined across lanes, unless the program keeps its order"),
    Pass("unroll", _unroll, "short loops are unrolled, as `unroll.max_step` says"),
    Pass("registers", lambda u: replace(u, flat=keep_in_registers(u.loops)), "small buffers become registers"),
    Pass(
        "limit", lambda u: replace(u, flat=limit_unrolling(u.loops, UNROLL_LIMIT)), "too long unrolled loops are serial"
    ),
    Pass(
        "rows", _rows, "what is behind the last whole tile ends with its rows; sums have code for each number of them"
    ),
    Pass(
        "settle",
        lambda u: replace(u, flat=settle_choices(u.loops)),
        "a loop whose choices conditions before it settle has a version without them",
    ),
    Pass("instructions", _bind, "tensorized loops become instructions"),
)


def lower_cpu(program: Program) -> Kernel:
    """The kernel of a scheduled program, for any CPU. Raises LowerError as `lower` does."""
    return lower(program, PASSES)


MOST_LINES = 16
"""The most lines of a buffer that an iteration fetches ahead: a core waits for about as many at once."""

FIRST, SECOND = 3, 2
"""The nearest cache that a line is fetched into, in LLVM's numbers. What is read in a while would push out of the first one
what is read now."""


@frozen
class Fetch:
    """In each iteration of `loop` the lines of these elements are fetched into this cache."""

    loop: Loop
    places: tuple[Expr, ...]
    cache: int


def fetch_ahead(s: Loop, buffer: str, distance: int, size: int) -> tuple[Fetch, ...]:
    """How the loop fetches what it reads of a buffer, with elements of `size` bytes, `distance` iterations later: one of
    these runs, if any. None if that is too much, or if it is not known what that is."""
    places = lines_ahead(s, buffer, distance, size)
    return (Fetch(s, places, FIRST),) if places else _spread(s, buffer, distance, max(1, CACHE_LINE // size))


def lines_ahead(s: Loop, buffer: str, distance: int, size: int) -> tuple[Expr, ...]:
    """The first elements of the lines of a buffer, with elements of `size` bytes, that the loop reads `distance` iterations
    later; none if these are too many, or if which they are is not known."""
    out: dict[Expr, None] = {}
    within = [x for x in inside(s.body) if isinstance(x, Loop)]
    for e in _read(s.body, buffer):
        region = _later(s, e, distance, within)
        if region is None:
            return ()
        begin, span = region
        out |= {simplify(add(begin, index(n)), {}): None for n in range(0, span + 1, max(1, CACHE_LINE // size))}
    return tuple(out) if len(out) <= MOST_LINES else ()


def _read(body: Sequence[Flat], buffer: str) -> list[Expr]:
    """The indices at which statements read a buffer."""
    return list({x.indices[0]: None for t in stores(tuple(body)) for x in store_loads(t) if x.buffer == buffer})


def _later(s: Loop, e: Expr, distance: int, within: Sequence[Loop]) -> tuple[Expr, int] | None:
    """The least of the indices in the iteration `distance` later, and how far from it the largest is; None if not known."""
    later: dict[str, Expr] = {s.var: add(Var(s.var), index(distance))}
    begin = simplify(substitute(e, {**later, **{x.var: x.begin for x in within}}), {})
    end = substitute(e, {**later, **{x.var: sub(x.end, ONE) for x in within}})
    span = constant(simplify(sub(end, begin), {}))
    bound = {x.var for x in inside(s.body) if isinstance(x, Loop)}
    bound |= {v for x in inside(s.body) if isinstance(x, Parallel) for v in x.vars}
    return (begin, span) if span is not None and span >= 0 and free_vars(begin).isdisjoint(bound) else None


def _spread(s: Loop, buffer: str, distance: int, line: int) -> tuple[Fetch, ...]:
    """Lines of so many elements, a few in each iteration of an innermost loop, of the loops with the most iterations, and of
    those that run in their place, such as those of another number of rows."""
    found: dict[tuple[Expr, ...], tuple[int, Fetch]] = {}
    for chain, conds in _chains(s.body, buffer):
        trips = [constant(simplify(sub(x.end, x.begin), {})) for x in chain]
        read = _read(chain[-1].body, buffer)
        inner = [x for x in inside(chain[-1].body) if isinstance(x, Loop)]
        region = _later(s, read[0], distance, (*chain, *inner)) if len(read) == 1 else None
        if region is None or any(n is None or n < 1 for n in trips):
            continue
        begin, span = region
        count, step = 1, ONE
        number: Expr = index(0)
        for x, n in zip(reversed(chain), reversed(trips), strict=True):
            number = add(number, mul(sub(Var(x.var), x.begin), step))
            count *= n or 1
            step = index(count)
        if not _is_dense(read[0], (*chain, *inner), span):
            continue
        lines = -(-(span + 1) // (line * count))
        apart = line * lines if span + 1 >= line * count else -(-(span + 1) // count)
        if lines <= MOST_LINES:
            first = add(begin, mul(number, index(apart)))
            places = tuple(simplify(add(first, index(n * line)), {}) for n in range(lines))
            if conds not in found or found[conds][0] < count:
                found[conds] = count, Fetch(chain[-1], places, SECOND)
    if not found:
        return ()
    longest = max(found, key=lambda conds: found[conds][0])
    return tuple(x for conds, (_, x) in found.items() if conds == longest or _exclude(conds, longest))


def _exclude(some: tuple[Expr, ...], others: tuple[Expr, ...]) -> bool:
    """Whether conditions on a number of rows never hold together."""
    pairs = ((a, b) for x in some for y in others for a, b in ((x, y), (y, x)))
    return any(
        isinstance(a, Compare) and isinstance(b, Compare) and a.op == "==" and a.lhs == b.lhs
        and (m := constant(a.rhs)) is not None and (n := constant(b.rhs)) is not None
        and ((b.op == "==" and m != n) or (b.op == ">=" and m < n))
        for a, b in pairs
    )  # fmt: skip


def _chains(body: Sequence[Flat], buffer: str) -> Iterator[tuple[tuple[Loop, ...], tuple[Expr, ...]]]:
    """The serial loops around each innermost one that reads the buffer, from the outermost, and the conditions."""
    for s in body:
        if not _read((s,), buffer):
            continue
        if isinstance(s, Loop) and s.kind is LoopKind.SERIAL:
            below = list(_chains(s.body, buffer))
            yield from (((s, *chain), conds) for chain, conds in below or [((), ())])
        elif isinstance(s, (If, Alloc)):
            own = (s.cond,) if isinstance(s, If) else ()
            yield from ((chain, (*own, *conds)) for chain, conds in _chains(s.body, buffer))


def _is_dense(e: Expr, loops: Sequence[Loop], span: int) -> bool:
    """Whether the loops read every element in between, as far as their number tells."""
    read = 1
    for x in loops:
        if x.var in free_vars(e):
            read *= constant(simplify(sub(x.end, x.begin), {})) or 1
    return read > span
