"""Laws of reducers: proved, refuted, or neither. A law with a counterexample must not be proved."""

from __future__ import annotations

import random
from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.elaborate.user_reducers import reducer_of
from tensorc_dsl.ir.dtypes import BOOL, DTYPES, F32, F64, I8, I16, I32, I64, U8, U16, U32, DType
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Load, Select, Var, rewrite_expr
from tensorc_dsl.ir.reductions import Combiner
from tensorc_dsl.proof.sets import laws
from tensorc_dsl.proof.sets.laws import LAWS, Broken, Holds, Law, Verdict, difference, sides, verdicts
from tensorc_dsl.reference.values import Box, Values
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.tree import ReducerDef

FLOATS, INTS = (F32, F64), (I16, I32, I64, U16, U32)


def combined(text: str, *types: DType) -> Combiner:
    (item,) = parse(Source("t.tsched", f"reducer f{text}")).items
    assert isinstance(item, ReducerDef)
    return reducer_of(item, types).combiner


def letters(found: tuple[Verdict, ...]) -> str:
    """A letter for each law: `+` proved, `-` refuted, `?` neither."""
    return "".join("+" if isinstance(v, Holds) else "-" if isinstance(v, Broken) else "?" for v in found)


def told(text: str, t: DType) -> str:
    return letters(verdicts(combined(f"(a, b) = {text}", t)))


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("a + b identity 0", (*FLOATS, *INTS, I8, U8)),
        ("a * b identity 1", (*FLOATS, *INTS, I8, U8)),
        ("a * b + a + b identity 0", (*FLOATS, *INTS, I8)),
        ("a * b - a - b + 2 identity 2", (F64, I32)),
        ("2 * a * b identity 0.5", FLOATS),
        ("max(a, b) + 0 identity -inf", FLOATS),
        ("min(max(a, b), inf) identity -inf", FLOATS),
        ("max(a, b) identity 0", (U8, U16, U32)),
        ("max(a, b) identity -2147483648", (I32,)),
        ("a if a > b else b identity -2147483648", (I32,)),
        ("b if a <= b else a identity -32768", (I16,)),
        ("max(max(a, -100), max(b, 50)) identity 50", (F64, I32, I64)),
        ("max(abs(a), abs(b)) identity 0", (*FLOATS, U32)),
        ("min(max(a, b), 50) identity -inf", FLOATS),
        ("min(a, b) + max(a, b) identity 0", FLOATS),
        ("sqrt(a * a + b * b) identity 0", FLOATS),
        ("hypot(a, b) identity 0", FLOATS),
        ("1 / (1 / a + 1 / b) identity inf", FLOATS),
        ("log(exp(a) + exp(b)) identity -inf", FLOATS),
        ("(a % 7 + b % 7) % 7 identity 0", (I32, I64, U32, I8)),
        ("(a or b) and not (a and b) identity false", (BOOL,)),
        ("a and b identity true", (BOOL,)),
        ("a == b identity true", (BOOL,)),
        ("0 identity 0", (F64, I32)),
        ("bit_and(a, b) identity -1", (I8, I16, I32, I64)),
        ("bit_and(a, b) identity 4294967295", (U32,)),
        ("bit_or(a, b) identity 0", (*INTS, I8, U8)),
        ("xor(a, b) identity 0", (*INTS, I8, U8)),
        ("bit_or(bit_or(a, 5), b) identity 5", INTS),
        ("xor(xor(a, b), 7) identity 7", INTS),
        ("bit_or(a, b) if isnan(f32(1)) else bit_or(a, b) identity 0", (I32,)),
        ("min(a + b, 127) identity 0", (I8,)),  # nothing of i8 is above
    ],
)
def test_what_is_proved(text: str, types: tuple[DType, ...]) -> None:
    for t in types:
        assert told(text, t) == "+++", (text, t.name)


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ("max(min(a + b, 100.0), -100.0) identity 0.0", FLOATS, "+-+"),
        ("max(min(a + b, 100), -100) identity 0", (F64, I8, I16, I32, I64), "+-+"),
        ("min(a + b, 1e6) identity 0", FLOATS, "+-+"),
        ("min(a + b, 123456789) identity 0", (F64, I32, I64, U32), "+-+"),
        ("min(a + b, 100000.125) identity 0", FLOATS, "+-+"),
        ("a + b if a + b < 1e9 else a identity 0", FLOATS, "---"),
        ("max(a, b) if a < 12345.0 else a identity -inf", FLOATS, "-++"),
        ("max(a, b) if a != 77.5 else b identity -inf", FLOATS, "--+"),
        ("a + b if a * b != 777 else a identity 0", (I32,), "--+"),
        ("a - b identity 0", (F64, I32, U8), "---"),
        ("(a + b) / 2 identity 0", (F64, I32), "+--"),
        ("a if a != 0 else b identity 0", (F64, I32, I8), "-++"),
        ("a identity 0", (F64, I32), "-+-"),
        ("max(a, b) identity 0", (F64, I32, I8), "++-"),
        ("max(abs(a), abs(b)) identity 0", (I8, I32, I64), "++-"),  # the lowest number has no opposite
        ("(a + b) % 7 identity 0", (I8, I32, I64, U32), "+-+"),  # the sum wraps around
        ("a + b - abs(a - b) identity 0", (F64, I32), "+--"),
        ("min(a * b, 1000) identity 1", (F64, I32, U32), "+-+"),
        ("floor(a + b) identity 0", FLOATS, "+-?"),
        ("(a + b + abs(a - b)) / 2 identity -inf", FLOATS, "++-"),
        ("sqrt(a * a + b * b) identity 1", FLOATS, "++-"),
        ("a + b identity nan", FLOATS, "++-"),
        ("not a or b identity true", (BOOL,), "--+"),
        ("max(a, b) identity -100", (F64, I32), "++-"),
        ("abs(a - b) identity 0", (F64, I32), "+-+"),
        ("sigmoid(a + b) identity 0", FLOATS, "+--"),
        ("bit_and(a, b) identity 0", INTS, "++-"),
        ("shift_left(a, b) identity 0", INTS, "---"),
        ("bit_not(bit_and(a, b)) identity 0", INTS, "+--"),
        ("popcount(xor(a, b)) identity 0", INTS, "+--"),
        ("hypot(a, b) identity 1", FLOATS, "++-"),
    ],
)
def test_what_is_refuted(text: str, types: tuple[DType, ...], expected: str) -> None:
    for t in types:
        assert told(text, t) == expected, (text, t.name)


@pytest.mark.parametrize(
    ("text", "t", "expected"),
    [
        ("max(a, b) + log(1.0 + exp(min(a, b) - max(a, b))) identity -inf", F32, "+?+"),
        ("a if a > b else b identity -inf", F32, "??+"),  # a NaN stays or goes with the order
        ("a + b + (log(a) - log(a)) identity 0", F32, "??-"),
        ("min(a, b) + max(a, b) identity 0", I32, "+?+"),
        ("a * b / (a + b) identity inf", F32, "+?-"),
    ],
)
def test_what_is_neither(text: str, t: DType, expected: str) -> None:
    assert told(text, t) == expected


def test_a_nan_that_the_order_loses_is_shown() -> None:
    commutative, _, _ = verdicts(combined("(a, b) = a if a > b else b identity -inf", F64))
    assert not isinstance(commutative, Holds | Broken)
    assert commutative.nan is not None
    assert np.isnan(commutative.nan.left) != np.isnan(commutative.nan.right)


FIRST_MAX = "max(v, w), j if not w <= v and v == v or (w == v or w != w) and j < i else i"
FIRST_MIN = "min(v, w), j if not w >= v and v == v or (w == v or w != w) and j < i else i"
MOMENTS = (
    "n + k, (m + (l - m) * (k / (n + k)) if n != 0.0 or k != 0.0 else 0.0), "
    "(s + t + (l - m) * (l - m) * (n * k / (n + k)) if n != 0.0 or k != 0.0 else s + t)"
)
SHIFTED = (
    "max(m, n), (s if m == max(m, n) else s * exp(m - max(m, n))) + (t if n == max(m, n) else t * exp(n - max(m, n)))"
)


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ("((a, b), (c, d)) = (a + c, max(b, d)) identity (0, -inf)", (F64, F32), "+++"),
        (f"((v, i), (w, j)) = ({FIRST_MAX}) identity (-inf, 2147483647)", (F32, I32), "+++"),
        (f"((v, i), (w, j)) = ({FIRST_MIN}) identity (inf, 9223372036854775807)", (F64, I64), "+++"),
        (f"((v, i), (w, j)) = ({FIRST_MAX}) identity (-2147483648, 255)", (I32, U8), "+++"),
        # Of equal values that of the lowest position is taken in any order, or the order shows; so with a NaN.
        ("((v, i), (w, j)) = (max(v, w), j if w > v else i) identity (-inf, 0)", (F64, I32), "-??"),
        ("((v, i), (w, j)) = (max(v, w), j if w > v or w == v and j < i else i) identity (-inf, 0)", (F64, I32), "???"),
        ("((v, i), (w, j)) = (max(v, w), j if w >= v else i) identity (0.0, 0)", (F32, I64), "-?-"),
        ("((a, b), (c, d)) = (a + c, b and d) identity (0, true)", (I32, BOOL), "+?+"),
        ("((a, b), (c, d)) = (a + c, a * d + b * c) identity (0.0, 1.0)", (F32, F32), "+--"),
        ("((a, b), (c, d)) = (a * c, a * d + b * c) identity (1.0, 0.0)", (F64, F64), "+++"),
        ("((a, b), (c, d)) = (a * c, b * c + d) identity (1.0, 0.0)", (F64, F64), "-+?"),
        ("((a, b), (c, d)) = (a or c, a != d and b) identity (false, true)", (BOOL, BOOL), "--+"),
        ("((a, b), (c, d)) = (a or c, b and d) identity (false, true)", (BOOL, BOOL), "+++"),
        ("((a, b), (c, d)) = (a or c, min(b, d)) identity (false, 127)", (BOOL, I8), "+??"),
        (f"((n, m, s), (k, l, t)) = ({MOMENTS}) identity (0.0, 0.0, 0.0)", (F32, F32, F32), "???"),
        (f"((m, s), (n, t)) = ({SHIFTED}) identity (-inf, 0.0)", (F32, F32), "+?+"),
    ],
)
def test_reducers_of_several_values(text: str, types: tuple[DType, ...], expected: str) -> None:
    assert letters(verdicts(combined(text, *types))) == expected


QUATERNIONS = """((a, b, c, d), (e, f, g, h)) = (
    a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g,
    a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e) identity (1.0, 0.0, 0.0, 0.0)"""


def test_sums_of_products_of_the_same_operands_are_undefined_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "_same_where_nan", None)  # 4,095 sets of undefined operands, each with eight normal forms
    assert letters(verdicts(combined(QUATERNIONS, *(F64,) * 4))) == "-++"


def test_an_operand_of_one_side_alone_can_be_undefined_there() -> None:
    found = verdicts(combined("((a, b), (c, d)) = (a + c, b + d + (a - a)) identity (0.0, 0.0)", F32, F32))
    assert letters(found) == "?++"


def test_an_example_has_all_values() -> None:
    c = combined("((v, i), (w, j)) = (max(v, w), j if w > v else i) identity (-inf, 0)", F64, I32)
    broken = verdicts(c)[0]
    assert isinstance(broken, Broken)
    (i, v), (j, w) = broken.at  # in the order in which they are stored: the position first
    assert v == w and (broken.left, broken.right) == ((i, v), (j, w))


def test_an_undefined_operand_makes_a_maximum_undefined() -> None:
    a, b = (Load(n, (), F64) for n in "ab")
    over = {"a": F64, "b": F64}
    assert difference(Binary("max", a, b), a, over, "b") is not None
    assert difference(Binary("max", a, b), Binary("max", b, a), over, "b") is None
    assert difference(Select(Compare("<", a, b), a, b), b, over, "b") is None


def test_numbers_beside_infinities() -> None:
    a, b, low = Load("a", (), F64), Load("b", (), F64), Const(-inf, F64)
    over = {"a": F64, "b": F64}
    assert difference(Select(Compare(">", a, low), a, b), a, over) is None
    assert difference(Select(Compare("!=", a, low), a, b), a, over, "b") is None
    assert difference(Select(Compare("<=", a, low), a, b), b, over) is None
    assert difference(Select(Compare("==", low, low), a, b), a, over) is None
    assert difference(Select(Compare(">=", a, low), b, a), b, over, "a") is not None  # false for a NaN


# --- random ones -----------------------------------------------------------------------------------------------------


def _drawn(rng: random.Random, t: DType, depth: int) -> Expr:
    a, b = (Load(n, (), t) for n in "ab")
    if depth == 0:
        small = [0, 1, 2, 5] if t.kind == "uint" else [0, 1, 2, 5, -1, -3]
        return rng.choice([a, b, a, b, Const(rng.choice(small) + (0.0 if t.is_float else 0), t)])
    x, y = _drawn(rng, t, depth - 1), _drawn(rng, t, depth - 1)
    op = rng.choice(["+", "-", "*", "min", "max", "min", "max", "if", "if"])
    if op == "if":
        how = rng.choice(["<", "<=", "==", "!="])
        return Select(Compare(how, _drawn(rng, t, 0), _drawn(rng, t, 0)), x, y)  # type: ignore[arg-type]
    return Binary(op, x, y)  # type: ignore[arg-type]


def _broken(law: Law, c: Combiner, t: DType, rng: random.Random) -> tuple[Any, ...] | None:
    """Values that break a law, found by trying."""
    both = sides(law, c)
    (left,), (right,), operands = both.left, both.right, both.operands
    near = [*range(-8 if t.kind != "uint" else 0, 9)]
    far = (
        [2 ** (t.bits - 1) - 1, 2 ** (t.bits - 1) - 3, 2 ** (t.bits - 2)]
        if t.is_integer
        else [0.5, 1.5, 1e5, float("nan")]
    )
    pool = [*near, *far, *([-(2 ** (t.bits - 1))] if t.kind == "int" else [])]
    rows = list(product(pool, repeat=len(operands)))
    kind = np.float64 if t.is_float else np.int64
    columns = {n: np.array([r[k] for r in rows], kind) for k, n in enumerate(operands)}

    def made(e: Expr) -> np.ndarray[Any, Any]:
        e = rewrite_expr(e, lambda x: Load(x.buffer, (Var("n"),), x.dtype) if isinstance(x, Load) else x)
        with np.errstate(all="ignore"):
            return np.broadcast_to(Values("", dict(columns)).value(e, Box(("n",), (0,), (len(rows),)), None), len(rows))

    x, y = made(left), made(right)
    with np.errstate(all="ignore"):
        same = (x == y) | (np.abs(x - y) <= 1e-6 * np.maximum(1.0, np.abs(x))) if t.is_float else x == y
    if t.is_float:
        same |= np.isnan(x) & np.isnan(y)
        same |= ~(np.abs(x) < 1e12) | ~(np.abs(y) < 1e12) & ~(np.isnan(x) ^ np.isnan(y))
    apart = np.flatnonzero(~same)
    return rows[apart[0]] if apart.size else None


@pytest.mark.parametrize("t", [F64, I16, I32, U16], ids=lambda t: t.name)
def test_nothing_that_breaks_a_law_is_proved(t: DType) -> None:
    """Random small reducers: a proof stands against values tried without it, and an example is one."""
    rng = random.Random(f"laws {t.name}")
    proofs = 0
    for _ in range(30):
        e = _drawn(rng, t, rng.randint(1, 2))
        c = Combiner("f", ("a",), ("b",), (e,), (Const(rng.choice([0, 1]) + (0.0 if t.is_float else 0), t),))
        for v in verdicts(c):
            found = _broken(v.law, c, t, rng)
            if isinstance(v, Holds):
                proofs += 1
                assert found is None, (e, v.law, found)
            elif isinstance(v, Broken):
                assert v.left != v.right, (e, v)
    assert proofs > 10


def test_all_types_have_verdicts() -> None:
    for t in DTYPES.values():
        c = Combiner("f", ("a",), ("b",), (Load("a", (), t),), (Const(t == BOOL or (0.0 if t.is_float else 0), t),))
        assert tuple(v.law for v in verdicts(c)) == LAWS
