"""Generates LLVM text for flat statements: loops, guards, stores, buffers; parallel bodies become functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import assert_never

from tensorc_dsl.backend.llvm.codegen.arithmetic import any_lane, combined, fold_lanes
from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.backend.llvm.codegen.function import (
    UNROLL,
    Function,
    Piece,
    Scalar,
    SymbolTable,
    Value,
    in_memory,
    mangled,
    vector_type,
)
from tensorc_dsl.backend.llvm.codegen.lane_loads import can_mask
from tensorc_dsl.backend.llvm.codegen.permuted_vectors import shifted, turned, write_turned
from tensorc_dsl.backend.llvm.kind import OPERATIONS, SPLAT, Call, Leaf, bits_of, call_of, operand_bits, values_of
from tensorc_dsl.backend.llvm.lower.code_size import AT_ONCE, at_once, code_size, fits_registers
from tensorc_dsl.backend.llvm.lower.passes import Fetch, fetch_ahead
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import BOOL
from tensorc_dsl.ir.expr import (
    ZERO,
    Expr,
    Load,
    add,
    ceildiv,
    constant,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
)
from tensorc_dsl.ir.program import Intrinsic, LoopKind, Store
from tensorc_dsl.ir.reductions import fold_of
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    Parallel,
    Prepared,
    Shuffle,
    body_of,
    store_loads,
    stores,
)
from tensorc_dsl.proof.sets.instructions import Tile

# Finds the names that occur in lowered statements: what a function of its own has to be given.


def mentioned(body: tuple[Flat, ...]) -> tuple[set[str], set[str]]:
    """The buffers and variables that occur in statements."""
    buffers: set[str] = set()
    names: set[str] = set()
    exprs: list[Expr] = []

    def go(part: tuple[Flat, ...]) -> None:
        for s in part:
            match s:
                case Store():
                    buffers.add(s.buffer)
                    exprs.extend((*s.indices, s.value))
                case Loop():
                    exprs.extend((s.begin, s.end))
                case Parallel():
                    exprs.extend(s.extents)
                case If():
                    exprs.append(s.cond)
                case Alloc():
                    exprs.append(s.size)
                case Instruction() | Collective() | Shuffle():
                    pass  # the same names occur in its body
            go(body_of(s))

    go(body)
    for e in exprs:
        names |= free_vars(e)
        buffers.update(x.buffer for x in loads(e))
    return buffers, names


# What a function of its own inside of a kernel is given: the buffers and variables that its statements mention.


@frozen
class Handed:
    """The scope inside of a function, in terms of its arguments `%a0`, `%a1`, …, and the values to pass for these, each as
    its type and its name. The first one is the scratch memory."""

    scope: SymbolTable
    values: tuple[tuple[str, str], ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind, _ in self.values)

    @property
    def params(self) -> tuple[str, ...]:
        """The arguments as declared: pointers do not overlap."""
        return tuple(f"ptr noalias %a{k}" if t == "ptr" else f"{t} %a{k}" for k, t in enumerate(self.kinds))


def hand_over(scope: SymbolTable, workspace: str, body: tuple[Flat, ...], sizes: Iterable[Expr]) -> Handed:
    """What a function needs whose statements are `body`, and which computes `sizes` as well."""
    values: list[tuple[str, str]] = [("ptr", workspace)]
    inner = SymbolTable(streamed=scope.streamed, fixed=scope.fixed)

    def argument(kind: str, value: str) -> str:
        values.append((kind, value))
        return f"%a{len(values) - 1}"

    buffers, names = mentioned(body)
    names |= {v for e in sizes for v in free_vars(e)}
    for name in sorted(buffers & scope.buffers.keys()):
        pointer, dtype = scope.buffers[name]
        inner.buffers[name] = (argument("ptr", pointer), dtype)
    for name in sorted(names & scope.vars.keys()):
        value = scope.vars[name]
        inner.vars[name] = value if isinstance(value, int) else argument("i64", value)
        if name in scope.factors:
            inner.factors[name] = scope.factors[name]
    return Handed(inner, tuple(values))


# Writes stores: scalars, the lanes of a piece, and what all lanes fold into.


PREFETCH = "llvm.prefetch.p0"


def write_store(e: Expressions, s: Store, at: Piece | None) -> None:
    """Write a store of one element, or of the lanes of a piece."""
    f, index = e.f, s.indices[0]
    value = e.value(s.value, at)
    t = value.dtype
    if at is None:
        _store_one(e, value, e.target(s.buffer, index, None))
        return
    step = e.stride(index, at)
    value = f.splat(value, at.width)
    if step == 1 and at.mask is None:
        e.put(value, s.buffer, index, at)
    elif step == 1 and at.mask is not None and e.holds_lanes(s.buffer, index, at):
        # Stored as a whole vector, the buffer can be in registers; a masked store keeps it in memory.
        pointer, stored = e.target(s.buffer, index, at), e.to_memory(value)
        kind = stored.type
        old = f.op(f"load {kind}, ptr {pointer}, align {t.bytes}")
        new = f.op(f"select {at.mask.typed}, {stored.typed}, {kind} {old}")
        f.line(f"store {kind} {new}, ptr {pointer}, align {t.bytes}")
    elif step == 1 and at.mask is not None:
        value = e.to_memory(value)
        pointer = e.target(s.buffer, index, at)
        name = f"llvm.masked.store.{mangled(t, at.width)}.p0"
        f.module.declare("void", name, (value.type, "ptr", "i32", at.mask.type))
        f.line(f"call void @{name}({value.typed}, ptr {pointer}, i32 {t.bytes}, {at.mask.typed})")
    elif at.mask is None and step is not None:
        first = e.target(s.buffer, index, at)
        for k in range(at.width):
            place = f.cached(f"getelementptr {in_memory(t)}, ptr {first}, i64 {k * step}")
            _store_one(e, f.lane(value, k), place)
    else:
        value = e.to_memory(value)
        pointers = e.pointers(s.buffer, index, at)
        mask = at.mask or Value(BOOL, "splat (i1 true)", at.width)
        name = f"llvm.masked.scatter.{mangled(t, at.width)}.v{at.width}p0"
        f.module.declare("void", name, (value.type, f"<{at.width} x ptr>", "i32", mask.type))
        places = f"<{at.width} x ptr> {pointers}, i32 {t.bytes}"
        f.line(f"call void @{name}({value.typed}, {places}, {mask.typed})")


def write_fold(e: Expressions, s: Store, pieces: tuple[Piece, ...]) -> None:
    """Write a store into which all lanes fold: they are folded with each other, then into the stored value."""
    f, fold = e.f, fold_of(s)
    assert fold is not None  # only folds may store to one element from several lanes
    lanes = fold_lanes(f, fold.op, [f.splat(e.value(fold.value, at), at.width) for at in pieces])
    old = e.value(Load(s.buffer, s.indices, lanes.dtype), None)
    _store_one(e, combined(f, fold.op, old, lanes), e.target(s.buffer, s.indices[0], None))


def _store_one(e: Expressions, value: Value, pointer: str) -> None:
    stored = e.to_memory(value)
    e.f.line(f"store {stored.type} {stored.ref}, ptr {pointer}, align {value.dtype.bytes}")


PARALLEL_FOR = "tensorc_parallel_for"
"""`void (ptr fn, ptr context, i64 tasks, i64 threads)`: runs `fn(context, begin, end, worker)` on parts of 0 .. tasks, with
a different `worker` in 0 .. threads-1 for each thread. The runtime defines it."""

_TASK = ".task"
"""The task counter, under a name that no variable of a program can have."""


APART = 256
"""The `code_size` from which on a loop of a large kernel is a function of its own."""


@frozen
class Plan:
    """The settings of a whole kernel."""

    vector_bits: int
    threads: int
    shared_bytes: Expr
    worker_bytes: Expr
    features: tuple[str, ...] = ()
    """The instruction sets of the target."""
    large: bool = False
    """Whether the code is so much that loops are functions of their own, and vectors of a long expression are written one by
    one: some of LLVM's passes take the square of a function's size."""
    late: bool = False
    """Whether LLVM unrolls the unrolled loops, which keeps the text short, and element types narrower than 32 bits make
    vectors of more lanes."""


class Statements:
    """Writes statements into one function, in a scope that grows and shrinks with them."""

    def __init__(
        self, f: Function, scope: SymbolTable, plan: Plan, symbol: str, *, workspace: str, worker: str | None
    ) -> None:
        self.f = f
        self.scope = scope
        self.plan = plan
        self.symbol = symbol
        self.workspace = workspace
        self.worker = worker
        self.expressions = Expressions(f, scope, picks=not plan.late)
        self._used: dict[str, Expr] = {"shared": ZERO, "worker": ZERO}
        self._fetches: list[tuple[str, Fetch]] = []
        """What is fetched ahead of which buffers, by the loops that are being written and those inside."""

    def write(self, body: Sequence[Flat], pieces: tuple[Piece, ...] = ()) -> None:
        """Write all of `body`; inside a vectorized loop for each of `pieces`, statement by statement."""
        for s in body:
            match s:
                case Store():
                    if pieces and pieces[0].var not in free_vars(s.indices[0]):
                        write_fold(self.expressions, s, pieces)
                        continue
                    self._stores(s, pieces)
                case Loop() if not pieces and len(body) > 1 and self._is_apart(s):
                    self._apart(s)
                case Loop():
                    self._loop(s, pieces)
                case Parallel():
                    self._parallel(s)
                case If():
                    self._if(s, pieces)
                case Alloc():
                    self._alloc(s, pieces)
                case Instruction():
                    self._instruction(s, pieces)
                case Collective():
                    self.collective(s)
                case Shuffle():
                    self.shuffle(s)
                case _:
                    assert_never(s)

    def _instruction(self, s: Instruction, pieces: tuple[Piece, ...]) -> None:
        code = None if pieces else code_for(s.intrinsic, self.plan.features)
        if code is None:
            self.write(s.body, pieces)
        else:
            write_instruction(self.f, self.expressions, s, code)

    def collective(self, s: Collective) -> None:
        """Write an instruction of a warp; the generator for GPUs implements it."""
        raise AssertionError(f"CPUs have no warps for {s.intrinsic.name}")

    def shuffle(self, s: Shuffle) -> None:
        """Write a shuffle of the lanes of a warp; the generator for GPUs implements it."""
        raise AssertionError(f"CPUs have no lanes for {s.move}")

    # Loops

    def _loop(self, s: Loop, pieces: tuple[Piece, ...]) -> None:
        begin, end = constant(s.begin), constant(s.end)
        if s.kind is LoopKind.UNROLLED and self.plan.late:
            first, last = self.expressions.index(s.begin), self.expressions.index(s.end)
            self.counted(s.var, first, last, 1, lambda: self.write(s.body, pieces), unrolled=True)
        elif s.kind is LoopKind.UNROLLED and begin is not None and end is not None:
            tile = None if pieces else turned(s)
            if tile is not None:
                write_turned(self.expressions, tile, self._width(tile.across), self._store)
                return
            for k in range(begin, end):
                with self.scope.bound({s.var: k}):
                    self.write(s.body, pieces)
        elif s.kind is LoopKind.VECTORIZED and begin is not None and end is not None:
            self._vector_loop(s, begin, end)
        else:
            first, last = self.expressions.index(s.begin), self.expressions.index(s.end)
            self.counted(s.var, first, last, 1, lambda: self._iteration(s, pieces))

    def _iteration(self, s: Loop, pieces: tuple[Piece, ...]) -> None:
        # A buffer may be gone since the step, or be private to an iteration: then nothing of it is there ahead.
        there = {name: n for name, n in s.ahead if name in self.scope.buffers}
        before = len(self._fetches)
        for name, n in there.items():
            self._fetches += [(name, x) for x in fetch_ahead(s, name, n, self.scope.buffers[name][1].bytes)]
        for name, fetch in self._fetches:
            known = all(free_vars(e) <= self.scope.vars.keys() for e in fetch.places)
            for place in fetch.places if fetch.loop is s and known else ():
                pointer = self.expressions.pointer(name, place, None)
                self.f.module.declare("void", PREFETCH, ("ptr", "i32", "i32", "i32"))
                self.f.line(f"call void @{PREFETCH}(ptr {pointer}, i32 0, i32 {fetch.cache}, i32 1)")  # a read, of data
        self.write(s.body, pieces)
        del self._fetches[before:]

    def counted(
        self, var: str, begin: Scalar, end: Scalar, step: int, write: Callable[[], None], *, unrolled: bool = False
    ) -> None:
        """Write `for var in begin .. end` by `step`, with its body once; if `unrolled`, LLVM writes it out."""
        f = self.f
        head, after = f.label(f"loop.{var}"), f.label("after")
        if isinstance(begin, int) and isinstance(end, int):
            if begin >= end:
                return
            before = f.block
            f.branch(head)
        else:
            before = f.block
            some = f.op(f"icmp slt i64 {begin}, {end}")
            f.branch_if(some, head, after)
        f.start_block(head)
        counter, following = f.fresh(var), f.fresh(f"{var}.next")
        place = f.reserve()
        factor = math.gcd(begin, step) if isinstance(begin, int) else 1
        with f.region(), self.scope.bound({var: counter}, factor):
            write()
        f.line(f"{following} = add nuw nsw i64 {counter}, {step}")
        more = f.op(f"icmp slt i64 {following}, {end}")
        f.module.unrolls |= unrolled
        f.line(f"br i1 {more}, label %{head}, label %{after}, !llvm.loop {UNROLL if unrolled else '!0'}")
        f.fill(place, f"{counter} = phi i64 [ {begin}, %{before} ], [ {following}, %{f.block} ]")
        f.start_block(after)

    def _vector_loop(self, s: Loop, begin: int, end: int) -> None:
        """Write a vectorized loop: a long one in passes of a few native vectors, a short one and the remainder in pieces."""
        width = self._width(s)
        group = (at_once(s.body) if self.plan.large and not self._is_private(s) else AT_ONCE) * width
        n = end - begin
        if n > 2 * group:
            whole = n // group * group
            pieces = tuple(Piece(s.var, k, width) for k in range(0, group, width))
            self.counted(s.var, begin, begin + whole, group, lambda: self.write(s.body, pieces))
            begin += whole
        if begin < end:
            pieces = tuple(Piece(s.var, k, min(width, end - begin - k)) for k in range(0, end - begin, width))
            with self.scope.bound({s.var: begin}):
                self.write(s.body, pieces)

    def _is_private(self, s: Loop) -> bool:
        """Whether a loop accesses a buffer that is in registers if the loop is written out."""
        return any(
            not self.scope.private.keys().isdisjoint((x.buffer, *(r.buffer for r in store_loads(x))))
            for x in stores((s,))
        )

    def _width(self, s: Loop) -> int:
        """The lanes of a native vector of the widest element type in the loop, which counts as at least 32 bits."""
        bits = [8 if self.plan.late else 32]
        for x in stores(s.body):
            bits.append(dtype_of(x.value).bits)
            bits.extend(r.dtype.bits for r in store_loads(x))
        return max(1, self.plan.vector_bits // max(bits))

    # Threads

    def _parallel(self, s: Parallel) -> None:
        extents = [self.expressions.index(e) for e in s.extents]
        if self.plan.threads == 1 or self.worker is not None:
            self._serial(list(zip(s.vars, extents, strict=True)), s.body)
            return
        tasks = self._product(extents)
        handed = hand_over(self.scope, self.workspace, s.body, (*s.extents, *self._sizes()))
        f = self.f
        f.module.bodies += 1
        name = self._part(s, f"{self.symbol}.part{f.module.bodies}", handed)
        context = f.alloca("i64", max(1, len(handed.values)))
        for k, (kind, value) in enumerate(handed.values):
            slot = f.op(f"getelementptr i64, ptr {context}, i64 {k}")
            f.line(f"store {kind} {value}, ptr {slot}, align 8")
        threads = self.plan.threads if s.worth is None else self.expressions.index(s.worth)
        f.module.declare("void", PARALLEL_FOR, ("ptr", "ptr", "i64", "i64"))
        f.line(f"call void @{PARALLEL_FOR}(ptr @{name}, ptr {context}, i64 {tasks}, i64 {threads})")

    def _serial(self, loops: list[tuple[str, Scalar]], body: tuple[Flat, ...]) -> None:
        if not loops:
            self.write(body)
            return
        (var, end), *rest = loops
        self.counted(var, 0, end, 1, lambda: self._serial(rest, body))

    def _product(self, factors: list[Scalar]) -> Scalar:
        total: Scalar = 1
        for x in factors:
            if isinstance(total, int) and isinstance(x, int):
                total *= x
            else:
                total = self.f.cached(f"mul nsw i64 {total}, {x}")
        return total

    def _part(self, s: Parallel, name: str, handed: Handed) -> str:
        """Write two functions: one that unpacks the context, and one whose arguments are declared not to overlap. Returns the
        name of the first."""
        module = self.f.module
        unpack = Function(module)
        args: list[str] = []
        for k, kind in enumerate(handed.kinds):
            slot = unpack.op(f"getelementptr i64, ptr %context, i64 {k}")
            args.append(f"{kind} {unpack.op(f'load {kind}, ptr {slot}, align 8')}")
        args += ["i64 %begin", "i64 %end", "i64 %worker"]
        f = Function(module)
        inner = Statements(f, handed.scope, self.plan, self.symbol, workspace="%a0", worker="%worker")
        inner.tasks(s)
        params = ", ".join([*handed.params, "i64 %begin", "i64 %end", "i64 %worker"])
        tasks = f.define_once(f"{name}.tasks", f"({params}) noinline nounwind")
        unpack.line(f"call void @{tasks}({', '.join(args)})")
        return unpack.define_once(name, "(ptr %context, i64 %begin, i64 %end, i64 %worker) nounwind")

    def _apart(self, s: Loop) -> None:
        """Write a loop as a function whose arguments do not overlap, and a call of it."""
        module = self.f.module
        handed = hand_over(self.scope, self.workspace, (s,), (*self._used.values(), *self._sizes()))
        args = [f"{kind} {value}" for kind, value in handed.values]
        params = list(handed.params)
        if self.worker is not None:
            args.append(f"i64 {self.worker}")
            params.append("i64 %worker")
        f = Function(module)
        worker = None if self.worker is None else "%worker"
        inner = Statements(f, handed.scope, self.plan, self.symbol, workspace="%a0", worker=worker)
        inner._used = dict(self._used)
        inner.write((s,))
        module.bodies += 1
        name = f.define_once(f"{self.symbol}.part{module.bodies}", f"({', '.join(params)}) noinline nounwind")
        self.f.line(f"call void @{name}({', '.join(args)})")

    def _is_apart(self, s: Loop) -> bool:
        """Whether a loop is a function of its own."""
        large = self.plan.large and s.kind is not LoopKind.UNROLLED and code_size((s,)) >= APART
        return large and not self._is_private(s)

    def _sizes(self) -> tuple[Expr, ...]:
        return (self.plan.shared_bytes, self.plan.worker_bytes)

    def tasks(self, s: Parallel) -> None:
        """Write a loop over the tasks `%begin` .. `%end`, combinations of the loop variables, the last one fastest."""
        extents = [self.expressions.index(e) for e in s.extents]

        def one() -> None:
            rest = str(self.scope.vars[_TASK])
            values: dict[str, Scalar] = {}
            for var, n in reversed(list(zip(s.vars[1:], extents[1:], strict=True))):
                values[var] = self.f.op(f"urem i64 {rest}, {n}")
                rest = self.f.op(f"udiv i64 {rest}, {n}")
            values[s.vars[0]] = rest
            with self.scope.bound(values):
                self.write(s.body)

        self.counted(_TASK, "%begin", "%end", 1, one)
        self.fence()

    def fence(self) -> None:
        """Write a fence after stores past the caches, which are not ordered otherwise."""
        if self.scope.streamed:
            self.f.module.declare("void", "llvm.x86.sse.sfence", ())
            self.f.line("call void @llvm.x86.sse.sfence()")

    # Guards

    def _if(self, s: If, pieces: tuple[Piece, ...]) -> None:
        if not pieces or pieces[0].var not in free_vars(s.cond):
            self._uniform_if(self.expressions.value(s.cond, pieces[0] if pieces else None), s, pieces)
            return
        for at in pieces:
            cond = self.expressions.value(s.cond, at)
            if not cond.lanes:
                self._uniform_if(cond, s, (at,))
                continue
            inner = self.expressions.narrow(at, cond)
            if all(self._is_copy(x, at) for x in s.body):
                self.write(s.body, (inner,))
                continue
            inner = replace(inner, some=True)
            assert inner.mask is not None  # `narrow` sets it
            alive = Value(BOOL, any_lane(self.f, inner.mask))
            self._uniform_if(alive, s, (inner,))

    def _is_copy(self, s: Flat, at: Piece) -> bool:
        """Whether a statement stores lanes of a buffer that may be in registers, and has instructions with masks for it. A
        branch around it is no gain: LLVM takes the sums of a whole tile into it, where one vector waits for the other."""
        e = self.expressions
        if not isinstance(s, Store) or not can_mask(self.f, dtype_of(s.value)) or e.stride(s.indices[0], at) != 1:
            return False
        return isinstance(s.value, Load) and e.holds_lanes(s.value.buffer, s.value.indices[0], at)

    def _uniform_if(self, cond: Value, s: If, pieces: tuple[Piece, ...]) -> None:
        f = self.f
        if cond.ref == "false":
            return
        if cond.ref == "true":
            self.write(s.body, pieces)
            return
        then, after = f.label("then"), f.label("after")
        f.branch_if(cond.ref, then, after)
        f.start_block(then)
        with f.region():
            self.write(s.body, pieces)
        f.branch(after)
        f.start_block(after)

    def _stores(self, s: Store, pieces: tuple[Piece, ...]) -> None:
        e = self.expressions
        e.made = {} if self.plan.late else shifted(e, s, pieces)
        for at in pieces or (None,):
            self._store(s, at)
        e.made = {}

    def _store(self, s: Store, at: Piece | None) -> None:
        write_store(self.expressions, s, at)

    # Buffers

    def _alloc(self, s: Alloc, pieces: tuple[Piece, ...]) -> None:
        kind = in_memory(s.dtype)
        outer, before = self.scope.buffers.get(s.name), self._used.get(s.space, ZERO)
        if s.space == "stack":
            elements = constant(s.size)
            assert elements is not None  # buffers of an open size are on the heap
            pointer = self.f.alloca(kind, max(1, elements))
        else:
            offset = self._used[s.space]
            self._used[s.space] = add(offset, whole_lines(s))
            if s.space == "worker":
                own_bytes = self.expressions.index(self.plan.worker_bytes)
                own = self.f.op(f"mul nsw i64 {self.worker or 0}, {own_bytes}")
                base = self.f.op(f"getelementptr i8, ptr {self.workspace}, i64 {own}")
                offset = add(offset, self.plan.shared_bytes)
            else:
                base = self.workspace
            pointer = self.f.op(f"getelementptr i8, ptr {base}, i64 {self.expressions.index(offset)}")
        private, own = self.scope.private, {s.name: constant(s.size) or 0} if fits_registers(s) else {}
        self.scope.private = {n: count for n, count in private.items() if n != s.name} | own
        self.scope.buffers[s.name] = (pointer, s.dtype)
        self.write(s.body, pieces)
        del self.scope.buffers[s.name]
        self.scope.private = private
        if outer is not None:
            self.scope.buffers[s.name] = outer
        if s.space != "stack":
            self._used[s.space] = before


def whole_lines(s: Alloc | Prepared) -> Expr:
    """The size of a buffer in bytes, rounded up to 64-byte lines."""
    return mul(ceildiv(mul(s.size, index(s.dtype.bytes)), index(64)), index(64))


# Writes instructions as calls of LLVM functions: loads tiles into vectors, makes the call, stores the result.
#
# A vector holds the elements of its operand in order, the last dimension fastest. Elements that are contiguous in memory
# are loaded together, in any order of the operand: a tile with contiguous rows and one with contiguous columns
# both take as many loads as there are contiguous runs.


KIND = "llvm"


def code_for(intrinsic: Intrinsic, features: Sequence[str]) -> str | None:
    """The first call for the instruction that a machine with these features has; None if it has none."""
    fitting = (x.code for x in intrinsic.lowerings if x.fits(KIND, features))
    return next(fitting, None)


@frozen
class _Run:
    """Contiguous elements from `start` on; `lanes` has the lanes of the vector for each element."""

    start: Expr
    lanes: tuple[tuple[int, ...], ...]


def _runs(tile: Tile) -> list[_Run]:
    """The elements of a tile in the smallest number of contiguous runs, in memory order if that is known."""
    (origin,), strides = tile.origin, [step for (step,) in tile.steps]
    sizes = [constant(n) or 0 for n in tile.operand.shape]
    groups: dict[Expr, dict[int, list[int]]] = {}
    for lane, point in enumerate(product(*map(range, sizes))):
        start, offset = origin, 0
        for stride, k in zip(strides, point, strict=True):
            step = constant(stride)
            if step is None:
                start = add(start, mul(stride, index(k)))
            else:
                offset += step * k
        groups.setdefault(start, {}).setdefault(offset, []).append(lane)
    out: list[_Run] = []
    for start, places in groups.items():
        at = sorted(places)
        first = 0
        for k in range(1, len(at) + 1):
            if k == len(at) or at[k] != at[k - 1] + 1:
                out.append(_Run(add(start, index(at[first])), tuple(tuple(places[o]) for o in at[first:k])))
                first = k
    return out


def write_instruction(f: Function, e: Expressions, s: Instruction, code: str) -> None:
    """Write the instruction by the call that `code` spells."""
    call = call_of(code)
    assert call is not None  # an `intrinsic` with another form is refused
    tiles = {t.operand.name: t for t in s.tiles}
    known = {v: _argument(f, e, tiles[v.name], v.type) for v in dict.fromkeys(values_of(call)) if v.name in tiles}
    _store(f, e, tiles[s.intrinsic.store.buffer], call.result, _call(f, call, known))


def _call(f: Function, call: Call, known: Mapping[Leaf, str]) -> str:
    """The result of a call; `known` has the values of operands."""
    args: list[tuple[str, str]] = []
    for a in call.args:
        match a:
            case Call():
                args.append((a.result, _call(f, a, known)))
            case Leaf():
                number = f"splat ({a.type.rpartition(' x ')[2].strip('<>')} {a.name})" if "<" in a.type else a.name
                args.append((a.type, known.get(a, number)))
    if call.function == SPLAT:
        return _splat(f, args[0][0], args[0][1], bits_of(call.result) // bits_of(args[0][0]))
    if call.function in OPERATIONS:
        return f.op(f"{call.function} {call.result} {', '.join(ref for _, ref in args)}")
    f.module.declare(call.result, call.function, tuple(type_ for type_, _ in args))
    return f.op(f"call {call.result} @{call.function}({', '.join(f'{type_} {ref}' for type_, ref in args)})")


def _cast(f: Function, ref: str, old: str, new: str) -> str:
    return ref if old == new else f.op(f"bitcast {old} {ref} to {new}")


def _lanes(tile: Tile) -> int:
    return operand_bits(tile.operand) // tile.operand.dtype.bits


def _argument(f: Function, e: Expressions, tile: Tile, type_: str) -> str:
    """A tile as a value of `type_`, repeated until it fills the type."""
    own = operand_bits(tile.operand)
    times = bits_of(type_) // own
    ref, vector = _load(f, e, tile), vector_type(in_memory(tile.operand.dtype), _lanes(tile))
    if times == 1:
        return _cast(f, ref, vector, type_)
    repeated = _splat(f, f"i{own}", _cast(f, ref, vector, f"i{own}"), times)
    return _cast(f, repeated, vector_type(f"i{own}", times), type_)


def _splat(f: Function, element: str, ref: str, times: int) -> str:
    vector = vector_type(element, times)
    one = f.op(f"insertelement {vector} poison, {element} {ref}, i64 0")
    return f.op(f"shufflevector {vector} {one}, {vector} poison, <{times} x i32> zeroinitializer")


def _mask(indices: Sequence[int | None]) -> str:
    entries = ", ".join("i32 poison" if k is None else f"i32 {k}" for k in indices)
    return f"<{len(indices)} x i32> <{entries}>"


def _load(f: Function, e: Expressions, tile: Tile) -> str:
    """The vector of a tile's elements."""
    n, element, align = _lanes(tile), in_memory(tile.operand.dtype), tile.operand.dtype.bytes
    vector = vector_type(element, n)
    whole, filled = "poison", set[int]()
    for run in _runs(tile):
        part = vector_type(element, len(run.lanes))
        ref = f.op(f"load {part}, ptr {e.pointer(tile.buffer, run.start, None)}, align {align}")
        places: list[int | None] = [None] * n
        for k, lanes in enumerate(run.lanes):
            for lane in lanes:
                places[lane] = k
        if places != list(range(len(run.lanes))):
            ref = f.op(f"shufflevector {part} {ref}, {part} poison, {_mask(places)}")
        if filled:
            both = [k if k in filled else None if places[k] is None else n + k for k in range(n)]
            ref = f.op(f"shufflevector {vector} {whole}, {vector} {ref}, {_mask(both)}")
        whole = ref
        filled.update(k for k in range(n) if places[k] is not None)
    return whole


def _store(f: Function, e: Expressions, tile: Tile, type_: str, result: str) -> None:
    n, element, align = _lanes(tile), in_memory(tile.operand.dtype), tile.operand.dtype.bytes
    vector = vector_type(element, n)
    whole = _cast(f, result, type_, vector)
    for run in _runs(tile):
        part, ref = vector_type(element, len(run.lanes)), whole
        lanes = [lane for (lane,) in run.lanes]  # the elements of a result are distinct
        if lanes != list(range(n)):
            ref = f.op(f"shufflevector {vector} {whole}, {vector} poison, {_mask(lanes)}")
        f.line(f"store {part} {ref}, ptr {e.pointer(tile.buffer, run.start, None)}, align {align}")
