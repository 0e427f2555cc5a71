"""Random computes with features that spaces meet: windows, strides, padding, gathers, products, reductions, single values,
scans with lags and neighbours; shapes of any rank.

What rounding can turn round (a comparison, a position, an index) is asked of inputs and indices only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

LENGTHS = (1, 2, 3, 5, 7, 16, 17, 33)
LETTERS = "ijkl"
LARGEST = 6000
"""Elements of a tensor, so that the reference and the interpreter are quick."""


@dataclass(frozen=True)
class Tensor:
    """A tensor that later stages may read."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def at(self, *indices: str) -> str:
        return f"{self.name}[{', '.join(indices)}]" if indices else self.name

    @property
    def here(self) -> str:
        return self.at(*LETTERS[: len(self.shape)])


@dataclass
class Stages:
    """One compute; `known` are the tensors so far, `inputs` those that come from outside, `read` the names of those read."""

    rng: random.Random
    known: list[Tensor] = field(default_factory=list[Tensor])
    inputs: list[Tensor] = field(default_factory=list[Tensor])
    read: set[str] = field(default_factory=set[str])
    count: int = 0

    def input(self, dtype: str, *shape: int) -> Tensor:
        made = Tensor(f"X{len(self.inputs)}", dtype, shape)
        self.inputs.append(made)
        return made

    def pick(self, *ranks: int, least: int = 0) -> Tensor:
        """A float tensor of one of these ranks (any, without), each of its lengths at least `least`."""
        fitting = [
            t
            for t in self.known
            if (not ranks or len(t.shape) in ranks) and t.dtype in ("f32", "f64") and all(n >= least for n in t.shape)
        ]
        if not fitting:
            shape = [
                self.rng.choice([n for n in LENGTHS if n >= least]) for _ in range(self.rng.choice(ranks or (1, 2, 3)))
            ]
            while prod(shape) > LARGEST:
                shape[shape.index(max(shape))] = max(least, 1)
            made = self.input("f32", *shape)
            self.known.append(made)
            return made
        found = self.rng.choice(fitting[-3:])
        self.read.add(found.name)
        return found

    def stage(self, dtype: str, shape: tuple[int, ...], value: str) -> str:
        """`let s3[i in 5, j in 7] = value`, which later stages may read."""
        name = f"s{self.count}"
        self.count += 1
        self.known.append(Tensor(name, dtype, shape))
        indices = ", ".join(f"{i} in {n}" for i, n in zip(LETTERS, shape, strict=False))
        return f"let {name}{f'[{indices}]' if shape else ''} = {value}"

    # --- stages of each kind -------------------------------------------------------------------------------------------

    def element(self) -> str:
        """Elements with others of the same place, of part of the indices, of single values, and conditions."""
        a = self.pick()
        rank = len(a.shape)
        rows = self.input(a.dtype, a.shape[-1]).at(LETTERS[rank - 1]) if rank else self.input(a.dtype).name
        same = self.rng.choice([t.here for t in self.known if (t.dtype, t.shape) == (a.dtype, a.shape)])
        single = self.rng.choice([t.name for t in self.known if (t.dtype, t.shape) == (a.dtype, ())] or [rows])
        flag = self.input("bool", *a.shape).here
        value = self.rng.choice(
            [
                f"{a.here} * {rows} + {single}", f"max({a.here}, {same}) - {single}", f"tanh({a.here}) + {rows}",
                f"exp(min({a.here}, 1.0)) * {same}", f"{a.here} if {flag} else {rows}", f"abs({a.here}) / 3",
                f"sqrt(abs({same})) + {a.here}", f"-{a.here}",
            ]
        )  # fmt: skip
        return self.stage(a.dtype, a.shape, value)

    def turned(self) -> str:
        """The axes in another order, some of them backwards."""
        a = self.pick(1, 2, 3, 4)
        order = self.rng.sample(range(len(a.shape)), len(a.shape))
        indices = [LETTERS[order.index(d)] for d in range(len(a.shape))]
        if self.rng.random() < 0.4:
            indices[-1] = f"{a.shape[-1] - 1} - {indices[-1]}"
        return self.stage(a.dtype, tuple(a.shape[d] for d in order), a.at(*indices))

    def window(self) -> str:
        """A window along the last axis or two, with a stride and weights."""
        a = self.pick(1, 2, 3, least=3)
        size, stride = self.rng.randint(1, 3), self.rng.randint(1, 2)
        w, last = self.input(a.dtype, size).at("w"), LETTERS[len(a.shape) - 1]
        reducer = self.rng.choice(["sum", "sum", "max", "min"])
        at = a.at(*LETTERS[: len(a.shape) - 1], f"{last} * {stride} + w")
        shape = (*a.shape[:-1], (a.shape[-1] - size) // stride + 1)
        return self.stage(a.dtype, shape, f"{reducer}[w in {size}] {at} * {w}")

    def padded(self) -> str:
        a = self.pick(1, 2, 3)
        p, last = self.rng.randint(1, 2), LETTERS[len(a.shape) - 1]
        inside = a.at(*LETTERS[: len(a.shape) - 1], f"{last} - {p}")
        value = f"{inside} if {p} <= {last} < {a.shape[-1] + p} else 0.5"
        return self.stage(a.dtype, (*a.shape[:-1], a.shape[-1] + 2 * p), value)

    def clamped(self) -> str:
        a = self.pick(1, 2, 3, least=1)
        index = self.rng.choice(["min(max(i - 1, 0), {})", "min(i + 1, {})", "max({} - i, 0)"]).format(a.shape[0] - 1)
        return self.stage(a.dtype, a.shape, a.at(index, *LETTERS[1 : len(a.shape)]))

    def gathered(self) -> str:
        a = self.pick(1, 2, 3, least=1)
        rows = self.rng.choice(LENGTHS[:6])
        index = self.input("i32", rows).at("i")
        value = a.at(f"clamp({index}, 0, {a.shape[0] - 1})", *LETTERS[1 : len(a.shape)])
        return self.stage(a.dtype, (rows, *a.shape[1:]), value)

    def reduced(self) -> str:
        """Along some of the axes, or all of them."""
        a = self.pick(1, 2, 3, 4)
        kept = [d for d in range(len(a.shape)) if self.rng.random() < 0.6]
        if len(kept) == len(a.shape):
            kept.pop(self.rng.randrange(len(kept)))
        names = [LETTERS[kept.index(d)] if d in kept else f"r{d}" for d in range(len(a.shape))]
        over = ", ".join(n for d, n in enumerate(names) if d not in kept)
        reducer = self.rng.choice(["sum", "sum", "max", "min", "reduce larger"])
        value = self.rng.choice(["{}", "{0} * {0}", "abs({})"]).format(a.at(*names))
        return self.stage(a.dtype, tuple(a.shape[d] for d in kept), f"{reducer}[{over}] {value}")

    def product(self) -> str:
        """A contraction of the last axis with that of a new input, which may be turned."""
        a = self.pick(1, 2, 3)
        columns = self.rng.choice([n for n in LENGTHS if n * prod(a.shape[:-1]) <= LARGEST])
        rank, depth = len(a.shape), a.shape[-1]
        out = LETTERS[rank - 1]
        if self.rng.random() < 0.5:
            b = self.input(a.dtype, depth, columns).at("q", out)
        else:
            b = self.input(a.dtype, columns, depth).at(out, "q")
        value = f"sum[q in {depth}] {a.at(*LETTERS[: rank - 1], 'q')} * {b}"
        return self.stage(a.dtype, (*a.shape[:-1], columns), value)

    def scan(self) -> str:
        """Steps along an axis: from one or two before, of this place or beside it, or of a place that the step says."""
        a = self.pick(1, 2, 3)
        rank = len(a.shape)
        along = self.rng.randrange(rank)
        lag, name, t = self.rng.choice([1, 1, 1, 2]), f"s{self.count}", LETTERS[along]

        def own(**beside: str) -> str:
            at = [f"{x} - {lag}" if x == t else beside.get(x, x) for x in LETTERS[:rank]]
            return f"{name}[{', '.join(at)}]"

        steps = [f"0.5 * {own()} + {a.here}", f"max({own()}, {a.here})"]
        others = [x for x in LETTERS[:rank] if x != t]
        for x in others:
            n = a.shape[LETTERS.index(x)]
            steps += [
                f"({own(**{x: f'{x} - 1'})} * 0.25 if {x} >= 1 else {own()} * 0.5) + {a.here}",
                f"({own(**{x: f'{x} - 1'})} + {own(**{x: f'{x} + 1'})} if 1 <= {x} < {n - 1} else {own()}) * 0.25",
                f"{own()} * 0.25 + {own(**{x: '0'})} * 0.25",
            ]
            if n == a.shape[along]:  # the place that a step is done with, as in a factorisation
                steps.append(f"{own()} - 0.25 * {own(**{x: f'{t} - {lag}'})} if {x} >= {t} else {own()}")
        init = self.rng.choice([a.here, f"{a.dtype}(0.25)"])
        step = self.rng.choice(steps)
        if lag > 1:  # `init` gives the first element alone
            step = f"({step}) if {t} >= {lag} else {a.here}"
        return self.stage(a.dtype, a.shape, f"scan[{t}] init {init} step {step}")

    def converted(self) -> str:
        a = self.pick()
        to = "f64" if a.dtype == "f32" else "f32"
        whole = self.input("i16", *a.shape).here
        return self.stage(to, a.shape, f"{to}({a.here}) * {to}({whole}) / 64")

    def position(self) -> str:
        x = self.input("f32", self.rng.choice(LENGTHS), self.rng.choice(LENGTHS))
        return self.stage("i32", x.shape[:1], f"i32({self.rng.choice(['argmin', 'argmax'])}[q] {x.at('i', 'q')})")

    def text(self) -> str:
        empty = self.rng.random() < 0.1
        shape = [self.rng.choice((*LENGTHS, 0) if empty else LENGTHS) for _ in range(self.rng.randint(1, 3))]
        while prod(shape) > LARGEST:
            shape[shape.index(max(shape))] = 2
        self.known.append(self.input("f32", *shape))
        kinds: list[Callable[[], str]] = [
            self.element, self.element, self.turned, self.window, self.padded, self.clamped, self.gathered, self.reduced,
            self.reduced, self.product, self.product, self.scan, self.scan, self.converted, self.position,
        ]  # fmt: skip
        stages = [self.rng.choice(kinds)() for _ in range(self.rng.randint(1, 6))]
        made = [t for t in self.known if t.name.startswith("s")]
        given = [t for t in made if t.name not in self.read or t is made[-1]]
        outputs = ", ".join(f"Y{n}: {_type(t)}" for n, t in enumerate(given))
        stages += [f"Y{n}{t.here[len(t.name) :]} = {t.here}" for n, t in enumerate(given)]
        inputs = ", ".join(f"{t.name}: {_type(t)}" for t in self.inputs)
        body = "\n    ".join(stages)
        larger = "reducer larger(a, b) = max(abs(a), abs(b)) identity 0"
        return f"{larger}\n\ncompute f({inputs}) -> {outputs} {{\n    {body}\n}}\n"


def _type(t: Tensor) -> str:
    return f"{t.dtype}[{', '.join(map(str, t.shape))}]" if t.shape else t.dtype


def random_stages(seed: int) -> str:
    """A text whose compute is `f`, without names for its sizes; the same for the same seed."""
    return Stages(random.Random(f"stages {seed}")).text()
