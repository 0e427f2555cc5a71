"""The steps of a scan that are still to be read: a reference keeps no others.

A stencil over time reads the step before, and its caller the last one. All hundred of them would be gigabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.ir.expr import Expr, constant, loads
from tensorc_dsl.ir.program import Block, IterKind, Program
from tensorc_dsl.reference.boxes import Box, form


@dataclass(frozen=True, slots=True)
class Alive:
    """The array of a buffer has `steps` places along `axis`: position p, of `extent`, is at p % steps."""

    axis: int
    steps: int
    extent: int

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array, from that of the buffer."""
        return (*whole[: self.axis], self.steps, *whole[self.axis + 1 :])

    def place(self, indices: tuple[Expr, ...], box: Box) -> int | None:
        """Where a step that is read or written lies; None if there is no such step."""
        f = form(indices[self.axis], box)
        assert f is not None, "only subscripts that are linear fold"
        low, high = f.interval(box)
        assert low == high, "one step is evaluated at a time"
        return low % self.steps if 0 <= low < self.extent else None


def alive_steps(program: Program, nests: Sequence[Sequence[Block]]) -> dict[str, Alive]:
    """The buffers of scans of which fewer steps are read than there are, by name. The nests are those of the program."""
    params = {p.name for p in program.params}
    found = {
        b.body[0].buffer: _kept(program, nests, together, b)
        for together in nests
        for b in together
        if _scan(b) and not b.is_reduction and len(b.body) == 1 and b.body[0].buffer not in params
    }
    return {name: kept for name, kept in found.items() if kept is not None}


def _kept(program: Program, nests: Sequence[Sequence[Block]], own: Sequence[Block], b: Block) -> Alive | None:
    (store,) = b.body
    stored = [_line(i, b) for i in store.indices]
    axis = next((d for d, line in enumerate(stored) if line is not None and line[0]), None)
    extent = None if axis is None else constant(program.buffer(store.buffer).shape[axis])
    line = None if axis is None else stored[axis]
    if axis is None or extent is None or line is None:
        return None
    direction, first = line
    last = extent - 1 if direction > 0 else 0
    oldest = 0
    for nest in nests:
        for reader in nest:
            if any(x.buffer == store.buffer for s in reader.init for x in loads(s.value)):
                return None
            for i in (x.indices[axis] for s in reader.body for x in loads(s.value) if x.buffer == store.buffer):
                read = _line(i, reader)
                if read is None or read[0] != (direction if nest is own else 0):
                    return None
                age = direction * ((first if nest is own else last) - read[1])
                if age < 0:
                    return None
                oldest = max(oldest, age)
    return Alive(axis, oldest + 1, extent) if oldest + 1 < extent else None


def _scan(b: Block) -> str | None:
    """The iterator that counts the steps of a scan."""
    return next((it.name for it in b.iters if it.kind is IterKind.SCAN), None)


def _line(e: Expr, b: Block) -> tuple[int, int] | None:
    """`(f, c)` if a subscript is f * step + c, and f is -1, 0 or 1."""
    sizes = [constant(it.extent) for it in b.iters]
    f = form(e, Box(tuple(it.name for it in b.iters), (0,) * len(sizes), tuple(n or 1 for n in sizes)))
    if f is None:
        return None
    steps = [n for n, it in zip(f.factors, b.iters, strict=True) if it.kind is IterKind.SCAN]
    if any(n for n, it in zip(f.factors, b.iters, strict=True) if it.kind is not IterKind.SCAN):
        return None
    factor = steps[0] if steps else 0
    return (factor, f.constant) if abs(factor) <= 1 else None
