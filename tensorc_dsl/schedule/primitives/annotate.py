"""`annotate`: attach a fact for later passes to a loop, a block or the program."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.program import Annotation, Block, Program, replace_stmt
from tensorc_dsl.ir.reductions import REDUCER
from tensorc_dsl.schedule.places import NO_BLOCK, NO_LOOP, the_block, the_loop
from tensorc_dsl.schedule.primitive import BlockRef, LoopRef, Rewrite, primitive
from tensorc_dsl.schedule.refusal import Refusal

RESERVED = Refusal(
    "E0344",
    'the annotation "{key}" is not for schedules: it says what `{block}` computes',
    help="choose another key",
    at="key",
)
NO_KEY = Refusal(
    "E0342",
    "an annotation needs a key",
    help='name what the value is for, e.g. "unroll.max_step"',
    at="key",
)


def refuse_reserved(program: Program, block: Block, key: str) -> None:
    """Refuse to change what the block computes by way of an annotation."""
    if key == REDUCER:
        raise RESERVED(program, block.name, key=key, block=block.name)


@primitive(NO_LOOP, NO_BLOCK, NO_KEY, RESERVED)
def annotate(
    program: Program, target: LoopRef | BlockRef | None, key: str, value: int | float | str | bool
) -> Rewrite[None]:
    """The loop, the block or, given the program's root, the program carries `key` with `value`; nothing else changes.

    for i in e: s  ->  for i in e @("key", value): s

    A key has one value: a second one takes the place of the first.
    In TVM: `annotate`.  Cases: tests/primitives/annotate.md
    """
    if not key:
        raise NO_KEY(program, *(() if target is None else (target.name,)))

    def put(old: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
        return tuple(sorted(({**dict(old), key: value}).items()))

    match target:
        case LoopRef():
            loop = the_loop(program, target)[1]
            return Rewrite(replace_stmt(program, loop.var, (replace(loop, annotations=put(loop.annotations)),)), None)
        case BlockRef():
            b = the_block(program, target)[1]
            refuse_reserved(program, b, key)
            return Rewrite(replace_stmt(program, b.name, (replace(b, annotations=put(b.annotations)),)), None)
        case None:
            return Rewrite(replace(program, annotations=put(program.annotations)), None)
