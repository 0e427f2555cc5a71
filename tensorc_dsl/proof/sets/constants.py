"""The part of a program that depends on its constant inputs alone, and the sizes that shapes of arrays determine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.expr import ZERO, Binary, Dim, Expr, add, dims_in, free_vars, index, loads, mul, sub
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Block, Buffer, Program, Stmt, walk
from tensorc_dsl.ir.sizes import conditions_of
from tensorc_dsl.proof.sets.simplify import bounds, linear_form

# Solves the shapes of arrays for the sizes of open dimensions, as steps that run-time code and generated code take.


Extents = tuple[Expr, ...]
"""The shape of an array, as expressions over open dimensions."""


@frozen
class Step:
    """`dim` is (the extent of an array's axis − `rest`) / `factor`, if that is defined; both are over sizes found before.

    After all steps, every extent has to be compared with its value for the sizes that were found. Strides that an array
    declares are further extents: axes beyond its dimensions.
    """

    dim: Dim
    array: int
    axis: int
    factor: Expr
    rest: Expr

    @property
    def is_sure(self) -> bool:
        """Whether the factor is nonzero for all sizes."""
        low, high = bounds(self.factor, {})
        return (low is not None and low > 0) or (high is not None and high < 0)


def solve_sizes(shapes: Sequence[Extents], given: Iterable[Dim] = ()) -> tuple[Step, ...]:
    """A step for each open dimension that the shapes determine, besides those that are given, in an executable order.

    A step that is not sure is used only if no other one determines the size.
    """
    known = set(given)
    steps: list[Step] = []
    places = [(array, axis, e) for array, shape in enumerate(shapes) for axis, e in enumerate(shape)]
    while True:
        found = [s for at in places if (s := _solved(*at, known)) is not None]
        step = next((s for s in found if s.is_sure), None) or next(iter(found), None)
        if step is None:
            return tuple(steps)
        steps.append(step)
        known.add(step.dim)


def told_by(shapes: Sequence[Extents]) -> frozenset[Dim]:
    """The open dimensions that the shapes determine, for all sizes."""
    steps = solve_sizes(shapes)
    sure = next((n for n, s in enumerate(steps) if not s.is_sure), len(steps))
    return frozenset(s.dim for s in steps[:sure])


def alternatives(shapes: Sequence[Extents], dims: Iterable[Dim]) -> tuple[Step, ...]:
    """A step for each open dimension in each extent that is linear in it, over all other ones."""
    every = {*dims}
    places = [(array, axis, e) for array, shape in enumerate(shapes) for axis, e in enumerate(shape)]
    return tuple(s for at in places for d in dims_in(at[2]) if (s := _solved(*at, every - {d})) is not None)


def _solved(array: int, axis: int, e: Expr, known: set[Dim]) -> Step | None:
    """The step for the only unknown of an extent; None if the extent is not linear in it or has other unknowns."""
    unknown = dims_in(e) - known
    if len(unknown) != 1:
        return None
    (dim,) = unknown
    parts = _linear_in(dim, e)
    return None if parts is None or parts[0] == ZERO else Step(dim, array, axis, *parts)


def _linear_in(dim: Dim, e: Expr) -> tuple[Expr, Expr] | None:
    """A factor and a rest without `dim` such that the expression is `factor * dim + rest`; None if there are none."""
    if e == dim:
        return index(1), ZERO
    terms, constant = linear_form(e, {})
    factor: Expr = ZERO
    rest: Expr = index(constant)
    for atom, c in terms.items():
        parts = _atom_in(dim, atom)
        if parts is None:
            return None
        factor, rest = (_plus(x, part, c) for x, part in zip((factor, rest), parts, strict=True))
    return factor, rest


def _atom_in(dim: Dim, atom: Expr) -> tuple[Expr, Expr] | None:
    if dim not in dims_in(atom):
        return ZERO, atom
    if atom == dim:
        return index(1), ZERO
    if isinstance(atom, Binary) and atom.op == "*":
        inner, other = (atom.lhs, atom.rhs) if dim in dims_in(atom.lhs) else (atom.rhs, atom.lhs)
        parts = None if dim in dims_in(other) else _linear_in(dim, inner)
        return None if parts is None else (mul(parts[0], other), mul(parts[1], other))
    return None


def _plus(x: Expr, y: Expr, times: int) -> Expr:
    """`x + times * y`, written without a negative factor."""
    if y == ZERO:
        return x
    return add(x, mul(y, index(times))) if times > 0 else sub(x, mul(y, index(-times)))


# Finds the part of a program that depends on its constant inputs alone, and need not be computed in each call.
#
# The *preparation* consists of nests at the top of the program that read only constant inputs and buffers that other nests
# of the preparation write. All of them can run once, before the other nests: no other nest writes the buffers that they
# write, none of these is an output, and no earlier nest outside of the preparation reads them.


@frozen
class Preparation:
    """`nests` are positions in the body of the program; `prepared` are the intermediates that its other nests read.

    `fixed` names the intermediates that the preparation writes, and `kept` the constant inputs that other nests read.
    """

    nests: frozenset[int]
    prepared: tuple[Buffer, ...]
    fixed: frozenset[str]
    kept: frozenset[str]


@frozen
class _Nest:
    reads: frozenset[str]
    writes: frozenset[str]
    dims: frozenset[Dim]


@by_identity(64)
def preparation(program: Program) -> Preparation:
    """The largest preparation of the program; without constant inputs it has no nests.

    A nest over an open dimension that the shapes of the constant inputs do not determine is not part of it, nor one over a
    dimension of which conditions say something beside such a one: a step may rely on them, and nothing checks them before the
    other sizes are known.
    """
    constants = frozenset(b.name for b in (*program.params, *program.buffers) if b.constant)
    if not constants:
        return Preparation(frozenset(), (), frozenset(), frozenset())
    nests = [_nest(s, program) for s in program.body]
    told = _checked(told_by([p.described for p in program.params if p.constant]), program.dims)
    params = frozenset(p.name for p in program.params)
    passing = frozenset(b.name for b in program.buffers if b.scope == "global")
    inside = [n for n, x in enumerate(nests) if x.dims <= told and not x.writes & params]
    while True:
        outside = [x for n, x in enumerate(nests) if n not in inside]
        known = constants | _names(nests[n].writes for n in inside)
        written, read = _names(x.writes for x in outside), _names(x.reads for x in outside)
        stay = [
            n
            for n in inside
            if nests[n].reads <= known - written
            and not nests[n].writes & written
            and nests[n].writes & read <= passing
            and not any(m not in inside and nests[m].reads & nests[n].writes for m in range(n))
        ]
        if stay == inside:
            break
        inside = stay
    fixed = _names(nests[n].writes for n in inside)
    prepared = tuple(b for b in program.buffers if b.name in fixed & read)
    return Preparation(frozenset(inside), prepared, fixed, constants & read)


def _checked(told: frozenset[Dim], dims: Iterable[Dim]) -> frozenset[Dim]:
    """Those of the dimensions that are told of which each condition is on such dimensions alone."""
    names = {d.name for d in told}
    conditions = [free_vars(c) for c in conditions_of(dims)]
    while lost := {n for c in conditions if not c <= names for n in c & names}:
        names -= lost
    return frozenset(d for d in told if d.name in names)


def _nest(s: Stmt, program: Program) -> _Nest:
    own = _in_text(s)
    shapes = [e for name in own.reads | own.writes for e in program.buffer(name).described]
    return _Nest(own.reads, own.writes, own.dims.union(*map(dims_in, shapes)))


@by_identity(256)
def _in_text(s: Stmt) -> _Nest:
    """What the text of a nest says; the open dimensions of the shapes of its buffers are missing. Most steps change one."""
    reads: set[str] = set()
    writes: set[str] = set()
    exprs: list[Expr] = []
    for _, x in walk((s,)):
        if isinstance(x, Block):
            writes.update(store.buffer for store in (*x.init, *x.body))
            exprs += [e for store in (*x.init, *x.body) for e in (store.value, *store.indices)]
            exprs += [*x.where, *(e for it in x.iters for e in (it.extent, it.binding))]
        else:
            exprs.append(x.extent)
    for e in exprs:
        reads.update(x.buffer for x in loads(e))
    return _Nest(frozenset(reads), frozenset(writes), frozenset[Dim]().union(*map(dims_in, exprs)))


def _names(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)
