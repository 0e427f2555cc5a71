"""The passes of CPUs: the common ones, then choices that lanes share, vectors, unrolling and registers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tensorc_dsl.backend.llvm.lower.registers import (
    fold_across,
    keep_in_registers,
    legalise_vectors,
    limit_unrolling,
    unroll_small,
)
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    Compare,
    Expr,
    Logic,
    Not,
    Select,
    children,
    conjunction,
    dtype_of,
    free_vars,
    loads,
    transform,
)
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import MAX_STEP, Annotation, For, LoopKind, Program, Store, walk
from tensorc_dsl.lower.flat import Flat, If, Kernel, Loop, body_of, store_loads
from tensorc_dsl.lower.instructions import bind_instructions, instructions
from tensorc_dsl.lower.lower import COMMON, Pass, Unit, lower
from tensorc_dsl.proof.sets.simplify import conjuncts

# Takes choices that all lanes share out of vectorized loops: those of a row that may be the border of an image.
#
# for j in 0 .. 64 vectorized { S[…] = a if i > 0 else b }
#   ->  if i > 0 { for j … { S[…] = a } } if not i > 0 { for j … { S[…] = b } }
#
# A choice in a vector is a branch for each vector otherwise, and what several vectors load is not shared across it. Most
# such choices are decided where loops are cut; those of tiles that move with time are not, since their rows depend on
# several loops.


MOST = 8
"""The largest number of versions of a loop."""


def take_out_choices(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The body with vectorized loops under the conditions that their lanes share."""
    out: list[Flat] = []
    for is_row, run in groupby(body, _is_row):
        if is_row:
            out.extend(_versions(tuple(run), MOST))
        else:
            out.extend(s if isinstance(s, Store) else replace(s, body=take_out_choices(s.body)) for s in run)
    return tuple(out)


def _is_row(s: Flat) -> bool:
    """Whether a statement is a vectorized loop over stores that read other elements of the buffer they store to: steps of a
    scan. What adds to its own element is in registers."""
    return isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED and all(map(_is_step, s.body))


def _is_step(x: Flat) -> bool:
    own = [r for r in store_loads(x) if r.buffer == x.buffer] if isinstance(x, Store) else []
    return isinstance(x, Store) and bool(own) and all(r.indices != x.indices for r in own)


def _versions(run: tuple[Flat, ...], most: int) -> tuple[Flat, ...]:
    """At most so many versions of some rows, each under its conditions."""
    cond = next(_shared(run), None) if most > 1 else None
    if cond is None:
        return run
    yes, no = (tuple(_decided(s, cond, holds) for s in run) for holds in (True, False))
    return (If(cond, _versions(yes, most // 2)), If(Not(cond), _versions(no, most // 2)))


def _shared(run: tuple[Flat, ...]) -> Iterator[Expr]:
    """The conditions of choices that the lanes of all rows share, those of outer choices first."""
    lanes = frozenset(s.var for s in run if isinstance(s, Loop))
    for s in run:
        for x in body_of(s):
            stack = [x.value] if isinstance(x, Store) else []
            while stack:
                e = stack.pop()
                cond = _uniform(e, lanes) if isinstance(e, Select) else None
                if cond is not None:
                    yield cond
                stack.extend(reversed(children(e)))


def _uniform(e: Select, lanes: frozenset[str]) -> Expr | None:
    """The part of a choice's condition that is about positions and none of the lanes; None if there is none."""
    return conjunction(tuple(c for c in conjuncts(e.cond) if _is_about_positions(c) and lanes.isdisjoint(free_vars(c))))


def _is_about_positions(c: Expr) -> bool:
    """Whether a condition compares indices and loads nothing."""
    if isinstance(c, Compare):
        return dtype_of(c.lhs) == INDEX and not loads(c)
    return isinstance(c, (Logic, Not)) and all(map(_is_about_positions, children(c)))


def _decided(s: Flat, cond: Expr, holds: bool) -> Flat:
    """A row in which choices by that condition are made."""
    assert isinstance(s, Loop)  # see `_is_row`
    lanes = frozenset({s.var})

    def made(e: Expr) -> Expr:
        if not isinstance(e, Select) or _uniform(e, lanes) != cond:
            return e
        rest = conjunction(tuple(c for c in conjuncts(e.cond) if c not in conjuncts(cond)))
        return e.other if not holds else e.then if rest is None else Select(rest, e.then, e.other)

    return replace(s, body=tuple(replace(x, value=transform(x.value, made)) for x in s.body if isinstance(x, Store)))


# The passes of CPUs: the common ones, then vectors, unrolling and registers.


UNROLL_LIMIT = 4096
"""The largest `code_size` of one unrolled nest: larger code leaves the instruction cache and takes long to compile."""


def max_step(program: Program) -> int:
    """The largest `unroll.max_step` of a program; 0 if there is none."""
    found: list[Annotation] = list(program.annotations)
    for _, s in walk(program.body):
        if isinstance(s, For):
            found.extend(s.annotations)
    return max((int(v) for k, v in found if k == MAX_STEP and isinstance(v, int)), default=0)


def _unroll(u: Unit) -> Unit:
    step = max_step(u.whole)
    return replace(u, flat=unroll_small(u.loops, step)) if step else u


def _bind(u: Unit) -> Unit:
    return replace(u, flat=bind_instructions(u.loops, instructions(u.program)))


PASSES = (
    *COMMON,
    Pass("vectors", lambda u: replace(u, flat=legalise_vectors(u.loops)), "vectorized loops that cannot be are serial"),
    Pass(
        "choices",
        lambda u: replace(u, flat=take_out_choices(u.loops)),
        "choices that all lanes of a row share are made before it",
    ),
    Pass("across", lambda u: replace(u, flat=fold_across(u.loops)), "partial results are combined across lanes"),
    Pass("unroll", _unroll, "short loops are unrolled, as `unroll.max_step` says"),
    Pass("registers", lambda u: replace(u, flat=keep_in_registers(u.loops)), "small buffers become registers"),
    Pass(
        "limit", lambda u: replace(u, flat=limit_unrolling(u.loops, UNROLL_LIMIT)), "too long unrolled loops are serial"
    ),
    Pass("instructions", _bind, "tensorized loops become instructions"),
)


def lower_cpu(program: Program) -> Kernel:
    """The kernel of a scheduled program, for any CPU. Raises LowerError as `lower` does."""
    return lower(program, PASSES)
