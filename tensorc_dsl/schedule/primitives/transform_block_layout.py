"""`transform_block_layout`: replace the iterators of a block, and its loops."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.expr import ZERO, Expr, Var, constant, free_vars, substitute
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import (
    Block,
    For,
    Iter,
    IterKind,
    LoopKind,
    Program,
    Store,
    find_block,
    map_store,
    replace_stmt,
    used_names,
)
from tensorc_dsl.proof.sets.dependence import carried
from tensorc_dsl.proof.sets.digits import inverted, size_of
from tensorc_dsl.proof.sets.simplify import iter_ranges, simplify, simplify_where
from tensorc_dsl.schedule.accumulation import without_first_step
from tensorc_dsl.schedule.motion import top_statement
from tensorc_dsl.schedule.nests import NO_BLOCK, computes_the_same, guarded, nest_over, only_block, stmt_name, the_block
from tensorc_dsl.schedule.step import BlockRef, IndexMap, Rewrite, primitive, refusal


@refusal(
    "E0636",
    "`{layout}` gives no iterators for `{block}`: {reason}",
    help="map its {rank} iterators one to one, as `(i, j) -> (i / 4, j, i % 4)` does for two",
    at="layout",
)
def NO_ITERATORS(*focus: str, layout: str, block: str, reason: str, rank: int) -> None: ...
@refusal("E0637", "cannot give `{block}` other loops: {reason}", at="block")
def NOT_PLAIN(*focus: str, block: str, reason: str, repair: str) -> None: ...


@primitive(NO_BLOCK, NO_ITERATORS, NOT_PLAIN)
def transform_block_layout(program: Program, block: BlockRef, layout: IndexMap) -> Rewrite[None]:
    """The instance with iterators `v…` becomes the one with iterators `layout(v…)`, in a nest of loops over those.

    for i in 8, k: block C(i, k) { … }   ->   for ax0 in 2, ax1 in 4, k: block C(ax0*4 + ax1, k) { … }

    A result consists of spatial iterators or of those of a reduction, not of both. A condition excludes combinations that no
    instance has. If instances depend on each other, the result is proved to compute the same.
    In TVM: `transform_block_layout`.  Cases: tests/primitives/transform_block_layout.md
    """
    around, b = the_block(program, block)
    _require_plain(program, around, b)
    shape = _shape(program, b, layout)
    iters = tuple(Iter(f"v{n}", kind, size, ZERO) for n, (kind, size) in enumerate(shape))
    at = tuple(Var(it.name) for it in iters)
    back = inverted(layout.params, layout.results, [it.extent for it in b.iters], at)
    if back is None:
        raise _no_iterators(program, b, layout, "its results do not tell all of them, one after another")
    ranges = iter_ranges(iters)
    values = {it.name: simplify(e, ranges) for it, e in zip(b.iters, back.values, strict=True)}

    def placed(s: Store) -> Store:
        return map_store(s, lambda e: simplify(substitute(e, values), ranges))

    new = replace(b, iters=iters, init=tuple(map(placed, b.init)), body=tuple(map(placed, b.body)))
    top = stmt_name(top_statement(around, b))
    nest = nest_over(new, [(ZERO, it.extent) for it in iters], (), used_names(replace_stmt(program, top, ())))
    bound: dict[str, Expr] = {it.name: x.binding for it, x in zip(iters, only_block(nest).iters, strict=True)}
    inside = simplify_where(back.inside, ranges)
    result = replace_stmt(program, top, (guarded(nest, tuple(substitute(c, bound) for c in inside)),))
    _require_begun(program, result, b)
    _require_order(program, around, b, result)
    return Rewrite(result, None)


def _no_iterators(program: Program, b: Block, layout: IndexMap, reason: str) -> Exception:
    text = f"({', '.join(layout.params)}) -> ({', '.join(map(format_expr, layout.results))})"
    return NO_ITERATORS(program, b.name, block=b.name, layout=text, rank=len(b.iters), reason=reason)


def _require_plain(program: Program, around: tuple[For, ...], b: Block) -> None:
    """Refuse unless the block stands alone in one loop per iterator."""

    def refuse(reason: str) -> Exception:
        repair = "do it before the steps on its loops, or use those: `split`, `fuse` and `reorder`"
        return NOT_PLAIN(program, b.name, block=b.name, reason=reason, repair=repair)

    if any(x.kind is not LoopKind.SERIAL or x.annotations or len(x.body) != 1 for x in around):
        raise refuse("its loops hold other blocks, or are not plain `for` loops any more")
    free = {x.var: x.extent for x in around}
    for it in b.iters:
        own = it.binding.name if isinstance(it.binding, Var) else ""
        if free.pop(own, None) != it.extent and not (it.binding == ZERO and constant(it.extent) == 1):
            raise refuse(f"`{it.name}` is not a loop")
    if b.where or any(constant(n) != 1 for n in free.values()):
        raise refuse("it does not run once for each combination of its iterators")


def _require_begun(program: Program, result: Program, b: Block) -> None:
    """Refuse if a condition leaves out the instance at which the reduction of an element begins, and which initialises it."""
    around, new = find_block(result, b.name)
    counting = frozenset[str]().union(*(free_vars(it.binding) for it in new.iters if it.kind is IterKind.REDUCE))
    if b.init and (c := without_first_step(new, around, counting)) is not None:
        reason = f"its reduction would begin where `{format_expr(c)}` leaves it out"
        repair = "let the layout map the first step of the reduction to 0"
        raise NOT_PLAIN(program, b.name, block=b.name, reason=reason, repair=repair)


def _require_order(program: Program, around: tuple[For, ...], b: Block, result: Program) -> None:
    """Refuse unless the instances may run in any order, or are proved to compute the same in their new one."""
    found = [(x, d) for x in around if (d := carried(program, x.var)) is not None and not d.reduction]
    if found and not computes_the_same(program, result):
        loop, dependence = found[0]
        repair = "keep the order of its instances, as `split`, `fuse`, `reorder` and `skew` do where it counts"
        raise NOT_PLAIN(program, b.name, loop.var, block=b.name, reason=str(dependence), repair=repair)


def _shape(program: Program, b: Block, layout: IndexMap) -> list[tuple[IterKind, Expr]]:
    """The kind and the extent of each new iterator."""
    params = layout.params
    if len(params) != len(b.iters) or len(set(params)) != len(params):
        raise _no_iterators(
            program, b, layout, f"it takes ({', '.join(params)}), the block has {len(b.iters)} iterators"
        )
    kinds = {p: it.kind for p, it in zip(params, b.iters, strict=True)}
    out: list[tuple[IterKind, Expr]] = []
    for result in layout.results:
        if unknown := sorted(free_vars(result) - set(params)):
            raise _no_iterators(program, b, layout, f"`{unknown[0]}` is not a parameter of it")
        mixed = {kinds[v] for v in free_vars(result)}
        size = size_of(result, params, [it.extent for it in b.iters])
        if len(mixed) != 1 or size is None:
            raise _no_iterators(
                program, b, layout, f"`{format_expr(result)}` does not count iterators of one kind from 0"
            )
        out.append((mixed.pop(), size))
    return out
