"""Waits, fences and barriers: where they stand follows from what each statement touches, and when.

A statement touches memory that threads share as it starts. What it only starts runs beside the threads, until a wait says
that it is over. One pass over a kernel keeps what is under way (`UnderWay`), and places before a statement:

- a wait for TMA stores, if it writes a buffer that they may still read, and where a block ends;
- a barrier, if it accesses an element that another thread has accessed since the last barrier, and one of them writes it;
- a fence, with a barrier or a TMA store, if instructions beside threads read what threads have stored.

Whether threads meet at an element is decided by integer sets, access by access; what is not affine may be anything. Phases
of a loop also follow those of the iteration before.

The instructions of warpgroups read and write registers as well. So before a group of them a thread is done with these, and
it waits for the group before it accesses them again, or goes on to anything that is not for itself alone (`_awaited`). In a
loop where nothing that they read is written meanwhile, it waits for those of the round before (`overlapped`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.collectives import accesses_of, is_of_group, lane_operands
from tensorc_dsl.backend.cuda.lower.kernels import (
    FIRST,
    THREAD,
    ArriveMbarrier,
    Barrier,
    Device,
    DeviceKernel,
    Guard,
    LookBack,
    Nested,
    Phase,
    ProxyFence,
    Role,
    Signal,
    Steps,
    TmaLoad,
    TmaStore,
    WaitGroup,
    WaitMbarrier,
    WaitTmaStores,
    WgmmaFence,
    WgmmaWait,
    barriers_in,
    collectives_in,
    inside,
    outgoing_in,
    stores_in,
)
from tensorc_dsl.base.frozen import frozen
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
from tensorc_dsl.ir.warp import is_described
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Loop, Shuffle, buffers_of
from tensorc_dsl.proof.sets.linear_forms import negate
from tensorc_dsl.proof.sets.sets import NotAffine, affine_only, feasible
from tensorc_dsl.proof.sets.simplify import conjuncts, prove, simplify

# What a phase reads and writes of memory that threads share, with the loops and conditions of each access.


Loops = tuple[tuple[str, Expr], ...]


@frozen
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
        value = hash((self.buffer, self.write, self.index, self.loops, self.conds, self.atomic))
        object.__setattr__(self, "_hash", value)  # which takes long, and sets of accesses ask for it again and again

    def __hash__(self) -> int:
        return self._hash

    def inside(self, loops: Loops, conds: tuple[Expr, ...]) -> Access:
        """The access inside of loops and conditions."""
        return replace(self, loops=(*loops, *self.loops), conds=(*conds, *self.conds))


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


BEFORE = "'"
"""What the names of variables of the earlier of two accesses end with."""


def may_meet(a: Access, b: Access, extents: Mapping[str, Expr], conds: Sequence[Expr] = (), around: Loops = ()) -> bool:
    """Whether `a` may be of the same element as `b`, where some conditions hold. They have the blocks and loops of `extents`
    in common. The thread of `a`, the loops `around` it, and its own have names that end with `BEFORE`."""
    own = (*around, *a.loops)
    names = {v: Var(v + BEFORE) for v in (THREAD, *(v for v, _ in own))}
    every = {THREAD + BEFORE: extents[THREAD], **extents}
    every |= {v + BEFORE: substitute(e, names) for v, e in own}
    every |= dict(b.loops)
    same = Compare("==", substitute(a.index, names), b.index)
    try:
        return feasible(every, affine_only((same, *(substitute(c, names) for c in a.conds), *b.conds, *conds)))
    except NotAffine:
        return True


# Places waits for TMA stores, barriers and fences.


_ROUNDS = 4
"""How often a loop's body is gone through until what is under way at its end is the same; the first rounds settle it."""


@frozen
class _Item:
    """A statement since which there was no barrier; `conds` relate the loops around it, with names of `BEFORE`, to those of
    the place."""

    accesses: tuple[Access, ...]
    steps: Loops
    conds: tuple[Expr, ...]
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.accesses, self.steps, self.conds)))

    def __hash__(self) -> int:
        return self._hash


Pending = tuple[_Item, ...]


@frozen
class UnderWay:
    """What is not over at a place: the accesses since the last barrier, the buffers that TMA stores may still read, and
    whether threads have stored what instructions beside them read, with no fence since."""

    pending: Pending = ()
    outgoing: tuple[str, ...] = ()
    hidden: bool = False

    def __or__(self, other: UnderWay) -> UnderWay:
        """What is not over where two ways meet."""
        outgoing = dict.fromkeys((*self.outgoing, *other.outgoing))
        return UnderWay(_joined(self.pending, other.pending), tuple(outgoing), self.hidden or other.hidden)


_SILENT = Signal | ArriveMbarrier | Nested
"""What touches no memory that threads share, but for the statements inside."""

_ELEMENT = "tma.element"
"""The variable that counts the elements of a buffer that TMA stores have read."""

_MBARRIERS = "mbarrier."
"""What stands for the mbarriers of a block, as a buffer; no name of a program ends so."""


def synchronized(k: DeviceKernel) -> DeviceKernel:
    """The kernel with all waits, fences and barriers between its statements, and none that is not needed."""
    described = described_in(collectives_in(k.body))
    extents = k.extents
    placer = _Placer(
        k.threads,
        extents,
        [b.name for b in k.local],
        described | outgoing_in(k.body).keys(),
        {b.name: b.size for b in k.shared},
    )
    body = placer.whole(k.body, UnderWay(), (), ())[0]
    if described:
        body = _awaited(body, Around({**extents, THREAD: index(k.threads)}, described))
    return replace(k, body=body)


def needs_barrier(body: tuple[Device, ...], threads: int, blocks: Mapping[str, Expr]) -> bool:
    """Whether threads meet each other's accesses in statements without private storage."""
    placer = _Placer(threads, blocks, (), (), {})
    return barriers_in(placer.run(body, UnderWay(), (), ())[0]) > 0


@frozen
class _Looked:
    """Statements, which are kept so that no others get their identity, and their accesses."""

    body: tuple[Flat, ...]
    accesses: tuple[Access, ...]


@frozen
class _Placer:
    threads: int
    grid: Mapping[str, Expr]
    private: Collection[str]
    beside: Collection[str]
    """The buffers that instructions beside threads read."""
    sizes: Mapping[str, int]
    """The elements of shared buffers."""
    meetings: dict[tuple[object, ...], bool] = field(default_factory=dict[tuple[object, ...], bool])
    looked: dict[tuple[int, tuple[Expr, ...]], _Looked] = field(
        default_factory=dict[tuple[int, tuple[Expr, ...]], _Looked]
    )
    """By the identity of statements and the conditions around them: loops are gone through several times."""
    loops: dict[tuple[int, UnderWay, Loops, tuple[Expr, ...]], tuple[Steps, UnderWay]] = field(
        default_factory=dict[tuple[int, UnderWay, Loops, tuple[Expr, ...]], tuple[Steps, UnderWay]]
    )
    """What loops become, by their identity, behind what is under way: else each loop around one doubles its rounds."""

    def whole(
        self, body: tuple[Device, ...], before: UnderWay, steps: Loops, guards: tuple[Expr, ...]
    ) -> tuple[tuple[Device, ...], UnderWay]:
        """As `run`, of statements at whose end TMA stores have read."""
        out, after = self.run(body, before, steps, guards)
        return (*out, self._wait(after)) if after.outgoing else out, replace(after, outgoing=())

    def run(
        self, body: tuple[Device, ...], now: UnderWay, steps: Loops, guards: tuple[Expr, ...]
    ) -> tuple[tuple[Device, ...], UnderWay]:
        """The statements with what they need between them, and what is under way behind them."""
        out: list[Device] = []

        def meet() -> UnderWay:
            """A barrier, behind which threads and what runs beside them know all stores."""
            out.extend((ProxyFence(), Barrier()) if now.hidden else (Barrier(),))
            return replace(now, pending=(), hidden=False)

        for s in body:
            if (
                now.outgoing
                and not outgoing_in((s,))
                and not {x.buffer for x in stores_in((s,))}.isdisjoint(now.outgoing)
            ):
                wait = self._wait(now)
                out.append(wait)
                now = self._behind(replace(now, outgoing=()), self._effect(wait, guards)[1], steps)
            match s:
                case Barrier():
                    now = meet()
                case Guard(cond=cond, body=inner):
                    inside, after = self.run(inner, now, steps, (*guards, *conjuncts(cond)))
                    out.append(replace(s, body=inside))
                    if any(isinstance(x, Barrier) for x in inside):
                        now = replace(now, pending=_but_for(now.pending, cond))
                    now |= after
                case Steps():
                    loop, after = self._loop(s, now, steps, guards)
                    alone = replace(now, pending=())
                    if now.pending and barriers_in((loop,)) > barriers_in((self._loop(s, alone, steps, guards)[0],)):
                        # What only the first iteration has to wait for, it waits for before the loop.
                        now = meet()
                        loop, after = self._loop(s, now, steps, guards)
                    out.append(loop)
                    now = after
                case Role(threads=count, body=inner):
                    # Behind a barrier, and what roles pass each other waits at mbarriers: see `pipelines`.
                    role = replace(self, threads=count, meetings={}, loops={})
                    inside, after = role.whole(inner, UnderWay(hidden=now.hidden), steps, guards)
                    out.append(replace(s, body=inside))
                    now = replace(now, hidden=now.hidden or after.hidden)
                case _:
                    first, behind = self._effect(s, guards)
                    if any(self._meet(p, first, steps) for p in now.pending):
                        now = meet()
                    if isinstance(s, TmaStore):
                        if now.hidden:  # what its own thread has stored needs no barrier
                            out.append(ProxyFence())
                        now = replace(now, outgoing=now.outgoing + tuple(outgoing_in((s,))), hidden=False)
                    out.append(s)
                    now = self._behind(now, behind, steps)
                    if not (isinstance(s, Phase) and s.asynchronous):
                        hides = any(a.write and a.buffer in self.beside for a in behind)
                        now = replace(now, hidden=True) if hides else now
        return tuple(out), now

    def _effect(self, s: Device, guards: tuple[Expr, ...]) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """The accesses to memory that threads share as a statement starts, which are not to meet those before it; and those
        of which other threads know only behind the next barrier."""
        if isinstance(s, _SILENT):
            return (), ()
        match s:
            case Phase(body=body):
                accesses = self._of(body, guards)
                return accesses, accesses
            case LookBack():
                accesses = self._of(s.shown, (FIRST, *guards))
                return accesses, accesses
            case WaitGroup(landed=landed):  # what it makes visible to its own thread
                return (), self._of(landed, guards)
            case TmaLoad(at=at, body=body):  # all threads wait for it themselves, before they access what it stores
                return (*self._of(body, (FIRST, *guards)), Access(_MBARRIERS, True, at, (), (FIRST, *guards))), ()
            case WaitMbarrier(at=at):
                accesses = (Access(_MBARRIERS, False, at, (), guards),)
                return accesses, accesses
            case TmaStore(body=body):  # its thread waits for it itself, before others write what it reads
                return self._of(body, (FIRST, *guards)), ()
            case WaitTmaStores(buffers=buffers):
                element, conds = Var(_ELEMENT), (FIRST, *guards)
                return (), tuple(
                    Access(name, False, element, ((_ELEMENT, index(size)),), conds) for name, size in buffers
                )
            case _:
                assert_never(s)

    def _of(self, body: tuple[Flat, ...], guards: tuple[Expr, ...]) -> tuple[Access, ...]:
        key = (id(body), guards)
        if key not in self.looked:
            own = accesses(body, self.private)
            self.looked[key] = _Looked(body, tuple(replace(a, conds=(*a.conds, *guards)) for a in own))
        return self.looked[key].accesses

    def _wait(self, now: UnderWay) -> WaitTmaStores:
        return WaitTmaStores(tuple((b, self.sizes[b]) for b in now.outgoing))

    def _behind(self, now: UnderWay, accesses: tuple[Access, ...], steps: Loops) -> UnderWay:
        """What is under way behind accesses inside of these loops, for what follows in the same iteration."""
        if not accesses:
            return now
        same = tuple(Compare("==", Var(v + BEFORE), Var(v)) for v, _ in steps)
        return replace(now, pending=_joined(now.pending, (_Item(accesses, steps, same),)))

    def _loop(self, s: Steps, now: UnderWay, steps: Loops, guards: tuple[Expr, ...]) -> tuple[Steps, UnderWay]:
        key = (id(s), now, steps, guards)
        if key not in self.loops:
            body, after = self._rounds(s, now, steps, guards, False)
            if any(isinstance(x, Barrier) for x in body):
                # With a barrier in each iteration, only the last one and the one before are under way.
                exact, behind = self._rounds(s, now, steps, guards, True)
                if any(isinstance(x, Barrier) for x in exact):
                    body, after = exact, behind
            self.loops[key] = replace(s, body=body), after
        return self.loops[key]

    def _rounds(
        self, s: Steps, now: UnderWay, steps: Loops, guards: tuple[Expr, ...], apart: bool
    ) -> tuple[tuple[Device, ...], UnderWay]:
        """The body, and what is under way behind the loop; if `apart`, each iteration has a barrier."""
        var, before = Var(s.var), Var(s.var + BEFORE)
        inner = (*steps, (s.var, s.end))
        start = now | UnderWay(outgoing=tuple(outgoing_in((s,))))  # its body follows itself
        if apart:
            entered = tuple(replace(p, conds=(*p.conds, Compare("==", var, ZERO))) for p in now.pending)
            start = replace(start, pending=entered)
        previous = Compare("==", before, sub(var, ONE)) if apart else Compare("<", before, var)
        carried: Pending = ()
        for _ in range(_ROUNDS):
            body, after = self.run(s.body, replace(start, pending=_joined(start.pending, carried)), inner, guards)
            own = [p for p in after.pending if len(p.steps) >= len(inner) and p.steps[: len(inner)] == inner]
            again = _joined((), (_again(p, s.var, previous) for p in own))
            if set(again) <= set(carried) and after.hidden <= start.hidden:
                break
            carried = _joined(carried, again)
            start = replace(start, hidden=start.hidden or after.hidden)
        else:
            raise AssertionError("what is under way in a loop does not settle")
        last = (Compare("==", before, sub(substitute(s.end, _primed(s.end)), ONE)),) if apart else ()
        left = tuple(replace(p, conds=(*_without(p.conds, s.var), *last)) for p in own)
        runs = (constant(s.end) or 0) > 0
        kept = replace(now, pending=()) if apart and runs else now
        return body, kept | replace(after, pending=left)

    def _meet(self, p: _Item, mine: tuple[Access, ...], steps: Loops) -> bool:
        """Whether different threads can meet at an element in the earlier statement and in this one, where one writes it, and
        they are no updates of one atomic block."""
        return any(
            a.buffer == b.buffer
            and (a.write or b.write)
            and not (a.atomic and a.atomic == b.atomic)
            and self._may_meet(p, a, b, steps)
            for a in p.accesses
            for b in mine
        )

    def _may_meet(self, p: _Item, a: Access, b: Access, steps: Loops) -> bool:
        key = (p.steps, p.conds, a, b, steps)
        if key not in self.meetings:
            extents = {THREAD: index(self.threads), **self.grid, **dict(steps)}
            others = Compare("!=", Var(THREAD + BEFORE), Var(THREAD))
            self.meetings[key] = may_meet(a, b, extents, (others, *p.conds), p.steps)
        return self.meetings[key]


def _primed(e: Expr) -> dict[str, Expr]:
    return {v: Var(v + BEFORE) for v in free_vars(e)}


def _again(p: _Item, var: str, previous: Expr) -> _Item:
    return replace(p, conds=(*_without(p.conds, var), previous))


def _without(conds: Iterable[Expr], var: str) -> tuple[Expr, ...]:
    """The conditions that do not speak of a loop."""
    return tuple(c for c in conds if not free_vars(c) & {var, var + BEFORE})


def _but_for(pending: Pending, cond: Expr) -> Pending:
    """What is under way behind a barrier that stands under a condition: what was, where it does not hold."""
    one = conjuncts(cond)
    if len(one) != 1 or not isinstance(one[0], Compare):
        return pending
    missed = negate(one[0])
    return tuple(p if missed in p.conds else replace(p, conds=(*p.conds, missed)) for p in pending)


def _joined(a: Pending, b: Iterable[_Item]) -> Pending:
    return tuple(dict.fromkeys((*a, *b)))


# Places what the instructions of warpgroups need around them.
#
# Where products of a round are under way in the next, a thread waits behind those of the round for those of the round before.
# So what these have read may be overwritten from there on, behind a barrier, and what those of the round read may not. Where
# another role loads, it is released there, one round late. In the part of a round before its products, nothing that products
# read is written. Whether a write meets what is being read is decided by integer sets, for all threads.


@frozen
class Around:
    """The extents of blocks, threads and loops around a statement, and the buffers of which instructions get descriptors."""

    extents: Mapping[str, Expr]
    described: Collection[str]

    def within(self, var: str, end: Expr) -> Around:
        """The same, inside of a loop, or for so many threads."""
        return replace(self, extents={**self.extents, var: end})


def described_in(every: Iterable[Collective]) -> frozenset[str]:
    """The buffers of which instructions get descriptors."""
    return frozenset(x.buffer for s in every for b, x in accesses_of(s) if is_described(b.scope))


def registers_in(body: tuple[Device, ...]) -> tuple[str, ...]:
    """The buffers in registers that instructions of warpgroups access: sums, and factors without a descriptor."""
    every = (s for s in collectives_in(body) if is_of_group(s.intrinsic))
    return tuple(dict.fromkeys(x.buffer for s in every for x in lane_operands(s).values()))


def _awaited(body: tuple[Device, ...], around: Around, *, at_once: bool = False) -> tuple[Device, ...]:
    """The statements with fences before instructions of warpgroups, and waits for them: `at_once`, or before the first
    statement that needs what they write or may change what they read."""
    out: list[Device] = []
    started = _Started(out, around, at_once)
    for n, s in enumerate(body):
        if _runs_beside(s):
            started.run.append(s)
            continue
        if started.is_before(s, body[n + 1 :]):
            out.append(s)
            started.end(0)
            continue
        started.end(started.needed_by(s))
        match s:
            case Steps(var=var, end=count):
                inner = around.within(var, count)
                found = overlapped(replace(s, body=_awaited(s.body, inner, at_once=True)), around)
                out.extend(found or (replace(s, body=_awaited(s.body, inner)),))
            case Role():
                out.append(replace(s, body=_awaited(s.body, around.within(THREAD, index(s.threads)))))
            case Guard():
                out.append(replace(s, body=_awaited(s.body, around)))
            case ArriveMbarrier(slots=0):
                # Whose turn is next may start products while the last ones are under way.
                out.insert(max((n + 1 for n, x in enumerate(out) if isinstance(x, Steps)), default=len(out)), s)
            case _:
                out.append(s)
    started.end(len(started.groups))
    return tuple(out)


@dataclass(slots=True)
class _Started:
    """The instructions of warpgroups that a thread has started, and has not waited for."""

    out: list[Device]
    around: Around
    at_once: bool
    run: list[Device] = field(default_factory=list[Device])
    """Those of the latest group, which is not in `out` yet."""
    earlier: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """The registers of each group that is."""

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The registers of each group, the oldest first."""
        return [*self.earlier, registers_in(tuple(self.run))] if self.run else self.earlier

    def is_before(self, s: Device, later: Sequence[Device]) -> bool:
        """Whether a statement sets sums of the instructions behind it, and may do so before the latest group begins: ptxas
        lets no two groups be under way if sums are written between their starts."""
        if self.at_once or not self.run or not later or not _runs_beside(later[0]) or not isinstance(s, Phase):
            return False
        used, own = {a.buffer for a in accesses(s.body, ())}, registers_in((later[0],))
        return used <= set(own) and all(used.isdisjoint(names) for names in self.groups)

    def needed_by(self, s: Device) -> int:
        """How many of the groups, the oldest, have to be over before a statement: those whose registers it accesses, and all
        before what instructions have descriptors of changes."""
        groups = self.groups
        if self.at_once or not isinstance(s, Phase):
            return len(groups)
        every = accesses(s.body, ())
        if any(a.write and a.buffer in self.around.described for a in every):
            return len(groups)
        used = {a.buffer for a in every}
        return max((n + 1 for n, own in enumerate(groups) if not used.isdisjoint(own)), default=0)

    def end(self, needed: int) -> None:
        """End the latest group, and wait for so many of the oldest."""
        groups = self.groups
        names = tuple(dict.fromkeys(x for own in groups[:needed] for x in own))
        wait = WgmmaWait(names, len(groups) - needed, bool(self.run))
        if self.run:
            self.out.extend((WgmmaFence(groups[-1]), *self.run, wait))
        elif needed:
            self.out.append(wait)
        self.run, self.earlier = [], groups[needed:]


def _runs_beside(s: Device) -> bool:
    """Whether a statement is such instructions alone."""
    match s:
        case Phase(body=inner):
            return not s.asynchronous and all(map(_is_alone, inner))
        case Steps(body=inner) | Guard(body=inner):
            return bool(inner) and all(map(_runs_beside, inner))
        case _:
            return False


def _is_alone(s: Flat) -> bool:
    if isinstance(s, Collective):
        return is_of_group(s.intrinsic)
    return not isinstance(s, Store) and all(map(_is_alone, s.body))


def overlapped(s: Steps, around: Around) -> tuple[Device, ...] | None:
    """The loop with the products of a round under way in the next; None if it has none, or that is not known to be right."""
    ends = [n for n, x in enumerate(s.body) if isinstance(x, WgmmaWait)]
    if len(ends) != 1 or sum(isinstance(x, WgmmaWait) for x in inside(s.body)) != 1:
        return None
    (end,) = ends
    begin = next(n for n, x in enumerate(s.body) if isinstance(x, WgmmaFence))
    head, run, tail = s.body[:begin], s.body[begin + 1 : end], s.body[end + 1 :]
    finish = s.body[end]
    assert isinstance(finish, WgmmaWait)
    if any(not set(finish.buffers).isdisjoint(buffers_of(x)) for x in stores_in((*head, *tail))):
        return None
    if any(x.buffer in around.described for x in stores_in(head)):
        return None
    reads = [
        a.inside(loops, ())
        for x, loops, _ in placed(run)
        if isinstance(x, Phase)
        for a in accesses(x.body, finish.buffers)
        if not a.write and a.buffer in around.described
    ]
    if not _apart(tail, reads, around.within(s.var, s.end)):
        return None
    if any(isinstance(x, ArriveMbarrier) and x.slots == 1 for x in tail):
        return None
    released = [x for x in tail if isinstance(x, ArriveMbarrier)]
    rest = [x for x in tail if not isinstance(x, ArriveMbarrier)]
    late = tuple(_released(x, sub(Var(s.var), ONE), Compare(">", Var(s.var), ZERO), s.var) for x in released)
    last = tuple(_released(x, sub(s.end, ONE), Compare(">", s.end, ZERO), s.var) for x in released)
    body = (*head, WgmmaFence(finish.buffers), *run, WgmmaWait((), 1), *late, *rest)
    return (replace(s, body=body), replace(finish, ends_group=False), *last)


def _released(x: ArriveMbarrier, iteration: Expr, cond: Expr, var: str) -> Device:
    """The release of an iteration, if there is one."""
    own = replace(x, at=simplify(substitute(x.at, {var: iteration}), {}))
    return own if prove(cond, {}) else Guard(cond, (own,))


def _apart(body: Sequence[Device], reads: Sequence[Access], around: Around) -> bool:
    """Whether each write to what products read is behind a barrier, and to no element that those of the round read."""
    barriers: list[tuple[Loops, tuple[Expr, ...]]] = []
    for s, loops, conds in placed(body):
        if isinstance(s, Barrier):
            barriers.append((loops, conds))
        elif isinstance(s, Phase | TmaLoad):
            every = (a.inside(loops, conds) for a in accesses(s.body, ()))
            written = [a for a in every if a.write and a.buffer in around.described]
            behind = any(loops[: len(x)] == x and conds[: len(y)] == y for x, y in barriers)
            if written and not behind:
                return False
            if any(a.buffer == b.buffer and may_meet(a, b, around.extents) for a in written for b in reads):
                return False
    return True


def placed(
    body: Sequence[Device], loops: Loops = (), conds: tuple[Expr, ...] = ()
) -> Iterator[tuple[Device, Loops, tuple[Expr, ...]]]:
    """The statements without others inside, in text order, each with the loops and the conditions around it."""
    for s in body:
        match s:
            case Steps(var=var, end=end, body=inner):
                yield from placed(inner, (*loops, (var, end)), conds)
            case Guard(cond=cond, body=inner):
                yield from placed(inner, loops, (*conds, *conjuncts(cond)))
            case Role(body=inner):
                yield from placed(inner, loops, conds)
            case _:
                yield s, loops, conds
