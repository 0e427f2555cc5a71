"""islpy, imported at its first use: most checks of a file do not need it, and start sooner without; and a limit on the
operations of questions, which is the same on every machine.

Usual questions take some thousand operations. If a question contains numbers without common divisors, isl computes with
integers of hundreds of digits, and an operation may take a thousand times as long: such questions effectively never end.
A proof makes hundreds of queries, or without a limit any number of them, so all of them share a limit as well.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from islpy import (
        DEFAULT_CONTEXT,
        BasicSet,
        Constraint,
        Context,
        Error,
        LocalSpace,
        Map,
        Set,
        Space,
        dim_type,
    )


__all__ = [
    "DEFAULT_CONTEXT", "OPERATIONS", "QUESTIONS", "BasicSet", "Constraint", "Context", "Error", "Exhausted", "LocalSpace",
    "Map", "Set", "Space", "bounded", "dim_type", "renew",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # an import of this module's names asks whether it is a package
        raise AttributeError(name)
    value = globals()[name] = getattr(import_module("islpy"), name)
    return value


_isl: Any = sys.modules[__name__]
"""This module: a name of islpy is found by `__getattr__`, and once in the module."""


OPERATIONS = 16 * 10**5
"""Operations of one question or one group of questions: sixteen times what sufficed for all but 4 of 20,000 schedules,
and twice what the largest of 5,000 random pipelines needs."""

QUESTIONS = 100
"""The questions of OPERATIONS each that all questions of a proof may take together: one of 10,000 random pipelines takes more
than half of them, all others less than a sixth. An operation takes .2 to .8 µs on an idle machine."""

FEW = 4096
"""Operations of usual questions. Each of these counts for a quarter of it: to ask isl for their number takes as long."""


class Exhausted(Exception):
    """A question, or all of them together, take more operations than are allowed."""


class _Left:
    operations: int = 0
    """How many operations the questions within the outermost `bounded` may still take."""


@contextmanager
def bounded(questions: int | None = None) -> Generator[None]:
    """Within this context, questions take at most OPERATIONS between two calls of `renew`, and all of them, with those of
    contexts inside of it, `questions` times as many, by default QUESTIONS, if no context around it has a limit.
    Raises Exhausted, isl.Error.
    """
    context = _isl.DEFAULT_CONTEXT
    around = context.get_max_operations()
    if around:
        _charge()
    else:
        _Left.operations = (questions or QUESTIONS) * OPERATIONS
    context.set_max_operations(OPERATIONS)
    context.reset_operations()
    try:
        yield
    except _isl.Error as e:
        if not _takes(context.get_max_operations()):
            raise
        raise Exhausted from e
    finally:
        if around:
            _charge()
        context.set_max_operations(around)
        context.reset_operations()


def renew(times: int = 1) -> None:
    """Begin a new question; inside `bounded` it may take `times` * OPERATIONS. Raises Exhausted if none are left for it."""
    context = _isl.DEFAULT_CONTEXT
    if context.get_max_operations():
        _charge()
        if _Left.operations <= 0:
            raise Exhausted
        context.set_max_operations(times * OPERATIONS)
        context.reset_operations()


def _charge() -> None:
    limit = _isl.DEFAULT_CONTEXT.get_max_operations()
    _Left.operations -= (
        FEW // 4 if not _takes(FEW) else next((n // 2 for n in (4 * FEW, 16 * FEW) if not _takes(n)), limit)
    )


def _takes(operations: int) -> bool:
    """Whether the question has taken so many operations. isl does not say how many, but refuses the next one."""
    context = _isl.DEFAULT_CONTEXT
    limit = context.get_max_operations()
    context.set_max_operations(operations)
    try:
        _isl.Val.zero(context)
    except _isl.Error:
        return True
    finally:
        context.set_max_operations(limit)
    return False
