"""The condition under which a loop may be scattered, which `scatter` proves and each later step keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.ir.program import For, LoopKind, Program, is_scattered, walk
from tensorc_dsl.proof.sets.data_selected import NotChosen, chosen_iteration
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0663",
    "after `{step}` data would not choose the iteration of the scattered loop `{loop}`: it {reason}",
    help="take `scatter(…)` as the last step on these loops",
)
def NOT_SCATTERED(*focus: str, step: str, loop: str, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """Why data do not choose the only iteration of a loop that runs: a phrase with the loop as its subject, and a repair."""

    reason: str
    repair: str


def scatter_problem(around: Sequence[For], loop: For) -> Problem | None:
    """Why a loop cannot be scattered; None if it can."""
    if loop.kind is not LoopKind.SERIAL:
        return Problem(f"is {loop.kind}", "a loop has one kind; choose another loop")
    for x in around:
        if x.kind is LoopKind.VECTORIZED:
            reason = f"is inside of `{x.var}`, which is {x.kind}: its iterations run in lock step"
            return Problem(reason, f"run `{x.var}` in order")
    try:
        chosen_iteration(around, loop)
    except NotChosen as e:
        return Problem(str(e), e.repair)
    return None


def refuse_unscattered(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which data do not choose the iteration of a scattered loop any more."""
    for around, s in walk(after.body):
        if isinstance(s, For) and is_scattered(s) and (problem := scatter_problem(around, s)) is not None:
            focus = (s.var,) if any(isinstance(x, For) and x.var == s.var for _, x in walk(before.body)) else ()
            raise NOT_SCATTERED(before, *focus, step=step, loop=s.var, reason=problem.reason)
