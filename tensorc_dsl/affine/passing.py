"""Scans whose value blocks of a GPU pass on: which are such that a block needs the value of the step before, and no other.

A loop over blocks runs its iterations side by side. Those that are steps of such a scan wait for the one before, and only for
the value that it makes. So the dependences through that value are kept by the machine. All others have to be none, as for
any bound loop, and then each iteration computes what it computes in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.affine.sets import bindings
from tensorc_dsl.affine.simplify import extent_ranges, simplify
from tensorc_dsl.ir.expr import ONE, ZERO, Expr, Var, free_vars, loads, sub, substitute
from tensorc_dsl.ir.look_back import passed_along
from tensorc_dsl.ir.program import Block, For, IterKind, Program, find_block, find_loop, walk


@dataclass(frozen=True, slots=True)
class NotPassed:
    """Why a scan cannot be passed on: a phrase with its block as the subject, and a repair."""

    reason: str
    repair: str


_SCAN = "take a scan of one value, such as `Y_carry` of `split_scan(Y, n)`"
_SPLIT = "do this before its loop is split"
_ALONE = "`merge` its loop and that of what reads it, and leave other readers and outputs to a copy"
_OUTSIDE = "`merge` the loops around both outside of that of its steps first"


def not_passed(program: Program, name: str) -> NotPassed | None:
    """Why blocks of a GPU cannot pass on the value of the scan `name`; None if they can, along the loop of its steps."""
    around, b = find_block(program, name)
    steps = [it for it in b.iters if it.kind is IterKind.SCAN]
    others = [it for it in b.iters if it.kind is IterKind.REDUCE]
    if len(steps) != 1 or others or len(b.body) != 1 or b.init:
        return NotPassed("is no scan of one value along one iterator", _SCAN)
    (store,), (step,) = b.body, steps
    counted = [d for d, i in enumerate(store.indices) if step.name in free_vars(i)]
    if len(counted) != 1 or store.indices[counted[0]] != Var(step.name):
        return NotPassed(f"does not store the element of its step `{step.name}`", _SCAN)
    if not isinstance(step.binding, Var) or step.binding.name not in {x.var for x in around}:
        return NotPassed(f"takes its steps from `{step.name}`, which is no loop of its own", _SPLIT)
    if program.buffer(store.buffer).scope != "global" or store.buffer in {p.name for p in program.params}:
        return NotPassed(f"stores `{store.buffer}`, which is no intermediate result in global memory", _ALONE)
    before = tuple(sub(i, ONE) if d == counted[0] else i for d, i in enumerate(store.indices))
    if any(not _same(x, before, {}) for x in _reads(b, store.buffer)):
        return NotPassed(f"reads other elements of `{store.buffer}` than that of the step before", _SCAN)
    return _read_elsewhere(program, around, b, step.binding.name, before, counted[0])


def _read_elsewhere(
    program: Program, around: tuple[For, ...], b: Block, var: str, before: tuple[Expr, ...], counted: int
) -> NotPassed | None:
    """Why what reads or writes the scan beside its own steps does not do with the value before; `counted` is the dimension
    of the steps.
    """
    (store,) = b.body
    at = tuple(substitute(i, bindings(b)) for i in before)
    outside = [x.var for x in around]
    inner = outside[: outside.index(var) + 1]
    seen = False
    for loops, other in walk(program.body):
        if other is b:
            seen = True
        if not isinstance(other, Block) or other is b:
            continue
        if any(s.buffer == store.buffer for s in (*other.init, *other.body)):
            return NotPassed(f"is not the only one that stores `{store.buffer}`", _SCAN)
        values = bindings(other)
        for x in _reads(other, store.buffer):
            if not seen or [y.var for y in loops[: len(inner)]] != inner:
                return NotPassed(f"is read by `{other.name}`, which does not follow it in the loop `{var}`", _ALONE)
            read = tuple(substitute(i, values) for i in x)
            extents = {y.var: y.extent for y in (*around, *loops)}
            if not _same((read[counted],), (at[counted],), extents):
                return NotPassed(
                    f"is read by `{other.name}` at another step than the one before that of `{var}`", _ALONE
                )
            if not _same(read, at, extents):
                return NotPassed(
                    f"is read by `{other.name}` for other scans than the one whose step `{var}` is", _OUTSIDE
                )
    return None


def _reads(b: Block, buffer: str) -> list[tuple[Expr, ...]]:
    """The subscripts at which a block reads a buffer."""
    every = (x for s in (*b.init, *b.body) for e in (s.value, *s.indices) for x in loads(e))
    return [x.indices for x in every if x.buffer == buffer]


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...], extents: dict[str, Expr]) -> bool:
    ranges = extent_ranges(For(name, e, ()) for name, e in extents.items())
    return len(a) == len(b) and all(simplify(sub(x, y), ranges) == ZERO for x, y in zip(a, b, strict=True))


def passed_on(program: Program, var: str) -> frozenset[str]:
    """The buffers of the scans that the iterations of a loop over blocks pass on."""
    loop = find_loop(program, var)[1]
    return frozenset(b.body[0].buffer for b in passed_along(loop) if not_passed(program, b.name) is None)
