"""Random programs of loops that are written out: what no compute gives, and schedules must keep all the same.

Blocks of one body update one another's buffers, read elements before and after others write them, run under conditions, run
again in loops on which they do not depend, begin reductions or go on with them, and store at the places of others. All
numbers are integers, so any difference shows. A program that reads an element which nothing has written is drawn again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from campaigns.random_rounds import round_text
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import InterpretError, interpret

INPUTS, OUTPUTS, BETWEEN = ("X", "W"), ("Y", "Z"), ("S", "T")
RANK = {"X": 1, "W": 2, "Y": 1, "Z": 2, "S": 1, "T": 2}
MOST = 400
"""Iterations of a nest at most."""


@dataclass(frozen=True, slots=True)
class _Index:
    """An index expression, and its greatest value; the least is 0."""

    text: str
    high: int


@dataclass(slots=True)
class _Writer:
    """The text of a program, and what it needs of its buffers."""

    rng: random.Random
    shape: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    blocks: int = 0
    loops: int = 0

    def text(self) -> str:
        rng = self.rng
        used = [*rng.sample(OUTPUTS, rng.choice([1, 1, 2])), *rng.sample(BETWEEN, rng.choice([0, 1, 1, 2]))]
        for name in (*INPUTS, *used):
            self.shape[name] = [1] * RANK[name]
        body = [self._nest(used) for _ in range(rng.choice([1, 2, 2, 3]))]
        begun = [name for name in used if rng.random() < 0.6]
        start = [self._filled(name) for name in begun]
        params = ", ".join(f"{n}: {self._type(n)}" for n in (*INPUTS, *OUTPUTS) if n in self.shape)
        buffers = [f"buffer {n}: {self._type(n)}" for n in BETWEEN if n in self.shape]
        return f"program p({params}) {{\n" + "\n".join([*buffers, *start, *body]) + "\n}\n"

    def _type(self, name: str) -> str:
        return f"i32[{', '.join(map(str, self.shape[name]))}]"

    def _filled(self, name: str) -> str:
        """A nest that writes all of a buffer."""
        loops = [(self._loop(), n) for n in self.shape[name]]
        head = "".join(f"for {v} in {n} {{ " for v, n in loops)
        own = "; ".join(f"spatial v{v} in {n} = {v}" for v, n in loops)
        at = ", ".join(f"v{v}" for v, _ in loops)
        value = self.rng.choice(["i32(7)", " + ".join(f"i32(v{v})" for v, _ in loops)])
        return f"{head}block {self._block()} {{ {own}; {name}[{at}] = {value} }}" + " }" * len(loops)

    def _loop(self) -> str:
        self.loops += 1
        return f"i{self.loops}"

    def _block(self) -> str:
        self.blocks += 1
        return f"B{self.blocks}"

    # --- statements ---------------------------------------------------------------------------------------------------

    def _nest(self, used: list[str]) -> str:
        return self._statement(used, [], self.rng.choice([1, 2, 2, 3]))

    def _statement(self, used: list[str], around: list[tuple[str, int]], depth: int) -> str:
        rng = self.rng
        if not depth:
            return self._blocks(used, around)
        room = MOST
        for _, n in around:
            room //= n
        loop = (self._loop(), min(rng.choice([1, 2, 3, 3, 4, 5]), max(room, 1)))
        inside = [*around, loop]
        statements = [self._statement(used, inside, depth - 1)]
        while rng.random() < 0.35 and len(statements) < 3:
            statements.append(self._statement(used, inside, rng.choice([0, max(depth - 1, 0)])))
        rng.shuffle(statements)
        return f"for {loop[0]} in {loop[1]} {{\n" + "\n".join(statements) + "\n}"

    def _blocks(self, used: list[str], around: list[tuple[str, int]]) -> str:
        rng = self.rng
        name, target = self._block(), rng.choice(used)
        iters = self._iterators(around, len(self.blocks_of(around)))
        reduces = len(iters) > 1 and rng.random() < 0.3
        if reduces:
            iters = [*iters[:-1], ("reduce", *iters[-1][1:])]
        own = [f"{kind} {v} in {n} = {binding}" for kind, v, n, binding in iters]
        own += [f"where {self._condition([(v, n - 1) for v, n in around])}"] if around and rng.random() < 0.2 else []
        every = [(v, n - 1) for _, v, n, _ in iters]
        spatial = [(v, n - 1) for kind, v, n, _ in iters if kind == "spatial"]
        at = self._place(target, spatial if reduces else every, near=True)
        sources = [*INPUTS, *used]
        if reduces:
            term = self._value([x for x in sources if x != target], every)
            step, start = rng.choice([("{} + {}", "i32(0)"), ("{} + {}", "i32(3)"), ("max({}, {})", "i32(-9)")])
            init = f"init {{ {at} = {start} }}; " if rng.random() < 0.75 else ""
            store = f"{init}{at} = {step.format(at, term)}"
        else:
            value = self._value(sources, every)
            store = f"{at} = {f'{at} - {value}' if rng.random() < 0.2 else value}"
        return f"block {name} {{ {'; '.join([*own, store])} }}"

    @staticmethod
    def blocks_of(around: list[tuple[str, int]]) -> list[tuple[str, int]]:
        return [x for x in around if x[1] > 1]

    def _iterators(self, around: list[tuple[str, int]], most: int) -> list[tuple[str, str, int, str]]:
        """Kind, name, extent and binding: mostly each loop, some left out, some combined."""
        rng = self.rng
        out: list[tuple[str, str, int, str]] = []
        for v, n in around:
            choice = rng.random()
            if choice < 0.12:
                continue
            index = _Index(v, n - 1) if choice < 0.85 else self._index([(x, k - 1) for x, k in around])
            out.append(("spatial", f"v{v}", index.high + 1, index.text))
        return out

    # --- expressions --------------------------------------------------------------------------------------------------

    def _index(self, names: list[tuple[str, int]], near: bool = False) -> _Index:
        """An index over variables with these greatest values: one of them, turned round, scaled, moved, cut, or two."""
        rng = self.rng
        if not names:
            return _Index("0", 0)
        v, high = rng.choice(names)
        match rng.randrange(4 if near else 10):
            case 0 if near:
                return _Index(f"{high} - {v}", high)
            case 4:
                return _Index(f"{high} - {v}", high)
            case 5:
                w, other = rng.choice(names)
                return _Index(f"{v} + {w}", high + other) if w != v else _Index(v, high)
            case 6:
                n = rng.choice([1, 1, 2])
                return _Index(f"{v} + {n}", high + n)
            case 7:
                return _Index(f"{v} / 2", high // 2)
            case 8:
                return _Index(f"{v} % 2", min(high, 1))
            case 9:
                return _Index(f"{v} * 2", high * 2)
            case _:
                return _Index(v, high)

    def _place(self, name: str, names: list[tuple[str, int]], near: bool = False) -> str:
        found = [self._index(names, near) for _ in range(RANK[name])]
        if near and RANK[name] == 2 and len(names) > 1 and self.rng.random() < 0.7:
            found = [_Index(v, high) for v, high in self.rng.sample(names, 2)]
        for d, i in enumerate(found):
            self.shape[name][d] = max(self.shape[name][d], i.high + 1)
        return f"{name}[{', '.join(i.text for i in found)}]"

    def _value(self, sources: list[str], names: list[tuple[str, int]]) -> str:
        rng = self.rng
        one = self._place(rng.choice(sources), names)
        match rng.randrange(6):
            case 0 | 1:
                return f"({one} {rng.choice('+-*')} {self._place(rng.choice(sources), names)})"
            case 2 if names:
                other = rng.choice([self._place(rng.choice(sources), names), "i32(5)"])
                return f"({one} if {self._condition(names)} else {other})"
            case 3:
                return f"({one} + i32({rng.choice([1, 2])}))"
            case _:
                return one

    def _condition(self, names: list[tuple[str, int]]) -> str:
        rng = self.rng
        v, high = rng.choice(names)
        w, other = rng.choice(names)
        return rng.choice([
            f"{v} < {rng.randint(0, high + 1)}", f"{v} >= {rng.randint(0, high)}",
            f"{v} + {w} < {rng.randint(1, high + other + 1)}", f"{v} <= {w}", f"{v} % 2 == 0", f"1 <= {v}",
        ])  # fmt: skip


def nest_text(rng: random.Random) -> str:
    """The text of a program, which may read what nothing has written."""
    return _Writer(rng).text()


def random_nests(rng: random.Random) -> Program:
    """A program whose results are known: it reads what has been written, and writes all of its outputs. Some are rounds of
    producers and consumers (`random_rounds`).
    """
    while True:
        text = nest_text(rng) if rng.random() < 0.6 else round_text(rng)
        program = parse_program(Source("nests", text))
        try:
            interpret(program, make_inputs(program, 0))
        except InterpretError:
            continue
        return program
