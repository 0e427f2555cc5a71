"""Writes atomic updates: what a machine adds where it is, and other updates by comparing and exchanging.

The order of an update among accesses to other elements does not matter: barriers and the ends of kernels give it. So all are
relaxed. PTX ISA, "atom", "Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Callable

from tensorc_dsl.backend.llvm.codegen.body import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function
from tensorc_dsl.backend.llvm.codegen.values import in_memory
from tensorc_dsl.ir.atomics import change_of, is_switch
from tensorc_dsl.ir.expr import ZERO, Expr, Load, Not, dtype_of, transform
from tensorc_dsl.ir.program import Store
from tensorc_dsl.ir.reductions import fold_of

_OLD = ".old"
"""The buffer of the value that an update changes, under a name that none of a program can have."""


def write_update(
    f: Function,
    e: Expressions,
    s: Store,
    place: Callable[[Store], str],
    scope: str,
    under: Callable[[Expr, Callable[[], None]], None],
) -> None:
    """Write an atomic store. `place` writes the address of its element, `under` what is done if a condition holds. `scope`
    says among whom it is one step: the threads of a "block" or of the "device"."""
    how = f'syncscope("{scope}") monotonic'
    fold = fold_of(s)
    if fold is not None and is_switch(s):
        # What is true stays true: a thread stores that, or nothing.
        changes = fold.value if fold.op == "or" else Not(fold.value)
        under(changes, lambda: f.line(f"store atomic i8 {int(fold.op == 'or')}, ptr {place(s)} {how}, align 1"))
    elif fold is not None and (change := change_of(s)) is not None:
        value = e.value(fold.value, None)
        f.op(f"atomicrmw {change} ptr {place(s)}, {value.typed} {how}")
    else:
        _exchange(f, e, s, place, how)


def _exchange(f: Function, e: Expressions, s: Store, place: Callable[[Store], str], how: str) -> None:
    """Write an update as a loop: the value is computed from what is there, and stored if that is there still."""
    t = dtype_of(s.value)
    word, kind = f"i{8 * t.bytes}", in_memory(t)
    old, at = f.alloca(kind, 1), place(s)
    f.line(f"store {word} {f.op(f'load atomic {word}, ptr {at} {how}, align {t.bytes}')}, ptr {old}")
    again, after = f.label("again"), f.label("updated")
    f.branch(again)
    f.start_block(again)
    with f.region():
        e.scope.buffers[_OLD] = (old, t)
        value = e.value(transform(s.value, lambda x: _from_old(x, s)), None)
        del e.scope.buffers[_OLD]
        new = value.ref if kind == word else f.op(f"bitcast {value.typed} to {word}")
        was = f.op(f"load {word}, ptr {old}")
        pair = f.op(f"cmpxchg ptr {at}, {word} {was}, {word} {new} {how} monotonic")
        f.line(f"store {word} {f.op(f'extractvalue {{ {word}, i1 }} {pair}, 0')}, ptr {old}")
        f.branch_if(f.op(f"extractvalue {{ {word}, i1 }} {pair}, 1"), after, again)
    f.start_block(after)


def _from_old(x: Expr, s: Store) -> Expr:
    """A load of the element that is updated, as one of the value that was there."""
    return Load(_OLD, (ZERO,), x.dtype) if isinstance(x, Load) and x.buffer == s.buffer else x
