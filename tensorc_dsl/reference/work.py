"""The work of a program, for rates: operations on values, and bytes of its parameters; and the sizes at which a task with
open dimensions is checked and timed, which it weighs.

Both sets of sizes range from the smallest size to the *top*: the largest size of every dimension. While checking costs
more than `COST`, the dimension with the widest range is halved. Checked are both ends and three primes between them, at equal
steps of the logarithm; several dimensions take them in turns. Timed are the sizes that the task gives, `M=1..4096 at
[1, 16, 128]`; else three, at a third, two thirds and the end of the way to the top, or as many as the task gives for
another dimension. The task's time is the mean of the times, weighted by how often sizes occur, or by the inverse of the work
where that is not said: the mean work by the mean time, weighted in the same way, is then the harmonic mean of the rates. What
a search makes small there is another mean, in which the smallest size is not all that counts (`tuning.search.options`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Load,
    Select,
    children,
    constant,
    dims_in,
    dtype_of,
    factors_of,
    loads,
)
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.program import Block, IterKind, Program, Store, blocks
from tensorc_dsl.ir.reductions import Fold, fold_of
from tensorc_dsl.ir.sizes import Sizes, bind, broken_by, distance, fitting, nearest, without_conditions
from tensorc_dsl.reference.evaluate import matches, shape_of
from tensorc_dsl.reference.values import Box


@frozen
class Work:
    """A type of operations, as far as instructions do them at different rates.

    The operations are on `values` of a type. If all operands are converted from narrower types, which instructions may take
    directly, `factors` is the widest of these: in sums of products of floats, and for all operations on integers. `sums` are
    integers of which fewer than half of the operations multiply.
    """

    values: DType
    factors: DType | None = None
    sums: bool = False


def flops(program: Program) -> int:
    """The number of operations of an unscheduled program: each `+ - * / % min max` and each maths function on values is 1.

    Index arithmetic, comparisons and conversions are free; integers count like floats. A matrix product is 2*M*N*K. Of a
    conditional, the branch with more operations counts. A sum over matches, such as a histogram, adds each term to one
    element.
    Raises ValueError if a dimension is open.
    """
    return work(program).total()


def work(program: Program) -> Counter[Work]:
    """The operations of an unscheduled program by type, counted as in `flops`. Raises ValueError if a dimension is open."""
    total: Counter[Work] = Counter()
    for b in blocks(program):
        sizes = _sizes(b)
        for s in b.body:
            times = prod(n for axis, n in enumerate(sizes) if axis not in _matched(b, s, sizes))
            for kind, count in _of_store(s).items():
                total[kind] += times * count
    return total


def _sizes(b: Block) -> tuple[int, ...]:
    extents = [constant(it.extent) for it in b.iters]
    if any(n is None for n in extents):
        raise ValueError(f"an extent of block {b.name} is open")
    return tuple(n for n in extents if n is not None)


def _matched(b: Block, s: Store, sizes: tuple[int, ...]) -> set[int]:
    """The axes along which data choose the one element that a term is added to."""
    fold = fold_of(s)
    if not b.is_reduction or not isinstance(fold, Fold):
        return set()
    box = Box(tuple(it.name for it in b.iters), (0,) * len(sizes), sizes)
    spatial = [n for n, it in enumerate(b.iters) if it.kind is IterKind.SPATIAL]
    found = matches(fold, box, spatial)
    return set() if found is None else {axis for axis, _ in found.places}


def _of_store(s: Store) -> Counter[Work]:
    found = operations(s.value)
    out: Counter[Work] = Counter()
    for t in {t for t, _ in found}:
        products, total = found[t, True], found[t, True] + found[t, False]
        factors = _converted(s, t)
        out[Work(t, factors, t.is_integer and factors is None and 2 * products < total)] += total
    return out


def _converted(s: Store, t: DType) -> DType | None:
    """The widest type that all operands of the operations in `t` are converted from; None if one is not converted."""
    fold = fold_of(s)
    value = fold.value if isinstance(fold, Fold) else s.value
    if t.is_float and not (isinstance(fold, Fold) and fold.op == "+" and _are_converted(factors_of(value), t)):
        return None
    types = _read(value)
    narrow = types and all(u.kind != "bool" and u.is_float == t.is_float and u.bits < t.bits for u in types)
    return max(types, key=lambda u: (u.bits, u.name)) if narrow else None


def _are_converted(factors: Sequence[Expr], t: DType) -> bool:
    return len(factors) == 2 and all(
        isinstance(f, Cast) and isinstance(f.operand, Load) and f.dtype == t for f in factors
    )


def _read(e: Expr) -> set[DType]:
    """The types of the elements that are computed with; positions are none."""
    return {dtype_of(e)} if isinstance(e, Load) else {t for c in children(e) for t in _read(c)}


def operations(e: Expr) -> Counter[tuple[DType, bool]]:
    """By the type, and whether values are multiplied with each other."""
    if isinstance(e, Load):
        return Counter()
    parts = [operations(c) for c in children(e)]
    if isinstance(e, Select):
        return parts[0] + max(parts[1:], key=lambda c: c.total())
    own = isinstance(e, Call) or (isinstance(e, Binary) and dtype_of(e) != INDEX)
    return sum(parts, Counter({(dtype_of(e), _multiplies(e)): 1} if own else {}))


def _multiplies(e: Expr) -> bool:
    """A product with a number may be shifts and sums."""
    return isinstance(e, Binary) and e.op == "*" and not any(isinstance(c, Const) for c in (e.lhs, e.rhs))


def bytes_moved(program: Program) -> int:
    """The bytes of all parameters, each counted once."""
    return sum(p.dtype.bytes * prod(shape_of(p)) for p in program.params)


def bytes_needed(program: Program) -> int:
    """The bytes that every kernel has to move: all outputs, and of each input the elements that some access can read, once.

    If data choose the elements, such as rows of a table, an input counts with at most the number of accesses to it. Raises
    ValueError if a dimension is open.
    """
    reads: Counter[str] = Counter()
    for b in blocks(resolved(program)):
        for s in b.body:
            for e in (s.value, *s.indices):
                for name, times in Counter(x.buffer for x in loads(e)).items():
                    reads[name] += prod(_sizes(b)) * times
    inputs = sum(p.dtype.bytes * min(prod(shape_of(p)), reads[p.name]) for p in program.inputs)
    return inputs + sum(p.dtype.bytes * prod(shape_of(p)) for p in program.outputs)


# The sizes at which a task with open dimensions is checked and timed.


COST = 3 * 10**9
BYTE = 64
"""The cost of a byte in operations, in the cost of checking one size. The reference of a matrix product is fast, but one
element of it takes 0.3 µs: 2^27 elements took half a minute and 5 GB."""

UNLIMITED = 1024
"""The largest size that is assumed for a dimension without one (or four times its smallest size, if that is more)."""

CHECKED, TIMED = 5, 3


@frozen
class Sizing:
    """The sizes at which a program is checked and timed. `weights` belong to the `timed` sizes and add up to 1."""

    checked: tuple[Sizes, ...]
    timed: tuple[Sizes, ...]
    weights: tuple[float, ...]


def sizing(program: Program) -> Sizing:
    """The sizes for an unscheduled program; a single empty set for checks and for times if no dimension is open."""
    if not program.dims:
        return Sizing(({},), ({},), (1.0,))
    top = _top(program)
    points = {d.name: _points(d, top[d.name]) for d in program.dims}
    checked = [{n: p[(k + turn) % CHECKED] for turn, (n, p) in enumerate(points.items())} for k in range(CHECKED)]
    if longest := _longest_strides(program):
        checked.append({**{d.name: d.low for d in program.dims}, **longest})
    count = max(len(d.at) for d in program.dims) or TIMED
    timed = [
        {d.name: d.at[k % len(d.at)] if d.at else _along(d.low, top[d.name], (k + 1) / count) for d in program.dims}
        for k in range(count)
    ]
    timed, checked = (_distinct(program, some) for some in (timed, checked))
    found = [_occurrence(program, x) or 1 / work_at(program, x) for x in timed]
    return Sizing(checked, timed, tuple(w / sum(found) for w in found))


def are_weighted(program: Program) -> bool:
    """Whether some dimension says how often its sizes occur. Otherwise all sizes count alike."""
    return any(d.weights for d in program.dims)


def _occurrence(program: Program, sizes: Sizes) -> float | None:
    """How often these sizes occur, as far as the dimensions say it; None if none does."""
    said = [d for d in program.dims if d.weights and sizes[d.name] in d.at]
    return prod(d.weights[d.at.index(sizes[d.name])] for d in said) if said else None


NEAREST = 0.5
"""The share of the weight of a timed size that it keeps where other sizes beside it are weighted, too."""


def spread(program: Program, found: Sizing, points: Sequence[Sizes]) -> tuple[float, ...]:
    """How often sizes occur, the timed ones among them: each that is not timed has a part of what the nearest one has, by
    ratios, that is. Where no occurrences are said, all timed sizes have the same."""
    said = are_weighted(program)
    near = [min(range(len(found.timed)), key=lambda k: distance(found.timed[k], x)) for x in points]
    cells = Counter(near)
    out: list[float] = []
    for k, x in zip(near, points, strict=True):
        own, others = x == found.timed[k], cells[k] - 1
        part = 1.0 if not others else NEAREST if own else (1.0 - NEAREST) / others
        out.append(part * (found.weights[k] if said else 1.0 / len(found.timed)))
    return tuple(out)


def _longest_strides(program: Program) -> Sizes:
    """The sizes that are told by strides alone, at their largest."""
    extents = {d for b in program.params for e in b.shape for d in dims_in(e)}
    return {d.name: d.high for d in program.dims if d not in extents and d.high is not None}


def _distinct(program: Program, every: Sequence[Sizes]) -> tuple[Sizes, ...]:
    """The sizes without repetitions, or near ones that occur, at which elements of outputs are apart."""
    near = [sizes for x in every if (sizes := nearest(program.dims, x)) is not None]
    fit = [sizes for x in near if (sizes := fitting(program, x)) is not None and broken_by(program.dims, sizes) is None]
    return tuple(x for n, x in enumerate(fit) if x not in fit[:n])


def mean_flops(program: Program) -> int:
    """The operations of one run; for an open program the mean over the timed sizes, weighted like the times."""
    found = sizing(program)
    return round(sum(w * flops(bind(program, x)) for w, x in zip(found.weights, found.timed, strict=True)))


def describe(sizes: Sizes) -> str:
    """Sizes as text: `M = 8, N = 16`."""
    return ", ".join(f"{name} = {n}" for name, n in sizes.items())


def describe_all(every: Sequence[Sizes]) -> str:
    """Several sizes as text: `M = 1, 16, 128`; of several dimensions `M = 1, N = 8; M = 16, N = 64`."""
    if every and len(every[0]) == 1:
        (name,) = every[0]
        return f"{name} = {', '.join(str(sizes[name]) for sizes in every)}"
    return "; ".join(map(describe, every))


def work_at(program: Program, sizes: Sizes) -> int:
    """The operations and the bytes of a call with these sizes together, at least 1."""
    bound = bind(program, sizes)
    return max(1, flops(bound) + bytes_moved(bound))


def _cost(program: Program, sizes: Sizes) -> int:
    near = nearest(program.dims, sizes)
    bound = bind(without_conditions(program), sizes) if near is None else bind(program, near)
    return flops(bound) + BYTE * bytes_moved(bound)


def _top(program: Program) -> dict[str, int]:
    sizes = {d.name: max(UNLIMITED, 4 * d.low) if d.high is None else d.high for d in program.dims}
    low = {d.name: max(d.low, 1) for d in program.dims}
    while _cost(program, sizes) > COST and any(sizes[n] > low[n] for n in sizes):
        widest = max(sizes, key=lambda n: sizes[n] / low[n])
        sizes[widest] = max(low[widest], sizes[widest] // 2)
    return sizes


def _points(d: Dim, top: int) -> list[int]:
    """Both ends of the range, and primes between them if there are any."""
    between = [_along(d.low, top, k / (CHECKED - 1)) for k in range(1, CHECKED - 1)]
    return [d.low, *(_prime_near(n, d.low, top) for n in between), top]


def _along(low: int, top: int, way: float) -> int:
    """The size at the fraction `way` between `low` and `top`, on a logarithmic scale."""
    start = max(low, 1)
    return min(top, max(low, round(start * (top / start) ** way)))


def _prime_near(n: int, low: int, top: int) -> int:
    """The least prime from `n` on, or the largest one below; `n` itself if the range has no prime."""
    candidates = (*range(n, min(top, 2 * n) + 1), *range(n - 1, low - 1, -1))
    return next((c for c in candidates if _is_prime(c)), n)


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))
