"""Choices between indices: `A[i if c else j]` is `A[i] if c else A[j]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.walk import rewrite

Infer = Callable[[tree.Expr], DType | None]


def of_elements(e: tree.IndexExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between elements, if a subscript of `e` has a choice between indices: of several the first."""
    return _lifted(e, (c for p in e.indices for c in _choices(p, infer)))


def of_comparisons(e: tree.CompareExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between conditions, if `e` compares an index that is chosen."""
    types = {infer(p) for p in e.operands}
    if INDEX not in types or types - {None, INDEX}:
        return None
    return _lifted(e, (c for p in e.operands for c in _choices(p, infer)))


def of_arithmetic(e: tree.BinaryExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between numbers, if `e` is computed with an index that is chosen."""
    return _lifted(e, _choices(e, infer))


def of_conversions(e: tree.CallExpr, infer: Infer) -> tree.Conditional | None:
    """A choice between conversions, if `e` converts what is computed with an index that is chosen."""
    operand = e.args[0]
    if infer(operand) != INDEX:
        return None
    return _lifted(e, (c for c in _choices(operand, infer) if c is not operand))


def _lifted(e: tree.Expr, found: Iterator[tree.Expr]) -> tree.Conditional | None:
    if (choice := next(found, None)) is None:
        return None
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


def _parts(choice: tree.Expr) -> tuple[tree.Expr, tree.Expr, tree.Expr]:
    match choice:
        case tree.Conditional(cond=cond, then=then, other=other) | tree.CallExpr(args=(cond, then, other)):
            return cond, then, other
        case _:
            raise AssertionError(choice)


def _with(e: tree.Expr, choice: tree.Expr, part: tree.Expr) -> tree.Expr:
    return rewrite(e, lambda node: part if node is choice else None)
