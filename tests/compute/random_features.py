"""Random computes of one type: windows, padding, gathers, reductions, scans, calls, attributes, single values."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

DEFINITIONS = """
reducer both(a, b) = a * b + a + b identity 0
reducer lesser(a, b) = a if a < b else min(a, b) identity {most}

compute moved(X: T[P, Q]; T: dtype = f32, by: int = 1) -> Y: T[P, Q] {{
    Y[i, j] = X[i, clamp(j - by, 0, Q - 1)]
}}
compute twice(X: T[P, Q]; T: dtype = f32, times: int = 2) -> Y: T[P] {{
    let Z = moved(X, by = times)
    Y[i] = sum[j] Z[i, j] + X[i, Q - 1 - j]
}}
compute weighted(X: f32[P, Q], w: f32; scale: float = 0.5) -> Y: f32[P, Q] {{
    Y[i, j] = X[i, j] * w * scale
}}
"""

TYPES = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_ENDS = {
    **{f"i{n}": (-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 16, 32, 64)},
    **{f"u{n}": (0, 2**n - 1) for n in (8, 16, 32, 64)},
}


@dataclass
class Features:
    """One compute over a type `t`; `matrices` are [M, N], `rows` [M], `columns` [N], `single` values without dimensions."""

    rng: random.Random
    t: str
    matrices: list[str] = field(default_factory=lambda: ["X", "V"])
    rows: list[str] = field(default_factory=list[str])
    columns: list[str] = field(default_factory=lambda: ["W"])
    single: list[str] = field(default_factory=lambda: ["s"])

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    @property
    def exact(self) -> bool:
        return self.t in _ENDS

    def literal(self) -> str:
        if not self.exact:
            return self.pick("0.5", "1", "0.25", "2", "0")
        low, high = _ENDS[self.t]
        return str(self.rng.choice([0, 1, 2, 3, high, high - 1, high // 3, *([low, low + 1, -1] if low else [])]))

    def condition(self) -> str:
        return self.pick(
            "F[i, j]", "not F[i, j]", "i + j < N", "1 <= j < N - 1", "j % stride == 0", "I[i] > 1", "i == j or F[i, j]",
            "V[i, j] < X[i, j]", "W[j] == X[i, j]", "i32(X[i, j]) != 1" if self.exact else "F[i, j] and i < j",
        )  # fmt: skip

    def read(self) -> str:
        """What is read near [i, j]."""
        m = self.rng.choice(self.matrices)
        return self.pick(
            f"{m}[i, j]", f"{m}[i, N - 1 - j]", f"{m}[clamp(I[i], 0, M - 1), j]", f"{m}[i, clamp(j - pad, 0, N - 1)]",
            f"{m}[i, j / stride]", f"{m}[i, (j + pad) % N]", f"{m}[i, clamp(J[j], 0, N - 1)]",
            f"{m}[clamp(i - I[i] * 2, 0, M - 1), j]",
            f"{self.rng.choice(self.columns)}[j]", f"{self.rng.choice(self.single)}", *(f"{r}[i]" for r in self.rows),
        )  # fmt: skip

    def element(self) -> str:
        """A value at [i, j]."""
        return self.pick(*[self.read()] * 8, f"({self.read()} if pad <= i else {self.literal()})", self.literal())

    def value(self, depth: int) -> str:
        if depth == 0:
            return self.element()
        a, b = self.value(depth - 1), self.value(depth - 1)
        options = [
            f"({a} + {b})", f"({a} - {b})", f"min({a}, {b})", f"max({a}, {b})", f"({a} if {self.condition()} else {b})",
            f"select({self.condition()}, {a}, {b})", f"abs({self.read()})", f"-({self.read()})",
        ]  # fmt: skip
        if self.exact:
            other = self.pick("i8", "u16", "i64", "u64", "f64")
            options += [
                f"({a} * {b})", f"({a} / 3)", f"({a} % {5 if self.t[0] == 'u' else -5})", f"({a} / {self.read()})",
                f"({a} % {self.read()})", f"{self.t}(j)", f"{self.t}({other}({self.read()}))",
                f"saturate({self.t}, {other}({a}) * 3)", f"{self.t}(saturate({self.pick('i8', 'u16')}, {a}))",
            ]  # fmt: skip
        else:
            options += [
                f"({a} * 0.5)", f"({a} / 4)", f"tanh({a})", f"{self.t}(f64({self.read()}))", f"sqrt(abs({self.read()}))",
                f"{self.t}(i8({self.pick('X', 'V')}[i, j] * 3))", f"clamp({a}, 0.25, 1)",
                f"({self.read()} % {self.pick('0.75', '-0.5')})", f"({self.pick('X', 'V')}[i, j] % W[j])",
            ]  # fmt: skip
        return self.rng.choice(options)

    def typed(self, depth: int) -> str:
        return f"{self.t}({self.value(depth)})"

    # --- stages: what stands on the left, the shape, and the value ---

    def stage(self, name: str) -> tuple[str, str, str]:
        kinds = [
            self.plain, self.window, self.row, self.row, self.column, self.total, self.position, self.along,
            self.across, self.call, self.inner,
        ]  # fmt: skip
        return self.rng.choice(kinds)(name)

    def plain(self, name: str) -> tuple[str, str, str]:
        value = self.typed(2)
        self.matrices.append(name)
        return f"{name}[i, j]", f"{self.t}[M, N]", value

    def window(self, name: str) -> tuple[str, str, str]:
        m = self.rng.choice(self.matrices)
        at = "o * stride + q - pad"
        word = self.pick("sum", "min", "max", "reduce lesser")
        return (
            f"{name}[i, o]", f"{self.t}[M, O]",
            f"{word}[q in K] ({m}[i, {at}] if 0 <= {at} < N else {self.literal()}) * C[q]",
        )  # fmt: skip

    def fold(self) -> str:
        return self.pick("sum", "sum", "min", "max", "reduce lesser", *(["prod", "reduce both"] if self.exact else []))

    def row(self, name: str) -> tuple[str, str, str]:
        value = f"{self.fold()}[j in N] {self.typed(1)}"
        self.rows.append(name)
        return f"{name}[i]", f"{self.t}[M]", value

    def column(self, name: str) -> tuple[str, str, str]:
        value = f"{self.fold()}[i in M, q in K] {self.typed(1)} + C[q]"
        self.columns.append(name)
        return f"{name}[j]", f"{self.t}[N]", value

    def total(self, name: str) -> tuple[str, str, str]:
        value = f"{self.fold()}[i in M, j in N] {self.typed(1)}"
        self.single.append(name)
        return name, self.t, value

    def position(self, name: str) -> tuple[str, str, str]:
        kind, t = self.pick("argmin", "argmax"), self.pick("i32", "i64", "i16")
        if self.rng.random() < 0.5:
            return f"{name}[i]", f"{t}[M]", f"{kind}[j in N] {self.pick('X', 'V')}[i, j]"
        return name, t, f"{kind}[i in M, j in N] {self.pick('X[i, j]', 'V[M - 1 - i, j]')}"

    def along(self, name: str) -> tuple[str, str, str]:
        """A scan over j, which looks back by one or more steps, and at other rows."""
        lag = self.rng.randint(1, 4)
        back = f"({name}[i, j - {lag}] if j >= {lag} else {self.literal()})" if lag > 1 else f"{name}[i, j - 1]"
        other = f"({name}[i - 1, j - {lag}] if i >= 1 and j >= {lag} else {self.literal()})"
        step = self.pick(
            f"{back} + {self.element()}", f"max({name}[i, j - 1], {self.element()})", f"{self.value(1)} - {back}",
            f"min({back}, {other})", f"({back} if {self.condition()} else {self.element()})",
            f"{other} + (sum[q in K] C[q])",
        )  # fmt: skip
        value = f"scan[j] init {self.typed(1)} step {step}"
        self.matrices.append(name)
        return f"{name}[i, j]", f"{self.t}[M, N]", value

    def across(self, name: str) -> tuple[str, str, str]:
        """A scan over i, which looks back and at columns beside."""
        step = self.pick(
            f"{name}[i - 1, j] + {self.element()}", f"{name}[i - 1, N - 1 - j] - {self.element()}",
            f"({name}[i - 3, j] if 3 <= i else {name}[i - 1, clamp(J[j], 0, N - 1)])",
        )  # fmt: skip
        value = f"scan[i] init {self.typed(1)} step {step}"
        self.matrices.append(name)
        return f"{name}[i, j]", f"{self.t}[M, N]", value

    def call(self, name: str) -> tuple[str, str, str]:
        m = self.rng.choice(self.matrices)
        options = [
            f"moved({m}, by = {self.pick('pad', '2', '-1')})[i, j] + {self.element()}",
            f"twice(moved({m}), times = 0)[i]",
        ]
        if self.t == "f32":
            options.append(f"weighted({m}, {self.rng.choice(self.single)}, scale = 0.25)[i, j]")
        value = self.rng.choice(options)
        self.matrices.append(name)
        return f"{name}[i, j]", f"{self.t}[M, N]", value

    def inner(self, name: str) -> tuple[str, str, str]:
        m = self.rng.choice(self.matrices)
        value = f"{m}[i, j] - (max[q in N] {m}[i, q] + (sum[p in M] {m}[p, q])) + (min[p in M] {m}[p, j])"
        self.matrices.append(name)
        return f"{name}[i, j]", f"{self.t}[M, N]", value

    def text(self) -> str:
        made = [self.stage(f"Y{n}") for n in range(self.rng.randint(2, 5))]
        outputs = ", ".join(f"{left.split('[')[0]}: {shape}" for left, shape, _ in made)
        body = "\n    ".join(f"{left} = {value}" for left, _, value in made)
        inputs = f"X: {self.t}[M, N], V: {self.t}[M, N], W: {self.t}[N], C: {self.t}[K], s: {self.t}"
        head = f"compute f({inputs}, I: i32[M], J: i16[N], F: bool[M, N]; pad: int = 1, stride: int = 2) -> {outputs}"
        most = _ENDS[self.t][1] if self.exact else "inf"
        return (
            f"{DEFINITIONS.format(most=most)}\n{head}\nwhere O = (N + 2 * pad - K) / stride + 1\n{{\n    {body}\n}}\n"
        )


def random_features(seed: int) -> tuple[str, dict[str, int]]:
    """A text whose last compute is `f`, and bindings for it; the same for the same seed."""
    rng = random.Random(f"features {seed}")
    text = Features(rng, TYPES[seed % len(TYPES)]).text()
    sizes = {"M": rng.choice((1, 2, 3, 5)), "N": rng.choice((3, 4, 5, 7)), "K": rng.choice((1, 2, 3))}
    return text, {**sizes, "pad": rng.choice((0, 1, 2)), "stride": rng.choice((1, 2, 3))}
