"""`stream_k`: share the steps of all tiles of a reduction evenly among a number of ranges, and add up the parts of tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import gcd

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import (
    ZERO,
    Binary,
    Compare,
    Expr,
    Load,
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
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    Program,
    Stmt,
    Store,
    fresh,
    replace_stmt,
    used_names,
)
from tensorc_dsl.ir.reductions import REDUCER
from tensorc_dsl.proof.sets.reductions import Element, Part
from tensorc_dsl.proof.sets.simplify import bounds, extent_ranges, simplify, simplify_where
from tensorc_dsl.schedule.accumulation import (
    IN_BETWEEN,
    MIXED_LOOP,
    NO_PARTS,
    NOT_AT_ZERO,
    NOT_COUNTING,
    accumulation_loops,
    parts_to_combine,
    require_alone,
    require_begun_once,
    spatial,
    stored,
    without_first_step,
)
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, NOT_SERIAL, require_serial, stmt_name, the_block, the_loop
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal

# Cuts the steps of all tiles, in one row, into ranges of equal length.
#
# Tile `t` has the steps `t*S` to `t*S + S - 1` of the row, and range `g` has those from `g*q` to `g*q + q - 1`. So a range
# has steps of some tiles that follow each other, of the first and the last of them a part only, and a tile has parts in
# some ranges that follow each other. Step `y` is that of number `y % S` of tile `y / S`, and in the range `y / q`, so each
# step of each tile is in exactly one range.


@frozen
class EqualRanges:
    """`count` ranges of `length` steps over `tiles` tiles of `steps` steps; the last may have fewer, and none is empty."""

    tiles: int
    steps: int
    length: int

    @property
    def count(self) -> int:
        return -(-self.tiles * self.steps // self.length)

    @property
    def tiles_of_range(self) -> int:
        """The most tiles of which a range has steps: it begins at most `steps - d` steps inside of one, since all ranges
        begin at multiples of the common divisor `d` of both lengths."""
        late = self.steps - gcd(self.steps, self.length)
        return min(self.tiles, (late + self.length - 1) // self.steps + 1)

    @property
    def ranges_of_tile(self) -> int:
        """The most ranges that have steps of one tile."""
        late = self.length - gcd(self.steps, self.length)
        return min(self.count, (late + self.steps - 1) // self.length + 1)

    def first_tile(self, g: Expr) -> Expr:
        """The first tile of which a range has steps."""
        return floordiv(mul(g, index(self.length)), index(self.steps))

    def has_tile(self, g: Expr, p: Expr) -> tuple[Expr, ...]:
        """The conditions under which the range has steps of the tile that is `p` behind its first one."""
        begun = Compare("<", mul(p, index(self.steps)), self._end(g))
        exists = Compare("<", add(self.first_tile(g), p), index(self.tiles))
        # A whole last range ends where the tiles do, so it begins no tile that does not exist.
        return (begun,) if self.count * self.length == self.tiles * self.steps else (begun, exists)

    def first_step(self, g: Expr, p: Expr) -> Expr:
        """The first step that the range has of that tile: others than the first tile are begun by the range."""
        return Binary("max", sub(self._begin(g), mul(p, index(self.steps))), ZERO)

    def has_step(self, g: Expr, p: Expr, n: Expr) -> tuple[Expr, ...]:
        """The conditions under which the range has more than `n` steps of that tile, if it has one: the tile has as many from
        the first one on, and so has the range."""
        before = mul(p, index(self.steps))
        own = Compare("<", n, index(self.length))
        left = Compare("<", add(n, self._begin(g)), add(before, index(self.steps)))
        if self.tiles_of_range == 1:
            return own, left
        return own, Compare("<", add(n, before), self._end(g)), left

    def first_range(self, t: Expr) -> Expr:
        """The first range that has steps of a tile."""
        return floordiv(mul(t, index(self.steps)), index(self.length))

    def has_range(self, t: Expr, c: Expr) -> Expr:
        """The condition under which the range that is `c` behind the first one has steps of the tile."""
        begin = mul(add(self.first_range(t), c), index(self.length))
        return Compare("<", begin, mul(add(t, index(1)), index(self.steps)))

    def place(self, t: Expr, c: Expr) -> tuple[Expr, Expr]:
        """That range, and how far the tile is behind its first one."""
        g = add(self.first_range(t), c)
        return g, sub(t, self.first_tile(g))

    def _begin(self, g: Expr) -> Expr:
        """Where the range begins, in steps of its first tile."""
        return floormod(mul(g, index(self.length)), index(self.steps))

    def _end(self, g: Expr) -> Expr:
        """Where the range ends, in steps from the beginning of its first tile."""
        return add(self._begin(g), index(self.length))


@refusal(
    "E0675",
    "the {steps} steps of all tiles cannot be shared among {ranges} ranges",
    help="give a number of ranges from 1 to {steps}",
    at="ranges",
)
def NO_RANGES(*focus: str, steps: int, ranges: int) -> None: ...
@refusal(
    "E0676",
    "the iterations of `{tile}` are no tiles with the steps of `{step}`: {reason}",
    help="{repair}",
    at="tile",
)
def NO_TILES(*focus: str, tile: str, step: str, reason: str, repair: str) -> None: ...


@primitive(
    NO_BLOCK, NO_LOOP, NOT_SERIAL, NO_PARTS, NOT_COUNTING, MIXED_LOOP, NOT_AT_ZERO, IN_BETWEEN, NO_RANGES, NO_TILES
)  # fmt: skip
def stream_k(program: Program, block: BlockRef, tile: LoopRef, step: LoopRef, ranges: int) -> Rewrite[BlockRef]:
    """`<block>_rf` computes the steps of all tiles in ranges of equal length; `block`, after it, adds up the parts of a tile.

    for t in T, k in S, i: C[t, i] += e   ->   for g in G, p, k_part, i: C_rf[g, p, i] += e[t := g*q/S + p, k := …]
                                               for t_1 in T, i_1, c: C[t_1, i_1] += C_rf[t_1*S/q + c, …, i_1]

    Range `g` has the steps `g*q` to `g*q + q - 1` of the `T*S` that all tiles have in a row, with `q = T*S / ranges`, rounded
    up. It has steps of some tiles `p`, of the first and the last a part only. Each begins with the first step that the range
    has of it, and conditions end it with the last one. The parts of a tile are combined in their order, so each run gives
    the same sum. Where `q` divides `S` this is split-K, and where `S` divides `q` a range has whole tiles.

    `tile` contains the block alone, and `step` counts its reduction. The part of a subscript that depends on `tile`
    is omitted in those of `C_rf`. The loops stay around the new block, which is the result.
    After Osama et al., Stream-K (PPoPP 2023); CUTLASS has kernels of it.  Cases: tests/primitives/stream_k.md
    """
    around, b = the_block(program, block)
    the_loop(program, tile)
    parts = parts_to_combine(program, b)
    counting = accumulation_loops(program, around, b, step)
    require_begun_once(program, around, b, counting)
    outer, inner = _tiles(program, around, counting, tile, step)
    for x in (outer, inner):
        require_serial(program, x, "share the steps of")
    cut = _ranges(program, outer, inner, ranges)

    used = used_names(program)
    names = [f"{outer.var}_range", f"{outer.var}_part", f"{inner.var}_part"]
    g, p, n = (
        For(fresh(name, used), index(e), ())
        for name, e in zip(names, (cut.count, cut.tiles_of_range, cut.steps), strict=True)
    )
    shares = _Shares(b, around, counting, outer, inner, cut, (g, p, n), _inside(program, b, around, outer, inner))

    top = min(k for k, x in enumerate(around) if x.var in counting or x is outer)
    while top and len(around[top - 1].body) == 1:
        top -= 1
    require_alone(program, b, around[top])
    name = fresh(f"{b.name}_rf", used)
    buffers = {old: name if old == b.name else fresh(f"{old}_rf", used) for part in parts for old, _ in part.places}
    made = shares.partial(program, parts, buffers, name)
    nest: Stmt = made
    for x in reversed(around[around.index(outer) :]):
        loop = g if x is outer else n if x is inner else x
        nest = replace(loop, body=(replace(p, body=(nest,)),)) if x is outer else replace(loop, body=(nest,))
    behind = shares.combined(parts, buffers, around[top:], used)
    result = replace_stmt(program, outer.var, (nest,))
    first = around[top] if around[top] is not outer else g
    found = next(s for s in _body(result, around[:top]) if stmt_name(s) == first.var)
    result = replace_stmt(result, first.var, (found, behind))
    shape = tuple(it.extent for it in made.iters if it.kind is IterKind.SPATIAL)
    added = (Buffer(new, program.buffer(old).dtype, shape, program.buffer(old).scope) for old, new in buffers.items())
    return Rewrite(replace(result, buffers=(*result.buffers, *added)), BlockRef(name))


def _body(program: Program, around: Sequence[For]) -> tuple[Stmt, ...]:
    """The statements inside of loops that stand directly in one another."""
    body = program.body
    for x in around:
        body = next(s for s in body if isinstance(s, For) and s.var == x.var).body
    return body


def _tiles(
    program: Program, around: tuple[For, ...], counting: Sequence[str], tile: LoopRef, step: LoopRef
) -> tuple[For, For]:
    """The loop over tiles and that over their steps, which stands somewhere inside of it."""
    outer = the_loop(program, tile)[1]
    inner = the_loop(program, step)[1]

    def refuse(reason: str, repair: str) -> Exception:
        facts = {"tile": outer.var, "step": inner.var, "reason": reason, "repair": repair}
        return NO_TILES(program, outer.var, inner.var, **facts)

    if outer not in around or around.index(outer) >= around.index(inner):
        raise refuse(f"`{inner.var}` is not inside of it", "name a loop around the block and around its steps")
    if outer.var in counting:
        raise refuse("it counts the reduction, too", "name a loop over what the block computes")
    if any(len(x.body) > 1 for x in around[around.index(outer) :]):
        raise refuse("it contains other blocks", "take this step before others are moved there")
    for x in (outer, inner):
        if constant(x.extent) is None:
            extent = format_expr(x.extent)
            raise refuse(
                f"the extent of `{x.var}` is `{extent}`, not a number", f"give `{extent}` one size in the task"
            )
    return outer, inner


def _ranges(program: Program, outer: For, inner: For, ranges: int) -> EqualRanges:
    tiles, steps = constant(outer.extent) or 0, constant(inner.extent) or 0
    if not 1 <= ranges <= tiles * steps:
        raise NO_RANGES(program, outer.var, inner.var, steps=tiles * steps, ranges=ranges)
    return EqualRanges(tiles, steps, -(-tiles * steps // ranges))


@frozen
class _Inside:
    """An iterator of elements as a sum of what the loop over tiles adds and of what loops inside of it do."""

    base: Expr
    inside: Expr
    extent: int


def _inside(program: Program, b: Block, around: Sequence[For], outer: For, inner: For) -> dict[str, _Inside]:
    """The iterators that depend on the tile."""
    ranges = extent_ranges(around)
    others: dict[str, Expr] = {x.var: ZERO for x in around if x is not outer}
    out: dict[str, _Inside] = {}
    for it in spatial(b):
        if outer.var not in free_vars(it.binding):
            continue
        base = simplify(substitute(it.binding, others), ranges)
        inside = simplify(sub(it.binding, base), ranges)
        low, high = bounds(inside, ranges)
        if outer.var in free_vars(inside) or low is None or high is None or low < 0:
            reason = (
                f"`{it.name} = {format_expr(it.binding)}` is no sum of a part of `{outer.var}` and one of other loops"
            )
            repair = "split a loop into tiles and what is inside of them, and name that over tiles"
            facts = {"tile": outer.var, "step": inner.var, "reason": reason, "repair": repair}
            raise NO_TILES(program, outer.var, b.name, **facts)
        out[it.name] = _Inside(base, inside, high + 1)
    return out


@frozen
class _Shares:
    """The nest of the parts, and that of what combines them."""

    block: Block
    around: tuple[For, ...]
    counting: tuple[str, ...]
    outer: For
    inner: For
    cut: EqualRanges
    new: tuple[For, For, For]
    """The loops over ranges, tiles of a range and steps of such a tile."""
    inside: Mapping[str, _Inside]

    def _iterator(self, loop: str) -> str:
        used = {it.name for it in spatial(self.block)} | {x.var for x in (*self.around, *self.new)}
        return fresh(f"v{loop}", used)

    def _elements(self, tile: Expr) -> dict[str, Expr]:
        """What each iterator that depends on the tile was, where it counts what is inside of the tile."""
        return {
            name: add(substitute(x.base, {self.outer.var: tile}), Var(name) if x.extent > 1 else ZERO)
            for name, x in self.inside.items()
        }

    def _within(self) -> list[Iter]:
        """The iterators of elements, those that depend on the tile within a tile."""
        out: list[Iter] = []
        for it in spatial(self.block):
            found = self.inside.get(it.name)
            if found is None:
                out.append(it)
            elif found.extent > 1:
                out.append(Iter(it.name, it.kind, index(found.extent), found.inside))
        return out

    def partial(self, program: Program, parts: Sequence[Part], buffers: Mapping[str, str], name: str) -> Block:
        """The block that computes the parts; each loop of the reduction is one of its iterators."""
        b, (g, p, n) = self.block, self.new
        own = {x.var: self._iterator(x.var) for x in (*self.new, *(x for x in self.around if x.var in self.counting))}
        vg, vp, vn = (Var(own[x.var]) for x in self.new)
        loops = [n if x is self.inner else x for x in self.around if x.var in self.counting]
        iters = [
            *(Iter(own[x.var], IterKind.SPATIAL, x.extent, Var(x.var)) for x in (g, p)),
            *self._within(),
            *(Iter(own[x.var], IterKind.REDUCE, x.extent, Var(x.var)) for x in loops),
        ]
        steps: dict[str, Expr] = {x.var: Var(own[x.var]) for x in loops if x is not n}
        steps[self.inner.var] = add(self.cut.first_step(vg, vp), vn)
        values = self._elements(add(self.cut.first_tile(vg), vp))
        values |= {it.name: substitute(it.binding, steps) for it in b.iters if it.kind is IterKind.REDUCE}
        ranges = extent_ranges(For(it.name, it.extent, ()) for it in iters)
        init: list[Store] = []
        body: list[Store] = []
        at = tuple(Var(it.name) for it in iters if it.kind is IterKind.SPATIAL)
        for part in parts:
            places = [(buffers[old], at) for old, _ in part.places]
            init += stored(places, part.start)
            body += part.stores(places, [simplify(substitute(v, values), ranges) for v in part.values])
        kept = tuple(a for a in b.annotations if a[0] == REDUCER)
        made = Block(name, tuple(iters), tuple(body), tuple(init), self._where(), kept)
        self._require_begun(program, made)
        return made

    def _loops(self) -> list[For]:
        """The loops around the parts."""
        g, p, n = self.new
        return [y for x in self.around for y in ((g, p) if x is self.outer else (n,) if x is self.inner else (x,))]

    def _where(self) -> tuple[Expr, ...]:
        g, p, n = (Var(x.var) for x in self.new)
        old: dict[str, Expr] = {
            self.outer.var: add(self.cut.first_tile(g), p),
            self.inner.var: add(self.cut.first_step(g, p), n),
        }
        conditions = (
            *self.cut.has_tile(g, p),
            *self.cut.has_step(g, p, n),
            *(substitute(c, old) for c in self.block.where),
        )
        return simplify_where(conditions, extent_ranges(self._loops()))

    def _require_begun(self, program: Program, made: Block) -> None:
        """Refuse if conditions may leave out the first step that a range has of a tile, which initialises its part."""
        loops = self._loops()
        counting = {self.new[2].var if v == self.inner.var else v for v in self.counting}
        if without_first_step(made, loops, counting) is not None:
            raise NO_TILES(
                program,
                self.outer.var,
                self.block.name,
                tile=self.outer.var,
                step=self.inner.var,
                reason=f"a condition of `{self.block.name}` may leave out the first step of a part",
                repair="take this step before the one that makes the condition",
            )

    def combined(self, parts: Sequence[Part], buffers: Mapping[str, str], inner: Iterable[For], used: set[str]) -> Stmt:
        """The nest that adds up the parts of each tile, in the loops of the block without those of the reduction."""
        b = self.block
        kept = [x for x in inner if x.var not in self.counting]
        nest = [replace(x, var=fresh(x.var, used), annotations=()) for x in kept]
        renamed: dict[str, Expr] = {old.var: Var(new.var) for old, new in zip(kept, nest, strict=True)}
        count = For(fresh(f"{self.outer.var}_ranges", used), index(self.cut.ranges_of_tile), ())
        nest.append(count)
        tile, c = renamed[self.outer.var], Var(count.var)
        vt, vc = Var(self._iterator(self.outer.var)), Var(self._iterator(count.var))
        elements = self._within()
        iters = (
            Iter(vt.name, IterKind.SPATIAL, self.outer.extent, Var(self.outer.var)),
            *elements,
            Iter(vc.name, IterKind.REDUCE, count.extent, c),
        )
        iters = tuple(replace(it, binding=substitute(it.binding, renamed)) for it in iters)
        ranges = extent_ranges(For(it.name, it.extent, ()) for it in iters)
        where = [substitute(x, renamed) for x in b.where if not free_vars(x) & set(self.counting)]
        if self.cut.ranges_of_tile > 1:
            where.append(self.cut.has_range(tile, c))
        moved = self._elements(vt)
        at = (*self.cut.place(vt, vc), *(Var(it.name) for it in elements))
        source = tuple(simplify(e, ranges) for e in at)
        body: list[Store] = []

        def new(e: Expr) -> Expr:
            return simplify(substitute(e, moved), ranges)

        init = tuple(Store(s.buffer, tuple(map(new, s.indices)), new(s.value)) for s in b.init)
        body: list[Store] = []
        for part in parts:
            places: list[Element] = [(old, tuple(map(new, to))) for old, to in part.places]
            results = [Load(buffers[old], source, s.dtype) for (old, _), s in zip(part.places, part.start, strict=True)]
            body += part.stores(places, results)
        stmt: Stmt = replace(
            b, iters=iters, body=tuple(body), init=init, where=simplify_where(where, extent_ranges(nest))
        )
        for x in reversed(nest):
            stmt = replace(x, body=(stmt,))
        return stmt
