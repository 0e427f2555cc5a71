"""The proof that iterations can run at once, for `parallel`, `vectorize` and `bind`."""

from __future__ import annotations

from tensorc_dsl.ir.expr import ONE, free_vars
from tensorc_dsl.ir.look_back import passed_along
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import (
    Axis,
    For,
    IterKind,
    LoopKind,
    Program,
    blocks_in,
    find_block,
    is_atomic,
    replace_stmt,
)
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.proof.sets.private import is_private
from tensorc_dsl.schedule.nests import replace_buffer
from tensorc_dsl.schedule.refs import LoopRef
from tensorc_dsl.schedule.refusal import refusal
from tensorc_dsl.schedule.rewrite import Rewrite
from tensorc_dsl.schedule.substitution import loops_below, without_single


@refusal(
    "E0330",
    "the iterations of `{loop}` cannot run at once: {dependence}",
    help="{repair}",
    at="loop",
)
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
