"""Cuts a kernel into phases: bound loops become values of a thread, and what is between them uniform loops and guards."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tensorc_dsl.backend.cuda.lower.async_copies import (
    Copying,
    NoCopy,
    as_copies,
    in_place,
    load_of,
    loaded_bytes,
    maps_of,
    only_stores,
    unnumbered_mbarrier,
)
from tensorc_dsl.backend.cuda.lower.axes import Axes, turn_of
from tensorc_dsl.backend.cuda.lower.collectives import require_uniform
from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    THREAD,
    Device,
    Guard,
    Local,
    Phase,
    Shared,
    Steps,
    Ticket,
    TmaLoad,
    TmaStore,
    WaitMbarrier,
    allocated_elements,
    of_thread,
    plain,
    tma_in,
)
from tensorc_dsl.backend.cuda.lower.look_back import (
    Chain,
    looks_back,
    reads_before,
    shared_of,
    ticket_of,
    with_ticket,
)
from tensorc_dsl.backend.cuda.lower.pipelines import NoRoles, Part, Pipeline, in_roles, in_rounds, lifted, versioned
from tensorc_dsl.backend.cuda.lower.shared_layout import ALIGNMENT as ALIGNED
from tensorc_dsl.backend.cuda.lower.shared_layout import targets_of
from tensorc_dsl.backend.cuda.lower.shuffles import guarded
from tensorc_dsl.backend.cuda.lower.synchronization import described_in, needs_barrier
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.annotations import UNITS, Swizzle, swizzle_of
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    ZERO,
    Compare,
    Expr,
    Var,
    ceildiv,
    conjunction,
    constant,
    floormod,
    free_vars,
    index,
    substitute,
)
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Loop, LowerError, inside, store_loads, stores
from tensorc_dsl.proof.sets.simplify import conjuncts

TRANSACTION = 128
"""The alignment of each buffer in shared memory, in bytes: that of a transaction."""


@dataclass(slots=True)
class Storage:
    """The storage of a kernel as it is found: buffers of each thread, and of each block."""

    local: list[Local] = field(default_factory=list[Local])
    shared: list[Shared] = field(default_factory=list[Shared])
    bytes: int = 0
    notes: list[str] = field(default_factory=list[str])
    """What of a schedule is done in another way than it says, and why."""
    awaited: list[int] = field(default_factory=list[int])
    """The mbarriers of pipelines, each with the warps that it waits for, or 0 where it waits for bytes."""
    teams: int = 0
    """The teams of threads that use what another role loads, in turn; 0 if no pipeline has roles."""

    def mbarriers(self, count: int, warps: int) -> int:
        """The first of so many mbarriers that nothing else uses, each for bytes or for so many warps."""
        first = len(self.awaited)
        self.awaited += [warps] * count
        return first

    def share(self, s: Alloc, size: int, align: int) -> None:
        """Give a buffer a place in shared memory of its own, at a multiple of so many bytes."""
        order = _swizzle_of(s)
        self.bytes = _whole(self.bytes, align)
        size = size if order is None else _whole(size, order.line)
        self.shared.append(Shared(s.name, s.dtype, size, self.bytes, order))
        self.bytes += _whole(size * s.dtype.bytes, TRANSACTION)

    def share_again(self, name: str, other: str) -> None:
        """Give a buffer a second place in shared memory, under another name."""
        (found,) = (b for b in self.shared if b.name == name)
        self.bytes = _whole(self.bytes, TRANSACTION if found.offset % ALIGNED else ALIGNED)
        self.shared.append(replace(found, name=other, offset=self.bytes))
        self.bytes += _whole(found.size * found.dtype.bytes, TRANSACTION)


def _swizzle_of(s: Alloc) -> Swizzle | None:
    """The order of the elements of a buffer. Raises LowerError if its rows are no whole units of the wanted swizzle."""
    if s.swizzle is None:
        return None
    unit, distance = s.swizzle[0], constant(s.swizzle[1])
    if unit * s.dtype.bytes not in UNITS or distance is None or distance % unit:
        raise LowerError(
            f"the rows of `{s.name}` are `{format_expr(s.swizzle[1])}` elements apart, which are no whole units of {unit}, in"
            f" which a swizzle moves them; give them a multiple of the unit, of {UNITS[0]} to {UNITS[-1]} bytes"
        )
    return swizzle_of(unit, distance, s.dtype.bytes)


def _whole(size: int, n: int) -> int:
    """The next multiple of `n`."""
    return -(-size // n) * n


def phases(
    s: Flat,
    axes: Axes,
    program: Program,
    pipelines: Mapping[str, Pipeline],
    storage: Storage,
    chains: Mapping[str, Chain],
) -> tuple[Device, ...]:
    """The statements of a kernel as phases, with the storage of its buffers. Raises LowerError if no kernel does the same."""
    written = frozenset(x.buffer for x in stores((s,)))
    described = described_in(x for x in inside((s,)) if isinstance(x, Collective))
    (s,) = reads_before((s,), chains)
    body = _Cutter(axes, program, pipelines, storage, written, described, chains).cut((s,), {}, (), ())
    found = with_ticket(tuple(body))
    for ticket in found:
        if isinstance(ticket, Ticket):
            storage.share(ticket_of(ticket), 1, TRANSACTION)
    shared = {b.name for b in storage.shared}
    return lifted(found, axes.extents, storage.teams, storage.share_again, shared)


@frozen
class _Cutter:
    axes: Axes
    program: Program
    pipelines: Mapping[str, Pipeline]
    storage: Storage
    written: frozenset[str]
    described: frozenset[str]
    """The buffers of which instructions get descriptors."""
    chains: Mapping[str, Chain]
    """The scans whose value blocks pass on."""

    def cut(
        self, body: tuple[Flat, ...], values: dict[str, Expr], bound: tuple[str, ...], conds: tuple[Expr, ...]
    ) -> list[Device]:
        """`bound` are the bound loops around, `conds` the conditions that differ between threads."""
        out: list[Device] = []
        for s in body:
            if isinstance(s, Loop) and s.var in self.axes.loops:
                inner = self.cut(s.body, {**values, s.var: self.axes.value(s.var)}, (*bound, s.var), conds)
                out += self._in_turn(s.var, substitute(s.end, values), tuple(inner))
            elif not self._divided(s):
                out += self._phase(s, values, bound, conds)
            elif isinstance(s, Loop) and s.var in self.pipelines:
                out += self._pipeline(s, values, bound, conds)
            elif isinstance(s, Loop):
                if constant(s.end) == 1:
                    out += self.cut(s.body, {**values, s.var: ZERO}, bound, conds)
                else:
                    end = substitute(s.end, values)
                    out.append(Steps(s.var, end, tuple(self.cut(s.body, values, bound, conds))))
            elif isinstance(s, If):
                here = tuple(substitute(c, values) for c in conjuncts(s.cond))
                mine = tuple(c for c in here if THREAD in free_vars(c))
                uniform = conjunction(tuple(c for c in here if THREAD not in free_vars(c)))
                inner = self.cut(s.body, values, bound, (*conds, *mine))
                out += inner if uniform is None else [Guard(uniform, tuple(inner))]
            elif isinstance(s, Alloc):
                self._place(s, allocated_elements(s), bound)
                out += self.cut(s.body, values, bound, conds)
            else:
                raise LowerError(f"a {type(s).__name__.lower()} around threads has no code for GPUs")
        return in_place(out)

    def _in_turn(self, var: str, end: Expr, body: tuple[Device, ...]) -> tuple[Device, ...]:
        """The statements of a bound loop, for each of its iterations that a block takes."""
        count = self.axes.turns.get(var)
        if count is None:
            return body
        whole = constant(floormod(end, index(count))) == 0
        mine = body if whole else (Guard(Compare("<", self.axes.value(var), end), body),)
        return (Steps(turn_of(var), ceildiv(end, index(count)), mine),)

    def _divided(self, s: Flat) -> bool:
        """Whether bound loops are inside a statement, or tiles under conditions or in loops of an open length, or loads of
        tiles and stores."""
        if any(isinstance(x, Loop) and x.var in self.axes.loops for x in inside((s,))):
            return True
        return any(tma_in((s,))) and loaded_bytes((s,)) is None and not only_stores((s,))

    def _pipeline(
        self, s: Loop, values: dict[str, Expr], bound: tuple[str, ...], conds: tuple[Expr, ...]
    ) -> tuple[Device, ...]:
        """The rounds of a pipeline."""
        pipeline = self.pipelines[s.var]
        numbers = {name: n for n, name in enumerate(pipeline.marks)}
        own: dict[str, DType] = {}
        parts: dict[int, tuple[Flat, ...]] = {}

        def part(x: Flat, around: tuple[Expr, ...]) -> None:
            match x:
                case Loop(var=var) if var in numbers:
                    guard = conjunction(around)
                    parts[numbers[var]] = x.body if guard is None else (If(guard, x.body),)
                case If(cond=cond):
                    for y in x.body:
                        part(y, (*around, cond))
                case Alloc(name=name):
                    size, count = allocated_elements(x), pipeline.versions[name]
                    if count > 1:  # each version begins where the widest access may, and with a line of a swizzle
                        order = _swizzle_of(x) if self._is_shared(x) else None
                        size = _whole(size, max(ALIGNMENT // x.dtype.bytes, 1 if order is None else order.line))
                    self._place(x, size * count, bound)
                    if self._is_shared(x):
                        own[name] = x.dtype
                    for y in versioned(x.body, name, s.var, count, size):
                        part(y, around)
                case _:
                    raise AssertionError("every statement of a pipeline has its mark")

        for x in s.body:
            part(x, ())
        devices = {n: tuple(self.cut(body, values, bound, conds)) for n, body in sorted(parts.items())}
        made: dict[int, Part] = {}
        for n, body in devices.items():
            tiles = self._tma_loads(s.var, n, devices, own)
            made[n] = Part(body, None if tiles else self._copies(s.var, n, devices, own), tiles)
        end = substitute(s.end, values)
        if pipeline.roles:
            try:
                if self.storage.teams:
                    raise NoRoles("another loop of the kernel has roles")
                if pipeline.teams > 1 and not self.axes.turns:
                    note = f"`{s.var}` has one team: no block has two iterations of a persistent loop"
                    self.storage.notes.append(note)
                    pipeline = replace(pipeline, teams=1, registers=())
                both = in_roles(s.var, end, pipeline, made, self.axes.threads, self.storage.mbarriers)
                self.storage.teams = pipeline.teams
                return both
            except NoRoles as e:
                self.storage.notes.append(f"`{s.var}` has no roles: {e}")
        return in_rounds(s.var, end, pipeline, made, self.storage.mbarriers)

    def _tma_loads(
        self, var: str, number: int, parts: Mapping[int, tuple[Device, ...]], own: Mapping[str, DType]
    ) -> TmaLoad | None:
        """The tiles of a statement that its pipeline only starts; None if it copies none, or they are waited for at once."""
        pipeline, found = self.pipelines[var], load_of(parts[number])
        if found is None or pipeline.stages[number] not in pipeline.asynchronous:
            return None
        return found if set(targets_of(found.body)) <= _filled_alone(number, parts, own) else None

    def _copies(
        self, var: str, number: int, parts: Mapping[int, tuple[Device, ...]], own: Mapping[str, DType]
    ) -> tuple[Flat, ...] | None:
        """The copies of a statement that its pipeline only starts; None if it runs where it stands, for which there is a
        note if that was not asked for."""
        pipeline, body = self.pipelines[var], of_thread(parts[number])
        if pipeline.stages[number] not in pipeline.asynchronous:
            return None
        targets = _filled_alone(number, parts, own)
        arrays = {b.name: b.dtype for b in (*self.program.params, *self.program.buffers) if b.scope == "global"}
        sources = arrays.keys() - self.written
        try:
            copies = as_copies(body, Copying(targets, sources, {**arrays, **own}))
            if needs_barrier(parts[number], self.axes.threads, self.axes.extents):
                raise NoCopy(next(stores(body)), "writes what another thread has written in the same iteration")
        except NoCopy as e:
            self.storage.notes.append(f"stage {pipeline.stages[number]} of `{var}` is not asynchronous: {e}")
            return None
        return copies

    def _is_shared(self, s: Alloc) -> bool:
        return self.program.buffer(s.name).scope.split(".")[0] == "shared"

    def _place(self, s: Alloc, size: int, bound: tuple[str, ...]) -> None:
        if any(self.axes.is_thread(v) for v in bound):
            raise LowerError(
                f"`{s.name}` is inside `{bound[-1]}`, which counts threads, and around other loops that do: each of its"
                " threads would need a buffer of its own that others share; move it outside of all loops that count threads"
            )
        if self._is_shared(s):
            self.storage.share(s, size, ALIGNED if s.name in self.described else TRANSACTION)
        else:
            self.storage.local.append(Local(s.name, s.dtype, size))

    def _phase(
        self, s: Flat, values: dict[str, Expr], bound: tuple[str, ...], conds: tuple[Expr, ...]
    ) -> tuple[Device, ...]:
        outside = [v for v in self.axes.loops if self.axes.is_block(v) and v not in bound]
        if outside:
            text = next((format_store(x) for x in stores((s,))), "")
            raise LowerError(
                f"`{text}` is outside of `{outside[0]}`, which is bound to blocks, and in one kernel with it: one of its"
                " blocks would run it while others go on; make it a statement at the top of the program"
            )
        if (chain := next((self.chains[x.buffer] for x in stores((s,)) if x.buffer in self.chains), None)) is not None:
            return self._look_back(s, chain, values, bound)
        body = plain((s,), values)
        if (size := loaded_bytes((s,))) is not None:
            return self._fetch(body, size)
        if any(tma_in((s,))):
            return (TmaStore(body),)
        mine = (*conds, *self.axes.conditions(bound))
        if isinstance(s, Collective):
            require_uniform(s, mine)
        return (Phase(guarded(body, conjunction(mine))),)

    def _look_back(self, s: Flat, chain: Chain, values: dict[str, Expr], bound: tuple[str, ...]) -> tuple[Device, ...]:
        """The step of a block of a scan whose value blocks pass on."""
        if inside_threads := next((v for v in bound if self.axes.is_thread(v)), None):
            raise LowerError(
                f"`{chain.name}` is inside `{inside_threads}`, which counts threads, and one thread looks back for a block;"
                " bind the loops around it to blocks alone"
            )
        found, own = looks_back(s, chain, values, bound)
        self.storage.local += own
        self.storage.share(shared_of(chain), 1, TRANSACTION)
        return (found,)

    def _fetch(self, body: tuple[Flat, ...], size: int) -> tuple[Device, ...]:
        """The start of TMA loads, and the wait for them."""
        for m in maps_of([body]):
            if m.array in self.written:
                raise LowerError(f"TMA loads tiles of `{m.array}`, and the kernel writes `{m.array}`; copy by threads")
        at = Var(unnumbered_mbarrier(next(targets_of(body))))
        return (TmaLoad(at, size, body), WaitMbarrier(at))


def _filled_alone(number: int, parts: Mapping[int, tuple[Device, ...]], own: Collection[str]) -> set[str]:
    """The buffers of an iteration that other statements of a pipeline read, and none of them writes."""
    others = [x for n, part in parts.items() if n != number for x in stores(of_thread(part))]
    read = {x.buffer for s in others for x in store_loads(s)}
    return {b for b in own if b in read and all(s.buffer != b for s in others)}
