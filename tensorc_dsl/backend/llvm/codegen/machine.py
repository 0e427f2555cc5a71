"""The interface to LLVM: optimises, assembles and compiles LLVM text; the processor of this machine, and the features of a
target.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from subprocess import CompletedProcess

import llvmlite.binding as llvm

from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.protocol import CompileError, Processor
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.target import Target, architecture_of
from tensorc_dsl.processes.start import Limits, run_module
from tensorc_dsl.syntax.names import near

# The interface to LLVM: optimises, assembles and compiles LLVM text.


def native_triple() -> str:
    """LLVM's name for the current kind of machine."""
    return llvm.get_default_triple()


@cache
def _limit_queries() -> None:
    """Let LLVM ask less often what an access may depend on; an option is set once in a process.

    It looks at fewer instructions of a block for what a load depends on: a pipeline of 9000 lines, 260 of them gathers of
    bytes, spent 5 of 6 seconds on such questions (LLVM's limit is 100).

    It makes no versions of loops whose loads are what the iteration before stored unless arrays overlap, for which it
    compares all accesses of a loop with each other: an unrolled tile of a convolution spent 3.5 of 4.3 seconds on that. The
    code of 181 kernels is the same without it, draws of the suite's tasks and scans in all directions among them.
    """
    llvm.set_option("", "--memdep-block-scan-limit=30")
    llvm.set_option("", "--opt-disable=loop-load-elim")


class Machine:
    """LLVM for one target. Without `optimises` code is made in a tenth of the time, and runs about ten times as long."""

    def __init__(self, target: Target, *, optimises: bool = True) -> None:
        self._optimises = optimises
        _limit_queries()
        if target.triple:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        else:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        triple = target.triple or native_triple()
        features = target.features
        if target.vector_bits >= 512 and architecture_of(triple) == "x86_64":
            features = ",".join(x for x in (features, "-prefer-256-bit") if x)
        try:
            kind = llvm.Target.from_triple(triple)
            self.machine = kind.create_target_machine(
                cpu=target.cpu, features=features, opt=3 if optimises else 0, reloc="pic", codemodel="small"
            )
        except RuntimeError as e:
            raise CompileError(str(e)) from e

    @property
    def triple(self) -> str:
        """LLVM's name of the machine: `x86_64-unknown-linux-gnu`."""
        return self.machine.triple

    def parsed(self, text: str) -> llvm.ModuleRef:
        """The module as written, verified. Raises CompileError if it is not well formed."""
        try:
            module = llvm.parse_assembly(text)
            module.triple = self.triple
            module.data_layout = str(self.machine.target_data)
            module.verify()
        except RuntimeError as e:
            raise CompileError(str(e)) from e
        return module

    def module(self, text: str) -> llvm.ModuleRef:
        """The module, verified and optimised. Raises CompileError if it is not well formed."""
        module = self.parsed(text)
        # Vectors and unrolling are explicit in the schedule. LLVM only cleans up scalar code, which keeps compile times
        # short and the code as scheduled.
        options = llvm.create_pipeline_tuning_options(speed_level=2 if self._optimises else 0)
        options.loop_vectorization = False
        options.slp_vectorization = False
        options.loop_unrolling = False
        options.loop_interleaving = False
        builder = llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(module, builder)
        return module

    def object_code(self, text: str) -> bytes:
        return self.machine.emit_object(self.module(text))

    def assembly(self, text: str) -> str:
        return self.machine.emit_assembly(self.module(text))

    def jit(self) -> llvm.LLJIT:
        """What links code into this process.

        JITLink, since it puts all sections of an object into one range. LLVM's older linker takes a range for each, and ends
        the process where these are 2 GiB apart, as beside the libraries of a PyTorch for CUDA.
        """
        return llvm.create_lljit_compiler(self.machine, use_jit_link=True)


# The features that LLVM attributes to a target: its `-mattr`.


ARCHITECTURES = frozenset({"x86_64", "aarch64"})
"""Architectures whose features can be queried one by one. Others may end the process, such as 32-bit RISC-V."""

_MODES = frozenset({"16bit-mode", "32bit-mode", "64bit-mode", "64bit"})
"""Modes of x86, which are not features; a subtarget without the right one ends the process."""


def has_features(target: Target, names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that code for the target may use: its CPU's features and its own.

    LLVM cannot be asked directly. But it inlines a function into another one only if that may use all features
    of the first one (`areInlineCompatible`). Raises CompileError if LLVM does not know the machine.
    """
    names = tuple(names)
    own = [target.features] if target.features else []
    return _inlined(target, tuple((_attribute(own), _attribute([*own, f"+{name}"]), name) for name in names))


def instruction_sets(target: Target, names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that enable instructions; inlining ignores the others, which describe speed."""
    names = tuple(name for name in names if name not in _MODES)
    others = _inlined(target, tuple((_attribute([f"-{name}"]), _attribute([f"+{name}"]), name) for name in names))
    return tuple(name for name in names if name not in others)


def _attribute(features: Sequence[str]) -> str:
    return f'"target-features"="{",".join(features)}"' if features else ""


@lru_cache(maxsize=256)
def _inlined(target: Target, pairs: tuple[tuple[str, str, str], ...]) -> tuple[str, ...]:
    """The names of the pairs for which a function with the second attribute is inlined into one with the first."""
    module = Module()
    for k, (outside, inside, _) in enumerate(pairs):
        module.declare("void", f"used.{k}", ())
        for name, attribute, callee in ((f"inside.{k}", inside, f"used.{k}"), (f"outside.{k}", outside, f"inside.{k}")):
            f = Function(module)
            f.line(f"call void @{callee}()")
            f.define(f"define {'internal ' if callee.startswith('used') else ''}void @{name}() {attribute}")
    done = Machine(target).module(module.text())
    return tuple(
        name for k, (_, _, name) in enumerate(pairs) if f"@used.{k}()" in str(done.get_function(f"outside.{k}"))
    )


# The processor of this machine, as LLVM sees it.


@cache
def host_processor() -> Processor:
    """The name and features of the processor."""
    features = llvm.get_host_cpu_features()
    names = {name for name, on in features.items() if on}
    return Processor(llvm.get_host_cpu_name(), features.flatten(sort=True), vector_bits_of(names), native_triple())


def host_lacks(features: Iterable[str]) -> tuple[str, ...]:
    """The features that this machine is known to lack; features that LLVM does not report are not included."""
    here = llvm.get_host_cpu_features()
    return tuple(f for f in features if not here.get(f, True))


def vector_bits_of(features: Collection[str]) -> int:
    """The widest vectors, in bits, whose width these features determine. SVE counts as 128 bits, since its width varies."""
    if "avx512f" in features:
        return 512
    if "avx" in features or "avx2" in features:
        return 256
    return 128


# The processors and features that LLVM knows, and targets described by a processor's name.


@problem(
    "E0915",
    "LLVM makes no code of {triple} for a CPU `{cpu}`",
    help="take one of those that `tensorc-dsl compile FILE TASK --mcpu help` lists",
)
def NO_CPU(*, triple: str, cpu: str) -> None: ...


@problem(
    "E0916",
    "LLVM knows no feature `{feature}` of {triple}",
    help="take one of those that `tensorc-dsl compile FILE TASK --mcpu help` lists",
)
def NO_FEATURE(*, feature: str, triple: str) -> None: ...


SECONDS = 60.0
"""The time limit for an answer of LLVM, which usually takes a tenth of a second."""

_LINE = re.compile(r"^  (\S+) +- (.*?)\.?$", re.MULTILINE)


@frozen
class Processors:
    """LLVM's names for the CPUs of one kind of machine and for their features, with a few words on each feature."""

    cpus: tuple[str, ...]
    features: dict[str, str]


@cache
def processors(triple: str) -> Processors:
    """All names that LLVM lists, including CPUs that only share the triple's registers; none for an unknown triple."""
    done = _asked("names", triple)
    cpus, _, features = done.stderr.partition("\nAvailable features")
    if done.returncode or not features:
        return Processors((), {})
    return Processors(tuple(name for name, _ in _LINE.findall(cpus)), dict(_LINE.findall(features)))


@cache
def usable(triple: str, cpus: tuple[str, ...], features: str = "") -> tuple[str, ...]:
    """Those of the CPUs for which LLVM generates code with this triple and these features."""
    return tuple(_asked("usable", triple, features, *cpus).stdout.split())


def _asked(*question: str) -> CompletedProcess[str]:
    return run_module("tensorc_dsl.backend.llvm.known", *question, limits=Limits(SECONDS))


def require_known(target: Target) -> None:
    """Raises TschedError (E0915, E0916) if LLVM does not know the target's CPU or one of its features.

    LLVM itself would warn on standard error and generate code for a CPU without features, or end the process.
    """
    if (target.triple, target.cpu, target.features) in (_native(), (target.triple, "generic", "")):
        return
    triple = target.triple or native_triple()
    known = processors(triple)
    if not known.cpus:
        return  # the kind of machine is unknown; code generation reports that
    found: list[Diagnostic] = []
    for feature in target.features.split(",") if target.features else ():
        name = feature[1:]
        if name not in known.features:
            found.append(NO_FEATURE(None, notes=near(name, known.features), feature=name, triple=triple))
    if target.cpu not in known.cpus:
        found.insert(0, NO_CPU(None, notes=near(target.cpu, known.cpus), cpu=target.cpu, triple=triple))
    elif not found and not usable(triple, (target.cpu,), target.features):
        found.append(NO_CPU(None, cpu=target.cpu, triple=triple))
    if found:
        raise TschedError(*found)


@cache
def _native() -> tuple[str, str, str]:
    host = host_processor()
    return "", host.name, host.features


def with_cpu(target: Target, cpu: str) -> Target:
    """The target with another CPU of the same kind of machine, with its features and vector width.

    Caches and cores stay those of the target. On architectures other than x86-64 and AArch64 no features are listed: code
    uses them, but schedules cannot query them. Raises TschedError (E0915) if LLVM does not know the CPU.
    """
    plain = replace(target, cpu=cpu, features="")
    require_known(plain)
    triple = target.triple or native_triple()
    if architecture_of(triple) not in ARCHITECTURES:
        return replace(plain, vector_bits=Target().vector_bits)
    features = instruction_sets(plain, has_features(plain, processors(triple).features))
    return replace(plain, features=",".join(f"+{f}" for f in features), vector_bits=vector_bits_of(features))
