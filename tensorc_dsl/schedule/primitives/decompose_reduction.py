"""`decompose_reduction`: give the initialisation of a reduction a block and loops of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce as fold

from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Var, constant, free_vars, substitute
from tensorc_dsl.ir.program import Block, For, IterKind, Program, Stmt, fresh, replace_stmt, used_names
from tensorc_dsl.proof.sets.dependence import overtaken
from tensorc_dsl.proof.sets.reductions import may_be_empty, where_begun
from tensorc_dsl.proof.sets.regions import inner_ranges, instances_within, required_region
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify, simplify_where
from tensorc_dsl.schedule.accumulation import MIXED_LOOP, NOT_AT_ZERO, reduction_loops, spatial, steps_of
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, nest_of, nest_over, the_block, the_loop
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0335",
    "`{block}` has no initialisation to take out",
    help="decompose a block with an `init`, once",
    at="block",
)
def NO_INIT(*focus: str, block: str) -> None: ...
@refusal(
    "E0336",
    "`{loop}` is not a loop around `{block}`",
    help="the loops around it are: {loops}",
    at="loop",
)
def NOT_AROUND(*focus: str, loop: str, block: str, loops: str) -> None: ...
@refusal(
    "E0337",
    "below `{loop}`, `{block}` would be initialised again in each iteration of the reduction loop `{reduction}`",
    help="take `{reduction}`, or a loop around it",
    at="loop",
    label="inside `{reduction}`",
)
def BELOW_REDUCTION(*focus: str, loop: str, block: str, reduction: str) -> None: ...
@refusal(
    "E0343",
    "the initialisation cannot move before `{loop}`: {dependence}",
    help="take a loop that holds no other use of what `{block}` writes",
    at="loop",
)
def OVERTAKES(*focus: str, loop: str, dependence: object, block: str) -> None: ...


@primitive(NO_BLOCK, NO_LOOP, NO_INIT, NOT_AROUND, BELOW_REDUCTION, MIXED_LOOP, NOT_AT_ZERO, OVERTAKES)
def decompose_reduction(program: Program, block: BlockRef, loop: LoopRef) -> Rewrite[BlockRef]:
    """A nest just before `loop` initialises the elements that the block accumulates into; the block has no `init`.

    for i: for k: block C { init { c } u }  ->  for i: block C_init { c }
                                               for i: for k: block C { u }

    `loop` is the outermost reduction loop of the block or one around it. The new loops are copies of the spatial loops from
    `loop` to the block, with the guards that hold where the reduction begins. If a loop counts both the reduction and
    elements, they are loops over these.
    In TVM: `decompose_reduction`.  Cases: tests/primitives/decompose_reduction.md
    """
    around, target = the_block(program, block)
    the_loop(program, loop)
    if not target.init:
        raise NO_INIT(program, target.name, block=target.name)
    names = [x.var for x in around]
    if loop.name not in names:
        raise NOT_AROUND(
            program, loop.name, target.name, loop=loop.name, block=target.name, loops=", ".join(names) or "none"
        )
    at = names.index(loop.name)
    outer, inner = around[:at], around[at:]
    for x in outer:
        if x.var in steps_of(target):
            raise BELOW_REDUCTION(program, x.var, target.name, loop=loop.name, block=target.name, reduction=x.var)
    before = _all_elements(program, target, outer, inner) or _first_steps(program, target, outer, inner)
    dependence = overtaken(outer, (inner[0],), target.name)
    if dependence is not None:
        focus = dict.fromkeys((loop.name, dependence.first, target.name))
        raise OVERTAKES(program, *focus, loop=loop.name, dependence=dependence, block=target.name)
    without = replace_stmt(program, target.name, (replace(target, init=()),))
    stmts: tuple[Stmt, ...] = (before, the_loop(without, loop)[1])
    return Rewrite(replace_stmt(without, loop.name, stmts), BlockRef(nest_of(before, outer)[1].name))


def _first_steps(program: Program, target: Block, outer: tuple[For, ...], inner: tuple[For, ...]) -> Stmt:
    """The initialisation in copies of the loops that count elements, where those that count the reduction begin."""
    counting = reduction_loops(program, target, (*outer, *inner))
    used = used_names(program)
    first: dict[str, Expr] = dict.fromkeys(counting, ZERO)
    where = where_begun(target)
    if not may_be_empty(target):
        where += tuple(Compare(">", x.extent, ZERO) for x in inner if x.var in counting)
    kept = [x for x in inner if x.var not in counting and constant(x.extent) != 1]
    first.update((x.var, ZERO) for x in inner if constant(x.extent) == 1)
    renamed: dict[str, Expr] = {**first, **{x.var: Var(fresh(f"{x.var}_init", used)) for x in kept}}
    nest = [For(_name(renamed[x.var]), substitute(x.extent, renamed), (), x.kind, axis=x.axis) for x in kept]
    ranges = extent_ranges((*outer, *nest))
    init = Block(
        fresh(f"{target.name}_init", used),
        tuple(replace(it, binding=simplify(substitute(it.binding, renamed), ranges)) for it in spatial(target)),
        target.init,
        where=simplify_where((substitute(c, renamed) for c in where), ranges),
    )
    return fold(lambda s, x: replace(x, body=(s,)), reversed(nest), init)


def _all_elements(program: Program, target: Block, outer: tuple[For, ...], inner: tuple[For, ...]) -> Stmt | None:
    """The initialisation in loops over the elements, where a loop of `inner` counts both these and the steps of the
    reduction; None where none does, or the elements whose first step runs in an iteration of the loops `outer` are no box.
    """
    elements = spatial(target)
    if not any(steps_of(target) & free_vars(it.binding) for it in elements):
        return None
    outside = {x.var for x in outer}
    bindings, extents = tuple(it.binding for it in elements), tuple(it.extent for it in elements)
    box = required_region([(bindings, inner_ranges((*outer, *inner), outside))], extent_ranges(outer), extents)
    used = used_names(program)
    init = Block(fresh(f"{target.name}_init", used), elements, target.init)
    made = nest_over(init, box, outer, used)
    begins = tuple(Compare("==", it.binding, ZERO) for it in target.iters if it.kind is IterKind.REDUCE)
    begun = (*outer, *inner), replace(init, where=(*target.where, *begins))
    return made if instances_within(nest_of(made, outer), begun, [x.var for x in outer]) else None


def _name(v: Expr) -> str:
    assert isinstance(v, Var)
    return v.name
