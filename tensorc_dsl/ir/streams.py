"""Outputs that are stored past the caches: a hint on a block, which does not change the result."""

from __future__ import annotations

from tensorc_dsl.ir.expr import loads
from tensorc_dsl.ir.program import Block, Program, walk

STREAM = "store.nontemporal"
"""A block with this annotation, true, uses non-temporal stores where vectors fill whole cache lines: the lines are not needed
again soon, and their old content need not be fetched. Backends may ignore it."""


def stream_problem(program: Program, block: Block) -> str | None:
    """The reason why a block's stores should go through the caches; None if they may bypass them."""
    names = {s.buffer for s in (*block.init, *block.body)}
    if len(names) > 1:
        return f"it writes {len(names)} buffers"
    (name,) = names
    if name not in {p.name for p in program.outputs}:
        return f"`{name}` is not an output"
    for _, b in walk(program.body):
        if isinstance(b, Block) and name in _read(b):
            return f"`{b.name}` reads `{name}`"
    return None


def streamed(program: Program) -> frozenset[str]:
    """The outputs for which every writing block has the annotation and no problem."""
    blocks = [b for _, b in walk(program.body) if isinstance(b, Block)]
    asked = {b.name for b in blocks if dict(b.annotations).get(STREAM) is True and stream_problem(program, b) is None}
    kept = {s.buffer for b in blocks if b.name not in asked for s in (*b.init, *b.body)}
    return frozenset(s.buffer for b in blocks if b.name in asked for s in (*b.init, *b.body)) - kept


def _read(b: Block) -> set[str]:
    return {x.buffer for s in (*b.init, *b.body) for e in (s.value, *s.indices) for x in loads(e)}
