"""Puts barriers between phases, by proof: only where two threads meet at an element.

A barrier is needed before a phase if a thread accesses an element that another thread has accessed since the last barrier,
and one of them writes it. Whether that can happen is decided by integer sets, access by access; what is not affine may be
anything. Phases of a loop also follow those of the iteration before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.kernels import (
    BLOCK_AXES,
    FIRST,
    THREAD,
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
    DeviceKernel,
    Guard,
    InitMbarriers,
    LookBack,
    Phase,
    ProxyFence,
    Role,
    Steps,
    Ticket,
    TmaLoad,
    TmaStore,
    WaitGroup,
    WaitMbarrier,
    WaitTmaStores,
    WgmmaFence,
    WgmmaWait,
    barriers_in,
)
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Compare,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    children,
    constant,
    free_vars,
    index,
    sub,
    substitute,
)
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Loop, Shuffle
from tensorc_dsl.proof.sets.linear_forms import negate
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import conjuncts

# What a phase reads and writes of memory that threads share, with the loops and conditions of each access.


Loops = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Access:
    """One element of a buffer for each thread and each iteration of the loops, where all conditions hold. `atomic` names the
    block whose updates do not meet each other, if this is one of them."""

    buffer: str
    write: bool
    index: Expr
    loops: Loops
    conds: tuple[Expr, ...]
    atomic: str = ""
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        own = hash((self.buffer, self.write, self.index, self.loops, self.conds, self.atomic))
        object.__setattr__(self, "_hash", own)  # which takes long, and sets of accesses ask for it again and again

    def __hash__(self) -> int:
        return self._hash


def accesses(body: tuple[Flat, ...], private: Collection[str]) -> tuple[Access, ...]:
    """The distinct accesses of one thread to buffers that are not private to it."""
    return tuple(dict.fromkeys(_stmts(body, frozenset(private), (), ())))


def _stmts(body: tuple[Flat, ...], private: frozenset[str], loops: Loops, conds: tuple[Expr, ...]) -> Iterator[Access]:
    for s in body:
        match s:
            case Store(buffer=buffer, indices=(index,), value=value, atomic=atomic):
                own = (
                    private | {buffer} if atomic else private
                )  # an update reads what it changes, and nothing else of it
                for e in (index, value):
                    yield from _read(e, own, loops, conds)
                if buffer not in private:
                    yield Access(buffer, True, index, loops, conds, atomic)
            case Loop(var=var, end=end, body=inside):
                yield from _stmts(inside, private, (*loops, (var, end)), conds)
            case If(cond=cond, body=inside):
                yield from _read(cond, private, loops, conds)
                yield from _stmts(inside, private, loops, (*conds, *conjuncts(cond)))
            case Collective(body=inside) | Shuffle(body=inside):
                yield from _stmts(inside, private, loops, conds)
            case Alloc(name=name, body=inside):
                yield from _stmts(inside, private | {name}, loops, conds)
            case _:
                raise AssertionError("a phase has no such statement")


def _read(e: Expr, private: frozenset[str], loops: Loops, conds: tuple[Expr, ...]) -> Iterator[Access]:
    for x, inner in loads_under(e, conds):
        if x.buffer not in private:
            yield Access(x.buffer, False, x.indices[0], loops, inner)


def loads_under(e: Expr, conds: tuple[Expr, ...]) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """The loads of an expression, each with the conditions under which it happens."""
    match e:
        case Load(indices=indices):
            yield e, conds
            for i in indices:
                yield from loads_under(i, conds)
        case Select(cond=cond, then=then, other=other):
            yield from loads_under(cond, conds)
            yield from loads_under(then, (*conds, *conjuncts(cond)))
            yield from loads_under(other, (*conds, negate(cond)))
        case Logic(op=op, lhs=a, rhs=b):
            yield from loads_under(a, conds)
            yield from loads_under(b, (*conds, *(conjuncts(a) if op == "and" else (negate(a),))))
        case _:
            for part in children(e):
                yield from loads_under(part, conds)


_BEFORE = "'"
"""What the names of variables of the earlier of two phases end with."""

_ROUNDS = 4
"""How often a loop's body is gone through until what is under way at its end is the same; the first rounds settle it."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A phase since which there was no barrier; `conds` relate the loops around it, with primes, to those of the place."""

    accesses: tuple[Access, ...]
    steps: tuple[tuple[str, Expr], ...]
    conds: tuple[Expr, ...]
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.accesses, self.steps, self.conds)))

    def __hash__(self) -> int:
        return self._hash


Pending = tuple[_Item, ...]

_ELEMENT = "tma.element"
"""The variable that counts the elements of a buffer that TMA stores have read."""

_MBARRIERS = "mbarrier."
"""What stands for the mbarriers of a block, as a buffer; no name of a program ends so."""


def with_barriers(kernel: DeviceKernel) -> DeviceKernel:
    """The kernel with a barrier wherever a thread meets what another one has read or written, and nowhere else."""
    body = _placed(kernel.body, kernel.threads, kernel.grid, [b.name for b in kernel.local])
    return replace(kernel, body=body)


def needs_barrier(body: tuple[Device, ...], threads: int, grid: Sequence[Expr]) -> bool:
    """Whether threads meet each other's accesses in statements without private storage."""
    return barriers_in(_placed(body, threads, grid, ())) > 0


def _placed(body: tuple[Device, ...], threads: int, grid: Sequence[Expr], private: Sequence[str]) -> tuple[Device, ...]:
    return _Placer(threads, dict(zip(BLOCK_AXES, grid, strict=True)), private).run(body, (), (), ())[0]


@dataclass(frozen=True, slots=True)
class _Found:
    """Statements, which are kept so that no others get their identity, and their accesses."""

    body: tuple[Flat, ...]
    accesses: tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class _Placer:
    threads: int
    grid: Mapping[str, Expr]
    private: Sequence[str]
    known: dict[tuple[object, ...], bool] = field(default_factory=dict[tuple[object, ...], bool])
    found: dict[tuple[int, tuple[Expr, ...]], _Found] = field(
        default_factory=dict[tuple[int, tuple[Expr, ...]], _Found]
    )
    """By the identity of statements and the conditions around them: loops are gone through several times."""
    loops: dict[tuple[int, Pending, tuple[tuple[str, Expr], ...], tuple[Expr, ...]], tuple[Steps, Pending]] = field(
        default_factory=dict[tuple[int, Pending, tuple[tuple[str, Expr], ...], tuple[Expr, ...]], tuple[Steps, Pending]]
    )
    """What loops become, by their identity, behind what is under way: else each loop around one doubles its rounds."""

    def run(
        self, body: tuple[Device, ...], pending: Pending, steps: tuple[tuple[str, Expr], ...], guards: tuple[Expr, ...]
    ) -> tuple[tuple[Device, ...], Pending]:
        """The statements with barriers, and what is under way behind them."""
        out: list[Device] = []
        for s in body:
            match s:
                case Phase():
                    mine = self._of(s.body, guards)
                    pending = self._before(mine, pending, steps, out)
                    out.append(s)
                    pending = _joined(pending, self._under_way(mine, steps))
                case WaitGroup(landed=landed):
                    out.append(s)  # what it makes visible to its own thread, others see behind a barrier
                    pending = _joined(pending, self._under_way(self._of(landed, guards), steps))
                case TmaLoad(at=at, body=inner):
                    mine = (*self._of(inner, (FIRST, *guards)), self._mbarrier(True, at, guards))
                    pending = self._before(mine, pending, steps, out)
                    out.append(s)  # all threads wait for it themselves, before they access what it stores
                case TmaStore(body=inner):
                    pending = self._before(self._of(inner, (FIRST, *guards)), pending, steps, out)
                    out.append(s)  # its thread waits for it itself, before others write what it reads
                case WaitTmaStores(buffers=buffers):
                    out.append(s)
                    mine = tuple(
                        Access(name, False, Var(_ELEMENT), ((_ELEMENT, index(size)),), (FIRST, *guards))
                        for name, size in buffers
                    )
                    pending = _joined(pending, self._under_way(mine, steps))
                case WaitMbarrier(at=at):
                    mine = (self._mbarrier(False, at, guards),)
                    pending = self._before(mine, pending, steps, out)
                    out.append(s)
                    pending = _joined(pending, self._under_way(mine, steps))
                case Role(threads=count, body=inner):
                    # Behind a barrier, and what roles pass each other waits at mbarriers: see `roles`.
                    own = _Placer(count, self.grid, self.private)
                    out.append(replace(s, body=own.run(inner, (), steps, guards)[0]))
                case LookBack():
                    mine = self._of(s.shown, (FIRST, *guards))
                    pending = self._before(mine, pending, steps, out)
                    out.append(s)
                    pending = _joined(pending, self._under_way(mine, steps))
                case (
                    InitMbarriers()
                    | ArriveMbarrier()
                    | CommitGroup()
                    | ProxyFence()
                    | WgmmaFence()
                    | WgmmaWait()
                    | Ticket()
                ):
                    out.append(s)  # all threads know what is set up behind the barrier that stands there
                case Barrier():
                    out.append(s)
                    pending = ()
                case Guard(cond=cond, body=inner):
                    inside, after = self.run(inner, pending, steps, (*guards, *conjuncts(cond)))
                    out.append(replace(s, body=inside))
                    if any(isinstance(x, Barrier) for x in inside):
                        pending = _but_for(pending, cond)
                    pending = _joined(pending, after)
                case Steps():
                    found, after = self._loop(s, pending, steps, guards)
                    if pending and barriers_in((found,)) > barriers_in((self._loop(s, (), steps, guards)[0],)):
                        # What only the first iteration has to wait for, it waits for before the loop.
                        out.append(Barrier())
                        found, after = self._loop(s, (), steps, guards)
                    out.append(found)
                    pending = after
                case _:
                    assert_never(s)
        return tuple(out), pending

    def _before(
        self, mine: tuple[Access, ...], pending: Pending, steps: tuple[tuple[str, Expr], ...], out: list[Device]
    ) -> Pending:
        """What is under way before accesses: nothing behind the barrier that is added to `out` if some of it meets them."""
        if not any(self._meet(p, mine, steps) for p in pending):
            return pending
        out.append(Barrier())
        return ()

    def _of(self, body: tuple[Flat, ...], guards: tuple[Expr, ...]) -> tuple[Access, ...]:
        key = (id(body), guards)
        if key not in self.found:
            own = accesses(body, self.private)
            self.found[key] = _Found(body, tuple(replace(a, conds=(*a.conds, *guards)) for a in own))
        return self.found[key].accesses

    def _mbarrier(self, write: bool, at: Expr, guards: tuple[Expr, ...]) -> Access:
        """The access to an mbarrier of the one thread that says what is to come, or of each that waits."""
        return Access(_MBARRIERS, write, at, (), (FIRST, *guards) if write else guards)

    def _under_way(self, mine: tuple[Access, ...], steps: tuple[tuple[str, Expr], ...]) -> Pending:
        """Accesses at a place inside of these loops, for what follows in the same iteration."""
        same = tuple(Compare("==", Var(v + _BEFORE), Var(v)) for v, _ in steps)
        return (_Item(mine, steps, same),) if mine else ()

    def _loop(
        self, s: Steps, pending: Pending, steps: tuple[tuple[str, Expr], ...], guards: tuple[Expr, ...]
    ) -> tuple[Steps, Pending]:
        key = (id(s), pending, steps, guards)
        if key not in self.loops:
            body, after = self._rounds(s, pending, steps, guards, False)
            if any(isinstance(x, Barrier) for x in body):
                # With a barrier in each iteration, only the last one and the one before are under way.
                exact, behind = self._rounds(s, pending, steps, guards, True)
                if any(isinstance(x, Barrier) for x in exact):
                    body, after = exact, behind
            self.loops[key] = replace(s, body=body), after
        return self.loops[key]

    def _rounds(
        self, s: Steps, pending: Pending, steps: tuple[tuple[str, Expr], ...], guards: tuple[Expr, ...], apart: bool
    ) -> tuple[tuple[Device, ...], Pending]:
        """The body, and what is under way behind the loop; if `apart`, each iteration has a barrier."""
        var, before = Var(s.var), Var(s.var + _BEFORE)
        inner = (*steps, (s.var, s.end))
        entered = tuple(replace(p, conds=(*p.conds, Compare("==", var, ZERO))) for p in pending) if apart else pending
        previous = Compare("==", before, sub(var, ONE)) if apart else Compare("<", before, var)
        carried: Pending = ()
        for _ in range(_ROUNDS):
            body, after = self.run(s.body, _joined(entered, carried), inner, guards)
            own = [p for p in after if len(p.steps) >= len(inner) and p.steps[: len(inner)] == inner]
            again = _joined((), (_again(p, s.var, previous) for p in own))
            if set(again) <= set(carried):
                break
            carried = _joined(carried, again)
        else:
            raise AssertionError("what is under way in a loop does not settle")
        last = (Compare("==", before, sub(substitute(s.end, _primed(s.end)), ONE)),) if apart else ()
        left = tuple(replace(p, conds=(*_without(p.conds, s.var), *last)) for p in own)
        runs = (constant(s.end) or 0) > 0
        return body, _joined(() if apart and runs else pending, left)

    def _meet(self, p: _Item, mine: tuple[Access, ...], steps: tuple[tuple[str, Expr], ...]) -> bool:
        """Whether different threads can meet at an element in the earlier phase and in this one, where one writes it, and
        they are no updates of one atomic block."""
        return any(
            a.buffer == b.buffer
            and (a.write or b.write)
            and not (a.atomic and a.atomic == b.atomic)
            and self._may_meet(p, a, b, steps)
            for a in p.accesses
            for b in mine
        )

    def _may_meet(self, p: _Item, a: Access, b: Access, steps: tuple[tuple[str, Expr], ...]) -> bool:
        key = (p.steps, p.conds, a, b, steps)
        if key not in self.known:
            names = {v: Var(v + _BEFORE) for v in (THREAD, *(v for v, _ in (*p.steps, *a.loops)))}
            extents: dict[str, Expr] = {THREAD: index(self.threads), THREAD + _BEFORE: index(self.threads), **self.grid}
            extents |= {v + _BEFORE: substitute(e, names) for v, e in (*p.steps, *a.loops)}
            extents |= dict((*steps, *b.loops))
            conds = [
                Compare("!=", Var(THREAD + _BEFORE), Var(THREAD)),
                Compare("==", substitute(a.index, names), b.index),
            ]
            every = (*conds, *(substitute(c, names) for c in a.conds), *b.conds, *p.conds)
            try:
                self.known[key] = feasible(extents, affine_only(every))
            except NotAffine:
                self.known[key] = True
        return self.known[key]


def _primed(e: Expr) -> dict[str, Expr]:
    return {v: Var(v + _BEFORE) for v in free_vars(e)}


def _again(p: _Item, var: str, previous: Expr) -> _Item:
    return replace(p, conds=(*_without(p.conds, var), previous))


def _without(conds: Iterable[Expr], var: str) -> tuple[Expr, ...]:
    """The conditions that do not speak of a loop."""
    return tuple(c for c in conds if not free_vars(c) & {var, var + _BEFORE})


def _but_for(pending: Pending, cond: Expr) -> Pending:
    """What is under way behind a barrier that stands under a condition: what was, where it does not hold."""
    one = conjuncts(cond)
    if len(one) != 1 or not isinstance(one[0], Compare):
        return pending
    missed = negate(one[0])
    return tuple(p if missed in p.conds else replace(p, conds=(*p.conds, missed)) for p in pending)


def _joined(a: Pending, b: Iterable[_Item]) -> Pending:
    return tuple(dict.fromkeys((*a, *b)))
