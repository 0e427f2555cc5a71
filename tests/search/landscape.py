"""Artificial spaces and machines for tests of the search: tiles, a category, a branch, and a time for each point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.step import refusal
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution
from tensorc_dsl.schedule.trace.draws.choices import Branch, Categorical
from tensorc_dsl.schedule.trace.draws.tiles import PerfectTile
from tensorc_dsl.schedule.trace.trace import Draw, Trace


@refusal("E0399", "made up")
def DOES_NOT_FIT(*focus: str) -> None: ...


Chooser = Callable[[str, Distribution], Decision]


def make_trace(draws: list[Draw]) -> Trace:
    """A trace whose program says what was decided, so that different decisions are different programs."""
    notes = tuple(sorted((d.name, str(d.decision)) for d in draws))
    return Trace("s", "c", tuple(f"{n} := {v}" for n, v in notes), tuple(draws), Program("p", (), (), (), (), notes))


@dataclass
class TileSpace:
    """A matmul-like space: 4/4/2 tiles, an unroll limit, and a branch that adds a draw. Some points are refused."""

    extents: tuple[int, int, int] = (512, 512, 512)
    refuse: bool = True
    expansions: int = field(default=0)

    def _expand(self, choose: Chooser) -> Trace:
        self.expansions += 1
        draws: list[Draw] = []

        def draw(name: str, distribution: Distribution) -> Decision:
            draws.append(Draw(name, distribution, choose(name, distribution)))
            return draws[-1].decision

        m, n, k = self.extents
        i = draw("i", PerfectTile(m, 4, 64))
        draw("j", PerfectTile(n, 4, 64))
        draw("k", PerfectTile(k, 2, 512))
        draw("unroll", Categorical((0, 16, 64, 512), (1.0, 1.0, 1.0, 1.0)))
        if draw("cache", Branch((0.5, 0.5))) == 0:
            draw("where", Categorical(("outer", "inner"), (0.5, 0.5)))
        if self.refuse and isinstance(i, tuple) and i[3] == 64:
            raise DOES_NOT_FIT(Program("p", (), (), ()))
        return make_trace(draws)

    def sample(self, rng: np.random.Generator) -> Trace:
        return self._expand(lambda _, d: d.sample(rng))

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        def choose(name: str, d: Distribution) -> Decision:
            return decisions[name] if name in decisions and d.contains(decisions[name]) else d.sample(rng)

        return self._expand(choose)


@dataclass
class FewSpace:
    """A space of `count` points, one of them rare."""

    count: int = 3

    def sample(self, rng: np.random.Generator) -> Trace:
        return self.replay({}, rng)

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        d = Categorical(tuple(range(self.count)), (0.001, *[1.0] * (self.count - 1)))
        value = decisions["x"] if "x" in decisions and d.contains(decisions["x"]) else d.sample(rng)
        return make_trace([Draw("x", d, value)])


def seconds(trace: Trace) -> float | None:
    """How long the made-up machine takes: tile sizes have sweet spots with cliffs, vectors want 16; None is a crash."""
    got = trace.decisions
    i, j, k = got["i"], got["j"], got["k"]
    assert isinstance(i, tuple) and isinstance(j, tuple) and isinstance(k, tuple)
    registers = i[3] * j[3] / 16
    if registers > 100:
        return None
    speed = 0.0
    speed -= 0.5 * abs(math.log2(j[3] / 32))
    speed -= 0.35 * abs(math.log2(registers / 12))
    speed -= 0.25 * max(0.0, math.log2(i[2] * i[3] * k[1] / 4096)) + 0.1 * abs(math.log2(k[1] / 64))
    speed -= 0.25 * max(0.0, math.log2(j[2] * j[3] * k[1] / 65536))
    tasks = i[0] * j[0]
    speed -= 1.0 if tasks % 2 else 0.02 * math.log2(tasks)
    speed -= 0.15 * abs(math.log2(1.0 + float(str(got["unroll"]))) - 6)
    speed += 0.3 if got.get("where") == "inner" else 0.0
    return 1e-3 * math.exp(-speed)
