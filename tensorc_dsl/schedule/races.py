"""Repeats the proof that parallel iterations are independent when a later step moves buffers that were private to them.

Making a loop parallel proves that it has no races, with private buffers of its iterations left out. A later step can
move such a buffer, or a new buffer with its contents, out of the loop: then all iterations share it. So the proof is
repeated for each loop that a buffer has left, and for each new buffer.
"""

from __future__ import annotations

from tensorc_dsl.ir.program import AT_ONCE, For, Program, walk
from tensorc_dsl.proof.sets.accesses import private_loops, written
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0351",
    "after `{step}` the iterations of `{loop}`, which is {kind}, would meet: {dependence}",
    help="use `{step}` before `{loop}` is made {kind}",
)
def MEET(*focus: str, step: str, loop: str, kind: str, dependence: object) -> None: ...


def refuse_races(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which iterations that run at once share a buffer that they write."""
    at_once = [s for _, s in walk(after.body) if isinstance(s, For) and s.kind in AT_ONCE]
    if not at_once:
        return
    old = private_loops(before)
    shared = {name: loops for name, loops in private_loops(after).items() if name not in old or old[name] - loops}
    for loop in at_once:
        here = written((loop,))
        if any(name in here and loop.var not in loops for name, loops in shared.items()):
            dependence = carried(after, loop.var)
            if dependence is not None:
                raise MEET(before, loop.var, step=step, loop=loop.var, kind=loop.kind, dependence=dependence)
