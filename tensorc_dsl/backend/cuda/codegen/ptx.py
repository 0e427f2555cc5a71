"""Writes kernels as LLVM code for NVPTX, and has LLVM make PTX of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm

from tensorc_dsl.backend.cuda.codegen.assembly import write_assembly
from tensorc_dsl.backend.cuda.codegen.device import ALIGNMENT, PLAN, storage, write_device
from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, THREAD, DeviceKernel, DeviceProgram
from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.codegen.statements import Statements
from tensorc_dsl.backend.protocol import CompileError
from tensorc_dsl.lower.flat import Collective

TRIPLE = "nvptx64-nvidia-cuda"

VERSION = "+ptx80"
"""The version of PTX: that of drivers for CUDA 12.0 and later."""

_SHARED = "@shared = external addrspace(3) global [0 x i8], align 128\n"
"""The shared memory of a block, whose size is an argument of the launch."""

_REGISTERS = "llvm.nvvm.read.ptx.sreg"


class _Lanes(Statements):
    """Statements of a thread, which is a lane of its warp."""

    def collective(self, s: Collective) -> None:
        write_assembly(self.f, self.expressions, s)


def device_module(p: DeviceProgram) -> str:
    """The LLVM code of all kernels. Raises CompileError if GPUs have no code for something in them."""
    module = Module()
    for k in p.kernels:
        _write_kernel(module, p, k)
    called = sorted(n for n in module.declarations if not n.startswith("llvm."))
    if called:
        raise CompileError(
            f"there is no `{called[0]}` of 64-bit floats on GPUs; compute it in f32, `f64({called[0]}(f32(x)))`"
        )
    return _SHARED + module.text()


def _write_kernel(module: Module, p: DeviceProgram, k: DeviceKernel) -> None:
    f = Function(module)
    shared = f.op("addrspacecast ptr addrspace(3) @shared to ptr") if k.shared else "null"
    table = storage(f, p, k, shared)
    table.vars[THREAD] = _register(f, "tid.x", f"range(i32 0, {k.threads}) ")
    for axis, name in zip(BLOCK_AXES, ("ctaid.x", "ctaid.y", "ctaid.z"), strict=True):
        table.vars[axis] = _register(f, name, "range(i32 0, 2147483647) ")
    statements = _Lanes(f, table, PLAN, k.name, workspace="null", worker=None)

    def barrier() -> None:
        f.module.declare("void", "llvm.nvvm.barrier.cta.sync.aligned.all", ("i32",), "convergent nounwind")
        f.line("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)")

    write_device(statements, k.body, barrier)
    params = [_param(k, n, name) for n, name in enumerate(k.params)] + [f"i64 %d{n}" for n in range(len(p.dims))]
    f.define(
        f'define ptx_kernel void @{k.name}({", ".join(params)}) nounwind "nvvm.maxntid"="{k.threads}" "nvvm.minctasm"="1"'
    )


def _param(k: DeviceKernel, n: int, name: str) -> str:
    """An array: one that is only read overlaps none that is written. A written one may be read by other threads behind a
    barrier, so it is not declared to be this function's alone."""
    access = "" if name in k.written else "noalias readonly "
    return f"ptr {access}align {ALIGNMENT} %p{n}"


def _register(f: Function, name: str, known: str) -> str:
    f.module.declare("i32", f"{_REGISTERS}.{name}", ())
    return f.op(f"zext nneg i32 {f.op(f'call {known}i32 @{_REGISTERS}.{name}()')} to i64")


@cache
def _machine(cpu: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, features=VERSION, opt=3)
    except RuntimeError as e:
        raise CompileError(str(e)) from e


def ptx_of(text: str, cpu: str) -> str:
    """PTX for a GPU, `sm_80`. Raises CompileError if LLVM refuses the code."""
    machine = _machine(cpu)
    try:
        module = llvm.parse_assembly(text)
        module.triple = TRIPLE
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as e:
        raise CompileError(str(e)) from e
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = False
    options.loop_unrolling = True  # of the loops that are marked; all others say that they are not to be
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)
