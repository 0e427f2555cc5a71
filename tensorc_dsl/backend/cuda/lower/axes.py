"""The axes of a kernel: how many blocks and threads it has, and what each bound loop is in a thread.

Threads are counted by one variable. The loops of a nest that are bound to `thread.x`, `thread.y` and `thread.z` are its
digits, as are those bound to `warpgroup`, `warp` and `lane`, with 32 lanes a warp and 4 warps a warpgroup.
A fixed number of blocks takes the iterations of a persistent loop in turn, each those that are so many apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, THREAD
from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Expr, Var, add, constant, floordiv, floormod, index, mul
from tensorc_dsl.ir.program import PERSISTENT, Axis, For, Stmt, walk
from tensorc_dsl.lower.flat import LowerError

_DIMENSIONS = (Axis.THREAD_X, Axis.THREAD_Y, Axis.THREAD_Z)
_GROUPS = (Axis.LANE, Axis.WARP, Axis.WARPGROUP)
"""The axes that count threads, the fastest first: by dimensions, or by groups."""

_LANES, _WARPS = 32, 4
"""The lanes of a warp, and the warps of a warpgroup."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The bound loops of a kernel by variable, the size of each axis, and the threads of a block. `turns` has the loops over
    blocks whose iterations a number of blocks take in turn, with this number."""

    loops: Mapping[str, Axis]
    sizes: Mapping[Axis, Expr]
    threads: int
    turns: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def grid(self) -> tuple[Expr, Expr, Expr]:
        """The blocks along x, y and z."""
        few = {self.loops[var].value: index(count) for var, count in self.turns.items()}
        x, y, z = (few.get(name, self.sizes.get(Axis(name), ONE)) for name in BLOCK_AXES)
        return x, y, z

    @property
    def of_grid(self) -> tuple[str, ...]:
        """The variables that say which iterations of loops over blocks run."""
        return (*BLOCK_AXES, *map(turn_of, self.turns))

    def value(self, var: str) -> Expr:
        """The value of a bound loop in a thread."""
        axis = self.loops[var]
        if var in self.turns:
            return add(mul(Var(turn_of(var)), index(self.turns[var])), Var(axis.value))
        return self._digit(axis) if axis.counts_threads else Var(axis.value)

    def is_thread(self, var: str) -> bool:
        """Whether a loop counts threads."""
        return var in self.loops and self.loops[var].counts_threads

    def is_block(self, var: str) -> bool:
        """Whether a loop counts blocks."""
        return var in self.loops and not self.loops[var].counts_threads

    def with_lanes(self, lanes: Mapping[str, Axis]) -> Axes:
        """The axes with loops over the lanes of a warp, if there are any."""
        if not lanes:
            return self
        sizes = {**self.sizes, Axis.LANE: index(_LANES)}
        if Axis.WARP in lanes.values():
            if Axis.WARPGROUP not in sizes and constant(sizes.get(Axis.WARP, index(_WARPS))) != _WARPS:
                raise LowerError(
                    f'the kernel has an instruction of a warpgroup, and loops bound to "warp" that do not count {_WARPS};'
                    ' bind what counts warpgroups to "warpgroup"'
                )
            sizes[Axis.WARP] = index(_WARPS)
        return Axes({**self.loops, **lanes}, sizes, _threads(sizes), self.turns)

    def conditions(self, bound: Sequence[str]) -> tuple[Compare, ...]:
        """The conditions under which a thread runs a statement inside these loops: for an axis of the kernel that none is
        bound to, its first thread runs it; beyond the iterations of a loop none does."""
        axes = {self.loops[v] for v in bound if self.is_thread(v)}
        if not axes:
            return () if self.threads == 1 else (Compare("==", Var(THREAD), ZERO),)
        family = _DIMENSIONS if axes & set(_DIMENSIONS) else _GROUPS
        out: list[Compare] = []
        total = prod(size for _, size in _digits(self.sizes, family))
        for axis, size in _digits(self.sizes, family):
            used = constant(self.sizes[axis]) if axis in axes else 1
            assert used is not None  # a block has a known size
            if used == 1 < size:
                out.append(Compare("==", self._digit(axis), ZERO))
            elif used < size:
                out.append(Compare("<", self._digit(axis), index(used)))
        if total < self.threads:
            out.append(Compare("<", Var(THREAD), index(total)))
        return tuple(out)

    def _digit(self, axis: Axis) -> Expr:
        below, family = 1, _digits(self.sizes, _DIMENSIONS if axis in _DIMENSIONS else _GROUPS)
        for n, (x, size) in enumerate(family):
            if x is axis:
                above = floordiv(Var(THREAD), index(below)) if below > 1 else Var(THREAD)
                last = n == len(family) - 1 and below * size == self.threads
                return ZERO if size == 1 else above if last else floormod(above, index(size))
            below *= size
        raise AssertionError(f"the kernel has no axis {axis}")


def _digits(sizes: Mapping[Axis, Expr], family: Sequence[Axis]) -> list[tuple[Axis, int]]:
    """The axes of a family that a kernel has, with their sizes, the fastest first. A block has a thread even along an axis
    whose loops have no iterations: it runs what is outside of these."""
    out: list[tuple[Axis, int]] = []
    for axis in family:
        n = constant(sizes[axis]) if axis in sizes else None
        if axis is Axis.LANE:
            n = _LANES
        elif axis is Axis.WARP and Axis.WARPGROUP in sizes:
            n = _WARPS
        if n is not None:
            out.append((axis, max(n, 1)))
    return out


def turn_of(var: str) -> str:
    """The variable that counts the iterations of a persistent loop that one block takes."""
    return f"{var}.turn"


def axes_of(kernel: Stmt, cores: int) -> Axes:
    """The axes of a statement at the top of a program, for a GPU of so many multiprocessors, or 0 if that is not known.
    Raises LowerError if no kernel can have them."""
    loops: dict[str, Axis] = {}
    sizes: dict[Axis, Expr] = {}
    turns: dict[str, int] = {}
    for _, s in walk((kernel,)):
        if isinstance(s, For) and s.axis is not None:
            loops[s.var] = s.axis
            sizes[s.axis] = s.extent
            if (PERSISTENT, True) in s.annotations and 0 < cores < (constant(s.extent) or cores + 1):
                turns[s.var] = cores
    return Axes(loops, sizes, _threads(sizes), turns)


def _threads(sizes: Mapping[Axis, Expr]) -> int:
    """The threads of a block: as many as the larger of two ways to count them has."""
    used = (f for f in (_DIMENSIONS, _GROUPS) if any(axis in sizes for axis in f))
    return max((prod(n for _, n in _digits(sizes, f)) for f in used), default=1)
