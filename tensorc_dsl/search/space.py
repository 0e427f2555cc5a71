"""The interface of a search to a space, which returns traces that have not been tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from tensorc_dsl.backend.once import lowered_once
from tensorc_dsl.ir.bind import Sizes, bind
from tensorc_dsl.ir.program import MAX_STEP, Program, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.records.keys import digest, program_key
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.search.gp import Array
from tensorc_dsl.search.loop_features import loop_features
from tensorc_dsl.search.streams import stream
from tensorc_dsl.trace.draw import Decision
from tensorc_dsl.trace.trace import Refused, Trace


def kernel_key(program: Program, target: Target) -> str:
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


class SpaceLike(Protocol):
    """A distribution over traces; `interp.space.Space` is one. Both methods raise ScheduleRefusal if a step is refused."""

    def sample(self, rng: np.random.Generator) -> Trace:
        """A draw from the prior."""
        ...

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        """The trace with these decisions; those that are missing or do not fit are drawn from `rng`."""
        ...


class Explorer:
    """Takes new traces out of a space, each program once.

    Two lists of decisions can make one program, and two programs the same loops, so programs are compared by their loops.
    A refusal is skipped; it is no error. Every request gives up after a bounded number of expansions, so an exhausted space
    ends a search.
    """

    TRIES = 48
    """Expansions in a row without anything new before `draw` gives up: a program with 5 % of the prior is then missed
    with probability .95^48 < .09, and the neighbours of what was seen (`neighbour`) are asked afterwards."""

    def __init__(self, space: SpaceLike, seed: int, task: str, target: Target, sizes: Sizes | None = None) -> None:
        self._space = space
        self._sizes = sizes or {}
        self._target = target
        self._seed = seed
        self._task = task
        self._seen: set[str] = set()
        self._asked: set[tuple[tuple[str, str, Decision], ...]] = set()
        self._exhausted = False
        self._slots = 0
        self.refusals = 0
        self.refused: Counter[Refused] = Counter()
        """In how many of the schedules each rule was refused."""

    def rng(self, purpose: str) -> np.random.Generator:
        """A new random stream for each call, independent of the draws from the others."""
        self._slots += 1
        return stream(self._seed, self._task, f"{purpose}/{self._slots}")

    def draw(self) -> Trace | None:
        """A new program from the prior; None if none is found."""
        if self._exhausted:
            return None
        rng = self.rng("prior")
        for _ in range(self.TRIES):
            trace = self._expand(None, rng)
            if trace is not None and self._take(trace):
                return trace
        self._exhausted = True
        return None

    def replay(self, decisions: Mapping[str, Decision]) -> Trace | None:
        """The program that the decisions make; None if it is inapplicable or not new."""
        key = _key(decisions)
        if key in self._asked:
            return None
        self._asked.add(key)
        trace = self._expand(decisions, self.rng("replay"))
        return trace if trace is not None and self._take(trace) else None

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

    def describe(self, trace: Trace) -> Array:
        """The numbers of the program's loops, at the largest of the sizes that it is timed at."""
        return loop_features(bind(trace.program, self._sizes), self._target)

    def _expand(self, decisions: Mapping[str, Decision] | None, rng: np.random.Generator) -> Trace | None:
        try:
            trace = self._space.sample(rng) if decisions is None else self._space.replay(decisions, rng)
        except ScheduleRefusal:
            self.refusals += 1
            return None
        self.refused.update(trace.refused)
        return trace

    def _take(self, trace: Trace) -> bool:
        key = kernel_key(trace.program, self._target)
        self._asked.add(_key(trace.decisions))
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
