"""Lowers a scheduled program to a flat kernel, in named passes. `COMMON` has the passes that every target needs; a backend
appends its own.

The kernels of the cases of a divided program are joined into one, which branches to a case when it is called. Each case is
lowered by itself, for its own sizes, so passes know what its sizes are. What it prepares of constant inputs is prepared for
all cases at once, since the sizes of a call are not known then; cases that prepare the same share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.annotations import streamed
from tensorc_dsl.ir.cases import Box, common, described
from tensorc_dsl.ir.contraction import with_spread_sums
from tensorc_dsl.ir.expr import ZERO, Binary, Compare, Dim, Expr, Load, conjunction, constant, index, rewrite_expr
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.print import format_expr, format_program
from tensorc_dsl.ir.program import (
    Buffer,
    Case,
    For,
    Intrinsic,
    LoopKind,
    Program,
    Stmt,
    Store,
    fresh,
    intrinsic_of,
    is_in_order,
    walk,
)
from tensorc_dsl.ir.sizes import conditions_of, conditions_on
from tensorc_dsl.lower.erase import defuse, erase, with_old_elements
from tensorc_dsl.lower.flat import (
    Alloc,
    Flat,
    If,
    Instruction,
    Kernel,
    Loop,
    LowerError,
    Parallel,
    Param,
    Prepared,
    body_of,
    format_body,
    inside,
    map_exprs,
    most,
    span,
    within,
)
from tensorc_dsl.lower.partition import partition
from tensorc_dsl.lower.storage import buffer_loops, element_count, flatten_params, in_place, params_of, place
from tensorc_dsl.lower.trim_bounds import guard_folds, hoist_guards, known_of, narrow
from tensorc_dsl.proof.sets.constants import preparation, told_by
from tensorc_dsl.proof.sets.dependence import races
from tensorc_dsl.proof.sets.instructions import Match, match_nest, match_store
from tensorc_dsl.proof.sets.linear_forms import FAR, Interval, Ranges, negate
from tensorc_dsl.proof.sets.simplify import essential, extent_ranges
from tensorc_dsl.proof.sets.store_guards import never_negative_zero


def join_cases(program: Program, kernels: Sequence[Kernel]) -> Kernel:
    """The kernel of a divided program from those of its cases, in order."""
    params = params_of(program)
    dims = {d.name: d for d in program.dims}
    told = frozenset(d.name for d in told_by([p.described for p in params if p.constant]))
    body: list[Flat] = []
    before: list[Flat] = []
    prepared: list[Prepared] = []
    shared: dict[tuple[tuple[Flat, ...], tuple[Prepared, ...], Expr | None], dict[str, str]] = {}
    used = {p.name for p in params} | {name for k in kernels for name in _names(k)}
    earlier: list[Box] = []
    for case, kernel in zip(program.cases, kernels, strict=True):
        widened = _Widened(dims, {})
        prepares, guard = widened.body(kernel.preparation), _guard(program, case, told)
        guard = guard and widened.size(guard)
        own = tuple(replace(p, size=widened.size(p.size)) for p in kernel.prepared)
        key = (prepares, own, guard)
        if key not in shared:
            taken = {p.name for p in prepared}
            shared[key] = {p.name: fresh(p.name, used) if p.name in taken else p.name for p in own}
            renamed = _Widened(dims, shared[key]).body(kernel.preparation)
            before += (If(guard, renamed),) if guard is not None and renamed else renamed
            # Beyond the sizes of the case its own size may be anything.
            sizes = (p.size if guard is None else Binary("max", p.size, ZERO) for p in own)
            prepared += (replace(p, name=shared[key][p.name], size=n) for p, n in zip(own, sizes, strict=True))
        taken_by = [negate(_box(program, b)) for b in earlier if common(b, case.sizes) is not None]
        cond = conjunction((_box(program, case.sizes), *taken_by))
        assert cond is not None  # a box has a condition
        earlier.append(case.sizes)
        body += _within(cond, kernel, _Widened(dims, shared[key]))
    return Kernel(
        program.name,
        params,
        tuple(body),
        program.dims,
        tuple(before),
        tuple(prepared),
        frozenset[str]().union(*(k.kept for k in kernels)),
        kernels[0].streamed.intersection(*(k.streamed for k in kernels)),
        divided=True,
    )


def _within(cond: Expr, kernel: Kernel, widened: _Widened) -> Iterable[If]:
    """What a case runs, under its condition; a case may be divided, too."""
    body = widened.body(kernel.body)
    if not kernel.divided:
        yield If(cond, body)
        return
    for s in body:
        assert isinstance(s, If)
        both = conjunction((cond, s.cond))
        assert both is not None
        yield If(both, s.body)


def _box(program: Program, box: Box) -> Expr:
    """The condition that sizes of the program are in a box."""
    dims = {d.name: d for d in program.dims}
    found: list[Expr] = []
    for name, (low, high) in zip(program.divided_by, box, strict=True):
        d = dims[name]
        if low == high:
            found.append(Compare("==", d, index(low)))
            continue
        if low > d.low:
            found.append(Compare(">=", d, index(low)))
        if high is not None and high != d.high:
            found.append(Compare("<=", d, index(high)))
    return conjunction(tuple(found)) or Compare(">=", dims[program.divided_by[0]], ZERO)


def _guard(program: Program, case: Case, told: frozenset[str]) -> Expr | None:
    """The condition on the sizes that constant inputs tell under which a case can run; None if it is none. A condition of the
    program may be one on these sizes alone in a case of one size of another dimension."""
    names = [(n, r) for n, r in zip(program.divided_by, case.sizes, strict=True) if n in told]
    limits = {d.name: (d.low, d.high) for d in program.dims}
    own = [(n, r) for n, r in names if r != limits[n]]
    checked = {format_expr(c) for c in conditions_of(program.dims)}
    told_there = [d for d in case.program.dims if d.name in told]
    more = tuple(c for c in conditions_on(told_there) if format_expr(c) not in checked)
    if not own:
        return conjunction(more)
    part = replace(program, divided_by=tuple(n for n, _ in own), cases=())
    return conjunction((_box(part, tuple(r for _, r in own)), *more))


def _names(k: Kernel) -> Iterable[str]:
    yield from (p.name for p in k.prepared)
    yield from (s.name for s in inside((*k.preparation, *k.body)) if isinstance(s, Alloc))


class _Widened:
    """What a case has, over the dimensions of the whole program, since a name has one range in a kernel. Prepared buffers
    have the names of the kernel."""

    def __init__(self, dims: Mapping[str, Dim], names: Mapping[str, str]) -> None:
        self._dims = dims
        self._names = names

    def size(self, e: Expr) -> Expr:
        """The expression over the whole program's dimensions."""
        return rewrite_expr(e, self._node)

    def _node(self, e: Expr) -> Expr:
        match e:
            case Dim(name=name):
                return self._dims[name]
            case Load(buffer=buffer) if buffer in self._names:
                return replace(e, buffer=self._names[buffer])
            case _:
                return e

    def body(self, body: tuple[Flat, ...]) -> tuple[Flat, ...]:
        """The statements over the whole program's dimensions."""
        return tuple(map(self._flat, body))

    def _flat(self, s: Flat) -> Flat:
        s = map_exprs(s, self.size)
        match s:
            case Store():
                return replace(s, buffer=self._names.get(s.buffer, s.buffer))
            case Alloc():
                s = replace(s, size=self.size(s.size))
            case Instruction():
                s = replace(s, tiles=tuple(replace(t, buffer=self._names.get(t.buffer, t.buffer)) for t in s.tiles))
            case Loop():
                s = replace(s, ahead=tuple((self._names.get(name, name), n) for name, n in s.ahead))
            case _:
                pass
        return replace(s, body=self.body(s.body))


# Tensorized nests as instructions. The mark on a loop is only a request: it is proved again, first and last.
#
# Until the last pass the nest stays a nest, of a kind that no pass changes, so that passes which move buffers or subscripts
# update its subscripts too. The tiles of the instruction are computed at the end. If a pass has changed the nest, it runs as
# loops.


def only_proven(program: Program) -> Program:
    """The program with tensorized nests that do not compute what their instructions do replaced by serial loops."""

    def go(body: tuple[Stmt, ...], around: tuple[For, ...], inside: bool) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, For):
                named = intrinsic_of(program, s)
                proven = inside or (named is not None and isinstance(match_nest(around, s, named), Match))
                kind = LoopKind.SERIAL if s.kind is LoopKind.TENSORIZED and not proven else s.kind
                s = replace(s, kind=kind, body=go(s.body, (*around, s), proven))
            out.append(s)
        return tuple(out)

    return replace(program, body=go(program.body, (), False)) if program.intrinsics else program


def instructions(program: Program) -> Mapping[str, Intrinsic]:
    """The instructions of tensorized nests, by the outermost loop of the nest that has more than one iteration."""
    out: dict[str, Intrinsic] = {}
    for _, s in walk(program.body):
        if isinstance(s, For) and (named := intrinsic_of(program, s)) is not None:
            nest = [s, *(x for _, x in walk(s.body) if isinstance(x, For))]
            first = next((x for x in nest if constant(x.extent) != 1), s)
            out[first.var] = named
    return out


def bind_instructions(
    body: tuple[Flat, ...], named: Mapping[str, Intrinsic], ranges: Ranges | None = None
) -> tuple[Flat, ...]:
    """Every tensorized nest as an instruction, or as serial loops; accesses have one subscript here."""
    out: list[Flat] = []
    known: Ranges = ranges or {}
    for s in body:
        if isinstance(s, Store):
            out.append(s)
            continue
        below = bind_instructions(body_of(s), named, within(known, s))
        if isinstance(s, Loop) and s.kind is LoopKind.TENSORIZED:
            serial = replace(s, kind=LoopKind.SERIAL, body=below)
            intrinsic = named.get(s.var)
            match = None if intrinsic is None else match_flat(s, intrinsic, known)
            out.append(Instruction(intrinsic, match.tiles, (serial,)) if intrinsic and match else serial)
        else:
            out.append(replace(s, body=below))
    return tuple(out)


def match_flat(s: Loop, intrinsic: Intrinsic, outer: Ranges) -> Match | None:
    """The match of a nest of flat loops with an instruction; None if it does something else. `outer`: the loops around."""
    loops: list[tuple[str, int | None]] = []
    ranges = dict(outer)
    stmt: Flat = s
    while isinstance(stmt, Loop):
        if constant(stmt.begin) != 0 or len(stmt.body) != 1:
            return None
        loops.append((stmt.var, constant(stmt.end)))
        ranges[stmt.var] = span(stmt.end)
        stmt = stmt.body[0]
    found = match_store(loops, stmt, intrinsic, ranges) if isinstance(stmt, Store) else None
    return found if isinstance(found, Match) else None


# The passes of lowering. Each has a name and maps a unit of work to the next one.


@frozen
class Unit:
    """Some nests of a program, on their way to flat loops.

    `whole` is the scheduled program, and `program` these nests of it, with buffers that other nests prepare among its
    parameters. From the pass `erase` on, `flat` has the loops; before, it is None. `carried` is that of `lower.erase.Erased`.
    """

    whole: Program
    program: Program
    flat: tuple[Flat, ...] | None
    carried: dict[str, frozenset[str]]

    @property
    def loops(self) -> tuple[Flat, ...]:
        """The flat loops. Only for passes behind `erase`."""
        assert self.flat is not None
        return self.flat


@frozen
class Pass:
    name: str
    run: Callable[[Unit], Unit]
    about: str


def format_unit(unit: Unit) -> str:
    """The unit as text: a program until blocks are erased, loops from then on."""
    return format_program(unit.program) if unit.flat is None else format_body(unit.flat)


# The last check of loops whose iterations run at once, whoever wrote them.


def require_independent(program: Program) -> None:
    """Raises LowerError if iterations that run at once may depend on each other. Steps make no such loop; a program that is
    written out may have one."""
    for loop, dependence in races(program):
        raise LowerError(f"the iterations of the {loop.kind} loop `{loop.var}` cannot run at once: {dependence}")


MOST_BUFFERS = 256
"""The largest number of buffers: flat loops may be nested as deep as there are buffers, and pairs of buffers are compared."""


def lower(program: Program, passes: Sequence[Pass]) -> Kernel:
    """The kernel that runs every block instance of `program`, in an order that its loops allow.

    Serial loops keep their order; the order of parallel and vectorized loops does not matter. Nests that depend on
    constant inputs alone run once, before. Open dimensions stay open: one kernel serves all their sizes, and that of a
    divided program branches to the case of the sizes. Raises LowerError if the shapes of its arguments do not determine a
    size, there are too many buffers, or a loop without an order needs one.
    """
    if program.cases:
        return join_cases(program, [lower(c.program, passes) for c in program.cases])
    program = in_place(resolved(program))
    if untold := set(program.dims) - told_by([p.described for p in program.params]):
        names = ", ".join(sorted(d.name for d in untold))
        raise LowerError(f"the shapes of the arguments of {program.name} do not tell {names}")
    if len(program.buffers) > MOST_BUFFERS:
        count = len(program.buffers)
        raise LowerError(f"{program.name} has {count} intermediate buffers, and at most {MOST_BUFFERS} are lowered")
    require_independent(program)
    found = preparation(program)
    outputs = program.outputs
    params = tuple(Param.of(p, output=p in outputs) for p in program.params)
    body, before = (_run(u, passes).loops for u in _units(program, found.nests, found.prepared))
    made = tuple(Prepared(b.name, b.dtype, element_count(b)) for b in found.prepared)
    return Kernel(program.name, params, body, program.dims, before, made, found.kept, streamed(program))


def lower_until(program: Program, passes: Sequence[Pass], last: str) -> str:
    """The program after the pass `last`, as text: the part that runs in each call, and the part that is prepared before; of a
    divided program those of each case."""
    if program.cases:
        texts = (lower_until(c.program, passes, last) for c in program.cases)
        sizes = (described(program.divided_by, c.sizes) for c in program.cases)
        return "\n".join(f"// {said}\n{text}" for said, text in zip(sizes, texts, strict=True))
    program = in_place(resolved(program))
    names = [p.name for p in passes]
    found = preparation(program)
    body, before = (_run(u, passes[: names.index(last) + 1]) for u in _units(program, found.nests, found.prepared))
    text = format_unit(body)
    return f"{text}\n// prepared once\n{format_unit(before)}" if before.program.body else text


def _units(
    program: Program, prepared_nests: Sequence[int] | frozenset[int], prepared: tuple[Buffer, ...]
) -> tuple[Unit, Unit]:
    """The unit that runs in each call, and the unit that is prepared before."""
    calls = [n for n in range(len(program.body)) if n not in prepared_nests]
    return _unit(program, calls, prepared), _unit(program, sorted(prepared_nests), prepared)


def _unit(whole: Program, nests: list[int], prepared: tuple[Buffer, ...]) -> Unit:
    """Some of the nests of a program. They access prepared buffers like arguments."""
    scratch = tuple(b for b in whole.buffers if b not in prepared)
    program = replace(whole, body=tuple(whole.body[n] for n in nests), buffers=scratch)
    return Unit(whole, replace(program, params=(*whole.params, *prepared)), None, {})


def _run(unit: Unit, passes: Sequence[Pass]) -> Unit:
    if not unit.program.body:
        return replace(unit, flat=())
    for p in passes:
        unit = p.run(unit)
    return unit


def _drop_implied(u: Unit) -> Unit:
    return replace(u, program=replace(u.program, body=_essential(u.program.body, {}))) if u.program.dims else u


def _essential(body: tuple[Stmt, ...], ranges: dict[str, Interval]) -> tuple[Stmt, ...]:
    """The statements without guards that others imply: a split of an open loop into three levels guards two of them."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, For):
            out.append(replace(s, body=_essential(s.body, {**ranges, **extent_ranges((s,))})))
        else:
            out.append(replace(s, where=essential(s.where, ranges)))
    return tuple(out)


def _erase(u: Unit) -> Unit:
    program = with_old_elements(u.program)
    erased = erase(program)
    return replace(u, program=program, flat=erased.body, carried=erased.carried)


def _place(u: Unit) -> Unit:
    return replace(u, flat=place(u.loops, u.program.buffers, buffer_loops(u.program), u.carried))


def collapse_parallel(body: tuple[Flat, ...], *, inside: bool) -> tuple[Flat, ...]:
    """The body with parallel loops as `Parallel`, perfectly nested ones as one as far as 64 bits count their iterations;
    inside another one they become serial."""
    out: list[Flat] = []
    for s in body:
        if isinstance(s, Store):
            out.append(s)
        elif isinstance(s, Loop) and s.kind is LoopKind.PARALLEL:
            if inside:
                inner = collapse_parallel(s.body, inside=True)
                out.append(replace(s, kind=LoopKind.SERIAL, body=inner))
                continue
            loops = [s]
            while len(loops[-1].body) == 1:
                only = loops[-1].body[0]
                if not isinstance(only, Loop) or only.kind is not LoopKind.PARALLEL or constant(only.begin) != 0:
                    break
                if prod(most(x.end) or FAR for x in (*loops, only)) > FAR:
                    break
                loops.append(only)
            inner = collapse_parallel(loops[-1].body, inside=True)
            out.append(Parallel(tuple(x.var for x in loops), tuple(x.end for x in loops), inner))
        else:
            out.append(replace(s, body=collapse_parallel(body_of(s), inside=inside)))
    return tuple(out)


def _partition(u: Unit) -> Unit:
    is_open = bool(u.program.dims)
    loops = guard_folds(u.loops, never_negative_zero(u.whole)) if is_open else u.loops
    return replace(u, flat=partition(loops, open_sizes=is_open))


def _bounds(u: Unit) -> Unit:
    return replace(u, flat=narrow(u.loops, known_of(u.whole, u.program.params)))


def _spread(u: Unit) -> Unit:
    return replace(u, program=with_spread_sums(u.program)) if is_in_order(u.whole) else u


SPREAD = "of a program that keeps its order: choices of products that are added are choices of sums"

COMMON = (
    Pass("prove", lambda u: replace(u, program=only_proven(u.program)), "instructions without a proof are loops"),
    Pass("spread", _spread, SPREAD),
    Pass("defuse", lambda u: replace(u, program=defuse(u.program)), "fused loops whose parts are needed apart"),
    Pass("essential", _drop_implied, "guards that others imply go"),
    Pass("erase", _erase, "blocks become stores, `where` guards, `init` stores of its own"),
    Pass("guards", lambda u: replace(u, flat=hoist_guards(u.loops)), "guards move out of loops that they do not read"),
    Pass("place", _place, "buffers get memory: the stack, the kernel's, a worker's"),
    Pass("flatten", lambda u: replace(u, flat=flatten_params(u.loops, u.program.params)), "one subscript an access"),
    Pass(
        "collapse", lambda u: replace(u, flat=collapse_parallel(u.loops, inside=False)), "parallel nests are one loop"
    ),
    Pass("partition", _partition, "guarded loops: main parts and ends; rows: what is between their borders"),
    Pass(
        "bounds", _bounds, "loops begin and end where the conditions of their work do, scattered ones where data choose"
    ),
)
"""The passes that every target needs, in order."""
