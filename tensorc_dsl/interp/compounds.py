"""Steps that stand for several: a trace has those that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.arguments import splat
from tensorc_dsl.interp.builtins import elements
from tensorc_dsl.interp.problems import ARGUMENT_KIND, STEP_ARGUMENTS, fail
from tensorc_dsl.interp.values import OpenFactor, Value, bare, kind_of
from tensorc_dsl.schedule.refs import LoopRef

Do = Callable[[str, list[Value], dict[str, Value]], Value]
"""Applies a primitive to arguments; what it gives."""

Compound = Callable[[list[Value], dict[str, Value], Span, Do], Value]

_USAGE = "`tile(i, j, [4, 16])`: a size for each loop, or the factors of a `split`"


def _tile(args: list[Value], kwargs: dict[str, Value], at: Span, do: Do) -> Value:
    """Splits each loop and puts all outer parts around all inner ones."""
    *given, last = args or [None]
    loops, sizes = [x for a in given for x in splat(a)], elements(last)
    for l in loops:
        if not isinstance(bare(l), LoopRef):
            raise fail(ARGUMENT_KIND, at, name="tile", parameter="loops", wanted="loops", found=kind_of(l))
    if sizes is None:
        raise fail(ARGUMENT_KIND, at, name="tile", parameter="sizes", wanted="a list", found=kind_of(last))
    if not loops or len(sizes) != len(loops):
        reason = f"there are {len(loops)} loops and {len(sizes)} sizes"
        raise fail(STEP_ARGUMENTS, at, name="tile", reason=reason, usage=_USAGE)
    factors = [(OpenFactor(), size) if elements(size) is None else size for size in sizes]
    counts = [len(elements(f) or ()) for f in factors]
    if len({*counts}) > 1:
        reason = f"the loops are cut into {', '.join(map(str, counts))} parts, and not all into as many"
        raise fail(STEP_ARGUMENTS, at, name="tile", reason=reason, usage=_USAGE)
    parts = [elements(do("split", [l, f], kwargs)) or () for l, f in zip(loops, factors, strict=True)]
    order = tuple(part for level in zip(*parts, strict=True) for part in level)
    if len(loops) > 1:
        do("reorder", [order], {})
    return order


COMPOUNDS: Mapping[str, Compound] = {"tile": _tile}
"""What each does; `check.vocabulary` has their signatures."""
