"""Turns tensorized nests into instructions. The mark on a loop is only a request: it is proved again, first and last.

Until the last pass the nest stays a nest, of a kind that no pass changes, so that passes which move buffers or subscripts
update its subscripts too. The tiles of the instruction are computed at the end. If a pass has changed
the nest, it runs as loops.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import For, Intrinsic, LoopKind, Program, Stmt, Store, intrinsic_of, walk
from tensorc_dsl.lower.flat import Flat, Instruction, Loop, body_of, span, within
from tensorc_dsl.proof.sets.instructions import Match, match_nest, match_store
from tensorc_dsl.proof.sets.linear_forms import Ranges


def only_proven(program: Program) -> Program:
    """The program with tensorized nests that do not compute what their instructions do replaced by serial loops."""

    def go(body: tuple[Stmt, ...], around: tuple[For, ...], inside: bool) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, For):
                named = intrinsic_of(program, s)
                proven = inside or (named is not None and isinstance(match_nest(around, s, named), Match))
                kind = LoopKind.SERIAL if s.kind is LoopKind.TENSORIZED and not proven else s.kind
                s = replace(s, kind=kind, body=go(s.body, (*around, s), proven))
            out.append(s)
        return tuple(out)

    return replace(program, body=go(program.body, (), False)) if program.intrinsics else program


def instructions(program: Program) -> Mapping[str, Intrinsic]:
    """The instructions of tensorized nests, by the outermost loop of the nest that has more than one iteration."""
    out: dict[str, Intrinsic] = {}
    for _, s in walk(program.body):
        if isinstance(s, For) and (named := intrinsic_of(program, s)) is not None:
            nest = [s, *(x for _, x in walk(s.body) if isinstance(x, For))]
            first = next((x for x in nest if constant(x.extent) != 1), s)
            out[first.var] = named
    return out


def bind_instructions(
    body: tuple[Flat, ...], named: Mapping[str, Intrinsic], ranges: Ranges | None = None
) -> tuple[Flat, ...]:
    """Every tensorized nest as an instruction, or as serial loops; accesses have one subscript here."""
    out: list[Flat] = []
    known: Ranges = ranges or {}
    for s in body:
        if isinstance(s, Store):
            out.append(s)
            continue
        below = bind_instructions(body_of(s), named, within(known, s))
        if isinstance(s, Loop) and s.kind is LoopKind.TENSORIZED:
            serial = replace(s, kind=LoopKind.SERIAL, body=below)
            intrinsic = named.get(s.var)
            match = None if intrinsic is None else match_flat(s, intrinsic, known)
            out.append(Instruction(intrinsic, match.tiles, (serial,)) if intrinsic and match else serial)
        else:
            out.append(replace(s, body=below))
    return tuple(out)


def match_flat(s: Loop, intrinsic: Intrinsic, outer: Ranges) -> Match | None:
    """The match of a nest of flat loops with an instruction; None if it does something else. `outer`: the loops around."""
    loops: list[tuple[str, int | None]] = []
    ranges = dict(outer)
    stmt: Flat = s
    while isinstance(stmt, Loop):
        if constant(stmt.begin) != 0 or len(stmt.body) != 1:
            return None
        loops.append((stmt.var, constant(stmt.end)))
        ranges[stmt.var] = span(stmt.end)
        stmt = stmt.body[0]
    found = match_store(loops, stmt, intrinsic, ranges) if isinstance(stmt, Store) else None
    return found if isinstance(found, Match) else None
