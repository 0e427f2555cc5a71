"""Random programs of producers and consumers, most of them in a loop of rounds: what steps that move blocks must keep.

A block stores into a buffer of its own, as a rule, and reads what blocks before it, or in the round before, have stored: at
its own place, turned round, at a neighbour's, or at one place. Some stores meet, some blocks run for a part of their domain,
store the same elements in each round, or run twice.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

BETWEEN = ("T", "S", "R", "Q")


@dataclass(slots=True)
class _Rounds:
    """The text of a program, in parts: `size` elements of a buffer, and so many `rounds`."""

    rng: random.Random
    size: int
    rounds: int
    names: int = 0
    written: list[str] = field(default_factory=lambda: ["X"])
    unused: list[str] = field(default_factory=lambda: list(BETWEEN))
    used: set[str] = field(default_factory=set[str])

    def text(self) -> str:
        rng = self.rng
        body = [self._filled(x) for x in (*BETWEEN, "Y") if rng.random() < 0.2]
        body.append(f"for z in {self.rounds}, y in {self.size} {{ block Z0 {{")
        body.append(f"spatial a in {self.rounds} = z; spatial b in {self.size} = y; Z[a, b] = 3 }} }}")
        body += [self._nest(False)] if rng.random() < 0.3 else []
        several = rng.random() < 0.75
        inner = [self._nest(several) for _ in range(rng.choice([2, 3, 3, 4]))]
        body += [f"for u in {self.rounds} {{", *inner, "}"] if several else inner
        if rng.random() < 0.5 or "Y" not in self.used:
            body.append(self._nest(False, "Y"))
        scopes = rng.choices(["", ' in "local"'], [4, 1], k=len(BETWEEN))
        buffers = [f"buffer {b}: i32[{self.size}]{s}" for b, s in zip(BETWEEN, scopes, strict=True) if b in self.used]
        params = f"X: i32[{self.size}], Y: i32[{self.size}], Z: i32[{self.rounds}, {self.size}]"
        return f"program p({params}) {{\n" + "\n".join([*buffers, *body]) + "\n}\n"

    def _name(self) -> int:
        self.names += 1
        return self.names

    def _filled(self, buffer: str) -> str:
        n = self._name()
        self._stores(buffer)
        own = f"spatial q in {self.size} = z{n}; {buffer}[q] = i32(q) + {n}"
        return f"for z{n} in {self.size} {{ block F{n} {{ {own} }} }}"

    def _stores(self, buffer: str) -> None:
        self.used.add(buffer)
        if buffer not in self.written:
            self.written.append(buffer)

    def _nest(self, inside: bool, target: str = "") -> str:
        loop = f"i{self._name()}"
        body = self._block(loop, inside, target)
        if self.rng.random() < 0.25:
            body += "\n" + self._block(loop, inside)
        if self.rng.random() < 0.12:
            body = f"for k{self._name()} in 2 {{\n{body}\n}}"
        return f"for {loop} in {self.size} {{\n{body}\n}}"

    def _block(self, loop: str, inside: bool, target: str = "") -> str:
        rng, n, last = self.rng, self._name(), self.size - 1
        v, u = f"v{n}", f"u{n}"
        own = [f"spatial {v} in {self.size} = {rng.choice([loop] * 8 + [f'{last} - {loop}'])}"]
        round_ = inside and rng.random() < 0.5
        if round_:
            own.append(f"spatial {u} in {self.rounds} = {rng.choice(['u'] * 5 + [f'{self.rounds - 1} - u'])}")
        if rng.random() < 0.12:
            conditions = [f"{loop} < {rng.randint(1, self.size)}", f"{loop} >= {rng.randint(0, 1)}", f"{loop} % 2 == 0"]
            conditions += [f"u + {loop} < {self.size}", "u >= 1", f"{loop} >= u"] if inside else []
            own.append(f"where {rng.choice(conditions)}")
        value = rng.choice(
            ["{}", "{}", "{} + {}", "{} * 2 + 1", f"({{}} if {v} < {rng.randint(0, self.size)} else {{}})"]
        )
        value = value.format(*(self._read(v) for _ in range(2)))
        value += f" + i32({u}) * 7" if round_ and rng.random() < 0.6 else ""
        if not target:
            fresh = self.unused and rng.random() < 0.75
            known = ["Z", "Z", "Y", *(x for x in self.written if x != "X")]
            target = self.unused.pop(rng.randrange(len(self.unused))) if fresh else rng.choice(known)
        place = rng.choice([v] * 8 + [f"{last} - {v}"] * 2 + [f"{v} / 2", f"{v} % 3"])
        if target == "Z":
            at = f"Z[{u if round_ else 0}, {place}]"
        else:
            at = f"{target}[{place}]"
            self._stores(target)
        value = f"{at} + {value}" if rng.random() < 0.06 else value
        return f"block B{n} {{ {'; '.join([*own, f'{at} = {value}'])} }}"

    def _read(self, v: str) -> str:
        last = self.size - 1
        buffer = self.rng.choice([*self.written[-2:], *self.written])
        places = [v] * 6 + [f"{last} - {v}"] * 2
        places += [f"min({v} + 1, {last})", f"max({v} - 1, 0)", f"({v} + 1) % {self.size}", f"{v} / 2"]
        return f"{buffer}[{self.rng.choice([*places, str(self.rng.randint(0, last))])}]"


def round_text(rng: random.Random) -> str:
    """The text of a program, which may read what nothing has written."""
    return _Rounds(rng, rng.choice([4, 5, 6]), rng.choice([1, 2, 3])).text()
