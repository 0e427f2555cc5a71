"""Kernels of a GPU: phases that all threads of a block run, with barriers between them, in uniform loops and guards.

A name of an axis (`thread`, `block.x`, …) is a variable with a value of its own in each thread, or each block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.base.units import counted
from tensorc_dsl.ir.annotations import Swizzle
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    ZERO,
    Compare,
    Dim,
    Expr,
    Load,
    Var,
    constant,
    floordiv,
    index,
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import LoopKind, Store, store_at
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    LowerError,
    Parallel,
    Param,
    Prepared,
    Shuffle,
    TensorMap,
    TmaTile,
    format_body,
    format_shape,
    map_exprs,
    span,
    store_loads,
    stores,
)
from tensorc_dsl.lower.flat import inside as inside_flat
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import simplify

THREAD = "thread"
"""The variable that counts the threads of a block."""

FIRST = Compare("==", Var(THREAD), ZERO)
"""Whether a thread is the one that starts TMA loads and stores."""

STEP = "look.step"
"""The variable that stands for a step of a scan whose value blocks pass on."""

MOST_MBARRIERS = 32
"""The most mbarriers of a block: a thread keeps the phases of all in one register."""

CLUSTER = "cluster.x"
"""The variable that counts the blocks of a cluster."""

BLOCK_AXES = ("block.x", "block.y", "block.z")
"""The variables that count the blocks of a grid, or its clusters along x, the fastest first."""

MOST_BLOCKS = (2**31 - 1, 2**16 - 1, 2**16 - 1)
"""The most blocks along each axis. CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""

ALIGNMENT = 16
"""The alignment in bytes of every array in global memory, which the launch checks, and of buffers in shared memory and each
of their versions: that of the widest access of a thread."""


@frozen
class Phase:
    """Statements that every thread runs for itself, without waiting for others.

    If `asynchronous`, each store is a copy from global to shared memory that only starts: see `CommitGroup` and `WaitGroup`.
    """

    body: tuple[Flat, ...]
    asynchronous: bool = False


@frozen
class CommitGroup:
    """The copies that a thread has started since its last commit are one group, even if there are none."""


@frozen
class WaitGroup:
    """A thread goes on once at most `groups` of its latest groups of copies are under way.

    `landed` has the copies on which statements behind it rely: what they write is in memory from here on.
    """

    groups: int
    landed: tuple[Flat, ...]


@frozen
class InitMbarriers:
    """One thread initialises mbarriers. Each says for how many warps it waits (`ArriveMbarrier`); 0 is one that waits for
    bytes, of which none are awaited yet. That of warps begins as if they had come, that of -n warps as if they had not."""

    awaited: tuple[int, ...]


@frozen
class TmaLoad:
    """One thread starts TMA loads, and has the mbarrier `at` expect `size` bytes. The copies run beside
    all threads, and no other copy is under way with that mbarrier."""

    at: Expr
    size: int
    body: tuple[Flat, ...]


@frozen
class TmaStore:
    """One thread starts TMA stores, which are one bulk async-group. They run beside all threads: see `WaitTmaStores`."""

    body: tuple[Flat, ...]


@frozen
class WaitTmaStores:
    """The thread that has started TMA stores goes on when all of them have read shared memory, of these buffers with so many
    elements."""

    buffers: tuple[tuple[str, int], ...]


@frozen
class WaitMbarrier:
    """A thread goes on when an mbarrier has all that it expects: the bytes of a `TmaLoad`, once for each, or the
    `ArriveMbarrier` of all warps."""

    at: Expr


@frozen
class ArriveMbarrier:
    """A warp arrives at the mbarrier `at`, of its block or of each of the `blocks` of a cluster: its threads have read one of
    so many `slots`, which may be filled again; 0 if it only lets those multiply whose turn is next."""

    at: Expr
    slots: int
    blocks: int = 1


@frozen
class Barrier:
    """No thread of a block goes on until all have reached this barrier, or of a cluster if it is one of a `cluster`."""

    cluster: bool = False


@frozen
class ProxyFence:
    """What a thread has stored in shared memory is known, from the next barrier on, to instructions beside threads."""


@frozen
class WgmmaFence:
    """What a thread has done with its elements of `buffers` is done before instructions that run beside it."""

    buffers: tuple[str, ...]


@frozen
class WgmmaWait:
    """A thread goes on when the instructions that run beside it, and add to `buffers`, are done, but for its latest `groups`.
    What it has started since the last such wait is a group, unless this wait is for groups alone."""

    buffers: tuple[str, ...]
    groups: int = 0
    ends_group: bool = True


@frozen
class Ticket:
    """A block takes the next number of the counter in the words of `chain`, by which its threads get it through the shared
    buffer `place`, and is the block of that number: those of lower numbers have begun."""

    chain: str
    place: str


@frozen
class LookBack:
    """The first thread makes known what the step of this block adds to the scan `chain`, finds the value of the step before,
    and makes known that of its own.

    `slot` is the number of a step among those of all columns, and `conds` say whether it is made, over the variable `STEP`.
    `terms` store what this step adds, and `made` the value after a step in place of that before it; both are private.
    `before` stores the value before this step, for all threads.
    """

    chain: str
    step: Expr
    conds: tuple[Expr, ...]
    slot: Expr
    terms: tuple[Flat, ...]
    made: Store
    before: Store

    @property
    def shown(self) -> tuple[Flat, ...]:
        """What the first thread accesses of memory that the threads of a block share."""
        return (*self.terms, self.before)


@frozen
class Steps:
    """`for var in end`, with the same number of iterations for all threads of a block."""

    var: str
    end: Expr
    body: tuple[Device, ...]


@frozen
class Guard:
    """The body, if a condition holds that is the same for all threads of a block."""

    cond: Expr
    body: tuple[Device, ...]


@frozen
class Role:
    """The body, for `threads` threads from number `first` on, which meet at barriers of their own; inside, `THREAD` counts
    these. They may have so many `registers` each, 0 is what they began with; if `alone`, the first of them runs the body and
    the others end."""

    name: str
    first: int
    threads: int
    registers: int
    alone: bool
    body: tuple[Device, ...]


Nested = Steps | Guard | Role
"""What has statements inside."""

Signal = CommitGroup | InitMbarriers | Barrier | ProxyFence | WgmmaFence | WgmmaWait | Ticket
"""What is the same in all iterations, and touches nothing that other statements do."""

Device = (
    Signal | Phase | WaitGroup | TmaLoad | TmaStore | WaitTmaStores | WaitMbarrier | ArriveMbarrier | LookBack | Nested
)


@frozen
class Local:
    """A buffer of `size` elements of which each thread has its own."""

    name: str
    dtype: DType
    size: int


@frozen
class Shared:
    """A buffer of `size` elements of which each block has its own, `offset` bytes from the start of its shared memory."""

    name: str
    dtype: DType
    size: int
    offset: int
    swizzle: Swizzle | None = None


@frozen
class Mbarriers:
    """The mbarriers of a block: how many, and how many bytes from the start of its shared memory the first one is."""

    count: int
    offset: int


@frozen
class DeviceKernel:
    """A grid of blocks, each of `threads` threads, those of all roles. `params` names the arrays that it accesses, `written`
    those it writes. Along x, so many blocks that follow each other are a `cluster`; if it is `shared_loads`, they run at the
    same time, and load some tiles for each other."""

    name: str
    grid: tuple[Expr, Expr, Expr]
    threads: int
    params: tuple[str, ...]
    written: frozenset[str]
    local: tuple[Local, ...]
    shared: tuple[Shared, ...]
    shared_bytes: int
    """The bytes of shared memory, mbarriers included."""
    body: tuple[Device, ...]
    mbarriers: Mbarriers | None = None
    maps: tuple[TensorMap, ...] = ()
    """The tiles that are copied; each map is an argument of the kernel."""
    cleared: tuple[str, ...] = ()
    """The arrays whose bytes are 0 when the kernel starts."""
    notes: tuple[str, ...] = ()
    """What of a schedule is done in another way than it says, and why."""
    cluster: int = 1
    shared_loads: bool = False

    @property
    def extents(self) -> dict[str, Expr]:
        """How many values each variable has that counts blocks, the fastest first."""
        return block_extents(self.grid, self.cluster)


def block_extents(grid: Sequence[Expr], cluster: int) -> dict[str, Expr]:
    """How many values each variable has that counts the blocks of a grid, the fastest first."""
    every: dict[str, Expr] = dict(zip(BLOCK_AXES, grid, strict=True))
    if cluster == 1:
        return every
    x = BLOCK_AXES[0]
    return {CLUSTER: index(cluster), **every, x: simplify(floordiv(every[x], index(cluster)), {})}


@frozen
class DeviceProgram:
    """Kernels that run one after the other. `scratch` has the arrays in global memory besides the arguments, `approx` is the
    relative error that functions of f32 may have."""

    name: str
    params: tuple[Param, ...]
    scratch: tuple[Prepared, ...]
    dims: tuple[Dim, ...]
    kernels: tuple[DeviceKernel, ...]
    approx: float = 0.0


def inside(body: Sequence[Device]) -> Iterator[Device]:
    """Every statement, in text order, outer statements first."""
    for s in body:
        yield s
        if isinstance(s, Nested):
            yield from inside(s.body)


def roles_in(body: tuple[Device, ...]) -> tuple[Role, ...]:
    """The roles of the threads of a kernel; none if all run the same."""
    return tuple(s for s in body if isinstance(s, Role))


def tma_loads_in(body: tuple[Device, ...]) -> Iterator[TmaLoad]:
    """The TMA loads in statements."""
    return (s for s in inside(body) if isinstance(s, TmaLoad))


def tma_stores_in(body: Sequence[Device]) -> Iterator[TmaStore]:
    """The TMA stores in statements."""
    return (s for s in inside(body) if isinstance(s, TmaStore))


def outgoing_in(body: Sequence[Device]) -> dict[str, None]:
    """The shared buffers that TMA stores read, in their order."""
    return dict.fromkeys(x.buffer for s in tma_stores_in(body) for y in stores(s.body) for x in store_loads(y))


def stores_in(body: Sequence[Device]) -> Iterator[Store]:
    """The stores of statements to memory of threads and blocks: all but those of TMA stores."""
    for s in inside(body):
        if isinstance(s, Phase | TmaLoad):
            yield from stores(s.body)
        elif isinstance(s, LookBack):
            yield from stores(s.shown)


def consumers_of(k: DeviceKernel) -> int:
    """The threads that use what another role loads, which are the first ones; 0 if there are no roles."""
    return sum(r.threads for r in roles_in(k.body) if not r.alone)


def team_of(k: DeviceKernel) -> int:
    """The threads of each team, where several take turns at what another role loads; 0 if they are all one."""
    teams = [r.threads for r in roles_in(k.body) if not r.alone]
    return teams[0] if len(teams) > 1 else 0


def staged_in(body: tuple[Device, ...]) -> frozenset[str]:
    """The buffers that tiles of a role fill beside those who read them."""
    every = (s for r in roles_in(body) if r.alone for s in tma_loads_in(r.body))
    return frozenset(x.buffer for s in every for x in stores(s.body))


def chains_in(body: tuple[Device, ...]) -> frozenset[str]:
    """The scans whose value blocks pass on."""
    return frozenset(s.chain for s in body if isinstance(s, LookBack))


def tma_in(body: tuple[Flat, ...]) -> Iterator[Collective]:
    """The copies by TMA in what one thread does."""
    return (s for s in inside_flat(body) if isinstance(s, Collective) and s.tile is not None)


def collectives_in(body: tuple[Device, ...]) -> Iterator[Collective]:
    """The instructions of warps in statements."""
    for s in inside(body):
        if isinstance(s, Phase):
            yield from (x for x in inside_flat(s.body) if isinstance(x, Collective))


def launch_ranges(k: DeviceKernel) -> Ranges:
    """The ranges of what a launch gives each thread: its number in the block, and the numbers of the block."""
    return {THREAD: (0, k.threads - 1)} | {name: span(n) for name, n in k.extents.items()}


def atomics_in(body: tuple[Device, ...]) -> frozenset[str]:
    """The buffers that statements update atomically."""
    phases = (s for s in inside(body) if isinstance(s, Phase))
    return frozenset(x.buffer for s in phases for x in stores(s.body) if x.atomic)


def barriers_in(body: tuple[Device, ...]) -> int:
    """The number of barriers in the text of statements."""
    return sum(isinstance(s, Barrier) for s in inside(body))


# Statements with values for variables, and what one thread runs of them.


def allocated_elements(s: Alloc) -> int:
    size = constant(s.size)
    if size is None:
        raise LowerError(
            f"`{s.name}` has an open size, `{format_expr(s.size)}`, and memory of a block or a thread has a known one;"
            ' give it a size, or store it in "global"'
        )
    return max(1, size)


def plain(body: Sequence[Flat], values: Mapping[str, Expr]) -> tuple[Flat, ...]:
    """Statements of one thread: with values for bound variables, loops of one iteration gone, buffers of its own."""
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(store_at(s, values))
            case Loop() if constant(s.begin) == 0 and constant(s.end) == 1:
                out += plain(s.body, {**values, s.var: ZERO})
            case Loop():
                kind = LoopKind.SERIAL if s.kind is LoopKind.PARALLEL else s.kind
                ends = substitute(s.begin, values), substitute(s.end, values)
                out.append(Loop(s.var, *ends, kind, plain(s.body, values), s.scattered))
            case If():
                out.append(If(substitute(s.cond, values), plain(s.body, values)))
            case Alloc():
                out.append(replace(s, size=_count(s), space="stack", body=plain(s.body, values)))
            case Collective(tile=TmaTile() as tile):
                origin = tuple(substitute(e, values) for e in tile.origin)
                out.append(replace(s, body=plain(s.body, values), tile=replace(tile, origin=origin)))
            case Collective() | Shuffle():
                out.append(replace(s, body=plain(s.body, values)))
            case Parallel() | Instruction():
                raise AssertionError("no pass of GPUs makes them")
    return tuple(out)


def _count(s: Alloc) -> Expr:
    allocated_elements(s)
    return s.size


def with_values(body: tuple[Device, ...], values: Mapping[str, Expr]) -> tuple[Device, ...]:
    """Statements of a kernel with values for variables."""
    out: list[Device] = []
    for s in body:
        if isinstance(s, Signal):
            out.append(s)
            continue
        match s:
            case Phase():
                out.append(replace(s, body=plain(s.body, values)))
            case Steps():
                out.append(Steps(s.var, substitute(s.end, values), with_values(s.body, values)))
            case Guard():
                out.append(Guard(substitute(s.cond, values), with_values(s.body, values)))
            case WaitGroup():
                out.append(replace(s, landed=plain(s.landed, values)))
            case TmaStore(body=inner):
                out.append(replace(s, body=plain(inner, values)))
            case TmaLoad(at=at, body=inner):
                out.append(replace(s, at=substitute(at, values), body=plain(inner, values)))
            case WaitMbarrier(at=at) | ArriveMbarrier(at=at):
                out.append(replace(s, at=substitute(at, values)))
            case Role():
                out.append(replace(s, body=with_values(s.body, values)))
            case LookBack():
                numbers = tuple(substitute(e, values) for e in (s.step, s.slot, *s.conds))
                made, before = (x for x in plain((s.made, s.before), values) if isinstance(x, Store))
                out.append(LookBack(s.chain, numbers[0], numbers[2:], numbers[1], plain(s.terms, values), made, before))
            case WaitTmaStores():
                out.append(s)
            case _:
                assert_never(s)
    return tuple(out)


def with_buffers(body: tuple[Device, ...], names: Mapping[str, str]) -> tuple[Device, ...]:
    """Statements of a kernel, without waits and barriers yet, with other names for buffers."""

    def load(e: Expr) -> Expr:
        return replace(e, buffer=names[e.buffer]) if isinstance(e, Load) and e.buffer in names else e

    def expr(e: Expr) -> Expr:
        return rewrite_expr(e, load)

    def flat(s: Flat) -> Flat:
        s = map_exprs(s, expr)
        if isinstance(s, Store):
            return replace(s, buffer=names.get(s.buffer, s.buffer))
        return replace(s, body=tuple(map(flat, s.body)))

    def device(s: Device) -> Device:
        match s:
            case Phase() | TmaLoad() | TmaStore():
                return replace(s, body=tuple(map(flat, s.body)))
            case WaitGroup():
                return replace(s, landed=tuple(map(flat, s.landed)))
            case Steps():
                return replace(s, end=expr(s.end), body=tuple(map(device, s.body)))
            case Guard():
                return replace(s, cond=expr(s.cond), body=tuple(map(device, s.body)))
            case _:
                return s

    return tuple(map(device, body))


def of_thread(body: tuple[Device, ...]) -> tuple[Flat, ...]:
    """What one thread runs of statements that have no barriers and no copies under way."""
    out: list[Flat] = []
    for s in body:
        match s:
            case Phase(body=inner) | TmaLoad(body=inner) | TmaStore(body=inner):
                out += inner
            case WaitMbarrier() | ArriveMbarrier():
                pass
            case Steps(var=var, end=end, body=inner):
                out.append(Loop(var, ZERO, end, LoopKind.SERIAL, of_thread(inner)))
            case Guard(cond=cond, body=inner):
                out.append(If(cond, of_thread(inner)))
            case LookBack(terms=terms, before=before):
                out += (*terms, before)
            case _:
                raise AssertionError("statements are made plain before barriers and waits are in them")
    return tuple(out)


# Kernels of a GPU as text, for people.


def format_device(p: DeviceProgram) -> str:
    """The kernels as text, for people and golden tests; it is not parsed back."""
    args = [f"{'in ' * x.updated}{'out ' * x.output}{x.name}: {x.dtype}{format_shape(x.shape)}" for x in p.params]
    lines = [f"program {p.name}({', '.join((*args, *(d.name for d in p.dims)))}) {{"]
    lines += [f"    scratch {x.name}: {x.dtype}[{format_expr(x.size)}]" for x in p.scratch]
    for k in p.kernels:
        grid = " x ".join(format_expr(n) for n in k.grid)
        of = f"blocks, clusters of {k.cluster}," if k.shared_loads else "blocks"
        lines.append(f"    kernel {k.name}({', '.join(k.params)}) on {grid} {of} of {k.threads} threads {{")
        lines += [f"        shared {b.name}: {b.dtype}[{b.size}] at {b.offset}" for b in k.shared]
        lines += [f"        private {b.name}: {b.dtype}[{b.size}]" for b in k.local]
        lines += [f"        // {note}" for note in k.notes]
        lines += _lines(k.body, "        ")
        lines.append("    }")
    return "\n".join((*lines, "}")) + "\n"


def _lines(body: tuple[Device, ...], pad: str) -> Iterator[str]:
    for s in body:
        match s:
            case Phase(body=inner, asynchronous=asynchronous):
                yield f"{pad}threads cp.async {{" if asynchronous else f"{pad}threads {{"
                yield from (f"{pad}    {line}" for line in format_body(inner).splitlines())
                yield f"{pad}}}"
            case CommitGroup():
                yield f"{pad}cp.async.commit_group"
            case WaitGroup(groups=groups):
                yield f"{pad}cp.async.wait_group {groups}"
            case InitMbarriers(awaited=awaited):
                counts = ", ".join(str(max(abs(n), 1)) for n in awaited)
                yield f"{pad}mbarrier.init of {counted(len(awaited), 'mbarrier')}, arrival counts {counts}"
            case TmaLoad(at=at, size=size, body=inner):
                yield f"{pad}one thread starts TMA loads, expect_tx {size} bytes at mbarrier {format_expr(at)} {{"
                yield from (f"{pad}    {line}" for line in format_body(inner).splitlines())
                yield f"{pad}}}"
            case TmaStore(body=inner):
                yield f"{pad}one thread starts TMA stores, cp.async.bulk.commit_group {{"
                yield from (f"{pad}    {line}" for line in format_body(inner).splitlines())
                yield f"{pad}}}"
            case WaitTmaStores():
                yield f"{pad}cp.async.bulk.wait_group.read 0"
            case WaitMbarrier(at=at):
                yield f"{pad}mbarrier.try_wait {format_expr(at)}"
            case ArriveMbarrier(at=at, blocks=blocks):
                yield f"{pad}mbarrier.arrive {format_expr(at)}{f' of {blocks} blocks' * (blocks > 1)}"
            case Barrier(cluster=cluster):
                yield f"{pad}barrier{'.cluster' * cluster}"
            case ProxyFence():
                yield f"{pad}fence.proxy.async"
            case WgmmaFence(buffers=buffers):
                yield f"{pad}wgmma.fence{''.join(f' {b}' for b in buffers)}"
            case WgmmaWait(groups=groups, ends_group=ends_group):
                if ends_group:
                    yield f"{pad}wgmma.commit_group"
                yield f"{pad}wgmma.wait_group {groups}"
            case Ticket(chain=chain):
                yield f"{pad}be the block of the next number of {chain}"
            case LookBack(chain=chain, step=step, conds=conds, made=made):
                cond = "".join(f", if {format_expr(c)}" for c in conds)
                yield f"{pad}one thread looks back from step {format_expr(step)} of {chain}{cond} {{"
                yield from (f"{pad}    {line}" for line in format_body((*s.terms, made, s.before)).splitlines())
                yield f"{pad}}}"
            case Steps(var=var, end=end, body=inner):
                yield f"{pad}for {var} in 0 .. {format_expr(end)} {{"
                yield from _lines(inner, pad + "    ")
                yield f"{pad}}}"
            case Guard(cond=cond, body=inner):
                yield f"{pad}if {format_expr(cond)} {{"
                yield from _lines(inner, pad + "    ")
                yield f"{pad}}}"
            case Role(name=name, threads=threads, registers=registers, alone=alone, body=inner):
                own = f", setmaxnreg {registers}" if registers else ""
                who = f"one of {counted(threads, 'thread')}" if alone else counted(threads, "thread")
                yield f"{pad}role {name}, {who}{own} {{"
                yield from _lines(inner, pad + "    ")
                yield f"{pad}}}"
            case _:
                assert_never(s)
