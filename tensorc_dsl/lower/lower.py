"""Lowering: a scheduled program becomes a flat kernel, one pass after another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorc_dsl.affine.form import Interval
from tensorc_dsl.affine.simplify import essential, extent_ranges, linear_form
from tensorc_dsl.ir.expr import Dim, Expr, constant, dims_in
from tensorc_dsl.ir.program import Annotation, For, LoopKind, Program, Stmt, walk
from tensorc_dsl.lower.across import fold_across
from tensorc_dsl.lower.defuse import defuse
from tensorc_dsl.lower.erase import erase
from tensorc_dsl.lower.flat import Flat, Kernel, Loop, LowerError, Parallel, Param, Store, body_of
from tensorc_dsl.lower.guards import hoist_guards
from tensorc_dsl.lower.instructions import bind_instructions, instructions, only_proven
from tensorc_dsl.lower.open_partition import partition_open
from tensorc_dsl.lower.partition import partition
from tensorc_dsl.lower.registers import keep_in_registers, limit_unrolling, unroll_small
from tensorc_dsl.lower.storage import flatten_params, homes, place, shape_of
from tensorc_dsl.lower.vectors import legalise_vectors

MAX_STEP = "unroll.max_step"
"""The one annotation that lowering obeys. It may stand on the program or on any loop; the largest value in a program counts,
for all of it. All other annotations are for schedules and people."""

UNROLL_LIMIT = 4096
"""Code (see `code_size`) of one unrolled nest: beyond it code leaves the instruction cache and takes long to compile."""


def lower(program: Program) -> Kernel:
    """The kernel that runs every block instance of `program`, in an order its loops allow.

    Serial loops keep their order; parallel and vectorized loops promise that order does not matter. Open dimensions stay
    open: the kernel is one for all their sizes. LowerError when the shapes of its arguments would not tell a size.
    """
    program = defuse(only_proven(program))
    if program.dims:
        _require_told(program)
        program = replace(program, body=_essential(program.body, {}))
    erased = erase(program)
    body = hoist_guards(erased.body)
    body = place(body, program.buffers, homes(program), erased.carried)
    body = flatten_params(body, program.params)
    body = collapse_parallel(body, inside=False)
    if program.dims:
        body = partition_open(body)
    body = partition(body)
    body = legalise_vectors(body)
    body = fold_across(body)
    step = _max_step(program)
    if step:
        body = unroll_small(body, step)
    body = keep_in_registers(body)
    body = limit_unrolling(body, UNROLL_LIMIT)
    body = bind_instructions(body, instructions(program))
    outputs = {p.name for p in program.outputs}
    params = tuple(Param(p.name, p.dtype, shape_of(p), p.name in outputs) for p in program.params)
    return Kernel(program.name, params, body, program.dims)


def _require_told(program: Program) -> None:
    """A size is told by the extent of an argument that is linear in it, and in sizes that are known by then."""
    unknown = set(program.dims)
    extents = [linear_form(e, {})[0] for p in program.params for e in p.shape]
    while unknown:
        told = {d for terms in extents for d in unknown if d in terms and unknown & _mentioned(terms) == {d}}
        if not told:
            names = ", ".join(sorted(d.name for d in unknown))
            raise LowerError(f"the shapes of the arguments of {program.name} do not tell {names}")
        unknown -= told


def _mentioned(terms: Iterable[Expr]) -> frozenset[Dim]:
    return frozenset[Dim]().union(*map(dims_in, terms))


def _essential(body: tuple[Stmt, ...], ranges: dict[str, Interval]) -> tuple[Stmt, ...]:
    """Guards without those that others imply: a split of an open loop into three levels guards two of them."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, For):
            out.append(replace(s, body=_essential(s.body, {**ranges, **extent_ranges((s,))})))
        else:
            out.append(replace(s, where=essential(s.where, ranges)))
    return tuple(out)


def _max_step(program: Program) -> int:
    found: list[Annotation] = list(program.annotations)
    for _, s in walk(program.body):
        if isinstance(s, For):
            found.extend(s.annotations)
    return max((int(v) for k, v in found if k == MAX_STEP and isinstance(v, int)), default=0)


def collapse_parallel(body: tuple[Flat, ...], *, inside: bool) -> tuple[Flat, ...]:
    """Parallel loops as `Parallel`, perfectly nested ones as one; inside another they are serial."""
    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store):
            out.append(s)
        elif isinstance(s, Loop) and s.kind is LoopKind.PARALLEL:
            if inside:
                inner = collapse_parallel(s.body, inside=True)
                out.append(replace(s, kind=LoopKind.SERIAL, body=inner))
                continue
            loops = [s]
            while len(loops[-1].body) == 1:
                only = loops[-1].body[0]
                if not isinstance(only, Loop) or only.kind is not LoopKind.PARALLEL or constant(only.begin) != 0:
                    break
                loops.append(only)
            inner = collapse_parallel(loops[-1].body, inside=True)
            out.append(Parallel(tuple(x.var for x in loops), tuple(x.end for x in loops), inner))
        else:
            out.append(replace(s, body=collapse_parallel(body_of(s), inside=inside)))
    return tuple(out)
