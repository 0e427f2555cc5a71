"""The part in which two programs differ: a step changes one nest of a pipeline, and its proof need not follow the others."""

from __future__ import annotations

from itertools import takewhile
from operator import eq

from tensorc_dsl.affine.accesses import touched_in, written
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import Program, Stmt


def differing(a: Program, b: Program) -> tuple[Program, Program] | None:
    """Both programs without the statements that they begin and end with alike. What those write before is an input, what they
    read behind is an output. None if nothing can be left out.

    The programs compute the same if these do: for all inputs, so for the ones that the left out statements make. The
    reverse is not so, as statements behind may not read all elements, or those before may not make all values.
    """
    before = _alike(a.body, b.body)
    behind = _alike(a.body[before:][::-1], b.body[before:][::-1])
    first, last = a.body[:before], a.body[len(a.body) - behind :]
    parts = [p.body[before : len(p.body) - behind] for p in (a, b)]
    changed = written((*parts[0], *parts[1]))
    if not (first or last) or changed & written((*first, *last)):  # elements of one array, made in both
        return None
    inside = _touched((*parts[0], *parts[1]))
    inputs = inside & (written(first) | {p.name for p in a.params} - changed)
    outputs = changed & (_touched(last) | {p.name for p in a.params})
    if changed & _touched(first):  # an iteration of the others is read before it is written, or an input is changed
        return None
    made = [_with_interface(p, body, inputs, outputs) for p, body in zip((a, b), parts, strict=True)]
    return (made[0], made[1]) if made[0].params == made[1].params else None


def _alike(a: tuple[Stmt, ...], b: tuple[Stmt, ...]) -> int:
    """How many statements both begin with."""
    return sum(takewhile(bool, map(eq, a, b)))


def _touched(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    return frozenset[str]().union(*map(touched_in, stmts))


def _with_interface(p: Program, body: tuple[Stmt, ...], inputs: frozenset[str], outputs: frozenset[str]) -> Program:
    every = (*p.params, *p.buffers)
    params = (*(x for x in every if x.name in inputs), *(x for x in every if x.name in outputs))
    own = tuple(x for x in p.buffers if x.name in _touched(body) - inputs - outputs)
    return replace(p, params=tuple(replace(x, scope="global") for x in params), buffers=own, body=body)
