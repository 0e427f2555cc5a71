"""The loads of a stage, with the conditions under which they happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorc_dsl.affine.data import depends_on_data
from tensorc_dsl.affine.safety import Outside, Unproven, check_access
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.source import Span


@dataclass(frozen=True, slots=True)
class GuardedLoad:
    """A load with the conditions around it, for the proof that it stays in bounds."""

    load: ir.Load
    conditions: tuple[ir.Expr, ...]
    spans: tuple[Span, ...]

    def leaves(
        self, extents: Mapping[str, ir.Expr], shape: tuple[ir.Expr, ...], env: Environment
    ) -> Outside | Unproven | None:
        """Where it leaves an array of `shape` for some sizes, or that it is not proved to stay inside; None if it is."""
        conditions = self.conditions
        if env.unbound and depends_on_data(self.load.indices):  # whether the clamp has an element depends on sizes
            conditions = (*conditions, *(ir.Compare(">", n, ir.ZERO) for n in shape))
        return check_access(extents, conditions, self.load.indices, shape, env.open)
