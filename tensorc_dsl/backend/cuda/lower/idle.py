"""Private storage of threads that have no work: it is defined as that of others is, so that no register is kept for it.

If some warps have no tile, `if thread / 32 < 2 { C = 0 }` stands before products under the same condition. In a loop around
both, ptxas takes the registers of `C` for used from one iteration to the next, since a path leads past the zeros. It does not
compare conditions. Without the first condition all threads store zeros, and those who have no tile read none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorc_dsl.affine.simplify import conjuncts
from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Device, DeviceKernel, LookBack, Nested, Phase, inside
from tensorc_dsl.ir.expr import Expr, conjunction, free_vars, loads
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Flat, If, store_loads, stores

Conditions = frozenset[Expr]


def with_idle_defined(k: DeviceKernel) -> DeviceKernel:
    """The kernel in which all threads store constants to private storage that only some of them access later."""
    shared: dict[str, Conditions] = {}
    private = {b.name for b in k.local} - set(_passed_on(k.body))
    for s in inside(k.body):
        if isinstance(s, Phase):
            for name, conds in _accesses(s.body, frozenset()):
                if name in private:
                    shared[name] = shared.get(name, conds) & conds
    some = {name: conds for name, conds in shared.items() if conds}
    return replace(k, body=_devices(k.body, some)) if some else k


def _passed_on(body: tuple[Device, ...]) -> Iterator[str]:
    """The buffers that statements outside of phases access."""
    for s in inside(body):
        if isinstance(s, LookBack):
            for x in stores((*s.terms, s.made, s.before)):
                yield from (x.buffer, *(y.buffer for y in store_loads(x)))


def _accesses(body: tuple[Flat, ...], conds: Conditions) -> Iterator[tuple[str, Conditions]]:
    """The buffers that statements access, each with the conditions on the thread alone under which they do."""
    for s in body:
        match s:
            case Store():
                yield from ((name, conds) for name in (s.buffer, *(x.buffer for x in store_loads(s))))
            case If(cond=cond):
                yield from ((x.buffer, conds) for x in loads(cond))
                own = (c for c in conjuncts(cond) if free_vars(c) == frozenset((THREAD,)) and not loads(c))
                yield from _accesses(s.body, conds | set(own))
            case _:
                yield from _accesses(s.body, conds)


def _devices(body: tuple[Device, ...], some: Mapping[str, Conditions]) -> tuple[Device, ...]:
    out: list[Device] = []
    for s in body:
        if isinstance(s, Nested):
            s = replace(s, body=_devices(s.body, some))
        elif isinstance(s, Phase):
            s = replace(s, body=_flat(s.body, some))
        out.append(s)
    return tuple(out)


def _flat(body: tuple[Flat, ...], some: Mapping[str, Conditions]) -> tuple[Flat, ...]:
    out: list[Flat] = []
    for s in body:
        if not isinstance(s, Store):
            s = replace(s, body=_flat(s.body, some))
        if isinstance(s, If) and (needless := _needless(s.body, some)):
            kept = conjunction(tuple(c for c in conjuncts(s.cond) if c not in needless))
            out += s.body if kept is None else (replace(s, cond=kept),)
        else:
            out.append(s)
    return tuple(out)


def _needless(body: tuple[Flat, ...], some: Mapping[str, Conditions]) -> Conditions:
    """The conditions without which a body may run: it stores constants alone, at places that are the same in all threads,
    and these conditions are around every access to what it stores."""
    every = tuple(stores(body))
    fixed = all(not store_loads(s) and THREAD not in free_vars(s.value) | free_vars(s.indices[0]) for s in every)
    found = [some.get(s.buffer, Conditions()) for s in every]
    return found[0].intersection(*found) if found and fixed else Conditions()
