"""Keeps the declarations of earlier steps about loops true: a later step that breaks one is refused.

A pipeline is proved for the current statements of its loop. A later step may add or remove one, or change its accesses, so
the proof is repeated whenever the loop has changed. The same holds for the roles of its statements, and
for tensorized nests (`units`). A loop bound to an axis must agree with all others of its kernel, so each step checks the
whole program.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.ir.axes import axis_problem
from tensorc_dsl.ir.pipelines import pipeline, roles
from tensorc_dsl.ir.program import Block, For, LoopKind, Program, blocks, walk
from tensorc_dsl.proof.sets.accesses import home, private_loops, touched, written
from tensorc_dsl.proof.sets.dependence import overtakes, overwritten
from tensorc_dsl.schedule.accumulation import UNBEGUN, refuse_unbegun
from tensorc_dsl.schedule.counted import TOO_LONG, UNCOUNTED, refuse_long, refuse_uncounted
from tensorc_dsl.schedule.homes import EMPTIED, refuse_emptied
from tensorc_dsl.schedule.races import MEET, refuse_races
from tensorc_dsl.schedule.refusal import refusal
from tensorc_dsl.schedule.scattered import NOT_SCATTERED, refuse_unscattered
from tensorc_dsl.schedule.units import APART, FRAGMENT, refuse_apart


@refusal(
    "E0390",
    "after `{step}` the pipeline of `{loop}` would not hold: {why}",
    help="make a loop a pipeline when its statements are final",
)
def NOT_KEPT(*focus: str, step: str, loop: str, why: object) -> None: ...
@refusal(
    "E0612",
    'after `{step}` the loop `{loop}` could not be bound to "{axis}": {reason}',
    help="bind loops when they are where they shall be",
)
def MISBOUND(*focus: str, step: str, loop: str, axis: str, reason: str) -> None: ...
@refusal(
    "E0611",
    'after `{step}` all uses of `{buffer}` are inside `{loop}`, bound to "{axis}": its threads share what each would fill',
    help='fill `{buffer}` outside of `{loop}`, in a loop of its own, or give it the scope "local"',
)
def SHARED(*focus: str, step: str, buffer: str, loop: str, axis: str) -> None: ...
@refusal(
    "E0696",
    "after `{step}` `{written}` cannot update `{read}`: {why}",
    help="keep the order in which elements are read and then written, or `{read}` and `{written}` apart: leave `updates` out",
)
def OVERWRITES(*focus: str, step: str, written: str, read: str, why: object) -> None: ...


STALE = (
    NOT_KEPT, MISBOUND, SHARED, MEET, EMPTIED, APART, FRAGMENT, NOT_SCATTERED, UNCOUNTED, TOO_LONG, UNBEGUN, OVERWRITES,
)  # fmt: skip
"""The refusals of a step that breaks a declaration of an earlier one; any step can raise them."""


def refuse_stale(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which a bound loop is not valid, a pipeline is not legal, a tensorized nest is not its
    instruction, iterations that run at once share an element, data do not choose the iteration of a scattered loop, or
    something is not written where a reduction has no steps.

    It also refuses a shared buffer that each thread would fill for itself: one copy serves all threads of a block; a private
    buffer that would lose what it holds; what 64 bits do not count; expressions that are too large; and an output that would
    overwrite elements of an input that are read later, if it did not before.
    """
    refuse_long(step, before, blocks(after))
    refuse_uncounted(step, before, after)
    refuse_apart(step, before, after)
    refuse_races(step, before, after)
    refuse_emptied(step, before, after)
    refuse_unscattered(step, before, after)
    refuse_unbegun(step, before, after)
    for p in after.params:
        if p.updates in ("", p.name) or (why := overwritten(after, p.name, p.updates)) is None:
            continue
        if overwritten(before, p.name, p.updates) is None:
            raise OVERWRITES(before, why.reader, why.writer, step=step, written=p.name, read=p.updates, why=why)
    if problem := axis_problem(after):
        focus = [x for x in (problem.loop, problem.other) if x is not None]
        facts = {"loop": problem.loop, "axis": problem.axis, "reason": problem.reason}
        raise MISBOUND(before, *focus, step=step, **facts)
    for buffer in after.buffers:
        if buffer.scope.split(".")[0] != "shared":
            continue
        for x in home(after, buffer) or ():
            if x.axis is not None and x.axis.counts_threads:
                raise SHARED(before, x.var, buffer.name, step=step, buffer=buffer.name, loop=x.var, axis=x.axis)
    pipelines = [s for _, s in walk(after.body) if isinstance(s, For) and s.kind is LoopKind.PIPELINED]
    if not pipelines:
        return
    known = {s.var: s for _, s in walk(before.body) if isinstance(s, For)}
    moved = private_loops(before) != private_loops(after)  # a private buffer may have become shared
    for loop in pipelines:
        if known.get(loop.var) == loop and not moved:
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
        if passing := private_between(after, loop, roles(loop)):
            why = "`{}` is private to a thread, and passes from {} to {}".format(*passing)
            raise NOT_KEPT(before, loop.var, step=step, loop=loop.var, why=why)


def private_between(program: Program, loop: For, roles: Sequence[str]) -> tuple[str, str, str] | None:
    """A buffer that is private to a thread, a role that writes it, and another role that accesses it; None if none is."""
    for buffer in program.buffers:
        if buffer.scope != "local":
            continue
        users = [
            (role, buffer.name in written((s,)))
            for s, role in zip(loop.body, roles, strict=False)
            if any(buffer.name in touched(b) for _, b in walk((s,)) if isinstance(b, Block))
        ]
        for a, writes in users:
            for b, _ in users:
                if writes and a != b:
                    return buffer.name, a, b
    return None
