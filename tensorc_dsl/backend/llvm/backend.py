"""The backend for CPUs: each method is one call into the folders beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorc_dsl.backend.llvm.ahead.cpu import required_features
from tensorc_dsl.backend.llvm.ahead.interface import require_free
from tensorc_dsl.backend.llvm.ahead.library import (
    FORMS,
    MODEL_FORMS,
    Library,
    ModelLibrary,
    make_library,
    make_model_library,
)
from tensorc_dsl.backend.llvm.codegen.compile import Compiled, compile_kernel
from tensorc_dsl.backend.llvm.codegen.machine import (
    host_lacks,
    host_processor,
    native_triple,
    processors,
    require_known,
    usable,
    with_cpu,
)
from tensorc_dsl.backend.llvm.lower.passes import PASSES
from tensorc_dsl.backend.llvm.model.cycles import COLUMNS, cycles, explained, features, lost
from tensorc_dsl.backend.llvm.model.machine import facts, machine_of, measured
from tensorc_dsl.backend.llvm.model.threads import shared_out, workers
from tensorc_dsl.backend.llvm.runtime.call_table import CallTable
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.backend.llvm.runtime.peak import INSTRUCTIONS, bandwidth, peak, peak_instructions
from tensorc_dsl.backend.memory import aligned_empty
from tensorc_dsl.backend.protocol import (
    Backend,
    Code,
    CompiledKernel,
    CompileError,
    Form,
    LoadedKernel,
    LoweredKernel,
    ModelCalls,
    Processor,
    Registers,
)
from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.expr import Var, substitute
from tensorc_dsl.ir.program import Program, Store
from tensorc_dsl.ir.target import Target, architecture_of
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Kernel,
    Loop,
    Parallel,
    Shuffle,
    format_kernel,
    map_exprs,
)
from tensorc_dsl.lower.lower import lower, lower_until
from tensorc_dsl.lower.storage import params_of
from tensorc_dsl.reference.work import Work

# Removes names from flat loops, so that kernels are compared by what they do.


Names = Mapping[str, Var]


def with_loops_numbered(k: Kernel) -> Kernel:
    """The kernel with each loop named by its depth: equal for kernels that differ only in the names of loops."""
    return replace(k, preparation=_body(k.preparation, {}), body=_body(k.body, {}))


def _body(body: tuple[Flat, ...], names: Names) -> tuple[Flat, ...]:
    return tuple(_flat(s, names) for s in body)


def _flat(s: Flat, names: Names) -> Flat:
    s = map_exprs(s, lambda e: substitute(e, names))
    inner = names
    match s:
        case Store():
            return s
        case Loop(var=var):
            inner = _with(names, var)
            s = replace(s, var=inner[var].name)
        case Parallel(vars=variables):
            inner = _with(names, *variables)
            s = replace(s, vars=tuple(inner[v].name for v in variables))
        case If() | Alloc() | Collective() | Shuffle() | Instruction():
            pass
    return replace(s, body=_body(s.body, inner))


def _with(names: Names, *variables: str) -> Names:
    # A name in a program cannot begin with a digit.
    return {**names, **{v: Var(f"{len(names) + n}th") for n, v in enumerate(variables)}}


# Formats the CPUs and features that LLVM knows for a kind of machine.


def format_processors(target: Target) -> str:
    """The CPUs that `--mcpu` takes, and the features that a `target` item may list, one per line."""
    triple = target.triple or native_triple()
    known = processors(triple)
    width = max(map(len, known.features), default=0)
    features = (f"  {name:{width}}  {text}".rstrip() for name, text in known.features.items())
    lines = [f"CPUs of {triple}:", *(f"  {cpu}" for cpu in usable(triple, known.cpus)), "", "Features:", *features]
    return "\n".join(lines)


@problem(
    "E0914",
    "`{task}` is for {theirs}, and this machine {ours}: it cannot be run or measured here",
    help="compile it for there, `compile --emit obj --emit header`, or run it for this machine, `--target native` without "
    "`--mcpu`",
)
def NOT_HERE(*, task: str, theirs: str, ours: str) -> None: ...


@frozen
class CpuBackend:
    """CPUs, through LLVM."""

    @property
    def passes(self) -> tuple[str, ...]:
        return tuple(p.name for p in PASSES)

    @property
    def stages(self) -> Mapping[str, str]:
        return {"llvm": "their LLVM code", "asm": "the machine's assembly"}

    @property
    def forms(self) -> Mapping[str, Form]:
        return FORMS

    def processor(self) -> Processor:
        return host_processor()

    def require_known(self, target: Target) -> None:
        """Raises TschedError (E0915, E0916)."""
        require_known(target)

    def require_here(self, target: Target, task: str) -> None:
        """Raises TschedError (E0914)."""
        ours, theirs = native_triple(), target.triple
        if theirs and architecture_of(theirs) != architecture_of(ours):
            raise TschedError(NOT_HERE(None, task=task, theirs=theirs, ours=f"is {ours}"))
        if lacking := host_lacks(required_features(target)):
            wanted, ours = f"a CPU `{target.cpu}`", f"lacks {', '.join(lacking)}"
            raise TschedError(NOT_HERE(None, task=task, theirs=wanted, ours=ours))

    def with_cpu(self, target: Target, cpu: str) -> Target:
        """Raises TschedError (E0915)."""
        return with_cpu(target, cpu)

    def describe_processors(self, target: Target) -> str:
        return format_processors(target)

    def lower(self, program: Program, target: Target) -> Kernel:
        return lower(program, PASSES)

    def text(self, lowered: LoweredKernel) -> str:
        assert isinstance(lowered, Kernel)
        return format_kernel(lowered)

    def key(self, lowered: LoweredKernel) -> str:
        assert isinstance(lowered, Kernel)
        return format_kernel(with_loops_numbered(lowered))

    def text_after(self, program: Program, target: Target, last: str) -> str:
        return lower_until(program, PASSES, last)

    def compile(self, lowered: LoweredKernel, target: Target, threads: int) -> Compiled:
        assert isinstance(lowered, Kernel)
        return compile_kernel(shared_out(lowered, target, threads), target, workers(lowered, target, threads))

    def emulate(self, lowered: LoweredKernel) -> None:
        return None

    def registers(self, compiled: CompiledKernel) -> Registers:
        return Registers()

    def cycles(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], registers: Registers) -> float:
        assert isinstance(lowered, Kernel)
        return cycles(lowered, target, sizes)

    def explain(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int], *, brief: bool = False) -> str:
        assert isinstance(lowered, Kernel)
        return lost(lowered, target, sizes) if brief else explained(lowered, target, sizes)

    def constants(self, target: Target, *, measure: bool = False) -> Mapping[str, float]:
        return facts(measured(target) if measure else machine_of(target))

    @property
    def columns(self) -> tuple[str, ...]:
        return COLUMNS

    def features(self, lowered: LoweredKernel, target: Target, sizes: Mapping[str, int]) -> tuple[float, ...]:
        assert isinstance(lowered, Kernel)
        return features(lowered, target, sizes)

    def load(self, code: Code, program: Program, threads: int) -> NativeKernel:
        params = params_of(program)
        compiled = Compiled(
            code.object_code, code.symbol, params, program.dims, threads, Target(), llvm_ir="", kept=code.kept
        )
        try:
            return load(compiled)
        except RuntimeError as e:
            raise CompileError(f"the kernel cannot be linked: {e}") from e

    @property
    def model_forms(self) -> Mapping[str, Form]:
        return MODEL_FORMS

    def load_calls(
        self, model: ModelCalls, kernels: Mapping[str, LoadedKernel], weights: Mapping[str, Array]
    ) -> CallTable:
        return CallTable(model, {task: k for task, k in kernels.items() if isinstance(k, NativeKernel)}, weights)

    def model_library(
        self,
        model: ModelCalls,
        kernels: Mapping[str, LoweredKernel],
        weights: Mapping[str, Array],
        target: Target,
        threads: int,
        origin: str,
    ) -> ModelLibrary:
        """Raises TschedError (E0912)."""
        lowered = {task: k for task, k in kernels.items() if isinstance(k, Kernel)}
        return make_model_library(model, lowered, weights, target, threads, origin)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return aligned_empty(shape, dtype)

    def library(self, compiled: CompiledKernel, name: str, origin: str) -> Library:
        """Raises TschedError (E0912)."""
        assert isinstance(compiled, Compiled)
        require_free(name)
        return make_library(compiled, origin)

    def multipliers(self, work: Work, target: Target) -> tuple[str, ...]:
        return tuple(i.title for i in peak_instructions(work, target))

    def peak(self, title: str, target: Target, threads: int) -> float:
        return peak(INSTRUCTIONS[title], target, threads)

    def bandwidth(self, target: Target, threads: int, size: int) -> float:
        return bandwidth(target, threads, size)


BACKEND: Backend = CpuBackend()
