"""Reads instructions: an `intrinsic` item becomes a value, and its meaning a program.

An instruction has one effect, on fixed shapes. Every subscript in it is an index, so its operands are tiles with constant
strides, and matching it against loops is a question of affine subscripts. The indices and their extents follow from the
shapes of the operands that they subscript.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from math import prod

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir import problems
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.expr import Binary, Expr, Load, Var, children, constant, index, loads, rewrite_expr
from tensorc_dsl.ir.parse_expr import VisibleNames
from tensorc_dsl.ir.program import (
    Block,
    Buffer,
    For,
    Intrinsic,
    Iter,
    IterKind,
    Layout,
    Lowering,
    Program,
    Stmt,
    Store,
    TileAxis,
    fresh,
)
from tensorc_dsl.ir.target import is_kind, kind_of, kinds
from tensorc_dsl.ir.warp import LANES, MEMORY, addressed, column, points
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near

LARGEST = 1 << 14
"""The largest number of elements of an operand. No real instruction has more, and checking a larger one would be slow."""


def is_update(i: Intrinsic) -> bool:
    """Whether the instruction reads the element that it stores."""
    return any(x.buffer == i.store.buffer for x in loads(i.store.value))


def meaning(i: Intrinsic) -> Program:
    """The instruction as a program over its operands. The old value of an operand that it adds to is an argument, `C_old`."""
    used = {b.name for b in i.operands} | {a.name for a in i.axes}
    params = [replace(b, scope="global") for b in i.operands]
    store, init = i.store, tuple[Store, ...]()
    if is_update(i):
        stored = next(b for b in params if b.name == i.store.buffer)
        old = replace(stored, name=fresh(f"{stored.name}_old", used))
        params.append(old)
        start = Load(old.name, store.indices, old.dtype)
        if any(a.kind is IterKind.REDUCE for a in i.axes):
            init = (replace(store, value=start),)
        else:
            value = rewrite_expr(
                store.value, lambda e: start if isinstance(e, Load) and e.buffer == store.buffer else e
            )
            store = replace(store, value=value)
    loops = {a.name: fresh(f"{a.name}_loop", used) for a in i.axes}
    iters = tuple(Iter(a.name, a.kind, index(a.extent), Var(loops[a.name])) for a in i.axes)
    nest: Stmt = Block(fresh(i.name, used), iters, (store,), init)
    for a in reversed(i.axes):
        nest = For(loops[a.name], index(a.extent), (nest,))
    return Program(i.name, tuple(params), (), (nest,), intrinsics=(i,))


def intrinsic_from_tree(item: t.IntrinsicDef, *, right: bool = False) -> Intrinsic:
    """The instruction that an `intrinsic` item describes. Raises TschedError with every finding.

    If its text is known to be `right`, its layouts and lowerings are taken as they are.
    """
    return _Reader(item, right).read()


@dataclass(slots=True)
class _Reader:
    item: t.IntrinsicDef
    right: bool
    found: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def read(self) -> Intrinsic:
        operands: dict[str, Buffer] = {}
        for o in self.item.operands:
            self._attempt(lambda o=o: self._operand(o, operands))
        self._stop()
        first, *others = self.item.effects
        for e in others:
            self.found.append(problems.TWO_EFFECTS(e.span))
        store, axes = self._effect(first, operands)
        layouts = tuple(x for x in map(self._layout, self.item.layouts) if x is not None)
        for a, b in pairwise(self.item.layouts):
            if a.name in [x.name for x in self.item.layouts[self.item.layouts.index(b) :]]:
                self.found.append(problems.TWO_LAYOUTS(b.span, name=a.name))
        if not self.right:
            self._layouts_fit(layouts, operands)
        plain = Intrinsic(str(self.item.name), tuple(operands.values()), axes, store, layouts)
        lowerings = tuple(x for x in (self._lowering(x, plain) for x in self.item.lowerings) if x is not None)
        self._stop()
        return replace(plain, lowerings=lowerings)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except TschedError as e:
            self.found.extend(e.diagnostics)

    def _stop(self) -> None:
        if self.found:
            raise TschedError(*self.found)

    # --- operands ----------------------------------------------------------------------------------------------------

    def _operand(self, o: t.Operand, operands: dict[str, Buffer]) -> None:
        if o.name in operands:
            raise TschedError(problems.TWO_OPERANDS(o.span, name=o.name))
        if o.type.dtype not in DTYPES or o.type.dtype == "bool":
            notes = near(o.type.dtype, DTYPES, f"the types are {', '.join(DTYPES)}")
            raise TschedError(problems.NO_NUMBERS(o.type.span, notes, name=o.name, dtype=o.type.dtype))
        sizes = [e.value for e in o.type.shape if isinstance(e, t.Number) and isinstance(e.value, int) and e.value > 0]
        if len(sizes) != len(o.type.shape) or prod(sizes) > LARGEST:
            raise TschedError(problems.OPEN_SHAPE(o.type.span, name=o.name, most=LARGEST))
        operands[o.name] = Buffer(str(o.name), DTYPES[o.type.dtype], tuple(map(index, sizes)), o.layout or "global")

    # --- the effect --------------------------------------------------------------------------------------------------

    def _effect(self, e: t.Effect, operands: dict[str, Buffer]) -> tuple[Store, tuple[TileAxis, ...]]:
        if e.name not in operands:
            raise TschedError(
                problems.UNKNOWN_OPERAND(e.name.span, near(e.name, operands, f"declare `{e.name}` first"), name=e.name)
            )
        stored = operands[e.name]
        body, reduced = e.value, tuple[t.IndexSpec, ...]()
        if isinstance(body, t.Reduce):
            if not e.adds or body.reducer != "sum":
                raise TschedError(problems.NO_SUM(body.span, name=e.name))
            body, reduced = body.body, body.indices
        names = [x.name for x in (*e.indices, *reduced)]
        for x in (*e.indices, *reduced):
            if names.count(x.name) > 1:
                raise TschedError(problems.INDEX_TWICE(x.span, name=x.name))
            if x.extent is not None:
                raise TschedError(problems.HAS_RANGE(x.extent.span, name=x.name))
            if x.name in operands:
                raise TschedError(problems.INDEX_TAKEN(x.span, name=x.name))
        scope = VisibleNames(operands, {}, {n: n for n in names}, {})
        if len(e.indices) != len(stored.shape):
            scope.subscripts(stored, tuple(t.Name(x.name, x.span) for x in e.indices), e.span)
        value = scope.stored(body, stored)
        target = tuple[Expr, ...](Var(x.name) for x in e.indices)
        extents: dict[str, int] = {}
        for b, indices in ((e.name, target), *((x.buffer, x.indices) for x in loads(value))):
            self._extents(operands[b], indices, extents, e.span)
        if any(x.buffer == e.name and x.indices != target for x in loads(value)):
            raise TschedError(problems.OTHER_PLACE(e.value.span, name=e.name))
        if _index_value(value):
            raise TschedError(problems.INDEX_AS_NUMBER(e.value.span))
        if missing := [x for x in reduced if x.name not in extents]:
            raise TschedError(problems.INDEX_OF_NONE(missing[0].span, name=missing[0].name))
        if e.adds:
            value = Binary("+", Load(e.name, target, stored.dtype), value)
        spatial = {x.name for x in e.indices}
        axes = tuple(TileAxis(n, IterKind.SPATIAL if n in spatial else IterKind.REDUCE, extents[n]) for n in names)
        return Store(e.name, target, value), axes

    def _extents(self, b: Buffer, indices: tuple[Expr, ...], extents: dict[str, int], span: Span) -> None:
        """Record the extent of each index. Every subscript must be an index, and no index may occur twice."""
        plain = [i.name for i in indices if isinstance(i, Var)]
        if len(plain) != len(indices) or len(set(plain)) != len(plain):
            raise TschedError(problems.NO_INDICES(span, name=b.name))
        for n, size in zip(plain, b.shape, strict=True):
            extent = constant(size) or 0
            if extents.setdefault(n, extent) != extent:
                raise TschedError(problems.TWO_EXTENTS(span, name=n, extent=extents[n], other=extent))

    # --- layouts and lowerings ---------------------------------------------------------------------------------------

    def _layout(self, x: t.Layout) -> Layout | None:
        variables = VisibleNames({}, {}, {p: p for p in x.params}, {})
        places: list[tuple[str, Expr]] = []
        before = len(self.found)
        for name, e in x.places:
            self._attempt(lambda name=name, e=e: places.append((name, variables.index(e))))
        return Layout(x.name, x.params, tuple(places)) if len(self.found) == before else None

    def _layouts_fit(self, layouts: tuple[Layout, ...], operands: dict[str, Buffer]) -> None:
        known = {x.name: x for x in layouts}
        places = {x.name: x.span for x in self.item.layouts}
        for o in self.item.operands:
            b = operands[o.name]
            if b.scope in MEMORY:
                if b.scope in known and addressed(known[b.scope], b) is None:
                    form = ", ".join(f"{d}: …" for d in "ijklmnop"[: len(b.shape)])
                    self.found.append(
                        problems.NOT_REACHED(places[b.scope], layout=b.scope, name=b.name, last=LANES - 1, places=form)
                    )
            elif b.scope not in known:
                if not any(x.name == b.scope for x in self.item.layouts):
                    self.found.append(
                        problems.UNKNOWN_LAYOUT(
                            o.span,
                            near(b.scope, known, f'declare it: `layout "{b.scope}" (i, j) -> (lane: …, reg: …)`'),
                            name=b.scope,
                        )
                    )
            elif len(known[b.scope].params) != len(b.shape):
                count, rank = len(known[b.scope].params), len(b.shape)
                self.found.append(
                    problems.LAYOUT_RANK(places[b.scope], layout=b.scope, count=count, name=o.name, rank=rank)
                )
            elif (twice := _collision(known[b.scope], b)) is not None:
                (one, other), place = twice
                self.found.append(
                    problems.COLLISION(places[b.scope], layout=b.scope, one=one, other=other, name=o.name, place=place)
                )

    def _lowering(self, x: t.Lowering, i: Intrinsic) -> Lowering | None:
        if self.right:
            return Lowering(x.target, x.requires, x.kind, x.code)
        before = len(self.found)
        kind = kind_of(x.target)
        if not is_kind(x.target):
            self.found.append(problems.UNKNOWN_KIND(x.span, near(x.target, kinds()), kind=x.target))
        elif x.kind not in kind.forms:
            allowed = " or ".join(f"`{k}`" for k in kind.forms)
            self.found.append(problems.OTHER_FORM(x.span, form=x.kind, target=x.target, forms=allowed))
        elif kind.faults is not None and not self.found:
            self.found.extend(kind.faults(i, x.code, x.span))
        return Lowering(x.target, x.requires, x.kind, x.code) if len(self.found) == before else None


def _index_value(e: Expr) -> bool:
    """Whether an index occurs in a value other than as a subscript."""
    if isinstance(e, Load):
        return False
    return isinstance(e, Var) or any(map(_index_value, children(e)))


@lru_cache(maxsize=256)
def _collision(layout: Layout, b: Buffer) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], str] | None:
    """Two elements of an operand that share a place, and that place; None if every element has its own."""
    every = points(b.shape)
    values = dict(zip(layout.params, zip(*every, strict=True), strict=True))
    columns = [column(e, values, len(every)) for _, e in layout.places]
    places = list(zip(*columns, strict=True))
    if len(set(places)) == len(every) and not any(None in column for column in columns):
        return None
    seen: dict[tuple[int | None, ...], tuple[int, ...]] = {}
    for point, place in zip(every, places, strict=True):
        if None in place:
            return (point, point), "a division by 0"
        if place in seen:
            text = ", ".join(f"{name} {n}" for (name, _), n in zip(layout.places, place, strict=True))
            return (seen[place], point), text
        seen[place] = point
    return None
