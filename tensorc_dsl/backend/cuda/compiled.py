"""Kernels of a GPU in PTX, as a value that other processes can load."""

from __future__ import annotations

import re
import shutil
import sysconfig
import tempfile
from pathlib import Path

from tensorc_dsl.backend.cuda.codegen.ptx import device_module, ptx_of, version_of
from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.backend.cuda.lower.lower import OLDEST
from tensorc_dsl.backend.cuda.runtime.kernel import pack
from tensorc_dsl.backend.protocol import Code, CompileError, Registers
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.start import Limits, run_executable

# The machine code of kernels, by NVIDIA's tools where they are installed. Nothing else needs them.


@problem(
    "E0919",
    "there is no `{tool}` here, which {what}",
    help="`pip install {package}`, or have it on PATH; `show --stage ptx` and `compile --emit ptx` need no tool",
)
def NO_TOOL(*, tool: str, what: str, package: str) -> None: ...


SECONDS = 120.0
"""The time limit for a tool, which usually takes a tenth of a second."""

_TOOLS = {
    "ptxas": ("makes machine code of PTX", "nvidia-cuda-nvcc"),
    "nvdisasm": ("prints machine code", "nvidia-cuda-nvdisasm"),
}


def tool(name: str) -> Path | None:
    """Where a tool of NVIDIA is: on PATH, or in an installed package. None if it is in neither."""
    if found := shutil.which(name):
        return Path(found)
    packages = Path(sysconfig.get_path("purelib"), "nvidia")
    return next(iter(sorted(packages.glob(f"*/bin/{name}"))), None)


def _require(name: str) -> Path:
    found = tool(name)
    if found is None:
        what, package = _TOOLS[name]
        raise TschedError(NO_TOOL(None, tool=name, what=what, package=package))
    return found


def assemble(ptx: str, cpu: str, cubin: Path) -> str:
    """Machine code for a GPU in a file. Returns the report of ptxas on registers, spills and shared memory.

    Raises TschedError (E0919) if there is no ptxas, and CompileError if it refuses the code.
    """
    source = cubin.with_suffix(".ptx")
    source.write_text(ptx, encoding="utf-8")
    done = run_executable(
        [str(_require("ptxas")), f"-arch={cpu}", "-v", str(source), "-o", str(cubin)], Limits(SECONDS)
    )
    if done.returncode:
        raise CompileError(f"ptxas does not take the code: {done.stderr.strip()}")
    return done.stderr


_REMARK = re.compile(r"\(C(?!7519)\d{4}\)|\bwarning\b", re.IGNORECASE)
"""Words of ptxas about what it does in another way than PTX says: C7508 that it ignores `setmaxnreg`, C7510 to C7518 that
each `wgmma` waits for the one before. C7519 is no loss: a factor in registers, such as zeros of padding, is made after the
fence, and one more fence stands before the instruction that takes it."""


def remarks(said: str) -> tuple[str, ...]:
    """The lines of the output of ptxas that report a loss."""
    return tuple(line.strip() for line in said.splitlines() if _REMARK.search(line))


_KERNEL = re.compile(
    r"Compiling entry function '(\w+)'|(\d+) bytes spill stores, (\d+) bytes spill loads|Used (\d+) registers"
)
"""The lines of ptxas about a kernel, in this order."""


def registers_of(ptx: str, cpu: str) -> Registers:
    """The registers of a thread of each kernel, and the kernels for which they do not suffice, with what each thread stores
    and loads instead.

    Raises TschedError (E0919), CompileError.
    """
    with tempfile.TemporaryDirectory() as folder:
        said = assemble(ptx, cpu, Path(folder, "kernel.cubin"))
    name, out, used = "", list[str](), dict[str, int]()
    for found in _KERNEL.finditer(said):
        name, stored, read = found[1] or name, found[2], found[3]
        if stored and (int(stored) or int(read)):
            out.append(f"`{name}` stores {stored} and loads {read} bytes a thread for want of registers")
        if found[4]:
            used[name] = int(found[4])
    return Registers(used, ", ".join(out))


def sass_of(ptx: str, cpu: str) -> str:
    """Machine code as text. Raises TschedError (E0919), CompileError."""
    printer = _require("nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        assemble(ptx, cpu, cubin)
        done = run_executable([str(printer), "-c", str(cubin)], Limits(SECONDS))
    if done.returncode:
        raise CompileError(f"nvdisasm does not take the code: {done.stderr.strip()}")
    return done.stdout


STAGES = {
    "llvm": "their LLVM code",
    "ptx": "their PTX",
    "cuda": "the same statements as CUDA C++, to read",
    "sass": "their machine code; needs ptxas and nvdisasm",
}


@frozen
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
