"""Proves that a nest of loops computes what an instruction does, that an array is as an instruction requires, and that
instructions which share a fragment agree on where its elements are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import combinations, combinations_with_replacement, permutations, product

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Binary,
    Expr,
    Load,
    Var,
    add,
    children,
    conjunction,
    constant,
    dtype_of,
    floordiv,
    floormod,
    free_vars,
    index,
    loads,
    mul,
    rebuild,
    rewrite_expr,
    sub,
    substitute,
)
from tensorc_dsl.ir.identity import by_first
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import Block, Buffer, For, Intrinsic, Layout, Program, Store, TileAxis, fresh, store_at
from tensorc_dsl.ir.warp import UNIT, is_fragment, is_tma, is_tma_store
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.proof.sets.accesses import home
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.sets import NotAffine, loop_conditions, mapping
from tensorc_dsl.proof.sets.simplify import bounds, conjuncts, extent_ranges, is_multiple, ranges_below, simplify
from tensorc_dsl.proof.sets.store_guards import Filled, filled, is_inside

# Proves that a nest of loops computes what an instruction does: for `tensorize`, and again when the nest is lowered.
#
# A nest matches if its only store has the form of the instruction's store, operand for operand, and every operand is an
# affine tile: its subscripts move by constant steps along each of its dimensions, and along no other loop of the nest. The
# order of the operands of `+`, `*`, `min` and `max` does not matter.


_COMMUTES = ("+", "*", "min", "max")


@frozen
class Tile:
    """An operand in memory: the subscripts of its first element, and the steps of the subscripts along its dimensions."""

    operand: Buffer
    buffer: str
    origin: tuple[Expr, ...]
    steps: tuple[tuple[Expr, ...], ...]
    """For each dimension of the operand, the step of each subscript."""


@frozen
class Filling:
    """What a nest copies that fills in padding, or leaves out elements, in loops of these extents and where all of `given`
    hold."""

    copied: Filled
    extents: tuple[tuple[str, Expr], ...]
    given: tuple[Expr, ...] = ()


@frozen
class Match:
    """A nest that computes what an instruction does. `axes` are the instruction's, each with the loop that counts it. A tile
    that is loaded is zero outside of its array, and one that is stored is left out there: a nest with `filling` does the same
    if it stores zeros, or nothing, just there (`no_tensor_map`)."""

    axes: tuple[tuple[str, str], ...]
    tiles: tuple[Tile, ...]
    filling: Filling | None = None

    def tile(self, operand: str) -> Tile:
        return next(t for t in self.tiles if t.operand.name == operand)


@frozen
class Mismatch:
    """The reason why a nest does not match an instruction; `repair` may be empty."""

    why: str
    repair: str = ""


def match_nest(outer: Sequence[For], nest: For, intrinsic: Intrinsic) -> Match | Mismatch:
    """The proved match of a nest inside the loops `outer` with an instruction, or the reason why there is none."""
    return _matched(nest, tuple((x.var, x.extent) for x in outer), intrinsic)


@by_first(256)
def _matched(nest: For, outer: tuple[tuple[str, Expr], ...], intrinsic: Intrinsic) -> Match | Mismatch:
    """`match_nest` inside loops of these extents. Cached, since each step needs it and most steps leave a nest as it is."""
    loops, stmt = [nest], nest.body
    while len(stmt) == 1 and isinstance(stmt[0], For):
        loops.append(stmt[0])
        stmt = stmt[0].body
    if len(stmt) != 1 or not isinstance(stmt[0], Block):
        return Mismatch(f"`{loops[-1].var}` holds {len(stmt)} statements", "one block alone can be an instruction")
    b = stmt[0]
    counted = {x.var for x in loops}
    if b.init:
        return Mismatch(
            f"`{b.name}` initialises what it accumulates into",
            f"take that out first: `decompose_reduction({b.name}, …)`, at a loop around `{nest.var}`",
        )
    if len(b.body) != 1:
        return Mismatch(f"`{b.name}` stores {len(b.body)} values; an instruction stores one")
    values = {it.name: it.binding for it in b.iters}
    stores_tile = is_tma_store(intrinsic)
    for c in b.where:
        if counted & free_vars(c) and not stores_tile:
            return Mismatch(
                f"the tile is not always whole: `{b.name}` runs where `{format_expr(c)}`",
                "pad the axis to a multiple of the tile (`pad_einsum`), or split it exactly",
            )
    bound = store_at(b.body[0], values)
    extents = [(x.var, constant(x.extent)) for x in loops]
    around = (For(v, n, ()) for v, n in outer)
    found = match_store(extents, bound, intrinsic, extent_ranges((*around, *loops)))
    if isinstance(found, Match) and (clash := _overlap(found, intrinsic)) is not None:
        return clash
    copied = filled(bound.value) if is_tma(intrinsic) and not stores_tile else None
    inner = (*outer, *((x.var, x.extent) for x in loops))
    if isinstance(found, Match) and copied is not None and copied.cond is not None:
        found = replace(found, filling=Filling(copied, inner))
    every = tuple(c for x in b.where for c in conjuncts(x))
    cut = tuple(c for c in every if counted & free_vars(c))
    if isinstance(found, Match) and cut:  # elsewhere a whole tile is stored, or none of it
        whole = tuple(c for c in every if not counted & free_vars(c))
        found = replace(found, filling=Filling(Filled(stored_place(bound), conjunction(cut)), inner, whole))
    return found


def match_store(
    loops: Sequence[tuple[str, int | None]], store: Store, intrinsic: Intrinsic, ranges: Ranges
) -> Match | Mismatch:
    """The match of a store inside loops that run from 0 with an instruction, or the reason why there is none.

    The elements of the result are assumed to be distinct, which was proved before lowering joined several subscripts to one.
    """
    first: Mismatch | None = None
    if is_tma(intrinsic) and not is_tma_store(intrinsic) and (copied := filled(store.value)) is not None:
        store = replace(store, value=copied.load)
    pairs = list(unify(intrinsic.store.value, store.value))
    if not pairs:
        return _other_form(store, intrinsic)
    for axes in _assignments(loops, intrinsic):
        for operands in pairs:
            found = _tiles(
                axes, ((stored_place(intrinsic.store), stored_place(store)), *operands), intrinsic, loops, ranges
            )
            if isinstance(found, Match):
                return found
            first = first or found
    if first is not None:
        return first
    wanted = ", ".join(f"{a.name} in {a.extent}" for a in intrinsic.axes)
    have = ", ".join(f"{v} in {'…' if n is None else n}" for v, n in loops)
    return Mismatch(
        f"its loops are {have}; {intrinsic.name} runs over {wanted}", "split its loops to these sizes first"
    )


def _other_form(store: Store, intrinsic: Intrinsic) -> Mismatch:
    """The mismatch of two values; if they differ in types only, it names the types."""

    def untyped(e: Expr) -> Expr:
        return replace(e, dtype=INDEX) if isinstance(e, Load) else e

    types = {b.name: b.dtype for b in intrinsic.operands}
    own = {x.buffer: x.dtype for x in loads(store.value)}
    for pairs in unify(rewrite_expr(intrinsic.store.value, untyped), rewrite_expr(store.value, untyped)):
        for wanted, found in pairs:
            if (one := own[found.buffer]) != (other := types[wanted.buffer]):
                return Mismatch(f"`{found.buffer}` holds {one}, `{wanted.buffer}` of {intrinsic.name} {other}")
    value = format_expr(store.value)
    return Mismatch(f"it stores `{value}`, {intrinsic.name} `{format_store(intrinsic.store)}`")


def stored_place(s: Store) -> Load:
    """The stored element, as a load."""
    return Load(s.buffer, s.indices, dtype_of(s.value))


def _assignments(loops: Sequence[tuple[str, int | None]], intrinsic: Intrinsic) -> Iterator[dict[str, str]]:
    """Assignments of loops to axes of the same extent, in the order of the loops; an axis of extent 1 needs no loop."""
    counting = [(v, n) for v, n in loops if n != 1]
    axes = [a for a in intrinsic.axes if a.extent != 1]
    if len(counting) != len(axes):
        return
    for order in permutations(counting):
        if all(n == a.extent for a, (_, n) in zip(axes, order, strict=True)):
            yield {a.name: v for a, (v, _) in zip(axes, order, strict=True)}


def unify(wanted: Expr, found: Expr) -> Iterator[tuple[tuple[Load, Load], ...]]:
    """The ways in which two expressions have the same form, each as pairs of accesses."""
    if isinstance(wanted, Load):
        if isinstance(found, Load) and wanted.dtype == found.dtype:
            yield ((wanted, found),)
        return
    if type(wanted) is not type(found) or _head(wanted) != _head(found):
        return
    yield from _unify_all(children(wanted), children(found))
    if isinstance(wanted, Binary) and isinstance(found, Binary) and wanted.op in _COMMUTES:
        yield from _unify_all((wanted.lhs, wanted.rhs), (found.rhs, found.lhs))


def _unify_all(wanted: tuple[Expr, ...], found: tuple[Expr, ...]) -> Iterator[tuple[tuple[Load, Load], ...]]:
    if not wanted:
        yield ()
        return
    for first in unify(wanted[0], found[0]):
        for rest in _unify_all(wanted[1:], found[1:]):
            yield (*first, *rest)


def _head(e: Expr) -> Expr:
    """A node without its operands, for comparison."""
    return rebuild(e, tuple(ZERO for _ in children(e)))


def _tiles(
    axes: Mapping[str, str],
    pairs: Sequence[tuple[Load, Load]],
    intrinsic: Intrinsic,
    loops: Sequence[tuple[str, int | None]],
    ranges: Ranges,
) -> Match | Mismatch:
    tiles: dict[str, Tile] = {}
    for wanted, found in pairs:
        tile = _tile(wanted, found, axes, intrinsic, loops, ranges)
        if isinstance(tile, Mismatch):
            return tile
        other = tiles.setdefault(wanted.buffer, tile)
        if other != tile:
            return Mismatch(f"`{wanted.buffer}` of {intrinsic.name} would be two different tiles of `{found.buffer}`")
    stored = intrinsic.store.buffer
    for name, tile in tiles.items():
        if name != stored and tile.buffer == tiles[stored].buffer:
            return Mismatch(f"`{tile.buffer}` is stored to and read as `{name}` too")
    return Match(tuple(axes.items()), tuple(tiles[b.name] for b in intrinsic.operands if b.name in tiles))


def _tile(
    wanted: Load,
    found: Load,
    axes: Mapping[str, str],
    intrinsic: Intrinsic,
    loops: Sequence[tuple[str, int | None]],
    ranges: Ranges,
) -> Tile | Mismatch:
    """The access as a tile of the operand: affine in the loops of the operand's axes, constant in all other loops."""
    at_first: dict[str, Expr] = {v: ZERO for v, _ in loops}
    outer = {v: r for v, r in ranges.items() if v not in at_first}
    dims = [axes.get(i.name) if isinstance(i, Var) else None for i in wanted.indices]
    names = {v: name for name, v in axes.items()}
    subscripts = [simplify(i, ranges) for i in found.indices]
    origin = [simplify(substitute(i, at_first), outer) for i in subscripts]
    steps: dict[str, list[Expr]] = {}
    for v, n in loops:
        if n == 1:
            continue
        second = {**at_first, v: ONE}
        moved = [simplify(sub(substitute(i, second), o), outer) for i, o in zip(subscripts, origin, strict=True)]
        steps[v] = moved
        if v not in dims and any(m != ZERO for m in moved):
            text = f"{found.buffer}[{', '.join(map(format_expr, found.indices))}]"
            same = f"`{wanted.buffer}` of {intrinsic.name} is the same along `{names[v]}`"
            return Mismatch(f"`{text}` changes along `{v}`; {same}")
    for k, (i, o) in enumerate(zip(subscripts, origin, strict=True)):
        whole = o
        for v, moved in steps.items():
            whole = add(whole, mul(moved[k], Var(v)))
        if simplify(sub(i, whole), ranges) != ZERO:
            return Mismatch(f"the subscript `{format_expr(i)}` of `{found.buffer}` does not move by fixed steps")
    none = tuple(ZERO for _ in subscripts)
    operand = next(b for b in intrinsic.operands if b.name == wanted.buffer)
    along = tuple(tuple(steps[v]) if v is not None else none for v in dims)
    return Tile(operand, found.buffer, tuple(origin), along)


def _overlap(match: Match, intrinsic: Intrinsic) -> Mismatch | None:
    """A mismatch unless the elements of the result are distinct: its steps must be those of a mixed radix number."""
    tile = match.tile(intrinsic.store.buffer)
    for k in range(len(tile.origin)):
        reach = 0
        moving = sorted(
            (abs(constant(step[k]) or 0), constant(n) or 0)
            for step, n in zip(tile.steps, tile.operand.shape, strict=True)
            if step[k] != ZERO
        )
        for step, n in moving:
            if step <= reach:
                return _not_apart(tile, intrinsic)
            reach += step * (n - 1)
    for step, n in zip(tile.steps, tile.operand.shape, strict=True):
        if constant(n) != 1 and all(x == ZERO for x in step):
            return _not_apart(tile, intrinsic)
    return None


def _not_apart(tile: Tile, intrinsic: Intrinsic) -> Mismatch:
    return Mismatch(f"the elements of `{tile.buffer}` that {intrinsic.name} stores are not known to lie apart")


# Enumerates the mappings of a block's iterators to the axes of an instruction, as AMOS does (Zheng et al., ISCA 2022).
#
# An iterator can play an axis of its own kind if the block uses it exactly in those operands in which the instruction uses
# the axis. Several iterators that can play one axis may play it together, counted as one index (such as the rows of
# im2col), so each set of them is a mapping; iterators without a role stay loops around the instruction. Sizes do not matter
# here, since incomplete tiles are padded.


@frozen
class Roles:
    """For each axis with more than one value, in the instruction's order, its iterators, in the block's order."""

    axes: tuple[tuple[TileAxis, tuple[str, ...]], ...]

    def __str__(self) -> str:
        """`i=vn*vh*vw, j=vco, k=vci`."""
        return ", ".join(f"{axis.name}={'*'.join(iters)}" for axis, iters in self.axes)


def mappings(b: Block, intrinsic: Intrinsic) -> Iterator[Roles]:
    """All mappings of a block onto an instruction, each once; those with the fewest loops outside come first.

    A block with an `init` is treated as after `decompose_reduction`. An iterator of extent 1 plays an axis only if no other
    iterator can, since together with others it makes no difference.
    """
    seen: set[tuple[tuple[str, ...], ...]] = set()
    axes = [a for a in intrinsic.axes if a.extent != 1]
    for pairs in _operands(b, intrinsic):
        for chosen in product(*(_players(b, a, pairs) for a in axes)):
            if chosen not in seen:
                seen.add(chosen)
                yield Roles(tuple(zip(axes, chosen, strict=True)))


Pairs = Sequence[tuple[Load, Load]]
"""For each operand of an instruction: its access in the instruction, and the corresponding access in the block."""


def _operands(b: Block, intrinsic: Intrinsic) -> Iterator[Pairs]:
    """The ways in which the block's store has the form of the instruction's store."""
    if len(b.body) != 1:
        return
    place, stored = stored_place(b.body[0]), stored_place(intrinsic.store)
    copied = filled(b.body[0].value) if is_tma(intrinsic) and not is_tma_store(intrinsic) else None
    for found in unify(intrinsic.store.value, b.body[0].value if copied is None else copied.load):
        pairs = ((stored, place), *found)
        of = {wanted.buffer: own for wanted, own in pairs}
        one_each = all(of[wanted.buffer] == own for wanted, own in pairs)
        if one_each and all(own.buffer != place.buffer for name, own in of.items() if name != stored.buffer):
            yield pairs


def _players(b: Block, axis: TileAxis, pairs: Pairs) -> list[tuple[str, ...]]:
    """The sets of iterators that can play an axis, the largest first; each has a loop that occurs in no condition, since
    conditions over loops outside of an instruction leave it whole."""
    cut = {v for c in b.where for v in free_vars(c)}
    signature = [any(axis.name in free_vars(i) for i in wanted.indices) for wanted, _ in pairs]
    able = [
        it
        for it in b.iters
        if it.kind is axis.kind
        and (free_vars(it.binding).isdisjoint(cut) or free_vars(it.binding) - cut)
        and signature == [any(it.name in free_vars(i) for i in own.indices) for _, own in pairs]
    ]
    longer = [it.name for it in able if constant(it.extent) != 1]
    names = longer or [it.name for it in able[:1]]
    return [chosen for size in range(len(names), 0, -1) for chosen in combinations(names, size)]


# The distances of rows in memory, for what accesses whole units of bytes.


def uneven_row(array: Buffer) -> Expr | None:
    """The elements between neighbours along a dimension, if these are not known to be a multiple of 16 bytes apart; None if
    all are, those along the last dimension aside."""
    for n in range(1, len(array.shape)):
        row = reduce(mul, array.shape[n:], ONE)
        if not is_multiple(row, UNIT // array.dtype.bytes, {}):
            return row
    return None


# What an instruction that copies a tile requires of the array: a tensor map has to be able to express the box.
#
# A map has the sizes and distances of an array and of a tile, so each dimension of a tile is one of the array's, and rows
# are whole units of 16 bytes apart. What is outside of the array is loaded as zero and not stored, so a load may fill in
# that, and a store may leave it out, and nothing else.


MOST_DIMENSIONS = 5
"""The most dimensions of a tensor map."""

LONGEST = 2**31 - 1
"""The most elements along a dimension whose numbers an instruction can name: they are signed, of 32 bits."""


def array_of(i: Intrinsic, match: Match) -> Tile:
    """The operand that is in an array."""
    (array,) = (t for t in match.tiles if (t.operand.name == i.store.buffer) == is_tma_store(i))
    return array


def no_tensor_map(program: Program, i: Intrinsic, match: Match) -> Mismatch | None:
    """A mismatch unless a tensor map can say what the nest copies."""
    tile, stores = array_of(i, match), is_tma_store(i)
    array, other = program.buffer(tile.buffer), f"{'store' if stores else 'copy'} by threads"
    rank = len(array.shape)
    if array.scope != "global":
        return Mismatch(
            f'{i.name} {"stores" if stores else "loads"} a tile of an array, and `{array.name}` is in "{array.scope}"',
            f"copy it {'to' if stores else 'from'} an array",
        )
    if rank > MOST_DIMENSIONS:
        return Mismatch(
            f"{i.name} takes arrays of up to {MOST_DIMENSIONS} dimensions, and `{array.name}` has {rank}",
            other,
        )
    if array.strides:
        return Mismatch(
            f"{i.name} takes dense arrays, and `{array.name}` has strides [{', '.join(map(format_expr, array.strides))}]",
            f"declare `{array.name}` without strides, or {other}",
        )
    along = dimensions_of(tile)
    if along is None or sorted(set(along)) != along or along[-1] != rank - 1:
        return Mismatch(
            f"`{tile.operand.name}` of {i.name} is no tile of `{array.name}`: each dimension has to be one of the array, in"
            " its order and with steps of 1, and the last one its last",
            f"split and reorder the loops so, or {other}",
        )
    if any((bounds(n, {})[0] or 0) < 1 for n in array.shape):
        return Mismatch(
            f"{i.name} takes arrays that have elements, and `{array.name}` may have none",
            f"let its sizes be at least 1, or {other}",
        )
    if any((bounds(n, {})[0] or 0) > LONGEST for n in array.shape):
        return Mismatch(
            f"{i.name} takes arrays of up to {LONGEST} elements along a dimension, and `{array.name}` has more",
            "copy by threads",
        )
    if (row := uneven_row(array)) is not None:
        size = array.dtype.bytes
        return Mismatch(
            f"{i.name} takes arrays whose rows are multiples of {UNIT} bytes apart, and those of `{array.name}` are"
            f" `{format_expr(row)}` elements of {size} bytes apart",
            f"pad them to a multiple of {UNIT // size}, or {other}",
        )
    return _other_elements(array, match, stores)


def dimensions_of(source: Tile) -> list[int] | None:
    """The dimension of the array along which each dimension of a tile lies; None if one moves along several, or by steps
    other than 1."""
    moved = [[n for n, step in enumerate(steps) if step != ZERO] for steps in source.steps]
    straight = all(len(own) == 1 and steps[own[0]] == ONE for steps, own in zip(source.steps, moved, strict=True))
    return [own[0] for own in moved] if straight else None


def _other_elements(array: Buffer, match: Match, stores: bool) -> Mismatch | None:
    f = match.filling
    if f is None or is_inside(f.copied, array.shape, dict(f.extents), f.given):
        return None
    what, which = ("leave out what", "that") if stores else ("store zeros where it", "there")
    return Mismatch(
        f"it is not known to {what} is outside of `{array.name}`, and only {which}",
        f"let it {'leave out' if stores else 'fill in'} what is outside of the array and nothing else",
    )


# Whether instructions that share a fragment agree on where its elements are: operands such as `in "mma.a"`.
#
# A fragment is distributed over the lanes of a warp. The place of an element depends on the instruction: on the layout that
# it declares for the operand, and on the tile of the buffer that the operand is. So each instruction on a buffer gives a
# relation from elements to places: the first element of the tile, and the place by the layout. The union of these relations
# must be an injective function: then an element that one instruction writes is, at that place, the element that another
# reads.


_MEMORY = frozenset(("global", "shared", "shared.dyn", "local"))
"""Scopes in memory, whose elements have addresses."""


@frozen
class Unit:
    """The nest of `loop`, which is one instruction, inside the loops `around`."""

    around: tuple[For, ...]
    loop: str
    intrinsic: Intrinsic
    match: Match


@frozen
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


@frozen
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


@frozen
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
