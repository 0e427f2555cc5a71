"""What steps declared of a loop holds after every later step, or that step is refused.

A pipeline is proved for the statements that its loop has then. A later step may add one, take one away or change what it
reads; so the proof is made again whenever the loop is not what it was.
"""

from __future__ import annotations

from tensorc_dsl.affine.pipeline import overtakes
from tensorc_dsl.ir.pipelines import pipeline
from tensorc_dsl.ir.program import For, LoopKind, Program, walk
from tensorc_dsl.schedule.refusal import Refusal

NOT_KEPT = Refusal(
    "E0390",
    "after `{step}` the pipeline of `{loop}` would not hold: {why}",
    help="make a loop a pipeline when its statements are final",
)


def refuse_stale(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which the pipeline of a loop is not legal any more."""
    pipelines = [s for _, s in walk(after.body) if isinstance(s, For) and s.kind is LoopKind.PIPELINED]
    if not pipelines:
        return
    known = {s.var: s for _, s in walk(before.body) if isinstance(s, For)}
    for loop in pipelines:
        if known.get(loop.var) == loop:
            continue
        declared = pipeline(loop)
        if declared is None:
            raise NOT_KEPT(
                before,
                loop.var,
                step=step,
                loop=loop.var,
                why=f"its stages are not those of its {len(loop.body)} statements",
            )
        dependence = overtakes(after, loop.var, *declared)
        if dependence is not None:
            raise NOT_KEPT(before, loop.var, step=step, loop=loop.var, why=dependence)
