"""Puts outputs in the memory of the inputs that they update: from here on a program has one array for both."""

from __future__ import annotations

from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import Block, Buffer, For, Program, Stmt, with_body
from tensorc_dsl.lower.flat import LowerError, Param
from tensorc_dsl.proof.sets.dependence import overwritten
from tensorc_dsl.schedule.nests import map_accesses


def callers_params(program: Program) -> tuple[Buffer, ...]:
    """The arguments of the kernel of a program. One that is input and output updates itself."""
    over = {p.updates for p in program.params if p.updates}
    kept = (p for p in program.params if p.updates in ("", p.name))
    return tuple(replace(p, updates=p.name if p.name in over else "") for p in kept)


def params_of(program: Program) -> tuple[Param, ...]:
    """The arguments of the kernel of a program, as its code takes them."""
    written = {p.name for p in program.outputs}
    return tuple(Param.of(p, output=bool(p.updates) or p.name in written) for p in callers_params(program))


def in_place(program: Program) -> Program:
    """The program with one array for an output and the input that it updates.

    Raises LowerError unless integer sets prove that each element is read for the last time before it is written.
    """
    names = {p.name: p.updates for p in program.params if p.updates not in ("", p.name)}
    for written, read in names.items():
        if found := overwritten(program, written, read):
            raise LowerError(
                f"`{written}` cannot update `{read}`: {found}; reorder the loops or keep `{read}` and `{written}` apart"
            )

    def moved(s: Stmt) -> Stmt:
        if isinstance(s, For):
            return with_body(s, tuple(map(moved, s.body)))
        for old, new in names.items():
            s = _renamed(s, old, new)
        return s

    if not names:
        return program
    return replace(program, params=callers_params(program), body=tuple(map(moved, program.body)))


def _renamed(b: Block, old: str, new: str) -> Block:
    return map_accesses(b, old, lambda indices: (new, indices))
