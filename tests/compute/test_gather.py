"""Subscripts through data, in computes: accepted ones, refused ones, and the resulting programs."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.ir.expr import Load, loads
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.proof.sets.linear_forms import value_range
from tensorc_dsl.reference.inputs import make_inputs
from tests.codegen.native import program, run
from tests.compute.native import everywhere
from tests.compute.texts import build, checked, codes, errors


def rows(value: str) -> str:
    """A compute over a table W, integers I and Q, and floats F."""
    given = "W: f32[V, D], I: i32[N], Q: u8[N], L: i64[N], F: f32[N]"
    return f"compute f({given}) -> Y: f32[N, D] {{\n    Y[n, d] = {value}\n}}\n"


SIZES = {"V": 6, "D": 3, "N": 4}


def read(p: Program) -> list[str]:
    return [format_expr(x) for b in blocks(p) for s in b.body for x in loads(s.value) if isinstance(x, Load)]


@pytest.mark.parametrize(
    ("subscript", "made"),
    [
        ("clamp(I[n], 0, V - 1)", "min(max(index(I[vn]), 0), 5)"),
        ("clamp(Q[n], 0, V - 1)", "min(index(Q[vn]), 5)"),
        ("clamp(I[n] + 1, 1, 3) - 1", "min(max(index(I[vn] + 1), 1), 3) - 1"),
        ("clamp(I[n], n, n + 2)", "min(max(index(I[vn]), vn), vn + 2)"),
        ("clamp(n - 1, 0, V - 1)", "max(vn - 1, 0)"),
        ("clamp(I[clamp(Q[n], 0, N - 1)], 0, V - 1)", "min(max(index(I[min(index(Q[vn]), 3)]), 0), 5)"),
        ("clamp(I[n] + n, 0, V - 1)", "min(max(vn + index(I[vn]), 0), 5)"),
        ("clamp(n - I[n] * 2, 0, V - 1)", "min(max(vn - index(I[vn] * 2), 0), 5)"),
        ("clamp(n + Q[n], 0, V - 1)", "min(vn + index(Q[vn]), 5)"),
        ("clamp(V - 1 - Q[n], 0, V - 1)", "max(5 - index(Q[vn]), 0)"),
        ("clamp(clamp(L[n], -V, V) + n, 0, V - 1)", "min(max(vn + min(max(index(L[vn]), -6), 6), 0), 5)"),
    ],
)
def test_a_clamp_is_an_index(subscript: str, made: str) -> None:
    assert read(build(rows(f"W[{subscript}, d]"), **SIZES))[0] == f"W[{made}, vd]"


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("W[I[n], d] if I[n] >= 0 and I[n] < i32(V) else 0", "min(max(index(I[vn]), 0), 5)"),
        ("W[I[n], d] if 0 <= I[n] <= i32(V - 1) else 0", "min(max(index(I[vn]), 0), 5)"),
        ("0 if I[n] < 0 or not (i32(V) > I[n]) else W[I[n], d]", "min(max(index(I[vn]), 0), 5)"),
        ("W[L[n], d] if L[n] > -1 and L[n] < 6 else 0", "min(max(index(L[vn]), 0), 5)"),
        ("W[Q[n], d] if Q[n] < u8(V) else 0", "min(index(Q[vn]), 5)"),
        ("(W[I[n] + 1, d] if I[n] + 1 < 5 else 1) if 2 <= I[n] + 1 else 0", "min(max(index(I[vn] + 1), 0), 5)"),
    ],
)
def test_conditions_keep_what_is_read_inside(value: str, made: str) -> None:
    p = build(rows(value), **SIZES)
    assert f"W[{made}, vd]" in read(p)
    given = make_inputs(p, seed=1)
    given["I"][...], given["L"][...], given["Q"][...] = [-1, 5, 6, 0], [6, -1, 5, 0], [5, 6, 255, 0]
    inside = given[next(name for name in "ILQ" if f"{name}[" in value)].astype(np.int64) + ("+ 1" in value)
    low, high = (2, 4) if "+ 1" in value else (0, 5)
    rest = np.where(inside >= low, 1.0, 0.0) if "+ 1" in value else np.zeros(4)
    wanted = [given["W"][i] if low <= i <= high else np.full(3, r) for i, r in zip(inside, rest, strict=True)]
    np.testing.assert_array_equal(run(p, given)["Y"], np.array(wanted, np.float32))


@pytest.mark.parametrize(
    "condition",
    [
        "I[n] >= 0", "I[n] < i32(V)", "I[n] >= -1 and I[n] < i32(V)", "I[n] >= 0 and I[n] <= i32(V)", "I[n] > 0 and I[n] < 7",
        "I[n] >= 0 or I[n] < i32(V)", "not (I[n] >= 0 and I[n] < i32(V))", "I[n] + 1 >= 0 and I[n] < i32(V)",
        "I[n] >= 0 and I[n] < i32(D + V)", "I[n] == i32(V)", "I[n] >= 0 and I[n] < i32(V) + 1", "L[n] >= 0 and L[n] < 3",
    ],
)  # fmt: skip
def test_conditions_that_say_too_little_keep_nothing_inside(condition: str) -> None:
    assert codes(rows(f"W[I[n], d] if {condition} else 0"), **SIZES) == ["E0412"]


@pytest.mark.parametrize(
    ("value", "code", "says"),
    [
        ("W[I[n], d]", "E0412", "= help: say between which two it stays: `clamp(I[n], 0, 5)`"),
        ("W[I[n] * 2 + 1, d]", "E0412", "`clamp(I[n] * 2 + 1, 0, 5)`"),
        ("W[clamp(I[n], 0, V), d]", "E0411", "6 when I[n] = 6"),
        ("W[clamp(I[n], -1, V - 1), d]", "E0411", "-1 when I[n] = -2147483648"),
        ("W[clamp(F[n], 0, V - 1), d]", "E0413", "an index is made of an integer; `F[n]` is f32"),
        ("W[clamp(F[n] + n, 0, V - 1), d]", "E0413", "an index is made of an integer; `F[n]` is f32"),
        ("W[clamp(I[n] + Q[n] + n, 0, V - 1), d]", "E0413", "`+` mixes i32 and u8"),
        ("W[clamp(n, 0, I[n]), d]", "E0412", "a subscript that the values of `I` decide"),
        ("clamp(F[n], 0, V - 1)", "E0413", "an index is not a value of type f32"),
        ("W[clamp(I[n], 0), d]", "E0416", "`clamp` takes 3 values, but was given 2"),
        ("W[clamp(I[n], 0, I[n]), d]", "E0412", "a subscript that the values of `I` decide"),
        ("W[clamp(I[n + 1], 0, V - 1), d]", "E0411", "subscript 1 of `I` can be 4"),
        ("clamp(I[n], 0, V - 1)", "E0413", "an index is not a value of type f32"),
    ],
)
def test_what_may_leave_the_table_is_refused(value: str, code: str, says: str) -> None:
    assert codes(rows(value), **SIZES) == [code]
    assert says in errors(rows(value), **SIZES)[0]


@pytest.mark.corpus
@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
@pytest.mark.parametrize(
    "subscript",
    ["I[n]", "I[n] + n", "n - I[n]", "n + s", "max(I[n], s) - n", "2 * n + 3 * I[n] - 1", "I[n] / 2 - n % 2"],
)
def test_every_integer_clamps_like_an_index(dtype: str, subscript: str) -> None:
    """Data of the middle of the type, where sums do not wrap, and of its ends, where all stays inside the table."""
    text = f"compute f(W: f32[V], I: {dtype}[N], s: {dtype}) -> Y: f32[N] {{ Y[n] = W[clamp({subscript}, 0, V - 1)] }}"
    assert checked(text) == []
    if dtype in ("i64", "u64") and subscript != "I[n]":  # a sum of numbers of 64 bits leaves them
        assert codes(text, V=9, N=40) == ["E0404"]
        return
    p = build(text, V=9, N=40)
    rng = np.random.default_rng(0)
    given = make_inputs(p, 1)
    low, high = (0, 12) if dtype[0] == "u" else (-4, 12)
    given["I"], given["s"] = (rng.integers(low, high, a.shape).astype(a.dtype) for a in (given["I"], given["s"]))
    where = subscript.replace("/", "//")
    names = {"I": given["I"].tolist(), "s": int(given["s"]), "max": max}
    at = [eval(where, {**names, "n": n}) for n in range(40)]
    assert everywhere(p, given)["Y"].tolist() == given["W"][np.clip(at, 0, 8)].tolist()
    ends = np.iinfo(given["I"].dtype)
    given["I"][:] = rng.choice(np.array([ends.min, ends.max], given["I"].dtype), 40)
    given["s"] = np.array(ends.max, given["s"].dtype)
    everywhere(p, given)


def test_a_float_is_clamped_as_a_value() -> None:
    p = build(rows("clamp(F[n], -0.5, 1) * clamp(W[0, d], F[n], 2.0)"), **SIZES)
    given = make_inputs(p, 0)
    f, w = given["F"].astype(np.float64)[:, None], given["W"].astype(np.float64)[:1]
    want = np.minimum(np.maximum(f, -0.5), 1) * np.minimum(np.maximum(w, f), 2.0)
    np.testing.assert_allclose(everywhere(p, given)["Y"], want, rtol=1e-6)


def test_sizes_and_ranges_are_clamped_like_subscripts() -> None:
    text = (
        "compute f(X: f32[N]; p: int = 5) -> Y: f32[M] where M = clamp(N - p, 1, 8)\n"
        "{ Y[i] = sum[k in clamp(p, 1, 3)] X[clamp(i - k, 0, N - 1)] if clamp(i, 1, 2) == i else 0.0 }"
    )
    p = build(text, N=7)
    x = np.arange(7, dtype=np.float32)
    assert everywhere(p, {"X": x})["Y"].tolist() == [0.0, 1.0]


def test_a_program_has_clamp_for_what_it_prints_as_min_and_max() -> None:
    text = (
        "program p(X: f32[9], I: i32[9], Y: f32[9]) {{ for i in 9 {{ block Y {{ spatial v in 9 = i; Y[v] = {} }} }} }}"
    )
    for clamp, plain in (
        ("X[clamp(v - 1, 0, 8)]", "X[min(max(v - 1, 0), 8)]"),
        ("X[clamp(index(I[v]) + v, 0, 8)]", "X[min(max(index(I[v]) + v, 0), 8)]"),
        ("clamp(X[v], 0, 0.5)", "min(max(X[v], 0), 0.5)"),
    ):
        assert program(text.format(clamp)) == program(text.format(plain))


def test_a_table_without_rows_has_none_to_clamp_to() -> None:
    text = rows("W[clamp(I[n], 0, V - 1), d]")
    assert codes(text, **{**SIZES, "V": 0}) == ["E0411"]
    assert build(text, V=0, D=3, N=0)
    assert checked(text) == []


def test_inputs_name_rows_everywhere_and_a_little_outside() -> None:
    p = build(rows("W[clamp(I[n] - i32(Q[n]), 0, V - 1), d]"), V=1000, D=1, N=400)
    made = make_inputs(p, 0)
    assert made["I"].dtype == np.int32
    assert made["I"].min() < 0
    assert made["I"].max() > 999
    assert np.unique(made["I"]).size > 200
    assert made["Q"].max() > 200


RANGED = {
    "an index from the end": ("f32[N]", "i32", "clamp(I[i] + (N if I[i] < 0 else 0), 0, N - 1)"),
    "all numbers of a type": ("f32[256]", "u8", "I[i]"),
    "all numbers of a signed type": ("f32[256]", "i8", "I[i] + i - i + 128"),
    "min and max": ("f32[N]", "i32", "min(max(I[i], 0), N - 1)"),
    "max and min": ("f32[N]", "i64", "max(min(N - 1, I[i]), 0)"),
    "a remainder": ("f32[N]", "i32", "I[i] % N"),
    "a remainder in the type": ("f32[8]", "u64", "I[i] % 8"),
    "a quotient": ("f32[16]", "u8", "I[i] / 16"),
    "bits": ("f32[8]", "i32", "bit_and(I[i], 7)"),
    "a shifted table": ("f32[512]", "u8", "i32(I[i]) * 2 + 1"),
    "of two the one that is meant": ("f32[N]", "i32", "(I[i] % N) if I[i] < 0 else min(max(I[i], 0), N - 1)"),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", RANGED.values(), ids=list(RANGED))
@pytest.mark.parametrize("n", [1, 7])
def test_the_range_of_a_subscript_follows_from_its_expression(case: tuple[str, str, str], n: int) -> None:
    shape, dtype, subscript = case
    text = f"compute f(X: {shape}, I: {dtype}[M]) -> Y: f32[M] {{ Y[i] = X[{subscript}] }}"
    assert checked(text) == []
    if "N" in shape or n > 1:
        everywhere(build(text, M=5, **({"N": n} if "N" in shape else {})), seed=n)


@pytest.mark.parametrize(
    "subscript",
    ["I[i] + 1", "I[i] % (N + 1)", "min(I[i], N - 1)", "max(I[i], 0)", "min(max(I[i], 0), N)", "abs(I[i])", "I[i] / 2"],
)
def test_a_range_that_leaves_the_dimension_is_refused(subscript: str) -> None:
    text = f"compute f(X: f32[N], I: i32[M]) -> Y: f32[M] {{ Y[i] = X[{subscript}] }}"
    assert codes(text, N=9, M=3) == ["E0412"]
    assert f"`clamp({subscript}, 0, 8)`" in errors(text, N=9, M=3)[0]


def test_all_numbers_of_a_type_need_as_many_elements() -> None:
    text = "compute f(X: f32[N], I: u8[M]) -> Y: f32[M] { Y[i] = X[I[i]] }"
    assert checked(text) == []
    assert codes(text, N=255, M=3) == ["E0412"]
    everywhere(build(text, N=256, M=3), seed=0)


def test_ranges_of_values_hold_for_all_numbers_of_i8_and_u8() -> None:
    """Against all pairs of values, computed by machine code."""
    for dtype in ("i8", "u8"):
        values = np.arange(-128, 128) if dtype == "i8" else np.arange(256)
        x, z = (v.ravel().astype(values_of(dtype)) for v in np.meshgrid(values, values))
        for text in ("X[i] % Z[i]", "X[i] % 7", "Z[i] / 3", "X[i] + Z[i]", "max(X[i], 3) - 3", "bit_and(X[i], Z[i])",
                     "min(max(X[i], 3), 9) % max(Z[i], 2)", "(X[i] if Z[i] > 3 else 5) / 2", "max(X[i], 1) * 3"):  # fmt: skip
            p = build(f"compute f(X: {dtype}[N], Z: {dtype}[N]) -> Y: {dtype}[N] {{ Y[i] = {text} }}", N=len(x))
            (value,) = (s.value for b in blocks(p) for s in b.body)
            low, high = value_range(value)
            y = run(p, {"X": x, "Z": z})["Y"]
            wrong = (y < low) | (y > high)
            assert not wrong.any(), (text, x[wrong][0], z[wrong][0])


def values_of(dtype: str) -> type[np.int8 | np.uint8]:
    return np.int8 if dtype == "i8" else np.uint8
