"""Versions of private storage that the number of a step chooses: choices among registers, which have no addresses.

A scan that keeps two steps stores to `m[p % 2]`, and a pipeline gives each iteration in flight a version. Private storage is
in registers if all of its subscripts are known once short loops are unrolled, and loops around barriers are not unrolled. So
such a store becomes one under a condition for each version, and such a load a choice between them. What is chosen among, and
what is stored, is first in storage of its own: LLVM would make one load of two whose addresses a condition chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.affine.simplify import bounds, linear_form, simplify
from tensorc_dsl.backend.cuda.lower.kernels import Device, DeviceKernel, Local, Nested, Phase, Steps
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import ZERO, Compare, Expr, Load, Select, add, free_vars, index, mul, transform
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import LoopKind, Store, map_store
from tensorc_dsl.lower.flat import Collective, Flat, If, Loop, Shuffle, inside, store_loads, stores
from tensorc_dsl.lower.ranges import span, within

MOST = 4
"""The most versions that are chosen among: each takes an instruction for every access."""


def with_choices(k: DeviceKernel) -> DeviceKernel:
    """The kernel with choices among the versions of its private storage."""
    private = {b.name: b.dtype for b in k.local if b.name not in _in_lanes_of_vectors(k.body)}
    if not private:
        return k
    made: list[Local] = []
    body = _devices(k.body, private, {}, made)
    return replace(k, body=body, local=(*k.local, *made))


def _in_lanes_of_vectors(body: tuple[Device, ...]) -> frozenset[str]:
    """What instructions and vectors store or take as a whole: they have one place."""
    out: set[str] = set()
    for s in body:
        if isinstance(s, Nested):
            out |= _in_lanes_of_vectors(s.body)
        elif isinstance(s, Phase):
            for x in inside(s.body):
                if isinstance(x, Collective) or (isinstance(x, Loop) and x.kind is LoopKind.VECTORIZED):
                    out |= {name for y in stores((x,)) for name in (y.buffer, *(z.buffer for z in store_loads(y)))}
    return frozenset(out)


def _devices(
    body: tuple[Device, ...], private: Mapping[str, DType], steps: Ranges, made: list[Local]
) -> tuple[Device, ...]:
    out: list[Device] = []
    for s in body:
        if isinstance(s, Nested):
            inner = {**steps, s.var: span(s.end)} if isinstance(s, Steps) else steps
            out.append(replace(s, body=_devices(s.body, private, inner, made)))
        elif isinstance(s, Phase) and steps:
            out.append(replace(s, body=_Chooser(private, steps, made).run(s.body, steps)))
        else:
            out.append(s)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Chooser:
    private: Mapping[str, DType]
    steps: Ranges
    """The loops around barriers."""
    made: list[Local]
    """The storage for what is chosen among."""

    def run(self, body: tuple[Flat, ...], ranges: Ranges) -> tuple[Flat, ...]:
        out: list[Flat] = []
        for s in body:
            if isinstance(s, Store):
                out += self._store(s, ranges)
            elif isinstance(s, Shuffle):
                out += self._shuffle(s, ranges)
            elif isinstance(s, Collective):
                out.append(s)
            else:
                inner = within(ranges, s) if isinstance(s, Loop) else ranges
                out.append(replace(s, body=self.run(s.body, inner)))
        return tuple(out)

    def _store(self, s: Store, ranges: Ranges) -> list[Flat]:
        out: list[Flat] = []
        chosen = map_store(s, lambda e: self._chosen(e, ranges, out))
        places = self._places(s.indices[0], ranges) if s.buffer in self.private else []
        if not places:
            return [*out, chosen]
        value = self._kept(s.buffer, chosen.value, out)
        return [*out, *(If(c, (replace(chosen, indices=(at,), value=value),)) for c, at in places)]

    def _shuffle(self, s: Shuffle, ranges: Ranges) -> list[Flat]:
        """A shuffle takes what is at one place, so a lane chooses first what it gives."""
        (store,) = s.body
        assert isinstance(store, Store) and isinstance(store.value, Load)  # as `shuffled` makes them
        out: list[Flat] = []
        value = self._chosen(store.value, ranges, out)
        if value == store.value:
            return [s]
        given = self._kept(store.value.buffer, value, out)
        return [*out, replace(s, body=(replace(store, value=given),))]

    def _kept(self, buffer: str, value: Expr, out: list[Flat]) -> Load:
        """A value in storage of its own."""
        name = f"{buffer}.version{len(self.made)}"
        self.made.append(Local(name, self.private[buffer], 1))
        out.append(Store(name, (ZERO,), value))
        return Load(name, (ZERO,), self.private[buffer])

    def _chosen(self, e: Expr, ranges: Ranges, out: list[Flat]) -> Expr:
        def choice(x: Expr) -> Expr:
            if not isinstance(x, Load) or x.buffer not in self.private:
                return x
            found = [
                (c, self._kept(x.buffer, replace(x, indices=(at,)), out))
                for c, at in self._places(x.indices[0], ranges)
            ]
            if not found:
                return x
            *others, (_, value) = found
            chosen: Expr = value
            for c, other in reversed(others):
                chosen = Select(c, other, chosen)
            return chosen

        return transform(e, choice)

    def _places(self, e: Expr, ranges: Ranges) -> list[tuple[Expr, Expr]]:
        """For each value that the numbers of steps give a subscript the condition for it, and the subscript; none if there is
        one value, or too many of them."""
        terms, first = linear_form(e, ranges)
        number: Expr = ZERO
        rest: Expr = index(first)
        values = {0}
        for atom, factor in terms.items():
            if free_vars(atom).isdisjoint(self.steps):
                rest = add(rest, mul(atom, index(factor)))
                continue
            low, high = bounds(atom, ranges)
            if low is None or high is None or high - low >= MOST or not free_vars(atom) <= self.steps.keys():
                return []
            number = add(number, mul(atom, index(factor)))
            values = {v + factor * n for v in values for n in range(low, high + 1)}
        if not 1 < len(values) <= MOST:
            return []
        return [(Compare("==", number, index(v)), simplify(add(rest, index(v)), ranges)) for v in sorted(values)]
