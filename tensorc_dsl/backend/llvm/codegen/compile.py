"""Compiles a flat kernel to object code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from tensorc_dsl.backend.llvm.codegen.arithmetic import binary
from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, Past, Scalar, SymbolTable, Value
from tensorc_dsl.backend.llvm.codegen.machine import Machine, native_triple
from tensorc_dsl.backend.llvm.codegen.statements import Plan, Statements, whole_lines
from tensorc_dsl.backend.llvm.lower.code_size import code_size
from tensorc_dsl.backend.memory import MOST_BYTES
from tensorc_dsl.backend.protocol import Code, CompileError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import ZERO, Binary, Const, Dim, Expr, add, conjunction, constant, fold, index, mul
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.sizes import conditions_of
from tensorc_dsl.ir.target import CACHE_LINE, Target, architecture_of
from tensorc_dsl.lower.flat import Alloc, Flat, If, Kernel, Loop, Param, Space, body_of
from tensorc_dsl.proof.sets.linear_forms import Context, linear
from tensorc_dsl.proof.sets.simplify import simplify

# Whether outputs are stored row by row, so that their lines may go past the caches in pieces.


ROW = 1024
"""The fewest bytes of a row. Where it begins within a line, a part of a line is stored alone at both of its ends, which takes
as long as three whole lines."""


def in_rows(kernel: Kernel) -> bool:
    """Whether each store to a streamed output is one of a vectorized loop over at least `ROW` adjacent bytes."""
    return _in_rows(kernel.body, {p.name: p.dtype.bytes for p in kernel.params if p.name in kernel.streamed}, None)


def _in_rows(body: tuple[Flat, ...], sizes: Mapping[str, int], around: Loop | None) -> bool:
    for s in body:
        if isinstance(s, Store):
            if s.buffer in sizes and (around is None or not _is_row(s, around, sizes[s.buffer])):
                return False
        elif not _in_rows(body_of(s), sizes, s if isinstance(s, Loop) else around):
            return False
    return True


def _is_row(s: Store, loop: Loop, size: int) -> bool:
    match loop.begin, loop.end:
        case Const(value=int(begin)), Const(value=int(end)) if loop.kind is LoopKind.VECTORIZED:
            adjacent = linear(s.indices[0], Context({})).terms.get(loop.var) == 1
            return adjacent and (end - begin) * size >= ROW
        case _:
            return False


# Generates code that counts the bytes of memory for open sizes, where plain arithmetic of 64 bits may wrap around.


UNCOUNTED = 2**63 - 1
"""What generated code returns in place of more than `MOST_BYTES`. The sum of two such numbers has 64 bits, without a sign."""

_CHECKED = {"+": "sadd", "-": "ssub", "*": "smul"}


def byte_count(f: Function, size: Expr, sizes: Mapping[str, Scalar]) -> Scalar:
    """The value of a number of bytes over open dimensions; `UNCOUNTED` if it, or a number on the way to it, is more than
    memory has. Dimensions are within their ranges."""
    if (n := fixed_bytes(size)) is not None:
        return n if n <= MOST_BYTES else UNCOUNTED
    beyond: list[str] = []

    def value(e: Expr) -> Scalar:
        if (n := fixed_bytes(e)) is not None:
            beyond.extend(["true"] * (abs(n) > MOST_BYTES))
            return n if abs(n) <= MOST_BYTES else 0
        match e:
            case Dim(name=name):
                return sizes[name]
            case Binary(op=op, lhs=lhs, rhs=rhs):
                x, y = value(lhs), value(rhs)
                if op not in _CHECKED:
                    return binary(f, op, Value(INDEX, str(x)), Value(INDEX, str(y))).ref
                name = f"llvm.{_CHECKED[op]}.with.overflow.i64"
                f.module.declare("{ i64, i1 }", name, ("i64", "i64"))
                both = f.cached(f"call {{ i64, i1 }} @{name}(i64 {x}, i64 {y})")
                beyond.append(f.cached(f"extractvalue {{ i64, i1 }} {both}, 1"))
                return f.cached(f"extractvalue {{ i64, i1 }} {both}, 0")
            case _:
                raise AssertionError(f"a size is over numbers and open dimensions: {e}")

    total = value(size)
    beyond.append(f.op(f"icmp sgt i64 {total}, {MOST_BYTES}"))
    lost = beyond[0]
    for flag in beyond[1:]:
        lost = f.op(f"or i1 {lost}, {flag}")
    return f.op(f"select i1 {lost}, i64 {UNCOUNTED}, i64 {total}")


def fixed_bytes(size: Expr) -> int | None:
    """The number, of any length, if the size is over numbers alone; else None."""
    if not isinstance(size, Binary):
        return constant(size)
    x, y = fixed_bytes(size.lhs), fixed_bytes(size.rhs)
    return None if x is None or y is None else fold(size.op, x, y)


PIECE = 16
"""The alignment in bytes of the narrowest vector that is stored past the caches, which arrays of NumPy have."""


LARGE = 4096
"""The `code_size` beyond which a kernel is written as several functions."""


@frozen
class Compiled:
    """A kernel in machine code, as a value that can be sent to another process on the same kind of machine.

    The symbol is `void (ptr arguments, ptr workspace)`: an array of pointers, one per parameter, followed by the sizes of
    the open dimensions (i64); and scratch memory, aligned to 64. `workspace_symbol`, an `i64 (ptr arguments)`, returns the
    number of bytes that a call needs, `byte_counts.UNCOUNTED` if it is more than memory has; it is asked before a call.
    The kernel calls `tensorc_parallel_for` if `threads` > 1.

    With constant inputs the last argument, after the sizes, is a pointer to prepared memory, aligned to 64;
    `prepared_symbol` returns its size. `prepare_symbol`, with scratch memory of its own size, fills it before the first
    call. It reads the constant inputs, and the sizes that their shapes determine. Calls read the inputs of `kept` and the
    prepared memory.
    """

    object_code: bytes
    symbol: str
    params: tuple[Param, ...]
    dims: tuple[Dim, ...]
    threads: int
    target: Target
    llvm_ir: str
    """The LLVM IR as written, before LLVM's passes."""
    kept: frozenset[str]
    prepared_bytes: Expr = ZERO
    """The value of `prepared_symbol`, over the sizes that the constant inputs determine."""

    @property
    def workspace_symbol(self) -> str:
        return workspace_symbol(self.symbol)

    @property
    def prepare_symbol(self) -> str:
        return prepare_symbol(self.symbol)

    @property
    def prepared_symbol(self) -> str:
        return f"{self.symbol}_prepared"

    @property
    def code(self) -> Code:
        return Code(self.object_code, self.symbol, self.kept)

    def view(self, stage: str) -> str:
        """`llvm`: the LLVM IR as written; `asm`: the machine code as text."""
        return self.llvm_ir if stage == "llvm" else Machine(self.target).assembly(self.llvm_ir)


def workspace_symbol(symbol: str) -> str:
    """The name of the function that returns the size of the scratch memory for a call of `symbol`."""
    return f"{symbol}_workspace"


def prepare_symbol(symbol: str) -> str:
    """The name of the function that fills the prepared memory of `symbol`."""
    return f"{symbol}_prepare"


def compile_kernel(kernel: Kernel, target: Target, threads: int) -> Compiled:
    """Machine code of `kernel` for `target`; parallel loops run on up to `threads` threads.

    Raises CompileError if LLVM refuses the code, or if fixed sizes need more memory than there is, ValueError if `threads` is
    not positive.
    """
    if threads < 1:
        raise ValueError(f"a kernel needs at least one thread, not {threads}")
    text = kernel_text(kernel, target, threads)
    object_code = Machine(target).object_code(text)
    prepared = prepared_size(kernel)
    symbol = symbol_of(kernel)
    return Compiled(object_code, symbol, kernel.params, kernel.dims, threads, target, text, kernel.kept, prepared)


def symbol_of(kernel: Kernel) -> str:
    """The name of the function of a kernel."""
    return f"tensorc_{''.join(c if c.isalnum() and c.isascii() else '_' for c in kernel.name)}"


def kernel_text(kernel: Kernel, target: Target, threads: int) -> str:
    """The LLVM IR of a kernel. Raises CompileError if fixed sizes need more memory than there is."""
    if architecture_of(target.triple or native_triple()) != "x86_64":
        kernel = replace(kernel, streamed=frozenset())
    return write_module(kernel, symbol_of(kernel), target.vector_bits, threads, target.feature_names)


def prepared_size(kernel: Kernel) -> Expr:
    """The number of bytes that the preparation of a kernel writes."""
    return _places(kernel)[1]


def workspace_size(body: tuple[Flat, ...], threads: int) -> Expr:
    """The number of bytes of scratch memory for a body; each thread has its own of what threads do not share."""
    return add(scratch(body, "shared"), mul(scratch(body, "worker"), index(threads)))


def scratch(body: tuple[Flat, ...], space: Space) -> Expr:
    """The largest number of bytes in use at once in a space, with each buffer on 64-byte lines of its own."""
    most: Expr = ZERO
    for s in body:
        own = whole_lines(s) if isinstance(s, Alloc) and s.space == space else ZERO
        most = simplify(Binary("max", most, add(own, scratch(body_of(s), space))), {})
    return most


@frozen
class Settings:
    """What the code of a kernel is for."""

    vector_bits: int
    threads: int
    features: tuple[str, ...]

    def plan(self, body: tuple[Flat, ...]) -> Plan:
        """The plan of the function of a body."""
        shared, worker = scratch(body, "shared"), scratch(body, "worker")
        return Plan(self.vector_bits, self.threads, shared, worker, self.features, large=code_size(body) > LARGE)


def write_module(kernel: Kernel, symbol: str, vector_bits: int, threads: int, features: tuple[str, ...]) -> str:
    """The LLVM IR of a kernel and, with constant inputs, of its preparation."""
    module = Module(frozenset(features))
    settings = Settings(vector_bits, threads, features)
    _write_function(module, kernel, kernel.body, symbol, settings, prepares=False)
    if any(p.constant for p in kernel.params):
        _write_function(module, kernel, kernel.preparation, prepare_symbol(symbol), settings, prepares=True)
        _write_size(module, kernel, f"{symbol}_prepared", prepared_size(kernel))
    return module.text()


def _write_function(
    module: Module, kernel: Kernel, body: tuple[Flat, ...], symbol: str, settings: Settings, *, prepares: bool
) -> None:
    """Write an entry that unpacks the arguments, the work with arguments that do not overlap, and a function that returns
    the size of scratch memory. Outputs are stored past the caches in whole lines if all of these begin at one, and in pieces
    of lines if they begin at a multiple of `PIECE` and have long rows."""
    entry = Function(module)
    args: list[str] = []
    for k in range(len(kernel.params)):
        args.append(f"ptr {_loaded(entry, k)}")
    sizes = _sizes(entry, kernel)
    places, _ = _places(kernel)
    if places:
        memory = _loaded(entry, len(kernel.params) + len(kernel.dims))
        index_ = Expressions(entry, SymbolTable(vars=sizes)).index
        args += [f"ptr {entry.op(f'getelementptr i8, ptr {memory}, i64 {index_(place)}')}" for place in places]
    args.append("ptr %workspace")
    args += [f"i64 {size}" for size in sizes.values()]
    streamed = [a for a, p in zip(args, kernel.params, strict=False) if p.name in kernel.streamed]
    if streamed and not prepares:
        addresses = [entry.op(f"ptrtoint {a} to i64") for a in streamed]
        together = reduce(lambda a, b: entry.op(f"or i64 {a}, {b}"), addresses)
        for begins in (CACHE_LINE, PIECE) if in_rows(kernel) else (CACHE_LINE,):
            aligned, other = entry.label("aligned"), entry.label("other")
            rest = entry.op(f"and i64 {together}, {begins - 1}")
            entry.branch_if(entry.op(f"icmp eq i64 {rest}, 0"), aligned, other)
            entry.start_block(aligned)
            entry.line(f"call void @{symbol}.work.streamed.{begins}({', '.join(args)})")
            entry.line("ret void")
            entry.start_block(other)
            _write_work(module, kernel, body, symbol, settings, prepares=prepares, begins=begins)
    entry.line(f"call void @{symbol}.work({', '.join(args)})")
    entry.define(f"define void @{symbol}(ptr %arguments, ptr %workspace) nounwind")
    _write_work(module, kernel, body, symbol, settings, prepares=prepares)
    occurring = () if prepares else conditions_of(kernel.dims)  # constant inputs do not tell all sizes
    _write_size(module, kernel, workspace_symbol(symbol), workspace_size(body, settings.threads), occurring)


def _write_work(
    module: Module,
    kernel: Kernel,
    body: tuple[Flat, ...],
    symbol: str,
    settings: Settings,
    *,
    prepares: bool,
    begins: int = 0,
) -> None:
    """Write the body as a function of its arguments, which do not overlap. With `begins` streamed outputs are stored past the
    caches, and their addresses are multiples of it. Each case of a divided kernel is a function of its own."""
    work = Function(module)
    plan = settings.plan(body)
    suffix = f".streamed.{begins}" if begins else ""
    inputs = [p for p in kernel.params if not p.output]
    scope = SymbolTable(
        vars={d.name: f"%d{k}" for k, d in enumerate(kernel.dims)},
        buffers={p.name: (f"%p{k}", p.dtype) for k, p in enumerate((*kernel.params, *kernel.prepared))},
        streamed=dict.fromkeys(kernel.streamed if begins else (), Past(min(CACHE_LINE, plan.vector_bits // 8), begins)),
        fixed=frozenset(p.name for p in (*inputs, *(() if prepares else kernel.prepared))),
    )
    statements = Statements(work, scope, plan, symbol, workspace="%workspace", worker=None)
    divided = kernel.divided and not prepares and body is kernel.body
    if divided:
        args = [f"ptr %p{k}" for k in range(len(kernel.params) + len(kernel.prepared))]
        args += ["ptr %workspace", *(f"i64 %d{k}" for k in range(len(kernel.dims)))]
        for k, s in enumerate(body):
            assert isinstance(s, If)
            case = f"{symbol}.case{k}"
            _write_work(module, kernel, s.body, case, settings, prepares=prepares, begins=begins)
            then, after = work.label("case"), work.label("other")
            work.branch_if(statements.expressions.value(s.cond, None).ref, then, after)
            work.start_block(then)
            work.line(f"call void @{case}.work{suffix}({', '.join(args)})")
            work.line("ret void")
            work.start_block(after)
    else:
        statements.write(body)
        statements.fence()
    params = [f"ptr noalias {'' if p.output else 'readonly '}%p{k}" for k, p in enumerate(kernel.params)]
    access = "" if prepares else "readonly "
    params += [f"ptr noalias {access}align 64 %p{len(kernel.params) + k}" for k in range(len(kernel.prepared))]
    params.append("ptr noalias align 64 %workspace")
    params += [f"i64 %d{k}" for k in range(len(kernel.dims))]
    work.define(f"define internal void @{symbol}.work{suffix}({', '.join(params)}) noinline nounwind")


def _write_size(module: Module, kernel: Kernel, symbol: str, size: Expr, occurring: tuple[Expr, ...] = ()) -> None:
    """Write a function of the arguments that returns a number of bytes, `UNCOUNTED` for sizes that do not occur."""
    if (fixed := fixed_bytes(size) or 0) > MOST_BYTES:
        raise CompileError(
            f"its intermediate results take {fixed:,} bytes at once, and no memory has more than {MOST_BYTES:,}"
        )
    f = Function(module)
    sizes = _sizes(f, kernel)
    bytes_ = byte_count(f, size, sizes)
    if (occurs := conjunction(occurring)) is not None:
        met = Expressions(f, SymbolTable(vars=sizes)).value(occurs, None).ref
        bytes_ = f.op(f"select i1 {met}, i64 {bytes_}, i64 {UNCOUNTED}")
    f.define(f"define i64 @{symbol}(ptr %arguments) nounwind", result=f"i64 {bytes_}")


def _places(kernel: Kernel) -> tuple[list[Expr], Expr]:
    """The offset of each prepared buffer in bytes, on cache lines of its own, and the total size."""
    places: list[Expr] = []
    size: Expr = ZERO
    for p in kernel.prepared:
        places.append(size)
        size = simplify(add(size, whole_lines(p)), {})
    return places, size


def _loaded(f: Function, k: int) -> str:
    """The pointer at position `k` of the arguments."""
    slot = f.op(f"getelementptr ptr, ptr %arguments, i64 {k}")
    return f.op(f"load ptr, ptr {slot}, align 8")


def _sizes(f: Function, kernel: Kernel) -> dict[str, Scalar]:
    """The sizes of the open dimensions, loaded from after the pointers."""
    out: dict[str, Scalar] = {}
    for k, d in enumerate(kernel.dims):
        slot = f.op(f"getelementptr i64, ptr %arguments, i64 {len(kernel.params) + k}")
        out[d.name] = f.op(f"load i64, ptr {slot}, align 8")
    return out
