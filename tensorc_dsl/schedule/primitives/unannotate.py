"""`unannotate`: remove an annotation from a loop, a block or the program."""

from __future__ import annotations

from tensorc_dsl.ir.program import Block, Program
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, the_part, with_annotations
from tensorc_dsl.schedule.primitives.annotate import RESERVED, refuse_in_order, refuse_reserved
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal("E0614", 'there is no annotation "{key}" here', help="{there}")
def NO_ANNOTATION(*focus: str, key: str, there: str) -> None: ...


@primitive(NO_LOOP, NO_BLOCK, NO_ANNOTATION, RESERVED)
def unannotate(program: Program, target: LoopRef | BlockRef | None, key: str) -> Rewrite[None]:
    """The loop, the block or, given the program's root, the program no longer has `key`; nothing else changes.

    for i in e @("key", value): s  ->  for i in e: s

    In TVM: `unannotate`.  Cases: tests/primitives/unannotate.md
    """
    part = the_part(program, target)
    if isinstance(part, Block):
        refuse_reserved(program, part, key)
    elif isinstance(part, Program):
        refuse_in_order(program, key)
    if key not in (there := dict(part.annotations)):
        keys = ", ".join(f'"{k}"' for k in there)
        focus = () if target is None else (target.name,)
        raise NO_ANNOTATION(program, *focus, key=key, there=f"there are: {keys}" if keys else "there is none at all")
    return Rewrite(with_annotations(program, part, {key: None}), None)
