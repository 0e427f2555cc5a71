"""Keeps a part of a buffer: the subscripts of one dimension wrap around, so that new elements take the places of old ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorc_dsl.ir.expr import Expr, floormod, index
from tensorc_dsl.ir.program import Buffer, Program, blocks, replace_stmt
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.proof.sets.simplify import iter_ranges, simplify
from tensorc_dsl.schedule.nests import map_accesses, replace_buffer


def wrapped(program: Program, buffer: Buffer, axis: int, size: int) -> Program:
    """The program in which the dimension has `size` places, and all subscripts of it are taken modulo that."""
    for b in blocks(program):
        if buffer.name in touched(b):
            ranges = iter_ranges(b.iters)

            def at(indices: tuple[Expr, ...], ranges: Mapping[str, tuple[int | None, int | None]] = ranges):
                place = simplify(floormod(indices[axis], index(size)), ranges)
                return buffer.name, (*indices[:axis], place, *indices[axis + 1 :])

            program = replace_stmt(program, b.name, (map_accesses(b, buffer.name, at),))
    shape = (*buffer.shape[:axis], index(size), *buffer.shape[axis + 1 :])
    return replace_buffer(program, buffer.name, (replace(buffer, shape=shape),))


def computes_the_same(program: Program, result: Program) -> bool:
    """Whether it is proved that both give the same results: no element is read after another one took its place."""
    # The validator loads isl and NumPy, which a check of a file does without.
    from tensorc_dsl.proof.equivalence.validate import proves

    return proves(program, result)
