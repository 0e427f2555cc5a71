"""What a kernel for CPUs does, counted from its lowered loops: the operations of each nest, and what its accesses touch.

A *nest* is what runs in one iteration of a loop outside of the loops in it, with unrolled and vectorized loops written out,
as the code generator writes them: one *round*. Values that do not change along a loop are computed before it, equal values
once, and buffers of which every subscript is known in the code are registers, since LLVM does so. Nothing is run, and no
code is made: a lowered kernel is walked once.

Extents that depend on other loops are those at the middle of these, and a guard counts for the share of some iterations
that pass it. Data choose any element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor, prod
from typing import assert_never

from tensorc_dsl.backend.llvm.codegen.statements import code_for
from tensorc_dsl.backend.llvm.kind import operand_bits
from tensorc_dsl.backend.llvm.lower.code_size import AT_ONCE
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL, INDEX
from tensorc_dsl.ir.expr import (
    ARITHMETIC,
    COMPARISONS,
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
    constant,
    dtype_of,
    free_vars,
    loads,
)
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Kernel, Loop, Parallel, Shuffle

BYTES_OF_CODE = 7
"""Of an instruction on vectors with an address, about: six to eleven bytes with the prefixes of AVX-512."""

SAMPLES = 8
"""Iterations for which a guard is asked."""

SIMPLE = 1.0
"""Operations of a vector for one of the language that is one instruction."""

OF_FUNCTIONS: Mapping[str, float] = {
    "exp": 14, "exp2": 12, "expm1": 22, "log": 20, "log1p": 24, "log2": 20, "tanh": 24, "sigmoid": 22, "erf": 26, "sin": 26,
    "cos": 26, "tan": 44, "pow": 48, "rsqrt": 6, "sinh": 30, "cosh": 30, "asin": 30, "acos": 30, "atan": 26, "gelu": 30,
}  # fmt: skip
"""Instructions of a vector for a maths function, as the code generator writes them; others are one or two."""

OF_QUOTIENT = 5.0
"""Scalar instructions for a quotient or a remainder in a subscript, by a number that is no power of two: a product, two
shifts and a sum, and for a remainder a product and a difference."""

OF_EXTREME = 1.75
"""How long the larger of two floats is waited for, in products with sums: a comparison, and a choice."""

DIVISIONS = ("sqrt", "rsqrt")
"""Functions that take the divider."""


@frozen
class Span:
    """A loop that is counted: its place among all loops, how often it runs for each time that it is reached, the loop
    around it (-1 for none), and the threads that its iterations are tasks for, 0 if they are none."""

    number: int
    count: float
    around: int
    threads: int = 0


@frozen
class Access:
    """Elements of a buffer that a nest touches. `steps` are the distances in elements between iterations of the loops, by
    the places of these; `size` are the elements of the buffer. Where it is `random`, data choose the elements."""

    buffer: str
    bytes_: int
    size: float
    steps: Mapping[int, float]
    writes: bool
    random: bool


@dataclass(slots=True)
class Nest:
    """What runs in one iteration of the innermost of `loops`, outside of loops in it. Numbers are those of one round.

    `fmas`, `simple` and `divisions` are operations on vectors or scalars; `loads` and `stores` those that go to the first
    cache, `split` the ones of both that cross a line of it, and `gathered` lanes that are moved one by one. `folded` loads
    are operands of other instructions. `kept` registers have sums, and `held` have values that do not change along the
    loop. `chain` are products with sums that wait for each other from one round to the next, or as long as these, `sums`
    plain sums that do, and `through` those of them whose values go through memory. Unless they are `carried`, each round
    begins sums of its own.
    """

    loops: tuple[int, ...]
    rounds: float
    writes: str = ""
    fmas: float = 0.0
    simple: float = 0.0
    divisions: float = 0.0
    functions: float = 0.0
    loads: float = 0.0
    folded: float = 0.0
    broadcasts: float = 0.0
    stores: float = 0.0
    split: float = 0.0
    gathered: float = 0.0
    shuffles: float = 0.0
    scalars: float = 0.0
    branches: float = 0.0
    kept: float = 0.0
    held: float = 0.0
    operands: float = 0.0
    chain: float = 0.0
    sums: float = 0.0
    through: float = 0.0
    carried: bool = False
    narrow: float = 0.0
    """Operations on vectors that are less than half full."""
    tensorized: float = 0.0
    is_loop: bool = True
    """Whether the round is the body of a serial loop, and not what stands beside loops."""
    has_loops: bool = False
    """Whether loops stand in the round beside what is counted."""
    body: tuple[Flat, ...] = ()
    """The body of the loop, of which `steps` iterations are a round."""
    steps: float = 1.0
    accesses: dict[tuple[str, tuple[tuple[int, float], ...], bool], Access] = field(
        default_factory=dict[tuple[str, tuple[tuple[int, float], ...], bool], Access]
    )

    @property
    def operations(self) -> float:
        """Instructions of a round for the ports of arithmetic."""
        return self.fmas + self.simple + self.functions + self.divisions + self.shuffles + self.gathered

    @property
    def instructions(self) -> float:
        """Micro-operations of a round."""
        overhead = 2.0 if self.is_loop else 0.0
        return self.operations + self.loads - self.folded + self.stores + self.scalars + 2 * self.branches + overhead

    @property
    def is_empty(self) -> bool:
        return not (self.operations or self.loads or self.stores or self.accesses)


@frozen
class Counted:
    """The nests of a kernel, in text order, with all loops that are counted, those of rounds included."""

    nests: tuple[Nest, ...]
    spans: tuple[Span, ...]
    starts: int
    """How often threads are started and waited for."""


def counted(kernel: Kernel, target: Target, sizes: Sizes, least: float = 0.0) -> Counted:
    """What the kernel does in a call, at these sizes of its open dimensions; each loop runs `least` times, if not more."""
    counter = _Counter(target, dict(sizes), _in_memory(kernel.body), least)
    for d in sizes:
        counter.linear_of[d] = (float(sizes[d]), {})
        counter.means[d] = float(sizes[d])
    for p in kernel.params:
        counter.buffers[p.name] = _Buffer(p.dtype.bytes, prod(max(1.0, counter.number(n)) for n in p.shape))
    for p in kernel.prepared:
        counter.buffers[p.name] = _Buffer(p.dtype.bytes, max(1.0, counter.number(p.size)))
    root = Nest((), 1.0, is_loop=False)
    counter.nests.append(root)
    counter.body(kernel.body, _Here(root, None))
    nests = [n for n in counter.nests if not n.is_empty and n.rounds > 0]
    return Counted(tuple(nests), tuple(counter.spans), counter.starts)


def _in_memory(body: tuple[Flat, ...]) -> frozenset[int]:
    """The buffers, by the identity of their allocation, that are not in registers: some subscript has the variable of a
    loop inside of the allocation that is not written out."""
    found: set[int] = set()
    depth: dict[str, int] = {}
    open_: dict[str, tuple[int, int]] = {}

    def subscript(buffer: str, e: Expr) -> None:
        here = open_.get(buffer)
        if here is not None and here[1] not in found:
            if any(depth.get(v, -1) >= here[0] for v in free_vars(e)):
                found.add(here[1])

    def go(part: tuple[Flat, ...], level: int) -> None:
        for s in part:
            match s:
                case Store():
                    subscript(s.buffer, s.indices[0])
                    for x in (*loads(s.indices[0]), *loads(s.value)):
                        subscript(x.buffer, x.indices[0])
                case Alloc():
                    before = open_.get(s.name)
                    open_[s.name] = (level, id(s))
                    if s.space != "stack":
                        found.add(id(s))
                    go(s.body, level)
                    if before is None:
                        del open_[s.name]
                    else:
                        open_[s.name] = before
                case Loop() if s.kind is LoopKind.UNROLLED or (s.kind is LoopKind.VECTORIZED and not _is_long(s)):
                    before_depth = depth.pop(s.var, None)
                    go(s.body, level)
                    if before_depth is not None:
                        depth[s.var] = before_depth
                case Loop(var=var):
                    before_depth = depth.get(var)
                    depth[var] = level
                    go(s.body, level + 1)
                    _restore(depth, var, before_depth)
                case Parallel():
                    for v in s.vars:
                        depth[v] = level
                    go(s.body, level + 1)
                    for v in s.vars:
                        depth.pop(v, None)
                case If() | Instruction() | Collective() | Shuffle():
                    go(s.body, level)

    go(body, 0)
    return frozenset(found)


def _restore(depth: dict[str, int], var: str, before: int | None) -> None:
    if before is None:
        del depth[var]
    else:
        depth[var] = before


LONG = 2 * AT_ONCE * 16
"""Lanes of 32 bits and 512 bits above which a vectorized loop stays one; `_Counter` takes the target's."""


def _is_long(s: Loop) -> bool:
    begin, end = constant(s.begin), constant(s.end)
    return begin is None or end is None or end - begin > LONG


@frozen
class _Buffer:
    bytes_: int
    size: float
    registers: bool = False
    within: Nest | None = None
    """The nest in whose rounds it is allocated."""


@frozen
class _Lanes:
    """The lanes that stores run for: the loop's variable and place, how many there are, and the native vectors of them,
    with the parts that the last one is loaded or stored in."""

    var: str
    place: int
    count: int
    width: int

    @property
    def vectors(self) -> int:
        return ceil(self.count / self.width)

    @property
    def parts(self) -> int:
        """Loads of contiguous lanes: a rest of 13 lanes is one of 8, one of 4 and one of 1."""
        return self.count // self.width + (self.count % self.width).bit_count()


@dataclass(slots=True)
class _Here:
    """Where statements stand: in the round of a nest, whose loop has this variable, within loops that are written out."""

    nest: Nest
    loop: str | None
    parent: _Here | None = None
    unrolled: tuple[tuple[str, int], ...] = ()
    lanes: _Lanes | None = None
    share: float = 1.0
    """The share of rounds in which guards let this run."""
    written: frozenset[str] = frozenset()
    """The buffers that iterations of the loop write: what is read of these changes along it, whatever its subscript."""

    def times(self, names: frozenset[str]) -> float:
        """For how many iterations of unrolled loops and vectors a value over these variables is computed."""
        n = self.share
        for v, count in self.unrolled:
            if v in names:
                n *= count
        if self.lanes is not None and self.lanes.var in names:
            n *= self.lanes.vectors
        return n


_Linear = tuple[float, dict[int, float]]


@dataclass(slots=True)
class _Counter:
    target: Target
    sizes: Mapping[str, int]
    in_memory: frozenset[int]
    least: float
    nests: list[Nest] = field(default_factory=list[Nest])
    spans: list[Span] = field(default_factory=list[Span])
    buffers: dict[str, _Buffer] = field(default_factory=dict[str, _Buffer])
    linear_of: dict[str, _Linear] = field(default_factory=dict[str, _Linear])
    means: dict[str, float] = field(default_factory=dict[str, float])
    extents: dict[str, float] = field(default_factory=dict[str, float])
    starts: int = 0
    known: dict[int, tuple[dict[int, float], bool]] = field(default_factory=dict[int, tuple[dict[int, float], bool]])
    """By the identity of a subscript: its steps, and whether data are part of it, while no loop is opened."""
    writes: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    """By the identity of a loop's body: the buffers that it writes."""
    random: bool = False
    """Whether data are part of the subscript that was read last."""

    # Statements

    def body(self, body: tuple[Flat, ...], here: _Here) -> None:
        for s in body:
            match s:
                case Store():
                    self._store(s, here)
                case Loop(kind=LoopKind.VECTORIZED) if here.lanes is None:
                    self._vectors(s, here)
                case Loop(kind=LoopKind.UNROLLED) if not _has_serial(s.body):
                    self._unrolled(s, here)
                case Loop():
                    self._serial(s, here)
                case Parallel():
                    self._parallel(s, here)
                case If(cond=cond, body=inner):
                    share = max(self._share(cond), self.least / SAMPLES)
                    here.nest.branches += here.times(free_vars(cond))
                    if share > 0:
                        self.body(inner, replace(here, share=here.share * share))
                case Alloc():
                    self._alloc(s, here)
                case Instruction():
                    self._instruction(s, here)
                case Collective() | Shuffle():
                    self.body(s.body, here)
                case _:
                    assert_never(s)

    def _open(self, var: str, begin: float, count: float, around: int, *, threads: int = 0) -> int:
        place = len(self.spans)
        self.known.clear()
        self.spans.append(Span(place, count, around, threads))
        self.linear_of[var] = (begin, {place: 1.0})
        self.means[var] = begin + max(0.0, count - 1) / 2
        self.extents[var] = count
        return place

    def _bounds(self, s: Loop) -> tuple[float, float]:
        begin, end = self.number(s.begin), self.number(s.end)
        return begin, max(self.least, end - begin)

    def _serial(self, s: Loop, here: _Here) -> None:
        begin, count = self._bounds(s)
        if s.scattered:
            count = min(count, 1.0)
        if count <= 0:
            return
        self._counted(s.var, begin, count, s.body, here, lambda inside: self.body(s.body, inside))

    def _counted(
        self, var: str, begin: float, count: float, body: tuple[Flat, ...], here: _Here, inside: Callable[[_Here], None], *,
        threads: int = 0, steps: float = 1.0,
    ) -> None:  # fmt: skip
        """A loop that stays one around the body, with what stands inside of it."""
        here.nest.has_loops = True
        # Loops that are written out around it repeat its code.
        copies = here.share * prod(n for _, n in here.unrolled)
        loops = here.nest.loops
        for name, n in here.unrolled:
            around = loops[-1] if loops else -1
            loops = (*loops, self._open(name, 0.0, float(n), around))
        place = self._open(var, begin, count, loops[-1] if loops else -1, threads=threads)
        inner = Nest((*loops, place), here.nest.rounds * copies * count, body=body, steps=steps)
        self.nests.append(inner)
        inside(_Here(inner, var, here if not here.unrolled else None, written=self._written(body)))

    def _parallel(self, s: Parallel, here: _Here) -> None:
        cores = self.target.cores
        threads = cores if s.worth is None else max(1, min(cores, floor(self.number(s.worth))))
        self.starts += threads > 1

        def one(k: int, at: _Here) -> None:
            if k == len(s.vars):
                self.body(s.body, at)
                return
            count = max(self.least, self.number(s.extents[k]))
            if count > 0:
                self._counted(s.vars[k], 0.0, count, s.body, at, lambda inside: one(k + 1, inside), threads=threads)

        one(0, here)

    def _unrolled(self, s: Loop, here: _Here) -> None:
        begin, count = self._bounds(s)
        if count > 0:
            self._open(s.var, begin, count, -2)
            self.body(s.body, replace(here, unrolled=(*here.unrolled, (s.var, int(count)))))

    def _vectors(self, s: Loop, here: _Here) -> None:
        begin, count = self._bounds(s)
        if count <= 0:
            return
        width = self._width(s)
        group = AT_ONCE * width
        if count <= 2 * group:
            place = self._open(s.var, begin, count, -2)
            self.body(s.body, replace(here, lanes=_Lanes(s.var, place, int(count), width)))
            return

        def piece(inside: _Here) -> None:
            (_, outer), place = self.linear_of[s.var], len(self.spans)
            self.known.clear()
            self.spans.append(Span(place, float(group), -2))
            self.linear_of[s.var] = (begin, {**{k: float(group) for k in outer}, place: 1.0})
            self.means[s.var] = begin + (count - 1) / 2
            self.extents[s.var] = count
            self.body(s.body, replace(inside, lanes=_Lanes(s.var, place, group, width)))

        # The rest behind whole groups counts as the share of a group that it is.
        self._counted(s.var, begin, count / group, s.body, here, piece, steps=group)

    def _width(self, s: Loop) -> int:
        """The lanes of a native vector, as the code generator takes them."""
        bits = 32
        for x in _stores(s.body):
            bits = max(bits, dtype_of(x.value).bits, *(r.dtype.bits for r in loads(x.value)))
        return max(1, self.target.vector_bits // bits)

    def _alloc(self, s: Alloc, here: _Here) -> None:
        before = self.buffers.get(s.name)
        size = max(1.0, self.number(s.size))
        fits = size * s.dtype.bytes <= self.target.vector_registers * self.target.vector_bits // 8
        registers = s.space == "stack" and fits and id(s) not in self.in_memory
        self.buffers[s.name] = _Buffer(s.dtype.bytes, size, registers, here.nest)
        self.body(s.body, here)
        if before is not None:
            self.buffers[s.name] = before

    def _written(self, body: tuple[Flat, ...]) -> frozenset[str]:
        """The buffers that statements of the body write."""
        found = self.writes.get(id(body))
        if found is None:
            found = self.writes[id(body)] = frozenset(x.buffer for x in _stores(body))
        return found

    # Stores

    def _store(self, s: Store, here: _Here) -> None:
        nest, target_names = here.nest, free_vars(s.indices[0])
        value_names = free_vars(s.value)
        own = [x for x in loads(s.value) if x.buffer == s.buffer]
        names = target_names | value_names
        every = here.times(names)
        buffer = self.buffers[s.buffer]
        nest.writes = nest.writes or s.buffer
        updates = any(x.indices[0] == s.indices[0] for x in own)
        recurs = bool(own) and not updates
        lanes = here.lanes
        across = lanes is not None and lanes.var in value_names and lanes.var not in target_names
        stays = here.loop is None or here.loop not in target_names
        targets = here.times(target_names)
        depth = self._value(s.value, s, here, every, names)
        if across and updates:
            nest.shuffles += 4.0 * here.times(target_names)
        if updates:
            # Steps that are written out wait for each other, also where each round has sums of its own.
            steps = every / max(targets, 1e-9)
            if stays or steps > 1.0:
                nest.kept += targets
                nest.carried |= stays and here.loop is not None and buffer.within is not nest
                if _is_sum(s.value):
                    nest.sums = max(nest.sums, steps)
                else:
                    nest.chain = max(nest.chain, steps * (OF_EXTREME if _is_extreme(s.value) else 1.0))
        elif recurs:
            nest.chain = max(nest.chain, depth * every / max(targets, 1e-9))
            nest.carried = True
            nest.through = max(nest.through, 0.0 if buffer.registers else 1.0)
        if buffer.registers:
            if updates and lanes is not None and abs(self._steps(s.indices[0]).get(lanes.place, 0.0)) not in (0.0, 1.0):
                # LLVM keeps such a sum in order of the buffer: it takes the lanes apart and puts them together in each round.
                nest.gathered += 2.0 * every / lanes.vectors * lanes.count
            return
        outer = here.parent if (updates and stays and here.parent is not None) else None
        if outer is not None:
            # The sum is in registers while the loop runs: it is read before and written behind it.
            at = _outside(outer, here)
            self._move(s.buffer, s.indices[0], at, targets / max(here.share, 1e-9) * at.share, True)
            self._move(s.buffer, s.indices[0], at, targets / max(here.share, 1e-9) * at.share, False)
        else:
            self._move(s.buffer, s.indices[0], here, targets, True)
            if updates:
                self._move(s.buffer, s.indices[0], here, targets, False)

    def _value(self, e: Expr, s: Store, here: _Here, every: float, names: frozenset[str]) -> float:
        """Count what an expression of a store takes; the operations on its longest path."""
        match e:
            case Const() | Var() | Dim():
                return 0.0
            case Load():
                self._load(e, s, here)
                return 0.0
            case _:
                pass
        used = free_vars(e)
        found = loads(e)
        if not used and not found:
            return 0.0
        changing = any(x.buffer == s.buffer for x in found)
        times = every if changing else here.times(used)
        at = here
        if not changing and here.parent is not None and here.loop is not None and here.loop not in used:
            if all(self._is_steady(x, here) for x in found):
                at = here.parent
                here.nest.held += times * (dtype_of(e) not in (INDEX, BOOL))
        nest = at.nest
        match e:
            case Binary(op="+" | "-" as op, lhs=a, rhs=b) if dtype_of(e).is_float and (
                _is_product(b) or _is_product(a)
            ):
                product, other = (b, a) if _is_product(b) else (a, b)
                assert isinstance(product, Binary)
                nest.fmas += times
                parts = (other, product.lhs, product.rhs)
                del op
            case Binary(op=op, lhs=a, rhs=b):
                if dtype_of(e) == INDEX:
                    nest.scalars += times
                elif op in ("/", "%"):
                    nest.divisions += times
                else:
                    nest.simple += times * (
                        3.0 if op == "*" and dtype_of(e).is_integer and dtype_of(e).bits == 64 else 1.0
                    )
                parts = (a, b)
            case Call(function=f, args=args):
                nest.functions += times * OF_FUNCTIONS.get(f, SIMPLE)
                nest.divisions += times * (f in DIVISIONS)
                depth = OF_FUNCTIONS.get(f, SIMPLE)
                return depth + max((self._value(x, s, at, every, names) for x in args), default=0.0)
            case Select(cond=c, then=a, other=b):
                about = free_vars(c)
                shared = here.lanes is None or here.lanes.var not in about
                self._choice(nest, here, about, here.times(about) if shared and not changing else times)
                parts = (c, a, b)
            case Cast(operand=a) | Bitcast(operand=a):
                nest.simple += times * (dtype_of(a) != INDEX)
                parts = (a,)
            case Compare(lhs=a, rhs=b) | Logic(lhs=a, rhs=b):
                if not isinstance(e, Logic):
                    self._choice(nest, here, used, times)
                parts = (a, b)
            case Not(operand=a):
                parts = (a,)
            case _:
                assert_never(e)
        # What is inside of a value that is computed before the loop is so, too: its place is told by its own variables.
        return 1.0 + max((self._value(x, s, here, every, names) for x in parts), default=0.0)

    @staticmethod
    def _choice(nest: Nest, here: _Here, used: frozenset[str], times: float) -> None:
        """A comparison or a choice: all lanes share one that is about none of them."""
        if here.lanes is None or here.lanes.var not in used:
            nest.scalars += times
        else:
            nest.simple += times

    def _is_steady(self, x: Load, here: _Here) -> bool:
        """Whether a load gives the same along the loop, which it does not mention."""
        return not self.buffers[x.buffer].registers and x.buffer not in here.written

    # Accesses

    def _load(self, x: Load, s: Store, here: _Here) -> None:
        if x.buffer == s.buffer and x.indices[0] == s.indices[0]:
            return  # an update reads what it writes
        for inner in x.indices[0:1]:
            for y in loads(inner):
                self._load(y, s, here)
        if self.buffers[x.buffer].registers:
            return
        used = free_vars(x.indices[0])
        times = here.times(used)
        at = here
        if here.loop is not None and here.loop not in used and here.parent is not None and self._is_steady(x, here):
            at = _outside(here.parent, here)
            here.nest.held += times
            self._note(x.buffer, x.indices[0], here, False)
        self._move(x.buffer, x.indices[0], at, times / max(here.share, 1e-9) * at.share, False, of=s, uses=times)

    def _move(
        self,
        buffer: str,
        index: Expr,
        here: _Here,
        times: float,
        writes: bool,
        of: Store | None = None,
        uses: float = 0.0,
    ) -> None:
        """Count the loads or stores of an access that happens `times` times in a round, vectors of it counted."""
        b, nest, lanes = self.buffers[buffer], here.nest, here.lanes
        access = self._note(buffer, index, here, writes)
        names = free_vars(index) - ({lanes.var} if lanes is not None else set[str]())
        nest.scalars += OF_QUOTIENT * here.times(names) * len(self._quotients(index, here.loop))
        step = 0.0 if lanes is None else access.steps.get(lanes.place, 0.0)
        if lanes is None or (step == 0.0 and not access.random):
            count = times
            if not writes and lanes is not None:
                nest.broadcasts += times
        elif access.random or abs(step) != 1.0:
            count = times / lanes.vectors * lanes.count
            nest.gathered += count
        else:
            count = times / lanes.vectors * lanes.parts
            if min(lanes.count, lanes.width) * b.bytes_ * 2 < self.target.vector_bits // 8:
                nest.narrow += count
            size = min(lanes.count, lanes.width) * b.bytes_
            if (
                any(k != lanes.place and (d * b.bytes_) % size for k, d in access.steps.items())
                or b.size * b.bytes_ % 64
            ):
                nest.split += count * min(1.0, size / 64)
        if writes:
            nest.stores += count
        else:
            nest.loads += count
            if of is not None and here.times(free_vars(of.value) | free_vars(of.indices[0])) <= times * 1.01:
                nest.folded += count
            else:
                nest.operands += count

    def _quotients(self, index: Expr, loop: str | None) -> set[tuple[Expr, int]]:
        """What a subscript divides in each iteration of a loop, and by which numbers: those that are no powers of two."""
        found: set[tuple[Expr, int]] = set()
        parts = [index] if loop is not None and loop in free_vars(index) else []
        while parts:
            e = parts.pop()
            if isinstance(e, Binary):
                by = constant(e.rhs) if e.op in ("/", "%") else None
                if by is not None and by & (by - 1):
                    found.add((e.lhs, by))
                parts += [x for x in (e.lhs, e.rhs) if loop in free_vars(x)]
        return found

    def _steps(self, index: Expr) -> dict[int, float]:
        """How far one iteration of each loop moves an access; `random` then says whether that is not known."""
        found = self.known.get(id(index))
        if found is None:
            self.random = False
            _, steps = self.linear(index)
            found = self.known[id(index)] = steps, self.random
        steps, self.random = found
        return steps

    def _note(self, buffer: str, index: Expr, here: _Here, writes: bool) -> Access:
        """The access among those of the nest."""
        steps = self._steps(index)
        b = self.buffers[buffer]
        key = (buffer, tuple(sorted(steps.items())), writes)
        found = here.nest.accesses.get(key)
        if found is None:
            found = Access(buffer, b.bytes_, b.size, steps, writes, self.random)
            here.nest.accesses[key] = found
        return found

    def _instruction(self, s: Instruction, here: _Here) -> None:
        """An instruction on tiles: each tile is loaded in vectors, the result stored unless it is in registers."""
        if code_for(s.intrinsic, self.target.feature_names) is None:
            self.body(s.body, here)
            return
        nest = here.nest
        names = frozenset[str]().union(*(free_vars(o) for t in s.tiles for o in t.origin))
        times = here.times(names)
        nest.fmas += times
        nest.tensorized += times
        result = s.intrinsic.store.buffer
        for t in s.tiles:
            b, used = self.buffers[t.buffer], frozenset[str]().union(*map(free_vars, t.origin))
            own = here.times(used)
            is_result = t.operand.name == result
            if is_result:
                nest.writes = nest.writes or t.buffer
            stays = here.loop is None or here.loop not in used
            if is_result and stays:
                nest.kept += own
                nest.chain = max(nest.chain, times / max(own, 1e-9))
            if b.registers:
                continue
            self.random = False
            _, steps = self.linear(t.origin[0])
            steps = dict(steps)
            for step, n in zip(t.steps, t.operand.shape, strict=True):
                place = len(self.spans)
                self.spans.append(Span(place, max(1.0, self.number(n)), -2))
                steps[place] = self.number(step[0])
            for writes in (False, True) if is_result else (False,):
                key = (t.buffer, tuple(sorted(steps.items())), writes)
                nest.accesses.setdefault(key, Access(t.buffer, b.bytes_, b.size, steps, writes, self.random))
            vectors = max(1.0, operand_bits(t.operand) / self.target.vector_bits)
            at = nest if not (stays and here.parent is not None) else here.parent.nest
            at.loads += own * vectors
            at.operands += own * vectors
            if is_result:
                at.stores += own * vectors

    # Subscripts

    def linear(self, e: Expr) -> _Linear:
        """An index as a constant and multiples of loops: quotients and remainders, limits and choices are approximated."""
        match e:
            case Const(value=v):
                return float(v), {}
            case Var(name=name) | Dim(name=name):
                return self.linear_of.get(name, (0.0, {}))
            case Binary(op=op, lhs=a, rhs=b):
                return self._linear_binary(op, self.linear(a), self.linear(b))
            case Select(then=a, other=b):
                x, y = self.linear(a), self.linear(b)
                return x if len(x[1]) >= len(y[1]) else y
            case Cast(operand=a):
                return self.linear(a)
            case Load():
                self.random = True
                return 0.0, {}
            case Compare() | Logic() | Not() | Call() | Bitcast():
                self.random = self.random or bool(loads(e))
                return 0.0, {}
            case _:
                assert_never(e)

    def _linear_binary(self, op: str, x: _Linear, y: _Linear) -> _Linear:
        (c, a), (d, b) = x, y
        match op:
            case "+" | "-":
                sign = 1.0 if op == "+" else -1.0
                if not b:
                    return c + sign * d, a
                out = dict(a)
                for k, v in b.items():
                    out[k] = out.get(k, 0.0) + sign * v
                return c + sign * d, {k: v for k, v in out.items() if v}
            case "*":
                if not b:
                    return c * d, {k: v * d for k, v in a.items()} if d else {}
                if not a:
                    return c * d, {k: v * c for k, v in b.items()} if c else {}
                return 0.0, {**a, **b}
            case "/":
                if b or not d:
                    return 0.0, a
                return floor(c / d), {k: v / d for k, v in a.items()}
            case "%":
                if b or not d:
                    return 0.0, a
                reach = c + sum(abs(v) * (self.spans[k].count - 1) for k, v in a.items())
                if reach < d:
                    return x
                return c % d, {k: v for k, v in a.items() if v % d}
            case _:
                return x if len(a) >= len(b) else y

    def number(self, e: Expr) -> float:
        """The value of a size or a bound, at the middle of the loops around."""
        if isinstance(e, Const):
            return float(e.value)
        try:
            return float(evaluate(e, self.means))
        except (KeyError, ZeroDivisionError):
            return 1.0

    def _share(self, cond: Expr) -> float:
        """The share of some iterations in which a condition on positions holds; one on data holds."""
        names = sorted(v for v in free_vars(cond) if v in self.extents)
        if loads(cond) or not names:
            return 1.0 if loads(cond) else float(bool(self.number(cond)))
        low = {v: self.means[v] - (self.extents[v] - 1) / 2 for v in names}
        held = 0
        for n in range(SAMPLES):
            # A lattice: the samples of each variable are spread evenly, those of several in different orders.
            held += self._passes(
                cond,
                {
                    v: low[v] + floor(((n * (2 * k + 1) + 0.5 * k) % SAMPLES + 0.5) / SAMPLES * self.extents[v])
                    for k, v in enumerate(names)
                },
            )
        if not held and self._passes(cond, low):
            # One row of a tile of many: its iteration is between the samples.
            return 1.0 / prod(max(1.0, self.extents[v]) for v in names)
        return held / SAMPLES

    def _passes(self, cond: Expr, at: Mapping[str, float]) -> bool:
        try:
            return bool(evaluate(cond, {**self.means, **at}))
        except (KeyError, ZeroDivisionError):
            return True


def _outside(outer: _Here, here: _Here) -> _Here:
    """Before the loop, where its round's statements would stand."""
    return replace(outer, unrolled=(*outer.unrolled, *here.unrolled), lanes=here.lanes)


def _stores(body: tuple[Flat, ...]) -> list[Store]:
    out: list[Store] = []
    for s in body:
        if isinstance(s, Store):
            out.append(s)
        else:
            out += _stores(s.body)
    return out


def _has_serial(body: tuple[Flat, ...]) -> bool:
    """Whether a loop that is not written out stands in the body."""
    for s in body:
        if isinstance(s, Parallel):
            return True
        if isinstance(s, Loop) and (s.kind in (LoopKind.SERIAL, LoopKind.PARALLEL) or _is_long(s)):
            return True
        if not isinstance(s, Store) and _has_serial(s.body):
            return True
    return False


def _is_sum(e: Expr) -> bool:
    """Whether a float is a sum of values that are no products."""
    plain = isinstance(e, Binary) and e.op in ("+", "-") and dtype_of(e).is_float
    return isinstance(e, Binary) and plain and not (_is_product(e.lhs) or _is_product(e.rhs))


def _is_extreme(e: Expr) -> bool:
    """Whether a float is the larger or the smaller one of two: three instructions, since NaN is one of its values."""
    return isinstance(e, Binary) and e.op in ("min", "max") and dtype_of(e).is_float


def _is_product(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op == "*"


def evaluate(e: Expr, at: Mapping[str, float]) -> float:
    """A size, bound or condition as a number."""
    match e:
        case Const(value=v):
            return float(v)
        case Var(name=name) | Dim(name=name):
            return at[name]
        case Binary(op=op, lhs=a, rhs=b):
            x, y = evaluate(a, at), evaluate(b, at)
            return float(int(x) ^ int(y) if op == "xor" else ARITHMETIC[op](x, y))
        case Compare(op=op, lhs=a, rhs=b):
            return float(COMPARISONS[op](evaluate(a, at), evaluate(b, at)))
        case Logic(op=op, lhs=a, rhs=b):
            x, y = evaluate(a, at), evaluate(b, at)
            return float(bool(x) and bool(y)) if op == "and" else float(bool(x) or bool(y))
        case Not(operand=a):
            return float(not evaluate(a, at))
        case Select(cond=c, then=a, other=b):
            return evaluate(a if evaluate(c, at) else b, at)
        case Cast(operand=a):
            return evaluate(a, at)
        case Load() | Call() | Bitcast():
            return 1.0
        case _:
            assert_never(e)
