"""From a flat kernel to object code."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.affine.simplify import simplify
from tensorc_dsl.codegen.llvm.body import Expressions, Scalar, Scope
from tensorc_dsl.codegen.llvm.function import Function, Module
from tensorc_dsl.codegen.llvm.machine import CompileError, Machine
from tensorc_dsl.codegen.llvm.statements import Plan, Statements, whole_lines
from tensorc_dsl.ir.expr import ZERO, Binary, Dim, Expr, add, index, mul
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Alloc, Flat, Kernel, Param, Space, body_of


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel in machine code, as a value that can be sent to another process on the same kind of machine.

    The symbol is `void (ptr arguments, ptr workspace)`: an array of pointers, one per parameter, followed by the sizes of
    the open dimensions (i64), and scratch memory, aligned to 64. How many bytes of it a call needs
    `i64 (ptr arguments)` tells, `workspace_symbol`. The kernel calls `tensorc_parallel_for` when `threads` > 1.
    """

    object_code: bytes
    symbol: str
    params: tuple[Param, ...]
    dims: tuple[Dim, ...]
    threads: int
    target: Target
    llvm_ir: str
    """As written, before LLVM's passes."""

    @property
    def workspace_symbol(self) -> str:
        return f"{self.symbol}_workspace"

    def assembly(self) -> str:
        """The machine code as text."""
        return Machine(self.target).assembly(self.llvm_ir)

    def optimised_ir(self) -> str:
        """The LLVM IR after its passes."""
        return Machine(self.target).optimised(self.llvm_ir)


def compile_kernel(kernel: Kernel, target: Target, threads: int) -> Compiled:
    """Machine code of `kernel` for `target`; parallel loops run on up to `threads` threads.

    Raises CompileError when LLVM refuses; ValueError when `threads` is not positive.
    """
    if threads < 1:
        raise ValueError(f"a kernel needs at least one thread, not {threads}")
    symbol = f"tensorc_{''.join(c if c.isalnum() and c.isascii() else '_' for c in kernel.name)}"
    shared, worker = scratch(kernel.body, "shared"), scratch(kernel.body, "worker")
    text = write_module(kernel, symbol, Plan(target.vector_bits, threads, shared, worker, target.feature_names))
    return Compiled(Machine(target).object_code(text), symbol, kernel.params, kernel.dims, threads, target, text)


def scratch(body: tuple[Flat, ...], space: Space) -> Expr:
    """The bytes that are in use at once in a space, each buffer on 64-byte lines of its own."""
    most: Expr = ZERO
    for s in body:
        own = whole_lines(s) if isinstance(s, Alloc) and s.space == space else ZERO
        most = simplify(Binary("max", most, add(own, scratch(body_of(s), space))), {})
    return most


def write_module(kernel: Kernel, symbol: str, plan: Plan) -> str:
    """The LLVM IR of a kernel: an entry that unpacks the arguments, and the work with arguments that do not overlap; and
    a function that says how much scratch memory a call needs."""
    module = Module()
    n = len(kernel.params)
    entry = Function(module)
    args: list[str] = []
    for k in range(n):
        slot = entry.op(f"getelementptr ptr, ptr %arguments, i64 {k}")
        args.append(f"ptr {entry.op(f'load ptr, ptr {slot}, align 8')}")
    args.append("ptr %workspace")
    args += [f"i64 {size}" for size in _sizes(entry, kernel).values()]
    entry.line(f"call void @{symbol}.work({', '.join(args)})")
    entry.define(f"define void @{symbol}(ptr %arguments, ptr %workspace) nounwind")
    work = Function(module)
    scope = Scope(
        vars={d.name: f"%d{k}" for k, d in enumerate(kernel.dims)},
        buffers={p.name: (f"%p{k}", p.dtype) for k, p in enumerate(kernel.params)},
    )
    Statements(work, scope, plan, symbol, workspace="%workspace", worker=None).write(kernel.body)
    params = [f"ptr noalias {'' if p.output else 'readonly '}%p{k}" for k, p in enumerate(kernel.params)]
    params.append("ptr noalias align 64 %workspace")
    params += [f"i64 %d{k}" for k in range(len(kernel.dims))]
    work.define(f"define internal void @{symbol}.work({', '.join(params)}) noinline nounwind")
    need = Function(module)
    bytes_ = Expressions(need, Scope(vars=_sizes(need, kernel))).index(
        add(plan.shared_bytes, mul(plan.worker_bytes, index(plan.threads)))
    )
    need.define(f"define i64 @{symbol}_workspace(ptr %arguments) nounwind", result=f"i64 {bytes_}")
    return module.text()


def _sizes(f: Function, kernel: Kernel) -> dict[str, Scalar]:
    """The sizes of the open dimensions, loaded from behind the pointers."""
    out: dict[str, Scalar] = {}
    for k, d in enumerate(kernel.dims):
        slot = f.op(f"getelementptr i64, ptr %arguments, i64 {len(kernel.params) + k}")
        out[d.name] = f.op(f"load i64, ptr {slot}, align 8")
    return out


__all__ = ["CompileError", "Compiled", "compile_kernel", "scratch", "write_module"]
