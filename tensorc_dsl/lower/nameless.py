"""Removes names from flat loops, so that kernels are compared by what they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from tensorc_dsl.affine.instruction import Tile
from tensorc_dsl.ir.expr import Expr, Var, substitute
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Instruction, Kernel, Loop, Parallel, Shuffle

Names = Mapping[str, Var]


def nameless(k: Kernel) -> Kernel:
    """The kernel with each loop named by its depth: equal for kernels that differ only in the names of loops."""
    return replace(k, preparation=_body(k.preparation, {}), body=_body(k.body, {}))


def _body(body: tuple[Flat, ...], names: Names) -> tuple[Flat, ...]:
    return tuple(_flat(s, names) for s in body)


def _flat(s: Flat, names: Names) -> Flat:
    match s:
        case Store(indices=indices, value=value):
            return replace(s, indices=_all(indices, names), value=substitute(value, names))
        case Loop(var=var, begin=begin, end=end, body=body):
            inner = _with(names, var)
            begin, end = substitute(begin, names), substitute(end, names)
            return replace(s, var=inner[var].name, begin=begin, end=end, body=_body(body, inner))
        case Parallel(vars=variables, extents=extents, body=body):
            inner = _with(names, *variables)
            called = tuple(inner[v].name for v in variables)
            return replace(s, vars=called, extents=_all(extents, names), body=_body(body, inner))
        case If(cond=cond, body=body):
            return replace(s, cond=substitute(cond, names), body=_body(body, names))
        case Alloc(body=body) | Collective(body=body) | Shuffle(body=body):
            return replace(s, body=_body(body, names))
        case Instruction(tiles=tiles, body=body):
            return replace(s, tiles=tuple(_tile(t, names) for t in tiles), body=_body(body, names))
        case _:
            assert_never(s)


def _with(names: Names, *variables: str) -> Names:
    # A name in a program cannot begin with a digit.
    return {**names, **{v: Var(f"{len(names) + n}th") for n, v in enumerate(variables)}}


def _all(several: tuple[Expr, ...], names: Names) -> tuple[Expr, ...]:
    return tuple(substitute(e, names) for e in several)


def _tile(t: Tile, names: Names) -> Tile:
    return replace(t, origin=_all(t.origin, names), steps=tuple(_all(step, names) for step in t.steps))
