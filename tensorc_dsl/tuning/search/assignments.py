"""Spaces whose assignments are listed: decisions of some draws, a row for each assignment that the constraints allow; and the
choice among the rows.

Such a space is flat: its draws have no loops, and an assignment needs no expansion. So a strategy can judge all of them by
their features (`columns`) in each step, and an explorer of one (`ListedExplorer`) makes the trace of a row when it is asked.
A space of too many assignments is sampled: `rows` are then some of them, and `near` finds others beside a given one.

A Gaussian process over the features of the draws judges every row in every step (`Survey`). The first trials lie apart, the
first of them in the middle. Then each trial is the row whose expected improvement of the log speed is the largest (Jones,
Schonlau & Welch, Journal of Global Optimization 13, 1998), in logarithms, since most rows have next to none (Ament et al.,
NeurIPS 2023). In turns it is chosen among all rows, and among those that differ from the fastest in one draw, as annealing
walks: there the process is trusted with the order, not with the place. Its deviations are multiplied by how far it was wrong.
Failures count as slow, and teach where others are likely.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import combinations
from typing import Any, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
from tensorc_dsl.schedule.trace.draws.choices import Categorical
from tensorc_dsl.schedule.trace.trace import Draw, Trace
from tensorc_dsl.tuning.search.expansion import stream
from tensorc_dsl.tuning.search.gp import Array, Hyper, Sweep, fit
from tensorc_dsl.tuning.search.model import RANGE, Memory, noise_of
from tensorc_dsl.tuning.search.space import Explorer
from tensorc_dsl.tuning.search.strategy import Prediction

Codes = NDArray[np.intp]
"""A row for each assignment: the number of its value for each draw, `ABSENT` for a draw that it does not make."""

ABSENT = -1

MOST = 1 << 17
"""A space of more assignments is sampled."""

SAMPLED = 1 << 14
"""The rows that are kept of it."""

PAIRS = 1 << 20
"""At most so many rows are asked of constraints at a time."""

SIZES = 10
"""With more draws of sizes than these, their products are no features: a process learns little of so many columns."""

Where = Callable[..., object]
"""A constraint: whether values of the draws that its parameters name go together."""


@frozen
class Values:
    """The values of one draw, numbers in ascending order."""

    name: str
    values: tuple[Decision, ...]

    @staticmethod
    def of(name: str, values: Iterable[Decision]) -> Values:
        """Distinct values. Raises ValueError where there are none, TypeError for one that no record can hold, and for a text,
        whose letters are hardly meant."""
        if isinstance(values, str) or not isinstance(cast(object, values), Iterable):
            raise TypeError(f"the values of {name!r} are a list, such as [{values!r}], not {values!r}")
        found: dict[tuple[type, Decision], Decision] = {}
        for given in values:
            value: Any = cast(Any, given).item() if isinstance(given, np.generic) else given
            if not isinstance(value, bool | int | float | str):
                raise TypeError(f"a value of {name!r} is a number, a text or a bool, not {value!r}")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"a value of {name!r} is a finite number, not {value!r}")
            found[type(value), value] = value
        if not found:
            raise ValueError(f"{name!r} has no values")
        return Values(name, tuple(_ordered(list(found.values()))))

    @property
    def distribution(self) -> Distribution:
        plain = tuple(v for v in self.values if not isinstance(v, tuple))
        return Categorical(plain, (1.0,) * len(plain))

    def columns(self, codes: Codes, optional: bool) -> Array:
        """The draw's features of rows, from 0 to 1: the place of numbers on a scale, and how often they are divisible by 2,
        where not all are powers of it; of other values a column for each; whether it is made, where it is `optional`."""
        made = codes != ABSENT
        out = [made.astype(np.float64)] if optional else list[Array]()
        if len(self.values) > 1:
            if all(isinstance(v, int | float) for v in self.values) or len(self.values) == 2:
                out += [np.where(made, place[codes], 0.5) for place in (_scale(self.values), *_twos(self.values))]
            else:
                out += [(codes == n).astype(np.float64) for n in range(len(self.values))]
        return np.stack(out, axis=1) if out else np.zeros((len(codes), 0))


def _ordered(values: list[Decision]) -> list[Decision]:
    """Numbers ascending; texts and bools as they came."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return sorted(values, key=lambda v: v if isinstance(v, int | float) else 0)
    return values


def _scale(values: Sequence[Decision]) -> Array:
    """Where each value stands between the least, 0, and the largest, 1: by its logarithm if all are above 0, else by its
    rank. Sizes act by their ratios, and 0 often stands for a choice of its own."""
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) == len(values) and min(numbers) > 0:
        place = np.log2(np.array(numbers, dtype=np.float64))
    else:
        place = np.arange(len(values), dtype=np.float64)
    return (place - place[0]) / max(float(place[-1] - place[0]), 1e-12)


def _is_size(values: Sequence[Decision]) -> bool:
    """Whether these are numbers above 0, more than two."""
    return len(values) > 2 and all(isinstance(v, int | float) and not isinstance(v, bool) and v > 0 for v in values)


def _twos(values: Sequence[Decision]) -> list[Array]:
    """How often each value is divisible by 2, from 0 to 1: a place of its own, as machines take blocks of powers of 2. None
    where it follows from the scale."""
    numbers = [v for v in values if isinstance(v, int)]
    if len(numbers) < len(values) or len(values) < 3 or all(v > 0 and v & (v - 1) == 0 for v in numbers):
        return []
    times = np.array([(v & -v).bit_length() - 1 if v else 0 for v in numbers], dtype=np.float64)
    return [(times - times.min()) / (times.max() - times.min())] if times.max() > times.min() else []


class Assignments:
    """The assignments of a space, or a sample of them where they are not all listed (`complete`)."""

    def __init__(
        self, draws: Sequence[Values], codes: Codes, allowed: Callable[[Codes], NDArray[np.bool_]], complete: bool
    ) -> None:
        """`allowed` says which rows of codes the constraints allow."""
        self.draws = tuple(draws)
        self.complete = complete
        self._optional: list[bool] = (codes == ABSENT).any(axis=0).tolist()
        self._allowed = allowed
        self._numbers: dict[bytes, int] = {}
        self.codes: Codes = np.zeros((0, len(self.draws)), dtype=np.intp)
        self._columns: list[Array] = []
        self._add(codes)

    def __len__(self) -> int:
        return len(self.codes)

    @staticmethod
    def of(space: Mapping[str, Iterable[Decision]], where: Where | Iterable[Where] = (), seed: int = 0) -> Assignments:
        """The assignments of values to names that all constraints allow.

        A constraint is called once for each combination of values of the draws that its parameters name; one with `**values`
        is given all. Raises ValueError for a parameter that is no draw, and what a constraint raises.
        """
        draws = [Values.of(name, values) for name, values in space.items()]
        rules = _Rules.of(where, draws)
        rng = stream(seed, "assignments", "listed")
        rows: Codes = np.zeros((1, 0), dtype=np.intp)
        complete = True
        for n, draw in enumerate(draws):
            many = len(draw.values)
            pairs = np.arange(len(rows) * many)
            if len(pairs) > PAIRS:
                complete = False
                pairs = np.unique(rng.integers(len(pairs), size=PAIRS))
            rows = np.hstack([rows[pairs // many], (pairs % many)[:, None]])
            rows = rows[rules.allowed(rows, n)]
            if len(rows) > MOST:
                complete = False
                rows = rows[np.sort(rng.permutation(len(rows))[: MOST // 2])]
        if not complete and len(rows) > SAMPLED:
            rows = rows[np.sort(rng.permutation(len(rows))[:SAMPLED])]
        return Assignments(draws, rows, rules.allowed, complete)

    @staticmethod
    def of_rows(
        names: Sequence[str],
        rows: Sequence[Sequence[Decision | None]],
        where: Where | Iterable[Where] = (),
        made_of: Callable[[Mapping[str, Decision]], bool] | None = None,
    ) -> Assignments:
        """Of these rows, those that all constraints allow, each once; None for a draw that a row does not make.

        They are all that there are, without `made_of`; it says whether there is a further one.
        """
        made = [[row[j] for row in rows if row[j] is not None] for j in range(len(names))]
        draws = [Values.of(name, [v for v in found if v is not None]) for name, found in zip(names, made, strict=True)]
        places = [{(type(v), v): n for n, v in enumerate(d.values)} for d in draws]
        codes = np.array(
            [[ABSENT if v is None else p[type(v), v] for p, v in zip(places, row, strict=True)] for row in rows],
            dtype=np.intp,
        ).reshape(len(rows), len(names))
        first = {row.tobytes(): n for n, row in reversed(list(enumerate(codes)))}
        codes = codes[sorted(first.values())]
        rules = _Rules.of(where, draws)

        def allowed(some: Codes) -> NDArray[np.bool_]:
            made = [made_of is not None and made_of(_decisions(draws, row)) for row in some]
            return np.array(made, dtype=bool) & rules.allowed(some)

        return Assignments(draws, codes[rules.allowed(codes)], allowed, made_of is None)

    @property
    def columns(self) -> Array:
        """The features of the rows, from 0 to 1, (rows, features)."""
        if len(self._columns) > 1:
            self._columns = [np.vstack(self._columns)]
        return self._columns[0] if self._columns else np.zeros((0, 0))

    def decisions(self, row: int) -> dict[str, Decision]:
        """The decisions of a row, without those of draws that it does not make."""
        return _decisions(self.draws, self.codes[row])

    def row(self, decisions: Mapping[str, Decision]) -> int | None:
        """The number of the assignment; None if it is not allowed. One that was not listed is from now on."""
        if decisions.keys() - {d.name for d in self.draws}:
            return None
        codes: list[int] = []
        for draw, optional in zip(self.draws, self._optional, strict=True):
            value = decisions.get(draw.name)
            found = [n for n, v in enumerate(draw.values) if type(v) is type(value) and v == value]
            if value is None and optional:
                found = [ABSENT]
            if not found:
                return None
            codes.append(found[0])
        return next(iter(self._known(np.array([codes], dtype=np.intp))), None)

    def near(self, row: int) -> list[int]:
        """Allowed assignments that differ from the row in one draw. Those that were not listed are from now on."""
        base = self.codes[row]
        wanted: list[Codes] = []
        for j, draw in enumerate(self.draws):
            others = np.array([c for c in range(len(draw.values)) if base[j] not in (c, ABSENT)], dtype=np.intp)
            moved = np.tile(base, (len(others), 1))
            moved[:, j] = others
            wanted.append(moved)
        return self._known(np.concatenate(wanted)) if wanted else []

    def _known(self, codes: Codes) -> list[int]:
        """The numbers of the rows that are allowed; those that were not listed are added."""
        if not self.complete:
            new = np.array([c.tobytes() not in self._numbers for c in codes], dtype=bool)
            fresh = codes[new]
            if len(fresh):
                self._add(fresh[self._allowed(fresh)])
        return [n for c in codes if (n := self._numbers.get(c.tobytes())) is not None]

    def _add(self, codes: Codes) -> None:
        start = len(self.codes)
        self.codes = np.vstack([self.codes, codes])
        self._numbers |= {c.tobytes(): start + n for n, c in enumerate(codes)}
        parts = [d.columns(codes[:, j], self._optional[j]) for j, d in enumerate(self.draws)]
        self._columns.append(np.hstack([*parts, self._products(codes)]))

    def _products(self, codes: Codes) -> Array:
        """The product of each two sizes, on a scale of logarithms from 0 to 1: machines limit products, as the threads of
        a block, or what a tile takes of a memory."""
        sizes = [
            (j, np.log2(np.array(d.values, dtype=np.float64))) for j, d in enumerate(self.draws) if _is_size(d.values)
        ]
        out = np.zeros((len(codes), 0))
        if len(sizes) > SIZES:
            return out
        for (i, one), (j, other) in combinations(sizes, 2):
            sums = (one - one[0])[codes[:, i]] + (other - other[0])[codes[:, j]]
            made = (codes[:, i] != ABSENT) & (codes[:, j] != ABSENT)
            place = np.where(made, sums / (one[-1] - one[0] + other[-1] - other[0]), 0.5)
            out = np.hstack([out, place[:, None]])
        return out


def _decisions(draws: Sequence[Values], codes: Codes) -> dict[str, Decision]:
    return {d.name: d.values[c] for d, c in zip(draws, codes.tolist(), strict=True) if c != ABSENT}


@frozen
class _Rule:
    """A constraint on the draws at these places, and what it said of their values."""

    function: Where
    places: tuple[int, ...]
    said: dict[tuple[int, ...], bool] = field(default_factory=dict[tuple[int, ...], bool])

    @staticmethod
    def of(function: Where, names: Sequence[str]) -> _Rule:
        if not callable(function):
            raise TypeError(f"a constraint is a function of draws, such as `lambda {names[0]}: …`, not {function!r}")
        parameters = inspect.signature(function).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            return _Rule(function, tuple(range(len(names))))
        asked = [p.name for p in parameters if p.default is p.empty or p.name in names]
        for name in asked:
            if name not in names:
                raise ValueError(f"a constraint asks for {name!r}, and the draws are {', '.join(map(repr, names))}")
        return _Rule(function, tuple(names.index(n) for n in asked))

    def holds(self, rows: Codes, draws: Sequence[Values]) -> NDArray[np.bool_]:
        """Whether it holds for each row. A draw that a row does not make is None to it."""
        if not len(rows):
            return np.zeros(0, dtype=bool)
        some, inverse = np.unique(rows[:, list(self.places)], axis=0, return_inverse=True)
        answers = np.zeros(len(some), dtype=bool)
        listed: list[list[int]] = some.tolist()
        for n, codes in enumerate(map(tuple, listed)):
            if codes not in self.said:
                of = [draws[p] for p in self.places]
                given = {d.name: None if c == ABSENT else d.values[c] for d, c in zip(of, codes, strict=True)}
                try:
                    self.said[codes] = bool(self.function(**given))
                except Exception as e:
                    e.add_note(f"the constraint was asked for {', '.join(f'{n}={v!r}' for n, v in given.items())}")
                    raise
            answers[n] = self.said[codes]
        return answers[inverse.reshape(-1)]


@frozen
class _Rules:
    rules: tuple[_Rule, ...]
    draws: Sequence[Values]

    @staticmethod
    def of(where: Where | Iterable[Where], draws: Sequence[Values]) -> _Rules:
        names = [d.name for d in draws]
        return _Rules(tuple(_Rule.of(w, names) for w in ([where] if callable(where) else where)), draws)

    def allowed(self, rows: Codes, last: int | None = None) -> NDArray[np.bool_]:
        """Which rows all constraints allow; with `last`, only constraints whose last draw is at that place are asked."""
        kept = np.ones(len(rows), dtype=bool)
        for rule in self.rules:
            if last is None or max(rule.places, default=0) == last:
                kept[kept] = rule.holds(rows[kept], self.draws)
        return kept


# An explorer of listed assignments: its traces are of no program, only of their draws.


_NOTHING = Program("nothing", (), (), ())

_NOWHERE = Target()


class ListedExplorer(Explorer):
    """Takes rows of assignments, each once. Draws come in an order that depends on the seed."""

    def __init__(self, assignments: Assignments, seed: int, task: str) -> None:
        super().__init__(_Unexpanded(), seed, task, _NOWHERE)
        self.assignments = assignments
        self._task_name = task
        self._order: list[int] = self.rng("order").permutation(len(assignments)).tolist()
        self._taken: set[int] = set()
        self._rows: dict[int, int] = {}

    def draws(self, count: int) -> list[Trace]:
        """New rows at random: `count`, or fewer if there are no more."""
        out: list[Trace] = []
        while len(out) < count and self._order:
            out += self.at([self._order.pop()])
        return out

    def replays(self, many: Iterable[Mapping[str, Decision]]) -> list[Trace]:
        """The new ones among these assignments, in their order, without those that are not allowed."""
        rows = [self.assignments.row(decisions) for decisions in many]
        self.refusals += sum(row is None for row in rows)
        return self.at([row for row in rows if row is not None])

    def moved(self, many: Iterable[Mapping[str, Decision]]) -> list[Trace]:
        return self.replays(many)

    def at(self, rows: Iterable[int]) -> list[Trace]:
        """The traces of the rows that were not taken."""
        out: list[Trace] = []
        for row in rows:
            if row not in self._taken:
                self._taken.add(row)
                trace = self.trace(row)
                self._rows[id(trace)] = row
                out.append(trace)
        return out

    def trace(self, row: int) -> Trace:
        """The trace of a row: a schedule of its draws, pinned."""
        chosen = self.assignments.decisions(row)
        draws = tuple(Draw(d.name, d.distribution, chosen[d.name]) for d in self.assignments.draws if d.name in chosen)
        return Trace(self._task_name, self._task_name, (), draws, _NOTHING)

    def row_of(self, trace: Trace) -> int:
        """The row of a trace that this explorer made."""
        return self._rows[id(trace)]

    def neighbour(self, traces: list[Trace]) -> Trace | None:
        """The first row not taken that differs from one of the traces in one draw."""
        near = (self.at([row]) for trace in traces for row in self.assignments.near(self._rows[id(trace)]))
        return next((found[0] for found in near if found), None)

    def followed(self, traces: list[Trace]) -> bool:
        return self.assignments.complete and len(self._taken) == len(self.assignments)

    def describe(self, trace: Trace, sizes: Sizes | None = None) -> Array:
        """There are no loops."""
        return np.zeros(0)

    def modelled(self, trace: Trace, sizes: Sizes | None = None) -> float | None:
        return None


class _Unexpanded:
    """The space of assignments that are listed: nothing is expanded."""

    def sample(self, rng: np.random.Generator) -> Trace:
        raise NotImplementedError

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        raise NotImplementedError


FIRST = 5
"""Trials that lie apart, before the process chooses."""

AMONG = 512
"""Rows among which each of these is the farthest from those before."""

SCALE = 2.0
"""Features are stretched to this length: a length scale of 1 is then half of what a draw ranges over."""

TURNS = 2
"""Every so many trials are chosen among the rows beside the fastest."""

REFIT = 1.15
"""The hyperparameters are fitted anew once there are so many times the trials of the last fit."""

TAUGHT, TOP = 512, 256
"""A process knows at most about so many trials: the fastest `TOP`, and of the others the latest."""

GROWN = 64
"""A process is made anew after at most so many trials."""

JUDGED, BEST = 1 << 15, 3
"""Of more rows than this, another sample is judged whenever a process is made. To a sample, and where not all rows are
listed, those beside so many of the fastest are added."""


class Survey:
    """What was tried of the assignments, and what to try next."""

    def __init__(self, assignments: Assignments, rng: Callable[[str], np.random.Generator]) -> None:
        """`rng` makes a new random stream for each call."""
        self._assignments = assignments
        self._rng = rng
        self._rows: list[int] = []
        self._speeds: list[float | None] = []
        self._spreads: list[tuple[float, int]] = []
        self._scale = 1.0
        self._open: NDArray[np.bool_] = np.ones(len(assignments), dtype=bool)
        self._plan: list[int] | None = None
        self._hyper: Hyper | None = None
        self._sweep: Sweep | None = None
        self._known: list[int] = []
        self._judged: NDArray[np.intp] = np.arange(0)
        self._around: set[int] = set()
        self._fitted = 0
        self._memory = Memory()
        self._expected: tuple[int, Prediction] | None = None

    def taken(self, row: int) -> None:
        """The row is tried, or needs not be."""
        self._widen()
        self._open[row] = False

    def tell(self, row: int, seconds: float | None, spread: tuple[float, int] = (0.0, 1)) -> None:
        """The row took so long, None for a failure; how much its samples vary, and how many there are."""
        self.taken(row)
        if seconds is not None and self._expected is not None and self._expected[0] == row:
            expected = self._expected[1]
            self._memory.errors.append(expected.error(seconds) / expected.deviation)
        self._rows.append(row)
        self._speeds.append(None if seconds is None else -math.log(seconds))
        self._spreads.append(spread)

    def next(self) -> int | None:
        """The row to try next; None if there is none left."""
        if self._plan is None:
            self._plan = self._apart()
        while self._plan:
            if self._open[row := self._plan.pop(0)]:
                return row
        for tried in self._rows:
            if self._open.any():
                break
            self._assignments.near(tried)  # what is beside it is listed
            self._widen()
        if not self._open.any():
            return None
        if all(s is None for s in self._speeds):
            return int(self._rng("anything").choice(np.flatnonzero(self._open)))
        return self._chosen()

    def _apart(self) -> list[int]:
        """Rows that lie apart: the one nearest to the middle of some, then the farthest from those before."""
        count = len(self._assignments)
        some = self._rng("first").permutation(count)[:AMONG]
        x = self._assignments.columns[some]
        if not len(x):
            return []
        out = [int(np.argmin(((x - self._assignments.columns.mean(0)) ** 2).sum(1)))]
        nearest = ((x - x[out[0]]) ** 2).sum(1)
        while len(out) < min(FIRST, len(some)):
            out.append(int(np.argmax(nearest)))
            nearest = np.minimum(nearest, ((x - x[out[-1]]) ** 2).sum(1))
        return [int(some[n]) for n in out]

    def _widen(self) -> None:
        """Rows may have been listed since."""
        more = len(self._assignments) - len(self._open)
        if more > 0:
            self._open = np.concatenate([self._open, np.ones(more, dtype=bool)])

    def _chosen(self) -> int:
        """The row of the largest expected improvement, among all or in turn among those beside the fastest."""
        ok = np.array([s is not None for s in self._speeds])
        speeds = np.array([-np.inf if s is None else s for s in self._speeds])
        speeds = np.maximum(speeds, speeds.max() - RANGE)
        speeds = np.where(ok, speeds, speeds[ok].min())
        sweep, hyper = self._swept(speeds)
        known = speeds[self._known]
        middle, scale = float(known.mean()), max(float(known.std()), 1e-3)
        mean = sweep.mean((known - middle) / scale)
        deviation = np.sqrt(np.maximum(sweep.variance, 1e-9)) * max(1.0, self._memory.calibration)
        best = (float(speeds[ok].max()) - middle) / scale
        merit = _log_improvement((mean - best) / deviation) + np.log(deviation)
        open_ = self._open[self._judged]
        if len(self._rows) % TURNS == 0:
            beside = np.isin(self._judged, self._assignments.near(self._fastest()[0]))
            self._widen()
            if (beside & open_).any():
                open_ = beside & open_
        if not open_.any():
            self._sweep = None  # what is left is not among the rows that it judges
            return self._chosen()
        place = int(np.argmax(np.where(open_, merit, -np.inf)))
        row = int(self._judged[place])
        spread = math.sqrt(float(sweep.variance[place]) + math.exp(hyper.log_noise))
        self._expected = row, Prediction(middle + scale * float(mean[place]), scale * spread)
        return row

    def _fastest(self) -> list[int]:
        """The fastest rows."""
        slowness = np.array([np.inf if s is None else -s for s in self._speeds])
        order: list[int] = np.argsort(slowness, kind="stable")[:BEST].tolist()
        return [self._rows[n] for n in order]

    def _swept(self, speeds: Array) -> tuple[Sweep, Hyper]:
        """The process over all rows that knows the trials, and its hyperparameters."""
        made, hyper, fastest = self._sweep, self._hyper, self._fastest()
        due = hyper is None or len(speeds) >= min(REFIT * self._fitted, self._fitted + GROWN)
        sampled = not self._assignments.complete or len(self._assignments) > JUDGED
        if made is None or hyper is None or due or (sampled and fastest[0] not in self._around):
            self._judge(fastest, sampled)
            columns = self._assignments.columns
            self._known = _kept(speeds)
            x = SCALE * columns[[self._rows[n] for n in self._known]]
            known = speeds[self._known]
            self._scale = max(float(known.std()), 1e-3)
            noise = noise_of(self._spreads)[self._known] / self._scale**2
            if hyper is None or due:
                y = (known - known.mean()) / self._scale
                start = hyper or Hyper.initial(x.shape[1], rough=True)
                hyper = self._hyper = fit(x, y, start, iterations=30, known=noise)
                self._fitted = len(speeds)
            made = self._sweep = Sweep(SCALE * columns[self._judged], hyper, x, noise)
        columns = self._assignments.columns
        for n in range(self._known[-1] + 1, len(speeds)):
            made.add(SCALE * columns[self._rows[n]], float(noise_of(self._spreads)[n]) / self._scale**2)
            self._known.append(n)
        return made, hyper

    def _judge(self, fastest: list[int], sampled: bool) -> None:
        """Choose the rows that the next process judges."""
        beside = [row for near in map(self._assignments.near, fastest) for row in near] if sampled else []
        self._widen()
        self._around = set(fastest)
        self._judged = np.arange(len(self._assignments))
        if len(self._judged) > JUDGED:
            open_ = np.flatnonzero(self._open)
            some = self._rng("judged").permutation(len(open_))[:JUDGED]
            self._judged = np.union1d(open_[some], np.array(beside, dtype=np.intp))


def _kept(speeds: Array) -> list[int]:
    """The trials that a process knows, in their order."""
    if len(speeds) <= TAUGHT:
        return list(range(len(speeds)))
    fast: set[int] = set(np.argsort(-speeds, kind="stable")[:TOP].tolist())
    others = [n for n in range(len(speeds)) if n not in fast]
    return sorted([*fast, *others[TOP - TAUGHT :]])


def _log_improvement(z: Array) -> Array:
    """The logarithm of the expected excess of a standard normal number over -z."""
    far = np.minimum(z, -25.0)
    near = np.maximum(z, -25.0)
    exact = np.log(near * scipy.special.ndtr(near) + np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi))
    # The first term of the asymptotic series, whose relative error is below 3 / z^2.
    return np.where(z > -25.0, exact, -0.5 * far * far - 2.0 * np.log(-far) - 0.5 * math.log(2 * math.pi))
