"""Views of inputs: buffers of a program that have no memory, and whose elements are those of an input in other dimensions.

Steps and queries take them for inputs of their own: a product of two parts of one input reads two buffers, each of which has
a region, a copy and a layout. Everybody else runs, checks or translates the program with the input in their place
(`resolved`): it is the same program.

Three kinds of views are replaced by accesses: those of outputs and stages, since two names for an element would hide a
dependence; those of an input that an output updates; and those with an element in several places, which rules would copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.annotations import PREFETCH
from tensorc_dsl.ir.expr import Binary, Expr, Load, add, mul, rewrite_expr, sub
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Annotation, Block, Buffer, For, Program, Stmt, Store, View, blocks
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse


@by_identity(32)
def resolved(program: Program) -> Program:
    """The program in which accesses of views are those of their inputs."""
    views = {b.name: b.view for b in program.buffers if b.view is not None}
    if not views:
        return program
    made = with_inputs(program, views)
    return replace(made, buffers=tuple(b for b in made.buffers if b.view is None))


def with_inputs(
    program: Program, views: Mapping[str, View], folded: Callable[[Block, Expr], Expr] | None = None
) -> Program:
    """The program with the accesses of some views, which may be those of outputs too, in the place of which stand those of
    their bases; subscripts are what `folded` makes of them in a block."""

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return _block(s, views, folded or (lambda _, e: rewrite_expr(e, _fold)))
        return replace(s, body=tuple(map(stmt, s.body)), annotations=_fetched(s, views))

    return replace(program, body=tuple(map(stmt, program.body)))


def _fetched(loop: For, views: Mapping[str, View]) -> tuple[Annotation, ...]:
    """The annotations of a loop that fetches its inputs ahead in the place of views."""

    def renamed(key: str) -> str:
        v = views.get(key.removeprefix(PREFETCH)) if key.startswith(PREFETCH) else None
        return key if v is None else PREFETCH + v.base

    return tuple(sorted({renamed(k): v for k, v in loop.annotations}.items(), key=lambda a: a[0]))


def _block(b: Block, views: Mapping[str, View], folded: Callable[[Block, Expr], Expr]) -> Block:
    def places(name: str, at: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        v = views.get(name)
        return (name, at) if v is None else (v.base, tuple(folded(b, p) for p in v.at(at)))

    def load(e: Expr) -> Expr:
        return Load(*places(e.buffer, e.indices), e.dtype) if isinstance(e, Load) and e.buffer in views else e

    def store(s: Store) -> Store:
        name, at = places(s.buffer, tuple(rewrite_expr(i, load) for i in s.indices))
        return replace(s, buffer=name, indices=at, value=rewrite_expr(s.value, load))

    return replace(b, body=tuple(map(store, b.body)), init=tuple(map(store, b.init)))


def _fold(e: Expr) -> Expr:
    match e:
        case Binary(op="+", lhs=a, rhs=b):
            return add(a, b)
        case Binary(op="-", lhs=a, rhs=b):
            return sub(a, b)
        case Binary(op="*", lhs=a, rhs=b):
            return mul(a, b)
        case _:
            return e


def view_of(text: str, index: Callable[[tuple[str, ...], tree.Expr], Expr]) -> View | None:
    """The view of the text that `ir.print` writes, whose subscripts `index` reads; None if it is none. Raises
    TschedError where `index` does."""
    if re.fullmatch(r"\[[^=\[\]]*\] = \w+\[.*\]", text) is None:
        return None
    try:
        (item,) = parse(Source("view", f"compute view(A: f32[1]) -> B: f32[1] {{ B{text} }}")).items
    except TschedError:
        return None
    match item:
        case tree.ComputeDef(stages=(tree.Stage(value=tree.IndexExpr(base=tree.Name(id=base), indices=at)) as s,)):
            names = tuple(str(i.name) for i in s.indices)
            return View(str(base), names, tuple(index(names, e) for e in at))
        case _:
            return None


def view_fault(b: Buffer, program: Program) -> str:
    """Why a buffer is no view of an input; empty if it is one."""
    assert b.view is not None
    base = next((p for p in program.inputs if p.name == b.view.base), None)
    if b.scope != "global" or b.strides or any(s.buffer == b.name for x in blocks(program) for s in (*x.init, *x.body)):
        return f"{b.name} is a view: it has no memory, and no block writes it"
    if base is None or any(p.updates == base.name for p in program.params):
        return f"{b.name} is a view of {b.view.base}, which is no input that stays as it is"
    if base.dtype != b.dtype or len(base.shape) != len(b.view.places) or len(b.shape) != len(b.view.indices):
        return f"{b.name} is a view of {base.name} with another type or other dimensions"
    if base.constant != b.constant:
        return f"{b.name} is a view of {base.name}, and only one of them is constant"
    return ""
