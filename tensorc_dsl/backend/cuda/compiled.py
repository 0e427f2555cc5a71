"""Kernels of a GPU in PTX, as a value that other processes can load."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.backend.cuda.codegen.ptx import device_module, ptx_of, version_of
from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.backend.cuda.lower.lower import OLDEST
from tensorc_dsl.backend.cuda.runtime.image import pack
from tensorc_dsl.backend.cuda.sass import sass_of
from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.ir.target import Target

STAGES = {
    "llvm": "their LLVM code",
    "ptx": "their PTX",
    "cuda": "the same statements as CUDA C++, to read",
    "sass": "their machine code; needs ptxas and nvdisasm",
}


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """The kernels of a program, their LLVM code before LLVM's passes, and their PTX for one kind of GPU."""

    program: DeviceProgram
    cpu: str
    llvm_ir: str
    ptx: str

    @property
    def code(self) -> Code:
        return Code(pack(self.program, self.ptx), self.program.name, frozenset())

    def view(self, stage: str) -> str:
        """The text of one of `STAGES`. Raises TschedError (E0919) if a tool for it is missing."""
        match stage:
            case "llvm":
                return self.llvm_ir
            case "ptx":
                return self.ptx
            case "cuda":
                return cuda_text(self.program)
            case _:
                return sass_of(self.ptx, self.cpu)


def compile_device(program: DeviceProgram, target: Target) -> CudaKernel:
    """PTX of the kernels. Raises CompileError if GPUs have no code for something in them."""
    cpu = cpu_of(target)
    text = device_module(program)
    return CudaKernel(program, cpu, text, ptx_of(text, cpu, version_of(program)))


def cpu_of(target: Target) -> str:
    """LLVM's name of the target's GPU."""
    return OLDEST if target.cpu == "generic" else target.cpu
