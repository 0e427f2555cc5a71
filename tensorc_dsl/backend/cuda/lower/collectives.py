"""Turns tensorized nests into instructions of a warp: what each lane accesses, with a loop that counts the lanes.

A fragment is spread over the lanes. So its buffer gets two more subscripts, the lane and the number of an element in it, and
the others are those of the first element of a tile. `proof.sets.instructions` proves that each element has one such place.
From there on a fragment is a private buffer like others: that no two warps touch one tile is counted with the ownership of
threads. An operand in memory is at the addresses that the lanes give, by its layout. One with a descriptor is accessed by
every lane of a warpgroup as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tensorc_dsl.backend.cuda.lower.axes import Axes, by_lanes
from tensorc_dsl.backend.cuda.lower.kernels import THREAD
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import (
    ZERO,
    Expr,
    Load,
    Var,
    add,
    conjunction,
    constant,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Axis, Buffer, For, Intrinsic, LoopKind, Program, Store, intrinsic_of, walk
from tensorc_dsl.ir.warp import (
    ADDRESS,
    ELEMENT,
    GROUP,
    LANE,
    LANES,
    WARP,
    WARPS,
    Held,
    described,
    held,
    is_described,
    is_tma,
    is_tma_store,
    lane_of,
    layout_of,
)
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, LowerError, TensorMap, TmaTile, stores, stride, within
from tensorc_dsl.lower.lower import instructions, match_flat
from tensorc_dsl.lower.trim_bounds import hoist_guards
from tensorc_dsl.proof.sets.instructions import (
    Match,
    Tile,
    Unit,
    array_of,
    cells,
    dimensions_of,
    disagreement,
    match_nest,
    misplaced,
    stored_place,
)
from tensorc_dsl.proof.sets.linear_forms import Ranges
from tensorc_dsl.proof.sets.simplify import conjuncts, is_multiple, simplify

KIND = "cuda"

WIDEST = 16
"""The most bytes at one address, to whose multiples arrays and shared memory are aligned."""


@frozen
class Collected:
    """Statements with their instructions, the axes with the loops over lanes, and of each fragment the lanes that share a
    tile, with the elements that each of them has."""

    body: tuple[Flat, ...]
    axes: Axes
    fragments: Mapping[str, tuple[int, int]]


def collected(program: Program, body: tuple[Flat, ...], axes: Axes, features: Collection[str]) -> Collected:
    """The statements with proved nests as instructions of a warp. Raises LowerError if a fragment is used in another way."""
    units = _agreed(program)
    made = _Maker(
        instructions(program), axes, features, {b.name: b for b in (*program.params, *program.buffers)}, {}, {}
    )
    out = made.run(body, {}, ())
    out = by_lanes(out, axes, {name: cells(units, name) for name in made.fragments})
    return Collected(out, axes.with_lanes(made.lanes), made.fragments)


def _agreed(program: Program) -> list[Unit]:
    """The instructions. Raises LowerError unless those that share a fragment agree on it: a program by hand may say
    anything."""
    units: list[Unit] = []
    for around, s in walk(program.body):
        named = intrinsic_of(program, s) if isinstance(s, For) else None
        if named is None or not isinstance(s, For) or not isinstance(found := match_nest(around, s, named), Match):
            continue
        if (clash := misplaced(program, named, found)) is not None:
            raise LowerError(clash.why)
        units.append(Unit(around, s.var, named, found))
    if (other := disagreement(program, units)) is not None:
        names = " and ".join(u.intrinsic.name for u in (other.one, other.other))
        raise LowerError(f"{names} do not agree on the fragment `{other.buffer}`: {other.why}")
    return units


@frozen
class _Maker:
    named: Mapping[str, Intrinsic]
    axes: Axes
    features: Collection[str]
    buffers: Mapping[str, Buffer]
    fragments: dict[str, tuple[int, int]]
    lanes: dict[str, Axis]

    def run(self, body: tuple[Flat, ...], ranges: Ranges, bound: tuple[str, ...]) -> tuple[Flat, ...]:
        """The statements inside the loops of `ranges`, of which `bound` count threads."""
        out: list[Flat] = []
        for s in body:
            if isinstance(s, Store):
                out.append(s)
                continue
            if isinstance(s, Loop) and s.kind is LoopKind.TENSORIZED:
                (one,) = hoist_guards((s,))  # warps that have no tile do not run the instruction
                if isinstance(one, If):
                    out.append(replace(one, body=self.run(one.body, ranges, bound)))
                else:
                    out.append(self._instruction(s, ranges, bound))
                continue
            if isinstance(s, Loop):
                inner = (*bound, s.var) if self.axes.is_thread(s.var) else bound
                out.append(replace(s, body=self.run(s.body, within(ranges, s), inner)))
            else:
                out.append(replace(s, body=self.run(s.body, ranges, bound)))
        return tuple(out)

    def _instruction(self, s: Loop, ranges: Ranges, bound: tuple[str, ...]) -> Flat:
        """The nest as an instruction, in a loop over lanes; as serial loops if it is none for these GPUs."""
        found = self.named.get(s.var)
        if found is None and constant(s.end) == 1:  # the instruction has the name of the first loop that counts
            return replace(s, kind=LoopKind.SERIAL, body=self.run(s.body, within(ranges, s), bound))
        # What conditions leave out of the tile of a TMA store is outside of the array, as was proved.
        nest, conds = _unguarded(s) if found is not None and is_tma_store(found) else (s, ())
        match = None if found is None else match_flat(nest, found, ranges)
        code = None if found is None else self._code(found)
        if found is not None and code is None and (is_of_group(found) or is_tma(found)):
            wanted = " or ".join(" with ".join(x.features) for x in found.lowerings if x.target == KIND)
            raise LowerError(
                f"{found.name} is for GPUs that are {wanted}, and this one is {', '.join(self.features)}; draw a schedule"
                " for it"
            )
        if found is None or match is None or code is None:
            return _serial(s)
        if is_tma(found):
            tile, whole = self._tile(found, code, match, bound), conjunction(conds)
            return tile if whole is None else If(whole, (tile,))
        groups = is_of_group(found)
        allowed = (Axis.WARPGROUP,) if groups else (Axis.WARP, Axis.WARPGROUP)
        for v in bound:
            if self.axes.loops[v] not in allowed:
                who, axis = ("four warps do", Axis.WARPGROUP) if groups else ("a warp does", Axis.WARP)
                raise LowerError(
                    f"{found.name} is inside of `{v}`, which counts {'warps or ' * groups}threads, and {who} it together;"
                    f' bind `{v}` to "{axis}"'
                )
        warp, lane = f"{s.var}.{WARP}", f"{s.var}.{LANE}"
        self.lanes[lane] = Axis.LANE
        number: Expr = Var(lane)
        if groups:
            self.lanes[warp] = Axis.WARP
            number = lane_of(Var(warp), number)
        loops: list[tuple[str, int]] = []
        places: dict[str, tuple[Expr, ...]] = {}
        for tile in match.tiles:
            h = held(found, tile.operand)
            if h is None:  # it has a descriptor: an `intrinsic` whose text names it is refused without
                own, places[tile.operand.name] = _whole(tile)
                loops += own
                continue
            own, places[tile.operand.name] = _places(found, tile, h, number)
            loops += own
            if not h.addresses:
                self.fragments[tile.buffer] = len(h.elements), h.count
        out: Flat = Loop(
            lane,
            ZERO,
            index(LANES),
            LoopKind.SERIAL,
            (Collective(found, code, _accessed(match, found, loops, places)),),
        )
        return Loop(warp, ZERO, index(WARPS), LoopKind.SERIAL, (out,)) if groups else out

    def _tile(self, found: Intrinsic, code: str, match: Match, bound: tuple[str, ...]) -> Flat:
        """The nest as a copy by TMA, which one thread starts."""
        if bound:
            copy = "store" if is_tma_store(found) else "load"
            raise LowerError(
                f"{found.name} is inside of `{bound[-1]}`, which counts threads, and one thread starts a TMA {copy}; leave"
                " its loops unbound"
            )
        loops: list[tuple[str, int]] = []
        places: dict[str, tuple[Expr, ...]] = {}
        for tile in match.tiles:
            own, places[tile.operand.name] = _whole(tile)
            loops += own
        tile = _tile_of(found, match, self.buffers[array_of(found, match).buffer])
        return Collective(found, code, _accessed(match, found, loops, places), tile)

    def _code(self, i: Intrinsic) -> str | None:
        """The first text for GPUs with these features."""
        fitting = (x.code for x in i.lowerings if x.fits(KIND, self.features))
        return next(fitting, None)


def _accessed(
    match: Match, i: Intrinsic, loops: Sequence[tuple[str, int]], places: Mapping[str, tuple[Expr, ...]]
) -> tuple[Flat, ...]:
    """The loops over what is accessed of the operands, around a store of the instruction's form."""
    buffers = {t.operand.name: t.buffer for t in match.tiles}

    def here(e: Expr) -> Expr:
        return Load(buffers[e.buffer], places[e.buffer], e.dtype) if isinstance(e, Load) else e

    name = i.store.buffer
    body: tuple[Flat, ...] = (Store(buffers[name], places[name], rewrite_expr(i.store.value, here)),)
    for v, n in reversed(loops):
        body = (Loop(v, ZERO, index(n), LoopKind.TENSORIZED, body),)
    return body


def _unguarded(nest: Loop) -> tuple[Loop, tuple[Expr, ...]]:
    """A nest of loops around one statement without the conditions inside of it, and those that no loop of it changes."""
    loops, conds = [nest], list[Expr]()
    (inner,) = nest.body
    while isinstance(inner, Loop | If):
        if isinstance(inner, Loop):
            loops.append(inner)
        else:
            conds += conjuncts(inner.cond)
        (inner,) = inner.body
    for x in reversed(loops):
        inner = replace(x, body=(inner,))
    assert isinstance(inner, Loop)  # the nest is one
    counted = {x.var for x in loops}
    return inner, tuple(c for c in conds if not counted & free_vars(c))


def _serial(s: Flat) -> Flat:
    if isinstance(s, Store):
        return s
    body = tuple(map(_serial, s.body))
    return replace(s, kind=LoopKind.SERIAL, body=body) if isinstance(s, Loop) else replace(s, body=body)


def is_of_group(i: Intrinsic) -> bool:
    """Whether four warps do an instruction together: it gets descriptors, runs beside them, and they wait for it."""
    return any(is_described(b.scope) for b in i.operands) and not is_tma(i)


def _whole(tile: Tile) -> tuple[list[tuple[str, int]], tuple[Expr, ...]]:
    """The subscripts of all elements of an operand, with the loops over its dimensions."""
    loops = [(dimension_of(tile.operand.name, n), constant(size) or 0) for n, size in enumerate(tile.operand.shape)]
    at: list[Expr] = list(tile.origin)
    for (v, _), steps in zip(loops, tile.steps, strict=True):
        at = [add(e, mul(step, Var(v))) for e, step in zip(at, steps, strict=True)]
    return loops, tuple(at)


def _places(i: Intrinsic, tile: Tile, h: Held, lane: Expr) -> tuple[list[tuple[str, int]], tuple[Expr, ...]]:
    """The subscripts of what a lane accesses of an operand, with the loops over it."""
    name = tile.operand.name
    if not h.addresses:
        reg = register_of(name)
        return [(reg, h.count)], (*tile.origin, lane, Var(reg))
    counted = {ADDRESS: address_of(name), ELEMENT: element_of(name)}
    values: dict[str, Expr] = {LANE: lane, **{k: Var(v) for k, v in counted.items()}}
    layout = layout_of(i, tile.operand)
    assert layout is not None  # it is held by it
    at: list[Expr] = list(tile.origin)
    for (_, place), steps in zip(layout.places, tile.steps, strict=True):
        at = [add(e, mul(step, substitute(place, values))) for e, step in zip(at, steps, strict=True)]
    return [(counted[ADDRESS], h.addresses), (counted[ELEMENT], h.adjacent)], tuple(at)


def register_of(operand: str) -> str:
    """The variable that counts the elements of an operand in registers."""
    return f"{operand}.reg"


def element_of(operand: str) -> str:
    """The variable that counts the elements at an address of an operand."""
    return f"{operand}.{ELEMENT}"


def address_of(operand: str) -> str:
    """The variable that counts the addresses of an operand."""
    return f"{operand}.{ADDRESS}"


def dimension_of(operand: str, n: int) -> str:
    """The variable that counts a dimension of an operand with a descriptor."""
    return f"{operand}.{n}"


def with_lanes(shape: tuple[Expr, ...], lanes: tuple[int, int]) -> tuple[Expr, ...]:
    """The shape of a fragment with its lanes, and the elements of each."""
    return (*shape, *map(index, lanes))


@frozen
class Access:
    """An operand of an instruction: where a lane has it, as a subscript over what `_places` counts."""

    held: Held
    buffer: str
    index: Expr


def lane_operands(s: Collective) -> dict[str, Access]:
    """The operands that lanes have, or give addresses of; their accesses have one subscript here."""
    found = ((b, y, held(s.intrinsic, b)) for b, y in accesses_of(s))
    return {b.name: Access(h, y.buffer, y.indices[0]) for b, y, h in found if h is not None}


def accesses_of(s: Collective) -> list[tuple[Buffer, Load]]:
    """The operands of an instruction with what a lane accesses of each; one that it adds to stands twice."""
    (store,) = stores(s.body)
    wanted, found = ((stored_place(x), *loads(x.value)) for x in (s.intrinsic.store, store))
    by_name = {b.name: b for b in s.intrinsic.operands}
    return [(by_name[x.buffer], y) for x, y in zip(wanted, found, strict=True)]


def require_uniform(s: Collective, conds: tuple[Expr, ...]) -> None:
    """Raises LowerError unless all lanes of a warp run the instruction, or none; of a warpgroup, if it is done by one."""
    lane, warp = Var("lane"), Var("warp")
    count, who = (GROUP, "warps of a warpgroup") if is_of_group(s.intrinsic) else (LANES, "lanes of a warp")
    ranges: Ranges = {"lane": (0, count - 1), "warp": (0, None)}
    for c in conds:
        if THREAD in free_vars(c):
            other = simplify(substitute(c, {THREAD: add(mul(warp, index(count)), lane)}), ranges)
            if "lane" in free_vars(other):
                raise LowerError(
                    f"{s.intrinsic.name} runs where `{format_expr(c)}`, which may differ between the {who}; pad"
                    " the loop to whole instructions (`pad_einsum`)"
                )


def require_adjacent(s: Collective) -> None:
    """Raises LowerError unless what is at each address of an instruction is adjacent and begins at a multiple of its size."""
    for name, a in lane_operands(s).items():
        if not a.held.addresses or a.held.adjacent == 1:
            continue
        n, v = a.held.adjacent, element_of(name)
        size = n * a.held.operand.dtype.bytes
        if stride(a.index, v) != 1:
            raise LowerError(
                f"{s.intrinsic.name} takes {n} adjacent elements of `{a.buffer}`, and they are not adjacent: element"
                f" `{format_expr(a.index)}`; let its last dimension be that of the instruction"
            )
        if size > WIDEST or not is_multiple(substitute(a.index, {v: ZERO}), n, {}):
            raise LowerError(
                f"{s.intrinsic.name} takes {size} bytes of `{a.buffer}` at addresses that are multiples of {size}, and"
                f" element `{format_expr(substitute(a.index, {v: ZERO}))}` is not known to begin at one; let its rows have"
                f" a multiple of {n} elements (`storage_align`)"
            )


def _tile_of(i: Intrinsic, match: Match, array: Buffer) -> TmaTile:
    """The tile that an instruction copies."""
    there = array_of(i, match)
    (here,) = (x for x in match.tiles if x is not there)
    along, lines = dimensions_of(there), described(i, here.operand)
    assert along is not None and lines is not None  # as `no_tensor_map` and `tma_difference` ask
    sizes = [1] * len(array.shape)
    for n, extent in zip(along, there.operand.shape, strict=True):
        sizes[n] = constant(extent) or 0
    own = TensorMap(array.name, array.dtype, array.shape, tuple(sizes), lines.swizzle)
    return TmaTile(own, there.origin, is_tma_store(i))
