"""Private storage: the elements of a `local` buffer that each thread owns, proved to be no other thread's.

A `local` buffer above the threads of its kernel is one array in the program. Here each thread has an array of its own with
the elements that it touches. That is the same if no two threads touch one element, which is counted for all threads of a
block: a subscript is the sum of a part that depends on the thread, the same in all accesses, and of a rest that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.backend.cuda.lower.axes import Axes
from tensorc_dsl.backend.cuda.lower.kernels import (
    THREAD,
    Device,
    DeviceKernel,
    Local,
    LookBack,
    Nested,
    Phase,
    Steps,
    inside,
)
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.frozen import replace as replace_node
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
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
    add,
    conjunction,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
    sub,
    substitute,
)
from tensorc_dsl.ir.expr import floordiv as div
from tensorc_dsl.ir.expr import floormod as mod
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer, LoopKind, Store, map_store
from tensorc_dsl.lower.flat import (
    Collective,
    Flat,
    If,
    Loop,
    LowerError,
    Shuffle,
    buffers_of,
    span,
    store_loads,
    stores,
    within,
)
from tensorc_dsl.lower.flat import inside as inside_flat
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, linear_form, simplify

# Private storage of threads that have no work: it is defined as that of others is, so that no register is kept for it.
#
# If some warps have no tile, `if thread / 32 < 2 { C = 0 }` stands before products under the same condition. In a loop
# around both, ptxas takes the registers of `C` for used from one iteration to the next, since a path leads past the zeros.
# It does not compare conditions. Without the first condition all threads store zeros, and those who have no tile read none
# of them.


Conditions = frozenset[Expr]


def with_idle_defined(k: DeviceKernel) -> DeviceKernel:
    """The kernel in which all threads store constants to private storage that only some of them access later."""
    shared: dict[str, Conditions] = {}
    private = {b.name for b in k.local} - set(_passed_on(k.body))
    for s in inside(k.body):
        if isinstance(s, Phase):
            for name, conds in _accesses_of_idle(s.body, frozenset()):
                if name in private:
                    shared[name] = shared.get(name, conds) & conds
    some = {name: conds for name, conds in shared.items() if conds}
    return replace_node(k, body=_devices(k.body, some)) if some else k


def _passed_on(body: tuple[Device, ...]) -> Iterator[str]:
    """The buffers that statements outside of phases access."""
    for s in inside(body):
        if isinstance(s, LookBack):
            for x in stores((*s.terms, s.made, s.before)):
                yield from (x.buffer, *(y.buffer for y in store_loads(x)))


def _accesses_of_idle(body: tuple[Flat, ...], conds: Conditions) -> Iterator[tuple[str, Conditions]]:
    """The buffers that statements access, each with the conditions on the thread alone under which they do."""
    for s in body:
        match s:
            case Store():
                yield from ((name, conds) for name in (s.buffer, *(x.buffer for x in store_loads(s))))
            case If(cond=cond):
                yield from ((x.buffer, conds) for x in loads(cond))
                own = (c for c in conjuncts(cond) if free_vars(c) == frozenset((THREAD,)) and not loads(c))
                yield from _accesses_of_idle(s.body, conds | set(own))
            case _:
                yield from _accesses_of_idle(s.body, conds)


def _devices(body: tuple[Device, ...], some: Mapping[str, Conditions]) -> tuple[Device, ...]:
    out: list[Device] = []
    for s in body:
        if isinstance(s, Nested):
            s = replace_node(s, body=_devices(s.body, some))
        elif isinstance(s, Phase):
            s = replace_node(s, body=_flat(s.body, some))
        out.append(s)
    return tuple(out)


def _flat(body: tuple[Flat, ...], some: Mapping[str, Conditions]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace_node(s, body=_flat(s.body, some))
        if isinstance(s, If) and (needless := _needless(s.body, some)):
            kept = conjunction(tuple(c for c in conjuncts(s.cond) if c not in needless))
            out += s.body if kept is None else (replace_node(s, cond=kept),)
        else:
            out.append(s)
    return tuple(out)


def _needless(body: tuple[Flat, ...], some: Mapping[str, Conditions]) -> Conditions:
    """The conditions without which a body may run: it stores constants alone, at places that are the same in all threads,
    and these conditions are around every access to what it stores."""
    every = tuple(stores(body))
    fixed = all(not store_loads(s) and THREAD not in free_vars(s.value) | free_vars(s.indices[0]) for s in every)
    found = [some.get(s.buffer, Conditions()) for s in every]
    return found[0].intersection(*found) if found and fixed else Conditions()


# Values of index expressions in many threads at once.


Numbers = NDArray[np.int64]

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.floor_divide, "%": np.mod, "min": np.minimum,
    "max": np.maximum, "xor": np.bitwise_xor, "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def evaluate(e: Expr, values: Mapping[str, Numbers]) -> Numbers:
    """The value of an expression for each value of its variables, which have one shape; booleans are 0 and 1.

    Raises LowerError if it depends on anything else, such as data.
    """
    match e:
        case Var(name=name) | Dim(name=name) if name in values:
            return values[name]
        case Const(value=int(value)):
            return np.full_like(next(iter(values.values())), value)
        case Binary(op=op, lhs=a, rhs=b) | Compare(op=op, lhs=a, rhs=b) | Logic(op=op, lhs=a, rhs=b) if op in _BINARY:
            return _BINARY[op](evaluate(a, values), evaluate(b, values)).astype(np.int64)
        case Not(operand=a):
            return 1 - evaluate(a, values)
        case Select(cond=c, then=a, other=b):
            return np.where(evaluate(c, values) != 0, evaluate(a, values), evaluate(b, values))
        case Cast(operand=a, dtype=t) if not t.is_float:
            return evaluate(a, values)
        case _:
            raise LowerError(f"which elements a thread owns is not known: they depend on `{format_expr(e)}`")


MOST_VALUES = 1 << 16
"""The largest number of elements along one dimension that a thread may own; more cannot be in registers by far."""


@frozen
class _Access:
    """Subscripts over `thread`, with the ranges of the loops around, the bound loops among them, and the conditions on the
    thread alone. All lanes of a warp contribute a value to a shuffle, which is not used if the thread has no element.
    """

    indices: tuple[Expr, ...]
    ranges: Ranges
    bound: tuple[str, ...]
    conditions: tuple[Expr, ...]
    gives: bool


@frozen
class _Part:
    """A subscript without its thread: atoms with their factors, and the constant."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int
    ranges: Ranges

    def values(self) -> Numbers:
        """All its values, sorted."""
        found = np.array([self.constant], np.int64)
        for atom, factor in self.terms:
            low, high = _range(atom, self.ranges)
            found = np.unique(found[:, None] + factor * np.arange(low, high + 1)[None, :])
            if len(found) > MOST_VALUES:
                raise LowerError(f"a thread would own {len(found)} elements of one buffer")
        return found


def _range(atom: Expr, ranges: Ranges) -> tuple[int, int]:
    """The smallest and largest value of an atom. Raises LowerError if they are not known."""
    low, high = bounds(atom, ranges)
    if low is None or high is None:
        raise LowerError(f"the values of `{format_expr(atom)}` are not known")
    return low, high


def own(body: tuple[Flat, ...], b: Buffer, home: Collection[str], axes: Axes) -> tuple[tuple[Flat, ...], Local]:
    """The body with one subscript in each access to a private buffer, and the storage of a thread.

    `home` are the loops each of whose iterations has a buffer of its own. Raises LowerError if two threads touch an element.
    """
    found = sorted(_accesses(body, b.name, axes), key=lambda a: a.gives)
    outer = {THREAD, *axes.of_grid, *home}
    split = [_split(a, outer, b.name) for a in found]
    columns = [[parts[d] for _, parts in split] for d in range(len(b.shape))]
    parts, on = _parts_of_threads(b, found, [t for t, _ in split], axes)
    values = [reduce(np.union1d, (p.values() for p in parts)) for parts in columns]
    _require_apart(b, parts, on, values, [v for v in home if axes.is_thread(v)], axes)
    sizes = [_dense(v) for v in values]
    table: dict[tuple[Expr, ...], Expr] = {}
    for a, (_, parts) in zip(found, split, strict=True):
        at: Expr = ZERO
        for part, (size, first, run, stride) in zip(parts, sizes, strict=True):
            rest = sub(_expression(part), index(first))
            if stride:
                rest = add(mul(div(rest, index(stride)), index(run)), mod(rest, index(stride)))
            at = add(mul(at, index(size)), simplify(rest, a.ranges))
        table[a.indices] = simplify(at, a.ranges)
    size = int(np.prod([s[0] for s in sizes], dtype=np.int64))
    return _rewritten(body, b.name, table, {v: axes.value(v) for v in axes.loops}), Local(b.name, b.dtype, size)


def _accesses(body: tuple[Flat, ...], name: str, axes: Axes) -> list[_Access]:
    out: list[_Access] = []
    values = {v: axes.value(v) for v in axes.loops}

    def go(
        part: tuple[Flat, ...], ranges: Ranges, bound: tuple[str, ...], met: tuple[Expr, ...], gives: bool = False
    ) -> None:
        for s in part:
            if isinstance(s, Store):
                if name in buffers_of(s):
                    used = [s.indices] if s.buffer == name else []
                    used += [x.indices for x in store_loads(s) if x.buffer == name]
                    out.extend(
                        _Access(tuple(substitute(i, values) for i in u), ranges, bound, met, gives) for u in used
                    )
            elif isinstance(s, Loop):
                inner = (*bound, s.var) if s.var in axes.loops else bound
                go(s.body, within(ranges, s), inner, met)
            elif isinstance(s, If):
                conditions = (substitute(c, values) for c in conjuncts(s.cond))
                go(s.body, ranges, bound, (*met, *filter(_is_of_thread, conditions)))
            else:
                go(s.body, ranges, bound, met, isinstance(s, Shuffle))

    go(body, {THREAD: (0, axes.threads - 1)}, (), ())
    return out


def _split(a: _Access, outer: Collection[str], name: str) -> tuple[list[dict[Expr, int]], list[_Part]]:
    """Of each subscript the part that depends on the thread and on what is around, and the rest."""
    around: list[dict[Expr, int]] = []
    rest: list[_Part] = []
    for e in a.indices:
        terms, constant = linear_form(e, a.ranges)
        own: dict[Expr, int] = {}
        for atom, factor in terms.items():
            names = free_vars(atom)
            if names & set(outer):
                if any(v not in outer for v in names if v in a.ranges):
                    raise LowerError(
                        f"which elements of `{name}` a thread owns is not known: `{format_expr(atom)}` depends on the thread"
                        ' and on a loop inside it; make the tile of a thread a divisor, or store it in "shared"'
                    )
                own[atom] = factor
        around.append(own)
        rest.append(_Part(tuple((x, c) for x, c in terms.items() if x not in own), constant, a.ranges))
    return around, rest


def _is_of_thread(e: Expr) -> bool:
    """Whether an expression depends on the thread and on nothing else."""
    return free_vars(e) == frozenset((THREAD,))


def of_block(threads: int) -> dict[str, Numbers]:
    """The numbers of the threads of a block."""
    return {THREAD: np.arange(threads, dtype=np.int64)}


def of_threads(terms: dict[Expr, int], threads: int) -> Numbers:
    """The sum of the terms over `thread` alone, for each thread."""
    total = np.zeros(threads, np.int64)
    for atom, factor in terms.items():
        if _is_of_thread(atom):
            total += factor * evaluate(atom, of_block(threads))
    return total


def running(bound: Sequence[str], axes: Axes) -> NDArray[np.bool_]:
    """The threads that run a statement inside of these bound loops."""
    on = np.ones(axes.threads, np.bool_)
    for c in axes.conditions(bound):
        on &= evaluate(c, of_block(axes.threads)) != 0
    return on


def _runs(a: _Access, axes: Axes) -> NDArray[np.bool_]:
    """The threads that may make an access."""
    on = running(a.bound, axes)
    for c in a.conditions:
        on &= evaluate(c, of_block(axes.threads)) != 0
    return on


def _parts_of_threads(
    b: Buffer, found: Sequence[_Access], around: Sequence[list[dict[Expr, int]]], axes: Axes
) -> tuple[list[Numbers], NDArray[np.bool_]]:
    """For each dimension the part of the subscripts that a thread has in all of its accesses, and the threads that have one.

    Raises LowerError if a thread has another part in one access than in another.
    """
    on = np.zeros(axes.threads, np.bool_)
    first = np.zeros(axes.threads, np.int64)
    parts = [np.zeros(axes.threads, np.int64) for _ in b.shape]
    known: dict[frozenset[tuple[Expr, int]], Numbers] = {}  # most accesses have the same part
    for n, (a, terms) in enumerate(zip(found, around, strict=True)):
        own = _runs(a, axes) & on if a.gives else _runs(a, axes)
        for d, x in enumerate(terms):
            key = frozenset(x.items())
            if key not in known:
                known[key] = of_threads(x, axes.threads)
            here = known[key]
            apart = own & on & (here != parts[d])
            if n and _not_of_thread(x) != _not_of_thread(around[0][d]):
                apart = np.ones(axes.threads, np.bool_)
            if apart.any():
                other = found[int(first[int(np.argmax(apart))])]
                raise LowerError(
                    f"threads own other elements of `{b.name}` in one nest than in another: dimension {d} is"
                    f" `{format_expr(other.indices[d])}` and `{format_expr(a.indices[d])}`; divide both nests among"
                    ' threads in one way, or store it in "shared"'
                )
            parts[d] = np.where(own & ~on, here, parts[d])
        first = np.where(own & ~on, n, first)
        on |= own
    return parts, on


def _not_of_thread(terms: dict[Expr, int]) -> dict[Expr, int]:
    return {e: c for e, c in terms.items() if not _is_of_thread(e)}


def _require_apart(
    b: Buffer,
    parts: Sequence[Numbers],
    on: NDArray[np.bool_],
    values: Sequence[Numbers],
    home: Sequence[str],
    axes: Axes,
) -> None:
    """Raises LowerError if two threads of one home touch the same element. `parts` are those of `on`, the threads that
    touch one.
    """
    columns = [p[on] for p in parts]
    columns += [evaluate(simplify(axes.value(v), {}), of_block(axes.threads))[on] for v in home]
    none = np.zeros(1, np.int64)
    rows = np.stack([*columns, np.zeros(int(on.sum()), np.int64)], axis=1)
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    clash = bool((counts > 1).any())
    if not clash and len(kinds) > 1:
        meet = np.ones((len(kinds), len(kinds)), np.bool_)
        for d, v in enumerate((*values, *([none] * len(home)))):
            apart = kinds[:, None, d] - kinds[None, :, d]
            meet &= np.isin(apart, np.unique(v[:, None] - v[None, :]))
        np.fill_diagonal(meet, False)
        clash = bool(meet.any())
    if clash:
        raise LowerError(
            f"two threads touch the same element of `{b.name}`, of which each thread would have a copy of its own; store it"
            ' in "shared", or divide it among the threads'
        )


def _dense(values: Numbers) -> tuple[int, int, int, int]:
    """How values are numbered densely: how many numbers, the first value, and the length and distance of runs (0: one run).

    Runs at one distance, as virtual threads make them, are moved together; other holes stay.
    """
    if not len(values):  # in loops without iterations
        return 1, 0, 0, 0
    first, last = int(values[0]), int(values[-1])
    size = last - first + 1
    if size == len(values):
        return size, first, 0, 0
    breaks = np.flatnonzero(np.diff(values) != 1) + 1
    run = int(breaks[0])
    stride = int(values[run] - first)
    n = np.arange(len(values))
    if len(values) % run == 0 and np.array_equal(values, first + n // run * stride + n % run):
        return len(values), first, run, stride
    return size, first, 0, 0


def _expression(part: _Part) -> Expr:
    total: Expr = index(part.constant)
    for atom, factor in part.terms:
        total = add(total, mul(atom, index(factor)))
    return total


def _rewritten(
    body: tuple[Flat, ...], name: str, table: dict[tuple[Expr, ...], Expr], values: dict[str, Expr]
) -> tuple[Flat, ...]:
    def expr(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer == name:
            return Load(name, (table[tuple(substitute(i, values) for i in e.indices)],), e.dtype)
        return e

    def stmt(s: Flat) -> Flat:
        if not isinstance(s, Store):
            return replace(s, body=tuple(map(stmt, s.body)))
        if name not in buffers_of(s):
            return s
        indices = tuple(rewrite_expr(i, expr) for i in s.indices)
        if s.buffer == name:
            indices = (table[tuple(substitute(i, values) for i in s.indices)],)
        return replace(s, indices=indices, value=rewrite_expr(s.value, expr))

    return tuple(map(stmt, body))


# Versions of private storage that the number of a step chooses: choices among registers, which have no addresses.
#
# A scan that keeps two steps stores to `m[p % 2]`, and a pipeline gives each iteration in flight a version. Private storage
# is in registers if all of its subscripts are known once short loops are unrolled, and loops around barriers are not
# unrolled. So such a store becomes one under a condition for each version, and such a load a choice between them. What is
# chosen among, and what is stored, is first in storage of its own: LLVM would make one load of two whose addresses a
# condition chooses.


MOST = 4
"""The most versions that are chosen among: each takes an instruction for every access."""


def with_choices(k: DeviceKernel) -> DeviceKernel:
    """The kernel with choices among the versions of its private storage."""
    private = {b.name: b.dtype for b in k.local if b.name not in _in_lanes_of_vectors(k.body)}
    if not private:
        return k
    made: list[Local] = []
    body = _devices_of_versions(k.body, private, {}, made)
    return replace_node(k, body=body, local=(*k.local, *made))


def _in_lanes_of_vectors(body: tuple[Device, ...]) -> frozenset[str]:
    """What instructions and vectors store or take as a whole: they have one place."""
    out: set[str] = set()
    for s in body:
        if isinstance(s, Nested):
            out |= _in_lanes_of_vectors(s.body)
        elif isinstance(s, Phase):
            for x in inside_flat(s.body):
                if isinstance(x, Collective) or (isinstance(x, Loop) and x.kind is LoopKind.VECTORIZED):
                    out |= {name for y in stores((x,)) for name in (y.buffer, *(z.buffer for z in store_loads(y)))}
    return frozenset(out)


def _devices_of_versions(
    body: tuple[Device, ...], private: Mapping[str, DType], steps: Ranges, made: list[Local]
) -> tuple[Device, ...]:
    out: list[Device] = []
    for s in body:
        if isinstance(s, Nested):
            inner = {**steps, s.var: span(s.end)} if isinstance(s, Steps) else steps
            out.append(replace_node(s, body=_devices_of_versions(s.body, private, inner, made)))
        elif isinstance(s, Phase) and steps:
            out.append(replace_node(s, body=_Chooser(private, steps, made).run(s.body, steps)))
        else:
            out.append(s)
    return tuple(out)


@frozen
class _Chooser:
    private: Mapping[str, DType]
    steps: Ranges
    """The loops around barriers."""
    made: list[Local]
    """The storage for what is chosen among."""

    def run(self, body: tuple[Flat, ...], ranges: Ranges) -> tuple[Flat, ...]:
        out: list[Flat] = []
        for s in body:
            if isinstance(s, Store):
                out += self._store(s, ranges)
            elif isinstance(s, Shuffle):
                out += self._shuffle(s, ranges)
            elif isinstance(s, Collective):
                out.append(s)
            else:
                inner = within(ranges, s) if isinstance(s, Loop) else ranges
                out.append(replace_node(s, body=self.run(s.body, inner)))
        return tuple(out)

    def _store(self, s: Store, ranges: Ranges) -> list[Flat]:
        out: list[Flat] = []
        chosen = map_store(s, lambda e: self._chosen(e, ranges, out))
        places = self._places(s.indices[0], ranges) if s.buffer in self.private else []
        if not places:
            return [*out, chosen]
        value = self._kept(s.buffer, chosen.value, out)
        return [*out, *(If(c, (replace_node(chosen, indices=(at,), value=value),)) for c, at in places)]

    def _shuffle(self, s: Shuffle, ranges: Ranges) -> list[Flat]:
        """A shuffle takes what is at one place, so a lane chooses first what it gives."""
        (store,) = s.body
        assert isinstance(store, Store) and isinstance(store.value, Load)  # as `shuffled` makes them
        out: list[Flat] = []
        value = self._chosen(store.value, ranges, out)
        if value == store.value:
            return [s]
        given = self._kept(store.value.buffer, value, out)
        return [*out, replace_node(s, body=(replace_node(store, value=given),))]

    def _kept(self, buffer: str, value: Expr, out: list[Flat]) -> Load:
        """A value in storage of its own."""
        name = f"{buffer}.version{len(self.made)}"
        self.made.append(Local(name, self.private[buffer], 1))
        out.append(Store(name, (ZERO,), value))
        return Load(name, (ZERO,), self.private[buffer])

    def _chosen(self, e: Expr, ranges: Ranges, out: list[Flat]) -> Expr:
        def choice(x: Expr) -> Expr:
            if not isinstance(x, Load) or x.buffer not in self.private:
                return x
            found = [
                (c, self._kept(x.buffer, replace_node(x, indices=(at,)), out))
                for c, at in self._places(x.indices[0], ranges)
            ]
            if not found:
                return x
            *others, (_, value) = found
            chosen: Expr = value
            for c, other in reversed(others):
                chosen = Select(c, other, chosen)
            return chosen

        return rewrite_expr(e, choice)

    def _places(self, e: Expr, ranges: Ranges) -> list[tuple[Expr, Expr]]:
        """For each value that the numbers of steps give a subscript the condition for it, and the subscript; none if there is
        one value, or too many of them."""
        terms, first = linear_form(e, ranges)
        number: Expr = ZERO
        rest: Expr = index(first)
        values = {0}
        for atom, factor in terms.items():
            if free_vars(atom).isdisjoint(self.steps):
                rest = add(rest, mul(atom, index(factor)))
                continue
            low, high = bounds(atom, ranges)
            if low is None or high is None or high - low >= MOST or not free_vars(atom) <= self.steps.keys():
                return []
            number = add(number, mul(atom, index(factor)))
            values = {v + factor * n for v in values for n in range(low, high + 1)}
        if not 1 < len(values) <= MOST:
            return []
        return [(Compare("==", number, index(v)), simplify(add(rest, index(v)), ranges)) for v in sorted(values)]
