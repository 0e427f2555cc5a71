"""Which loops may leave the products of a round under way while they begin the next.

Behind the products of a round a thread then waits for those of the round before. So what these have read may be overwritten
from there on, behind a barrier, and what those of the round read may not. Where another role loads, it is released there,
one round late. In the part of a round before its products, nothing that products read is written. Whether a write meets what
is being read is decided by integer sets, for all threads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tensorc_dsl.affine.sets import NotAffine, affine_only, feasible
from tensorc_dsl.affine.simplify import conjuncts, prove, simplify
from tensorc_dsl.backend.cuda.lower.accesses import Access, accesses
from tensorc_dsl.backend.cuda.lower.kernels import (
    THREAD,
    ArriveMbarrier,
    Barrier,
    Device,
    Guard,
    Phase,
    Steps,
    TmaLoad,
    WgmmaFence,
    WgmmaWait,
    inside,
)
from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Expr, Var, index, sub, substitute
from tensorc_dsl.lower.flat import Store, buffers_of, stores


@dataclass(frozen=True, slots=True)
class Around:
    """The extents of blocks, threads and loops around a statement, and the buffers of which instructions get descriptors."""

    extents: tuple[tuple[str, Expr], ...]
    described: Collection[str]

    def among(self, threads: int) -> Around:
        """The same, for so many threads."""
        return replace(self, extents=tuple((v, index(threads) if v == THREAD else e) for v, e in self.extents))


def overlapped(s: Steps, around: Around) -> tuple[Device, ...] | None:
    """The loop with the products of a round under way in the next; None if it has none, or that is not known to be right."""
    ends = [n for n, x in enumerate(s.body) if isinstance(x, WgmmaWait)]
    if len(ends) != 1 or sum(isinstance(x, WgmmaWait) for x in inside(s.body)) != 1:
        return None
    (end,) = ends
    begin = next(n for n, x in enumerate(s.body) if isinstance(x, WgmmaFence))
    head, run, tail = s.body[:begin], s.body[begin + 1 : end], s.body[end + 1 :]
    finish = s.body[end]
    assert isinstance(finish, WgmmaWait)
    others = [*head, *tail]
    if any(not set(finish.buffers).isdisjoint(buffers_of(x)) for x in _stores(others)):
        return None
    if any(x.buffer in around.described for x in _stores(head)):
        return None
    inner = replace(around, extents=(*around.extents, (s.var, s.end)))
    reads = [
        a for x in inside(tuple(run)) if isinstance(x, Phase) for a in accesses(x.body, finish.buffers) if not a.write
    ]
    loops = tuple((x.var, x.end) for x in inside(tuple(run)) if isinstance(x, Steps))
    reads = [replace(a, loops=(*loops, *a.loops)) for a in reads if a.buffer in around.described]
    if not _apart(tail, reads, inner, (), False):
        return None
    if any(isinstance(x, ArriveMbarrier) and x.slots == 1 for x in tail):
        return None
    released = [x for x in tail if isinstance(x, ArriveMbarrier)]
    rest = [x for x in tail if not isinstance(x, ArriveMbarrier)]
    late = tuple(_released(x, sub(Var(s.var), ONE), Compare(">", Var(s.var), ZERO), s.var) for x in released)
    last = tuple(_released(x, sub(s.end, ONE), Compare(">", s.end, ZERO), s.var) for x in released)
    body = (*head, WgmmaFence(finish.buffers), *run, WgmmaWait((), 1), *late, *rest)
    return (replace(s, body=body), replace(finish, ends_group=False), *last)


def _released(x: ArriveMbarrier, iteration: Expr, cond: Expr, var: str) -> Device:
    """The release of an iteration, if there is one."""
    own = replace(x, at=simplify(substitute(x.at, {var: iteration}), {}))
    return own if prove(cond, {}) else Guard(cond, (own,))


def _stores(body: Sequence[Device]) -> list[Store]:
    flat = [x.body for x in inside(tuple(body)) if isinstance(x, Phase | TmaLoad)]
    return [x for one in flat for x in stores(one)]


def _apart(
    body: Sequence[Device], reads: Sequence[Access], around: Around, guards: tuple[Expr, ...], cleared: bool
) -> bool:
    """Whether each write to what products read is behind a barrier, and to no element that those of the round read."""
    for s in body:
        match s:
            case Barrier():
                cleared = True
            case Guard(cond=cond, body=inner):
                if not _apart(inner, reads, around, (*guards, *conjuncts(cond)), cleared):
                    return False
            case Steps(var=var, end=end, body=inner):
                deeper = replace(around, extents=(*around.extents, (var, end)))
                if not _apart(inner, reads, deeper, guards, cleared):
                    return False
            case Phase(body=inner) | TmaLoad(body=inner):
                for a in accesses(inner, ()):
                    if a.write and a.buffer in around.described:
                        mine = replace(a, conds=(*a.conds, *guards))
                        if not cleared or any(_meet(mine, b, around) for b in reads if b.buffer == a.buffer):
                            return False
            case _:
                pass
    return True


def _meet(a: Access, b: Access, around: Around) -> bool:
    """Whether a thread can write an element in the iteration in which any thread reads it."""
    names = {v: Var(f"{v}'") for v in (THREAD, *(v for v, _ in a.loops))}
    extents = dict(around.extents)
    extents |= {f"{v}'": e for v, e in (*a.loops, (THREAD, extents[THREAD]))}
    extents |= dict(b.loops)
    conds = (Compare("==", substitute(a.index, names), b.index), *(substitute(c, names) for c in a.conds), *b.conds)
    try:
        return feasible(extents, affine_only(conds))
    except NotAffine:
        return True
