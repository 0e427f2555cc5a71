"""Writes the body of a kernel: phases by the generator of flat statements, barriers by what the machine has for them."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import assert_never

from tensorc_dsl.backend.cuda.lower.kernels import Barrier, Device, DeviceKernel, DeviceProgram, Guard, Phase, Steps
from tensorc_dsl.backend.llvm.codegen.body import SymbolTable
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.statements import Plan, Statements
from tensorc_dsl.backend.llvm.codegen.values import in_memory
from tensorc_dsl.ir.expr import ZERO

VECTOR_BITS = 128
"""The widest load and store of a thread."""

ALIGNMENT = VECTOR_BITS // 8
"""The alignment in bytes of every array in global memory, which the launch checks, and of buffers in shared memory."""

PLAN = Plan(VECTOR_BITS, 1, ZERO, ZERO, late=True)


def write_device(statements: Statements, body: tuple[Device, ...], barrier: Callable[[], None]) -> None:
    """Write the statements of a kernel."""
    f, e = statements.f, statements.expressions

    def write(part: tuple[Device, ...]) -> None:
        for s in part:
            match s:
                case Phase(body=inner):
                    statements.write(inner)
                case Barrier():
                    barrier()
                case Steps(var=var, end=end, body=inner):
                    statements.counted(var, 0, e.index(end), 1, lambda inner=inner: write(inner))
                case Guard(cond=cond, body=inner):
                    then, after = f.label("then"), f.label("after")
                    f.branch_if(e.value(cond, None).ref, then, after)
                    f.start_block(then)
                    with f.region():
                        write(inner)
                    f.branch(after)
                    f.start_block(after)
                case _:
                    assert_never(s)

    write(body)


def storage(f: Function, p: DeviceProgram, k: DeviceKernel, shared: str) -> SymbolTable:
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
