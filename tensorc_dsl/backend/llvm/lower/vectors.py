"""Makes vectorized loops serial unless a code generator can run their lanes in lock step.

A loop is one vector operation per store if every store goes to a different element in each lane.
The scheduler has proved that lanes have no dependences; this pass checks the form of the stores only.
"""

from __future__ import annotations

from tensorc_dsl.ir.expr import constant, dtype_of, free_vars
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.bounds import stride
from tensorc_dsl.lower.flat import Flat, Loop, Parallel, body_of, store_loads, stores


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
