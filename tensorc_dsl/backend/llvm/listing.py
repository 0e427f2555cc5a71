"""Formats the CPUs and features that LLVM knows for a kind of machine."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.machine import native_triple
from tensorc_dsl.backend.llvm.processors import processors, usable
from tensorc_dsl.ir.target import Target


def format_processors(target: Target) -> str:
    """The CPUs that `--mcpu` takes, and the features that a `target` item may list, one per line."""
    triple = target.triple or native_triple()
    known = processors(triple)
    width = max(map(len, known.features), default=0)
    features = (f"  {name:{width}}  {text}".rstrip() for name, text in known.features.items())
    lines = [f"CPUs of {triple}:", *(f"  {cpu}" for cpu in usable(triple, known.cpus)), "", "Features:", *features]
    return "\n".join(lines)
