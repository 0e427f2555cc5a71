"""Removes names from flat loops, so that kernels are compared by what they do."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.ir.expr import Var, substitute
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Kernel, Loop, Parallel, Shuffle, map_exprs

Names = Mapping[str, Var]


def nameless(k: Kernel) -> Kernel:
    """The kernel with each loop named by its depth: equal for kernels that differ only in the names of loops."""
    return replace(k, preparation=_body(k.preparation, {}), body=_body(k.body, {}))


def _body(body: tuple[Flat, ...], names: Names) -> tuple[Flat, ...]:
    return tuple(_flat(s, names) for s in body)


def _flat(s: Flat, names: Names) -> Flat:
    s = map_exprs(s, lambda e: substitute(e, names))
    inner = names
    match s:
        case Store():
            return s
        case Loop(var=var):
            inner = _with(names, var)
            s = replace(s, var=inner[var].name)
        case Parallel(vars=variables):
            inner = _with(names, *variables)
            s = replace(s, vars=tuple(inner[v].name for v in variables))
        case If() | Alloc() | Collective() | Shuffle() | Instruction():
            pass
    return replace(s, body=_body(s.body, inner))


def _with(names: Names, *variables: str) -> Names:
    # A name in a program cannot begin with a digit.
    return {**names, **{v: Var(f"{len(names) + n}th") for n, v in enumerate(variables)}}
