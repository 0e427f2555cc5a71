"""A bound on questions about integer sets: so many operations of isl each, the same ones on every machine.

Usual questions take some thousand operations. Where numbers without common divisors meet, isl computes with integers of
hundreds of digits, and an operation may take a thousand times as long as others: what is not answered soon never is.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tensorc_dsl.affine import isl

OPERATIONS = 4 * 10**5
"""Of one question, or of some that belong together: four times what answered all but 4 of 20,000 random schedules."""


class Exhausted(Exception):
    """A question takes more than the operations that are allowed."""


@contextmanager
def bounded() -> Generator[None]:
    """Questions asked inside take no more than OPERATIONS from one `renew` to the next. Raises Exhausted, isl.Error."""
    context = isl.DEFAULT_CONTEXT
    context.set_max_operations(OPERATIONS)
    context.reset_operations()
    try:
        yield
    except isl.Error as e:
        if not _spent():
            raise
        raise Exhausted from e
    finally:
        context.set_max_operations(0)


def renew(times: int = 1) -> None:
    """The next question begins; inside `bounded` it may take so many times OPERATIONS."""
    context = isl.DEFAULT_CONTEXT
    if context.get_max_operations():
        context.set_max_operations(times * OPERATIONS)
        context.reset_operations()


def _spent() -> bool:
    """Whether all operations are used: then nothing can be asked any more."""
    try:
        isl.Set("{ [0] }")
    except isl.Error:
        return True
    return False


__all__ = ["OPERATIONS", "Exhausted", "bounded", "renew"]
