"""Foresees which decisions make a program that is known: some draws do not matter to some programs.

Expansions are most of the cost of proposals, and a third of those of a search over a matrix product made a program that was
there: a limit for unrolling between two loops' sizes, or an order of tiles that is the order they had. Which draws these are
is learnt from the expansions. Two of them are compared if their decisions differ in at most two draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from tensorc_dsl.schedule.trace.distribution import Decision

KEPT = 512
"""New decisions are compared with at least so many of the latest, and with at most twice as many."""

NEAR = 3
"""How many of those that agree in all draws but one or two are compared."""

PAIRS, NAMES = 2, 6
"""So many comparisons of the same values tell whether these matter; where there are fewer, so many of the same draws."""

SHARE = 0.8
"""The share of these comparisons in which the programs were the same."""

Difference = tuple[tuple[str, frozenset[Decision | None]], ...]
"""Names of draws, each with the two decisions; None for a draw that one side did not make."""

What = Difference | tuple[str, ...]
"""A difference, or its names alone."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Decisions, and the key of the program that they make or are expected to make; None while that is not known."""

    decisions: Mapping[str, Decision]
    program: str | None


@dataclass(slots=True)
class Twins:
    """What expansions told so far."""

    latest: list[_Known] = field(default_factory=list[_Known])
    compared: Counter[What] = field(default_factory=Counter[What])
    same: Counter[What] = field(default_factory=Counter[What])
    """How often programs were compared that differ so, by values and by names, and how often they were the same."""

    near: dict[int, tuple[_Known, ...]] = field(default_factory=dict[int, tuple[_Known, ...]])
    """The latest `NEAR` decisions by what is left of them without one or two draws, as a digest."""

    digests: dict[tuple[str, Decision], int] = field(default_factory=dict[tuple[str, Decision], int])

    def __getstate__(self) -> tuple[object, ...]:
        """What cannot be made again from it is left out."""
        return self.latest, self.compared, self.same

    def __setstate__(self, state: tuple[list[_Known], Counter[What], Counter[What]]) -> None:
        self.__init__(state[0], state[1], state[2])
        self._forget(0)

    def expected(self, decisions: Mapping[str, Decision]) -> bool:
        """Whether the decisions are expected to make the program of others that were proposed or added before."""
        twin = next((known for d, known in self._compared(decisions) if self._alike(d)), None)
        self._keep(_Known(dict(decisions), None if twin is None else twin.program))
        return twin is not None

    def add(self, decisions: Mapping[str, Decision], program: str) -> None:
        """The decisions made the program with this key."""
        for difference, known in self._compared(decisions):
            if known.program is None:
                continue
            for what in (difference, _names(difference)):
                self.compared[what] += 1
                self.same[what] += known.program == program
        self._keep(_Known(dict(decisions), program))

    def _keep(self, new: _Known) -> None:
        self.latest.append(new)
        self._place(new)
        if len(self.latest) >= 2 * KEPT:
            self._forget(KEPT)

    def _alike(self, difference: Difference) -> bool:
        what = difference if self.compared[difference] >= PAIRS else _names(difference)
        return self.compared[what] >= (PAIRS if what is difference else NAMES) and (
            self.same[what] >= SHARE * self.compared[what]
        )

    def _compared(self, decisions: Mapping[str, Decision]) -> list[tuple[Difference, _Known]]:
        """Known decisions that differ in at most two draws, the latest for each way to differ."""
        near = {id(known): known for d in self._digests(decisions) for known in self.near.get(d, ())}
        found = {_difference(decisions, known.decisions): known for known in near.values()}
        return [(d, known) for d, known in found.items() if 0 < len(d) <= 2]

    def _digests(self, decisions: Mapping[str, Decision]) -> list[int]:
        """Of what is left without each draw, and without each two."""
        parts = [self.digests.get(item) or self._digest(item) for item in decisions.items()]
        whole = 0
        for part in parts:
            whole ^= part
        without = [whole ^ part for part in parts]
        return without + [rest ^ part for n, rest in enumerate(without, 1) for part in parts[n:]]

    def _digest(self, item: tuple[str, Decision]) -> int:
        found = int.from_bytes(blake2b(repr(item).encode(), digest_size=8).digest())
        self.digests[item] = found
        return found

    def _forget(self, first: int) -> None:
        """Only the latest from the first of these on are known."""
        del self.latest[:first]
        self.near.clear()
        for known in self.latest:
            self._place(known)

    def _place(self, known: _Known) -> None:
        for digest in self._digests(known.decisions):
            self.near[digest] = (*self.near.get(digest, ())[1 - NEAR :], known)


def _difference(one: Mapping[str, Decision], other: Mapping[str, Decision]) -> Difference:
    names = [n for n in one.keys() | other.keys() if one.get(n) != other.get(n)]
    return tuple([(n, frozenset((one.get(n), other.get(n)))) for n in sorted(names)])


def _names(difference: Difference) -> tuple[str, ...]:
    return tuple([name for name, _ in difference])
