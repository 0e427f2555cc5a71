"""Rules for loops that are bound to the axes of a GPU, which every program keeps.

A statement at the top of a program is a kernel. It starts one grid of blocks of threads, so each axis has one size in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Axis, For, LoopKind, Program, walk

_RANKS = {"block": 0, "warpgroup": 1, "warp": 2, "lane": 3, "thread": 1}
"""The nesting of levels: a level stands inside levels of a smaller rank."""

_SAME_THREADS = tuple({"thread", level} for level in ("warpgroup", "warp", "lane"))
"""Pairs of levels that cannot be nested, since both count the same threads."""

_WARP = 32
"""The number of lanes in a warp."""

_WARPGROUP = 4
"""The number of warps in a warpgroup."""


@dataclass(frozen=True, slots=True)
class AxisProblem:
    """The reason why the loop `loop` cannot be bound as it is. `other` is the loop that it conflicts with, or None."""

    loop: str
    axis: Axis
    other: str | None
    reason: str
    repair: str


def axis_problem(program: Program) -> AxisProblem | None:
    """The problem of the first bound loop that breaks a rule, in text order; None if all are right."""
    seen: dict[tuple[int, Axis], For] = {}
    for around, s in walk(program.body):
        if not isinstance(s, For) or s.axis is None:
            continue
        kernel = around[0] if around else s
        first = seen.setdefault((id(kernel), s.axis), s)
        for problem in _problems(around, s, s.axis, first):
            return problem
    return None


def _problems(around: tuple[For, ...], loop: For, axis: Axis, first: For) -> Iterator[AxisProblem]:
    def problem(reason: str, repair: str, other: For | None = None) -> AxisProblem:
        return AxisProblem(loop.var, axis, None if other is None else other.var, reason, repair)

    size = constant(loop.extent)
    for other in around:
        if other.axis is axis:
            yield problem(f"it is inside `{other.var}`, which is bound to it", "bind it to another axis", other)
        elif other.axis is not None and {axis.level, other.axis.level} in _SAME_THREADS:
            reason = f'it is inside `{other.var}`, and "{other.axis}" counts the same threads'
            yield problem(reason, "count threads by dimensions, or by warpgroups, warps and lanes", other)
        elif other.axis is not None and _RANKS[other.axis.level] > _RANKS[axis.level]:
            reason = f'it is inside `{other.var}`, which is bound to "{other.axis}"'
            yield problem(reason, "bind loops from the outside in: blocks, then what counts threads", other)
        elif not axis.counts_threads and other.kind is not LoopKind.BOUND and constant(other.extent) != 1:
            reason = f"it is inside `{other.var}`, and a grid starts once"
            yield problem(reason, f"reorder the loops so that `{loop.var}` is outside of `{other.var}`", other)
    if first is not loop and not axis.counts_threads:
        reason = f"`{first.var}` is bound to it in the same kernel, and a grid starts once"
        yield problem(reason, "leave the two in statements of their own", first)
    if axis.counts_threads and size is None:
        reason = f"it has `{format_expr(loop.extent)}` iterations, and the size of a block must be known"
        yield problem(reason, f"split `{loop.var}` with a number for its inner factor, and bind that")
    if first.extent != loop.extent:
        sizes = f"`{format_expr(loop.extent)}` iterations and `{first.var}` has `{format_expr(first.extent)}`"
        yield problem(f"in one kernel it has one size, but `{loop.var}` has {sizes}", "split both alike", first)
    in_group = any(x.axis is Axis.WARPGROUP for x in around)
    limit = _WARP if axis is Axis.LANE else _WARPGROUP if axis is Axis.WARP and in_group else None
    if limit is not None and size is not None and size > limit:
        whole = "a warp has 32 lanes" if axis is Axis.LANE else "a warpgroup has 4 warps"
        yield problem(f"{whole}, and `{loop.var}` has {size} iterations", f"split `{loop.var}` by {limit}")
