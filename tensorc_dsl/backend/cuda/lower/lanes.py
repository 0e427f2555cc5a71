"""Statements that are no instructions, and access fragments: each lane takes the elements that it has in its registers.

A loop that is bound to lanes says which iterations a lane runs. Such a statement may access an element of a fragment if the
lane is proved to have it, by the layout on which the instructions of the fragment agree. Then the element is a number of that
lane's. So what comes behind a product, as a bias and an activation, is computed before anything is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorc_dsl.affine.form import Ranges
from tensorc_dsl.affine.fragments import Cells
from tensorc_dsl.affine.simplify import simplify
from tensorc_dsl.backend.cuda.lower.axes import Axes
from tensorc_dsl.ir.expr import ZERO, Expr, Load, Var, sub, transform
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import Axis, Store
from tensorc_dsl.ir.warp import LANE, WARP, lane_of
from tensorc_dsl.lower.flat import Collective, Flat, Loop, LowerError, buffers_of
from tensorc_dsl.lower.ranges import within


def by_lanes(body: tuple[Flat, ...], axes: Axes, fragments: Mapping[str, Cells | None]) -> tuple[Flat, ...]:
    """The statements with accesses to fragments outside of instructions as those of a lane to its own elements.

    Raises LowerError if that is not proved. A fragment without a grid of tiles is None.
    """
    return _Lanes(axes, fragments).run(body, {}, {}) if fragments else body


@dataclass(frozen=True, slots=True)
class _Lanes:
    axes: Axes
    fragments: Mapping[str, Cells | None]

    def run(self, body: tuple[Flat, ...], ranges: Ranges, lanes: Mapping[str, str]) -> tuple[Flat, ...]:
        """The statements inside the loops of `ranges`, of which `lanes` has those that count lanes and warps."""
        out: list[Flat] = []
        for s in body:
            if isinstance(s, Collective):
                out.append(s)
            elif isinstance(s, Store):
                out.append(s if buffers_of(s).isdisjoint(self.fragments) else self._store(s, ranges, lanes))
            elif isinstance(s, Loop):
                axis = self.axes.loops.get(s.var)
                inner = {**lanes, axis.value: s.var} if axis is Axis.LANE or axis is Axis.WARP else lanes
                out.append(replace(s, body=self.run(s.body, within(ranges, s), inner)))
            else:
                out.append(replace(s, body=self.run(s.body, ranges, lanes)))
        return tuple(out)

    def _store(self, s: Store, ranges: Ranges, lanes: Mapping[str, str]) -> Store:
        def place(buffer: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            grid = self.fragments[buffer]
            counted = [] if grid is None else [name for name in (WARP, LANE) if name in dict(grid.layout.places)]
            if grid is None or any(name not in lanes for name in counted):
                raise LowerError(
                    f"`{format_store(s)}` is no instruction, and `{buffer}` is in a fragment, which the lanes of a warp have;"
                    ' use `tensorize`, bind loops to "lane" as its layout says, or store it in "local"'
                )
            first, at = grid.place(indices, ranges)
            for name in counted:
                if simplify(sub(at[name], Var(lanes[name])), ranges) != ZERO:
                    raise LowerError(
                        f"`{format_store(s)}` takes an element of `{buffer}`, which is in a fragment, where {name}"
                        f" `{format_expr(at[name])}` has it, and {name} `{lanes[name]}` runs it; divide the loops as the"
                        f' layout "{grid.layout.name}" does'
                    )
            lane: Expr = Var(lanes[LANE])
            return (*first, lane_of(Var(lanes[WARP]), lane) if WARP in counted else lane, at["reg"])

        def load(e: Expr) -> Expr:
            if isinstance(e, Load) and e.buffer in self.fragments:
                return Load(e.buffer, place(e.buffer, e.indices), e.dtype)
            return e

        indices = place(s.buffer, s.indices) if s.buffer in self.fragments else s.indices
        return replace(s, indices=indices, value=transform(s.value, load))
