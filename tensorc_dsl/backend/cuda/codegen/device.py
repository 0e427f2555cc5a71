"""Writes the body of a kernel: phases by the generator of flat statements, barriers, atomic updates, and values that blocks
pass on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from math import gcd
from typing import Literal, Protocol, assert_never

from tensorc_dsl.backend.cuda.lower.kernels import (
    ALIGNMENT,
    FIRST,
    STEP,
    THREAD,
    ArriveMbarrier,
    Barrier,
    CommitGroup,
    Device,
    DeviceKernel,
    DeviceProgram,
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
)
from tensorc_dsl.backend.cuda.lower.look_back import Words, look_back_terms, look_back_words
from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function, Piece, SymbolTable, in_memory
from tensorc_dsl.backend.llvm.codegen.statements import Plan, Statements
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Compare,
    Expr,
    Load,
    Not,
    Var,
    conjunction,
    dtype_of,
    index,
    rewrite_expr,
    sub,
    substitute,
)
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.reductions import atomic_change_of, fold_of, is_switch
from tensorc_dsl.lower.flat import Collective, Flat, Shuffle
from tensorc_dsl.proof.sets.store_guards import filled

# Writes atomic updates: what a machine adds where it is, and other updates by comparing and exchanging.
#
# The order of an update among accesses to other elements does not matter: barriers and the ends of kernels give it. So all
# are relaxed. PTX ISA, "atom", "Memory Consistency Model".


_OLD = ".old"
"""The buffer of the value that an update changes, under a name that none of a program can have."""


def write_update(
    f: Function,
    e: Expressions,
    s: Store,
    place: Callable[[Store], str],
    scope: str,
    under: Callable[[Expr, Callable[[], None]], None],
) -> None:
    """Write an atomic store. `place` writes the address of its element, `under` what is done if a condition holds. `scope`
    says among whom it is one step: the threads of a "block" or of the "device"."""
    how = f'syncscope("{scope}") monotonic'
    fold = fold_of(s)
    if fold is not None and is_switch(s):
        # What is true stays true: a thread stores that, or nothing.
        changes = fold.value if fold.op == "or" else Not(fold.value)
        under(changes, lambda: f.line(f"store atomic i8 {int(fold.op == 'or')}, ptr {place(s)} {how}, align 1"))
    elif fold is not None and (change := atomic_change_of(s)) is not None:
        value = e.value(fold.value, None)
        f.op(f"atomicrmw {change} ptr {place(s)}, {value.typed} {how}")
    else:
        _exchange(f, e, s, place, how)


def _exchange(f: Function, e: Expressions, s: Store, place: Callable[[Store], str], how: str) -> None:
    """Write an update as a loop: the value is computed from what is there, and stored if that is there still."""
    t = dtype_of(s.value)
    word, kind = f"i{8 * t.bytes}", in_memory(t)
    old, at = f.alloca(kind, 1), place(s)
    f.line(f"store {word} {f.op(f'load atomic {word}, ptr {at} {how}, align {t.bytes}')}, ptr {old}")
    again, after = f.label("again"), f.label("updated")
    f.branch(again)
    f.start_block(again)
    with f.region():
        e.scope.buffers[_OLD] = (old, t)
        value = e.value(rewrite_expr(s.value, lambda x: _from_old(x, s)), None)
        del e.scope.buffers[_OLD]
        new = value.ref if kind == word else f.op(f"bitcast {value.typed} to {word}")
        was = f.op(f"load {word}, ptr {old}")
        pair = f.op(f"cmpxchg ptr {at}, {word} {was}, {word} {new} {how} monotonic")
        f.line(f"store {word} {f.op(f'extractvalue {{ {word}, i1 }} {pair}, 0')}, ptr {old}")
        f.branch_if(f.op(f"extractvalue {{ {word}, i1 }} {pair}, 1"), after, again)
    f.start_block(after)


def _from_old(x: Expr, s: Store) -> Expr:
    """A load of the element that is updated, as one of the value that was there."""
    return Load(_OLD, (ZERO,), x.dtype) if isinstance(x, Load) and x.buffer == s.buffer else x


# Writes how a block passes the value of a scan on: what its thread makes known, where it looks, and for what it waits.
#
# A word of 8 bytes is stored and loaded as a whole. A value of at most 4 bytes is in one word with its flag, so who sees
# the flag has the value. Of others the flag is stored behind the value by a *release*, and loaded before it by an
# *acquire*: who sees the flag sees what was stored before it (PTX ISA, "Memory Consistency Model", causality order). A flag
# is 0 at first, `ADDS` when what the step adds is known, and `DONE` when its value is.


ADDS, DONE = 1, 2
"""The flags of a step whose value is not known yet, and of one whose value is."""

HEAD = 1
"""The words before those of the first step: the counter."""

FLAG_BITS = 32
"""The low bits of a packed word, which are its flag."""

Seen = Literal["relaxed", "acquire", "known"]
"""How a word is loaded: at any time, before all that is loaded behind it, or behind an acquire that makes it known."""


SEEN: tuple[Seen, ...] = ("relaxed", "acquire", "known")
CALLS = ("take", "put", "get")
"""The functions of the emulation by which a word is accessed, in the order of their table, and the numbers of `Seen`."""


class Passing(Protocol):
    """What a thread does with words that other blocks load and store at once."""

    f: Function
    expressions: Expressions

    def write(self, body: tuple[Flat, ...]) -> None: ...
    def counted(self, var: str, begin: str, end: str, step: int, write: Callable[[], None]) -> None: ...
    def under(self, cond: Expr, body: Callable[[], None]) -> None: ...

    def put(self, chain: str, at: str, word: str, *, release: bool) -> None:
        """Write that a word is stored, behind all that this block has stored before if it is a release."""
        ...

    def get(self, chain: str, at: str, seen: Seen) -> str:
        """Write that a word is loaded."""
        ...

    def pause(self) -> None:
        """Write that a thread looks again."""
        ...


@frozen
class Looking:
    """Writes a `LookBack`."""

    to: Passing
    s: LookBack
    words: Words
    """The words of a step."""

    def write(self) -> None:
        """Write all of it, in the first thread."""
        own, first = self.s.step, Compare(">", self.s.step, ZERO)
        self.to.under(self._made(own), lambda: self._tell(first))
        before = conjunction((first, self._made(sub(own, ONE))))
        assert before is not None
        self.to.under(before, self._find)
        self.to.under(self._made(own), self._finish)

    def _made(self, step: Expr) -> Expr:
        """Whether a step is made."""
        cond = conjunction(tuple(substitute(c, {STEP: step}) for c in self.s.conds))
        return Compare("==", ZERO, ZERO) if cond is None else cond

    def _at(self, step: str, body: Callable[[], None]) -> None:
        """Write the body, with a value for the step."""
        with self.to.expressions.scope.bound({STEP: step}):
            body()

    def _first_word(self, step: str) -> str:
        """The number of the first word of a step."""
        slot = ""

        def go() -> None:
            nonlocal slot
            slot = str(self.to.expressions.index(self.s.slot))

        self._at(step, go)
        f = self.to.f
        return f.op(f"add i64 {f.op(f'mul i64 {slot}, {self.words.count}')}, {HEAD}")

    def _tell(self, first: Expr) -> None:
        """Write code that publishes the term of the own step, unless it is the first, for whose term no block waits."""
        own = str(self.to.expressions.index(self.s.step))
        self._at(own, lambda: self.to.write(self.s.terms))
        self.to.under(
            first, lambda: self.post(self._first_word(own), look_back_terms(self.s), self.words.terms, 1, ADDS)
        )

    def _finish(self) -> None:
        """Write that the own step is made, and its value made known."""
        own = str(self.to.expressions.index(self.s.step))
        self._at(own, lambda: self.to.write((*self.s.terms, self.s.made)))
        place = 1 + len(self.words.terms)
        self.post(self._first_word(own), (self.s.made.buffer,), (self.words.value,), place, DONE)

    def post(self, word: str, buffers: Sequence[str], types: Sequence[DType], place: int, flag: int) -> None:
        """Write that values are made known, with a flag: behind their words from number `place` on, or in one word."""
        f, bits = self.to.f, [self._bits(b, t) for b, t in zip(buffers, types, strict=True)]
        if self.words.packed:
            high = [f.op(f"shl i64 {x}, {FLAG_BITS}") for x in bits]
            whole = reduce(lambda x, y: f.op(f"or i64 {x}, {y}"), high, str(flag))
            self.to.put(self.s.chain, word, whole, release=False)
            return
        for n, x in enumerate(bits):
            self.to.put(self.s.chain, f.op(f"add i64 {word}, {place + n}"), x, release=False)
        self.to.put(self.s.chain, word, str(flag), release=True)

    def look(self, word: str) -> tuple[str, str]:
        """Write that a step is looked at: its first word, and its flag."""
        f = self.to.f
        if not self.words.packed:
            flag = self.to.get(self.s.chain, word, "acquire")
            return flag, flag
        whole = self.to.get(self.s.chain, word, "relaxed")
        return whole, f.op(f"and i64 {whole}, {(1 << FLAG_BITS) - 1}")

    def take(self, word: str, whole: str, buffers: Sequence[str], types: Sequence[DType], place: int) -> None:
        """Write that values are loaded whose flag has been seen, in `whole` if it has them."""
        f = self.to.f
        for n, (b, t) in enumerate(zip(buffers, types, strict=True)):
            if self.words.packed:
                x = f.op(f"lshr i64 {whole}, {FLAG_BITS}")
            else:
                x = self.to.get(self.s.chain, f.op(f"add i64 {word}, {place + n}"), "known")
            kind = f"i{8 * t.bytes}"
            f.line(f"store {kind} {x if t.bytes == 8 else f.op(f'trunc i64 {x} to {kind}')}, ptr {self._place(b)}")

    def _find(self) -> None:
        """Write that the value before the own step is found, and stored for the threads of the block."""
        f, s = self.to.f, self.s
        at, found = f.alloca("i64", 1), f.alloca("i64", 1)
        own = str(self.to.expressions.index(s.step))
        f.line(f"store i64 {f.op(f'sub i64 {own}, 1')}, ptr {at}")
        again, back, done = (f.label(x) for x in ("again", "back", "done"))
        f.branch(again)
        f.start_block(again)
        with f.region():
            step = f.op(f"load i64, ptr {at}")
            whole, flag = self.look(self._first_word(step))
            f.line(f"store i64 {whole}, ptr {found}")
            f.branch_if(f.op(f"icmp eq i64 {flag}, {DONE}"), done, back)
            f.start_block(back)
            known = f.op(f"zext i1 {f.op(f'icmp ne i64 {flag}, 0')} to i64")
            f.line(f"store i64 {f.op(f'sub i64 {step}, {known}')}, ptr {at}")
            self.to.pause()
            f.branch(again)
        f.start_block(done)
        step, whole = f.op(f"load i64, ptr {at}"), f.op(f"load i64, ptr {found}")
        place = 1 + len(self.words.terms)
        self.take(self._first_word(step), whole, (s.made.buffer,), (self.words.value,), place)
        self.to.counted(STEP, f.op(f"add i64 {step}, 1"), own, 1, self._between)
        self.to.write((s.before,))

    def _between(self) -> None:
        """Write that a step between is made again: from what it adds, unless its value is known by now."""
        f, s = self.to.f, self.s
        step = str(self.to.expressions.index(Var(STEP)))
        word = self._first_word(step)
        if not self.words.packed:
            self.take(word, "", look_back_terms(s), self.words.terms, 1)
            self.to.write((s.made,))
            return
        whole, flag = self.look(word)
        known, made, after = (f.label(x) for x in ("known", "made", "after"))
        f.branch_if(f.op(f"icmp eq i64 {flag}, {DONE}"), known, made)
        f.start_block(known)
        with f.region():
            self.take(word, whole, (s.made.buffer,), (self.words.value,), 0)
        f.branch(after)
        f.start_block(made)
        with f.region():
            self.take(word, whole, look_back_terms(s), self.words.terms, 0)
            self.to.write((s.made,))
        f.branch(after)
        f.start_block(after)

    def _place(self, buffer: str) -> str:
        """The address of a private value."""
        return self.to.expressions.pointer(buffer, ZERO, None)

    def _bits(self, buffer: str, t: DType) -> str:
        """The bits of a private value, as a word."""
        f, kind = self.to.f, f"i{8 * t.bytes}"
        x = f.op(f"load {kind}, ptr {self._place(buffer)}")
        return x if t.bytes == 8 else f.op(f"zext {kind} {x} to i64")


# Writes the body of a kernel: phases by the generator of flat statements, barriers by what the machine has for them.


WORD = 32
"""The bits of a register, which lanes give each other."""


def is_of_role(s: Role) -> Expr:
    """Whether a thread of a block is one of a role. The one that loads has the last threads."""
    first, end = Compare(">=", Var(THREAD), index(s.first)), Compare("<", Var(THREAD), index(s.first + s.threads))
    found = conjunction((*((first,) if s.first else ()), *(() if s.alone else (end,))))
    assert found is not None  # the first threads do not load
    return found


def wgmma_wait_text(s: WgmmaWait) -> str:
    """The words of PTX for a wait for instructions of warpgroups.

    ptxas moves a wait before instructions that it does not depend on, and so before the exponentials that are computed
    meanwhile. It does not move it across an event of the performance monitor, which counts something if a profiler asks.
    """
    before = "wgmma.commit_group.sync.aligned;" if s.ends_group else "pmevent 0;" if s.buffers else ""
    return f"{before} wgmma.wait_group.sync.aligned {s.groups};"


def barrier_of(s: Role) -> int:
    """The number of the barrier of the threads of a role; 0 is that of a block. Teams that take turns are as large."""
    return 1 + s.first // s.threads


PLAN = Plan(8 * ALIGNMENT, 1, ZERO, ZERO, late=True)


class DeviceStatements(Statements, ABC):
    """Writes what the threads of a kernel do. A subclass knows how they wait for each other, and for copies."""

    def __init__(self, f: Function, scope: SymbolTable, k: DeviceKernel) -> None:
        super().__init__(f, scope, PLAN, k.name, workspace="null", worker=None)
        self._scopes = dict.fromkeys(k.params, "device") | {b.name: "block" for b in k.shared}
        self._blocks = k.extents
        self._starts_copies = False
        self._phases = f.alloca(f"i{WORD}", 1)
        self._mbarrier = ""
        self.role: Role | None = None
        """The role whose statements are written."""

    @abstractmethod
    def barrier(self) -> None: ...

    @abstractmethod
    def meet_cluster(self) -> None:
        """Write a barrier of all threads of the blocks of a cluster."""
        ...

    @abstractmethod
    def start_copy(self, target: str, source: Callable[[], str], size: int, cond: str | None) -> None:
        """Write the start of a copy of `size` bytes from an address in global memory to one in shared memory, or of so many
        zeros where there is a condition and it does not hold. `source` writes the computation of the address."""
        ...

    def bytes_read(self, size: int, cond: str, kind: str) -> str:
        """Write how many bytes of a copy are read, and not zeros, as an integer of a kind."""
        return self.f.op(f"select i1 {cond}, {kind} {size}, {kind} 0")

    @abstractmethod
    def place_of_update(self, s: Store) -> str:
        """Write the address of the element that an atomic store updates."""
        ...

    @abstractmethod
    def next_number(self, chain: str) -> str:
        """Write that a block takes the next number of the counter of a scan."""
        ...

    @abstractmethod
    def put(self, chain: str, at: str, word: str, *, release: bool) -> None: ...

    @abstractmethod
    def get(self, chain: str, at: str, seen: Seen) -> str: ...

    @abstractmethod
    def pause(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def wait(self, groups: int) -> None: ...

    @abstractmethod
    def arm(self, number: int, warps: int) -> None:
        """Write that this thread sets up the mbarrier of a number, for bytes or for so many warps."""
        ...

    @abstractmethod
    def expect(self, at: str, size: int) -> None:
        """Write that an mbarrier expects so many bytes."""
        ...

    @abstractmethod
    def tma_load(self, s: Collective, at: str) -> None:
        """Write the start of a TMA load, whose bytes an mbarrier counts."""
        ...

    @abstractmethod
    def tma_store(self, s: Collective) -> None:
        """Write the start of a TMA store."""
        ...

    @abstractmethod
    def commit_tma_stores(self) -> None:
        """Write that the TMA stores that this thread has started since it last did so are one group."""
        ...

    @abstractmethod
    def wait_tma_stores(self) -> None:
        """Write that this thread waits until all groups of its TMA stores have read shared memory."""
        ...

    @abstractmethod
    def rejoin(self) -> None:
        """Write that a warp is together again, one lane of which has started copies."""
        ...

    @abstractmethod
    def await_phase(self, at: str, parity: str) -> None:
        """Write that a thread waits until the phase of an mbarrier with this parity, an integer of 32 bits, is over."""
        ...

    @abstractmethod
    def release(self, at: str, blocks: int) -> None:
        """Write that a warp arrives at an mbarrier when all its lanes have read: at that of its block, or of each of so many
        blocks of a cluster."""
        ...

    @abstractmethod
    def begin(self, s: Role) -> None:
        """Write what the threads of a role do first."""
        ...

    @abstractmethod
    def publish(self) -> None: ...

    @abstractmethod
    def engage(self, buffers: Sequence[str]) -> None:
        """Write that a thread is done with what it has of these buffers, before instructions that run beside it."""
        ...

    @abstractmethod
    def finish(self, s: WgmmaWait) -> None:
        """Write that a thread waits for such instructions."""
        ...

    def write_device(self, body: tuple[Device, ...]) -> None:
        """Write the statements of a kernel."""
        f, e = self.f, self.expressions
        for s in body:
            match s:
                case Phase(body=inner, asynchronous=asynchronous):
                    self._starts_copies = asynchronous
                    self.write(inner)
                    self._starts_copies = False
                case InitMbarriers(awaited=awaited):
                    over = sum(1 << n for n, warps in enumerate(awaited) if warps > 0)
                    f.line(f"store i{WORD} {over}, ptr {self._phases}")
                    self.under(FIRST, lambda awaited=awaited: self._arm(awaited))
                case TmaLoad(at=at, size=size, body=inner):
                    if self.role is not None and self.role.alone:
                        self._fetch(at, size, inner)
                        continue
                    self.under(FIRST, lambda at=at, size=size, inner=inner: self._fetch(at, size, inner))
                    self.rejoin()
                case TmaStore(body=inner):
                    self.under(FIRST, lambda inner=inner: self._put_out(inner))
                    self.rejoin()
                case WaitTmaStores():
                    self.under(FIRST, self.wait_tma_stores)
                    self.rejoin()
                case ArriveMbarrier(at=at, blocks=blocks):
                    self.release(str(e.index(at)), blocks)
                case Role():
                    self.under(is_of_role(s), lambda s=s: self._within(s))
                case WaitMbarrier(at=at):
                    self._waited_for(str(e.index(at)))
                case Barrier(cluster=cluster):
                    self.meet_cluster() if cluster else self.barrier()
                case Ticket():
                    self._numbered(s)
                case LookBack():
                    types = {name: t for name, (_, t) in self.expressions.scope.buffers.items()}
                    look = Looking(self, s, look_back_words(s, types))
                    self.under(FIRST, look.write)
                case CommitGroup():
                    self.commit()
                case WaitGroup(groups=groups):
                    self.wait(groups)
                case ProxyFence():
                    self.publish()
                case WgmmaFence(buffers=buffers):
                    self.engage(buffers)
                case WgmmaWait():
                    self.finish(s)
                case Steps(var=var, end=end, body=inner):
                    self.counted(var, 0, e.index(end), 1, lambda inner=inner: self.write_device(inner))
                case Guard(cond=cond, body=inner):
                    self.under(cond, lambda inner=inner: self.write_device(inner))
                case _:
                    assert_never(s)

    def under(self, cond: Expr, body: Callable[[], None]) -> None:
        """Write what is done if a condition holds."""
        f = self.f
        then, after = f.label("then"), f.label("after")
        f.branch_if(self.expressions.value(cond, None).ref, then, after)
        f.start_block(then)
        with f.region():
            body()
        f.branch(after)
        f.start_block(after)

    def _numbered(self, s: Ticket) -> None:
        """Write that the block is that of the next number: the axes get the digits of it, the first the fastest."""
        f, e = self.f, self.expressions
        self.under(FIRST, lambda: f.line(f"store i64 {self.next_number(s.chain)}, ptr {e.target(s.place, ZERO, None)}"))
        self.barrier()
        rest = f.op(f"load i64, ptr {e.pointer(s.place, ZERO, None)}")
        for axis, extent in self._blocks.items():
            size = e.index(extent)
            e.scope.vars[axis] = f.op(f"urem i64 {rest}, {size}")
            rest = f.op(f"udiv i64 {rest}, {size}")

    def _arm(self, awaited: tuple[int, ...]) -> None:
        for n, warps in enumerate(awaited):
            self.arm(n, abs(warps))

    def _within(self, s: Role) -> None:
        """Write what the threads of a role do."""
        self.role = s
        self.begin(s)
        scope = self.expressions.scope
        all_ = scope.vars[THREAD]
        with scope.bound({THREAD: self.f.op(f"sub nuw nsw i64 {all_}, {s.first}") if s.first else all_}):
            if s.alone:
                self.under(FIRST, lambda: self.write_device(s.body))
            else:
                self.write_device(s.body)
        self.role = None

    def _fetch(self, at: Expr, size: int, body: tuple[Flat, ...]) -> None:
        self._mbarrier = str(self.expressions.index(at))
        self.expect(self._mbarrier, size)
        self.write(body)

    def _put_out(self, body: tuple[Flat, ...]) -> None:
        self.write(body)
        self.commit_tma_stores()

    def _waited_for(self, at: str) -> None:
        """Write the wait for the next phase of an mbarrier, after all before it: the bit of the mbarrier has its parity."""
        f = self.f
        number = f.op(f"trunc i64 {at} to i{WORD}")
        phases = f.op(f"load i{WORD}, ptr {self._phases}")
        self.await_phase(at, f.op(f"and i{WORD} {f.op(f'lshr i{WORD} {phases}, {number}')}, 1"))
        turned = f.op(f"xor i{WORD} {phases}, {f.op(f'shl i{WORD} 1, {number}')}")
        f.line(f"store i{WORD} {turned}, ptr {self._phases}")

    def collective(self, s: Collective) -> None:
        if s.tile is None:
            self.together(s)
        elif s.tile.stores:
            self.tma_store(s)
        else:
            self.tma_load(s, self._mbarrier)

    @abstractmethod
    def together(self, s: Collective) -> None:
        """Write an instruction that the lanes of a warp do together."""
        ...

    def shuffle(self, s: Shuffle) -> None:
        """Write what lanes give each other as words of their bits, one after the other."""
        f, (store,) = self.f, s.body
        assert isinstance(store, Store) and isinstance(store.value, Load)  # as `shuffled` makes them
        bits = 8 * store.value.dtype.bytes
        source = self.expressions.pointer(store.value.buffer, store.value.indices[0], None)
        target = self.expressions.target(store.buffer, store.indices[0], None)
        if bits > WORD:
            words = range(bits // WORD)
            every = [f.op(f"load i{WORD}, ptr {f.op(f'getelementptr i{WORD}, ptr {source}, i64 {n}')}") for n in words]
            for n, word in enumerate(every):
                got = self.exchange(word, s)
                f.line(f"store i{WORD} {got}, ptr {f.op(f'getelementptr i{WORD}, ptr {target}, i64 {n}')}")
            return
        word = f.op(f"load i{bits}, ptr {source}")
        if bits < WORD:
            word = f.op(f"zext i{bits} {word} to i{WORD}")
        got = self.exchange(word, s)
        if bits < WORD:
            got = f.op(f"trunc i{WORD} {got} to i{bits}")
        f.line(f"store i{bits} {got}, ptr {target}")

    @abstractmethod
    def exchange(self, word: str, s: Shuffle) -> str:
        """Write that a lane gives a word of 32 bits, and return the one that it gets."""
        ...

    def _store(self, s: Store, at: Piece | None) -> None:
        if s.atomic:
            assert at is None  # as `whole_vectors` says
            write_update(self.f, self.expressions, s, self.place_of_update, self._scopes[s.buffer], self.under)
            return
        if not self._starts_copies:
            super()._store(s, at)
            return
        copied = filled(s.value)
        assert copied is not None  # only copies are started
        load, size = copied.load, copied.load.dtype.bytes * (1 if at is None else at.width)
        cond = None if copied.cond is None else self.expressions.value(copied.cond, None).ref
        target = self.expressions.target(s.buffer, s.indices[0], at)
        self.start_copy(target, lambda: self.expressions.pointer(load.buffer, load.indices[0], at), size, cond)


def kernel_buffers(f: Function, p: DeviceProgram, k: DeviceKernel, shared: str) -> SymbolTable:
    """The buffers of a kernel: `%p0`, `%p1`, … in global memory, places from the pointer `shared` on, a thread's own.

    Open sizes are `%d0`, `%d1`, …
    """
    types = {x.name: x.dtype for x in (*p.params, *p.scratch)}
    table = SymbolTable(vars={d.name: f"%d{n}" for n, d in enumerate(p.dims)})
    for n, name in enumerate(k.params):
        table.buffers[name] = (f"%p{n}", types[name])
        table.aligned[name] = ALIGNMENT
    for b in k.shared:
        table.buffers[b.name] = (f.op(f"getelementptr i8, ptr {shared}, i64 {b.offset}"), b.dtype)
        table.aligned[b.name] = gcd(b.offset, ALIGNMENT)
    for b in k.local:
        table.buffers[b.name] = (f.alloca(in_memory(b.dtype), b.size), b.dtype)
        table.aligned[b.name] = ALIGNMENT
    return table
