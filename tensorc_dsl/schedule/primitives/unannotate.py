"""`unannotate`: remove an annotation from a loop, a block or the program."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.program import Annotation, Program, replace_stmt
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, the_block, the_loop
from tensorc_dsl.schedule.primitives.annotate import RESERVED, refuse_reserved
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal("E0614", 'there is no annotation "{key}" here', help="{there}")
def NO_ANNOTATION(*focus: str, key: str, there: str) -> None: ...


@primitive(NO_LOOP, NO_BLOCK, NO_ANNOTATION, RESERVED)
def unannotate(program: Program, target: LoopRef | BlockRef | None, key: str) -> Rewrite[None]:
    """The loop, the block or, given the program's root, the program no longer has `key`; nothing else changes.

    for i in e @("key", value): s  ->  for i in e: s

    In TVM: `unannotate`.  Cases: tests/primitives/unannotate.md
    """

    def without(old: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
        if key not in dict(old):
            keys = ", ".join(f'"{k}"' for k, _ in old)
            focus = () if target is None else (target.name,)
            raise NO_ANNOTATION(
                program, *focus, key=key, there=f"there are: {keys}" if keys else "there is none at all"
            )
        return tuple(x for x in old if x[0] != key)

    match target:
        case LoopRef():
            loop = the_loop(program, target)[1]
            new = replace(loop, annotations=without(loop.annotations))
            return Rewrite(replace_stmt(program, loop.var, (new,)), None)
        case BlockRef():
            b = the_block(program, target)[1]
            refuse_reserved(program, b, key)
            return Rewrite(replace_stmt(program, b.name, (replace(b, annotations=without(b.annotations)),)), None)
        case None:
            return Rewrite(replace(program, annotations=without(program.annotations)), None)
