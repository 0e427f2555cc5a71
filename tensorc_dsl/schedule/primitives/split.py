"""`split`: cut one loop into a nest of loops."""

from __future__ import annotations

from math import prod

from tensorc_dsl.affine.simplify import TRUE, bounds, extent_ranges, is_multiple, simplify
from tensorc_dsl.ir.expr import Compare, Expr, Var, add, ceildiv, constant, floordiv, index, mul
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import For, Program, Stmt, fresh, replace_stmt, used_names
from tensorc_dsl.schedule.places import NO_LOOP, NOT_SERIAL, require_serial, the_loop
from tensorc_dsl.schedule.primitive import LoopRef, Rewrite, primitive
from tensorc_dsl.schedule.refusal import Refusal
from tensorc_dsl.schedule.rewrite import replace_variables

BAD_FACTORS = Refusal(
    "E0311",
    "{factors} are not factors for a split: {why}",
    help="give one positive integer per new loop; one of them may be `_`",
    at="factors",
)
NOT_EXACT = Refusal(
    "E0312",
    "{factors} cannot make exactly {extent} iterations of `{loop}`",
    help="use factors that {divide} {extent}, or `split({loop}, {factors}, partial=true)` to guard the last tile",
    at="factors",
    label="{why}",
)
TOO_FEW = Refusal(
    "E0313",
    "{factors} make {product} iterations, `{loop}` has {extent}",
    help="use larger factors, or `_` for one of them",
    at="factors",
)


@primitive(NO_LOOP, NOT_SERIAL, BAD_FACTORS, NOT_EXACT, TOO_FEW)
def split(
    program: Program, loop: LoopRef, factors: tuple[int | None, ...], *, partial: bool = False
) -> Rewrite[tuple[LoopRef, ...]]:
    """A nest of loops, outermost first, runs the iterations of the loop in the same order.

    for i in e: s  ->  for i_0 in e/n: for i_1 in n: s[i := i_0*n + i_1]

    The factors are the extents of the new loops; `_` stands for what the others leave. They must make exactly `e`
    iterations, unless `partial`: then they may make more, and every block below runs only where `i_0*n + i_1 < e`.
    In Halide and TVM: `split`; in Exo: `divide_loop`.  Cases: tests/primitives/split.md
    """
    around, target = the_loop(program, loop)
    require_serial(program, target, "split")
    text = f"[{', '.join('_' if f is None else str(f) for f in factors)}]"
    if why := _problem(factors):
        raise BAD_FACTORS(program, target.var, factors=text, why=why)
    ranges = extent_ranges(around)
    product = prod(f for f in factors if f is not None)
    is_open = None in factors
    exact = is_multiple(target.extent, product, ranges) if is_open else constant(target.extent) == product
    if not exact and not partial:
        divide, extent = "divide" if is_open else "multiply to", format_expr(target.extent)
        may = "does" if constant(target.extent) is not None else "may"
        why = f"{product} {may} not divide {extent}" if is_open else f"{product}, not {extent}"
        raise NOT_EXACT(program, target.var, factors=text, extent=extent, loop=target.var, divide=divide, why=why)
    if not exact and not is_open:
        most = bounds(target.extent, ranges)[1]
        if most is None or most > product:
            extent = format_expr(target.extent)
            raise TOO_FEW(program, target.var, factors=text, product=product, extent=extent, loop=target.var)
    whole = floordiv(target.extent, index(product)) if exact else ceildiv(target.extent, index(product))
    rest = simplify(whole, ranges)
    used = used_names(program)
    names = [fresh(f"{target.var}_{n}", used) for n in range(len(factors))]
    nest = [For(v, rest if f is None else index(f), ()) for v, f in zip(names, factors, strict=True)]
    position: Expr = Var(names[0])
    for inner in nest[1:]:
        position = add(mul(position, inner.extent), Var(inner.var))
    inside = (*around, *nest)
    guard = simplify(Compare("<", position, target.extent), extent_ranges(inside))
    checks = () if exact or guard == TRUE else (guard,)
    stmts: tuple[Stmt, ...] = replace_variables(target.body, {target.var: position}, inside, checks)
    for n, inner in reversed(list(enumerate(nest))):
        stmts = (For(inner.var, inner.extent, stmts, annotations=() if n else target.annotations),)
    return Rewrite(replace_stmt(program, target.var, stmts), tuple(LoopRef(v) for v in names))


def _problem(factors: tuple[int | None, ...]) -> str:
    """What is wrong with the factors by themselves; empty when nothing is."""
    if not factors:
        return "there are none"
    if factors.count(None) > 1:
        return "more than one is `_`"
    small = [f for f in factors if f is not None and f < 1]
    return f"{small[0]} is not positive" if small else ""
