"""Random small computes: several stages over tensors of several types, with all features of the compute layer.

What rounding can turn round (a comparison, a conversion to an integer) is asked of inputs only, whose values are exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

DEFINITIONS = """
reducer longest(a, b) = sqrt(a * a + b * b) identity 0
reducer odd(a, b) = (a or b) and not (a and b) identity false
reducer highest(a, b) = a if a > b else b identity -2147483648
reducer highest8(a, b) = a if a > b else b identity -128

compute shifted(X: T[P, Q]; T: dtype = f32, by: int = 1) -> Y: T[P, Q] {
    Y[i, j] = X[i, j - by] if j >= by else X[i, j]
}
compute row_sums(X: f32[P, Q]; scale: float = 0.5) -> Y: f32[P] {
    let Z = shifted(X, by = 2)
    let h[i, j] = Z[i, j] * scale
    Y[i] = sum[j] h[i, j]
}
"""

SIZES = {"M": (0, 1, 2, 3, 5), "N": (1, 2, 4, 7), "K": (0, 1, 3)}
INPUTS = {"A": "f32", "B": "f32", "D": "f64", "G": "i32", "H": "i8", "F": "bool"}


@dataclass
class Writer:
    """One compute, stage by stage; `made` are the matrices [M, N] so far by type, `rows` the vectors [M]."""

    rng: random.Random
    made: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    rows: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def matrix(self, t: str) -> str:
        """An element of a matrix of type `t` at or near [i, j]."""
        name = self.rng.choice(self.made[t])
        other = {"f32": "0.25", "f64": "1.5", "i32": "3", "i8": "-2", "bool": "true"}[t]
        return self.pick(
            f"{name}[i, j]",
            f"{name}[i, j]",
            f"{name}[i, N - 1 - j]",
            f"{name}[M - 1 - i, j]",
            f"({name}[i, j + 1] if j < N - 1 else {other})",
            f"select(i % 2 == 0 and j >= 1, {name}[i / 2, j - 1], {other})",
        )

    def condition(self) -> str:
        """A condition on inputs or indices."""
        return self.pick(
            "A[i, j] > 0.25", "A[i, j] < B[i, j]", "F[i, j]", "not F[i, j]", "i + j < M", "1 <= j < N - 1",
            "G[i, j] % 3 == 1", "H[i, j] != -2", "(F[i, j] or A[i, j] <= 0)", "f64(A[i, j]) >= D[i, j]",
        )  # fmt: skip

    def value(self, t: str, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.2:
            rows = self.rows.get(t, [])
            literal = {"f32": "0.5", "f64": "-1.25", "i32": "7", "i8": "3", "bool": "false"}[t]
            options = [self.matrix(t)] * 4 + [f"{r}[i]" for r in rows] + [literal]
            if t in ("f32", "f64"):
                options += [f"{t}(i + j)", f"{t}(N)", f"{t}(G[i, j])"]
            return self.rng.choice(options)

        def part() -> str:
            return self.value(t, depth - 1)

        conditional = f"({part()} if {self.condition()} else {part()})"
        if t == "bool":
            return self.pick(f"({part()} and {part()})", f"({part()} or {part()})", f"not ({part()})", self.condition())
        if t in ("i32", "i8"):
            return self.pick(
                f"({part()} + {part()})", f"({part()} - {part()})", f"({part()} * {part()})", f"({part()} / -3)",
                f"({part()} % 5)", f"min({part()}, {part()})", f"abs({part()})", f"-({part()})", conditional,
                f"{t}(H[i, j])", f"{t}(D[i, j] * 4)", f"bit_and({part()}, {part()})", f"bit_or({part()}, 5)",
                f"xor({part()}, {part()})", f"shift_left({part()}, {part()})", f"shift_right({part()}, 2)", f"sign({part()})",
            )  # fmt: skip
        return self.pick(
            f"({part()} + {part()})", f"({part()} - {part()})", f"({part()} * {part()})", f"({part()} / 4)",
            f"max({part()}, {part()})", f"-({part()})", f"tanh({part()})", f"sigmoid({part()})", f"exp(min({part()}, 2))",
            f"log(abs({part()}) + 1)", f"sqrt(abs({part()}))", f"sin({part()})", f"erf({part()})",
            f"rsqrt(abs({part()}) + 0.5)", f"pow(abs({part()}) + 0.5, 1.5)", f"log1p(abs({part()}))", f"atan({part()})",
            f"exp2(min({part()}, 2))", f"copysign({part()}, {part()})",
            "floor(A[i, j] * 4)" if t == "f32" else "ceil(D[i, j])",
            conditional,
        )  # fmt: skip

    def typed(self, t: str, depth: int) -> str:
        """A value whose type does not depend on what it meets."""
        return self.value(t, depth) if t == "bool" else f"{t}({self.value(t, depth)})"

    # --- stages ------------------------------------------------------------------------------------------------------

    def element(self, name: str) -> str:
        t = self.pick(*self.made)
        text = f"{name}[i in M, j in N] = {self.typed(t, 3)}"
        self.made[t].append(name)
        return text

    def reduction(self, name: str) -> str:
        t = self.pick("f32", "f32", "f64", "i32", "i8", "bool")
        body = self.typed(t, 2)
        if t == "bool":
            word = self.pick("any", "all", "reduce odd")
        elif t in ("i32", "i8"):
            word = self.pick("sum", "prod", "min", "max", f"reduce {'highest' if t == 'i32' else 'highest8'}")
        else:
            word = self.pick("sum", "sum", "min", "max", "reduce longest")
        self.rows.setdefault(t, []).append(name)
        return f"{name}[i in M] = {word}[j in N] {body}"

    def position(self, name: str) -> str:
        t = self.pick("f32", "f64", "i32", "i8")
        text = f"{name}[i in M] = i32({self.pick('argmin', 'argmax')}[j in N] {self.typed(t, 1)})"
        self.rows.setdefault("i32", []).append(name)
        return text

    def nested(self, name: str) -> str:
        text = f"{name}[i in M, j in N] = {self.matrix('f32')} - (sum[q in N] A[i, q] * {self.value('f32', 0)}) / 8"
        self.made["f32"].append(name)
        return text

    def product(self, name: str) -> str:
        left, right = self.rng.choice(self.made["f32"]), self.rng.choice(self.made["f32"])
        self.made["f32"].append(name)
        return f"{name}[i in M, j in N] = sum[q in K, p in M] {left}[p, j] * C[q, i] * {right}[i, j]"

    def scan(self, name: str) -> str:
        t = self.pick("f32", "i32")
        step = self.pick(
            f"{name}[i, j - 1] * {'0.5' if t == 'f32' else '3'} + {self.value(t, 1)}",
            f"max({name}[i, j - 1], {self.matrix(t)}) - ({name}[i, j - 2] if j >= 2 else {self.value(t, 0)})",
            f"({name}[i - 1, j - 1] if i >= 1 else {self.value(t, 0)}) + {self.matrix(t)}",
        )
        text = f"{name}[i in M, j in N] = scan[j] init {self.typed(t, 1)} step {step}"
        self.made[t].append(name)
        return text

    def call(self, name: str) -> str:
        t = self.pick("f32", "i32")
        given = self.rng.choice(self.made[t])
        self.made[t].append(name)
        if t == "f32" and self.rng.random() < 0.5:
            return f"{name}[i in M, j in N] = row_sums({given}, scale = 0.25)[i] + shifted({given})[i, j]"
        return f"{name} = shifted({given}, by = {self.rng.randint(0, 3)})"

    def text(self) -> str:
        self.made = {"f32": ["A", "B"], "f64": ["D"], "i32": ["G"], "i8": ["H"], "bool": ["F"]}
        kinds: list[Callable[[str], str]] = [
            self.element, self.element, self.reduction, self.reduction, self.position, self.nested, self.product,
            self.scan, self.call,
        ]  # fmt: skip
        stages: list[str] = []
        for n in range(self.rng.randint(2, 5)):
            stages.append("let " + self.rng.choice(kinds)(f"s{n}"))
        outputs: list[str] = []
        for n, (t, names) in enumerate(sorted(self.made.items())):
            new = [x for x in names if x.startswith("s")]
            if new:
                outputs.append(f"Y{n}: {t}[M, N]")
                stages.append(f"Y{n}[i, j] = {new[-1]}[i, j]")
        for n, (t, names) in enumerate(sorted(self.rows.items())):
            outputs.append(f"R{n}: {t}[M]")
            stages.append(f"R{n}[i] = {names[-1]}[i]")
        params = ", ".join(f"{name}: {t}[M, N]" for name, t in INPUTS.items())
        body = "\n    ".join(stages)
        return f"{DEFINITIONS}\ncompute f({params}, C: f32[K, M]) -> {', '.join(outputs)} {{\n    {body}\n}}\n"


def random_compute(seed: int) -> tuple[str, dict[str, int]]:
    """A text whose last compute is `f`, and sizes for it; the same for the same seed."""
    rng = random.Random(f"compute {seed}")
    return Writer(rng).text(), {name: rng.choice(sizes) for name, sizes in SIZES.items()}
