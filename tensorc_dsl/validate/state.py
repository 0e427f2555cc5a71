"""Reductions that update several buffers in one step, such as a position and its value.

A step finds in each buffer what the steps before have left. The steps are those of one reduction only if all these buffers
have one state: an element of one buffer goes with one element of each other, what writes the one writes the other with it,
and a position and its value begin as `argmin` and `argmax` do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensorc_dsl.affine import isl
from tensorc_dsl.ir.expr import dtype_of
from tensorc_dsl.ir.reductions import ArgFold, DeclaredFold, arg_start, update_of
from tensorc_dsl.validate.code import Code, Statement


def in_one_state(code: Code) -> Code:
    """The code, in which stores that do not have one state are no updates."""
    apart = {s.number for stores in _steps(code) if not _has_one_state(code, stores) for s in stores}
    if apart:
        code.statements = [replace(s, accumulates=None) if s.number in apart else s for s in code.statements]
        code.writers = {b: [code.statements[s.number] for s in known] for b, known in code.writers.items()}
    return code


def _steps(code: Code) -> Iterator[tuple[Statement, ...]]:
    """The stores of each block that make one step together, if they are several."""
    for stores in _blocks(code.statements):
        if len(stores) > 1 and not stores[0].is_init and isinstance(update_of(stores[0].block), ArgFold | DeclaredFold):
            yield stores


def _blocks(statements: Sequence[Statement]) -> list[tuple[Statement, ...]]:
    """The statements by block, those of its initialisation apart."""
    found: dict[tuple[str, bool], list[Statement]] = {}
    for s in statements:
        found.setdefault((s.block.name, s.is_init), []).append(s)
    return [tuple(stores) for stores in found.values()]


def _has_one_state(code: Code, stores: Sequence[Statement]) -> bool:
    buffers = [s.store.buffer for s in stores]
    others = {s.number: s for b in buffers for s in code.writers[b]}
    for group in _blocks(list(others.values())):
        if [s.store.buffer for s in group] != buffers or not _go_together(code, group):
            return False
        if not _continues(group, stores) and not _begins(group, stores):
            return False
    return True


def _go_together(code: Code, stores: Sequence[Statement]) -> bool:
    """Whether the instances that write an element of one buffer write one element of each other, and no others do."""
    first, *others = (code.written(s) for s in stores)
    related: list[isl.Map] = [first.reverse().apply_range(m) for m in others]
    return all(m.is_bijective() for m in related)


def _continues(group: Sequence[Statement], stores: Sequence[Statement]) -> bool:
    """Whether the stores are steps of the same reduction."""
    kinds = [[s.accumulates and s.accumulates.kind for s in x] for x in (group, stores)]
    return kinds[0] == kinds[1]


def _begins(group: Sequence[Statement], stores: Sequence[Statement]) -> bool:
    """Whether the stores begin a reduction; where a declared one begins is compared with its other program."""
    update = update_of(stores[0].block)
    if not isinstance(update, ArgFold):
        return True
    position, best = group
    start = arg_start(
        update.kind,
        position.store.buffer,
        best.store.buffer,
        position.store.indices,
        dtype_of(update.value),
        dtype_of(update.position),
    )
    return [s.store.value for s in group] == [s.value for s in start]
