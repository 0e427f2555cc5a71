"""Results kept by the identity of what they are about.

Equal programs are found by hashing all that is in them, which takes as long as many a question about them. The steps of a
schedule share most objects, so the same object is what is asked about again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


def by_identity(size: int) -> Callable[[Callable[[A], R]], Callable[[A], R]]:
    """Keep the results of a function of one object that never changes, for the last `size` objects or fewer."""

    def keep(function: Callable[[A], R]) -> Callable[[A], R]:
        known: dict[int, tuple[A, R]] = {}  # an object is kept, so that its number is not another's

        @wraps(function)
        def ask(about: A) -> R:
            found = known.get(id(about))
            if found is None:
                if len(known) >= size:
                    known.clear()
                found = known[id(about)] = (about, function(about))
            return found[1]

        return ask

    return keep
