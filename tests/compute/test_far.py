"""Index arithmetic that may overflow 64 bits is refused; accepted computes have the same result everywhere, for any data."""

from __future__ import annotations

import random

import numpy as np
import pytest

from campaigns.random_steps import random_schedule
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.ir.expr import Binary, Compare, Const, Dim, Expr, Var, floordiv, index
from tensorc_dsl.proof.equivalence.validate import Unproved, Valid, validate
from tensorc_dsl.proof.sets.safety import too_far
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tests.codegen.native import program, run
from tests.compute.native import everywhere
from tests.compute.test_meaning import check_program
from tests.compute.texts import build, codes, errors, parsed

ENDS = {
    "i8": (-(2**7), 2**7 - 1), "i16": (-(2**15), 2**15 - 1), "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1),
    "u8": (0, 2**8 - 1), "u16": (0, 2**16 - 1), "u32": (0, 2**32 - 1), "u64": (0, 2**64 - 1),
}  # fmt: skip


def gather(subscript: str, dtype: str = "i64") -> str:
    return f"compute f(X: f32[N], I: {dtype}[N]) -> Y: f32[N] {{ Y[i] = X[{subscript}] }}"


@pytest.mark.parametrize(
    "subscript",
    [
        "min(clamp(I[i], 0, 9223372036854775807) + i, N - 1)",
        "clamp(I[i] + i, 0, N - 1)",
        "clamp(i - I[i], 0, N - 1)",
        "clamp(2 * clamp(I[i], 0, 4611686018427387904), 0, N - 1)",
        "clamp(clamp(I[i], 0, 4294967296) * clamp(I[i], 0, 4294967296), 0, N - 1)",
        "clamp(I[i] + i, 0, 9223372036854775807) % N",
        "max(clamp(I[i], -9223372036854775808, 0) - i, 0)",
        "(i * 4611686018427387904) / 4611686018427387904",
        "clamp(max(I[i], 0) + i, 0, N - 1)",
    ],
)
def test_arithmetic_that_may_leave_64_bits_is_refused(subscript: str) -> None:
    assert codes(gather(subscript), N=10) == ["E0404"]


@pytest.mark.parametrize(
    "condition",
    [
        "clamp(I[i], 0, 9223372036854775807) < 5 - i",
        "clamp(I[i], 0, 9223372036854775807) - 1 >= i",
        "i * 4611686018427387904 < N",
    ],
)
def test_so_are_comparisons(condition: str) -> None:
    text = f"compute f(X: f32[N], I: i64[N]) -> Y: f32[N] {{ Y[i] = X[i] if {condition} else 0.0 }}"
    assert codes(text, N=10) == ["E0404"]


def test_so_are_sizes_and_what_becomes_a_value() -> None:
    wide = OpenRange(1, 2**40)
    text = "compute f(X: i64[N]) -> Y: i64[M] where M = N * N * N / (N * N) { Y[i] = X[i] if i < N else 0 }"
    assert codes(text, N=wide) == ["E0404"]
    text = "compute f(X: i64[N]) -> Y: i64[N] { Y[i] = X[i] + i64(i * i) }"
    assert codes(text, N=wide) == ["E0404"]
    assert build(text, N=OpenRange(1, 2**20))


def test_the_message_says_what_to_write() -> None:
    (error,) = errors(gather("clamp(I[i] + i, 0, N - 1)"), N=10)
    assert error == (
        "error[E0404]: `I[i] + i` may not fit in 64 bits\n"
        " --> t.tsched:1:63\n"
        "  |\n"
        "1 | compute f(X: f32[N], I: i64[N]) -> Y: f32[N] { Y[i] = X[clamp(I[i] + i, 0, N - 1)] }\n"
        "  |                                                               ^^^^^^^^ too large for some values\n"
        "  = help: keep what is read between two indices before: `clamp(I[i], …, …)`"
    )
    assert build(gather("clamp(clamp(I[i], -N, N) + i, 0, N - 1)"), N=10)


@pytest.mark.corpus
@pytest.mark.parametrize("dtype", ENDS)
@pytest.mark.parametrize("subscript", ["clamp(I[i], 0, N - 1)", "clamp(clamp(I[i], -N, N) * 2 - i, 0, N - 1)"])
def test_every_number_of_every_type_may_be_read(dtype: str, subscript: str) -> None:
    p = build(gather(subscript, dtype), N=10)
    given = make_inputs(p, 0)
    low, high = ENDS[dtype]
    given["I"][:] = np.array([low, high, low + 1, high - 1, 0, 1, 5, 9, high // 2, high], given["I"].dtype)
    everywhere(p, given)


class Subscripts:
    """Random index arithmetic over data, kept inside of an array of ten."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.dtype = self.rng.choice(list(ENDS))

    def number(self) -> str:
        low, high = ENDS[self.dtype]
        near = [0, 1, 2, 3, 7, 9, 10, 2**31 - 1, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, low, high, low + 1, high - 1]
        return str(self.rng.choice(near))

    def datum(self) -> str:
        low, high = ENDS[self.dtype]
        literal = str(self.rng.choice([0, 1, 3, high, high - 1, low]))
        return self.rng.choice(
            ["I[i]", "I[i]", "I[N - 1 - i]", f"(I[i] + {literal})", f"(I[i] * {literal})", f"(I[i] / {literal})",
             "-I[i]", f"max(I[i], {literal})", "abs(I[i])", "I[i] * I[i]", f"(I[i] % {high})"]
        )  # fmt: skip

    def index(self, depth: int) -> str:
        if depth == 0:
            return self.rng.choice(
                ["i", "j", self.number(), f"clamp({self.datum()}, {self.number()}, {self.number()})"]
            )
        a, b = self.index(depth - 1), self.index(depth - 1)
        divisor = self.rng.choice(["2", "3", "7", "10", "N", "2147483648", "4611686018427387904", b])
        return self.rng.choice(
            [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {divisor})", f"({a} % {divisor})", f"min({a}, {b})",
             f"max({a}, {b})", f"clamp({a}, {self.number()}, {b})", f"clamp({self.datum()}, {a}, {b})", f"(2 * {a})",
             f"abs({a})"]
        )  # fmt: skip

    def text(self) -> str:
        subscript = self.rng.choice(
            [f"clamp({self.index(2)}, 0, N - 1)", f"({self.index(2)}) % N", f"min({self.index(1)}, N - 1)"]
        )
        compared = self.rng.choice(["<", "<=", ">", "==", "!="])
        value = f"X[{subscript}]"
        if self.rng.random() < 0.5:
            value += f" if {self.index(1)} {compared} {self.index(1)} else X[j]"
        return f"compute f(X: f32[N], I: {self.dtype}[N]) -> Y: f32[N, P] {{ Y[i, j] = {value} }}"


@pytest.mark.corpus
@pytest.mark.parametrize("group", range(8))
def test_random_subscripts_over_numbers_at_the_ends_of_their_types(group: int) -> None:
    """What is taken means the same in the language's words, in the reference, the interpreter and machine code."""
    taken = 0
    for seed in range(group * 40, (group + 1) * 40):
        made = Subscripts(seed)
        text = made.text()
        try:
            p = build(text, N=10, P=3)
        except TschedError:
            continue
        taken += 1
        given = make_inputs(p, seed)
        low, high = ENDS[made.dtype]
        ends = [n for n in (low, low + 1, -1, 0, 1, 9, high - 1, high, high // 2, low // 2) if low <= n <= high]
        given["I"][:] = np.array([made.rng.choice(ends) for _ in range(10)], given["I"].dtype)
        check_program(p, *parsed(text), {"N": 10, "P": 3}, seed, given)
    assert taken > 5


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_schedules_of_them_compute_the_same(seed: int) -> None:
    made = Subscripts(seed)
    try:
        p = build(made.text(), N=10, P=3)
    except TschedError:
        return
    given = make_inputs(p, seed)
    ends = np.iinfo(given["I"].dtype)
    some = np.array([ends.min, 0, ends.max // 2, ends.max], given["I"].dtype)
    given["I"][:] = np.random.default_rng(seed).choice(some, 10)
    scheduled, _ = random_schedule(p, random.Random(seed), 12)
    want = evaluate(p, given)["Y"]
    np.testing.assert_array_equal(interpret(scheduled, given)["Y"], want)
    np.testing.assert_array_equal(run(scheduled, given)["Y"], want.astype(np.float32))


def test_a_counterexample_may_be_a_number_of_64_bits() -> None:
    (error,) = errors(gather("clamp(I[i], 0, 9223372036854775807)"), N=10)
    assert "can be 10, but" in error
    (error,) = errors(gather("clamp(I[i], -9223372036854775807, 0)"), N=10)
    assert "can be -9223372036854775807, but" in error


def test_programs_that_may_leave_64_bits_are_not_proved_to_be_equal() -> None:
    text = (
        "program p(X: f32[9], I: i64[9], Y: f32[9]) {{ for i in 9 {{ block Y {{ spatial v in 9 = i;"
        " Y[v] = X[clamp({}, 0, 8)] }} }} }}"
    )
    p = program(text.format("index(I[v]) + v"))
    report = validate(p, p)
    assert isinstance(report, Unproved)
    assert "`index(I[v]) + v` in the original may leave 64 bits" in report.diagnostic.message
    p = program(text.format("index(I[v])"))
    assert isinstance(validate(p, p), Valid)


def _random(rng: random.Random, depth: int) -> Expr:
    if depth == 0:
        return rng.choice([Var("i"), Var("x"), index(rng.choice([0, 1, 3, 8, 2**40, 2**61, -(2**61), 2**62]))])
    a, b = _random(rng, depth - 1), _random(rng, depth - 1)
    match rng.randrange(7):
        case 0 | 1:
            return Binary("+", a, b)
        case 2:
            return Binary("-", a, b)
        case 3:
            return Binary("*", a, index(rng.choice([2, 3, 2**20])))
        case 4:
            return Binary("/", a, index(rng.choice([2, 3, 2**20, 2**40])))
        case 5:
            return Binary("%", a, index(rng.choice([2, 3, 2**20, 2**40])))
        case _:
            return Binary(rng.choice(["min", "max"]), a, b)


def test_what_does_not_go_too_far_does_not_when_simplified() -> None:
    """`simplify` may move terms from side to side; each part of what it makes still fits 64 bits."""
    rng = random.Random(0)
    ranges = {"i": (0, 99), "x": (-(2**61), 2**61)}
    seen = 0
    for _ in range(3000):
        a = _random(rng, 3)
        e: Expr = Compare("<", a, _random(rng, 2)) if rng.random() < 0.5 else a
        if too_far(e, ranges) is not None:
            continue
        seen += 1
        made = simplify(e, ranges)
        for values in ({"i": 99, "x": 2**61}, {"i": 99, "x": -(2**61)}, {"i": 0, "x": 2**61}, {"i": 50, "x": -7}):
            assert _fits(made, values) == _fits(e, values), (e, made)
    assert seen > 500


def _fits(e: Expr, values: dict[str, int]) -> int:
    """The value of an expression, each part of which fits 64 bits."""
    match e:
        case Const(value=n):
            made = int(n)
        case Var(name=name):
            made = values[name]
        case Binary(op=op, lhs=a, rhs=b) | Compare(op=op, lhs=a, rhs=b):
            x, y = _fits(a, values), _fits(b, values)
            if op in ("/", "%"):
                made = x // y if op == "/" else x % y
            else:
                made = {"+": x + y, "-": x - y, "*": x * y, "min": min(x, y), "max": max(x, y)}.get(op, 0)
                made = int({"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]) if isinstance(e, Compare) else made
        case _:
            raise AssertionError(e)
    assert -(2**63) <= made < 2**63, e
    return made


def test_sizes_without_a_limit_are_no_obstacle() -> None:
    m, n = Dim("M"), Dim("N")
    ranges = {"i": (0, None)}
    assert too_far(Binary("*", Binary("*", m, n), Var("i")), ranges) is None
    assert too_far(floordiv(Var("i"), m), ranges) is None


def test_products_of_the_least_integer_wrap_in_the_reference() -> None:
    """Its magnitude is no i64, and a product in f64 would lose the rest."""
    p = build("compute f(X: i64[M, K], C: i64[K]) -> Y: i64[M] { Y[i] = sum[k] X[i, k] * C[k] }", M=3, K=2)
    x = np.array([[-(2**63), 8], [5, -(2**63)], [-9, 3]])
    found = everywhere(p, {"X": x, "C": np.array([-1, -3])})["Y"]
    np.testing.assert_array_equal(found, [2**63 - 24, 2**63 - 5, 0])
