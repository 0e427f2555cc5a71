"""Finds the pipelines that a kernel can run with several iterations at one time, and marks their statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorc_dsl.affine.pipeline import versions
from tensorc_dsl.ir.expr import ONE
from tensorc_dsl.ir.pipelines import ASYNC, REGISTERS, pipeline, read_back, roles
from tensorc_dsl.ir.program import For, LoopKind, Program, Stmt, fresh, used_names, walk, with_body


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The statements of a pipelined loop by number: the stage of each, which comes first in a round, which stages only
    start their copies. `versions` has the copies that each buffer needs that is private to an iteration, `marks` the
    variables of the loops of one iteration around the statements. `roles` has the role of each statement, and
    `registers` those of a thread of each role, in their order; both are empty if the schedule does not say so."""

    stages: tuple[int, ...]
    order: tuple[int, ...]
    asynchronous: frozenset[int]
    versions: Mapping[str, int]
    marks: tuple[str, ...]
    roles: tuple[str, ...] = ()
    registers: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        return max(self.stages)


def marked(program: Program) -> tuple[Program, dict[str, Pipeline]]:
    """The program with a loop of one iteration around each statement of its pipelines, and these, by their loops.

    A pipeline inside of threads has none: what a thread does for itself, it does in order.
    """
    found: dict[str, Pipeline] = {}
    used = used_names(program)

    def go(s: Stmt, threads: bool) -> Stmt:
        if not isinstance(s, For):
            return s
        inside = threads or _counts_threads(s)
        body = tuple(go(x, inside) for x in s.body)
        stages = pipeline(s) if s.kind is LoopKind.PIPELINED else None
        if stages is None or inside or not any(isinstance(x, For) and _counts_threads(x) for _, x in walk(s.body)):
            return with_body(s, body)
        copies = {b.name: versions(s, b.name) for b in program.buffers}
        marks = tuple(fresh(f"{s.var}_part", used) for _ in body)
        started = frozenset(read_back(s, ASYNC) or ())
        found[s.var] = Pipeline(*stages, started, copies, marks, roles(s), read_back(s, REGISTERS) or ())
        return with_body(s, tuple(For(name, ONE, (x,)) for name, x in zip(marks, body, strict=True)))

    return replace(program, body=tuple(go(s, False) for s in program.body)), found


def _counts_threads(loop: For) -> bool:
    return loop.axis is not None and loop.axis.counts_threads
