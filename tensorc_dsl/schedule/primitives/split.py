"""`split`: cut one loop into a nest of loops."""

from __future__ import annotations

from math import prod

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.dtypes import I64, limits
from tensorc_dsl.ir.expr import ONE, Compare, Expr, Var, add, ceildiv, constant, floordiv, floormod, index, mul, sub
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer, For, Program, Stmt, fresh, replace_stmt, used_names
from tensorc_dsl.proof.sets.linear_forms import TRUE, Ranges
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, is_multiple, simplify
from tensorc_dsl.schedule.nests import NO_LOOP, NOT_SERIAL, Part, cut_loop, replace_variables, require_serial, the_loop
from tensorc_dsl.schedule.step import LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0311",
    "{factors} are not factors for a split: {why}",
    help="give one positive integer per new loop; one of them may be `_`",
    at="factors",
)
def BAD_FACTORS(*focus: str, factors: str, why: str) -> None: ...
@refusal(
    "E0312",
    "{factors} cannot make exactly {extent} iterations of `{loop}`",
    help="{exact}`split({loop}, {guarded}, partial=true)` to guard the last tile",
    at="factors",
    label="{why}",
)
def NOT_EXACT(*focus: str, factors: str, extent: str, loop: str, exact: str, guarded: str, why: str) -> None: ...
@refusal(
    "E0313",
    "{factors} make {product} iterations, `{loop}` has {extent}",
    help="use larger factors, or `_` for one of them",
    at="factors",
)
def TOO_FEW(*focus: str, factors: str, product: int, loop: str, extent: str) -> None: ...
@refusal(
    "E0600",
    "{factors} make {product} iterations, and `{loop}` {count}, so there is no whole tile to cut off",
    help="{smaller}`split({loop}, {guarded}, partial=true)` to guard the last tile",
)
def NO_TILE(*focus: str, factors: str, product: int, loop: str, count: str, smaller: str, guarded: str) -> None: ...
@refusal(
    "E0601",
    'the last tile of `{loop}` cannot be "{partial}"',
    help='it is guarded with `partial=true`, or cut off into a loop of its own with `partial="cut"`',
)
def NO_WAY(*focus: str, loop: str, partial: str) -> None: ...


@primitive(NO_LOOP, NOT_SERIAL, BAD_FACTORS, NOT_EXACT, TOO_FEW, NO_TILE, NO_WAY)
def split(
    program: Program, loop: LoopRef, factors: tuple[int | None, ...], *, partial: bool | str = False
) -> Rewrite[tuple[LoopRef, ...]]:
    """A nest of loops, outermost first, runs the iterations of the loop in the same order.

    for i in e: s  ->  for i_0 in e/n: for i_1 in n: s[i := i_0*n + i_1]

    The factors are the extents of the new loops; `_` is the extent that follows from the others. They must make exactly `e`
    iterations. With `partial=true` they may make more, and every block below runs only where `i_0*n + i_1 < e`. With
    `partial="cut"` they may make fewer; the other iterations run in a loop `i_tail` behind the nest, over copies `C_tail` of
    the blocks `C` below. `i_0.after[0]` is that loop, if there is one.

    for i in e: s  ->  for i_0 in e/n: for i_1 in n: s[i := i_0*n + i_1];  for i_tail in e%n: s'[i := e/n*n + i_tail]

    In Halide and TVM: `split`; in Exo: `divide_loop`.  Cases: tests/primitives/split.md
    """
    around, target = the_loop(program, loop)
    require_serial(program, target, "split")
    if isinstance(partial, str) and partial != "cut":
        raise NO_WAY(program, target.var, loop=target.var, partial=partial)
    text = _text(factors)
    if why := _problem(factors):
        raise BAD_FACTORS(program, target.var, factors=text, why=why)
    ranges = extent_ranges(around)
    product = _product(factors)
    is_open = None in factors
    if product + (bounds(target.extent, ranges)[1] or 0) > limits(I64)[1]:
        why = f"{product} iterations of a tile cannot be counted in 64 bits"
        raise BAD_FACTORS(program, target.var, factors=text, why=why)
    exact = is_multiple(target.extent, product, ranges) if is_open else constant(target.extent) == product
    if not exact and not partial:
        raise _not_exact(program, target, factors, ranges)
    tail: tuple[For, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    used = used_names(program)
    names = [fresh(f"{target.var}_{n}", used) for n in range(len(factors))]
    if not exact and partial == "cut":
        part = _last_tile(program, target, factors, ranges, used)
        tail, buffers = cut_loop(program, around, target, (part,), used)
        target, exact = replace(target, extent=part.begin), True
    if not exact and not is_open:
        most = bounds(target.extent, ranges)[1]
        if most is None or most > product:
            extent = format_expr(target.extent)
            raise TOO_FEW(program, target.var, factors=text, product=product, extent=extent, loop=target.var)
    whole = floordiv(target.extent, index(product)) if exact else ceildiv(target.extent, index(product))
    rest = simplify(whole, ranges)
    if not exact and bounds(rest, ranges)[1] == 1:
        rest = ONE  # the guard holds nowhere if there is no iteration
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
    out = replace_stmt(replace(program, buffers=(*program.buffers, *buffers)), target.var, (*stmts, *tail))
    return Rewrite(out, tuple(LoopRef(v) for v in names))


Factors = tuple[int | None, ...]
"""The extents of the new loops; None is the one that follows from the others."""


def _text(factors: Factors) -> str:
    return f"[{', '.join('_' if f is None else str(f) for f in factors)}]"


def _product(factors: Factors) -> int:
    return prod(f for f in factors if f is not None)


def _guarded(target: For, factors: Factors, ranges: Ranges) -> str:
    """Factors that make enough iterations with a guard: those given, the first of them left open if they make too few."""
    most = bounds(target.extent, ranges)[1]
    enough = None in factors or (most is not None and most <= _product(factors))
    return _text(factors if enough else (None, *factors[1:]))


def _not_exact(program: Program, target: For, factors: Factors, ranges: Ranges) -> Exception:
    product, is_open, extent = _product(factors), None in factors, format_expr(target.extent)
    is_number = constant(target.extent) is not None
    why = f"{product} {'does' if is_number else 'may'} not divide {extent}" if is_open else f"{product}, not {extent}"
    exact = f"use factors that {'divide' if is_open else 'multiply to'} {extent}, or " if is_number else "use "
    guarded = _guarded(target, factors, ranges)
    return NOT_EXACT(
        program, target.var, factors=_text(factors), extent=extent, loop=target.var, exact=exact, guarded=guarded,
        why=why,
    )  # fmt: skip


def _last_tile(program: Program, target: For, factors: Factors, ranges: Ranges, used: set[str]) -> Part:
    """The iterations behind the whole tiles. Raises NO_TILE if there may be none of these."""
    product, is_open, number = _product(factors), None in factors, constant(target.extent)
    least = bounds(target.extent, ranges)[0] or 0
    # With `_`, an open extent has a number of tiles that may be 0.
    if least < product and not (is_open and number is None):
        count = f"may have only {least}" if number is None else f"has {least}"
        raise NO_TILE(
            program, target.var, factors=_text(factors), product=product, count=count, loop=target.var,
            smaller="use smaller factors, or " if least else "use ", guarded=_guarded(target, factors, ranges),
        )  # fmt: skip
    size = index(product)
    whole = simplify(mul(floordiv(target.extent, size), size), ranges) if is_open else size
    rest = floormod(target.extent, size) if is_open else sub(target.extent, size)
    return Part(fresh(f"{target.var}_tail", used), whole, simplify(rest, ranges), "_tail")


def _problem(factors: Factors) -> str:
    """The error in the factors themselves; empty if there is none."""
    if not factors:
        return "there are none"
    if factors.count(None) > 1:
        return "more than one is `_`"
    small = [f for f in factors if f is not None and f < 1]
    return f"{small[0]} is not positive" if small else ""
