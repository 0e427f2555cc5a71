"""Checks the reordering of statements by a software pipeline (Lam, "Software Pipelining", PLDI 1988).

In a pipeline, round `t` of a loop runs statement `s` for iteration `t - stage(s)`, and the statements of a round in the
order given by `order`. So two instances, of statement `p` in iteration `i` and of `q` in iteration `j`, keep their order iff
`(i + stage(p), order(p)) < (j + stage(q), order(q))`. A buffer that is private to an iteration gets as many versions as there
are iterations in flight, so only dependences within one iteration count for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.affine.accesses import Access, accesses, touched, written
from tensorc_dsl.affine.dependence import Dependence, conflict, pairs
from tensorc_dsl.affine.distance import distances
from tensorc_dsl.affine.private import is_private
from tensorc_dsl.ir.pipelines import pipeline
from tensorc_dsl.ir.program import Block, For, LoopKind, Program, blocks_in, find_loop, walk


def overtakes(program: Program, var: str, stages: Sequence[int], order: Sequence[int]) -> Dependence | None:
    """A dependence that the pipeline of loop `var` violates, or None; `stages` and `order` have one entry per statement."""
    outer, loop = find_loop(program, var)
    place = {b.name: n for n, s in enumerate(loop.body) for _, b in walk((s,)) if isinstance(b, Block)}
    depth = len(outer)
    for x, y in pairs(accesses(outer, (loop,), written((loop,)))):
        private = is_private(program, x.buffer, var)
        for a, b in ((x, y), (y, x)):
            p, q = place[a.block.name], place[b.block.name]
            if p == q:  # the instances of one statement keep their order
                break
            # `b` comes `d` iterations after `a`; it overtakes if (d + stage(b), order(b)) < (stage(a), order(a)).
            least = 0 if a.seq < b.seq else 1
            most = stages[p] - stages[q] - (0 if order[q] < order[p] else 1)
            if private:
                most = min(most, 0)
            if least <= most and _meets(a, b, depth, var, least, most):
                return Dependence(a.buffer, a.block.name, b.block.name, var, False)
    return None


def versions(loop: For, buffer: str) -> int:
    """The number of iterations of a loop that need a copy of a buffer at one time, if the buffer is private to an iteration.

    In a pipeline an iteration needs it from the first stage that accesses it to the last; in other loops it is 1.
    """
    found = pipeline(loop) if loop.kind is LoopKind.PIPELINED else None
    if found is None:
        return 1
    used = [n for n, s in zip(found[0], loop.body, strict=True) if any(buffer in touched(b) for b in blocks_in((s,)))]
    return max(used) - min(used) + 1 if used else 1


def _meets(a: Access, b: Access, depth: int, var: str, least: int, most: int) -> bool:
    near = distances(a, b, depth)
    if near is None:
        return False
    low, high = near[depth]
    if (high is not None and high < least) or (low is not None and low > most):
        return False
    return conflict(a, b, depth, apart={var: (least, most)})
