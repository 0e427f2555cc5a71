"""What each phase becomes for one thread: vectors of whole lanes, one branch for what the same threads do, and unrolled loops
that keep private buffers in registers.

Unrolled loops are left to LLVM, which is faster at it than text is at being unrolled.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import product
from math import prod

from tensorc_dsl.backend.cuda.lower.collectives import accesses_of, is_of_group
from tensorc_dsl.backend.cuda.lower.kernels import (
    THREAD,
    Device,
    DeviceKernel,
    Nested,
    Phase,
    Role,
    Steps,
    launch_ranges,
)
from tensorc_dsl.backend.llvm.lower.passes import limit_unrolling, unroll_small
from tensorc_dsl.base.frozen import replace as replace_node
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    add,
    children,
    conjunction,
    constant,
    dtype_of,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
)
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.ir.reductions import fold_of
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Loop,
    buffers_of,
    inside,
    span,
    store_loads,
    stores,
    stride,
)
from tensorc_dsl.lower.partition import decided
from tensorc_dsl.lower.trim_bounds import Known, hoist_guards, narrow
from tensorc_dsl.proof.sets.linear_forms import Interval, Ranges
from tensorc_dsl.proof.sets.simplify import conjuncts, linear_form, simplify
from tensorc_dsl.proof.sets.store_guards import needed

# Steps of sums in registers stand around the sums, so that what several of them have in common is done once for a step.
#
# `unrolled for i { for k { C[i] += A[i, k] * B[k] } }` loads `B` for each of the sums. The loop over `k` is moved outside.
# Each sum keeps the order of its terms, so floats are the same bits. A condition of all terms of a step becomes a guard
# around them: `(A[i, k] * B[k] if k < 9 else 0.0)` chooses between values for each of the sums.


FEWEST_SUMS = 8
"""The fewest sums of a step that are worth a branch around them."""

MOST_SUMS = 1024
"""The most sums whose places are compared: no thread has registers for more."""


def with_steps_outside(body: tuple[Flat, ...], private: Collection[str]) -> tuple[Flat, ...]:
    """The same sums, with terms in the same order, and loops over terms outside of loops over sums in private storage."""
    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store):
            out.append(s)
            continue
        moved = _moved(s, private)
        out.append(replace_node(s, body=with_steps_outside(s.body, private)) if moved is None else moved)
    return tuple(out)


def _moved(s: Flat, private: Collection[str]) -> Flat | None:
    """The nest with loops over terms outside, and its conditions inside; None if it has none to move, or may not."""
    nest: list[Loop | If] = []
    at = s
    while isinstance(at, Loop | If):
        nest.append(at)
        if len(at.body) != 1:
            return None
        (at,) = at.body
    if not isinstance(at, Store) or at.atomic or at.buffer not in private:
        return None
    every = [x for x in nest if isinstance(x, Loop)]
    first = next((n for n, x in enumerate(every) if x.kind is LoopKind.UNROLLED), len(every))
    terms = [x for x in every[first:] if x.kind is LoopKind.SERIAL and not x.scattered]
    sums = [x for x in every[first:] if x not in terms]
    if not terms or not _independent(nest, sums, terms) or not _adds_to_one_of(at, sums, terms):
        return None
    inner: Flat = at
    for x in reversed(nest):
        if isinstance(x, If):
            inner = replace_node(x, body=(inner,))
    for x in reversed((*every[:first], *terms, *sums)):
        inner = replace_node(x, body=(inner,))
    return inner


def _independent(nest: list[Loop | If], sums: list[Loop], terms: list[Loop]) -> bool:
    """Whether no bound or condition reads data, those of terms are the same for all sums, and those of sums are known."""
    own = {x.var for x in sums}
    if any(loads(e) for x in nest for e in ((x.cond,) if isinstance(x, If) else (x.begin, x.end))):
        return False
    if any(not free_vars(e).isdisjoint(own) for x in terms for e in (x.begin, x.end)):
        return False
    return all(constant(x.begin) is not None and constant(x.end) is not None for x in sums)


def _adds_to_one_of(s: Store, sums: list[Loop], terms: list[Loop]) -> bool:
    """Whether a store adds to what it writes, at a place that is the same for all terms and another one for each sum."""
    read = [x for x in store_loads(s) if x.buffer == s.buffer]
    if not read or any(x.indices != s.indices for x in read):
        return False
    (place,) = s.indices
    if not free_vars(place).isdisjoint(x.var for x in terms):
        return False
    form, _ = linear_form(place, {})
    steps: dict[Expr, int] = {Var(x.var): form.get(Var(x.var), 0) for x in sums}
    if any(not free_vars(e).isdisjoint(x.var for x in sums) for e in form if e not in steps):
        return False
    counts = [range((constant(x.end) or 0) - (constant(x.begin) or 0)) for x in sums]
    size = prod(map(len, counts))
    if size > MOST_SUMS:
        return False
    places = {sum(a * b for a, b in zip(at, steps.values(), strict=True)) for at in product(*counts)}
    return len(places) == size


def with_guards_of_steps(
    body: tuple[Flat, ...], private: Collection[str], above_zero: frozenset[str]
) -> tuple[Flat, ...]:
    """The same sums in private storage, with guards in place of conditions of terms that are the same in all sums of a step.

    `above_zero` are the buffers of `never_negative_zero`.
    """
    return tuple(
        s if isinstance(s, Store) else _guarded(s, private, above_zero) or _inside(s, private, above_zero) for s in body
    )


def _inside(s: Flat, private: Collection[str], above_zero: frozenset[str]) -> Flat:
    return s if isinstance(s, Store) else replace_node(s, body=with_guards_of_steps(s.body, private, above_zero))


def _guarded(s: Flat, private: Collection[str], above_zero: frozenset[str]) -> Flat | None:
    """An unrolled nest around a sum, under the conditions without which it changes nothing; None if there are none."""
    nest: list[Loop] = []
    at = s
    while isinstance(at, Loop) and at.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED) and len(at.body) == 1:
        nest.append(at)
        (at,) = at.body
    if not isinstance(at, Store) or at.buffer not in private:
        return None
    count = prod((constant(x.end) or 0) - (constant(x.begin) or 0) for x in nest)
    own = {x.var for x in nest}
    found = tuple(c for c in needed(at, above_zero) if not loads(c) and free_vars(c).isdisjoint(own))
    cond = conjunction(found)
    if cond is None or count < FEWEST_SUMS:
        return None
    (inner,) = decided((at,), found)
    for x in reversed(nest):
        inner = replace_node(x, body=(inner,))
    return If(cond, (inner,))


def with_first_terms(body: tuple[Flat, ...], above_zero: frozenset[str]) -> tuple[Flat, ...]:
    """The same sums from -0.0 on where a term follows that is never -0.0: LLVM then leaves out the first addition."""
    out: list[Flat] = []
    for s in body:
        if out and isinstance(zero := out[-1], Store) and _adds(s, zero, above_zero):
            out[-1] = replace(zero, value=Const(-0.0, dtype_of(zero.value)))
        out.append(s if isinstance(s, Store) else replace_node(s, body=with_first_terms(s.body, above_zero)))
    return tuple(out)


def _adds(s: Flat, zero: Store, above_zero: frozenset[str]) -> bool:
    """Whether a statement begins with adding to an element that was made 0.0 what is never -0.0."""
    while isinstance(s, Loop) and not s.scattered and _runs(s):
        s = s.body[0]
    fold = fold_of(s) if isinstance(s, Store) else None
    return (
        isinstance(s, Store)
        and fold is not None
        and fold.op == "+"
        and isinstance(fold.value, Load)
        and fold.value.buffer in above_zero
        and zero.value == Const(0.0, dtype_of(fold.value))
        and (zero.buffer, zero.indices) == (s.buffer, s.indices)
    )


def _runs(s: Loop) -> bool:
    """Whether a loop is known to have an iteration."""
    begin, end = constant(s.begin), constant(s.end)
    return begin is not None and end is not None and begin < end


# Vectorized loops of one thread: a loop is a vector if its lanes are adjacent, under conditions that all of them share.


def whole_vectors(body: tuple[Flat, ...], private: Collection[str] = ()) -> tuple[Flat, ...]:
    """Vectorized loops as they are if each lane moves one element on, under conditions that all lanes share; else unrolled.

    What is read of `private` buffers is in registers, wherever the lanes have it: a column of a square is a vector, too.
    Loops of other kinds than these and serial or unrolled ones are in order.
    """
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=whole_vectors(s.body, private))
        if isinstance(s, Loop) and s.kind is LoopKind.VECTORIZED:
            n = constant(s.end)
            s = replace(s, body=_shared_conditions(s.body, s.var, n)) if n else s
            if n and not _is_whole(s.body, s.var, private):  # perhaps it is seen with the numbers of the lanes
                s = replace(s, body=_simplified(s.body, {s.var: (0, n - 1)}))
            s = s if n and _is_whole(s.body, s.var, private) else replace(s, kind=LoopKind.UNROLLED)
        elif isinstance(s, Loop) and s.kind not in (LoopKind.UNROLLED, LoopKind.TENSORIZED):
            s = replace(s, kind=LoopKind.SERIAL)
        out.append(s)
    return tuple(out)


def _simplified(body: tuple[Flat, ...], ranges: Ranges) -> tuple[Flat, ...]:
    """The statements with subscripts as they are for variables in these ranges."""

    def expr(e: Expr) -> Expr:
        return replace(e, indices=tuple(simplify(i, ranges) for i in e.indices)) if isinstance(e, Load) else e

    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store):
            at = tuple(simplify(rewrite_expr(i, expr), ranges) for i in s.indices)
            out.append(replace(s, indices=at, value=rewrite_expr(s.value, expr)))
        else:
            out.append(replace(s, body=_simplified(s.body, ranges)))
    return tuple(out)


def _shared_conditions(body: tuple[Flat, ...], var: str, lanes: int) -> tuple[Flat, ...]:
    """The statements with conditions over a lane replaced by those over the whole vector, where these are equal."""
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=_shared_conditions(s.body, var, lanes))
        if isinstance(s, If):
            s = replace(s, cond=_shared(s.cond, var, lanes))
        elif isinstance(s, Store):
            s = replace(s, value=rewrite_expr(s.value, lambda e: _with_shared(e, var, lanes)))
        out.append(s)
    return tuple(out)


def _with_shared(e: Expr, var: str, lanes: int) -> Expr:
    return replace(e, cond=_shared(e.cond, var, lanes)) if isinstance(e, Select) and var in free_vars(e.cond) else e


def _shared(cond: Expr, var: str, lanes: int) -> Expr:
    """A condition with each of those that it joins replaced by one over the whole vector, where these are equal."""
    out = conjunction(tuple(_for_all_lanes(c, var, lanes) for c in conjuncts(cond)))
    assert out is not None  # `true` is no condition of a statement
    return out


def _for_all_lanes(cond: Expr, var: str, lanes: int) -> Expr:
    """A condition that holds for one lane exactly if it holds for all, without the lane; else the condition as it is.

    With lane v of n: f + v < 0 is f < 0 if n divides f, and f - v < 0 is f - (n - 1) < 0 if n divides that.
    """
    if not isinstance(cond, Compare) or var not in free_vars(cond) or dtype_of(cond.lhs) != INDEX:
        return cond
    a, b = (cond.lhs, cond.rhs) if cond.op in ("<", "<=") else (cond.rhs, cond.lhs)
    if cond.op not in ("<", "<=", ">", ">="):
        return cond
    known: dict[str, Interval] = {var: (0, lanes - 1)}
    (left, x), (right, y) = linear_form(a, known), linear_form(b, known)
    terms = {e: left.get(e, 0) - right.get(e, 0) for e in (*left, *right)}
    rest = x - y - (0 if cond.op in ("<=", ">=") else -1) - 1
    factor = terms.pop(Var(var), 0)
    if any(var in free_vars(e) for e in terms) or abs(factor) != 1:
        return cond
    rest -= lanes - 1 if factor < 0 else 0
    if rest % lanes or any(c % lanes for c in terms.values()):
        return cond
    total: Expr = index(rest)
    for e, c in terms.items():
        total = add(total, mul(e, index(c)))
    return Compare("<", total, ZERO)


def _is_whole(body: tuple[Flat, ...], var: str, private: Collection[str]) -> bool:
    """Whether all lanes run each store, to adjacent elements, from adjacent elements, the same one or private ones."""
    for s in body:
        match s:
            case Store(indices=(at,)):
                if (
                    s.atomic
                    or stride(at, var) != 1
                    or any(
                        stride(x.indices[0], var) not in (0, 1)
                        and (x.buffer not in private or stride(x.indices[0], var) is None)
                        for x in store_loads(s)
                    )
                ):
                    return False
                if _chooses(s.value, var):
                    return False
            case If(cond=cond, body=inner):
                if var in free_vars(cond) or not _is_whole(inner, var, private):
                    return False
            case _:
                return False
    return True


def _chooses(e: Expr, var: str) -> bool:
    """Whether an expression loads or not, by its lane."""
    if isinstance(e, Select | Logic) and var in free_vars(e.cond if isinstance(e, Select) else e):
        return True
    return any(_chooses(x, var) for x in children(e))


CODE_LIMIT = 4096
"""The largest code of one unrolled nest, as `code_size` counts: beyond it ptxas takes long, and registers run out before."""

FEW_STEPS = 4
"""The most iterations of a loop around sums in registers that is unrolled, whatever `unroll.max_step` is."""

MOST_STEPS = 32
"""The largest `unroll.max_step` that is obeyed: with more, a loop of `exp` takes ptxas half a minute."""


def finished(
    body: tuple[Device, ...], private: Collection[str], above_zero: frozenset[str], max_step: int
) -> tuple[Device, ...]:
    """The phases with vectors that are whole, with guards around loops, and with the loops unrolled that subscript private
    buffers. `above_zero` are the buffers of `never_negative_zero`."""
    out: list[Device] = []
    for s in joined(body):
        if isinstance(s, Phase):
            names = {*private, *(x.name for x in inside(s.body) if isinstance(x, Alloc))}
            flat = whole_vectors(s.body, names)
            flat = with_steps_outside(_unrolled(flat, _walkers(s.body, names)), names)
            flat = with_first_terms(hoist_guards(with_guards_of_steps(flat, names, above_zero)), above_zero)
            out.append(replace(s, body=_limited(flat, _steps_of_sums(flat, names), min(max_step, MOST_STEPS))))
        else:
            out.append(replace(s, body=finished(s.body, private, above_zero, max_step)) if isinstance(s, Nested) else s)
    return tuple(out)


def _limited(body: tuple[Flat, ...], steps: Collection[str], max_step: int) -> tuple[Flat, ...]:
    """The body with the loops of `steps` and short loops unrolled, as far as no other loop would be too long then, and with
    these in order if they are."""
    plain = limit_unrolling(body, CODE_LIMIT)
    reused = _unrolled(body, steps)
    for more in (unroll_small(reused, max_step), reused, unroll_small(body, max_step)):
        short = limit_unrolling(more, CODE_LIMIT)
        if _in_order(short) <= _in_order(plain):
            return short
    return plain


def _in_order(body: tuple[Flat, ...]) -> frozenset[str]:
    """The variables of loops that run in order."""
    return frozenset(s.var for s in inside(body) if isinstance(s, Loop) and s.kind is LoopKind.SERIAL)


def joined(body: tuple[Device, ...]) -> tuple[Device, ...]:
    """The statements with everything between two barriers as one phase."""
    out: list[Device] = []
    for s in body:
        if isinstance(s, Nested):
            s = replace(s, body=joined(s.body))
            if not isinstance(s, Role) and len(s.body) == 1 and isinstance(s.body[0], Phase):
                only, inner = s.body[0], s.body[0].body
                whole = Loop(s.var, ZERO, s.end, LoopKind.SERIAL, inner) if isinstance(s, Steps) else If(s.cond, inner)
                s = replace(only, body=(whole,))
        if isinstance(s, Phase) and out and isinstance(before := out[-1], Phase):
            if s.asynchronous == before.asynchronous:
                out[-1] = replace(before, body=(*before.body, *s.body))
            else:
                out.append(s)
        else:
            out.append(s)
    return tuple(out)


def _walkers(body: tuple[Flat, ...], private: Collection[str]) -> frozenset[str]:
    """The variables in subscripts of private buffers, and of what instructions take beside their threads: then these follow
    each other without a branch between them, and their descriptors are a constant apart."""
    groups = (s for s in inside(body) if isinstance(s, Collective) and is_of_group(s.intrinsic))
    out = {v for s in groups for _, x in accesses_of(s) for i in x.indices for v in free_vars(i)}
    for s in stores(body):
        if not buffers_of(s).isdisjoint(private):
            used = [*(s.indices if s.buffer in private else ())]
            used += [i for x in store_loads(s) if x.buffer in private for i in x.indices]
            out.update(v for i in used for v in free_vars(i))
    return frozenset(out)


def _steps_of_sums(body: tuple[Flat, ...], private: Collection[str]) -> frozenset[str]:
    """The variables of short loops around sums in private storage. Where they are unrolled, what several sums have in common
    is loaded once and in vectors, and ptxas loads the fragments of the next step of an instruction while it multiplies those
    of this one, as CUTLASS does by hand."""
    return frozenset(
        s.var
        for s in inside(body)
        if isinstance(s, Loop)
        and s.kind is LoopKind.SERIAL
        and (constant(s.end) or FEW_STEPS + 1) - (constant(s.begin) or 0) <= FEW_STEPS
        and any(x.buffer in private and any(y.buffer == x.buffer for y in store_loads(x)) for x in stores(s.body))
    )


def _unrolled(body: tuple[Flat, ...], walkers: Collection[str]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=_unrolled(s.body, walkers))
        if isinstance(s, Loop) and s.var in walkers and s.kind is LoopKind.SERIAL:
            s = replace(s, kind=LoopKind.UNROLLED)
        out.append(s)
    return tuple(out)


# What data choose of the loops of one thread: the iteration of a scattered one, the bounds of others.
#
# Barriers are in place by then: what they order is what the whole loop may access.


def with_bounds(k: DeviceKernel, known: Known) -> DeviceKernel:
    """The kernel with loops of a thread that begin and end where the conditions of their work do.

    Bounds may differ between threads. Those of a loop in which a warp meets do not, and no barrier is in a loop of a thread.
    """
    mine = replace(known, together=frozenset((THREAD,)), private=frozenset(b.name for b in k.local))
    return replace(k, body=_bounded(joined(k.body), launch_ranges(k), mine))


def _bounded(body: tuple[Device, ...], ranges: Ranges, known: Known) -> tuple[Device, ...]:
    out: list[Device] = []
    for s in body:
        match s:
            case Phase(body=inner):
                out.append(replace(s, body=narrow(inner, known, ranges)))
            case Steps(var=var, end=end, body=inner):
                out.append(replace(s, body=_bounded(inner, {**ranges, var: span(end)}, known)))
            case Role(threads=threads, body=inner):
                mine: Ranges = {**ranges, THREAD: (0, threads - 1)}
                out.append(replace(s, body=_bounded(inner, mine, known)))
            case _:
                out.append(replace(s, body=_bounded(s.body, ranges, known)) if isinstance(s, Nested) else s)
    return tuple(out)
