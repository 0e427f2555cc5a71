"""Candidates that are made without expansion, by recombining draws of known traces, and the reserve of those expanded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
from tensorc_dsl.schedule.trace.trace import Draw, Trace
from tensorc_dsl.tuning.search.gp import Array
from tensorc_dsl.tuning.search.model import Forest, Layout
from tensorc_dsl.tuning.search.space import Explorer

# Generates thousands of candidates by recombining draws of known traces, ranked by their features without expansion.
#
# A candidate is a known trace (its template) with new decisions for some draws: from the draw's own distribution,
# by one of its moves, or from another good trace. Expanding a candidate takes milliseconds; this takes microseconds.
# If a changed draw changes the support of a later one, expansion redraws that one, and the features were an estimate.


Rows = NDArray[np.intp]

_SAMPLES = 128
"""Decisions of each distribution to recombine; the moves of good traces come on top."""


@dataclass(slots=True)
class Shelf:
    """Decisions of one distribution with their features and log probabilities, numbered in the order they came."""

    distribution: Distribution
    decisions: list[Decision] = field(default_factory=list[Decision])
    _features: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])
    _log_probs: list[float] = field(default_factory=list[float])
    _numbers: dict[tuple[str, Decision], int] = field(default_factory=dict[tuple[str, Decision], int])
    _moves: dict[int, Rows] = field(default_factory=dict[int, Rows])

    def number(self, decision: Decision) -> int:
        key = (type(decision).__name__, decision)
        if key not in self._numbers:
            self._numbers[key] = len(self.decisions)
            self.decisions.append(decision)
            self._features.append(self.distribution.features(decision))
            self._log_probs.append(self.distribution.log_prob(decision))
        return self._numbers[key]

    def moves(self, number: int) -> Rows:
        """The numbers of a decision's neighbours."""
        if number not in self._moves:
            near = self.distribution.moves(self.decisions[number])
            self._moves[number] = np.array([self.number(d) for d in near], dtype=np.intp)
        return self._moves[number]

    @property
    def width(self) -> int:
        return len(self._features[0])

    def tables(self) -> tuple[Array, Array]:
        """Features and log probabilities by number."""
        return np.array(self._features, dtype=np.float64).reshape(len(self.decisions), -1), np.array(self._log_probs)


@frozen
class Group:
    """Candidates of one template: a row each, with the number of each open draw's decision on its shelf."""

    template: Trace
    rows: Rows


class Pool:
    """Makes and describes candidates. The shelves stay from one request to the next."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._shelves: dict[Distribution, Shelf] = {}

    def _shelf(self, distribution: Distribution, rng: np.random.Generator) -> Shelf:
        if distribution not in self._shelves:
            shelf = Shelf(distribution)
            for _ in range(min(_SAMPLES, 4 * distribution.size())):
                shelf.number(distribution.sample(rng))
            self._shelves[distribution] = shelf
        return self._shelves[distribution]

    def _row(self, draws: tuple[Draw, ...], rng: np.random.Generator) -> list[int]:
        return [self._shelf(d.distribution, rng).number(d.decision) for d in draws]

    def recombine(self, template: Trace, mates: list[Trace], count: int, rng: np.random.Generator) -> Group:
        """`count` candidates: a third all anew, a third with a few draws moved or anew, a third crossed with mates."""
        draws = template.open_draws
        own = np.array(self._row(draws, rng), dtype=np.intp)
        rows = np.tile(own, (count, 1))
        kind = np.arange(count) % 3
        few = rng.random((count, len(draws))) < rng.choice([1.0, 2.0, 3.0], size=(count, 1)) / max(1, len(draws))
        step = rng.random((count, len(draws))) < 0.5
        mate_of = rng.integers(len(mates), size=count)
        take = rng.random((count, len(draws))) < 0.5
        made = [m.decisions for m in mates]
        for j, d in enumerate(draws):
            shelf = self._shelf(d.distribution, rng)
            near = shelf.moves(int(own[j]))
            theirs = np.array([self._of_mate(m, d, int(own[j]), shelf) for m in made], dtype=np.intp)
            anew = rng.integers(len(shelf.decisions), size=count)
            moved = near[rng.integers(len(near), size=count)] if len(near) else anew
            rows[:, j] = np.select(
                [kind == 0, (kind == 1) & few[:, j] & step[:, j], (kind == 1) & few[:, j], (kind == 2) & take[:, j]],
                [anew, moved, anew, theirs[mate_of]],
                default=rows[:, j],
            )
        return Group(template, np.unique(rows, axis=0))

    @staticmethod
    def _of_mate(mate: Mapping[str, Decision], draw: Draw, own: int, shelf: Shelf) -> int:
        theirs = mate.get(draw.name)
        return shelf.number(theirs) if theirs is not None and draw.distribution.contains(theirs) else own

    def single(self, template: Trace, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Group:
        """One candidate: the template with these decisions."""
        row = [self._shelf(d.distribution, rng).number(decisions[d.name]) for d in template.open_draws]
        return Group(template, np.array([row], dtype=np.intp))

    def beside(self, group: Group, row: int, rng: np.random.Generator) -> Group:
        """All candidates that differ from one by a single move."""
        base = group.rows[row]
        out: list[Rows] = []
        for j, d in enumerate(group.template.open_draws):
            near = self._shelf(d.distribution, rng).moves(int(base[j]))
            moved = np.tile(base, (len(near), 1))
            moved[:, j] = near
            out.append(moved)
        return Group(group.template, np.concatenate(out) if out else np.zeros((0, len(base)), dtype=np.intp))

    def describe(self, group: Group) -> tuple[Array, Array]:
        """Features (a row per candidate, in the layout's columns) and log probabilities of the group."""
        draws = group.template.open_draws
        shelves = [self._shelves[d.distribution] for d in draws]
        columns = [self._layout.columns(d.name, d.distribution, s.width) for d, s in zip(draws, shelves, strict=True)]
        features = np.zeros((len(group.rows), self._layout.width))
        log_probs = np.zeros(len(group.rows))
        for j, (shelf, (start, end)) in enumerate(zip(shelves, columns, strict=True)):
            table, chances = shelf.tables()
            features[:, start] = 1.0
            features[:, start + 1 : end] = table[group.rows[:, j]]
            log_probs += chances[group.rows[:, j]]
        return features, log_probs

    def decisions(self, group: Group, row: int) -> dict[str, Decision]:
        """A candidate's decisions, the template's pinned draws included."""
        out = dict(group.template.decisions)
        for j, d in enumerate(group.template.open_draws):
            out[d.name] = self._shelves[d.distribution].decisions[int(group.rows[row, j])]
        return out


# Offspring: the draws of good traces, recombined by the hundred and ranked by a forest over draws, without expansion.


JUDGED = 600
"""Recombinations that are ranked for each request."""

TREES = 40

PARENTS = 12
"""Traces that offspring come from."""


Structure = tuple[str, ...]
"""The names of the open draws of a trace."""


def structure_of(trace: Trace) -> Structure:
    return tuple([d.name for d in trace.open_draws])


def parents_of(ranked: Sequence[tuple[Trace, Structure]]) -> list[Trace]:
    """Of traces with their structures, fastest first, half the fastest, then the fastest of each other structure."""
    best = ranked[: PARENTS // 2]
    fastest: dict[Structure, Trace] = {}
    for trace, structure in ranked:  # all trials of a search, for each batch
        if structure not in fastest:
            fastest[structure] = trace
    near = {structure for _, structure in best}
    new = [t for structure, t in fastest.items() if structure not in near]
    others = [t for t, _ in ranked[len(best) : 2 * PARENTS] if all(t is not n for n in new)]
    return ([t for t, _ in best] + new + others)[:PARENTS]


class Breeder:
    """Describes traces by their draws, and recombines them."""

    def __init__(self) -> None:
        self._layout = Layout()
        self._pool = Pool(self._layout)

    def vector(self, trace: Trace) -> Array:
        """The numbers of the trace's draws; those of other traces may be longer (`matrix`)."""
        return self._layout.vector(trace)

    def matrix(self, vectors: Sequence[Array]) -> Array:
        return self._layout.matrix(list(vectors))

    def offspring(
        self, parents: Sequence[Trace], tried: Sequence[Array], speeds: Array, blind: int, rng: np.random.Generator
    ) -> Iterator[dict[str, Decision]]:
        """Decisions that recombine the parents' draws, those first that look fast by their draws.

        `tried` are vectors of draws with their log speeds. Every `blind`-th of the decisions is any, so that a forest that is
        wrong does not choose all of them; 0 for none.
        """
        share = max(1, JUDGED // len(parents))
        groups = [self._pool.recombine(t, list(parents), share, rng) for t in parents]
        where = [(g, row) for g in groups for row in range(len(g.rows))]
        rows = self.matrix([row for g in groups for row in self._pool.describe(g)[0]])
        merit = Forest.fit(self.matrix(tried), speeds, trees=TREES).at(rows)
        order: list[int] = np.argsort(-merit, kind="stable").tolist()
        anyhow: list[int] = rng.permutation(len(where)).tolist()
        for turn, best in enumerate(order, 1):
            group, row = where[anyhow[turn - 1] if blind and turn % blind == 0 else best]
            yield self._pool.decisions(group, row)


# The reserve: candidates that are expanded and have features, but were not tried.
#
# Expanding one costs tens of milliseconds, so none is discarded: a candidate that the model does not pick is ranked again
# for the next batch, with an updated model.


MOST = 256
"""Candidates that wait; beyond that the oldest are given up."""


@frozen
class Candidate:
    """A new program, with its structure, the numbers of its loops and of its draws, and its cycles by a model, where there is
    one."""

    trace: Trace
    structure: Structure
    loops: Array
    draws: Array
    cycles: float | None = None


class Reserve:
    """Makes candidates, and keeps those that were not picked, to rank them again."""

    def __init__(self, explorer: Explorer, sizes: Sizes | None = None) -> None:
        """Of open dimensions, the numbers of loops and the cycles are those at these sizes, or those of the explorer."""
        self._explorer = explorer
        self._sizes = sizes
        self._breeder = Breeder()
        self.waiting: list[Candidate] = []

    def rows(self, candidates: Sequence[Candidate]) -> Array:
        """A row for each candidate: the numbers of its loops, then those of its draws."""
        loops = np.array([c.loops for c in candidates])
        return np.hstack([loops, self._breeder.matrix([c.draws for c in candidates])])

    def drawn(self, count: int) -> list[Candidate]:
        """Up to `count` new draws from the prior."""
        return [self.described(t) for t in self._explorer.draws(count)]

    def bred(
        self, parents: Sequence[Trace], known: Sequence[tuple[Candidate, float]], count: int, blind: int = 0
    ) -> list[Candidate]:
        """Up to `count` new offspring of the parents, those first that look fast by their draws.

        `known` are candidates with their log speeds. Every `blind`-th offspring is any; 0 for none.
        """
        rng = self._explorer.rng("offspring")
        vectors, speeds = [c.draws for c, _ in known], np.array([s for _, s in known])
        offspring = self._breeder.offspring(parents, vectors, speeds, blind, rng)
        return [self.described(t) for t in self._explorer.offspring(offspring, count, 4 * count)]

    def replayed(self, many: Iterable[Mapping[str, Decision]], count: int, tries: int) -> list[Candidate]:
        """At most `count` new programs that the first of these decisions make, of which at most `tries` are considered."""
        return [self.described(t) for t in self._explorer.first(many, count, tries)]

    def moved(self, many: Sequence[Mapping[str, Decision]]) -> list[Candidate]:
        """The new programs that schedules of other tasks become here."""
        return [self.described(t) for t in self._explorer.moved(many)]

    def beside(self, traces: list[Trace]) -> list[Candidate]:
        """The first new neighbour of the traces, if there is one."""
        trace = self._explorer.neighbour(traces)
        return [] if trace is None else [self.described(trace)]

    def keep(self, candidates: Sequence[Candidate]) -> None:
        """The candidates wait."""
        self.waiting += candidates
        del self.waiting[:-MOST]

    def take(self, rows: Sequence[int]) -> list[Candidate]:
        """Those that wait at these places, in their order, which wait no more."""
        return self.taken([self.waiting[i] for i in rows])

    def taken(self, candidates: list[Candidate]) -> list[Candidate]:
        """These, which wait no more."""
        gone = set(map(id, candidates))
        self.waiting = [c for c in self.waiting if id(c) not in gone]
        return candidates

    def described(self, trace: Trace) -> Candidate:
        """The trace as a candidate, which does not wait."""
        at = () if self._sizes is None else (self._sizes,)
        loops, cycles = self._explorer.describe(trace, *at), self._explorer.modelled(trace, *at)
        return Candidate(trace, structure_of(trace), loops, self._breeder.vector(trace), cycles)
