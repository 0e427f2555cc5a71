"""The rule for copies that run beside other work: which statements the machine can start and wait for later.

A thread can start a copy of 4, 8 or 16 bytes from global to shared memory, both aligned to that size, or as many zeros. A
statement whose stores are all such copies starts them; every other one is run where it stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from tensorc_dsl.affine.filling import filled
from tensorc_dsl.affine.simplify import is_multiple
from tensorc_dsl.backend.cuda.lower.kernels import ALIGNMENT
from tensorc_dsl.backend.cuda.lower.vectors import whole_vectors
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    ZERO,
    Var,
    add,
    constant,
    index,
    mul,
    substitute,
)
from tensorc_dsl.ir.print import format_store
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Flat, If, Loop, store_loads, substituted

SIZES = (ALIGNMENT, 8, 4)
"""The bytes that one copy can have, the most first: arrays, buffers and their versions begin at multiples of all of them."""


@dataclass(frozen=True, slots=True)
class Copying:
    """What a kernel's copies may access: the buffers in shared memory that are private to an iteration, the arrays that the
    kernel does not write, and the element types of both."""

    targets: Collection[str]
    sources: Collection[str]
    dtypes: dict[str, DType]


@dataclass(frozen=True, slots=True)
class NoCopy(Exception):
    """A statement that cannot be started, and the reason."""

    store: Store
    reason: str

    def __str__(self) -> str:
        return f"`{format_store(self.store)}` {self.reason}"


def as_copies(body: tuple[Flat, ...], allowed: Copying) -> tuple[Flat, ...]:
    """The statements with each store, or each vectorized loop around one, as a copy of 4, 8 or 16 aligned bytes.

    Raises NoCopy if one is not a copy, or not of such a size.
    """
    return tuple(_copies(whole_vectors(body), allowed))


def _copies(body: tuple[Flat, ...], allowed: Copying) -> Iterator[Flat]:
    for s in body:
        match s:
            case Store():
                _require_plain(s, allowed)
                _lanes(s, None, 1, allowed)
                yield s
            case Loop(kind=LoopKind.VECTORIZED):
                yield _divided(s, allowed)
            case Loop() | If():
                yield replace(s, body=tuple(_copies(s.body, allowed)))
            case _:
                first = next(_stores(s.body))
                raise NoCopy(first, "is part of an instruction, or has storage of its own")


def _stores(body: tuple[Flat, ...]) -> Iterator[Store]:
    for s in body:
        if isinstance(s, Store):
            yield s
        else:
            yield from _stores(s.body)


def _require_plain(s: Store, allowed: Copying) -> None:
    copied = filled(s.value)
    if copied is None:
        raise NoCopy(s, "computes, and only copies run beside other work, of elements or of zeros")
    if s.buffer not in allowed.targets:
        raise NoCopy(
            s, f"writes `{s.buffer}`, which is not a buffer in shared memory that each iteration has for itself"
        )
    if written := {x.buffer for x in store_loads(s)} - set(allowed.sources):
        raise NoCopy(s, f"reads `{min(written)}`, which is not an array that the kernel only reads")
    if allowed.dtypes[s.buffer] != copied.load.dtype:
        raise NoCopy(s, f"converts {copied.load.dtype} to {allowed.dtypes[s.buffer]}")


def _divided(loop: Loop, allowed: Copying) -> Loop:
    """A vectorized loop as one of the widest copies for which all its stores are aligned."""
    count = constant(loop.end)
    assert count is not None  # it is a whole vector
    inner = list(_stores(loop.body))
    for s in inner:
        _require_plain(s, allowed)
    lanes = min(_lanes(s, loop.var, count, allowed) for s in inner)
    if lanes == count:
        return loop
    if lanes == 1:
        return replace(loop, kind=LoopKind.UNROLLED)
    outer = f"{loop.var}.copy"
    at = {loop.var: add(mul(Var(outer), index(lanes)), Var(loop.var))}
    part = Loop(loop.var, ZERO, index(lanes), LoopKind.VECTORIZED, tuple(substituted(s, at) for s in loop.body))
    return Loop(outer, ZERO, index(count // lanes), LoopKind.UNROLLED, (part,))


def _lanes(s: Store, var: str | None, count: int, allowed: Copying) -> int:
    """The largest number of lanes of a store that are one copy. Raises NoCopy if there is none."""
    copied = filled(s.value)
    assert copied is not None  # as `_require_plain` asks
    size = allowed.dtypes[s.buffer].bytes
    first = {} if var is None else {var: ZERO}
    both = [substitute(i, first) for i in (*s.indices, *copied.load.indices)]
    for total in SIZES:
        lanes = total // size
        if total % size == 0 and 1 <= lanes <= count and count % lanes == 0:
            if lanes == 1 or all(is_multiple(i, lanes, {}) for i in both):
                return lanes
    wide = count * size
    if wide < SIZES[-1]:
        raise NoCopy(s, f"copies {wide} byte{'s' * (wide != 1)} a thread, and copies beside other work have 4, 8 or 16")
    raise NoCopy(s, f"copies {wide} bytes a thread that are not known to be aligned to 4, 8 or 16")
