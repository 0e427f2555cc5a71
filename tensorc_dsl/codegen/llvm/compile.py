"""From a flat kernel to object code."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.codegen.llvm.body import Scope
from tensorc_dsl.codegen.llvm.function import Function, Module
from tensorc_dsl.codegen.llvm.machine import CompileError, Machine
from tensorc_dsl.codegen.llvm.statements import Plan, Statements
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Alloc, Flat, Kernel, Param, Space, body_of


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel in machine code, as a value that can be sent to another process on the same kind of machine.

    The symbol is `void (ptr arguments, ptr workspace)`: an array of pointers, one per parameter, and `workspace` bytes of
    scratch memory, aligned to 64. It calls `tensorc_parallel_for` when `threads` > 1.
    """

    object_code: bytes
    symbol: str
    params: tuple[Param, ...]
    workspace: int
    threads: int
    target: Target
    llvm_ir: str
    """As written, before LLVM's passes."""

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
    text = write_module(kernel, symbol, Plan(target.vector_bits, threads, shared, worker))
    return Compiled(
        Machine(target).object_code(text), symbol, kernel.params, shared + worker * threads, threads, target, text
    )


def scratch(body: tuple[Flat, ...], space: Space) -> int:
    """The bytes that are in use at once in a space, each buffer on 64-byte lines of its own."""
    most = 0
    for s in body:
        own = -(-s.size * s.dtype.bytes // 64) * 64 if isinstance(s, Alloc) and s.space == space else 0
        most = max(most, own + scratch(body_of(s), space))
    return most


def write_module(kernel: Kernel, symbol: str, plan: Plan) -> str:
    """The LLVM IR of a kernel: an entry that unpacks the arguments, and the work with arguments that do not overlap."""
    module = Module()
    n = len(kernel.params)
    entry = Function(module)
    args: list[str] = []
    for k in range(n):
        slot = entry.op(f"getelementptr ptr, ptr %arguments, i64 {k}")
        args.append(f"ptr {entry.op(f'load ptr, ptr {slot}, align 8')}")
    args.append("ptr %workspace")
    entry.line(f"call void @{symbol}.work({', '.join(args)})")
    entry.define(f"define void @{symbol}(ptr %arguments, ptr %workspace) nounwind")
    work = Function(module)
    scope = Scope(buffers={p.name: (f"%p{k}", p.dtype) for k, p in enumerate(kernel.params)})
    Statements(work, scope, plan, symbol, workspace="%workspace", worker=None).write(kernel.body)
    params = [f"ptr noalias {'' if p.output else 'readonly '}%p{k}" for k, p in enumerate(kernel.params)]
    params.append("ptr noalias align 64 %workspace")
    work.define(f"define internal void @{symbol}.work({', '.join(params)}) noinline nounwind")
    return module.text()


__all__ = ["CompileError", "Compiled", "compile_kernel", "scratch", "write_module"]
