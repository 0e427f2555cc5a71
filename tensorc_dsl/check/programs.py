"""Checks programs that are written out: beside their form, that loops which run at once carry no dependence, and that no
block leaves a buffer or the extent of an iterator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.source import Span
from tensorc_dsl.check import problems
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.parse import program_from_tree
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, For, Intrinsic, LoopKind, Program, walk
from tensorc_dsl.proof.sets.accesses import accesses
from tensorc_dsl.proof.sets.dependence import races
from tensorc_dsl.proof.sets.safety import Outside, check_access
from tensorc_dsl.syntax import tree as t


def check_program(item: t.ProgramDef, instructions: tuple[Intrinsic, ...]) -> list[Diagnostic]:
    """All findings about a program that is written out."""
    try:
        program = program_from_tree(item, instructions)
    except TschedError as e:
        return list(e.diagnostics)
    places = dict(_places(item.body))
    found = (*_races(program), *_leaving(program))
    return [replace(d, span=places.get(name, item.name.span)) for name, d in found]


def _places(body: tuple[t.ProgramStmt, ...]) -> Iterator[tuple[str, Span]]:
    """The place of each loop and block by its name, the last first: a loop with the name of one before it is renamed."""
    for s in reversed(body):
        if isinstance(s, t.LoopStmt):
            yield from _places(s.body)
            yield from ((h.name, h.span) for h in s.loops)
        else:
            yield s.name, s.name.span


def _races(program: Program) -> Iterator[tuple[str, Diagnostic]]:
    for loop, dependence in races(program):
        written = f'bound("{loop.axis}") for' if loop.kind is LoopKind.BOUND else f"{loop.kind} for"
        yield loop.var, problems.AT_ONCE(None, kind=loop.kind, loop=loop.var, why=dependence, written=written)


def _leaving(program: Program) -> Iterator[tuple[str, Diagnostic]]:
    """For each block the first place at which it leaves a buffer or the extent of an iterator, if one is known."""
    for around, b in walk(program.body):
        if isinstance(b, Block) and (found := _leaves(program, around, b)) is not None:
            yield b.name, found


def _leaves(program: Program, around: tuple[For, ...], b: Block) -> Diagnostic | None:
    extents = {x.var: x.extent for x in around}
    for it in b.iters:
        match check_access(extents, b.where, (it.binding,), (it.extent,), program.dims):
            case Outside(value=value, at=at):
                return problems.ITERATOR_LEAVES(
                    None, block=b.name, name=it.name, value=value, extent=format_expr(it.extent), at=_at(at)
                )
            case _:
                pass
    shapes: dict[str, tuple[Expr, ...]] = {x.name: x.shape for x in (*program.params, *program.buffers)}
    for x in accesses(around, (b,), frozenset(shapes)):
        match check_access(extents, x.guard, x.indices, shapes[x.buffer], program.dims):
            case Outside(position=position, value=value, extent=extent, at=at):
                return problems.BLOCK_LEAVES(
                    None, block=b.name, does="stores to" if x.is_write else "reads", buffer=x.buffer,
                    position=position + 1, value=value, extent=extent, at=_at(at),
                )  # fmt: skip
            case _:
                pass
    return None


def _at(values: tuple[tuple[str, int], ...]) -> str:
    return f" at {', '.join(f'{n} = {v}' for n, v in values)}" if values else ""


__all__ = ["check_program"]
