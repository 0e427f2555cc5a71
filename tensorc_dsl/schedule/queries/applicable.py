"""Whether a step would be accepted: `b.can_compute_inline`, `l.can_reorder(m)`, …, for each primitive; and what it then does.

A module that asks these queries in its `when` is never refused, so no draw of its space fails.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from inspect import Parameter
from math import prod
from typing import get_args

from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import For, Program
from tensorc_dsl.schedule.nests import the_block, the_buffer, the_loop, the_node, the_statement
from tensorc_dsl.schedule.primitive import accepts, apply
from tensorc_dsl.schedule.primitives import ALL_STEPS
from tensorc_dsl.schedule.query import Query, declare, query
from tensorc_dsl.schedule.step import BlockRef, BufferRef, LoopRef, NodeRef, Primitive, Ref, ScheduleRefusal


def asking(step: Primitive) -> tuple[Query, ...]:
    """The queries `can_<step>`: one of each type that the first argument of the step may have, none without arguments. The
    other arguments are the step's.
    """
    if not step.signature.parameters:
        return ()
    first, *others = step.signature.parameters.values()
    rest = step.signature.replace(parameters=[first, *others] if first.kind is Parameter.VAR_POSITIONAL else others)
    what, name = step.doc.split("\n\n")[0], f"can_{step.name}"
    doc = f"Whether `{step.name}` would be accepted: {what[0].lower()}{what[1:]}"
    # If a step takes a block or None, None means the whole program.
    subjects = [Program if t is type(None) else t for t in get_args(first.annotation) or (first.annotation,)]
    return tuple(Query(name, t, _asked(step.name, t), rest, bool, doc, step=step.name) for t in subjects)


def _asked(step: str, subject: type) -> Callable[..., bool]:
    def of_program(program: Program, *args: object, **kwargs: object) -> bool:
        return accepts(program, step, None, *args, **kwargs)

    def of_part(program: Program, part: Ref, *args: object, **kwargs: object) -> bool:
        match part:
            case BufferRef():
                the_buffer(program, part)
            case NodeRef():
                the_node(program, part)
            case _:
                the_statement(program, part)
        return accepts(program, step, part, *args, **kwargs)

    return of_program if subject is Program else of_part


for _step in ALL_STEPS.values():
    for _query in asking(_step):
        declare(_query)


@query
def is_computed_once_at(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    """Whether `compute_at` would move it below a loop around all its consumers, and then computes nothing twice."""
    return _is_once(program, block, loop)


@lru_cache(maxsize=256)
def _is_once(program: Program, block: BlockRef, loop: LoopRef) -> bool:
    the_loop(program, loop)
    before, _ = the_block(program, block)
    try:
        moved = apply(program, "compute_at", block, loop).program
    except ScheduleRefusal:
        return False
    return _iterations(the_block(moved, block)[0]) == _iterations(before)


def _iterations(around: tuple[For, ...]) -> tuple[int, list[str]]:
    """The number of iterations of loops: what is known of it, and its open factors."""
    known = prod(n for x in around if (n := constant(x.extent)) is not None)
    return known, sorted(format_expr(x.extent) for x in around if constant(x.extent) is None)


@query
def is_independent(program: Program, loop: LoopRef) -> bool:
    """Whether `reorder` could move it outside of all loops around it, and `parallel` would be accepted there: none of
    its iterations needs an element that another one stores, in any iteration of the others.
    """
    return _is_independent(program, loop)


@lru_cache(maxsize=256)
def _is_independent(program: Program, loop: LoopRef) -> bool:
    around, _ = the_loop(program, loop)
    try:
        moved = apply(program, "reorder", loop, *(LoopRef(x.var) for x in around)).program if around else program
        apply(moved, "parallel", loop)
    except ScheduleRefusal:
        return False
    return True
