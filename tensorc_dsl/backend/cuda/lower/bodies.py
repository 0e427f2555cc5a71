"""What each phase becomes for one thread: vectors of whole lanes, one branch for what the same threads do, and unrolled loops
that keep private buffers in registers.

Unrolled loops are left to LLVM, which is faster at it than text is at being unrolled.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tensorc_dsl.backend.cuda.lower.collectives import accesses_of, is_of_group
from tensorc_dsl.backend.cuda.lower.kernels import Device, Nested, Phase, Role, Steps
from tensorc_dsl.backend.cuda.lower.vectors import whole_vectors
from tensorc_dsl.backend.llvm.lower.registers import limit_unrolling, unroll_small
from tensorc_dsl.ir.expr import ZERO, constant, free_vars
from tensorc_dsl.ir.program import LoopKind
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Loop, Store, buffers_of, inside, store_loads, stores
from tensorc_dsl.lower.guards import hoist_guards

CODE_LIMIT = 8192
"""The largest code of one unrolled nest, as `code_size` counts: beyond it ptxas takes long, and registers run out before."""

FEW_STEPS = 8
"""The most iterations of a loop around sums in registers that is unrolled, whatever `unroll.max_step` is."""

MOST_STEPS = 32
"""The largest `unroll.max_step` that is obeyed: with more, a loop of `exp` takes ptxas half a minute."""


def finished(body: tuple[Device, ...], private: Collection[str], max_step: int) -> tuple[Device, ...]:
    """The phases with vectors that are whole, with guards around loops, and with the loops unrolled that subscript private
    buffers."""
    out: list[Device] = []
    for s in joined(body):
        if isinstance(s, Phase):
            names = {*private, *(x.name for x in inside(s.body) if isinstance(x, Alloc))}
            flat = hoist_guards(whole_vectors(s.body))
            flat = _unrolled(flat, _walkers(s.body, names))
            out.append(replace(s, body=_limited(flat, _steps_of_sums(flat, names), min(max_step, MOST_STEPS))))
        else:
            out.append(replace(s, body=finished(s.body, private, max_step)) if isinstance(s, Nested) else s)
    return tuple(out)


def _limited(body: tuple[Flat, ...], steps: Collection[str], max_step: int) -> tuple[Flat, ...]:
    """The body with the loops of `steps` and short loops unrolled, as far as no other loop would be too long then, and with
    these in order if they are."""
    plain = limit_unrolling(body, CODE_LIMIT)
    reused = _unrolled(body, steps)
    for more in (unroll_small(reused, max_step), reused, unroll_small(body, max_step)):
        short = limit_unrolling(more, CODE_LIMIT)
        if _in_order(short) <= _in_order(plain):
            return short
    return plain


def _in_order(body: tuple[Flat, ...]) -> frozenset[str]:
    """The variables of loops that run in order."""
    return frozenset(s.var for s in inside(body) if isinstance(s, Loop) and s.kind is LoopKind.SERIAL)


def joined(body: tuple[Device, ...]) -> tuple[Device, ...]:
    """The statements with everything between two barriers as one phase."""
    out: list[Device] = []
    for s in body:
        if isinstance(s, Nested):
            s = replace(s, body=joined(s.body))
            if not isinstance(s, Role) and len(s.body) == 1 and isinstance(s.body[0], Phase):
                only, inner = s.body[0], s.body[0].body
                whole = Loop(s.var, ZERO, s.end, LoopKind.SERIAL, inner) if isinstance(s, Steps) else If(s.cond, inner)
                s = replace(only, body=(whole,))
        if isinstance(s, Phase) and out and isinstance(before := out[-1], Phase):
            if s.asynchronous == before.asynchronous:
                out[-1] = replace(before, body=(*before.body, *s.body))
            else:
                out.append(s)
        else:
            out.append(s)
    return tuple(out)


def _walkers(body: tuple[Flat, ...], private: Collection[str]) -> frozenset[str]:
    """The variables in subscripts of private buffers, and of what instructions take beside their threads: then these follow
    each other without a branch between them, and their descriptors are a constant apart."""
    groups = (s for s in inside(body) if isinstance(s, Collective) and is_of_group(s.intrinsic))
    out = {v for s in groups for _, x in accesses_of(s) for i in x.indices for v in free_vars(i)}
    for s in stores(body):
        if not buffers_of(s).isdisjoint(private):
            used = [*(s.indices if s.buffer in private else ())]
            used += [i for x in store_loads(s) if x.buffer in private for i in x.indices]
            out.update(v for i in used for v in free_vars(i))
    return frozenset(out)


def _steps_of_sums(body: tuple[Flat, ...], private: Collection[str]) -> frozenset[str]:
    """The variables of short loops around sums in private storage. Where they are unrolled, what several sums have in common
    is loaded once and in vectors, and ptxas loads the fragments of the next step of an instruction while it multiplies those
    of this one, as CUTLASS does by hand."""
    return frozenset(
        s.var
        for s in inside(body)
        if isinstance(s, Loop)
        and s.kind is LoopKind.SERIAL
        and (constant(s.end) or FEW_STEPS + 1) - (constant(s.begin) or 0) <= FEW_STEPS
        and any(x.buffer in private and any(y.buffer == x.buffer for y in store_loads(x)) for x in stores(s.body))
    )


def _unrolled(body: tuple[Flat, ...], walkers: Collection[str]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=_unrolled(s.body, walkers))
        if isinstance(s, Loop) and s.var in walkers and s.kind is LoopKind.SERIAL:
            s = replace(s, kind=LoopKind.UNROLLED)
        out.append(s)
    return tuple(out)
