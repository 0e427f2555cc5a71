"""Moves guards outwards: a condition is tested in the outermost loop that has its variables.

All lanes of a warp run a shuffle, so no guard leaves one. A condition over data stays where a store may change them.
"""

from __future__ import annotations

from tensorc_dsl.ir.expr import Expr, conjunction, free_vars, loads
from tensorc_dsl.ir.node import replace
from tensorc_dsl.lower.flat import Alloc, Flat, If, Loop, Parallel, Shuffle, Store, stores
from tensorc_dsl.proof.sets.simplify import conjuncts


def hoist_guards(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    """The same stores under the same conditions, with each condition tested as far out as its variables allow.

    if c1 and c2(i) { s } inside `for i`  ->  if c1 { for i { if c2(i) { s } } }
    """
    out: list[Flat] = []
    for s in body:
        for new in _hoist(s):
            last = out[-1] if out else None
            if isinstance(new, If) and isinstance(last, If) and last.cond == new.cond and _lasts(new.cond, last.body):
                out[-1] = If(new.cond, (*last.body, *new.body))
            else:
                out.append(new)
    return tuple(out)


def _hoist(s: Flat) -> tuple[Flat, ...]:
    if isinstance(s, Store | Shuffle):
        return (s,)
    inner = hoist_guards(s.body)
    if isinstance(s, If):
        if len(inner) == 1 and isinstance(inner[0], If):
            joined = conjunction((*conjuncts(s.cond), *conjuncts(inner[0].cond)))
            return _guarded(joined, inner[0].body)
        return (If(s.cond, inner),)
    if len(inner) != 1 or not isinstance(inner[0], If) or isinstance(s, Alloc):
        return (replace(s, body=inner),)
    own = {s.var} if isinstance(s, Loop) else set(s.vars) if isinstance(s, Parallel) else set[str]()
    conds = conjuncts(inner[0].cond)
    here = tuple(c for c in conds if not free_vars(c) & own and _lasts(c, inner))
    kept = tuple(c for c in conds if c not in here)
    return _guarded(conjunction(here), (replace(s, body=_guarded(conjunction(kept), inner[0].body)),))


def _guarded(cond: Expr | None, body: tuple[Flat, ...]) -> tuple[Flat, ...]:
    return body if cond is None else (If(cond, body),)


def _lasts(cond: Expr, body: tuple[Flat, ...]) -> bool:
    """Whether no store of a body changes what a condition reads."""
    read = {x.buffer for x in loads(cond)}
    return not read or read.isdisjoint(s.buffer for s in stores(body))
