"""Lowering: a scheduled program becomes a flat kernel, one pass after another."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.affine.constants import preparation
from tensorc_dsl.affine.form import Interval
from tensorc_dsl.affine.simplify import essential, extent_ranges
from tensorc_dsl.affine.told import told_by
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.program import Annotation, Buffer, For, LoopKind, Program, Stmt, walk
from tensorc_dsl.ir.streams import streamed
from tensorc_dsl.lower.across import fold_across
from tensorc_dsl.lower.defuse import defuse
from tensorc_dsl.lower.erase import erase
from tensorc_dsl.lower.flat import Flat, Kernel, Loop, LowerError, Parallel, Param, Prepared, Store, body_of
from tensorc_dsl.lower.guards import hoist_guards
from tensorc_dsl.lower.instructions import bind_instructions, instructions, only_proven
from tensorc_dsl.lower.open_partition import partition_open
from tensorc_dsl.lower.partition import partition
from tensorc_dsl.lower.registers import keep_in_registers, limit_unrolling, unroll_small
from tensorc_dsl.lower.storage import element_count, flatten_params, homes, place, shape_of
from tensorc_dsl.lower.vectors import legalise_vectors

MAX_STEP = "unroll.max_step"
"""An annotation that lowering obeys, as it does `ir.streams.STREAM`. It may stand on the program or on any loop; the largest
value in a program counts, for all of it. Other annotations are for schedules and people."""

MOST_BUFFERS = 256
"""Each may stand in the next one's life, so that flat loops are nested as deep; and each is held against all others."""

UNROLL_LIMIT = 4096
"""Code (see `code_size`) of one unrolled nest: beyond it code leaves the instruction cache and takes long to compile."""


def lower(program: Program) -> Kernel:
    """The kernel that runs every block instance of `program`, in an order its loops allow.

    Serial loops keep their order; parallel and vectorized loops promise that order does not matter. Nests that follow from
    constant inputs alone run once, before. Open dimensions stay open: the kernel is one for all their sizes. LowerError
    when the shapes of its arguments would not tell a size, or there are too many buffers.
    """
    if untold := set(program.dims) - told_by(program.params, program.dims):
        names = ", ".join(sorted(d.name for d in untold))
        raise LowerError(f"the shapes of the arguments of {program.name} do not tell {names}")
    if len(program.buffers) > MOST_BUFFERS:
        count = len(program.buffers)
        raise LowerError(f"{program.name} has {count} intermediate buffers, and at most {MOST_BUFFERS} are lowered")
    found = preparation(program)
    outputs = {p.name for p in program.outputs}
    params = tuple(Param(p.name, p.dtype, shape_of(p), p.name in outputs, p.constant) for p in program.params)
    return Kernel(
        program.name,
        params,
        _body(program, [n for n in range(len(program.body)) if n not in found.nests], found.prepared),
        program.dims,
        _body(program, sorted(found.nests), found.prepared) if found.nests else (),
        tuple(Prepared(b.name, b.dtype, element_count(b)) for b in found.prepared),
        found.kept,
        streamed(program),
    )


def _body(whole: Program, nests: list[int], prepared: tuple[Buffer, ...]) -> tuple[Flat, ...]:
    """Some of the nests of a program, as flat loops; what is prepared they read and write like an argument."""
    scratch = tuple(b for b in whole.buffers if b not in prepared)
    program = replace(whole, body=tuple(whole.body[n] for n in nests), buffers=scratch)
    program = replace(program, params=(*whole.params, *prepared))
    program = defuse(only_proven(program))
    if program.dims:
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
    step = _max_step(whole)
    if step:
        body = unroll_small(body, step)
    body = keep_in_registers(body)
    body = limit_unrolling(body, UNROLL_LIMIT)
    return bind_instructions(body, instructions(program))


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
