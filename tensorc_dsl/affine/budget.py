"""Limits questions about integer sets to a number of isl operations, which is the same on every machine.

Usual questions take some thousand operations. If a question contains numbers without common divisors, isl computes with
integers of hundreds of digits, and an operation may take a thousand times as long: such questions effectively never end.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tensorc_dsl.affine import isl

OPERATIONS = 4 * 10**5
"""Operations of one question or one group of questions: four times what sufficed for all but 4 of 20,000 schedules."""


class Exhausted(Exception):
    """A question takes more operations than are allowed."""


@contextmanager
def bounded() -> Generator[None]:
    """Within this context, questions take at most OPERATIONS between two calls of `renew`. Raises Exhausted, isl.Error."""
    context = isl.DEFAULT_CONTEXT
    around = context.get_max_operations()
    context.set_max_operations(OPERATIONS)
    context.reset_operations()
    try:
        yield
    except isl.Error as e:
        if not _spent():
            raise
        raise Exhausted from e
    finally:
        context.set_max_operations(around)
        context.reset_operations()


def renew(times: int = 1) -> None:
    """Begin a new question; inside `bounded` it may take `times` * OPERATIONS."""
    context = isl.DEFAULT_CONTEXT
    if context.get_max_operations():
        context.set_max_operations(times * OPERATIONS)
        context.reset_operations()


def _spent() -> bool:
    """Whether all operations are used, so that no further question can be asked."""
    try:
        isl.Set("{ [0] }")
    except isl.Error:
        return True
    return False


__all__ = ["OPERATIONS", "Exhausted", "bounded", "renew"]
