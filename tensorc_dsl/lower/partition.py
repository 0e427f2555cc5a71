"""Cuts loops at the iterations where their guards change: full tiles run unguarded, statements that never run are removed.

Afterwards every subscript and condition is simplified under the ranges of the loops around it, loops of one iteration are
removed, and a serial or vectorized loop is a sequence of pieces, in each of which guards are constant if possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Var,
    children,
    constant,
    dims_in,
    dtype_of,
    free_vars,
    index,
    sub,
)
from tensorc_dsl.ir.node import by_identity, replace
from tensorc_dsl.ir.program import LoopKind, Store, map_store
from tensorc_dsl.lower.flat import (
    Alloc,
    Collective,
    Flat,
    If,
    Instruction,
    Loop,
    Parallel,
    Shuffle,
    store_loads,
    within,
)
from tensorc_dsl.proof.sets.linear_forms import Context, Ranges, linear
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, prove, simplify

# Finds what changes inside of a vectorized loop: a `min`, a `max`, a remainder or the condition of a choice.
#
# Such are the borders of an image. A vector that may reach beyond one gathers its elements one by one; where the choice is
# decided, it is loaded at once.


LINE = 16
"""A vectorized loop is cut at multiples of this many iterations, so that what is between borders begins at a whole vector,
and at a cache line of 32-bit elements."""

MOST = 4
"""Choices that change at more places than these are no border: each part would have code of its own."""


def undecided_conditions(s: Loop, ranges: Ranges) -> Iterator[tuple[Compare, Ranges]]:
    """The conditions over the variable of a loop that decide the choices of vectors and, if the loop is unrolled, other ones,
    with the ranges of all loops around them."""
    own = frozenset({s.var}) if s.kind is LoopKind.UNROLLED else frozenset[str]()
    return ((c, r) for c, r in _inside((s,), ranges, own) if s.var in free_vars(c))


def on_whole_lines(cuts: list[int], begin: int, end: int) -> list[int]:
    """The places moved to multiples of `LINE`, each away from the nearer end, so that short pieces have the borders."""
    return sorted({-(-c // LINE) * LINE if c - begin <= end - c else c // LINE * LINE for c in cuts})


def _inside(body: tuple[Flat, ...], ranges: Ranges, lanes: frozenset[str]) -> Iterator[tuple[Compare, Ranges]]:
    for s in body:
        match s:
            case Store():
                for c in choices(s) if lanes else ():
                    if not lanes.isdisjoint(free_vars(c)):
                        yield from ((x, ranges) for x in conditions(c, ranges))
            case Loop():
                own = {s.var} if s.kind is LoopKind.VECTORIZED else set[str]()
                yield from _inside(s.body, within(ranges, s), lanes | own)
            case _:
                yield from _inside(s.body, within(ranges, s), lanes)


def conditions(e: Expr, ranges: Ranges) -> Iterator[Compare]:
    """The conditions on which the value of a choice depends."""
    match e:
        case Compare():
            yield e
        case Binary(op="min" | "max", lhs=a, rhs=b):
            yield from (Compare("<", sub(x, y), ZERO) for x in _operands(a) for y in _operands(b))
        case Binary(op="%", lhs=a, rhs=b):
            # Beyond a border of an image that repeats: remainders of more than one period inside are no border.
            period, (low, high) = constant(b), bounds(a, ranges)
            if period is None:
                yield Compare("<", a, ZERO)
                yield Compare("<", sub(a, b), ZERO)
            if period is not None and period > 0 and low is not None and high is not None:
                first, last = low // period, high // period
                if 0 < last - first <= MOST:
                    yield from (Compare("<", sub(a, index(period * k)), ZERO) for k in range(first + 1, last + 1))
        case _:
            pass


def _operands(e: Expr) -> tuple[Expr, ...]:
    """What an extreme of extremes is one of."""
    return (*_operands(e.lhs), *_operands(e.rhs)) if isinstance(e, Binary) and e.op in ("min", "max") else (e,)


@by_identity(4096)
def choices(s: Store) -> tuple[Expr, ...]:
    """The extremes, remainders and comparisons of indices in a store, each once. None if it adds to what it stores: the tile
    of a reduction stays whole, since it is in registers. A step of a scan reads other elements of its buffer."""
    if any((x.buffer, x.indices) == (s.buffer, s.indices) for x in store_loads(s)):
        return ()
    found: dict[Expr, None] = {}
    stack: list[Expr] = [*s.indices, s.value]
    while stack:
        e = stack.pop()
        if not free_vars(e):
            continue
        index_choice = isinstance(e, Binary) and e.op in ("min", "max", "%") and dtype_of(e) == INDEX
        if index_choice or (isinstance(e, Compare) and dtype_of(e.lhs) == INDEX):
            found[e] = None
        stack.extend(children(e))
    return tuple(found)


PIECES = 12
"""The number of copies of a statement that all cuts together may make; further guards stay guards."""


def partition(body: tuple[Flat, ...], ranges: Ranges | None = None, copies: int = 1) -> tuple[Flat, ...]:
    """The same stores in the same order, specialised to the ranges of their loops."""
    known: Ranges = ranges or {}
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                out.append(simplify_store(s, known))
            case If():
                cond = simplify(s.cond, known)
                if isinstance(cond, Const):
                    out.extend(partition(s.body, known, copies) if cond.value else ())
                else:
                    inner = partition(s.body, _narrowed(cond, known), copies)
                    out.extend((If(cond, inner),) if inner else ())
            case Alloc() | Instruction() | Collective() | Shuffle():
                inner = partition(s.body, known, copies)
                out.extend((replace(s, body=inner),) if inner else ())
            case Parallel():
                out.extend(_parallel(s, known, copies))
            case Loop():
                out.extend(_loop(s, known, copies))
    return tuple(out)


def simplify_store(s: Store, ranges: Ranges) -> Store:
    return map_store(s, lambda e: simplify(e, ranges))


def _loop(s: Loop, ranges: Ranges, copies: int) -> tuple[Flat, ...]:
    # The bounds of a piece from `partition_open` may contain loops of one iteration, which have been removed.
    s = replace(s, begin=simplify(s.begin, ranges), end=simplify(s.end, ranges))
    begin, end = constant(s.begin), constant(s.end)
    if begin is None or end is None:
        inner = partition(s.body, within(ranges, s), copies)
        return (replace(s, body=inner),) if inner else ()
    cuts = cut_points(s.var, begin, end, s.body, ranges)
    cuts = sorted({*cuts, *_at_borders(s, begin, end, ranges)})
    edges = [begin, *cuts, end]
    if s.kind is not LoopKind.UNROLLED:  # an unrolled loop is written out in full in any case
        edges = _affordable(edges, PIECES // copies, s.kind)
        copies *= len(edges) - 1
    out: list[Flat] = []
    for low, high in pairwise(edges):
        if high <= low:
            continue
        inner = partition(s.body, {**ranges, s.var: (low, high - 1)}, copies)
        if high - low == 1:
            out.extend(inner)
        elif inner:
            out.append(replace(s, begin=index(low), end=index(high), body=inner))
    return tuple(out)


def _affordable(edges: list[int], most: int, kind: LoopKind) -> list[int]:
    """The edges of at most so many pieces, the first ones. Of a row of vectors always the longest piece, and what is beside
    it: that is where the time goes, however often loops around it are cut."""
    if len(edges) - 1 <= most:
        return edges
    if kind is not LoopKind.VECTORIZED or most >= 3:
        return [*edges[:-1][: max(1, most)], edges[-1]]
    low, high = max(pairwise(edges), key=lambda x: x[1] - x[0])
    return sorted({edges[0], low, high, edges[-1]})


def _parallel(s: Parallel, ranges: Ranges, copies: int) -> tuple[Flat, ...]:
    """A parallel loop stays one loop, and its pieces become branches inside it, so that threads start and join once."""
    sizes = [constant(e) for e in s.extents]
    inner = _branches(list(zip(s.vars, sizes, strict=True)), s.body, within(ranges, s), copies)
    if not inner:
        return ()
    kept = [(v, e) for v, e, n in zip(s.vars, s.extents, sizes, strict=True) if n != 1]
    if not kept:
        return inner
    return (Parallel(tuple(v for v, _ in kept), tuple(e for _, e in kept), inner),)


def _branches(
    loops: list[tuple[str, int | None]], body: tuple[Flat, ...], known: Ranges, copies: int
) -> tuple[Flat, ...]:
    if not loops:
        return partition(body, known, copies)
    (var, n), *rest = loops
    cuts = cut_points(var, 0, n, body, known)[: max(0, PIECES // copies - 1)] if n is not None else []
    if n is None or not cuts:
        return _branches(rest, body, known, copies)
    out: list[Flat] = []
    edges = [0, *cuts, n]
    for low, high in pairwise(edges):
        inner = _branches(rest, body, {**known, var: (low, high - 1)}, copies * (len(edges) - 1))
        if inner:
            out.append(If(simplify(_between(var, low, high), known), inner))
    return tuple(out)


def _between(var: str, low: int, high: int) -> Expr:
    return Logic("and", Compare(">=", Var(var), index(low)), Compare("<", Var(var), index(high)))


def _narrowed(cond: Expr, ranges: Ranges) -> Ranges:
    """The ranges under the condition `cond`, for variables that it compares with numbers."""
    out = dict(ranges)
    for c in conjuncts(cond):
        if not isinstance(c, Compare) or dtype_of(c.lhs) != INDEX:
            continue
        form = linear(c.lhs, Context(ranges)).minus(linear(c.rhs, Context(ranges)))
        if len(form.terms) != 1:
            continue
        ((atom, factor),) = form.terms.items()
        if not isinstance(atom, str) or factor not in (1, -1):
            continue
        limit = -form.constant * factor  # c is `atom op limit`, with the comparison reversed if factor is -1
        op = c.op if factor == 1 else {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(c.op, c.op)
        low, high = out.get(atom, (None, None))
        if op in ("<", "<=", "=="):
            top = limit - 1 if op == "<" else limit
            high = top if high is None else min(high, top)
        if op in (">", ">=", "=="):
            least = limit + 1 if op == ">" else limit
            low = least if low is None else max(low, least)
        out[atom] = (low, high)
    return out


def cut_points(var: str, begin: int, end: int, body: tuple[Flat, ...], ranges: Ranges) -> list[int]:
    """The values in begin+1 .. end-1 at which some guard of the body starts or stops to hold always, ascending."""
    if var not in _guarding(body):
        return []
    found: set[int] = set()
    for cond, inner in _conditions(body, {**ranges, var: (begin, end - 1)}):
        if var not in free_vars(cond):
            continue
        for c in conjuncts(cond):
            if isinstance(c, Compare) and dtype_of(c.lhs) == INDEX:
                found.update(_cuts(c, var, inner))
    return sorted(c for c in found if begin < c < end)


def _at_borders(s: Loop, begin: int, end: int, ranges: Ranges) -> list[int]:
    """The values in begin+1 .. end-1 at which a choice in a vector starts or stops to be decided; none if there are many.

    An unrolled loop is cut at other choices, too: rows of an image that are certain to be inside are read at known distances
    from each other then, and what two iterations read is loaded once.
    """
    found: list[int] = []
    vectors, written_out = s.kind is LoopKind.VECTORIZED, s.kind is LoopKind.UNROLLED
    for cond, inner in undecided_conditions(s, ranges):
        found += _cuts(cond, s.var, inner) or _around(cond, s.var, (begin, end), inner, LINE if vectors else 1)
        if written_out and cond.op == "<":  # an extreme of equal operands is decided, too
            found += _cuts(Compare("<=", cond.lhs, cond.rhs), s.var, inner)
    if vectors:
        found = on_whole_lines([c for c in found if begin < c < end], begin, end)
    inside = sorted({c for c in found if begin < c < end})
    return inside if len(inside) <= MOST or written_out else []


@by_identity(256)
def _guarding(body: tuple[Flat, ...]) -> frozenset[str]:
    """The names in the guards of a body."""
    found = frozenset[str]()
    for s in body:
        if not isinstance(s, Store):
            found |= _guarding(s.body)
            if isinstance(s, If):
                found |= free_vars(s.cond)
    return found


def _around(cond: Compare, var: str, values: tuple[int, int], ranges: Ranges, step: int) -> list[int]:
    """The values between which a condition that is not linear is decided, if those are all but the first and last `step`."""
    begin, end = values[0] + step, values[1] - step
    known = begin < end and prove(cond, {**ranges, var: (begin, end - 1)}) is not None
    return [begin, end] if known else []


def _cuts(c: Compare, var: str, ranges: Ranges) -> list[int]:
    """The values of a variable at which a condition that is linear in it starts or stops to hold always."""
    return list(_changes(c, var, ranges))


def _changes(c: Compare, var: str, ranges: Ranges) -> Iterator[int]:
    context = Context(ranges)
    form = linear(c.lhs, context).minus(linear(c.rhs, context))
    factor = form.terms.get(var)
    if factor is None or any(not isinstance(a, str) and (var in free_vars(a) or dims_in(a)) for a in form.terms):
        return  # guards over open dimensions are cut by `partition_open`
    low, high = context.range_of_terms({a: f for a, f in form.terms.items() if a != var}, form.constant)
    # The condition is factor*var + r op 0 with r in [low, high]. It changes where factor*var passes -r: for
    # `<` and `>=` at factor*var >= -r, for `<=` and `>` one later.
    strict = c.op in ("<=", ">")
    for r in (low, high):
        if r is None:
            continue
        if c.op in ("==", "!="):
            if low == high and r % factor == 0:
                yield -r // factor
                yield -r // factor + 1
        elif factor > 0:
            yield -r // factor + 1 if strict else -(r // factor)
        else:
            yield r // -factor + 1 if not strict else -(-r // -factor)


def _conditions(body: tuple[Flat, ...], ranges: Ranges) -> Iterator[tuple[Expr, Ranges]]:
    """Guards with the ranges of all loops around them."""
    for s in body:
        match s:
            case Store():
                pass
            case If():
                yield s.cond, ranges
                yield from _conditions(s.body, ranges)
            case _:
                yield from _conditions(s.body, within(ranges, s))
