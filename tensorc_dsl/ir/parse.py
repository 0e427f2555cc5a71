"""Parses the text of a program: `parse_program(format_program(p)) == p`.

The instructions that it uses stand before it, as items of their own.
Loops that are not nested in each other may share a name in a text; the later ones are renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, help_note
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir import problems
from tensorc_dsl.ir.cases import Range, box_of, common, counts_of, dims_within, narrowed, whole
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.input_views import view_of
from tensorc_dsl.ir.intrinsics import intrinsic_from_tree
from tensorc_dsl.ir.parse_expr import VisibleNames, literal_value
from tensorc_dsl.ir.program import (
    VIEW,
    Annotation,
    Axis,
    Block,
    Buffer,
    Case,
    For,
    Intrinsic,
    Iter,
    IterKind,
    LoopKind,
    Program,
    Stmt,
    Store,
    fresh,
)
from tensorc_dsl.ir.sizes import limited
from tensorc_dsl.ir.verify import ProgramError, verify
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import near
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.traversal import walk

T = TypeVar("T")


def parse_program(source: Source) -> Program:
    """The program in a text that holds exactly one. Raises TschedError with every finding."""
    items = list(parse(source).items)
    intrinsics = [i for i in items if isinstance(i, t.IntrinsicDef)]
    others = [i for i in items if not isinstance(i, t.IntrinsicDef)]
    if not others:
        raise TschedError(problems.NO_PROGRAM(Span(source, 0, 0)))
    if len(others) > 1:
        raise TschedError(problems.ONE_PROGRAM(_place(others[1])))
    program = others[0]
    if not isinstance(program, t.ProgramDef):
        raise TschedError(problems.OTHER_ITEM(_place(program)))
    return program_from_tree(program, tuple(map(intrinsic_from_tree, intrinsics)))


def _place(item: t.Item) -> Span:
    return item.span if isinstance(item, t.UseDecl) else item.name.span


def program_from_tree(definition: t.ProgramDef, intrinsics: tuple[Intrinsic, ...] = ()) -> Program:
    """The program of a `program` item, which may use the given instructions. Raises TschedError with every finding."""
    return _Reader(definition, intrinsics).program()


class _Reader:
    """Reads one item. Findings are collected, and errors that follow from an earlier one are not reported."""

    def __init__(
        self, definition: t.ProgramDef, intrinsics: tuple[Intrinsic, ...], limits: Mapping[str, Range] | None = None
    ) -> None:
        self.limits = limits or {}
        """The sizes of the case that is read, by dimension."""
        self.definition = definition
        self.intrinsics = intrinsics
        self.found: list[Diagnostic] = []
        self.buffers: dict[str, Buffer] = {}
        self.dims: dict[str, ir.Dim] = {}
        self.seen: dict[str, str] = {}  # loops and blocks so far: name in the text -> kind, for messages
        self.used = _all_names(definition)

    def program(self) -> Program:
        d = self.definition
        for p in d.params:
            for e in (*p.type.shape, *p.strides):
                self.dims |= {n.id: ir.Dim(n.id) for n in walk(e) if isinstance(n, t.Name)}
        self.ranges(d.sizes)
        self.occurring(d.conditions)
        if self.limits:
            self.dims |= dims_within(self.dims.values(), self.limits)
        params = [self.buffer(p.name, p.type, "global", (), p.span, p.constant, p.strides, p.updates) for p in d.params]
        buffers = [self.buffer(b.name, b.type, b.scope or "global", b.annotations, b.span) for b in d.buffers]
        body = self.stmts(d.body, {})
        annotations = self.attempt(lambda: annotations_of(d.annotations))
        cases = () if d.select is None else tuple(self.cases(d.select))
        if self.found:
            raise TschedError(*self.found)
        program = Program(
            d.name,
            tuple(b for b in params if b),
            tuple(b for b in buffers if b),
            body,
            tuple(self.dims.values()),
            annotations or (),
            self.intrinsics,
            () if d.select is None else tuple(map(str, d.select.names)),
            cases,
        )
        try:
            verify(program)
        except ProgramError as e:
            notes = (help_note(e.repair),) if e.repair else ()
            raise TschedError(problems.NOT_WELL_FORMED(d.name.span, notes, reason=str(e))) from None
        return program

    def cases(self, select: t.ProgramSelect) -> Iterator[Case]:
        """The cases without findings. Each is read as a program with the parameters of the whole, and then for its sizes."""
        names = tuple(map(str, select.names))
        for name in select.names:
            if name not in self.dims:
                self.found.append(problems.NO_DIMENSION(name.span, near(name, self.dims, "leave it out"), name=name))
                return
        every = whole(self.dims.values(), names)
        d = self.definition
        for c in select.cases:
            box = self.attempt(lambda c=c: box_of(c.sizes, names, c.span))
            if box is None or (inside := common(box, every)) is None:
                continue
            limits = {**self.limits, **dict(zip(names, inside, strict=True))}
            inner = t.ProgramDef(
                d.name, d.params, d.sizes, d.conditions, c.buffers, c.body, c.annotations, c.select, "", c.span
            )
            program = self.attempt(_Reader(inner, self.intrinsics, limits).program)
            if program is not None:
                yield Case(inside, narrowed(program, (), ()))

    def attempt(self, make: Callable[[], T]) -> T | None:
        """The result of `make`; None, with its findings recorded, if it raises TschedError."""
        try:
            return make()
        except TschedError as e:
            self.found.extend(e.diagnostics)
            return None

    def scope(self, variables: Mapping[str, str], hidden: Mapping[str, str] | None = None) -> VisibleNames:
        return VisibleNames(self.buffers, self.dims, variables, hidden or {})

    def ranges(self, sizes: tuple[tuple[str, t.RangeExpr], ...]) -> None:
        """Record the range of each open dimension."""
        seen: set[str] = set()
        for name, e in sizes:
            match e:
                case _ if name in seen:
                    self.found.append(problems.SIZES_TWICE(e.span, name=name))
                case _ if name not in self.dims:
                    self.found.append(problems.NO_DIMENSION(e.span, near(name, self.dims, "leave it out"), name=name))
                case t.RangeExpr(low=t.Number(value=int(low)), high=t.Number(value=int(high))) if 0 <= low <= high:
                    weights = self.weights(e.like)
                    at = (*weights, *map(self.timed, e.at))
                    self.dims[name] = ir.Dim(name, low, high, at, tuple(weights.values()))
                    seen.add(name)
                case _:
                    self.found.append(problems.NO_SIZES(e.span, name=name))

    def occurring(self, conditions: tuple[t.Expr, ...]) -> None:
        """Record what sizes meet beside their ranges."""
        names = VisibleNames({}, {name: ir.Dim(name) for name in self.dims}, {}, {})
        told = tuple(c for e in conditions if (c := self.attempt(lambda e=e: names.condition(e))) is not None)
        self.dims = {d.name: d for d in limited(self.dims.values(), told)}

    def weights(self, like: t.Expr | None) -> dict[int, float]:
        """The sizes that a map lists, with their weights."""
        if like is None:
            return {}
        found = self.attempt(lambda: counts_of(like))
        return {} if found is None else found

    def timed(self, e: t.Expr) -> int:
        """The number that `e` spells, a size at which kernels are timed."""
        match e:
            case t.Number(value=int(value)):
                return value
            case _:
                self.found.append(problems.NOT_TIMED(e.span))
                return 0

    def buffer(
        self,
        name: str,
        type_: t.TensorType,
        scope: str,
        annotations: tuple[tuple[str, t.Expr], ...],
        span: Span,
        constant: bool = False,
        strides: tuple[t.Expr, ...] = (),
        updates: str | None = None,
    ) -> Buffer | None:
        def make() -> Buffer:
            if name in self.buffers:
                raise TschedError(problems.TWO_BUFFERS(span, name=name))
            if type_.dtype not in DTYPES:
                raise TschedError(
                    problems.UNKNOWN_TYPE(
                        type_.span, near(type_.dtype, DTYPES, f"the types are {', '.join(DTYPES)}"), name=type_.dtype
                    )
                )
            shape = tuple(self.scope({}).index(e) for e in type_.shape)
            apart = tuple(self.scope({}).index(e) for e in strides)
            notes = dict(annotations_of(annotations))
            view = None
            if (text := notes.pop(VIEW, None)) is not None:
                view = view_of(str(text), lambda names, e: self.scope({n: n for n in names}).index(e))
                if view is None or view.base not in self.buffers:
                    repair = help_note(
                        'a view names an input and its subscripts: `@("view", "[h, d] = X[h * 64 + d]")`'
                    )
                    raise TschedError(
                        problems.NOT_WELL_FORMED(span, (repair,), reason=f'`{name}` is no view: "{text}"')
                    )
            return Buffer(
                str(name),
                DTYPES[type_.dtype],
                shape,
                scope,
                tuple(notes.items()),
                constant if view is None else self.buffers[view.base].constant,
                apart,
                str(updates or ""),
                view,
            )

        made = self.attempt(make)
        if made is not None:
            self.buffers[name] = made
        return made

    # --- loops -------------------------------------------------------------------------------------------------------

    def stmts(self, body: Iterable[t.ProgramStmt], around: Mapping[str, str]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in body:
            made = self.loop(s, around) if isinstance(s, t.LoopStmt) else self.block(s, around)
            if made is not None:
                out.append(made)
        return tuple(out)

    def loop(self, s: t.LoopStmt, around: Mapping[str, str]) -> Stmt | None:
        annotations = self.attempt(lambda: annotations_of(s.annotations))
        axis = None if s.axis is None else self.attempt(lambda: _axis(s))
        if len(s.loops) > 1 and (s.kind != "serial" or s.annotations):
            self.found.append(problems.SHARED_HEADER(s.loops[1].span, name=s.loops[1].name))
        names = dict(around)
        made: list[tuple[str, ir.Expr | None]] = []
        for h in s.loops:
            extent = self.attempt(lambda h=h: self.scope({}, _no_loops(names)).index(h.extent))
            name = self.attempt(lambda h=h: self.loop_name(h, names))
            names[h.name] = name or h.name
            made.append((names[h.name], extent))
        body = self.stmts(s.body, names)
        if not s.body:
            self.found.append(problems.NO_BODY(s.span, name=made[-1][0]))
        nest: For | None = None
        for name, extent in reversed(made):
            inner = body if nest is None else (nest,)
            nest = For(name, extent or ir.ONE, inner, LoopKind(s.kind), annotations or (), axis)
        return nest

    def loop_name(self, h: t.LoopHeader, around: Mapping[str, str]) -> str:
        """The loop's name in the program: the name in the text if that is still free."""
        if h.name in around:
            raise TschedError(problems.LOOP_IN_LOOP(h.span, name=h.name))
        if h.name in self.dims or h.name in self.buffers:
            what = "an open dimension" if h.name in self.dims else "a buffer"
            raise TschedError(problems.LOOP_TAKEN(h.span, name=h.name, what=what))
        taken = self.seen.get(h.name)
        if taken == "block":
            raise TschedError(problems.LOOP_TAKEN(h.span, name=h.name, what="a block"))
        if taken is None:
            self.seen[h.name] = "loop"
            return h.name
        return fresh(h.name, self.used)

    # --- blocks ------------------------------------------------------------------------------------------------------

    def block(self, s: t.BlockStmt, around: Mapping[str, str]) -> Block | None:
        before = len(self.found)
        if taken := self.seen.get(s.name):
            self.found.append(problems.BLOCK_TAKEN(s.span, name=s.name, what=taken))
        self.seen.setdefault(s.name, "block")
        outside = self.scope(around, {i.name: "bindings and conditions are over loops" for i in s.iters})
        iters: dict[str, Iter] = {}
        for i in s.iters:
            made = self.attempt(lambda i=i: self.iterator(i, outside, around, iters))
            # A wrong iterator still defines its name, so that its uses are not reported too.
            iters[i.name] = made or Iter(i.name, IterKind(i.kind), ir.ONE, ir.ZERO)
        where = [self.attempt(lambda c=c: outside.guard(c)) for c in s.where]
        loops = {
            name: f"a store is over the block's iterators; bind one: `spatial v{name} in … = {name}`"
            for name in around
            if name not in iters
        }
        spatial = {n: n for n, i in iters.items() if i.kind is not IterKind.REDUCE}
        reduce = {n: "`init` runs once for all steps of the reduction" for n in iters if n not in spatial}
        inside, at_init = self.scope({n: n for n in iters}, loops), self.scope(spatial, {**loops, **reduce})
        init = [self.attempt(lambda x=x: _store(x, at_init)) for x in s.init]
        body = [self.attempt(lambda x=x: _store(x, inside)) for x in s.body]
        annotations = self.attempt(lambda: annotations_of(s.annotations))
        if not s.body:
            self.found.append(problems.NO_STORE(s.span, name=s.name))
        if len(self.found) > before:
            return None
        return Block(
            s.name, tuple(iters.values()), tuple(x for x in body if x), tuple(x for x in init if x),
            tuple(c for c in where if c), annotations or (),
        )  # fmt: skip

    def iterator(
        self, i: t.IterDecl, outside: VisibleNames, around: Mapping[str, str], before: Mapping[str, Iter]
    ) -> Iter:
        if i.name in before:
            raise TschedError(problems.TWO_ITERATORS(i.span, name=i.name))
        if i.name in around or i.name in around.values():
            raise TschedError(problems.ITERATOR_TAKEN(i.span, name=i.name))
        extent = self.scope({}, _no_loops((*around, *before))).index(i.extent)
        return Iter(i.name, IterKind(i.kind), extent, outside.index(i.binding))


def _no_loops(names: Iterable[str]) -> dict[str, str]:
    """For each loop or iterator name, the reason why an extent cannot use it."""
    repair = "an extent is made of numbers and open dimensions: run over all, and leave out with `where …` in the block"
    return dict.fromkeys(names, repair)


def _store(s: t.StoreStmt, scope: VisibleNames) -> Store:
    buffer = scope.buffer(s.buffer, s.buffer.span)
    return Store(buffer.name, scope.subscripts(buffer, s.indices, s.span), scope.stored(s.value, buffer))


def _axis(s: t.LoopStmt) -> Axis:
    name = s.axis or ""
    try:
        return Axis(name)
    except ValueError:
        names = [str(a) for a in Axis]
        notes = near(name, names, f"the axes are {', '.join(names)}")
        raise TschedError(problems.UNKNOWN_AXIS(s.span, notes, name=name)) from None


def annotations_of(items: tuple[tuple[str, t.Expr], ...]) -> tuple[Annotation, ...]:
    """The annotations in a text, sorted by key. Raises TschedError (E0202, E0209)."""
    values: dict[str, int | float | str | bool] = {}
    for key, e in items:
        if key in values:
            raise TschedError(problems.ANNOTATION_TWICE(e.span, key=key))
        values[key] = literal_value(e)
    return tuple(sorted(values.items(), key=lambda item: item[0]))


def _all_names(d: t.ProgramDef) -> set[str]:
    """All names in the text, which a renamed loop must avoid."""
    names: set[str] = {x.name for x in (*d.params, *d.buffers)}
    for node in walk(d):
        match node:
            case t.Name(id=name) | t.LoopHeader(name=name) | t.BlockStmt(name=name) | t.IterDecl(name=name):
                names.add(name)
            case _:
                pass
    return names
