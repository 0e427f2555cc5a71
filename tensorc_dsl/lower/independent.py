"""The last check of loops whose iterations run at once, whoever wrote them."""

from __future__ import annotations

from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.proof.sets.dependence import races


def require_independent(program: Program) -> None:
    """Raises LowerError if iterations that run at once may depend on each other. Steps make no such loop; a program that is
    written out may have one."""
    for loop, dependence in races(program):
        raise LowerError(f"the iterations of the {loop.kind} loop `{loop.var}` cannot run at once: {dependence}")
