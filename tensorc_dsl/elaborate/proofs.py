"""Proves for all sizes that the loads of a stage stay inside their arrays, and that no reduction to positions is empty."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate import problems
from tensorc_dsl.elaborate.bindings import Environment
from tensorc_dsl.elaborate.loads import GuardedLoad
from tensorc_dsl.elaborate.problems import Invalid
from tensorc_dsl.elaborate.reducers import ArgReducer
from tensorc_dsl.elaborate.stages import Computed
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.proof.sets.safety import Outside, Unproven, below


def require_steps(c: Computed, env: Environment, at: Span) -> None:
    """Raises Invalid for a reduction to positions that is empty for some sizes: there is none of the least of no values."""
    if not isinstance(c.reducer, ArgReducer):
        return
    for name, size in c.reduce.items():
        if env.unbound or ir.constant(size) is not None:
            continue
        sizes = below(size, 1, env.open)
        if sizes is not None:
            shown = ", ".join(f"{n} = {v}" for n, v in sizes) or "some sizes"
            raise Invalid(problems.EMPTY_REDUCTION(at, index=name, extent=format_expr(size), sizes=shown))


def check_loads(c: Computed, buffers: Mapping[str, Buffer], env: Environment) -> list[Diagnostic]:
    """A finding for each load that leaves its array for some sizes, or is not proved to stay in it."""
    return [d for g in c.loads for d in _check_load(g, c, buffers[g.load.buffer].shape, env)]


def _check_load(g: GuardedLoad, c: Computed, shape: tuple[ir.Expr, ...], env: Environment) -> list[Diagnostic]:
    name = g.load.buffer
    match g.leaves({**c.spatial, **c.reduce}, shape, env):
        case None:
            return []
        case Unproven() if env.unbound:
            return []
        case Outside(position=p) | Unproven(position=p) if (of := g.data[p]) is not None:
            high = format_expr(ir.sub(shape[p], ir.ONE))
            return [problems.DATA_SUBSCRIPT(g.spans[p], name=of, text=g.spans[p].text, low=0, high=high)]
        case Outside(position=p, value=value, extent=limit, at=at):
            values = ", ".join(f"{n} = {v}" for n, v in at) or "always"
            steps = c.scan is not None and name == c.name and list(c.spatial)[p] == c.scan
            early = steps and (value < 0) != c.back
            notes = (problems.SCAN_BEGINS,) if early else ()
            inside = f"{' '.join(g.spans[p].text.split())} {'>= 0' if value < 0 else f'< {format_expr(shape[p])}'}"
            repair = f"say where it is read: `… if {inside} else …`"
            of_sizes = ir.free_vars(g.load.indices[p]) <= {d.name for d in env.open}
            if of_sizes and at and (value < 0 or isinstance(g.load.indices[p], ir.Const)):
                repair = (
                    f"say which sizes the compute is for, `where {inside}`, or where it is read: `… if {inside} else …`"
                )
            if value < 0 and isinstance(g.load.indices[p], ir.Const):
                repair = f"subscripts are counted from 0: the last one is `{format_expr(shape[p])} - 1`"
            return [
                problems.OUT_OF_BOUNDS(
                    g.spans[p],
                    position=p + 1,
                    name=name,
                    value=value,
                    extent=limit,
                    values=values,
                    repair=repair,
                    notes=notes,
                )
            ]
        case Unproven(position=p, interval=(low, high)):
            known = f"{low} to {high}" if low is not None and high is not None else "any number"
            limit = format_expr(shape[p])
            return [problems.UNPROVEN(g.spans[p], position=p + 1, name=name, extent=limit, interval=known)]
