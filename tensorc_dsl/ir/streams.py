"""Outputs that are stored past the caches: a hint of a block, which says nothing about what is computed."""

from __future__ import annotations

from tensorc_dsl.ir.expr import loads
from tensorc_dsl.ir.program import Block, Program, walk

STREAM = "store.nontemporal"
"""A block with this annotation, true, stores past the caches where vectors fill lines of memory: nobody needs the
lines again soon, and what they held before need not be fetched. Backends may ignore it."""


def stream_problem(program: Program, block: Block) -> str | None:
    """Why what a block stores should stay in the caches; None when it may pass them by."""
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
    """The outputs all of whose writers say so, and may."""
    blocks = [b for _, b in walk(program.body) if isinstance(b, Block)]
    asked = {b.name for b in blocks if dict(b.annotations).get(STREAM) is True and stream_problem(program, b) is None}
    kept = {s.buffer for b in blocks if b.name not in asked for s in (*b.init, *b.body)}
    return frozenset(s.buffer for b in blocks if b.name in asked for s in (*b.init, *b.body)) - kept


def _read(b: Block) -> set[str]:
    return {x.buffer for s in (*b.init, *b.body) for e in (s.value, *s.indices) for x in loads(e)}
