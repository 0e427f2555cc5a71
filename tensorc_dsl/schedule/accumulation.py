"""Conditions for steps that take a reduction apart: the loops that count it, and where it begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce

from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Expr, Logic, Var, add, dims_in, free_vars, substitute
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, For, Iter, IterKind, Program, blocks, blocks_in, walk
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.proof.sets.coverage import full_domain, may_be_empty, where_begun
from tensorc_dsl.proof.sets.linear_forms import TRUE, Context, Ranges, linear, negate
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, prove, simplify
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0338",
    "`{mixed}` counts both the reduction and the elements of `{block}`",
    help="take this step before fusing loops of the reduction with others",
    at="block",
)
def MIXED_LOOP(*focus: str, mixed: str, block: str) -> None: ...
@refusal(
    "E0339",
    "the reduction of `{block}` does not begin where its loops begin: `{iterator}` is `{binding}`",
    help="let the reduction run upwards from 0",
    at="block",
)
def NOT_AT_ZERO(*focus: str, block: str, iterator: str, binding: str) -> None: ...


@refusal(
    "E0694",
    "after `{step}` what `{block}` writes would be missing where a reduction has no steps: {reason}",
    help="take `decompose_reduction` first, or let the open sizes that it reduces over begin at 1",
    at="block",
)
def UNBEGUN(*focus: str, step: str, block: str, reason: str) -> None: ...


def spatial(b: Block) -> tuple[Iter, ...]:
    """The iterators that count elements."""
    return tuple(it for it in b.iters if it.kind is not IterKind.REDUCE)


def steps_of(b: Block) -> frozenset[str]:
    """The variables in the bindings of the iterators that count the reduction."""
    return frozenset[str]().union(*(free_vars(it.binding) for it in b.iters if it.kind is IterKind.REDUCE))


def reduction_loops(program: Program, b: Block, around: tuple[For, ...]) -> frozenset[str]:
    """The loops that count the reduction: no other iterator uses them, and where the block initialises, all its iterators
    are 0 exactly if these loops are. So the instances that initialise are those of the other loops.
    """
    counting = steps_of(b) & {x.var for x in around}
    for it in spatial(b):
        for v in sorted(counting & free_vars(it.binding)):
            raise MIXED_LOOP(program, v, b.name, mixed=v, block=b.name)
    if b.init and (it := not_at_zero(b, around, counting)) is not None:
        raise _not_at_zero(program, b, it)
    return counting


def not_at_zero(b: Block, around: tuple[For, ...], counting: frozenset[str]) -> Iter | None:
    """An iterator of the reduction that is not 0 where the loops in `counting` are, or may be 0 elsewhere with the others;
    None if there is none, so that the block initialises where these loops begin, and only there.
    """
    reductions = [it for it in b.iters if it.kind is IterKind.REDUCE]
    zero: dict[str, Expr] = dict.fromkeys(counting, ZERO)
    ranges = extent_ranges(around)
    for it in reductions:
        if simplify(substitute(it.binding, zero), ranges) != ZERO:
            return it
    if _are_sums([it.binding for it in reductions], [v for v in counting if ranges[v][1] != 0], Context(ranges)):
        return None
    extents = {x.var: x.extent for x in around}
    at_zero = [Compare("==", it.binding, ZERO) for it in reductions]
    for v in sorted(counting):
        try:
            stray = feasible(extents, [*at_zero, Compare(">=", Var(v), ONE)])
        except NotAffine:  # such as a loop times an open extent
            stray = not any(_at_least_one(it.binding, v, ranges) for it in reductions)
        if stray:
            return next(it for it in reductions if v in free_vars(it.binding))
    return None


def refuse_unbegun(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which something is not written where a reduction has no steps, as it would be with a single step.

    A reduction is begun then if the loops that count it count nothing else, are all 0 at its first step, and have this step
    whenever there is one: the instances that initialise are those of the other loops, at every size. And no loop may leave
    out, then, what is read outside of it.
    """
    found = [(around, b) for around, b in walk(after.body) if isinstance(b, Block)]
    nothing = [
        Compare("<", it.extent, ONE)
        for _, b in found
        if may_be_empty(b)
        for it in b.iters
        if it.kind is IterKind.REDUCE
    ]
    if not nothing:
        return
    empty = reduce(lambda a, c: Logic("or", a, c), dict.fromkeys(nothing))
    for around, b in found:
        if b.is_reduction and not b.init:
            continue  # it goes on with what another block has begun
        reason = _unbegun(around, b) if may_be_empty(b) else ""
        if reason or (reason := _left_out(after, around, b, empty)):
            raise UNBEGUN(before, b.name, step=step, block=b.name, reason=reason)


def _unbegun(around: tuple[For, ...], b: Block) -> str:
    """Why a reduction is not begun where its loops have no iteration; empty if it is."""
    counting = steps_of(b) & {x.var for x in around}
    for it in spatial(b):
        for v in sorted(counting & free_vars(it.binding)):
            return f"`{v}` counts its elements too"
    if (it := not_at_zero(b, around, counting)) is not None:
        return f"its loops do not begin at 0, since `{it.name}` is `{format_expr(it.binding)}`"
    if (c := without_first_step(b, around, counting)) is not None:
        return f"`{format_expr(c)}` may leave out its first step"
    steps = [Compare(">=", it.extent, ONE) for it in b.iters if it.kind is IterKind.REDUCE]
    for x in around:
        if x.var in counting and _may_be_idle(x, [y for y in around if y.var not in counting], steps):
            return f"`{x.var}` may have no iteration where there is a step"
    return ""


def _left_out(program: Program, around: tuple[For, ...], b: Block, empty: Expr) -> str:
    """Why elements that a block writes may be missing where a reduction is empty, as sizes limit its instances then; empty if
    all that reads them is inside of the loop that does."""
    counting = steps_of(b)
    elements = [Compare(">=", it.extent, ONE) for it in spatial(b)]
    others = [x for x in around if x.var not in counting]
    sizes = dims_in(empty).difference(*(dims_in(it.extent) for it in spatial(b)))
    begun = replace(b, iters=spatial(b), where=where_begun(b))
    made = {s.buffer for s in b.body}
    for s, limit in (*((x, x.extent) for x in others), *((b, c) for c in begun.where)):
        fewer = not sizes.isdisjoint(dims_in(limit)) and not full_domain(others, begun)
        if not fewer and not (isinstance(s, For) and _may_be_idle(s, others[: others.index(s)], [*elements, empty])):
            continue
        within = {y.name for y in blocks_in((s,))}
        used = {p.name for p in program.params}.union(*(touched(y) for y in blocks(program) if y.name not in within))
        if made & used:
            return f"`{format_expr(limit)}` limits its instances then"
    return ""


def _may_be_idle(x: For, outer: Sequence[For], given: Sequence[Expr]) -> bool:
    """Whether a loop may have no iteration in one of the `outer` loops at sizes as they are `given`."""
    low = bounds(x.extent, {})[0]
    if low is not None and low >= 1:
        return False
    try:
        return feasible({y.var: y.extent for y in outer}, [*given, Compare("<", x.extent, ONE)])
    except NotAffine:
        return True


def _are_sums(bindings: Sequence[Expr], loops: Sequence[str], context: Context) -> bool:
    """Theorem: sums of positive multiples of loops are 0 only where all of the loops are, since none is negative.

    Each of `loops` is in one of the sums.
    """
    forms = [linear(e, context) for e in bindings]
    sums = all(not f.constant and all(isinstance(x, str) and c > 0 for x, c in f.terms.items()) for f in forms)
    return sums and all(any(v in f.terms for f in forms) for v in loops)


def _at_least_one(e: Expr, loop: str, ranges: Ranges) -> bool:
    """Whether an expression is 1 or more wherever the loop is, as far as intervals can show."""
    low, high = ranges[loop]
    further = {**ranges, loop: (low, None if high is None else high - 1)}
    return prove(Compare(">=", substitute(e, {loop: add(Var(loop), ONE)}), ONE), further) is True


def _not_at_zero(program: Program, b: Block, it: Iter) -> Exception:
    facts = {"block": b.name, "iterator": it.name, "binding": format_expr(it.binding)}
    return NOT_AT_ZERO(program, b.name, **facts)


def without_first_step(b: Block, around: Sequence[For], counting: Collection[str]) -> Expr | None:
    """The first condition of a block that may leave out the step of an element at which the loops in `counting` are 0, and
    which initialises it, if there is a step; None if there is no such condition.
    """
    first: dict[str, Expr] = dict.fromkeys(counting, ZERO)
    extents, ranges = {x.var: x.extent for x in around}, extent_ranges(around)
    of_elements = affine_only(c for c in b.where if free_vars(c).isdisjoint(counting))
    steps = affine_only(Compare(">=", it.extent, ONE) for it in b.iters if it.kind is IterKind.REDUCE)
    for c in (c for c in b.where if not free_vars(c).isdisjoint(counting)):
        begins = simplify(substitute(c, first), ranges)
        try:
            if begins != TRUE and feasible(extents, [*of_elements, *steps, negate(begins)]):
                return c
        except NotAffine:
            return c
    return None
