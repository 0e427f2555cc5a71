"""The processor of this machine, as LLVM sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

import llvmlite.binding as llvm

from tensorc_dsl.backend.llvm.codegen.machine import native_triple
from tensorc_dsl.backend.protocol import Processor


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
