"""Chooses the sizes at which a task with open dimensions is checked and timed, and weighs the times into one.

Both sets range from the smallest size to the *top*: the largest size of every dimension. While checking costs more than
`COST`, the dimension with the widest range is halved. Checked are both ends and three primes between them, at equal
steps of the logarithm; several dimensions take them in turns. Timed are the sizes that the task gives, `M=1..4096 at
[1, 16, 128]`; else three, at a third, two thirds and the end of the way to the top, or as many as the task gives for
another dimension. The task's time is the mean of the times, weighted by the inverse of the work, so every size counts
alike: the mean work by the mean time, weighted in the same way, is the harmonic mean of the rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.ir.bind import Sizes, bind
from tensorc_dsl.ir.expr import Dim, dims_in
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.strides import fitting
from tensorc_dsl.reference.count import bytes_moved, flops

COST = 3 * 10**9
BYTE = 64
"""The cost of a byte in operations, in the cost of checking one size. The reference of a matrix product is fast, but one
element of it takes 0.3 µs: 2^27 elements took half a minute and 5 GB."""

UNLIMITED = 1024
"""The largest size that is assumed for a dimension without one (or four times its smallest size, if that is more)."""

CHECKED, TIMED = 5, 3


@dataclass(frozen=True, slots=True)
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
        {d.name: d.at[k] if d.at else _along(d.low, top[d.name], (k + 1) / count) for d in program.dims}
        for k in range(count)
    ]
    timed, checked = (_distinct(program, some) for some in (timed, checked))
    inverse = [1 / _work(program, x) for x in timed]
    return Sizing(
        checked,
        timed,
        tuple(w / sum(inverse) for w in inverse),
    )


def _longest_strides(program: Program) -> Sizes:
    """The sizes that are told by strides alone, at their largest."""
    extents = {d for b in program.params for e in b.shape for d in dims_in(e)}
    return {d.name: d.high for d in program.dims if d not in extents and d.high is not None}


def _distinct(program: Program, every: Sequence[Sizes]) -> tuple[Sizes, ...]:
    """The sizes without repetitions, at which elements of outputs are apart."""
    fit = [sizes for x in every if (sizes := fitting(program, x)) is not None]
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


def _work(program: Program, sizes: Sizes) -> int:
    bound = bind(program, sizes)
    return max(1, flops(bound) + bytes_moved(bound))


def _cost(program: Program, sizes: Sizes) -> int:
    bound = bind(program, sizes)
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
