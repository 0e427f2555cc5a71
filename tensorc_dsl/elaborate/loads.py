"""The loads of a stage, with the conditions under which they happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.proof.sets.data_subscripts import depends_on_data
from tensorc_dsl.proof.sets.safety import Outside, Unproven, check_access

LARGE = 2**40
"""A size beyond the integers that subscripts are taken from, where it is not known."""


@dataclass(frozen=True, slots=True)
class GuardedLoad:
    """A load with the conditions around it, for the proof that it stays in bounds."""

    load: ir.Load
    conditions: tuple[ir.Expr, ...]
    spans: tuple[Span, ...]
    data: tuple[str | None, ...] = ()
    """For each subscript a tensor whose values it takes without `clamp`; None without one."""

    def leaves(
        self, extents: Mapping[str, ir.Expr], shape: tuple[ir.Expr, ...], env: Environment
    ) -> Outside | Unproven | None:
        """Where it leaves an array of `shape` for some sizes, or that it is not proved to stay inside; None if it is."""
        conditions = (*self.conditions, *(env.conditions if env.unbound else ()))
        if env.unbound and depends_on_data(self.load.indices):  # whether there are as many elements depends on sizes
            least = ir.index(LARGE if any(self.data) else 1)
            conditions = (*conditions, *(ir.Compare(">=", n, least) for n in shape if ir.constant(n) is None))
        return check_access(extents, conditions, self.load.indices, shape, env.open)
