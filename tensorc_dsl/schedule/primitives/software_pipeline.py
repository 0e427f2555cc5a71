"""`software_pipeline`: overlap the statements of a loop for different iterations."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.annotations import ASYNC, ORDER, STAGES, written_out
from tensorc_dsl.ir.program import LoopKind, Program
from tensorc_dsl.proof.sets.accesses import written
from tensorc_dsl.proof.sets.dependence import Dependence, overtakes
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, require_no_kind, the_block, the_loop, with_annotations
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0386",
    "{stages} are not the stages of a pipeline of `{loop}`: {why}",
    help="give one stage, counted from 0, for each of the {count} statements of `{loop}`",
)
def BAD_STAGES(*focus: str, stages: object, loop: str, why: str, count: int) -> None: ...
@refusal(
    "E0387",
    "{order} is no order of the {count} statements of `{loop}`",
    help="give the position of each statement, each of 0 to {last} once",
)
def BAD_ORDER(*focus: str, order: object, count: int, loop: str, last: int) -> None: ...
@refusal(
    "E0388",
    "stage {stage} cannot be asynchronous: no statement of `{loop}` has it",
    help="the stages are {stages}",
)
def NO_STAGE(*focus: str, stage: int, loop: str, stages: str) -> None: ...
@refusal(
    "E0389",
    "the pipeline of `{loop}` would change the result: {dependence}, and the later access would come first",
)
def OVERTAKES(*focus: str, loop: str, dependence: object, repair: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, BAD_STAGES, BAD_ORDER, NO_STAGE, OVERTAKES)
def software_pipeline(
    program: Program,
    loop: LoopRef,
    stages: tuple[int, ...],
    *,
    order: tuple[int, ...] = (),
    asynchronous: tuple[int, ...] = (),
) -> Rewrite[LoopRef]:
    """The statements of the loop may run for different iterations at one time, as a pipeline.

    for i in n: {s0; s1}  ->  pipelined for i in n @stages(0, 1): {s0; s1}
    which a backend may run as   s0[i := 0];  for i in n-1: {s0[i := i + 1]; s1[i]};  s1[i := n - 1]

    Each statement of the body has a stage: in round `t` it runs for iteration `t - stage`. Within a round statements run
    in the order that `order` gives (the position of each; by default that of the text). `asynchronous` names stages whose
    copies a backend may start and wait for later. Every dependence must keep its direction; a buffer that is private to
    an iteration gets a version for each iteration in flight. Running the loop as it is written is always right, and is
    done on CPUs.
    In TVM: the annotations `software_pipeline_stage`, `_order` and `_async_stages`.  Source: Lam, PLDI 1988.
    Cases: tests/primitives/software_pipeline.md
    """
    target = the_loop(program, loop)[1]
    require_no_kind(program, target, "software_pipeline")
    count, name = len(target.body), target.var
    if why := _problem(stages, count):
        raise BAD_STAGES(program, name, stages=list(stages), loop=name, why=why, count=count)
    places = order or tuple(range(count))
    if sorted(places) != list(range(count)):
        raise BAD_ORDER(program, name, order=list(places), loop=name, count=count, last=count - 1)
    for s in asynchronous:
        if s not in stages:
            known = ", ".join(map(str, sorted(set(stages))))
            raise NO_STAGE(program, name, stage=s, loop=name, stages=known)
    dependence = overtakes(program, name, stages, places)
    if dependence is not None:
        focus = dict.fromkeys((name, dependence.first, dependence.second))
        raise OVERTAKES(program, *focus, loop=name, dependence=dependence, repair=_instead(program, dependence))
    facts = {STAGES: stages, ORDER: places, **({ASYNC: asynchronous} if asynchronous else {})}
    piped = replace(target, kind=LoopKind.PIPELINED)
    return Rewrite(with_annotations(program, piped, {key: written_out(v) for key, v in facts.items()}), LoopRef(name))


def _problem(stages: tuple[int, ...], count: int) -> str:
    """The error in the stages themselves; empty if there is none."""
    if len(stages) != count:
        return f"there are {len(stages)} of them for {count} statement{'s' * (count != 1)}"
    if min(stages) < 0:
        return f"{min(stages)} is negative"
    return f"the first is {min(stages)}" if min(stages) else ""


def _instead(program: Program, dependence: Dependence) -> str:
    """What to do where the second access of a dependence would come first."""
    if dependence.buffer in written((the_block(program, BlockRef(dependence.first))[1],)):
        return "what a statement reads must be written in an earlier stage, or earlier in the order of the same one"
    first, second = dependence.first, dependence.second
    return f"give `{first}` and `{second}` one stage, in their order: `{second}` writes what `{first}` still reads"
