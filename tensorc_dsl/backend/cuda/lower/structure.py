"""Cuts a kernel into phases: bound loops become values of a thread, and what is between them uniform loops and guards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tensorc_dsl.affine.simplify import conjuncts
from tensorc_dsl.backend.cuda.lower.axes import Axes
from tensorc_dsl.backend.cuda.lower.collectives import require_uniform
from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Device, Guard, Local, Phase, Shared, Steps
from tensorc_dsl.ir.expr import ZERO, Expr, conjunction, constant, free_vars, substitute
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Loop, LowerError, Parallel, inside, stores

ALIGNMENT = 128
"""The alignment of each buffer in shared memory, in bytes: that of a transaction."""


@dataclass(slots=True)
class Storage:
    """The storage of a kernel as it is found: buffers of each thread, and of each block."""

    local: list[Local] = field(default_factory=list[Local])
    shared: list[Shared] = field(default_factory=list[Shared])
    bytes: int = 0

    def share(self, s: Alloc) -> None:
        """Give a buffer a place in shared memory of its own."""
        self.shared.append(Shared(s.name, s.dtype, _size(s), self.bytes))
        self.bytes += -(-_size(s) * s.dtype.bytes // ALIGNMENT) * ALIGNMENT


def phases(s: Flat, axes: Axes, scopes: dict[str, str], storage: Storage) -> tuple[Device, ...]:
    """The statements of a kernel as phases, with the storage of its buffers. Raises LowerError if no kernel does the same."""
    return tuple(_Cutter(axes, scopes, storage).cut((s,), {}, (), ()))


@dataclass(frozen=True, slots=True)
class _Cutter:
    axes: Axes
    scopes: dict[str, str]
    storage: Storage

    def cut(
        self, body: tuple[Flat, ...], values: dict[str, Expr], bound: tuple[str, ...], conds: tuple[Expr, ...]
    ) -> list[Device]:
        """`bound` are the bound loops around, `conds` the conditions that differ between threads."""
        out: list[Device] = []
        for s in body:
            if isinstance(s, Loop) and s.var in self.axes.loops:
                out += self.cut(s.body, {**values, s.var: self.axes.value(s.var)}, (*bound, s.var), conds)
            elif not self._divided(s):
                out.append(self._phase(s, values, bound, conds))
            elif isinstance(s, Loop):
                if constant(s.end) == 1:
                    out += self.cut(s.body, {**values, s.var: ZERO}, bound, conds)
                else:
                    out.append(Steps(s.var, s.end, tuple(self.cut(s.body, values, bound, conds))))
            elif isinstance(s, If):
                here = tuple(substitute(c, values) for c in conjuncts(s.cond))
                mine = tuple(c for c in here if THREAD in free_vars(c))
                uniform = conjunction(tuple(c for c in here if THREAD not in free_vars(c)))
                inner = self.cut(s.body, values, bound, (*conds, *mine))
                out += inner if uniform is None else [Guard(uniform, tuple(inner))]
            elif isinstance(s, Alloc):
                self._place(s, bound)
                out += self.cut(s.body, values, bound, conds)
            else:
                raise LowerError(f"a {type(s).__name__.lower()} around threads has no code for GPUs")
        return out

    def _divided(self, s: Flat) -> bool:
        """Whether bound loops are inside a statement."""
        return any(isinstance(x, Loop) and x.var in self.axes.loops for x in inside((s,)))

    def _is_shared(self, s: Alloc) -> bool:
        return self.scopes[s.name].split(".")[0] == "shared"

    def _place(self, s: Alloc, bound: tuple[str, ...]) -> None:
        if any(self.axes.is_thread(v) for v in bound):
            raise LowerError(
                f"`{s.name}` is inside `{bound[-1]}`, which counts threads, and around other loops that do: each of its"
                " threads would need a buffer of its own that others share; move it outside of all loops that count threads"
            )
        if self._is_shared(s):
            self.storage.share(s)
        else:
            self.storage.local.append(Local(s.name, s.dtype, _size(s)))

    def _phase(self, s: Flat, values: dict[str, Expr], bound: tuple[str, ...], conds: tuple[Expr, ...]) -> Phase:
        outside = [v for v in self.axes.loops if self.axes.is_block(v) and v not in bound]
        if outside:
            text = next((format_store(x) for x in stores((s,))), "")
            raise LowerError(
                f"`{text}` is outside of `{outside[0]}`, which is bound to blocks, and in one kernel with it: one of its"
                " blocks would run it while others go on; make it a statement at the top of the program"
            )
        body = _plain((s,), values)
        mine = (*conds, *self.axes.conditions(bound))
        if isinstance(s, Collective):
            require_uniform(s, mine)
        guard = conjunction(mine)
        return Phase(body if guard is None else (If(guard, body),))


def _size(s: Alloc) -> int:
    size = constant(s.size)
    if size is None:
        raise LowerError(
            f"`{s.name}` has an open size, `{format_expr(s.size)}`, and memory of a block or a thread has a known one;"
            ' give it a size, or store it in "global"'
        )
    return max(1, size)


def _plain(body: Sequence[Flat], values: dict[str, Expr]) -> tuple[Flat, ...]:
    """Statements of one thread: with values for bound variables, loops of one iteration gone, buffers of its own."""
    out: list[Flat] = []
    for s in body:
        match s:
            case Store():
                indices = tuple(substitute(i, values) for i in s.indices)
                out.append(Store(s.buffer, indices, substitute(s.value, values)))
            case Loop() if constant(s.begin) == 0 and constant(s.end) == 1:
                out += _plain(s.body, {**values, s.var: ZERO})
            case Loop():
                kind = LoopKind.SERIAL if s.kind is LoopKind.PARALLEL else s.kind
                ends = substitute(s.begin, values), substitute(s.end, values)
                out.append(Loop(s.var, *ends, kind, _plain(s.body, values)))
            case If():
                out.append(If(substitute(s.cond, values), _plain(s.body, values)))
            case Alloc():
                out.append(replace(s, size=_count(s), space="stack", body=_plain(s.body, values)))
            case Collective():
                out.append(replace(s, body=_plain(s.body, values)))
            case Parallel() | Instruction():
                raise AssertionError("no pass of GPUs makes them")
    return tuple(out)


def _count(s: Alloc) -> Expr:
    _size(s)
    return s.size
