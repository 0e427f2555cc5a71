"""The axes of a kernel: how many blocks and threads it has, and what each bound loop is in a thread.

Threads are counted by one variable. The loops of a nest that are bound to `thread.x`, `thread.y` and `thread.z` are its
digits, as are those bound to `warpgroup`, `warp` and `lane`, with 32 lanes a warp and 4 warps a warpgroup.
A fixed number of blocks takes the iterations of a persistent loop in turn, each those that are so many apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from math import prod

from tensorc_dsl.backend.cuda.lower.kernels import BLOCK_AXES, CLUSTER, THREAD, block_extents
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Compare,
    Expr,
    Load,
    Var,
    add,
    constant,
    floordiv,
    floormod,
    index,
    mul,
    rewrite_expr,
    sub,
)
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import PERSISTENT, Axis, For, LoopKind, Stmt, Store, walk
from tensorc_dsl.ir.warp import LANE, WARP, is_tma, is_tma_store, lane_of
from tensorc_dsl.lower.flat import Collective, Flat, Loop, LowerError, buffers_of, inside, within
from tensorc_dsl.lower.trim_bounds import Known, ended
from tensorc_dsl.proof.sets.instructions import Cells
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import simplify

_DIMENSIONS = (Axis.THREAD_X, Axis.THREAD_Y, Axis.THREAD_Z)
_GROUPS = (Axis.LANE, Axis.WARP, Axis.WARPGROUP)
"""The axes that count threads, the fastest first: by dimensions, or by groups."""

_LANES, _WARPS = 32, 4
"""The lanes of a warp, and the warps of a warpgroup."""


@frozen
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
        return mul(x, index(self.cluster)), y, z

    @property
    def cluster(self) -> int:
        """The blocks of a cluster."""
        return constant(self.sizes.get(Axis.CLUSTER_X, ONE)) or 1

    @property
    def extents(self) -> dict[str, Expr]:
        """How many values each variable has that counts blocks."""
        return block_extents(self.grid, self.cluster)

    @property
    def of_grid(self) -> tuple[str, ...]:
        """The variables that say which iterations of loops over blocks run."""
        return (CLUSTER, *BLOCK_AXES, *map(turn_of, self.turns))

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
    every = [s for _, s in walk((kernel,)) if isinstance(s, For) and s.axis is not None]
    cores //= max((constant(s.extent) or 1 for s in every if s.axis is Axis.CLUSTER_X), default=1)
    for s in every:
        if s.axis is not None:
            loops[s.var] = s.axis
            sizes[s.axis] = s.extent
            if (PERSISTENT, True) in s.annotations and 0 < cores < (constant(s.extent) or cores + 1):
                turns[s.var] = cores
    return Axes(loops, sizes, _threads(sizes), turns)


def _threads(sizes: Mapping[Axis, Expr]) -> int:
    """The threads of a block: as many as the larger of two ways to count them has."""
    used = (f for f in (_DIMENSIONS, _GROUPS) if any(axis in sizes for axis in f))
    return max((prod(n for _, n in _digits(sizes, f)) for f in used), default=1)


# Ends loops in which the threads of a block meet where the conditions of all their work do, for all threads alike.
#
# What such a loop copies to shared memory for an iteration is stored in a buffer of the iteration, and is no work by
# itself.


def with_uniform_ends(body: tuple[Flat, ...], known: Known, axes: Axes) -> tuple[Flat, ...]:
    """The same results, with loops around bound ones that end where no thread of a block has work left."""
    return tuple(_ended(s, known, axes, {}, {}) for s in body)


def loops_around(body: tuple[Flat, ...], names: Collection[str]) -> dict[str, frozenset[str]]:
    """For each of the buffers the loops around all accesses to it."""
    out: dict[str, frozenset[str]] = {}

    def visit(body: tuple[Flat, ...], around: frozenset[str]) -> None:
        for s in body:
            if isinstance(s, Store):
                for name in buffers_of(s).intersection(names):
                    out[name] = out.get(name, around) & around
            else:
                visit(s.body, around | {s.var} if isinstance(s, Loop) else around)

    visit(body, frozenset())
    return out


def _ended(s: Flat, known: Known, axes: Axes, ranges: Ranges, threads: Ranges) -> Flat:
    if isinstance(s, Store):
        return s
    if isinstance(s, Loop):
        if _is_shared(s, axes):
            s = ended(s, known, ranges, threads, always=_meets(s, axes))
        ranges = within(ranges, s)
        threads = within(threads, s) if axes.is_thread(s.var) else threads
    return replace(s, body=tuple(_ended(x, known, axes, ranges, threads) for x in s.body))


def _meets(s: Loop, axes: Axes) -> bool:
    """Whether the threads of a block may have to wait in a loop, for each other or for loads: they run several statements of
    it, or one, and TMA loads what that takes."""
    return sum(_by_threads(x, axes) for x in s.body) > 1


def _by_threads(s: Flat, axes: Axes) -> int:
    """The statements of `s` that the threads of a block share or wait for, as far as there are two."""
    if isinstance(s, Store):
        return 0
    if isinstance(s, Collective) and is_tma(s.intrinsic) and not is_tma_store(s.intrinsic):
        return 1
    if isinstance(s, Loop) and axes.is_thread(s.var):
        return 1
    return min(2, sum(_by_threads(x, axes) for x in s.body))


def _is_shared(s: Loop, axes: Axes) -> bool:
    """Whether the threads of a block run a loop together."""
    if s.var in axes.loops or s.kind is not LoopKind.SERIAL or s.scattered or constant(s.begin) != 0:
        return False
    return any(isinstance(x, Loop) and axes.is_thread(x.var) for x in inside(s.body))


# Statements that are no instructions, and access fragments: each lane takes the elements that it has in its registers.
#
# A loop that is bound to lanes says which iterations a lane runs. Such a statement may access an element of a fragment if
# the lane is proved to have it, by the layout on which the instructions of the fragment agree. Then the element is a number
# of that lane's. So what comes behind a product, as a bias and an activation, is computed before anything is stored.


def by_lanes(body: tuple[Flat, ...], axes: Axes, fragments: Mapping[str, Cells | None]) -> tuple[Flat, ...]:
    """The statements with accesses to fragments outside of instructions as those of a lane to its own elements.

    Raises LowerError if that is not proved. A fragment without a grid of tiles is None.
    """
    return _Lanes(axes, fragments).run(body, {}, {}) if fragments else body


@frozen
class _Lanes:
    axes: Axes
    fragments: Mapping[str, Cells | None]

    def run(self, body: tuple[Flat, ...], ranges: Ranges, lanes: Mapping[str, str]) -> tuple[Flat, ...]:
        """The statements inside the loops of `ranges`, of which `lanes` has those that count lanes and warps."""
        out: list[Flat] = []
        for s in body:
            if isinstance(s, Collective):
                out.append(s)
            elif isinstance(s, Store):
                out.append(s if buffers_of(s).isdisjoint(self.fragments) else self._store(s, ranges, lanes))
            elif isinstance(s, Loop):
                axis = self.axes.loops.get(s.var)
                inner = {**lanes, axis.value: s.var} if axis is Axis.LANE or axis is Axis.WARP else lanes
                out.append(replace(s, body=self.run(s.body, within(ranges, s), inner)))
            else:
                out.append(replace(s, body=self.run(s.body, ranges, lanes)))
        return tuple(out)

    def _store(self, s: Store, ranges: Ranges, lanes: Mapping[str, str]) -> Store:
        def place(buffer: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            grid = self.fragments[buffer]
            counted = [] if grid is None else [name for name in (WARP, LANE) if name in dict(grid.layout.places)]
            if grid is None or any(name not in lanes for name in counted):
                raise LowerError(
                    f"`{format_store(s)}` is no instruction, and `{buffer}` is in a fragment, which the lanes of a warp have;"
                    ' use `tensorize`, bind loops to "lane" as its layout says, or store it in "local"'
                )
            first, at = grid.place(indices, ranges)
            for name in counted:
                if simplify(sub(at[name], Var(lanes[name])), ranges) != ZERO:
                    raise LowerError(
                        f"`{format_store(s)}` takes an element of `{buffer}`, which is in a fragment, where {name}"
                        f" `{format_expr(at[name])}` has it, and {name} `{lanes[name]}` runs it; divide the loops as the"
                        f' layout "{grid.layout.name}" does'
                    )
            lane: Expr = Var(lanes[LANE])
            return (*first, lane_of(Var(lanes[WARP]), lane) if WARP in counted else lane, at["reg"])

        def load(e: Expr) -> Expr:
            if isinstance(e, Load) and e.buffer in self.fragments:
                return Load(e.buffer, place(e.buffer, e.indices), e.dtype)
            return e

        indices = place(s.buffer, s.indices) if s.buffer in self.fragments else s.indices
        return replace(s, indices=indices, value=rewrite_expr(s.value, load))
