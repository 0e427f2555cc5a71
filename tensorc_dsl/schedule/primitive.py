"""Runs primitives by name, and keeps the results of the last steps."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.stale import refuse_stale
from tensorc_dsl.schedule.step import (
    ALL_STEPS,
    BlockRef,
    BufferRef,
    IndexMap,
    LoopRef,
    NodeRef,
    Result,
    Rewrite,
    ScheduleRefusal,
)

KEPT = 256
"""Programs whose next steps are kept."""


def apply(program: Program, name: str, *args: Any, **kwargs: Any) -> Rewrite[Result]:
    """Run a primitive by name. Raises KeyError for an unknown name, ScheduleRefusal if the step does not apply.

    A step that breaks a declaration of an earlier one is refused (`stale`). Of the last programs the results are kept: a rule
    asks whether a step would be accepted and makes it then, and draws from one space have their first steps in common.
    """
    key = _key(name, args, kwargs)
    known = _made(program)
    if key is not None and key in known:
        return known[key]
    rewrite = ALL_STEPS[name].function(program, *args, **kwargs)
    if rewrite.program is not program:
        refuse_stale(name, program, rewrite.program)
    if key is not None:
        known[key] = rewrite
    return rewrite


def accepts(program: Program, name: str, *args: Any, **kwargs: Any) -> bool:
    """Whether the step would be accepted: it is tried, since its conditions are proved, and a few facts do not decide them.

    Only a ScheduleRefusal means that it would not; any other exception propagates.
    """
    key = _key(name, args, kwargs)
    known = _accepted(program)
    if key is None or key not in known:
        try:
            apply(program, name, *args, **kwargs)
            answer = True
        except ScheduleRefusal:
            answer = False
        if key is None:
            return answer
        known[key] = answer
    return known[key]


@by_identity(KEPT)
def _made(_program: Program) -> dict[Hashable, Rewrite[Any]]:
    return {}


@by_identity(KEPT)
def _accepted(_program: Program) -> dict[Hashable, bool]:
    return {}


def _key(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> Hashable | None:
    """Equal for calls with equal arguments, true and 1 being two; None if one is neither a name, a number nor a map."""
    if not all(map(_is_simple, (*args, *kwargs.values()))):
        return None
    return name, repr(args), repr(kwargs)


def _is_simple(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_simple, cast("tuple[object, ...]", value)))
    return value is None or isinstance(value, BlockRef | LoopRef | BufferRef | NodeRef | IndexMap | str | int | float)
