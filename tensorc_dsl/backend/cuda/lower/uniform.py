"""Ends loops in which the threads of a block meet where the conditions of all their work do, for all threads alike.

What such a loop copies to shared memory for an iteration is stored in a buffer of the iteration, and is no work by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.backend.cuda.lower.axes import Axes
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.ends import ended
from tensorc_dsl.lower.flat import Flat, Loop, buffers_of, inside
from tensorc_dsl.lower.plans import Known
from tensorc_dsl.lower.ranges import within


def with_uniform_ends(body: tuple[Flat, ...], known: Known, axes: Axes) -> tuple[Flat, ...]:
    """The same results, with loops around bound ones that end where no thread of a block has work left."""
    return tuple(_ended(s, known, axes, {}, {}) for s in body)


def loops_around(body: tuple[Flat, ...], names: Collection[str]) -> dict[str, frozenset[str]]:
    """For each of the buffers the loops around all accesses to it."""
    out: dict[str, frozenset[str]] = {}

    def visit(body: tuple[Flat, ...], around: frozenset[str]) -> None:
        for s in body:
            if isinstance(s, Store):
                for name in buffers_of(s).intersection(names):
                    out[name] = out.get(name, around) & around
            else:
                visit(s.body, around | {s.var} if isinstance(s, Loop) else around)

    visit(body, frozenset())
    return out


def _ended(s: Flat, known: Known, axes: Axes, ranges: Ranges, threads: Ranges) -> Flat:
    if isinstance(s, Store):
        return s
    if isinstance(s, Loop):
        if _is_shared(s, axes):
            s = ended(s, known, ranges, threads, always=_meets(s, axes))
        ranges = within(ranges, s)
        threads = within(threads, s) if axes.is_thread(s.var) else threads
    return replace(s, body=tuple(_ended(x, known, axes, ranges, threads) for x in s.body))


def _meets(s: Loop, axes: Axes) -> bool:
    """Whether the threads of a block may have to wait for each other in a loop: they run several statements of it."""
    return sum(_by_threads(x, axes) for x in s.body) > 1


def _by_threads(s: Flat, axes: Axes) -> int:
    """The statements of `s` that the threads of a block share, as far as there are two."""
    if isinstance(s, Store):
        return 0
    if isinstance(s, Loop) and axes.is_thread(s.var):
        return 1
    return min(2, sum(_by_threads(x, axes) for x in s.body))


def _is_shared(s: Loop, axes: Axes) -> bool:
    """Whether the threads of a block run a loop together."""
    if s.var in axes.loops or s.kind is not LoopKind.SERIAL or s.scattered or constant(s.begin) != 0:
        return False
    return any(isinstance(x, Loop) and axes.is_thread(x.var) for x in inside(s.body))
