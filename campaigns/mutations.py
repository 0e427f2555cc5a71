"""Programs with one place changed, by operators: mutants, most of which compute something else.

An operator finds the places of a program at which it applies; a change of one of them is a program that need not be right,
nor well formed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.annotations import STAGES
from tensorc_dsl.ir.dtypes import DTYPES, INDEX, DType
from tensorc_dsl.ir.expr import (
    ONE,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    children,
    dtype_of,
    index,
    rebuild,
    substitute,
)
from tensorc_dsl.ir.program import (
    Annotation,
    Axis,
    Block,
    Buffer,
    For,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    fresh,
    replace_stmt,
    used_names,
    walk,
    with_body,
)

T = TypeVar("T")

Mutants = Iterator[Callable[[], Program]]
"""The changes that an operator knows of a program, each made when it is called."""


@dataclass(frozen=True, slots=True)
class Place:
    """An expression of a program: what it is there for, and the program with another in its place."""

    role: str
    expr: Expr
    put: Callable[[Expr], Program]


def _exchanged(items: Sequence[T], n: int, *new: T) -> tuple[T, ...]:
    """The items, with others in place of number `n`."""
    return (*items[:n], *new, *items[n + 1 :])


def _within(role: str, e: Expr, put: Callable[[Expr], Program]) -> Iterator[Place]:
    """The place of `e`, and those in it."""
    yield Place(role, e, put)
    for n, part in enumerate(children(e)):

        def put_part(new: Expr, n: int = n) -> Program:
            return put(rebuild(e, _exchanged(children(e), n, new)))

        yield from _within("subscript" if isinstance(e, Load) else role, part, put_part)


def _stores(p: Program, b: Block) -> Iterator[tuple[str, Store, Callable[[Store], Program]]]:
    """The stores of a block, with "init" or "value", and the program with another in its place."""
    for n, s in enumerate(b.body):
        yield "value", s, lambda new, n=n: replace_stmt(p, b.name, (replace(b, body=_exchanged(b.body, n, new)),))
    for n, s in enumerate(b.init):
        yield "init", s, lambda new, n=n: replace_stmt(p, b.name, (replace(b, init=_exchanged(b.init, n, new)),))


def places(p: Program) -> Iterator[Place]:
    """Every expression of the program: "extent" of a loop, "size" and "binding" of an iterator, "condition", "subscript",
    "value" and "init".
    """
    for _, s in walk(p.body):
        if isinstance(s, For):
            loop = s
            yield from _within(
                "extent", loop.extent, lambda e, loop=loop: replace_stmt(p, loop.var, (replace(loop, extent=e),))
            )
            continue
        b = s
        for n, it in enumerate(b.iters):

            def with_iter(b: Block = b, n: int = n, **new: Expr) -> Program:
                iters = _exchanged(b.iters, n, replace(b.iters[n], **new))
                return replace_stmt(p, b.name, (replace(b, iters=iters),))

            yield from _within("size", it.extent, lambda e, put=with_iter: put(extent=e))
            yield from _within("binding", it.binding, lambda e, put=with_iter: put(binding=e))
        for n, cond in enumerate(b.where):

            def with_cond(e: Expr, b: Block = b, n: int = n) -> Program:
                return replace_stmt(p, b.name, (replace(b, where=_exchanged(b.where, n, e)),))

            yield from _within("condition", cond, with_cond)
        for role, store, put in _stores(p, b):
            for n, i in enumerate(store.indices):

                def with_index(e: Expr, put: Callable[[Store], Program] = put, s: Store = store, n: int = n) -> Program:
                    return put(replace(s, indices=_exchanged(s.indices, n, e)))

                yield from _within("subscript", i, with_index)
            yield from _within(role, store.value, lambda e, put=put, s=store: put(replace(s, value=e)))


# --- expressions ------------------------------------------------------------------------------------------------------


def _at(*roles: str) -> Callable[[Callable[[Expr], Iterator[Expr]]], Callable[[Program], Mutants]]:
    """The operator that changes expressions in these roles."""

    def operator(change: Callable[[Expr], Iterator[Expr]]) -> Callable[[Program], Mutants]:
        def mutants(p: Program) -> Mutants:
            for place in places(p):
                if place.role in roles:
                    for new in change(place.expr):
                        yield lambda place=place, new=new: place.put(new)

        return mutants

    return operator


@_at("subscript")
def _subscript(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Var | Binary) and dtype_of(e) == INDEX:
        yield Binary("+", e, ONE)
        yield Binary("-", e, ONE)


@_at("binding")
def _binding(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Var | Binary) and dtype_of(e) == INDEX:
        yield Binary("+", e, ONE)
        yield Binary("-", e, ONE)


def _off_by_one(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Const) and e.dtype == INDEX:
        yield index(int(e.value) + 1)
        yield index(int(e.value) - 1)


_extent, _size = _at("extent")(_off_by_one), _at("size")(_off_by_one)
_factor, _bound = _at("binding", "subscript")(_off_by_one), _at("condition")(_off_by_one)


@_at("value", "init")
def _constant(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Const):
        match e.value:
            case bool():
                yield Const(not e.value, e.dtype)
            case int() | float() if abs(e.value) < 100:
                yield Const(e.value + 1, e.dtype)
                if e.value and e.dtype.is_float:
                    yield Const(-e.value, e.dtype)
            case _:
                yield Const(0.0 if e.dtype.is_float else 0, e.dtype)


@_at("condition", "value", "subscript")
def _compared(e: Expr) -> Iterator[Expr]:
    others = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "<=", "!=": "<"}
    if isinstance(e, Compare):
        yield replace(e, op=others[e.op])


@_at("condition", "value", "subscript")
def _negated(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Compare | Logic):
        yield Not(e)
    elif isinstance(e, Not):
        yield e.operand


@_at("condition", "value", "subscript")
def _joined(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Logic):
        yield replace(e, op="or" if e.op == "and" else "and")
        yield e.lhs
        yield e.rhs


@_at("value", "binding", "subscript", "condition")
def _operands_swapped(e: Expr) -> Iterator[Expr]:
    if (isinstance(e, Binary) and e.op in ("-", "/", "%")) or isinstance(e, Compare):
        yield replace(e, lhs=e.rhs, rhs=e.lhs)
    elif isinstance(e, Select):
        yield replace(e, then=e.other, other=e.then)


@_at("value", "binding", "subscript")
def _other_operation(e: Expr) -> Iterator[Expr]:
    others = {"+": "-", "-": "+", "*": "+", "/": "%", "%": "/", "min": "max", "max": "min", "xor": "+"}
    if isinstance(e, Binary):
        yield replace(e, op=others[e.op])


@_at("value")
def _term_dropped(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Binary):
        yield e.lhs
        yield e.rhs


@_at("value")
def _term_doubled(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Binary) and e.op in ("+", "*"):
        yield Binary(e.op, e, e.rhs)


@_at("value")
def _branch_taken(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Select):
        yield e.then
        yield e.other


def _narrower(t: DType) -> Iterator[DType]:
    for other in DTYPES.values():
        if other.kind == t.kind and other.bits < t.bits:
            yield other


@_at("value")
def _narrowed(e: Expr) -> Iterator[Expr]:
    """A cast to a narrower type and back, of what is loaded or cast."""
    if isinstance(e, Load | Cast) and e.dtype != INDEX:
        for t in _narrower(e.dtype):
            yield Cast(Cast(e, t), e.dtype)


@_at("value", "subscript")
def _subscripts_swapped(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Load):
        for n in range(len(e.indices) - 1):
            a, b = e.indices[n : n + 2]
            yield replace(e, indices=(*e.indices[:n], b, a, *e.indices[n + 2 :]))


def _stored_elsewhere(p: Program) -> Mutants:
    """Two subscripts of a store swapped, or the subscripts of one load as those of the store."""
    for _, s in walk(p.body):
        if isinstance(s, Block):
            for _, store, put in _stores(p, s):
                for n in range(len(store.indices) - 1):
                    a, b = store.indices[n : n + 2]
                    new = (*store.indices[:n], b, a, *store.indices[n + 2 :])
                    yield lambda put=put, store=store, new=new: put(replace(store, indices=new))


def _other_buffer(p: Program) -> Mutants:
    """A load of another buffer of the type and rank."""
    every = (*p.params, *p.buffers)
    for place in places(p):
        if isinstance(place.expr, Load):
            for b in every:
                e = place.expr
                if b.name != e.buffer and b.dtype == e.dtype and len(b.shape) == len(e.indices):
                    yield lambda place=place, e=e, b=b: place.put(replace(e, buffer=b.name))


def _variables_exchanged(p: Program) -> Mutants:
    """One variable in place of another, in a binding or a value."""
    for around, s in walk(p.body):
        if not isinstance(s, Block):
            continue
        for n, it in enumerate(s.iters):
            for a, b in itertools.pairwise(around):
                both = {a.var: Var(b.var), b.var: Var(a.var)}
                if (new := substitute(it.binding, both)) != it.binding:
                    iters = _exchanged(s.iters, n, replace(it, binding=new))
                    yield lambda s=s, iters=iters: replace_stmt(p, s.name, (replace(s, iters=iters),))


# --- blocks -----------------------------------------------------------------------------------------------------------


def _of_blocks(change: Callable[[Block], Iterator[Block]]) -> Callable[[Program], Mutants]:
    def mutants(p: Program) -> Mutants:
        for _, s in walk(p.body):
            if isinstance(s, Block):
                for new in change(s):
                    yield lambda s=s, new=new: replace_stmt(p, s.name, (new,))

    return mutants


@_of_blocks
def _guard_dropped(b: Block) -> Iterator[Block]:
    for n in range(len(b.where)):
        yield replace(b, where=_exchanged(b.where, n))


@_of_blocks
def _init_dropped(b: Block) -> Iterator[Block]:
    if b.init:
        yield replace(b, init=())


@_of_blocks
def _kind_of_iterator(b: Block) -> Iterator[Block]:
    for n, it in enumerate(b.iters):
        for kind in IterKind:
            if kind is not it.kind:
                yield replace(b, iters=_exchanged(b.iters, n, replace(it, kind=kind)))


@_of_blocks
def _bindings_swapped(b: Block) -> Iterator[Block]:
    for n, (x, y) in enumerate(zip(b.iters, b.iters[1:], strict=False)):
        both = (replace(x, binding=y.binding), replace(y, binding=x.binding))
        yield replace(b, iters=(*b.iters[:n], *both, *b.iters[n + 2 :]))


@_of_blocks
def _stores_swapped(b: Block) -> Iterator[Block]:
    for n, (x, y) in enumerate(zip(b.body, b.body[1:], strict=False)):
        yield replace(b, body=(*b.body[:n], y, x, *b.body[n + 2 :]))


def _annotations(of: tuple[Annotation, ...]) -> Iterator[tuple[Annotation, ...]]:
    """The annotations with one left out, or its number or numbers off by one."""
    for n, (key, value) in enumerate(of):
        yield _exchanged(of, n)
        match value:
            case bool():
                yield _exchanged(of, n, (key, not value))
            case int():
                yield _exchanged(of, n, (key, value + 1))
                yield _exchanged(of, n, (key, value - 1))
            case str() if key == STAGES:
                numbers = [int(x) for x in value.split(",")]
                for m, number in enumerate(numbers):
                    for off in (number + 1, number - 1):
                        yield _exchanged(of, n, (key, ", ".join(map(str, _exchanged(numbers, m, off)))))
            case _:
                words = str(value).split(", ")
                if len(words) > 1:
                    yield _exchanged(of, n, (key, ", ".join((words[1], words[0], *words[2:]))))


def _annotation(p: Program) -> Mutants:
    for new in _annotations(p.annotations):
        yield lambda new=new: replace(p, annotations=new)
    for _, s in walk(p.body):
        name = s.var if isinstance(s, For) else s.name
        for new in _annotations(s.annotations):
            yield lambda name=name, s=s, new=new: replace_stmt(p, name, (replace(s, annotations=new),))
    for n, b in enumerate(p.buffers):
        for new in _annotations(b.annotations):
            yield lambda n=n, b=b, new=new: replace(p, buffers=_exchanged(p.buffers, n, replace(b, annotations=new)))


# --- loops and statements ---------------------------------------------------------------------------------------------


def _kind_of_loop(p: Program) -> Mutants:
    for _, s in walk(p.body):
        if isinstance(s, For):
            for kind in LoopKind:
                if kind not in (s.kind, LoopKind.BOUND, LoopKind.TENSORIZED):
                    yield lambda s=s, kind=kind: replace_stmt(p, s.var, (replace(s, kind=kind, axis=None),))
            for axis in (Axis.BLOCK_X, Axis.BLOCK_Y, Axis.THREAD_X, Axis.THREAD_Y, Axis.LANE):
                if axis is not s.axis:
                    new = replace(s, kind=LoopKind.BOUND, axis=axis)
                    yield lambda s=s, new=new: replace_stmt(p, s.var, (new,))


def _loops_exchanged(p: Program) -> Mutants:
    for _, s in walk(p.body):
        if isinstance(s, For) and len(s.body) == 1 and isinstance(inner := s.body[0], For):
            new = with_body(inner, (with_body(s, inner.body),))
            yield lambda s=s, new=new: replace_stmt(p, s.var, (new,))


def _bodies(p: Program) -> Iterator[tuple[tuple[Stmt, ...], Callable[[tuple[Stmt, ...]], Program]]]:
    """The bodies of the program and of its loops, and the program with another in its place."""
    yield p.body, lambda body: replace(p, body=body)
    for _, s in walk(p.body):
        if isinstance(s, For):
            yield s.body, lambda body, s=s: replace_stmt(p, s.var, (with_body(s, body),) if body else ())


def _statements_swapped(p: Program) -> Mutants:
    for body, put in _bodies(p):
        for n, (x, y) in enumerate(itertools.pairwise(body)):
            yield lambda body=body, put=put, n=n, x=x, y=y: put((*body[:n], y, x, *body[n + 2 :]))


def _statement_dropped(p: Program) -> Mutants:
    for body, put in _bodies(p):
        for n in range(len(body)):
            yield lambda body=body, put=put, n=n: put(_exchanged(body, n))


def _statement_twice(p: Program) -> Mutants:
    """A statement, and behind it a copy of it."""
    for body, put in _bodies(p):
        for n, s in enumerate(body):
            yield lambda body=body, put=put, n=n, s=s: put(_exchanged(body, n, s, _renamed(s, used_names(p))))


def _renamed(s: Stmt, used: set[str], loops: dict[str, Expr] | None = None) -> Stmt:
    """The statement with other names of loops and blocks."""
    known = loops or {}
    if isinstance(s, For):
        var = fresh(s.var, used)
        inner = {**known, s.var: Var(var)}
        body = tuple(_renamed(x, used, inner) for x in s.body)
        return replace(with_body(s, body), var=var, extent=substitute(s.extent, known))
    iters = tuple(replace(it, binding=substitute(it.binding, known)) for it in s.iters)
    where = tuple(substitute(c, known) for c in s.where)
    return replace(s, name=fresh(s.name, used), iters=iters, where=where)


def _moved(p: Program) -> Mutants:
    """A statement moved before or behind the loop around it, or into the loop next to it."""
    for body, put in _bodies(p):
        for n, s in enumerate(body):
            if not isinstance(s, For):
                continue
            for x in s.body if len(s.body) > 1 else ():
                rest = with_body(s, tuple(y for y in s.body if y is not x))
                yield lambda body=body, put=put, n=n, x=x, rest=rest: put(_exchanged(body, n, x, rest))
                yield lambda body=body, put=put, n=n, x=x, rest=rest: put(_exchanged(body, n, rest, x))
            if n:
                into = (body[n - 1], with_body(s, (body[n - 1], *s.body)))
                yield lambda body=body, put=put, n=n, new=into[1]: put((*body[: n - 1], new, *body[n + 1 :]))
            if n + 1 < len(body):
                new = with_body(s, (*s.body, body[n + 1]))
                yield lambda body=body, put=put, n=n, new=new: put((*body[:n], new, *body[n + 2 :]))


# --- buffers ----------------------------------------------------------------------------------------------------------


def _of_buffers(change: Callable[[Buffer], Iterator[Buffer]]) -> Callable[[Program], Mutants]:
    def mutants(p: Program) -> Mutants:
        for n, b in enumerate(p.buffers):
            for new in change(b):
                yield lambda n=n, new=new: replace(p, buffers=_exchanged(p.buffers, n, new))

    return mutants


@_of_buffers
def _scope(b: Buffer) -> Iterator[Buffer]:
    for scope in ("global", "local", "shared"):
        if scope != b.scope:
            yield replace(b, scope=scope)


@_of_buffers
def _shape(b: Buffer) -> Iterator[Buffer]:
    for n, extent in enumerate(b.shape):
        yield replace(b, shape=_exchanged(b.shape, n, Binary("-", extent, ONE)))
        if isinstance(extent, Const):
            yield replace(b, shape=_exchanged(b.shape, n, index(int(extent.value) - 1)))


OPERATORS: dict[str, Callable[[Program], Mutants]] = {
    "subscript off by one": _subscript,
    "binding off by one": _binding,
    "extent of a loop off by one": _extent,
    "extent of an iterator off by one": _size,
    "factor off by one": _factor,
    "bound of a guard off by one": _bound,
    "constant changed": _constant,
    "comparison weakened": _compared,
    "condition negated": _negated,
    "condition of two parts": _joined,
    "operands swapped": _operands_swapped,
    "another operation": _other_operation,
    "term dropped": _term_dropped,
    "term doubled": _term_doubled,
    "one branch always": _branch_taken,
    "narrower type": _narrowed,
    "subscripts of a load swapped": _subscripts_swapped,
    "subscripts of a store swapped": _stored_elsewhere,
    "another buffer": _other_buffer,
    "variables exchanged": _variables_exchanged,
    "guard dropped": _guard_dropped,
    "init dropped": _init_dropped,
    "kind of an iterator": _kind_of_iterator,
    "bindings swapped": _bindings_swapped,
    "stores swapped": _stores_swapped,
    "annotation": _annotation,
    "kind of a loop": _kind_of_loop,
    "loops exchanged": _loops_exchanged,
    "statements swapped": _statements_swapped,
    "statement dropped": _statement_dropped,
    "statement twice": _statement_twice,
    "statement moved": _moved,
    "scope of a buffer": _scope,
    "shape too small": _shape,
}
"""The operators, by what they change."""
