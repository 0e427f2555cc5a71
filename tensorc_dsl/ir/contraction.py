"""Contraction: which operations are rounded otherwise than one by one, and how an expression looks that says so: a sum of a
product, a function whose result is rounded to 16 bits, and a sum of products of floats of 8 bits.

Whether `x * y + z` is one operation, with one rounding, is decided by the form of the expression that a store has, and by
nothing else: neither by the lanes of a loop nor by what stands around the store. So two stores whose expressions are equal
once they are `contracted` are compiled to the same operations, and a product that is stored first is rounded by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeGuard

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Binary, Call, Cast, Expr, Select, dtype_of, loads, rewrite_expr
from tensorc_dsl.ir.maths import BEFORE_ROUNDING
from tensorc_dsl.ir.program import APPROX, Block, Program, Stmt, Store, blocks, with_body

Form = Literal["fma", "fnma", "fms"]
"""`x * y + z`, `z - x * y` and `x * y - z`, with one rounding."""


@frozen
class Fused:
    """A sum or difference of the product of `x` and `y` and a value `z` that has one rounding."""

    form: Form
    x: Expr
    y: Expr
    z: Expr


def fused(e: Expr) -> Fused | None:
    """The operation that `e` becomes on a machine that has fused ones; None if it is none of f32 or f64. Of two products the
    second one is not rounded."""
    if not _may_fuse(e):
        return None
    if (p := _product(e.rhs)) is not None:
        return Fused("fma" if e.op == "+" else "fnma", p.lhs, p.rhs, e.lhs)
    if (p := _product(e.lhs)) is not None:
        return Fused("fma" if e.op == "+" else "fms", p.lhs, p.rhs, e.rhs)
    return None


def _may_fuse(e: Expr) -> TypeGuard[Binary]:
    return isinstance(e, Binary) and e.op in ("+", "-") and dtype_of(e).name in ("f32", "f64")


def _product(e: Expr) -> Binary | None:
    return e if isinstance(e, Binary) and e.op == "*" else None


def spread(e: Expr) -> Expr:
    """The expression with each sum of a choice between a product and something else as a choice between sums:
    `z + (x * y if c else 0.0)` is `z + x * y if c else z + 0.0`. Then the sum is fused where the condition holds, also where
    a loop is cut at it and only `z + x * y` is left.
    """
    return rewrite_expr(e, _spread_one)


def _spread_one(e: Expr) -> Expr:
    if not _may_fuse(e) or _product(e.rhs) is not None:
        return e
    if _chooses_product(e.rhs):
        cond, arms = e.rhs.cond, [replace(e, rhs=x) for x in (e.rhs.then, e.rhs.other)]
    elif _chooses_product(e.lhs):
        cond, arms = e.lhs.cond, [replace(e, lhs=x) for x in (e.lhs.then, e.lhs.other)]
    else:
        return e
    then, other = map(_spread_one, arms)
    return Select(cond, then, other)


def _chooses_product(e: Expr) -> TypeGuard[Select]:
    return isinstance(e, Select) and any(_product(x) is not None or _chooses_product(x) for x in (e.then, e.other))


def contracted(program: Program) -> Program:
    """The program with sums `spread`, and each fused operation as a call that has its form as name: equal expressions of two
    such programs have equal bits on one machine, if what is compiled is spread, too."""

    approx = allowed_error(program)

    def marked(e: Expr) -> Expr:
        if (f := rounded_function(e)) is not None and isinstance(e, Cast):
            return replace(e, operand=replace(f, function=f"{f.function}.{e.dtype.name}"))
        if (f := rounded_function(e, approx)) is not None:
            x, less, scale = parts_of_exponent(f.args[0])
            form = "approx" + ".less" * (less is not None) + ".scale" * (scale is not None)
            return Call(f"{f.function}.{form}", tuple(y for y in (x, less, scale) if y is not None))
        found = fused(e)
        return e if found is None else Call(found.form, (found.x, found.y, found.z))

    return _of_values(program, lambda e: rewrite_expr(spread(e), marked))


def with_spread_sums(program: Program) -> Program:
    """The program with sums `spread`; the same one if there are none."""
    return _of_values(program, spread) if depends_on_cuts(program) else program


def depends_on_cuts(program: Program) -> bool:
    """Whether it depends on where loops are cut which of the sums are fused."""
    return any(spread(s.value) is not s.value for b in blocks(program) for s in (*b.init, *b.body))


def _of_values(program: Program, new: Callable[[Expr], Expr]) -> Program:
    def of_store(s: Store) -> Store:
        return replace(s, value=new(s.value))

    def of(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return replace(s, body=tuple(map(of_store, s.body)), init=tuple(map(of_store, s.init)))
        return with_body(s, tuple(map(of, s.body)))

    return replace(program, body=tuple(map(of, program.body)))


def allowed_error(program: Program) -> float:
    """The relative error that the task of a program allows functions of f32; 0 if it says nothing."""
    found = dict(program.annotations).get(APPROX, 0.0)
    return float(found) if isinstance(found, (int, float)) else 0.0


def rounded_function(e: Expr, approx: float = 0.0) -> Call | None:
    """The function of f32 whose result an expression rounds to 16 bits at once, if it may have the error of
    `BEFORE_ROUNDING`; or the one that it is, if this is no more than an error that is allowed."""
    if isinstance(e, Cast) and e.dtype.is_float and e.dtype.bits == 16:
        e, approx = e.operand, 1.0
    if not isinstance(e, Call) or BEFORE_ROUNDING.get(e.function, 1.0) > approx or e.function not in BEFORE_ROUNDING:
        return None
    return e if dtype_of(e) == F32 else None


SUM_BITS = 14
"""The significant bits that tensor cores keep of a sum of products of floats of 8 bits: all terms of an instruction and the
old sum are aligned to the largest of them, and what is below these bits is cut off (DeepSeek-V3 Technical Report, 2024,
section 3.3.2; Zhang et al., SageAttention2, 2024, section 3.3)."""

SUM_TERMS = 128
"""The terms of such a sum that schedules let tensor cores add up, before it is added to one of f32."""


def is_product_of_octets(factors: Sequence[Expr]) -> bool:
    """Whether a term of a sum of f32, the product of `factors`, is one of two floats of 8 bits."""
    return len(factors) == 2 and all(
        isinstance(f, Cast) and f.dtype == F32 and dtype_of(f.operand).is_float and dtype_of(f.operand).bits == 8
        for f in factors
    )


def parts_of_exponent(x: Expr) -> tuple[Expr, Expr | None, Expr | None]:
    """An argument `(x - y) * s` as x, y and s, of which y and s may be missing. The factor s has no loads, so that an
    exponential may multiply it with its own."""
    scale: Expr | None = None
    if isinstance(x, Binary) and x.op == "*" and loads(x) and not (loads(x.lhs) and loads(x.rhs)):
        x, scale = (x.lhs, x.rhs) if loads(x.lhs) else (x.rhs, x.lhs)
    if isinstance(x, Binary) and x.op == "-" and loads(x.lhs):
        return x.lhs, x.rhs, scale
    return x, None, scale
