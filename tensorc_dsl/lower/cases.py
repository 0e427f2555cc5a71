"""Joins the kernels of the cases of a divided program into one, which branches to a case when it is called.

Each case is lowered by itself, for its own sizes, so passes know what its sizes are. What it prepares of constant inputs is
prepared for all cases at once, since the sizes of a call are not known then; cases that prepare the same share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tensorc_dsl.ir.cases import Box, common
from tensorc_dsl.ir.expr import ZERO, Binary, Compare, Dim, Expr, Load, conjunction, index, rewrite_expr
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import Program, Store, fresh
from tensorc_dsl.lower.flat import Alloc, Flat, If, Instruction, Kernel, Loop, Prepared, inside, map_exprs
from tensorc_dsl.lower.storage import params_of
from tensorc_dsl.proof.sets.constants import told_by
from tensorc_dsl.proof.sets.linear_forms import negate


def join(program: Program, kernels: Sequence[Kernel]) -> Kernel:
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
        prepares, guard = widened.body(kernel.preparation), _guard(program, case.sizes, told)
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


def _guard(program: Program, box: Box, told: frozenset[str]) -> Expr | None:
    """The condition on the sizes that constant inputs tell under which a case can run; None if it is none."""
    names = [(n, r) for n, r in zip(program.divided_by, box, strict=True) if n in told]
    limits = {d.name: (d.low, d.high) for d in program.dims}
    own = [(n, r) for n, r in names if r != limits[n]]
    if not own:
        return None
    part = replace(program, divided_by=tuple(n for n, _ in own), cases=())
    return _box(part, tuple(r for _, r in own))


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
