"""Caches of results by the identity of the argument.

Looking up an equal program means hashing all of it, which takes as long as many questions about it. The programs after
successive steps of a schedule share most objects, so a cache by identity is hit often.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, TypeVarTuple

A = TypeVar("A")
R = TypeVar("R")
More = TypeVarTuple("More")


def by_identity(size: int) -> Callable[[Callable[[A], R]], Callable[[A], R]]:
    """Decorator: caches a function of one immutable object, for at most `size` objects: the last `size / 2` that it was asked
    about are among them."""
    half = max(1, size // 2)

    def keep(function: Callable[[A], R]) -> Callable[[A], R]:
        young: dict[int, tuple[A, R]] = {}  # the object is kept alive, so that its id is not reused
        old: dict[int, tuple[A, R]] = {}

        @wraps(function)
        def ask(about: A) -> R:
            nonlocal young, old
            found = young.get(id(about))
            if found is None:
                if len(young) >= half:
                    young, old = {}, young
                found = young[id(about)] = old.get(id(about)) or (about, function(about))
            return found[1]

        return ask

    return keep


def by_first(size: int) -> Callable[[Callable[[A, *More], R]], Callable[[A, *More], R]]:
    """Decorator: as `by_identity`, of a function that takes more; its other arguments have few values, and are hashed."""

    def keep(function: Callable[[A, *More], R]) -> Callable[[A, *More], R]:
        @by_identity(size)
        def known(_: A) -> dict[tuple[*More], R]:
            return {}

        @wraps(function)
        def ask(about: A, *more: *More) -> R:
            results = known(about)
            if more not in results:
                results[more] = function(about, *more)
            return results[more]

        return ask

    return keep
