"""A program as a list of statements with integer sets, the form in which `proof.equivalence.validate` compares programs.

A *statement* is one store of a block; an `init` store is a statement of its own. Its instances are the values of the
loops around it for which it runs. An element of a buffer that is private to an iteration is identified by the values of those
loops as well, so "the same element" always means the same memory with the same copy. Loops are replaced by their digits.

An example of instances is a point of their set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from typing import assert_never

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Logic,
    Not,
    Select,
    Var,
    dtype_of,
    free_vars,
    substitute,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, For, IterKind, Program, Stmt, Store, store_at
from tensorc_dsl.ir.reductions import Combination, combiner, is_exact, is_fold, is_whole_update, update_of
from tensorc_dsl.proof.equivalence.loop_encodings import (
    Counted,
    Digit,
    digits_around,
    digits_of,
    in_digits,
    products_as_data,
)
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.accesses import guarded_loads, home
from tensorc_dsl.proof.sets.isl import renew
from tensorc_dsl.proof.sets.linear_forms import type_conditions, with_values
from tensorc_dsl.proof.sets.reductions import may_be_empty
from tensorc_dsl.proof.sets.running import running
from tensorc_dsl.proof.sets.sets import dim_conditions, mapping, points

PAIR = "together"
"""The function whose arguments are the parts of one term, for reductions that combine several values at a time."""

UNLESS = "unless"
"""The function of a factor that leaves a term out where its argument, a condition, holds. It is no number, and no product
with it one with 0. A factor of `a or b` is one of `a` and one of `b`."""


@frozen
class Accumulation:
    """A store that updates: it combines `term` with the stored value. Updates of the same `kind` commute."""

    kind: str
    term: Expr


@frozen(eq=False)
class Chain:
    """A store whose value is that of the step before combined with a term, as `proof.sets.running` recognises it."""

    kind: str
    read: Load
    """The value of the step before."""
    first: Expr
    """The value of the first step."""
    later: Expr
    """What each later step adds."""
    term: Expr
    """What any step adds, the first one included."""
    step: Expr
    """The number of the step."""
    scale: Accumulation | None
    """What is combined with the value before, and the kind of that operation, which distributes; None if nothing is."""
    reset: Expr | None
    """A factor `UNLESS` of the value before; None if each step reads it."""


@frozen(eq=False)
class Statement:
    """A store of the program, over the variables of the loops around it."""

    number: int
    """Its position in the text."""
    block: Block
    is_init: bool
    store: Store
    path: tuple[tuple[For, int], ...]
    """The loops around it, outermost first, each with the position of the statement in the loop's body."""
    digits: tuple[Digit, ...]
    """The digits of all these loops, outermost first."""
    names: tuple[str, ...]
    """The names of the digits."""
    domain: isl.Set
    iters: tuple[tuple[str, IterKind, Expr], ...]
    accumulates: Accumulation | None
    runs: Chain | None = None
    """The running reduction of which each instance is a step."""

    def __str__(self) -> str:
        return f"the init of block {self.block.name}" if self.is_init else f"block {self.block.name}"


class Code:
    """The statements of a program and their accesses. Raises NotAffine if an extent or a guard is not affine.

    If it is `in_order`, updates whose order or grouping rounding depends on are stores like others: each reads what the one
    before has stored.
    """

    def __init__(self, program: Program, *, in_order: bool = False) -> None:
        self.program = program
        self.in_order = in_order
        self.shapes = {b.name: b.shape for b in (*program.params, *program.buffers)}
        self.digits = digits_of(program)
        self.homes = {
            b.name: tuple(d.name for x in digits_around(home(program, b) or (), self.digits) for d in x.digits)
            for b in (*program.params, *program.buffers)
        }
        self.statements: list[Statement] = []
        self.writers: dict[str, list[Statement]] = {}
        self._read(program.body, ())
        self._before: dict[tuple[int, tuple[str, ...], int, tuple[str, ...]], isl.Map] = {}
        self._touched: dict[tuple[int, tuple[str, ...], str, tuple[Expr, ...]], isl.Map] = {}
        self._lifted: dict[tuple[int, tuple[str, ...], tuple[Cast, ...]], Statement] = {}
        self._data: dict[tuple[int, Cast], str] = {}
        self._boxes: dict[str, isl.Set] = {}
        self._reads: dict[int, tuple[tuple[Load, tuple[Expr, ...]], ...]] = {}
        self.scales = {s.runs.kind: s.runs.scale.kind for s in self.statements if s.runs and s.runs.scale}
        """For each kind of a linear recurrence that of its products."""

    def _read(self, body: tuple[Stmt, ...], path: tuple[tuple[For, int], ...]) -> None:
        for s in body:
            if isinstance(s, Block):
                self._block(path, s)
            else:
                for n, inner in enumerate(s.body):
                    self._read((inner,), (*path, (s, n)))

    def _block(self, path: tuple[tuple[For, int], ...], b: Block) -> None:
        renew()
        b = products_as_data(b, self.shapes, self.program.dims)
        around = digits_around((x for x, _ in path), self.digits)
        digits = tuple(d for x in around for d in x.digits)
        within = [c for x in around for c in x.within]
        values = {it.name: in_digits(it.binding, self.digits) for it in b.iters}
        where = [in_digits(c, self.digits) for c in b.where]
        steps = [values[it.name] for it in b.iters if it.kind is IterKind.REDUCE]
        first = [Compare("==", e, ZERO) for e in steps]
        names = tuple(d.name for d in digits)
        inside = (
            *extent_conditions(names, [d.extent for d in digits]),
            *within,
            *where,
            *dim_conditions(self.program.dims),
        )
        nothing = [Compare("<=", it.extent, ZERO) for it in b.iters if it.kind is IterKind.REDUCE]
        for is_init, stores in ((True, b.init), (False, b.body)):
            if not stores:
                continue
            domain = points(names, (*inside, *(first if is_init else ())))
            if is_init and may_be_empty(b):
                counting = frozenset[str]().union(*map(free_vars, steps))
                extents = [ONE if d.name in counting else d.extent for d in digits]
                others = [c for c in (*within, *where) if free_vars(c).isdisjoint(counting)]
                empty = reduce(lambda c, d: Logic("or", c, d), nothing)
                begun = (*extent_conditions(names, extents), *others, *dim_conditions(self.program.dims), empty)
                domain = domain.union(points(names, begun))
            for n, s in enumerate(stores):
                own = store_at(s, values)
                made = Statement(
                    len(self.statements), b, is_init, own, path, digits, names, domain,
                    tuple((it.name, it.kind, values[it.name]) for it in b.iters),
                    None if is_init or (self.in_order and not is_exact(b)) else _accumulation(b, n, values),
                    None if self.in_order else _chain(b, values),
                )  # fmt: skip
                self.statements.append(made)
                self.writers.setdefault(s.buffer, []).append(made)

    def lifted(self, s: Statement, data: Sequence[Cast]) -> tuple[Statement, dict[Expr, Expr]]:
        """The statement with an instance for each possible value of the data, and the variables for these values."""
        names = [self._data.setdefault((s.number, d), f"datum{len(self._data)}'") for d in data]
        key = (s.number, s.names, tuple(data))  # the statement may already have variables for other data
        if key not in self._lifted:
            values = points(names, [c for n, d in zip(names, data, strict=True) for c in type_conditions(n, d)])
            self._lifted[key] = replace(s, names=(*s.names, *names), domain=s.domain.flat_product(values))
        return self._lifted[key], {d: Var(n) for n, d in zip(names, data, strict=True)}

    def told(self, s: Statement, e: Expr) -> str:
        """An expression of a statement as text, with data as in the program."""
        data: dict[Expr, Expr] = {Var(n): d for (number, d), n in self._data.items() if number == s.number}
        return format_expr(with_values(e, data))

    def touched(self, s: Statement, buffer: str, indices: tuple[Expr, ...]) -> isl.Map:
        """The map from the instances of `s` to the element at `indices`. Raises NotAffine."""
        key = (s.number, s.names, buffer, indices)
        if key not in self._touched:
            element = [*map(Var, self.homes[buffer]), *indices]
            self._touched[key] = mapping(s.names, element).intersect_domain(s.domain)
        return self._touched[key]

    def written(self, s: Statement) -> isl.Map:
        """The map from the instances of `s` to the element that each writes."""
        return self.touched(s, s.store.buffer, s.store.indices)

    def before(self, s: Statement, t: Statement) -> isl.Map:
        """The map from the instances of `s` to the later instances of `t`, assuming that all loops run in order."""
        key = (s.number, s.names, t.number, t.names)
        if key not in self._before:
            common = common_loops(s, t)
            same = [f"a{k} = b{k}" for k in range(common)]
            cases = [[*same[:k], f"a{k} < b{k}"] for k in range(common)]
            if s.number < t.number and not _at_once(s, t):
                cases.append(same)
            self._before[key] = relation(s, t, cases)
        return self._before[key]

    def box(self, buffer: str) -> isl.Set:
        """The set of all elements of a buffer."""
        if buffer not in self._boxes:
            names = [f"e{k}" for k in range(len(self.shapes[buffer]))]
            inside = (*extent_conditions(names, self.shapes[buffer]), *dim_conditions(self.program.dims))
            self._boxes[buffer] = points(names, inside)
        return self._boxes[buffer]

    def reads(self, s: Statement) -> tuple[tuple[Load, tuple[Expr, ...]], ...]:
        """The different reads of a statement, with the conditions under which each is evaluated. A stage that was inlined at
        several places reads the same elements again and again.
        """
        if s.number not in self._reads:
            self._reads[s.number] = tuple(dict.fromkeys(guarded_loads(s.store.value)))
        return self._reads[s.number]


def extent_conditions(names: Sequence[str], extents: Sequence[Expr]) -> list[Expr]:
    """The conditions that keep each name within its extent."""
    return [
        c for n, e in zip(names, extents, strict=True) for c in (Compare("<=", ZERO, Var(n)), Compare("<", Var(n), e))
    ]


def common_loops(s: Statement, t: Statement) -> int:
    """The number of loops around both statements."""
    return next(
        (k for k, (a, b) in enumerate(zip(s.names, t.names, strict=False)) if a != b), min(len(s.names), len(t.names))
    )


def relation(s: Statement, t: Statement, cases: Sequence[Sequence[str]]) -> isl.Map:
    """The map from instances `[a0, a1, …]` of `s` to instances `[b0, b1, …]` of `t` that satisfy all conditions of a case."""
    a, b = (", ".join(f"{x}{k}" for k in range(len(z.names))) for x, z in (("a", s), ("b", t)))
    text = " or ".join(f"({' and '.join(c) or 'true'})" for c in cases) or "false"
    return isl.Map(f"{{ [{a}] -> [{b}] : {text} }}")


def _at_once(s: Statement, t: Statement) -> bool:
    """Whether both are stores of one step of a reducer: each reads the values so far as they were before."""
    return s.block is t.block and not s.is_init and not t.is_init and is_whole_update(s.block)


def where(s: Statement, condition: Expr) -> isl.Set:
    """The values of the loops around `s` for which the condition holds. Raises NotAffine."""
    return points(s.names, [condition])


def label(e: Expr) -> str:
    """The operation of an expression, as text: equal labels with equal operands have equal values."""
    match e:
        case Const(value=value, dtype=t):
            return f"{value!r}: {t}"
        case Var(name=name) | Dim(name=name):
            return name
        case Binary(op=op) | Compare(op=op) | Logic(op=op):
            return f"{op}"
        case Not():
            return "not"
        case Select():
            return "if"
        case Cast(dtype=t):
            return f"{t}"
        case Bitcast(dtype=t):
            return f"bits as {t}"
        case Call(function=f):
            return f
        case Load(buffer=b):
            return f"{b}[]"
        case _:
            assert_never(e)


def _chain(b: Block, values: Mapping[str, Expr]) -> Chain | None:
    found = running(b)
    if found is None:
        return None
    term = Select(Compare("<", Var(found.steps), ONE), found.first, found.term)
    parts = (found.read, found.first, found.term, term, Var(found.steps))
    read, first, later, term, step = (substitute(e, values) for e in parts)
    assert isinstance(read, Load)
    t = dtype_of(read)
    by = found.scale and Accumulation(f"{found.scale.op} {t}", substitute(found.scale.factor, values))
    reset = found.reset and Call(UNLESS, (substitute(found.reset, values),))
    return Chain(f"{found.op} {t}", read, first, later, term, step, by, reset)


def scales_of(*codes: Code) -> dict[str, str]:
    """For each kind of a linear recurrence or segmented scan that of its products, in which factors `UNLESS` may be alone."""
    runs = [s.runs for code in codes for s in code.statements if s.runs]
    alone = {x.kind: f"{UNLESS} {dtype_of(x.read)}" for x in runs if x.reset}
    return alone | {x.kind: x.scale.kind for x in runs if x.scale}


def _accumulation(b: Block, n: int, values: Mapping[str, Expr]) -> Accumulation | None:
    """The accumulation of store number `n` of the block; None if it does not accumulate. `values`: iterators' bindings."""
    s = b.body[n]
    match update_of(b):
        case Combination(reducer=reducer, values=parts):
            types = " ".join(map(str, reducer.dtypes))
            made = Accumulation(f"{reducer.name} {n} of {reducer.text}{_TYPES}{types}", Call(PAIR, parts))
            return replace(made, term=substitute(made.term, values))
        case _ if is_fold(s) and isinstance(s.value, (Binary, Logic)):
            made = Accumulation(s.value.op, s.value.rhs)
        case _:
            return None
    return Accumulation(f"{made.kind} {dtype_of(s.value)}", substitute(made.term, values))


_TYPES = " for "


@lru_cache(maxsize=256)
def combined(kind: str) -> tuple[int, tuple[Const, ...]] | None:
    """Of a reduction of several values, or by a reducer of the file, the number of the value that its kind is about, and the
    identity."""
    head, of, rest = kind.partition(" of ")
    text, _, types = rest.rpartition(_TYPES)
    if not of:
        return None
    found = combiner(text, tuple(DTYPES[t] for t in types.split()))
    assert found is not None, kind
    return int(head.split()[1]), found.identity


def kind_of_value(kind: str, n: int) -> str:
    """The kind of value number `n` of a reduction of several."""
    head, of, rest = kind.partition(" of ")
    return f"{head.split()[0]} {n}{of}{rest}"


# How a question about instances ends if it does not prove what it should: an example that refutes it, or no decision.


class Refuted(Exception):
    """The programs differ, or the scheduled one breaks a rule; the diagnostic has the facts."""

    def __init__(self, diagnostic: Diagnostic, sizes: ExampleSizes | None) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.sizes = sizes
        """The open dimensions of the example; None if no run could show more than the text does."""


class Undecided(Exception):
    """Integer sets cannot decide the question. The message is the reason."""


class TooMany(Undecided):
    """A proof that is allowed little effort would take more."""


@frozen
class ExampleSizes:
    """Open dimensions with their sizes; in messages ` with M=3`."""

    values: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        told = ", ".join(f"{name}={value}" for name, value in self.values)
        return f" with {told}" if told else ""


def example(found: isl.Set, sizes: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], ExampleSizes]:
    """A point of a nonempty set, cut into vectors of the given lengths, and the open dimensions of the point."""
    point = found.flatten().sample_point()
    n = point.get_space().dim(isl.dim_type.set)
    values = [point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(n)]
    out: list[tuple[int, ...]] = []
    for size in sizes:
        out.append(tuple(values[:size]))
        values = values[size:]
    space = point.get_space()
    params = range(space.dim(isl.dim_type.param))
    names = [str(space.get_dim_name(isl.dim_type.param, k)) for k in params]
    numbers = [point.get_coordinate_val(isl.dim_type.param, k).to_python() for k in params]
    return tuple(out), ExampleSizes(tuple(zip(names, numbers, strict=True)))


def at(s: Statement, values: Sequence[int]) -> str:
    """An instance as text: `block C at i=3, j=4`."""
    numbers: dict[tuple[Counted, ...], int] = {}
    for d, v in zip(s.digits, values, strict=False):
        numbers[d.loops] = numbers.get(d.loops, 0) + d.unit * v
    told = ", ".join(
        f"{c.loop}={(n if c.upto is None else n % c.upto) // c.unit}" for loops, n in numbers.items() for c in loops
    )
    return f"{s} at {told}" if told else str(s)


def element(buffer: str, values: Sequence[int]) -> str:
    return f"`{buffer}[{', '.join(map(str, values))}]`"


def point(values: Sequence[int]) -> isl.Set:
    """The set with one point."""
    return isl.Set(f"{{ [{', '.join(map(str, values))}] }}")


def element_at(
    code: Code, s: Statement, values: Sequence[int], buffer: str, indices: tuple[Expr, ...]
) -> tuple[int, ...]:
    """The element that an instance accesses; the values of the loops to which its buffer is private come first."""
    image = point(values).apply(code.touched(s, buffer, indices))
    (whole,), _ = example(image, [image.dim(isl.dim_type.set)])
    return whole


def written_by(code: Code, s: Statement, values: Sequence[int]) -> str:
    """The element that an instance writes, as text."""
    whole = element_at(code, s, values, s.store.buffer, s.store.indices)
    return element(s.store.buffer, whole[len(code.homes[s.store.buffer]) :])
