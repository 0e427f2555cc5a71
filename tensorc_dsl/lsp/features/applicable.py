"""Which primitives apply to the program as it stands at the cursor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from inspect import Parameter
from itertools import permutations, product

from tensorc_dsl.ir.program import For, Program, blocks, walk
from tensorc_dsl.schedule.primitive import PRIMITIVES, Primitive, accepts
from tensorc_dsl.schedule.refs import BlockRef, BufferRef, LoopRef, Ref

SECONDS = 0.03
"""For so long primitives are tried: an editor waits for the answer."""


def applicable(program: Program, clock: Callable[[], float] = time.monotonic) -> dict[str, bool]:
    """By primitive whether it applies to some loops, blocks and buffers of the program.

    What needs other values than these, and what was not tried in time, is not in it.
    """
    until = clock() + SECONDS
    found: dict[str, bool] = {}
    for name, primitive in PRIMITIVES.items():
        choices = _arguments(program, primitive)
        if choices is None:
            continue
        for arguments in choices:
            if clock() > until:
                return found
            if accepts(program, name, *arguments):
                found[name] = True
                break
        else:
            found[name] = False
    return found


def _arguments(program: Program, primitive: Primitive) -> Iterator[tuple[Ref, ...]] | None:
    """What the primitive can be given of the program; None if it needs something else."""
    parameters = [p for p in primitive.signature.parameters.values() if p.default is Parameter.empty]
    kinds = [_kinds(p.annotation) for p in parameters]
    if not all(kinds):
        return None
    every = _refs(program)
    if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters):
        return iter(permutations([r for r in every if isinstance(r, kinds[0])], 2))
    return product(*([r for r in every if isinstance(r, kind)] for kind in kinds))


def _kinds(annotation: object) -> tuple[type[Ref], ...]:
    """The kinds of names that a parameter takes."""
    members = getattr(annotation, "__args__", (annotation,))
    return tuple(kind for kind in (LoopRef, BlockRef, BufferRef) if kind in members)


def _refs(program: Program) -> list[Ref]:
    """The innermost loops first: most steps are about them."""
    loops = [LoopRef(s.var) for _, s in walk(program.body) if isinstance(s, For)]
    buffers = [BufferRef(b.name) for b in (*program.params, *program.buffers)]
    return [*reversed(loops), *(BlockRef(b.name) for b in blocks(program)), *buffers]
