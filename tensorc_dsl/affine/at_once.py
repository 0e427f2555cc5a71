"""Loops that run at once although their iterations depend on each other: no step makes one, and a program that is written
by hand may have one."""

from __future__ import annotations

from collections.abc import Iterator

from tensorc_dsl.affine.dependence import Dependence, carried
from tensorc_dsl.ir.program import AT_ONCE, For, Program, walk


def races(program: Program) -> Iterator[tuple[For, Dependence]]:
    """Each parallel, vectorized or bound loop with a dependence that it may carry, as steps ask for: by integer sets, which
    take what they do not know for a dependence.
    """
    for _, s in walk(program.body):
        if isinstance(s, For) and s.kind in AT_ONCE and (found := carried(program, s.var)) is not None:
            yield s, found
