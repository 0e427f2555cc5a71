"""`simplify`, `prove` and `bounds` against brute force over all values of the variables."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Load, Logic, Not, Select, Var, index
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.proof.sets.linear_forms import negate
from tensorc_dsl.proof.sets.simplify import bounds, prove, simplify, simplify_where
from tests.examples import examples

NAMES = ("i", "j", "k")
I, J, K = map(Var, NAMES)
RANGES: dict[str, tuple[int | None, int | None]] = {"i": (0, 7), "j": (0, 13), "k": (0, 63)}


def value(e: Expr, env: dict[str, int]) -> int:
    """What an index expression or a condition is worth."""
    match e:
        case Const(value=v):
            return int(v)
        case Var(name=n):
            return env[n]
        case Binary(op=op, lhs=a, rhs=b):
            x, y = value(a, env), value(b, env)
            match op:
                case "+":
                    return x + y
                case "-":
                    return x - y
                case "*":
                    return x * y
                case "/":
                    return x // y
                case "%":
                    return x % y
                case "min":
                    return min(x, y)
                case "max":
                    return max(x, y)
                case "xor":
                    return x ^ y
        case Compare(op=op, lhs=a, rhs=b):
            x, y = value(a, env), value(b, env)
            return {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}[op]
        case Logic(op=op, lhs=a, rhs=b):
            return (value(a, env) and value(b, env)) if op == "and" else (value(a, env) or value(b, env))
        case Not(operand=a):
            return not value(a, env)
        case Select(cond=c, then=a, other=b):
            return value(a if value(c, env) else b, env)
        case _:
            raise AssertionError(e)


def build(op: str, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b)  # type: ignore[arg-type]


numbers = st.integers(-9, 9).map(index)
positive = st.sampled_from([1, 2, 3, 4, 6, 7, 8, 12, 14]).map(index)
leaves = st.one_of(st.sampled_from([I, J, K]), st.sampled_from([I, J, K]), numbers)


def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(build, st.sampled_from(["+", "-", "min", "max", "xor"]), inner, inner),
        st.builds(build, st.just("*"), inner, st.one_of(numbers, st.just(I))),
        st.builds(build, st.sampled_from(["/", "%"]), inner, positive),
        st.builds(Select, st.builds(Compare, st.sampled_from(["<", "=="]), inner, inner), inner, inner),
    )


indices = st.recursive(leaves, grow, max_leaves=8)
comparisons = st.builds(Compare, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), indices, indices)
conditions = st.recursive(
    comparisons,
    lambda c: st.one_of(st.builds(Logic, st.sampled_from(["and", "or"]), c, c), st.builds(Not, c)),
    max_leaves=3,
)
intervals = st.tuples(st.integers(-3, 4), st.integers(0, 6)).map(lambda t: (t[0], t[0] + t[1]))
ranges = st.fixed_dictionaries(dict.fromkeys(NAMES, intervals))


def points(r: dict[str, tuple[int, int]]) -> list[dict[str, int]]:
    return [dict(zip(NAMES, p, strict=True)) for p in product(*(range(a, b + 1) for a, b in (r[n] for n in NAMES)))]


@given(indices, ranges)
@settings(max_examples=examples(125), deadline=None)
def test_indices_keep_their_value(e: Expr, r: dict[str, tuple[int, int]]) -> None:
    short = simplify(e, r)
    low, high = bounds(e, r)
    for env in points(r):
        v = value(e, env)
        assert value(short, env) == v
        assert (low is None or low <= v) and (high is None or v <= high)
    assert simplify(short, r) == short


@given(conditions, ranges)
@settings(max_examples=examples(125), deadline=None)
def test_conditions_keep_their_value(c: Expr, r: dict[str, tuple[int, int]]) -> None:
    short, opposite, proven = simplify(c, r), negate(c), prove(c, r)
    parts = simplify_where((c,), r)
    for env in points(r):
        v = bool(value(c, env))
        assert bool(value(short, env)) == v
        assert bool(value(opposite, env)) != v
        assert all(value(p, env) for p in parts) == v
        assert proven is None or proven == v


@given(indices)
@settings(max_examples=examples(50), deadline=None)
def test_open_ranges_prove_nothing_false(e: Expr) -> None:
    short = simplify(e, {"i": (0, None), "j": (None, 5)})
    for i, j, k in product((0, 1, 5, 40), (-7, 0, 5), (-20, 0, 3)):
        env = {"i": i, "j": j, "k": k}
        assert value(short, env) == value(e, env)


def tile(outer: Expr, inner: Expr, size: int) -> Expr:
    return Binary("+", Binary("*", outer, index(size)), inner)


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Binary("/", tile(I, J, 14), index(14)), "i"),
        (Binary("%", tile(I, J, 14), index(14)), "j"),
        (Binary("/", Binary("+", tile(I, J, 14), index(3)), index(7)), "i * 2 + (j + 3) / 7"),
        (tile(Binary("/", K, index(4)), Binary("%", K, index(4)), 4), "k"),
        (tile(Binary("/", K, index(12)), tile(Binary("%", Binary("/", K, index(4)), index(3)),
                                              Binary("%", K, index(4)), 4), 12), "k"),
        (Binary("/", Binary("/", K, index(4)), index(4)), "k / 16"),
        (Binary("%", Binary("%", K, index(8)), index(4)), "k % 4"),
        (Compare("<", tile(I, J, 14), index(28)), "i < 2"),
        (Compare("<", tile(I, J, 14), index(30)), "i * 14 + j < 30"),
        (Compare("<", tile(I, J, 14), index(112)), "true"),
        (Compare("==", Binary("*", K, index(2)), index(5)), "false"),
        (Compare("<=", index(2), I), "i >= 2"),
        (Binary("min", I, Binary("+", J, index(7))), "i"),
        (Binary("-", Binary("+", I, J), Binary("+", J, I)), "0"),
        (Binary("*", Var("N"), Binary("+", Var("N"), index(1))), "N + N * N"),
        (Binary("%", Var("n"), Var("m")), "n % m"),
    ],
)  # fmt: skip
def test_canonical_text(e: Expr, text: str) -> None:
    assert format_expr(simplify(e, RANGES)) == text


def test_division_by_zero_is_left_alone() -> None:
    e = Binary("/", I, index(0))
    assert simplify(e, RANGES) == e


def test_arithmetic_on_elements_is_left_alone() -> None:
    zero = Binary("-", Load("A", (Binary("+", I, index(0)),), F32), Load("A", (I,), F32))
    assert format_expr(simplify(zero, RANGES)) == "A[i] - A[i]"
