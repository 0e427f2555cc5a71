"""Vectors and registers: small private buffers in registers, loops in lock step, and partial results across lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import is_

from tensorc_dsl.backend.llvm.lower.sizes import code_size, is_long, steps, written_stores
from tensorc_dsl.ir.expr import constant, dtype_of, free_vars
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.reductions import fold_of
from tensorc_dsl.lower.flat import Alloc, Flat, Loop, Parallel, body_of, buffers_of, inside, store_loads, stores, stride

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


REGISTER_BYTES = 32 * 64
"""The size in bytes of the largest register file (AVX-512): a larger buffer cannot be in registers."""

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


def fits_registers(s: Alloc) -> bool:
    """Whether a buffer is on the stack and small enough for registers."""
    return s.space == "stack" and (constant(s.size) or 0) * s.dtype.bytes <= REGISTER_BYTES


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

    What only maps elements keeps nothing from one iteration to the next, and is left once its code is long.
    """
    return _map_loops(body, lambda s: _unroll(s, step))


def _unroll(s: Loop, step: int) -> Loop:
    begin, end = constant(s.begin), constant(s.end)
    if s.kind is not LoopKind.SERIAL or begin is None or end is None:
        return s
    if any(isinstance(x, Loop) and (x.kind is LoopKind.SERIAL or is_long(x)) for x in inside(s.body)):
        return s
    if (end - begin) * code_size(s.body) > MAPPED_CODE and not any(map(_adds_up, stores(s.body))):
        return s
    return replace(s, kind=LoopKind.UNROLLED) if (end - begin) * steps(s.body) <= step else s


def _adds_up(s: Store) -> bool:
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
            case Loop() if _folds(s, small):
                s = replace(s, kind=LoopKind.VECTORIZED)
            case Alloc(name=name, space=space):
                s = replace(s, body=fold_across(s.body, small | {name} if space == "stack" else small - {name}))
            case Parallel():
                s = replace(s, body=fold_across(s.body))
            case _:
                s = replace(s, body=fold_across(s.body, small))
        out.append(s)
    return tuple(out)


def _folds(s: Loop, small: frozenset[str]) -> bool:
    begin, end = constant(s.begin), constant(s.end)
    if begin is None or end is None or end - begin < FEWEST or len(s.body) != 1:
        return False
    (store,) = s.body
    if not isinstance(store, Store) or fold_of(store) is None or s.var in free_vars(store.indices[0]):
        return False
    moving = [x for x in store_loads(store) if s.var in free_vars(x.indices[0])]
    return bool(moving) and all(x.buffer in small and stride(x.indices[0], s.var) == 1 for x in moving)
