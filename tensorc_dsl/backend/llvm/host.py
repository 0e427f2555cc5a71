"""The processor that we are on, as LLVM sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import llvmlite.binding as llvm

from tensorc_dsl.backend.llvm.codegen.machine import native_triple
from tensorc_dsl.backend.protocol import Processor


def host_processor() -> Processor:
    """Its name and features."""
    features = llvm.get_host_cpu_features()
    names = {name for name, on in features.items() if on}
    return Processor(llvm.get_host_cpu_name(), features.flatten(sort=True), vector_bits_of(names), native_triple())


def host_lacks(features: Iterable[str]) -> tuple[str, ...]:
    """Those of the features that this machine is known not to have; a feature that LLVM says nothing of is not among them."""
    here = llvm.get_host_cpu_features()
    return tuple(f for f in features if not here.get(f, True))


def vector_bits_of(features: Collection[str]) -> int:
    """The widest vectors whose width these features fix. SVE's is not fixed, and it has those of 128 bits."""
    if "avx512f" in features:
        return 512
    if "avx" in features or "avx2" in features:
        return 256
    return 128
