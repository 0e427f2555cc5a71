"""The backend for NVIDIA GPUs: each method is one call into the files beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tensorc_dsl.backend.cuda.codegen.ptx import TRIPLE
from tensorc_dsl.backend.cuda.compiled import STAGES, CudaKernel, compile_device, cpu_of, registers_of, sass_of, tool
from tensorc_dsl.backend.cuda.emulation.run import Emulation, emulation
from tensorc_dsl.backend.cuda.library import FORMS, CudaLibrary
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram, format_device
from tensorc_dsl.backend.cuda.lower.lower import OLDEST, PASSES, lower_device, lower_device_until, require_room
from tensorc_dsl.backend.cuda.model.cycles import estimates, explained
from tensorc_dsl.backend.cuda.model.issue import loops_in_ptx, loops_in_sass
from tensorc_dsl.backend.cuda.runtime.driver import Device, Missing, copy_rate, find, number_of, processor_of
from tensorc_dsl.backend.cuda.runtime.kernel import GpuKernel, module_of
from tensorc_dsl.backend.llvm.codegen.machine import NO_CPU, processors
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import (
    Backend,
    Code,
    CompiledKernel,
    Form,
    LoweredKernel,
    Processor,
    Registers,
)
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.storage import params_of
from tensorc_dsl.reference.work import Work
from tensorc_dsl.syntax.names import near


@problem(
    "E0918",
    "{task} cannot be run or measured on a GPU of NVIDIA here: {missing}",
    help="{repair}; without it, `run --emulate` runs kernels on the CPU, thread by thread, and checks the result, and `show"
    " --stage ptx` and `compile` make their code",
)
def NO_GPU(*, task: str, missing: str, repair: str) -> None: ...
@problem(
    "E0922",
    "`{task}` is for {theirs}, and this machine has {ours}: it cannot be run or measured here",
    help="take the GPU of this machine, `--target native-cuda` without `--mcpu`: a time belongs to the GPU that took it",
)
def OTHER_GPU(*, task: str, theirs: str, ours: str) -> None: ...


def _gpu(task: str) -> Device:
    """The GPU of this machine. Raises TschedError (E0918) if there is none, or something is missing."""
    found = find()
    if isinstance(found, Missing):
        raise TschedError(NO_GPU(None, task=task, missing=found.what, repair=found.repair))
    return found


def _known() -> tuple[str, ...]:
    """The GPUs that there is code for: those that LLVM knows, from the oldest on whose instructions the code uses."""
    numbers = {cpu: number_of(cpu) for cpu in (*processors(TRIPLE).cpus, OLDEST)}
    return tuple(
        sorted((cpu for cpu, n in numbers.items() if n >= numbers[OLDEST]), key=lambda cpu: (numbers[cpu], cpu))
    )


@frozen
class CudaBackend:
    """NVIDIA GPUs, through LLVM's NVPTX, and PyCUDA for running kernels."""

    @property
    def passes(self) -> tuple[str, ...]:
        return tuple(p.name for p in PASSES)

    @property
    def stages(self) -> Mapping[str, str]:
        return STAGES

    @property
    def forms(self) -> Mapping[str, Form]:
        return FORMS

    def processor(self) -> Processor:
        """Raises TschedError (E0918)."""
        return processor_of(_gpu("a kernel"), _known())

    def require_known(self, target: Target) -> None:
        """Raises TschedError (E0915)."""
        known = _known()
        if (cpu := cpu_of(target)) not in known:
            raise TschedError(NO_CPU(None, notes=near(cpu, known), triple=TRIPLE, cpu=cpu))

    def require_here(self, target: Target, task: str) -> None:
        """Raises TschedError (E0918, E0922)."""
        ours = _gpu(f"`{task}`")
        here = processor_of(ours, _known())
        if target.device != ours.described:
            theirs = f"`{cpu_of(target)}`, a GPU that is only described" if not target.device else target.device
            raise TschedError(OTHER_GPU(None, task=task, theirs=theirs, ours=ours.described))
        if number_of(cpu_of(target)) > number_of(here.name):
            theirs, named = f"a GPU `{cpu_of(target)}`", f"{ours.name}, `{here.name}`"
            raise TschedError(OTHER_GPU(None, task=task, theirs=theirs, ours=named))

    def with_cpu(self, target: Target, cpu: str) -> Target:
        """Raises TschedError (E0915)."""
        out = replace(target, cpu=cpu)
        self.require_known(out)
        return out

    def describe_processors(self, target: Target) -> str:
        return "\n".join((f"GPUs of {TRIPLE}:", *(f"  {cpu}" for cpu in _known())))

    def lower(self, program: Program, target: Target) -> DeviceProgram:
        lowered = lower_device(program, target.feature_names, target.cores)
        require_room(lowered, target)
        return lowered

    def text(self, lowered: LoweredKernel) -> str:
        assert isinstance(lowered, DeviceProgram)
        return format_device(lowered)

    def key(self, lowered: LoweredKernel) -> str:
        return self.text(lowered)

    def text_after(self, program: Program, target: Target, last: str) -> str:
        return lower_device_until(program, last, target.feature_names, target.cores)

    def compile(self, lowered: LoweredKernel, target: Target, threads: int) -> CudaKernel:
        assert isinstance(lowered, DeviceProgram)
        return compile_device(lowered, target)

    def emulate(self, lowered: LoweredKernel) -> Emulation:
        assert isinstance(lowered, DeviceProgram)
        return emulation(lowered)

    def cycles(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], registers: Registers) -> float:
        assert isinstance(lowered, DeviceProgram)
        return sum(e.cycles for e in estimates(lowered, target, sizes, registers))

    def explain(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], *, brief: bool = False) -> str:
        assert isinstance(lowered, DeviceProgram)
        return "" if brief else explained(estimates(lowered, target, sizes))

    def constants(self, target: Target, *, measure: bool = False) -> Mapping[str, float]:
        return {}

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def features(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int]) -> tuple[float, ...]:
        return ()

    def registers(self, compiled: CompiledKernel) -> Registers:
        assert isinstance(compiled, CudaKernel)
        if tool("ptxas") is None:
            return Registers(loops=loops_in_ptx(compiled.ptx))
        found = registers_of(compiled.ptx, compiled.cpu)
        sass = sass_of(compiled.ptx, compiled.cpu) if tool("nvdisasm") is not None else ""
        return replace(found, loops=loops_in_sass(sass) if sass else loops_in_ptx(compiled.ptx))

    def load(self, code: Code, program: Program, threads: int) -> GpuKernel:
        """Raises TschedError (E0918)."""
        device, params = _gpu(f"`{program.name}`"), params_of(program)
        return GpuKernel(device, module_of(device, code.object_code), params, program.dims)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return aligned_empty(shape, dtype)

    def library(self, compiled: CompiledKernel, name: str, origin: str) -> CudaLibrary:
        assert isinstance(compiled, CudaKernel)
        return CudaLibrary(compiled, name, origin)

    def multipliers(self, work: Work, target: Target) -> tuple[str, ...]:
        return ()

    def peak(self, title: str, target: Target, threads: int) -> float:
        raise KeyError(title)

    def bandwidth(self, target: Target, threads: int, size: int) -> float:
        """The rate of copies within the second-level cache, whatever the size: a bound for kernels on any memory."""
        return copy_rate(_gpu("a measurement"))


BACKEND: Backend = CudaBackend()
