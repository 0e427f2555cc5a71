"""Whether the steps of a reduction run once, and begin it first: loops that are written out may do otherwise.

A block that runs again in a loop which none of its iterators counts adds its terms again, and where its iterators are 0 it
begins again. A step that goes through the iterators in place of the loops would then compute something else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from tensorc_dsl.affine.coverage import Digit, Nest, apart, digit, missing_digits
from tensorc_dsl.affine.form import Context, Ranges
from tensorc_dsl.affine.linear import linear
from tensorc_dsl.affine.safety import below
from tensorc_dsl.affine.sets import NotAffine, affine_only, loop_conditions, mapping, points
from tensorc_dsl.affine.simplify import extent_ranges, simplify
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Var, constant, dims_in, free_vars, substitute
from tensorc_dsl.ir.program import Block, For, IterKind

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
        reach = 0
        terms = [(abs(c), digit(atom, context)) for atom, c in linear(i, context).terms.items()]
        if any(d is None for _, d in terms):
            return False
        for c, d in sorted(((c, d) for c, d in terms if d is not None), key=lambda t: t[0]):
            if c <= reach:
                return False
            reach += c * (d.size - 1)
            used.append(d)
    return all((n := constant(x.extent)) is not None and missing_digits(used, x.var, n) is False for x in loops)
