"""Programs up to names: two that differ in what their parts are called, and in nothing else, are one nameless program.

Names of dimensions, arguments, buffers, loops, blocks and iterators are replaced by numbers, in the order in which the text
of the program has them. What is left is what a program computes and how: types, extents, the order of arguments, strides,
reducers by what they compute, assumptions, and the order of everything that is rounded.

Records are kept by such keys, or a search of a layer would teach nothing to its twins in a model. A record has its trace in
the names under which it was made, and a reader exchanges them: traces in canonical names would be unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tensorc_dsl.base.frozen import replace
from tensorc_dsl.ir.annotations import PREFETCH
from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.ir.expr import ZERO, Binary, Dim, Expr, Load, Var, add, children, dtype_of, mul, rewrite_expr, sub
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import ASSUMED, Annotation, Block, Buffer, For, Iter, Program, Stmt, Store, View, walk
from tensorc_dsl.ir.reductions import REDUCER, combiner


@by_identity(64)
def names(program: Program) -> tuple[str, ...]:
    """The names of the dimensions, arguments, buffers, loops and blocks in the order in which the text has them, each once.

    Programs that are equal up to names have as many, and the names of equal parts are at equal positions.
    """
    return tuple(dict.fromkeys(_names(program)))


def _names(program: Program) -> Iterator[str]:
    for b in program.params:
        for e in b.described:
            yield from _dims(e)
    yield from (d.name for d in program.dims)
    yield from (b.name for b in (*program.params, *program.buffers))
    yield from (s.var if isinstance(s, For) else s.name for _, s in walk(program.body))
    for case in program.cases:
        yield from _names(case.program)


def _dims(e: Expr) -> Iterator[str]:
    """The dimensions in an expression, in the order of the text."""
    if isinstance(e, Dim):
        yield e.name
    for part in children(e):
        yield from _dims(part)


def in_scope(program: Program) -> tuple[str, ...]:
    """The names that a schedule of the program begins with, those of arguments, buffers and blocks, in the order of the text.

    In programs that are equal up to names those of equal parts are at equal positions.
    """
    buffers = (b.name for b in (*program.params, *program.buffers))
    made = (s.name for _, s in walk(program.body) if isinstance(s, Block))
    return tuple(map(str, (*buffers, *made)))


@by_identity(8)
def nameless(program: Program) -> Program:
    """The program with numbers for names. It is for comparing: sums of subscripts stand in an order of their own."""
    numbers = {name: f"_{n}" for n, name in enumerate(names(program))}
    return _Numbered(numbers).program(program)


class _Numbered:
    def __init__(self, numbers: Mapping[str, str]) -> None:
        self._numbers = numbers

    def program(self, p: Program) -> Program:
        order = {name: n for n, name in enumerate(self._numbers)}
        dims = sorted(p.dims, key=lambda d: order[d.name])
        return replace(
            p,
            name="_",
            params=tuple(map(self._buffer, p.params)),
            buffers=tuple(map(self._buffer, p.buffers)),
            body=tuple(map(self._stmt, p.body)),
            dims=tuple(map(self._dim, dims)),
            annotations=self._annotations(p.annotations, ASSUMED),
            divided_by=tuple(self._numbers[n] for n in p.divided_by),
            cases=tuple(replace(c, program=self.program(c.program)) for c in p.cases),
        )

    def _dim(self, d: Dim) -> Dim:
        return replace(d, name=self._numbers[d.name], where=tuple(map(self._expr({}), d.where)))

    def _buffer(self, b: Buffer) -> Buffer:
        shape, strides = (tuple(map(self._expr({}), x)) for x in (b.shape, b.strides))
        updates = self._numbers.get(b.updates, b.updates)
        view = b.view
        if view is not None:
            own = {name: f"i{n}" for n, name in enumerate(view.indices)}
            places = tuple(map(self._expr(own), view.places))
            view = View(self._numbers[view.base], tuple(own.values()), places)
        return replace(b, name=self._numbers[b.name], shape=shape, strides=strides, updates=updates, view=view)

    def _annotations(self, items: tuple[Annotation, ...], begin: str) -> tuple[Annotation, ...]:
        """Annotations, of which those whose keys begin so say something about the buffer whose name follows."""

        def renamed(key: str) -> str:
            name = key.removeprefix(begin)
            return begin + self._numbers.get(name, name) if key.startswith(begin) else key

        return tuple(sorted(((renamed(k), v) for k, v in items), key=lambda a: a[0]))

    def _stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return self._block(s)
        return For(
            self._numbers[s.var], self._expr({})(s.extent), tuple(map(self._stmt, s.body)), s.kind,
            self._annotations(s.annotations, PREFETCH), s.axis,
        )  # fmt: skip

    def _block(self, b: Block) -> Block:
        own = {it.name: f"i{n}" for n, it in enumerate(b.iters)}
        outside, inside = self._expr({}), self._expr(own)

        def stored(s: Store) -> Store:
            return Store(
                self._numbers[s.buffer], tuple(map(inside, s.indices)), inside(s.value),
                self._numbers.get(s.atomic, s.atomic),
            )  # fmt: skip

        dtypes = tuple(dtype_of(s.value) for s in b.body)
        return Block(
            self._numbers[b.name],
            tuple(Iter(own[it.name], it.kind, outside(it.extent), outside(it.binding)) for it in b.iters),
            tuple(map(stored, b.body)),
            tuple(map(stored, b.init)),
            tuple(sorted(map(outside, b.where), key=format_expr)),
            tuple((k, _reducer(v, dtypes) if k == REDUCER else v) for k, v in b.annotations),
        )

    def _expr(self, own: Mapping[str, str]) -> Callable[[Expr], Expr]:
        known = {**self._numbers, **own}

        def renamed(e: Expr) -> Expr:
            match e:
                case Var(name=name):
                    return Var(known.get(name, name))
                case Dim():
                    return self._dim(e)
                case Load(buffer=b):
                    return replace(e, buffer=self._numbers.get(b, b))
                case Binary(op="+" | "-" | "*") if dtype_of(e) == INDEX:
                    return _sorted(e)
                case Binary(op="min" | "max", lhs=a, rhs=b) if dtype_of(e) == INDEX and format_expr(a) > format_expr(b):
                    return replace(e, lhs=b, rhs=a)
                case _:
                    return e

        return lambda e: rewrite_expr(e, renamed)


def _sorted(e: Binary) -> Expr:
    """A sum or product of subscripts, whose parts are sorted already, with its terms in the order of their texts: schedules
    order them by names."""
    if e.op == "*":
        factors = sorted(_chain(e, "*"), key=format_expr)
        made = factors[0]
        for f in factors[1:]:
            made = mul(made, f)
        return made
    plus, minus = list[Expr](), list[Expr]()

    def gather(x: Expr, to: list[Expr], other: list[Expr]) -> None:
        if isinstance(x, Binary) and x.op in "+-":
            gather(x.lhs, to, other)
            gather(x.rhs, *((to, other) if x.op == "+" else (other, to)))
        else:
            to.append(x)

    gather(e, plus, minus)
    made: Expr = ZERO
    for t in sorted(plus, key=format_expr):
        made = add(made, t)
    for t in sorted(minus, key=format_expr):
        made = sub(made, t)
    return made


def _chain(e: Expr, op: str) -> list[Expr]:
    return [*_chain(e.lhs, op), *_chain(e.rhs, op)] if isinstance(e, Binary) and e.op == op else [e]


def _reducer(text: int | float | str | bool, dtypes: tuple[DType, ...]) -> int | float | str | bool:
    """The reducer of an annotation, without its name and those of its operands."""
    found = combiner(text, dtypes) if isinstance(text, str) else None
    return text if found is None or found.picks else found.nameless.text
