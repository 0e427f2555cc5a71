"""The processors and features that LLVM knows, and targets described by a processor's name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from subprocess import CompletedProcess

from tensorc_dsl.backend.llvm.codegen.machine import (
    ARCHITECTURES,
    has_features,
    host_processor,
    instruction_sets,
    native_triple,
    vector_bits_of,
)
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.ir.target import Target, architecture_of
from tensorc_dsl.processes.start import Limits, run_module
from tensorc_dsl.syntax.names import near


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


@dataclass(frozen=True, slots=True)
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
