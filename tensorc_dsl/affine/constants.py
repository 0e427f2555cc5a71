"""Finds the part of a program that depends on its constant inputs alone, and need not be computed in each call.

The *preparation* consists of nests at the top of the program that read only constant inputs and buffers that other nests of
the preparation write. All of them can run once, before the other nests: no other nest writes the buffers that they write,
none of these is an output, and no earlier nest outside of the preparation reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tensorc_dsl.affine.solve_sizes import told_by
from tensorc_dsl.ir.expr import Dim, Expr, dims_in, loads
from tensorc_dsl.ir.memo import by_identity
from tensorc_dsl.ir.program import Block, Buffer, Program, Stmt, walk


@dataclass(frozen=True, slots=True)
class Preparation:
    """`nests` are positions in the body of the program; `prepared` are the intermediates that its other nests read.

    `fixed` names the intermediates that the preparation writes, and `kept` the constant inputs that other nests read.
    """

    nests: frozenset[int]
    prepared: tuple[Buffer, ...]
    fixed: frozenset[str]
    kept: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Nest:
    reads: frozenset[str]
    writes: frozenset[str]
    dims: frozenset[Dim]


@by_identity(64)
def preparation(program: Program) -> Preparation:
    """The largest preparation of the program; without constant inputs it has no nests.

    A nest over an open dimension that the shapes of the constant inputs do not determine is not part of it.
    """
    constants = frozenset(p.name for p in program.params if p.constant)
    if not constants:
        return Preparation(frozenset(), (), frozenset(), frozenset())
    nests = [_nest(s, program) for s in program.body]
    told = told_by([p.described for p in program.params if p.constant])
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
