"""Formats what an emulation has counted: what kernels move, and the accesses that move more than their data need."""

from __future__ import annotations

from collections.abc import Iterator

from tensorc_dsl.affine.accesses import touched
from tensorc_dsl.backend.protocol import Counts, Traffic
from tensorc_dsl.ir.program import Block, Program, walk
from tensorc_dsl.reference.open_sizes import describe
from tensorc_dsl.report.table import columns
from tensorc_dsl.tuning.measure.emulation import Emulated

MOST = 5
"""The largest number of accesses that are listed."""


def traffic(found: Emulated, scheduled: Program) -> str:
    """What the kernels of a scheduled program move, in a table, and the accesses with the most in excess, as plain text."""
    at = describe(found.counted_at)
    title = f"counted{f' at {at}' if at else ''}, not timed"
    rows = [(title, "blocks", "barriers", "sectors of global memory", "passes over shared memory")]
    rows += [
        (c.kernel, str(c.blocks), str(c.barriers), _moved(c, shared=False), _moved(c, shared=True))
        for c in found.counts
    ]
    return "\n".join((columns(rows), *_excesses(found, scheduled)))


def _moved(c: Counts, *, shared: bool) -> str:
    """What a kernel moves, and how many times the least that is."""
    moves, least = c.moves(shared), sum(t.least for t in c.traffic if t.shared == shared)
    return f"{moves} ({moves / least:.1f} × the least)" if least else "0"


def _excesses(found: Emulated, scheduled: Program) -> Iterator[str]:
    every = [t for c in found.counts for t in c.traffic if t.moves > t.least]
    for t in sorted(every, key=lambda t: t.least - t.moves)[:MOST]:
        what = "passes over the banks" if t.shared else "sectors"
        done, need = t.moves / t.requests, t.least / t.requests
        how = "written" if t.write else "read"
        yield f"`{t.buffer}` is {how} with {done:.1f} {what} a request, and {need:.1f} would do: {_place(t, scheduled)}"


def _place(t: Traffic, scheduled: Program) -> str:
    """The blocks that make an access, each with the loops around it."""
    found: list[str] = []
    for around, s in walk(scheduled.body):
        if isinstance(s, Block) and t.buffer in touched(s) and any(x.buffer == t.into for x in (*s.init, *s.body)):
            loops = ", ".join(f"`{x.var}`" for x in around)
            found.append(f"block `{s.name}`" + (f" in {loops}" if loops else ""))
    return "; ".join(found)
