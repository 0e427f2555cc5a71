"""The features that LLVM attributes to a target: its `-mattr`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from tensorc_dsl.backend.llvm.codegen.function import Function, Module
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.ir.target import Target

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
