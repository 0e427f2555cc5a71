"""Proves that instructions which share a fragment agree on where its elements are: operands such as `in "mma.a"`.

A fragment is distributed over the lanes of a warp. The place of an element depends on the instruction: on the layout that
it declares for the operand, and on the tile of the buffer that the operand is. So each instruction on a buffer gives a
relation from elements to places: the first element of the tile, and the place by the layout. The union of these relations
must be an injective function: then an element that one instruction writes is, at that place, the element that another reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations_with_replacement

from tensorc_dsl.ir.expr import (
    ZERO,
    Expr,
    Var,
    add,
    constant,
    floordiv,
    floormod,
    free_vars,
    index,
    mul,
    sub,
    substitute,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import For, Intrinsic, Layout, Program, fresh
from tensorc_dsl.ir.warp import is_fragment, is_tma
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.accesses import home
from tensorc_dsl.proof.sets.instructions import Match, Mismatch, Tile, no_tensor_map
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.sets import NotAffine, loop_conditions, mapping
from tensorc_dsl.proof.sets.simplify import ranges_below, simplify

_MEMORY = frozenset(("global", "shared", "shared.dyn", "local"))
"""Scopes in memory, whose elements have addresses."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The nest of `loop`, which is one instruction, inside the loops `around`."""

    around: tuple[For, ...]
    loop: str
    intrinsic: Intrinsic
    match: Match


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two instructions (or one instruction twice) that do not agree on a buffer, and the reason."""

    buffer: str
    one: Unit
    other: Unit
    why: str


def misplaced(program: Program, intrinsic: Intrinsic, match: Match) -> Mismatch | None:
    """A mismatch unless each operand is where the instruction requires it: in a fragment of that scope, in memory, or, if a
    tile is copied, in an array that has it."""
    for tile in match.tiles:
        scope, wanted = program.buffer(tile.buffer).scope, tile.operand.scope
        wanted = wanted if is_fragment(wanted) else wanted.partition(".")[0]
        shared = wanted == "shared" and scope == "shared.dyn"
        if scope != wanted and not shared and not (wanted == "global" and scope in _MEMORY):
            where = "in memory" if wanted == "global" else f'in "{wanted}"'
            why = f'`{tile.operand.name}` of {intrinsic.name} is {where}; `{tile.buffer}` is in "{scope}"'
            return Mismatch(why, f"put it {where} (`set_scope`), or a copy (`read_at`, `cache_read`, `cache_write`)")
    return no_tensor_map(program, intrinsic, match) if is_tma(intrinsic) else None


def disagreement(program: Program, units: Iterable[Unit]) -> Disagreement | None:
    """The disagreement on the first buffer for which agreement of all instructions is not proved; None if all agree."""
    for name, uses in _uses(units).items():
        own = tuple(x.var for x in home(program, program.buffer(name)) or ())
        grids = {_grid(x) for _, x in uses}
        if len(grids) == 1 and None not in grids:
            # All tiles are cells of one grid, and all cells have the same layout.
            own, uses = (), [(u, _first_cell(x)) for u, x in uses]
        for (one, a), (other, b) in combinations_with_replacement(uses, 2):
            why = _difference(own, name, a, b)
            if why is not None:
                return Disagreement(name, one, other, why)
    return None


@dataclass(frozen=True, slots=True)
class Cells:
    """A fragment as a grid of tiles, each of which is spread over a warp by one layout."""

    sizes: tuple[int, ...]
    axes: tuple[tuple[int, int, int], ...]
    """For each dimension of a tile the subscript that it moves, by which step, and how often."""
    layout: Layout

    def place(self, indices: Sequence[Expr], ranges: Ranges) -> tuple[tuple[Expr, ...], dict[str, Expr]]:
        """The first element of the tile of an element, and its place in it by the names of the layout."""
        inside = [simplify(floormod(e, index(n)), ranges) for e, n in zip(indices, self.sizes, strict=True)]
        digits = (floormod(floordiv(inside[k], index(step)), index(n)) for k, step, n in self.axes)
        at = dict[str, Expr](zip(self.layout.params, (simplify(e, ranges) for e in digits), strict=True))
        first = tuple(simplify(sub(e, r), ranges) for e, r in zip(indices, inside, strict=True))
        return first, {name: simplify(substitute(e, at), ranges) for name, e in self.layout.places}


def cells(units: Iterable[Unit], buffer: str) -> Cells | None:
    """The grid of a fragment, on which its instructions agree; None if there is none."""
    uses = _uses(units).get(buffer, [])
    grids = {_grid(x) for _, x in uses}
    grid = grids.pop() if len(grids) == 1 else None
    if grid is None:
        return None
    use = uses[0][1]
    return Cells(grid, tuple(_moved(use.tile)), use.layout)


def _uses(units: Iterable[Unit]) -> dict[str, list[tuple[Unit, _Use]]]:
    """The fragments, with the instructions that use them."""
    seen: dict[str, list[tuple[Unit, _Use]]] = {}
    for u in units:
        for tile in u.match.tiles:
            layout = next((x for x in u.intrinsic.layouts if x.name == tile.operand.scope), None)
            if layout is not None and layout.name not in _MEMORY and is_fragment(layout.name):
                use = _Use(tuple((x.var, x.extent) for x in u.around), tile, layout)
                seen.setdefault(tile.buffer, []).append((u, use))
    return seen


@dataclass(frozen=True, slots=True)
class _Use:
    """A tile as a place in a fragment, inside loops given as (variable, extent)."""

    around: tuple[tuple[str, Expr], ...]
    tile: Tile
    layout: Layout


def _grid(use: _Use) -> tuple[int, ...] | None:
    """The sizes of a grid of which each tile is one whole cell; None if there is no such grid or none is found. Dimensions
    that move one subscript are the digits of a number."""
    tile, cell = use.tile, [1] * len(use.tile.origin)
    ranges = ranges_below(use.around)
    for k, step, n in sorted(_moved(tile), key=lambda x: x[1]):
        if k < 0 or step != cell[k]:
            return None
        cell[k] *= n
    off = (simplify(floormod(o, index(n)), ranges) for o, n in zip(tile.origin, cell, strict=True))
    return tuple(cell) if all(e == ZERO for e in off) else None


def _moved(tile: Tile) -> list[tuple[int, int, int]]:
    """For each dimension the subscript that it moves, by which step, and how often; -1 if it moves several or none."""
    out: list[tuple[int, int, int]] = []
    for steps, n in zip(tile.steps, tile.operand.shape, strict=True):
        moved = [(k, constant(step) or 0, constant(n) or 0) for k, step in enumerate(steps) if step != ZERO]
        out += moved if len(moved) == 1 else [(-1, 0, 0)]
    return out


def _first_cell(use: _Use) -> _Use:
    return _Use((), replace(use.tile, buffer="", origin=(ZERO,) * len(use.tile.origin)), use.layout)


@lru_cache(maxsize=1024)
def _difference(own: tuple[str, ...], name: str, a: _Use, b: _Use) -> str | None:
    """The difference of two uses, as text; None if together they are an injective function. `own`: loops around both."""
    counted = [", ".join(sorted(n for n, _ in x.layout.places)) for x in (a, b)]
    if counted[0] != counted[1]:
        return f"the one counts {counted[0]}, the other {counted[1]}"
    try:
        first, second = _places(own, a), _places(own, b)
    except NotAffine as e:
        return f"`{format_expr(e.expr)}` is not affine"
    apart = first.subtract(second).domain().intersect(second.domain())
    if not apart.is_empty():
        element = isl.Set.from_basic_set(apart.sample())
        text = f"{name}[{', '.join(map(str, _values(element)[len(own) :]))}]"
        here, there = (_shown(p, element, len(own) + len(a.tile.origin), counted[0]) for p in (first, second))
        return f"the one has `{text}` at {here}, the other at {there}"
    both = first.union(second)
    if not both.is_single_valued():
        return f"an element of `{name}` is at several places"
    if not both.is_injective():
        return f"several elements of `{name}` are at one place"
    return None


def _places(own: Sequence[str], use: _Use) -> isl.Map:
    """`{ [own, element] -> [own, first element of its tile, place] }`: the place of each element for one instruction."""
    tile, names = use.tile, {v for v, _ in use.around}
    dims = [fresh(p, names) for p in use.layout.params]
    at = dict[str, Expr](zip(use.layout.params, map(Var, dims), strict=True))
    element: list[Expr] = list(tile.origin)
    for d, steps in zip(dims, tile.steps, strict=True):
        element = [add(e, mul(step, Var(d))) for e, step in zip(element, steps, strict=True)]
    used = frozenset(own).union(*map(free_vars, tile.origin))
    loops = [For(v, n, ()) for v, n in use.around if v in used]
    loops += [For(d, n, ()) for d, n in zip(dims, tile.operand.shape, strict=True)]
    place = [substitute(e, at) for _, e in sorted(use.layout.places, key=lambda p: p[0])]
    variables, within = [x.var for x in loops], loop_conditions(loops)
    home = [Var(v) for v in own]
    elements = mapping(variables, [*home, *element], within)
    return elements.reverse().apply_range(mapping(variables, [*home, *tile.origin, *place]))


def _values(points: isl.Set) -> list[int]:
    """The coordinates of a set with a single point."""
    point = points.sample_point()
    count = points.dim(isl.dim_type.set)
    return [point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(count)]


def _shown(places: isl.Map, element: isl.Set, first: int, names: str) -> str:
    """The place of an element as text: `lane 4, reg 1`."""
    numbers = _values(places.intersect_domain(element).range())[first:]
    return ", ".join(f"{name} {n}" for name, n in zip(names.split(", "), numbers, strict=True))
