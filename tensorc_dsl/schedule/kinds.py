"""The proof that iterations can run at once, for `parallel`, `vectorize` and `bind`."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.annotations import passed_along
from tensorc_dsl.ir.expr import ONE, free_vars
from tensorc_dsl.ir.program import (
    AT_ONCE,
    Axis,
    For,
    IterKind,
    LoopKind,
    Program,
    blocks_in,
    find_block,
    is_atomic,
    is_scattered,
    replace_stmt,
    walk,
)
from tensorc_dsl.proof.sets.accesses import is_private, private_loops, written
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.proof.sets.store_guards import NotChosen, chosen_iteration
from tensorc_dsl.schedule.nests import loops_below, replace_buffer, without_single
from tensorc_dsl.schedule.step import LoopRef, Rewrite, refusal


@refusal("E0330", "the iterations of `{loop}` cannot run at once: {dependence}", at="loop")
def RACE(*focus: str, loop: str, dependence: object, repair: str) -> None: ...
@refusal(
    "E0331",
    "`{loop}` cannot be {kind}: it is {where} the {other_kind} loop `{other}`",
    help="{rule}",
    at="loop",
)
def CLASH(*focus: str, loop: str, kind: str, where: str, other_kind: str, other: str, rule: str) -> None: ...


@refusal(
    "E0678",
    'the iterations of `{loop}` cannot pass on the value of `{block}`: "{axis}" does not count blocks',
    help='bind `{loop}` to "block.x", "block.y" or "block.z": blocks wait for blocks that have begun before them',
    at="loop",
)
def NOT_BLOCKS(*focus: str, loop: str, block: str, axis: str) -> None: ...


_RULES: dict[tuple[LoopKind, LoopKind], str] = {
    (LoopKind.PARALLEL, LoopKind.PARALLEL): "holds no other parallel loop",
    (LoopKind.PARALLEL, LoopKind.VECTORIZED): "holds no parallel loop",
    (LoopKind.PARALLEL, LoopKind.UNROLLED): "holds no parallel loop",
    (LoopKind.PARALLEL, LoopKind.BOUND): "holds no parallel loop",
    (LoopKind.VECTORIZED, LoopKind.VECTORIZED): "holds no other vectorized loop",
    (LoopKind.TENSORIZED, LoopKind.VECTORIZED): "holds no instruction",
    (LoopKind.BOUND, LoopKind.PARALLEL): "holds no bound loop",
    (LoopKind.BOUND, LoopKind.VECTORIZED): "holds no bound loop",
    (LoopKind.BOUND, LoopKind.UNROLLED): "holds no bound loop",
}
"""Pairs of kinds (inside, around) that no backend supports, with the rule of the loop around."""


def _a(kind: LoopKind) -> str:
    return f"an {kind} loop" if kind is LoopKind.UNROLLED else f"a {kind} loop"


def refuse_clash(program: Program, around: tuple[For, ...], loop: For, kind: LoopKind) -> None:
    """Refuse a kind that cannot be combined with the kinds of the loops around and below."""
    for other in around:
        if rule := _RULES.get((kind, other.kind)):
            facts = {
                "where": "inside",
                "other": other.var,
                "other_kind": other.kind,
                "rule": f"{_a(other.kind)} {rule}",
            }
            raise CLASH(program, other.var, loop.var, loop=loop.var, kind=kind, **facts)
    for other in loops_below(loop):
        if _RULES.get((other.kind, kind)):
            facts = {"where": "around", "other": other.var, "other_kind": other.kind}
            raise CLASH(
                program,
                loop.var,
                other.var,
                loop=loop.var,
                kind=kind,
                rule=f"{_a(other.kind)} stands in no {kind} loop",
                **facts,
            )


def refuse_race(program: Program, loop: For, kind: LoopKind) -> None:
    """Refuse a loop whose iterations depend on each other, even within a reduction that is not atomic.

    Steps of a scan that do not depend on each other, such as those of tiles on a wavefront, may run at once.
    """
    dependence = carried(program, loop.var, kind)
    if dependence is not None:
        repair = (
            _instead(program, loop, dependence.first, IterKind.REDUCE)
            if dependence.reduction
            else _apart(program, loop, dependence.buffer)
        )
        focus = dict.fromkeys((loop.var, dependence.first, dependence.second))
        raise RACE(program, *focus, loop=loop.var, dependence=dependence, repair=repair)
    for b in blocks_in(loop.body):
        for it in b.iters:
            if kind is LoopKind.BOUND and it.kind is IterKind.REDUCE and is_atomic(b):
                continue
            if it.kind is IterKind.REDUCE and loop.var in free_vars(it.binding):
                what = f"`{b.name}` takes its {it.kind} iterator `{it.name}` from it"
                raise RACE(
                    program,
                    loop.var,
                    b.name,
                    loop=loop.var,
                    dependence=what,
                    repair=_instead(program, loop, b.name, it.kind),
                )


def _instead(program: Program, loop: For, block: str, kind: IterKind) -> str:
    """What to do where a loop counts a reduction or the steps of a scan of the block."""
    around, b = find_block(program, block)
    steps = {it.name for it in b.iters if it.kind is IterKind.REDUCE}
    places = {v for s in b.body for i in s.indices for v in free_vars(i)}
    in_order = frozenset[str]().union(*(free_vars(it.binding) for it in b.iters if it.kind is not IterKind.SPATIAL))
    elements = frozenset[str]().union(*(free_vars(it.binding) for it in b.iters if it.kind is IterKind.SPATIAL))
    ways: list[str] = []
    if any(x.var in elements - in_order and x.extent != ONE for x in around):
        ways.append(f"a spatial loop of `{block}` run at once instead")
    if kind is IterKind.REDUCE and not steps & places and not elements & in_order:
        ways.append(f"partial results first: `rfactor({block}, {loop.var})`")
    return f"make {', or '.join(ways)}" if ways else f"leave `{loop.var}` in order"


def _apart(program: Program, loop: For, buffer: str) -> str:
    """What to do where iterations meet in a buffer: if each fills what it reads, each can have a buffer of its own."""
    between = next((x for x in program.buffers if x.name == buffer and x.scope == "global"), None)
    if between is not None:
        local = replace_buffer(program, buffer, (replace(between, scope="local"),))
        if is_private(local, buffer, loop.var):
            return f'give each iteration a `{buffer}` of its own: `set_scope({buffer}, "local")`'
    return "choose a loop whose iterations touch different elements"


def at_once(
    program: Program, around: tuple[For, ...], loop: For, kind: LoopKind, axis: Axis | None = None
) -> Rewrite[LoopRef]:
    """The program with the loop of that kind, after proofs that the result does not change. Raises ScheduleRefusal."""
    refuse_clash(program, around, loop, kind)
    if axis is not None and axis.level != "block":
        for b in passed_along(loop):
            raise NOT_BLOCKS(program, loop.var, b.name, loop=loop.var, block=b.name, axis=axis)
    single = without_single(loop, around)
    if single is loop:
        refuse_race(program, loop, kind)
    return Rewrite(replace_stmt(program, loop.var, (replace(single, kind=kind, axis=axis),)), LoopRef(loop.var))


# Repeats the proof that parallel iterations are independent when a later step moves buffers that were private to them.
#
# Making a loop parallel proves that it has no races, with private buffers of its iterations left out. A later step can
# move such a buffer, or a new buffer with its contents, out of the loop: then all iterations share it. So the proof is
# repeated for each loop that a buffer has left, and for each new buffer.


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


# The condition under which a loop may be scattered, which `scatter` proves and each later step keeps.


@refusal(
    "E0663",
    "after `{step}` data would not choose the iteration of the scattered loop `{loop}`: it {reason}",
    help="take `scatter(…)` as the last step on these loops",
)
def NOT_SCATTERED(*focus: str, step: str, loop: str, reason: str) -> None: ...


@frozen
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
