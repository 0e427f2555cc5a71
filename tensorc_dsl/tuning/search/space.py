"""The interface of a search to a space, which returns traces that have not been tried, and predictions of a model of the
target.

Expansions are most of the cost of proposals, and a third of those of a search over a matrix product made a program that
was there: a limit for unrolling between two loops' sizes, or an order of tiles that is the order they had. Which draws
do not matter to a program is learnt from the expansions, so that duplicates are foreseen. Two expansions are compared if
their decisions differ in at most two draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

import numpy as np

from tensorc_dsl.backend.once import lowered_once, lowering_for
from tensorc_dsl.backend.protocol import Registers
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import MAX_STEP, Program, walk
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Refused, Trace
from tensorc_dsl.tuning.records.trial import digest, program_key
from tensorc_dsl.tuning.search.expansion import Expander, Order, SpaceLike, described, here, stream
from tensorc_dsl.tuning.search.gp import Array

REMEMBERED = 512
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


@frozen
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
        if len(self.latest) >= 2 * REMEMBERED:
            self._forget(REMEMBERED)

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
        for key in self._digests(known.decisions):
            self.near[key] = (*self.near.get(key, ())[1 - NEAR :], known)


def _difference(one: Mapping[str, Decision], other: Mapping[str, Decision]) -> Difference:
    names = [n for n in one.keys() | other.keys() if one.get(n) != other.get(n)]
    return tuple([(n, frozenset((one.get(n), other.get(n)))) for n in sorted(names)])


def _names(difference: Difference) -> tuple[str, ...]:
    return tuple([name for name, _ in difference])


# Predictions of a backend's model of time for candidates before any is measured.


KEPT = 1024
"""Programs whose cycles are kept."""

_Key = tuple[tuple[tuple[str, int], ...], Target]


def modelled(program: Program, sizes: Sizes, target: Target) -> float | None:
    """The cycles of a scheduled program at these sizes, computed at the first request; infinite if it cannot run.

    None where there is no model, or no code for the program.
    """
    known, key = _known(program), _modelled_key(sizes, target)
    if key not in known:
        try:
            kernel = lowered_once(program, target).kernel
            known[key] = lowering_for(target).cycles(kernel, target, sizes, Registers())
        except LowerError:
            known[key] = None
    return known[key]


def remember_modelled_cycles(program: Program, sizes: Sizes, target: Target, cycles: float | None) -> None:
    """The cycles of the program are known from another process."""
    _known(program)[_modelled_key(sizes, target)] = cycles


def _modelled_key(sizes: Sizes, target: Target) -> _Key:
    return tuple(sorted(sizes.items())), target


@by_identity(KEPT)
def _known(_program: Program) -> dict[_Key, float | None]:
    return {}


# The interface of a search to a space, which returns traces that have not been tried.


def candidate_key(program: Program, target: Target) -> str:
    """A key that is equal for programs with the same lowered loops, up to names, and the same annotations.

    Lowering removes loops of one iteration, guards that always hold and limits of unrolling without effect, so equal
    candidates have equal lowered loops. The key of a program that cannot be lowered is that of its text; its measurement
    reports the reason.
    """
    try:
        loops = lowered_once(program, target).key
    except LowerError:
        return program_key(program)
    noted = [program.annotations, *(s.annotations for _, s in walk(program.body))]
    heeded = [[n for n in notes if n[0] != MAX_STEP] for notes in noted]
    return digest(f"{loops}\n{[n for n in heeded if n]}")


class Explorer:
    """Takes new traces out of a space, each program once.

    Two lists of decisions can make one program, and two programs the same loops, so programs are compared by their loops.
    A refusal is skipped; it is no error. Every request gives up after a bounded number of expansions, so an exhausted space
    ends a search.
    """

    TRIES = 48
    """Expansions in a row without anything new before `draw` gives up: a program with 5 % of the prior is then missed
    with probability .95^48 < .09, and the neighbours of what was seen (`neighbour`) are asked afterwards."""

    WALKED = 4
    """So many decisions are looked at for each that may be expanded, where most are expected to be known."""

    def __init__(
        self,
        space: SpaceLike,
        seed: int,
        task: str,
        target: Target,
        sizes: Sizes | None = None,
        expander: Expander | None = None,
    ) -> None:
        """An explorer of the space, whose traces `expander` makes; by default this process does."""
        self._expander = expander or here(space)
        self._sizes = sizes or {}
        self._target = target
        self._seed = seed
        self._task = task
        self._seen: set[str] = set()
        self._asked: set[tuple[tuple[str, str, Decision], ...]] = set()
        self._twins = Twins()
        self._exhausted = False
        self._slots = 0
        self.refusals = 0
        self.refused: Counter[Refused] = Counter()
        """In how many of the schedules each rule was refused."""

    def rng(self, purpose: str) -> np.random.Generator:
        """A new random stream for each call, independent of the draws from the others."""
        return stream(self._seed, self._task, self._slot(purpose))

    def draw(self) -> Trace | None:
        """A new program from the prior; None if none is found."""
        return next(iter(self.draws(1)), None)

    def draws(self, count: int) -> list[Trace]:
        """New programs from the prior: `count`, or fewer if the space seems to have no more."""
        out: list[Trace] = []
        failed = 0
        while len(out) < count and not self._exhausted:
            for trace in self._expanded("prior", [None] * min(count - len(out), self.TRIES - failed)):
                if trace is not None and self._take(trace):
                    out.append(trace)
                    failed = 0
                else:
                    failed += 1
            self._exhausted = failed >= self.TRIES
        return out

    def replay(self, decisions: Mapping[str, Decision]) -> Trace | None:
        """The program that the decisions make; None if it is inapplicable or not new."""
        return next(iter(self.replays([decisions])), None)

    def replays(self, many: Iterable[Mapping[str, Decision]]) -> list[Trace]:
        """The programs that these decisions make, in their order, without those that are inapplicable or not new."""
        wanted: list[Mapping[str, Decision]] = []
        for decisions in many:
            if (key := _key(decisions)) not in self._asked:
                self._asked.add(key)
                wanted.append(decisions)
        return self._new("replay", wanted)

    def moved(self, many: Iterable[Mapping[str, Decision]]) -> list[Trace]:
        """The programs that schedules of other tasks, given by their decisions, become in this space, without known ones."""
        return self._new("moved", list(many))

    def first(self, many: Iterable[Mapping[str, Decision]], count: int, tries: int) -> list[Trace]:
        """At most `count` programs that the first of these decisions make; at most `tries` decisions are considered."""
        out: list[Trace] = []
        left = islice(many, tries)
        while len(out) < count and (some := list(islice(left, count - len(out)))):
            out += self.replays(some)
        return out

    def offspring(self, many: Iterable[Mapping[str, Decision]], count: int, tries: int) -> list[Trace]:
        """As `first`, without decisions that are expected to make a program that is known (`Twins`)."""
        return self.first((d for d in islice(many, self.WALKED * tries) if not self._twins.expected(d)), count, tries)

    def neighbour(self, traces: list[Trace]) -> Trace | None:
        """The first unseen program one move away from one of the traces, in their order; None when there is none left.

        At most `TRIES` neighbours are expanded per call.
        """
        tries = 0
        for trace in traces:
            for decisions in neighbours(trace):
                if tries == self.TRIES:
                    return None
                if _key(decisions) not in self._asked:
                    tries += 1
                    found = self.replay(decisions)
                    if found is not None:
                        return found
        return None

    def followed(self, traces: list[Trace]) -> bool:
        """Whether every move from each of the traces was expanded, so that no single one leads to a new program."""
        return all(_key(decisions) in self._asked for trace in traces for decisions in neighbours(trace))

    def describe(self, trace: Trace, sizes: Sizes | None = None) -> Array:
        """The numbers of the program's loops, at these sizes or the largest of those that it is timed at."""
        return described(trace.program, self._sizes if sizes is None else sizes, self._target)

    def modelled(self, trace: Trace, sizes: Sizes | None = None) -> float | None:
        """The program's cycles by a model of the target, at the same sizes; None where there is none."""
        return modelled(trace.program, self._sizes if sizes is None else sizes, self._target)

    def _slot(self, purpose: str) -> str:
        self._slots += 1
        return f"{purpose}/{self._slots}"

    def _new(self, purpose: str, many: Sequence[Mapping[str, Decision]]) -> list[Trace]:
        found = self._expanded(purpose, many)
        return [t for d, t in zip(many, found, strict=True) if t is not None and self._take(t, d)]

    def _expanded(self, purpose: str, many: Sequence[Mapping[str, Decision] | None]) -> list[Trace | None]:
        """The traces with these decisions, or from the prior; None for a refusal."""
        moved = purpose == "moved"
        orders = [Order(self._seed, self._task, self._slot(purpose), decisions, moved) for decisions in many]
        found = self._expander(orders) if orders else []
        for trace in found:
            if trace is None:
                self.refusals += 1
            else:
                self.refused.update(trace.refused)
        return found

    def _take(self, trace: Trace, wanted: Mapping[str, Decision] | None = None) -> bool:
        """Whether the program is new. `wanted` are the decisions that it was to have; it may have no use for some of them."""
        key = candidate_key(trace.program, self._target)
        self._asked.add(_key(trace.decisions))
        self._twins.add(trace.decisions, key)
        if wanted is not None and wanted != trace.decisions:
            self._twins.add(wanted, key)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


def _key(decisions: Mapping[str, Decision]) -> tuple[tuple[str, str, Decision], ...]:
    """Equal for equal decisions; true is not 1."""
    return tuple((name, type(d).__name__, d) for name, d in sorted(decisions.items(), key=lambda item: item[0]))


def neighbours(trace: Trace) -> list[dict[str, Decision]]:
    """The trace's decisions with one open draw moved to a neighbour, in the order of the draws."""
    base = dict(trace.decisions)
    return [base | {d.name: moved} for d in trace.open_draws for moved in d.distribution.moves(d.decision)]
