"""`annotate`: attach information for later passes to a loop, a block or the program."""

from __future__ import annotations

import json

from tensorc_dsl.ir.annotations import (
    ASYNC,
    LOOK_BACK,
    ORDER,
    PREFETCH,
    REGISTERS,
    ROLES,
    STAGES,
    STREAM,
    TEAMS,
    stream_problem,
)
from tensorc_dsl.ir.program import (
    APPROX,
    ASSUMED,
    ATOMIC,
    FINITE,
    IN_ORDER,
    IN_RANGE,
    INTRINSIC,
    MAX_STEP,
    PERSISTENT,
    SCATTER,
    Block,
    For,
    Program,
)
from tensorc_dsl.ir.reductions import REDUCER
from tensorc_dsl.schedule.nests import NO_BLOCK, NO_LOOP, the_block, the_part, with_annotations
from tensorc_dsl.schedule.step import BlockRef, LoopRef, Rewrite, primitive, refusal


@refusal("E0344", 'the annotation "{key}" is not for schedules: it says {what}', at="key")
def RESERVED(*focus: str, key: str, what: str, repair: str) -> None: ...
@refusal(
    "E0342",
    "an annotation needs a key",
    help='name what the value is for, e.g. "unroll.max_step"',
    at="key",
)
def NO_KEY(*focus: str) -> None: ...
@refusal("E0345", '"{key}" has no effect on `{target}`: {why}', help="{repair}", at="key")
def NO_EFFECT(*focus: str, key: str, target: str, why: str, repair: str) -> None: ...


_STEPS = {
    ASYNC: "software_pipeline", INTRINSIC: "tensorize", ORDER: "software_pipeline", PERSISTENT: "persist",
    REGISTERS: "specialize", ROLES: "specialize", SCATTER: "scatter", STAGES: "software_pipeline", TEAMS: "specialize",
}  # fmt: skip
"""The steps that write annotations of loops, each with a proof."""


def refuse_reserved(program: Program, block: Block, key: str) -> None:
    """Refuse an annotation that would change the meaning of the block, or say what is proved of it."""
    if key == REDUCER:
        what, repair = f"what `{block.name}` computes", "choose another key"
        raise RESERVED(program, block.name, key=key, what=what, repair=repair)
    if key in (ATOMIC, LOOK_BACK):
        what, repair = f"what is proved of `{block.name}`", f"`{key}({block.name})`, before loops are bound"
        raise RESERVED(program, block.name, key=key, what=what, repair=repair)


def refuse_in_order(program: Program, key: str) -> None:
    """Refuse the annotation of a program that says what is proved of each of its steps."""
    if key == IN_ORDER:
        raise RESERVED(program, key=key, what="what is proved of each step", repair="`keep_order()`")


def _refuse_step(program: Program, loop: str, key: str) -> None:
    """Refuse an annotation of a loop that a step writes, which proves that it may stand there."""
    if step := "prefetch" if key.startswith(PREFETCH) else _STEPS.get(key):
        raise RESERVED(program, loop, key=key, what=f"what `{step}` proves of a loop", repair=f"use `{step}`")


def _refuse_hint(program: Program, target: LoopRef | BlockRef | None, key: str, value: object) -> None:
    """Refuse a hint that would have no effect."""
    focus, shown = () if target is None else (target.name,), json.dumps(value)
    if key == STREAM:
        why = f"{shown} is not true" if value is not True else "it is not a block"
        if value is True and isinstance(target, BlockRef):
            why = stream_problem(program, the_block(program, target)[1])
        repair = "annotate a block that writes an output which nothing in the kernel reads, with the value true"
    elif key == MAX_STEP:
        counts = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        why = f"{shown} is no number of steps" if not counts else "it is a block" * isinstance(target, BlockRef)
        repair = "annotate a loop or the program with the largest number of steps that is unrolled, 0 for none"
    else:
        return
    if why:
        name = program.name if target is None else target.name
        raise NO_EFFECT(program, *focus, key=key, target=name, why=why, repair=repair)


@primitive(NO_LOOP, NO_BLOCK, NO_KEY, RESERVED, NO_EFFECT)
def annotate(
    program: Program, target: LoopRef | BlockRef | None, key: str, value: int | float | str | bool
) -> Rewrite[None]:
    """The loop, the block or, given the program's root, the program has `key` with `value`; nothing else changes.

    for i in e: s  ->  for i in e @("key", value): s

    A key has one value: a second one replaces the first. Lowering obeys two keys: "unroll.max_step" of a loop or the program,
    and "store.nontemporal" of a block, whose vector stores then bypass the caches when they fill whole cache lines.
    In TVM: `annotate`.  Cases: tests/primitives/annotate.md
    """
    if not key:
        raise NO_KEY(program, *(() if target is None else (target.name,)))
    _refuse_hint(program, target, key, value)

    match part := the_part(program, target):
        case For():
            _refuse_step(program, part.var, key)
        case Block():
            refuse_reserved(program, part, key)
        case Program():
            if key == FINITE:
                repair = f"`online_sums(…, {FINITE}=true)`"
                raise RESERVED(program, key=key, what="what a schedule says of factors of exponentials", repair=repair)
            if key == IN_RANGE:
                repair = f"`split_scan(…, {IN_RANGE}=true)` or `double_scan(…, {IN_RANGE}=true)`"
                raise RESERVED(program, key=key, what="what a schedule says of the factors of scans", repair=repair)
            refuse_in_order(program, key)
            if key == APPROX:
                what = "how near functions have to be"
                raise RESERVED(program, key=key, what=what, repair=f"give the task `{APPROX}=…`")
            if key.startswith(ASSUMED):
                what = "what a compute assumes of an input"
                raise RESERVED(program, key=key, what=what, repair="write `assume` in the compute")
    return Rewrite(with_annotations(program, part, {key: value}), None)
