"""Decides which instances of a block run: all of them, each once, or no more than before; and whether steps of a reduction
run once, in order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from tensorc_dsl.ir.expr import (
    ZERO,
    Compare,
    Const,
    Expr,
    Var,
    add,
    constant,
    dims_in,
    free_vars,
    index,
    substitute,
)
from tensorc_dsl.ir.program import Block, For, Iter, IterKind
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.digits import Digit, digit, missing_digits, numeral, overlap
from tensorc_dsl.proof.sets.linear_forms import Context, Ranges, linear, negate
from tensorc_dsl.proof.sets.safety import below
from tensorc_dsl.proof.sets.sets import (
    NotAffine,
    affine_only,
    facts_of,
    feasible,
    instance_map,
    loop_conditions,
    mapping,
    points,
)
from tensorc_dsl.proof.sets.simplify import extent_ranges, simplify, simplify_where

# Decides which instances of a block run: all of them, each once, or no more than before a step.
#
# The fast answers are theorems about mixed radix numbers (`proof.sets.digits`), whose digits are independent of each other. A
# sum `c0*d0 + c1*d1 + …` with increasing factors takes every value of an interval if no factor leaves a gap, and each value
# once if each factor is exactly the number of values of the terms below it. If no theorem applies, isl decides.


def bound_conditions(block: Block, loops: Sequence[For]) -> tuple[Expr, ...]:
    """The conditions that keep the block's iterators within their extents, without those that always hold."""
    conditions = [
        c for it in block.iters for c in (Compare("<=", ZERO, it.binding), Compare("<", it.binding, it.extent))
    ]
    return simplify_where(conditions, extent_ranges(loops))


def full_domain(loops: Sequence[For], block: Block) -> bool:
    """Whether the block runs for every combination of values of its iterators."""
    loops, block = _narrowed(loops, block)
    quick = _full_quickly(loops, block)
    if quick is not None:
        return quick
    if _too_few(loops, block):
        return False
    names = [it.name for it in block.iters]
    limits = [
        c for it in block.iters for c in (Compare("<=", ZERO, Var(it.name)), Compare("<", Var(it.name), it.extent))
    ]
    try:
        known = facts_of((*(loop.extent for loop in loops), *block.where, *(it.binding for it in block.iters)))
        return points(names, (*limits, *known)).is_subset(instance_map(loops, block).range())
    except NotAffine:
        return False


def _narrowed(loops: Sequence[For], block: Block) -> tuple[Sequence[For], Block]:
    """The same instances: a condition `loop < number` of the block is the extent of the loop.

    Digits of the shorter loop are independent where those of the longer one are cut by the condition.
    """
    extents = {loop.var: constant(loop.extent) for loop in loops}
    where: list[Expr] = []
    for c in block.where:
        match c:
            case Compare(op="<", lhs=Var(name), rhs=Const(value=int(limit))) if limit > 0:
                extent = extents.get(name)
                if extent is not None:
                    extents[name] = min(extent, limit)
                    continue
            case _:
                pass
        where.append(c)
    if len(where) == len(block.where):
        return loops, block
    shorter = [loop if (n := extents[loop.var]) is None else replace(loop, extent=index(n)) for loop in loops]
    return shorter, replace(block, where=tuple(where))


def _full_quickly(loops: Sequence[For], block: Block) -> bool | None:
    if all(any(it.binding == Var(loop.var) and it.extent == loop.extent for loop in loops) for it in block.iters):
        if not block.where and len({it.binding for it in block.iters}) == len(block.iters):
            return True
    if any(constant(loop.extent) is None for loop in loops):
        return None
    ranges = extent_ranges(loops)
    context = Context(ranges)
    used: list[Digit] = []
    for it in block.iters:
        extent, parts = constant(it.extent), numeral(it.binding, context)
        if extent is None or parts is None:
            return None
        first, terms = parts
        reach = 1
        for factor, d in terms:
            if not 0 < factor <= reach:
                return None
            reach += factor * (d.size - 1)
            used.append(d)
        if first > 0 or first + reach < extent:
            return None
    if overlap(used):
        return None
    if block.where and not set(simplify_where(block.where, ranges)) <= set(bound_conditions(block, loops)):
        return None
    return True


def _too_few(loops: Sequence[For], block: Block) -> bool:
    """Whether the loops have no more iterations than the iterators have values, and a condition leaves some of these out."""
    iterations = [constant(loop.extent) for loop in loops]
    values = [constant(it.extent) for it in block.iters]
    if None in iterations or None in values or prod(n or 0 for n in iterations) > prod(n or 0 for n in values):
        return False
    extents = {loop.var: loop.extent for loop in loops}
    try:
        return any(feasible(extents, [negate(c)]) for c in block.where)
    except NotAffine:
        return False


Boxes = Sequence[tuple[Expr, Expr, Expr]]
"""For each dimension: lower bound over loop variables, extent of the box, extent of the space to be covered."""


def repeating_loop(loops: Sequence[For], boxes: Boxes) -> str | None:
    """A loop whose iterations repeat the same box, since no lower bound mentions it; None if there is none."""
    mentioned: set[str] = set()
    context = Context(extent_ranges(loops))
    for lower, _, _ in boxes:
        for atom in linear(lower, context).terms:
            d = digit(atom, context)
            mentioned |= {d.var} if d is not None else {loop.var for loop in loops}
    return next((loop.var for loop in loops if loop.var not in mentioned and not is_single(loop.var, context)), None)


def is_single(var: str, context: Context) -> bool:
    """Whether a loop has one iteration at most, as a tile that is as long as an open dimension can be has."""
    high = context.atom_range(var)[1]
    return high is not None and high <= 0


def axis(d: int) -> Var:
    """The variable that conditions use for the coordinate of a point in dimension `d`."""
    return Var(f"box{d}")


def covers_once(loops: Sequence[For], boxes: Boxes, cuts: Sequence[Expr] = ()) -> bool:
    """Whether the boxes of all iterations of `loops` cover every point exactly once.

    Points have coordinates from 0 to the extent to cover in each dimension. Parts of a box outside do not count, nor points
    at which one of `cuts` does not hold; these are conditions over the loops and `axis(0)`, `axis(1)`, ….
    """
    return (not cuts and _tiles(loops, boxes)) or _partition_exactly(loops, boxes, cuts)


def _tiles(loops: Sequence[For], boxes: Boxes) -> bool:
    """The theorem: in each dimension a factor equals the number of values below it; each loop's digits occur once."""
    context = Context(extent_ranges(loops))
    used: list[Digit] = []
    for lower, extent, size in boxes:
        if lower == ZERO and extent == size:
            continue
        parts, width, total = numeral(lower, context), constant(extent), constant(size)
        if parts is None or width is None or total is None:
            return False
        first, terms = parts
        for factor, d in terms:
            if factor != width:
                return False
            width *= d.size
            used.append(d)
        if first > 0 or first + width < total:
            return False
    for loop in loops:
        extent = constant(loop.extent)
        if extent is None or (extent > 1 and missing_digits(used, loop.var, extent) is not False):
            return False
    return True


def _partition_exactly(loops: Sequence[For], boxes: Boxes, cuts: Sequence[Expr]) -> bool:
    names = [loop.var for loop in loops]
    axes = [axis(d).name for d in range(len(boxes))]
    inside = list(cuts)
    limits: list[Expr] = []
    for d, (lower, extent, size) in enumerate(boxes):
        inside += [Compare("<=", lower, axis(d)), Compare("<", axis(d), add(lower, extent))]
        limits += [Compare("<=", ZERO, axis(d)), Compare("<", axis(d), size)]
    try:
        found = mapping([*axes, *names], [Var(n) for n in names], (*loop_conditions(loops), *inside, *limits))
        every = points(axes, (*limits, *facts_of((*loop_conditions(loops), *inside))))
    except NotAffine:
        return False
    found = found.project_out(isl.dim_type.in_, len(axes), len(names))
    return found.is_single_valued() and every.is_subset(found.domain())


Nest = tuple[Sequence[For], Block]
"""A block and the loops around it, outermost first."""


def apart(accesses: Sequence[tuple[Nest, Sequence[Expr]]], outer: Sequence[str], of: Sequence[str]) -> bool:
    """Whether no element is accessed in two iterations of the loops `of`, within one iteration of the loops `outer`.

    Each access has its indices over the loops around its block: `outer`, `of` and loops below them.
    """
    together: isl.Map | None = None
    for (loops, block), indices in accesses:
        names = [loop.var for loop in loops]
        conditions = (*loop_conditions(loops), *block.where)
        try:
            elements = mapping(names, [*map(Var, outer), *indices], conditions)
            found = elements.reverse().apply_range(mapping(names, list(map(Var, of)), conditions))
        except NotAffine:
            return False
        together = found if together is None else together.union(found)
    return together is None or together.is_single_valued()


def not_affine(loops: Sequence[For], block: Block) -> Iter | None:
    """The first iterator whose binding is not affine in the loops, so that its values are unknown; None if all are."""
    for it in block.iters:
        try:
            mapping([loop.var for loop in loops], [it.binding])
        except NotAffine:
            return it
    return None


def instances_within(new: Nest, old: Nest, shared: Sequence[str] = ()) -> bool:
    """Whether each instance that runs in `new` also runs in `old`, in the same iteration of the `shared` loops."""
    if not shared and full_domain(*old):
        return True
    (a, b) = (_instances(nest, shared) for nest in (new, old))
    return _range_within(a, b)


_Map = tuple[tuple[str, ...], tuple[Expr, ...], tuple[Expr, ...]]
"""Names, results and conditions: the arguments of `sets.mapping`."""


def _instances(nest: Nest, shared: Sequence[str]) -> _Map:
    loops, block = nest
    results = (*map(Var, shared), *(it.binding for it in block.iters))
    return tuple(loop.var for loop in loops), results, (*loop_conditions(loops), *block.where)


@lru_cache(maxsize=4096)
def _range_within(a: _Map, b: _Map) -> bool:
    """Whether the range of the first map is contained in the range of the second."""
    names, results, conditions = a
    try:
        known = facts_of((*b[1], *b[2]))
        return mapping(names, results, (*conditions, *known)).range().is_subset(mapping(*b).range())
    except NotAffine:
        return False


# Whether the steps of a reduction run once, and begin it first: loops that are written out may do otherwise.
#
# A block that runs again in a loop which none of its iterators counts adds its terms again, and where its iterators are 0
# it begins again. A step that goes through the iterators in place of the loops would then compute something else.


OUT_OF_ORDER = "its loops run a step of its reduction again, or begin with another one than that at 0"
"""Why a block is refused that does not run in order."""


def may_be_empty(b: Block) -> bool:
    """Whether a reduction has no steps at some sizes. Its `init` runs at these too."""
    return any(it.kind is IterKind.REDUCE and _may_be_zero(it.extent) for it in b.iters)


@lru_cache(maxsize=4096)
def _may_be_zero(extent: Expr) -> bool:
    return below(extent, 1, tuple(sorted(dims_in(extent), key=lambda d: d.name))) is not None


def begun_without_steps(b: Block) -> frozenset[str]:
    """The loops that count a reduction which may be empty: its `init` runs where these are 0, whether or not they have this
    iteration, and whatever conditions on them are (`schedule.accumulation.refuse_unbegun`). None for other blocks.
    """
    steps = (it.binding for it in b.iters if it.kind is IterKind.REDUCE)
    return frozenset[str]().union(*map(free_vars, steps)) if may_be_empty(b) else frozenset()


def where_begun(b: Block) -> tuple[Expr, ...]:
    """The conditions under which `init` runs where the reduction iterators are 0."""
    begun = begun_without_steps(b)
    return tuple(c for c in b.where if free_vars(c).isdisjoint(begun))


def begins_once(path: Sequence[For], b: Block, counting: Collection[str], ranges: Ranges) -> bool:
    """Whether no element is initialised, or else updated, in two iterations of the loops of `path` that do not run the
    reduction, as those in `counting` do.
    """
    others = [x for x in path if x.var not in counting and constant(x.extent) != 1]
    values = {it.name: it.binding for it in b.iters}
    places = [[simplify(substitute(i, values), ranges) for i in s.indices] for s in b.init or b.body]
    if not others or all(_told(indices, others, ranges) for indices in places):
        return True
    outer = [x.var for x in path if x.var in counting]
    return all(apart([((path, b), indices)], outer, [x.var for x in others]) for indices in places)


def runs_in_order(nest: Nest) -> bool:
    """Whether each instance of a reduction that initialises runs once, and that which initialises an element before all
    others of the element: then loops over its iterators compute the same.

    Loops outside of all that count or limit its steps may compute elements again: each of their iterations begins anew.
    """
    around, b = nest
    steps = [it.binding for it in b.iters if it.kind is IterKind.REDUCE]
    counting = frozenset[str]().union(*map(free_vars, steps))
    limiting = (free_vars(c) for c in b.where if free_vars(c) & counting)
    top = next((n for n, x in enumerate(around) if x.var in counting.union(*limiting)), len(around))
    ranges = extent_ranges(around)
    loops = [x for x in around[top:] if constant(x.extent) != 1]
    bindings = [simplify(it.binding, ranges) for it in b.iters]
    if not _told(bindings, loops, ranges):
        outer = [x.var for x in around[:top]]
        if not apart([(nest, bindings)], outer, [x.var for x in loops]):
            return False
    return _begins_first(nest, steps, ranges)


def _begins_first(nest: Nest, steps: Sequence[Expr], ranges: Ranges) -> bool:
    """Whether the first instance of each element is that at which all `steps` are 0."""
    around, b = nest
    counting = frozenset[str]().union(*map(free_vars, steps))
    spatial = [it.binding for it in b.iters if it.kind is not IterKind.REDUCE]
    context = Context(ranges)
    forms = [linear(e, context) for e in steps]
    if (
        not b.where
        and counting.isdisjoint(frozenset[str]().union(*map(free_vars, spatial)))
        and all(not f.constant and all(isinstance(x, str) and c > 0 for x, c in f.terms.items()) for f in forms)
    ):
        return True  # sums of positive multiples of loops are 0 where these are, which is first
    names = [x.var for x in around]
    conditions = affine_only((*loop_conditions(around), *b.where))
    values = {it.name: it.binding for it in b.iters}
    at = [f"v{n}" for n in range(len(steps))]
    zeros = points(at, [Compare("==", Var(v), ZERO) for v in at])
    try:
        for s in b.init:
            first = mapping(names, [substitute(i, values) for i in s.indices], conditions).reverse().lexmin().range()
            if not first.apply(mapping(names, steps)).is_subset(zeros):
                return False
    except NotAffine:
        return False
    return True


def _told(indices: Sequence[Expr], loops: Sequence[For], ranges: Ranges) -> bool:
    """Whether the subscripts differ in any two iterations of the loops, by a theorem.

    Sums of multiples of digits tell these digits if each factor exceeds what the smaller terms reach, and a loop if none of
    its digits is missing.
    """
    context = Context(ranges)
    used: list[Digit] = []
    for i in indices:
        parts = numeral(i, context)
        if parts is None:
            return False
        reach = 0
        for factor, d in parts[1]:
            if abs(factor) <= reach:
                return False
            reach += abs(factor) * (d.size - 1)
            used.append(d)
    return all((n := constant(x.extent)) is not None and missing_digits(used, x.var, n) is False for x in loops)
