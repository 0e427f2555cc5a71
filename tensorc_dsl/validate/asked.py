"""The obligation for two nodes: the pairs of instances at which their values have to be equal, from all readers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorc_dsl.affine import isl
from tensorc_dsl.validate.facts import TooMany
from tensorc_dsl.validate.plain import joined
from tensorc_dsl.validate.values import Node


@dataclass(frozen=True, slots=True, eq=False)
class Obligation:
    """The claim that `a` and `b` have equal values at `pairs`, a map from instances of `a` to instances of `b`."""

    a: Node
    b: Node
    pairs: isl.Map


FEW = 4
"""The pieces that may be added before pieces are joined."""


class Asked:
    """Obligations about the same nodes, as one. Raises TooMany beyond so many `pieces`, if there is a limit.

    Joining compares each piece with each other one. So it waits until there are a quarter more than it left before.
    """

    def __init__(self, first: Obligation, pieces: int | None) -> None:
        self._first = first
        self._limit = pieces
        self._pairs = first.pairs
        self._left = first.pairs.n_basic_map()
        self._check()

    def add(self, pairs: isl.Map) -> None:
        self._pairs = self._pairs.union(pairs)
        count = self._pairs.n_basic_map()
        if count > self._left + max(FEW, self._left // 4) or (self._limit is not None and count > self._limit):
            self._join()
            self._check()

    def together(self) -> Obligation:
        """The claim about all pairs."""
        if self._pairs.n_basic_map() > self._left:
            self._join()
        return replace(self._first, pairs=self._pairs)

    def _join(self) -> None:
        self._pairs = joined(self._pairs)
        self._left = self._pairs.n_basic_map()

    def _check(self) -> None:
        if self._limit is not None and self._pairs.n_basic_map() > self._limit:
            raise TooMany(f"a question falls into more than {self._limit} pieces")
