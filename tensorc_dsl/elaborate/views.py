"""Views: a part of a tensor in other dimensions, `let Q[h in H, l, d in D] = view(X[l, h * D + d])`.

A view has no memory and no stage. An access of it is one of its tensor, with the subscripts of the view in the place of its
indices, so transposes, slices, splits and reshapes of contiguous parts cost nothing. Subscripts are affine: where a view says
that an element is, a schedule can say it as well. To schedules the view of an input is an input of its own
(`ir.input_views`); other views are gone from the program.

Stages may write an output through views of it. Each of its elements is then one element of one view, which is proved: every
subscript is inside, no two elements of views are in one place, and there are as many as the output has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from tensorc_dsl.base.diagnostic import Diagnostic, problem
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate.calls import equal
from tensorc_dsl.elaborate.problems import MISPLACED_VIEW, Invalid
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.input_views import with_inputs
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer, Program, blocks
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.proof.sets.safety import ranges_of
from tensorc_dsl.proof.sets.sets import NotAffine, feasible
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.syntax import tree

VIEW = "view"
"""What a stage that is a view calls."""

ABOUT = "the elements of a tensor in other dimensions, without a copy: `let Q[h in 12, l, d in 64] = view(X[l, 64 * h + d])`"
"""What the word means, for people."""


@problem(
    "E0450",
    "subscript {position} of `{name}` is no sum of multiples of the view's indices",
    "{text}",
    help="name each part by an index of its own: `let V[i in N, j in 4] = view(A[4 * i + j])`",
)
def NOT_LINEAR(*, position: int, name: str, text: str) -> None: ...
@problem(
    "E0450",
    "`{view}` writes an element of `{name}` twice: {reason}",
    help="each element of an output is one element of one of its views",
)
def WRITTEN_TWICE(*, view: str, name: str, reason: str) -> None: ...
@problem(
    "E0450",
    "the views of `{name}` that are written have {count} elements, and it has {size}",
    help="write each of its views, which together are all of it: `let rest[i in …] = view({name}[…])`",
)
def NOT_ALL(*, name: str, count: str, size: str) -> None: ...
@problem(
    "E0450",
    "`{name}` is written by itself and by views of it",
    help="write it through its views, or leave them out",
)
def BOTH(*, name: str) -> None: ...


@problem(
    "E0450",
    "`{name}` is a view, and {what} is written to a tensor of its own",
    help="compute it first, `let t[…] = …`, and write `{name}[…] = t[…]`",
)
def NOT_INTO_A_VIEW(*, name: str, what: str) -> None: ...


def argument_of(s: tree.Stage, computes: Mapping[str, tree.ComputeDef]) -> tree.IndexExpr | None:
    """What a stage that is a view is one of; None for other stages. Raises Invalid if it is none that there can be."""
    match s.value:
        case tree.CallExpr(function=tree.Name(id=name)) as call if name == VIEW and VIEW not in computes:
            pass
        case _:
            return None
    match call:
        case tree.CallExpr(args=(tree.IndexExpr(base=tree.Name()) as of,), kwargs=()):
            if s.is_let and not s.targets and not s.annotations:
                return of
            raise Invalid(MISPLACED_VIEW(s.span))
        case _:
            raise Invalid(MISPLACED_VIEW(call.span))


def require_linear(name: str, places: Sequence[ir.Expr], indices: frozenset[str], spans: Sequence[Span]) -> None:
    """Raise Invalid unless every subscript is a sum of multiples of the indices."""
    for n, (p, span) in enumerate(zip(places, spans, strict=True), 1):
        if not _linear(p, indices):
            raise Invalid(NOT_LINEAR(span, position=n, name=name, text=f"`{span.text}`"))


def _linear(e: ir.Expr, indices: frozenset[str]) -> bool:
    if not ir.free_vars(e) & indices:
        return not ir.loads(e)
    match e:
        case ir.Var():
            return True
        case ir.Binary(op="+" | "-", lhs=a, rhs=b):
            return _linear(a, indices) and _linear(b, indices)
        case ir.Binary(op="*", lhs=a, rhs=b):
            one = not ir.free_vars(a) & indices or not ir.free_vars(b) & indices
            return one and _linear(a, indices) and _linear(b, indices)
        case _:
            return False


def coverage(output: Buffer, views: Mapping[str, Buffer], at: Span) -> list[Diagnostic]:
    """The findings about an output that is written through these views, by name: it has each element of one of them once."""
    for name, v in views.items():
        reason = _overlap(v, v, itself=True)
        if reason:
            return [WRITTEN_TWICE(at, view=name, name=output.name, reason=reason)]
    for (name, v), (other, w) in combinations(views.items(), 2):
        reason = _overlap(v, w, itself=False)
        if reason:
            return [WRITTEN_TWICE(at, view=f"{name}` or `{other}", name=output.name, reason=reason)]
    count: ir.Expr = ir.ZERO
    for v in views.values():
        count = ir.add(count, _product(v.shape))
    size = _product(output.shape)
    if equal(count, size):
        return []
    return [NOT_ALL(at, name=output.name, count=format_expr(simplify(count, {})), size=format_expr(size))]


def _product(sizes: Sequence[ir.Expr]) -> ir.Expr:
    made: ir.Expr = ir.ONE
    for s in sizes:
        made = ir.mul(made, s)
    return made


def _overlap(a: Buffer, b: Buffer, *, itself: bool) -> str:
    """Why two elements of the views may be one element of the tensor, two of one view if `itself`; empty if none are."""
    assert a.view is not None and b.view is not None, "what is asked about is a view"
    one = {n: f"one_{n}" for n in a.view.indices}
    other = {n: f"other_{n}" for n in b.view.indices}
    sizes = {one[n]: e for n, e in zip(a.view.indices, a.shape, strict=True)}
    sizes |= {other[n]: e for n, e in zip(b.view.indices, b.shape, strict=True)}
    first, second = (v.at([ir.Var(names[n]) for n in v.indices]) for v, names in ((a.view, one), (b.view, other)))
    same: list[ir.Expr] = [ir.Compare("==", x, y) for x, y in zip(first, second, strict=True)]
    cases: list[list[ir.Expr]] = [same]
    if itself:
        cases = [[*same, ir.Compare("<", ir.Var(one[n]), ir.Var(other[n]))] for n in a.view.indices]
    try:
        return "two of its elements are in one place" if any(feasible(sizes, x) for x in cases) else ""
    except NotAffine:
        return "that its elements are apart is not proved for all sizes"


def without_views(program: Program, views: Mapping[str, Buffer], inputs: Collection[str]) -> Program:
    """The program with the accesses of views, by name, in the place of which stand those of their tensors; but the views of
    inputs whose elements are apart are buffers of the program (`ir.input_views`).

    Of a window over an input, or of one element that is read everywhere, a buffer would have more elements than the input.
    """
    read = frozenset[str]().union(*map(touched, blocks(program)))
    stay = {p.name: p for p in program.params if p.name in inputs} if read & views.keys() else {}
    for p in program.params:
        stay.pop(p.updates, None)
    kept: dict[str, Buffer] = {}
    for name, b in views.items():
        base = None if b.view is None else stay.get(b.view.base)
        if name in read and base is not None and not _overlap(b, b, itself=True):
            kept[name] = replace(b, constant=base.constant)
    inside = {name: b.view for name, b in views.items() if b.view is not None and name not in kept}
    made = with_inputs(program, inside, lambda b, e: simplify(e, ranges_of({it.name: it.extent for it in b.iters})))
    return replace(made, buffers=(*made.buffers, *kept.values()))
