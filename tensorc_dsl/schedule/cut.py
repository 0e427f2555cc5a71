"""Cuts the range of a loop into sibling loops that run one after another, each over a copy of the statements below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Var, add, conjunction
from tensorc_dsl.ir.program import Buffer, For, IterKind, Program, Stmt, fresh
from tensorc_dsl.proof.sets.accesses import home
from tensorc_dsl.proof.sets.simplify import extent_ranges, prove
from tensorc_dsl.schedule.nests import map_accesses
from tensorc_dsl.schedule.substitution import replace_variables


@dataclass(frozen=True, slots=True)
class Part:
    """The iterations `begin .. begin + extent - 1` of a loop, to run in a loop `name`.

    Names in its copy get `suffix` appended; with None it has the original statements instead of a copy.
    """

    name: str
    begin: Expr
    extent: Expr
    suffix: str | None


def cut(
    program: Program, around: tuple[For, ...], loop: For, parts: Sequence[Part], used: set[str]
) -> tuple[tuple[For, ...], tuple[Buffer, ...]]:
    """A loop for each part, and the new buffers of the copies, which replace buffers that are private to an iteration.

    Loops and blocks of a copy get names that are not in `used`, and these are added to it.
    """
    own = [b for b in program.buffers if any(x.var == loop.var for x in home(program, b) or ())]
    loops: list[For] = []
    buffers: list[Buffer] = []
    for part in parts:
        body, values = loop.body, {loop.var: add(part.begin, Var(part.name))}
        if part.suffix is not None:
            copies = {b.name: replace(b, name=fresh(b.name + part.suffix, used)) for b in own}
            buffers += copies.values()
            body = _copied(body, part.suffix, {b: copy.name for b, copy in copies.items()}, used, values)
        head = For(part.name, part.extent, (), annotations=loop.annotations)
        inside = (*around, head)
        body = _without_dead_init(replace_variables(body, values, inside), inside)
        loops.append(replace(head, body=body))
    return tuple(loops), tuple(buffers)


def _copied(
    stmts: tuple[Stmt, ...], suffix: str, buffers: Mapping[str, str], used: set[str], values: dict[str, Expr]
) -> tuple[Stmt, ...]:
    """The statements with new names for loops, blocks and `buffers`; new loop variables are added to `values`."""
    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, For):
            name = fresh(s.var + suffix, used)
            values[s.var] = Var(name)
            out.append(replace(s, var=name, body=_copied(s.body, suffix, buffers, used, values)))
        else:
            # A block with the name of the buffer that it writes gets the buffer's new name.
            b = replace(s, name=buffers.get(s.name) or fresh(s.name + suffix, used))
            for old, new in buffers.items():
                b = map_accesses(b, old, lambda indices, new=new: (new, indices))
            out.append(b)
    return tuple(out)


def _without_dead_init(stmts: tuple[Stmt, ...], around: tuple[For, ...]) -> tuple[Stmt, ...]:
    """The statements, without the `init` of blocks that never run the first step of their reduction."""
    out: list[Stmt] = []
    for s in stmts:
        if isinstance(s, For):
            out.append(replace(s, body=_without_dead_init(s.body, (*around, s))))
            continue
        first = conjunction(tuple(Compare("==", it.binding, ZERO) for it in s.iters if it.kind is IterKind.REDUCE))
        dead = first is not None and prove(first, extent_ranges(around)) is False
        out.append(replace(s, init=()) if dead else s)
    return tuple(out)
