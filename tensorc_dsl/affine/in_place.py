"""Proves that an output can be written over an input: each element is read for the last time before it is written.

The program has two arrays, and this asks what happens if they share memory. Nothing may read an element of the input after
the same element of the output is written. "After" is the order of the program, and for loops whose iterations have no order
any other iteration. Loops that are pipelined or tensorized run in an order of their own, so below them the two may not meet.
Questions that integer sets do not decide are answered with a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from tensorc_dsl.affine.accesses import accesses
from tensorc_dsl.affine.dependence import conflict, happens_before
from tensorc_dsl.affine.distance import common_loops
from tensorc_dsl.ir.program import AT_ONCE, LoopKind, Program

_OWN_ORDER = (LoopKind.PIPELINED, LoopKind.TENSORIZED)


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The block `reader` may read an element of `read` that `writer` has written, or writes at once, as one of `written`."""

    read: str
    written: str
    reader: str
    writer: str
    loop: str
    """The loop without an order in whose iterations that happens; empty if it happens in program order."""

    def __str__(self) -> str:
        when = f"in another iteration of `{self.loop}`, which has no order" if self.loop else "earlier"
        return f"`{self.reader}` may read elements of `{self.read}` that `{self.writer}` overwrites {when}"


def overwritten(program: Program, written: str, read: str) -> Overwritten | None:
    """An element of the input `read` that may be lost if the output `written` is in its memory; None if there is none."""
    found = accesses((), program.body, frozenset((read, written)))
    writes = [x for x in found if x.is_write and x.buffer == written]
    reads = [x for x in found if not x.is_write and x.buffer == read]
    for w, r in product(writes, reads):
        around = common_loops(w, r)
        for depth, loop in enumerate(around):
            lost = (
                any(conflict(w, r, depth, [(loop.var, sign)]) for sign in (1, -1))
                if loop.kind in AT_ONCE
                else loop.kind in _OWN_ORDER and conflict(w, r, depth)
            )
            if lost:
                return Overwritten(read, written, r.block.name, w.block.name, loop.var)
        if happens_before(w, r, 0):
            return Overwritten(read, written, r.block.name, w.block.name, "")
    return None
