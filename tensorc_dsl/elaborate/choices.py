"""Choices between indices: `A[i if c else j]` is `A[i] if c else A[j]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from tensorc_dsl.elaborate.names import parts
from tensorc_dsl.elaborate.problems import TOO_MANY_CASES, Invalid
from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.walk import rewrite

Infer = Callable[[tree.Expr], DType | None]

MOST_CASES = 256
"""The largest number of cases of one expression: each choice doubles them."""
FAR_TOO_MANY = 1_000_000
"""A number of cases that is not told exactly."""


def of_elements(e: tree.IndexExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between elements, if a subscript of `e` has a choice between indices: of several the first."""
    return _lifted(e, (c for p in e.indices for c in _choices(p, infer)), infer)


def of_comparisons(e: tree.CompareExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between conditions, if `e` compares an index that is chosen."""
    types = {infer(p) for p in e.operands}
    if INDEX not in types or types - {None, INDEX}:
        return None
    return _lifted(e, (c for p in e.operands for c in _choices(p, infer)), infer)


def of_arithmetic(e: tree.BinaryExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between numbers, if `e` is computed with an index that is chosen."""
    return _lifted(e, _choices(e, infer), infer)


def of_conversions(e: tree.CallExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between conversions, if `e` converts what is computed with an index that is chosen."""
    operand = e.args[0]
    if infer(operand) != INDEX:
        return None
    return _lifted(e, (c for c in _choices(operand, infer) if c is not operand), infer)


def _lifted(e: tree.Expr, found: Iterator[tree.Expr], infer: Infer) -> tree.Conditional | None:
    """`e` for one value of the choice, and for the other. Raises Invalid if all choices together make too many cases."""
    if (choice := next(found, None)) is None:
        return None
    if (count := _cases(e, infer)) > MOST_CASES:
        said = count if count < FAR_TOO_MANY else f"more than {FAR_TOO_MANY}"
        raise Invalid(TOO_MANY_CASES(e.span, count=said, most=MOST_CASES))
    cond, then, other = _parts(choice)
    return tree.Conditional(cond, _with(e, choice, then), _with(e, choice, other), e.span)


def _choices(e: tree.Expr, infer: Infer) -> Iterator[tree.Expr]:
    """The choices in the index arithmetic of `e`."""
    if infer(e) not in (None, INDEX) and INDEX not in map(infer, operands(e)):
        return
    match e:
        case tree.Conditional() | tree.CallExpr(function=tree.Name(id="select"), args=(_, _, _)):
            yield e
        case tree.BinaryExpr(lhs=a, rhs=b):
            yield from (*_choices(a, infer), *_choices(b, infer))
        case tree.Negate(operand=a):
            yield from _choices(a, infer)
        case tree.CallExpr(function=tree.Name(id="min" | "max" | "abs" | "xor" | "clamp"), args=args):
            for a in args:
                yield from _choices(a, infer)
        case _:
            pass


def operands(e: tree.Expr) -> Iterator[tree.Expr]:
    """The operands of the arithmetic in `e`: that of an integer that is read with an index is arithmetic of indices."""
    match e:
        case tree.BinaryExpr(lhs=a, rhs=b):
            yield from (*operands(a), *operands(b))
        case tree.Negate(operand=a):
            yield from operands(a)
        case tree.CallExpr(function=tree.Name(id="min" | "max"), args=args):
            for a in args:
                yield from operands(a)
        case tree.Conditional(then=a, other=b) | tree.CallExpr(function=tree.Name(id="select"), args=(_, a, b)):
            yield from (*operands(a), *operands(b))
        case _:
            yield e


def _cases(e: tree.Expr, infer: Infer) -> int:
    """How many expressions `e` becomes once no index in it is chosen; where nothing is lifted out, its parts add up."""
    match e:
        case tree.Conditional() | tree.CallExpr(function=tree.Name(id="select"), args=(_, _, _)):
            return sum(_cases(p, infer) for p in _parts(e)) - 1
        case tree.IndexExpr(indices=several) | tree.CompareExpr(operands=several) | tree.CallExpr(args=several):
            return prod(_cases(p, infer) for p in several)
        case tree.BinaryExpr(lhs=a, rhs=b) if infer(e) in (None, INDEX) or INDEX in map(infer, operands(e)):
            return _cases(a, infer) * _cases(b, infer)
        case _:
            return 1 + sum(_cases(p, infer) - 1 for p in parts(e))


def _parts(choice: tree.Expr) -> tuple[tree.Expr, tree.Expr, tree.Expr]:
    match choice:
        case tree.Conditional(cond=cond, then=then, other=other) | tree.CallExpr(args=(cond, then, other)):
            return cond, then, other
        case _:
            raise AssertionError(choice)


def _with(e: tree.Expr, choice: tree.Expr, part: tree.Expr) -> tree.Expr:
    return rewrite(e, lambda node: part if node is choice else None)
