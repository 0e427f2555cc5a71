"""u64: conversions at every boundary, arithmetic modulo 2^64, reductions, and data that choose elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype, widen
from tensorc_dsl.ir.dtypes import DTYPES, U64, DType, limits, nearest, truncated
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.interpret import interpret
from tests.codegen.native import program, run
from tests.codegen.test_types import elementwise
from tests.compute.texts import build

KINDS = ["serial", "vectorized"]
TURN = 2**64


def ends() -> list[int]:
    """Powers of 2 with their neighbours, numbers between floats, and the largest ones."""
    near = {2**k + d for k in range(65) for d in (-1, 0, 1)}
    halves = {2**k + 2 ** (k - b) + d for b in (4, 8, 11, 24, 53) for k in range(b, 64) for d in (-1, 0, 1)}
    return sorted(n for n in near | halves if 0 <= n < TURN)


def all_ways(text: str, given: dict[str, Array]) -> list[Array]:
    p = program(text)
    dtype = p.buffer("C").dtype
    return [widen(run(p, given)["C"], dtype), evaluate(p, given)["C"], interpret(p, given)["C"]]


@pytest.mark.corpus
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to", [t for t in DTYPES.values() if t.kind != "bool"], ids=str)
def test_to_each_type(to: DType, kind: str) -> None:
    x = ends()
    if to.is_float:
        expected = np.array([nearest(n, to) for n in x])
    else:
        low, _ = limits(to)
        expected = np.array([(n - low) % 2**to.bits + low for n in x], stored_dtype(to))
    text = elementwise(f"{to}(A[v])", kind, {"A": "u64", "C": str(to)}, len(x))
    for found in all_ways(text, {"A": np.array(x, np.uint64)}):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.corpus
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("t", [t for t in DTYPES.values() if t.is_float and t.has_arithmetic], ids=str)
def test_from_floats(t: DType, kind: str) -> None:
    x = np.array([nearest(n, t) for n in ends()])
    x = np.concatenate([x, -x, [np.nan, np.inf, -np.inf, 0.5, -0.99, 1.99, 1e30]])
    stored = narrow(x, t)
    wide = widen(stored, t)
    text = elementwise("u64(A[v])", kind, {"A": str(t), "C": "u64"}, len(x))
    expected = [truncated(v, U64) for v in wide.tolist()]
    for found in all_ways(text, {"A": stored}):
        assert found.tolist() == expected


@pytest.mark.corpus
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("t", ["i8", "i32", "i64", "u32", "bool"])
def test_from_integers(t: str, kind: str) -> None:
    own = stored_dtype(DTYPES[t])
    x = np.array([0, 1], bool) if t == "bool" else np.array([np.iinfo(own).min, np.iinfo(own).max, 1, 100], own)
    x = np.resize(x, 12)
    for found in all_ways(elementwise("u64(A[v])", kind, {"A": t, "C": "u64"}, 12), {"A": x}):
        assert found.tolist() == [int(v) % TURN for v in x.tolist()]


def _places(x: int, y: int) -> int:
    return 64 if y >= 64 else y


OPERATIONS = {
    "A[v] + B[v]": lambda x, y: x + y, "A[v] - B[v]": lambda x, y: x - y, "A[v] * B[v]": lambda x, y: x * y,
    "A[v] / B[v]": lambda x, y: x // y if y else 0, "A[v] % B[v]": lambda x, y: x % y if y else 0,
    "min(A[v], B[v])": min, "max(A[v], B[v])": max, "xor(A[v], B[v])": lambda x, y: x ^ y,
    "bit_and(A[v], B[v])": lambda x, y: x & y, "bit_or(A[v], B[v])": lambda x, y: x | y,
    "bit_not(A[v])": lambda x, _: ~x, "shift_left(A[v], B[v])": lambda x, y: x << _places(x, y),
    "shift_right(A[v], B[v])": lambda x, y: x >> _places(x, y), "popcount(A[v])": lambda x, _: x.bit_count(),
    "clz(A[v])": lambda x, _: 64 - x.bit_length(), "ctz(A[v])": lambda x, _: ((x & -x).bit_length() - 1) % 65,
    "abs(A[v])": lambda x, _: x, "sign(A[v])": lambda x, _: min(x, 1), "-A[v]": lambda x, _: -x,
    "A[v] / 18446744073709551615": lambda x, _: x // (TURN - 1),
    "A[v] * 11400714819323198485": lambda x, _: x * 11400714819323198485,
    "A[v] if A[v] < B[v] else B[v]": min, "A[v] if A[v] >= 9223372036854775808 else 7": lambda x, _: x if x >> 63 else 7,
    "u64(A[v] == B[v])": lambda x, y: int(x == y),
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_are_modulo_the_width(operation: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    x = [0, 1, TURN - 1, 2**63, 2**63 - 1, 5, *(int(n) for n in rng.integers(0, TURN, 20, np.uint64))]
    y = [TURN - 1, 0, TURN - 1, 1, 2**63, 3, *(int(n) for n in rng.integers(0, 70, 10)), *x[6:16]]
    given = {"A": np.array(x, np.uint64), "B": np.array(y, np.uint64)}
    text = elementwise(operation, kind, {"A": "u64", "B": "u64", "C": "u64"}, len(x))
    for found in all_ways(text, given):
        assert found.dtype == np.uint64
        assert found.tolist() == [OPERATIONS[operation](a, b) % TURN for a, b in zip(x, y, strict=True)]


def everywhere(text: str, given: dict[str, Array], **sizes: int) -> list[Array]:
    p = build(text, **sizes)
    return [run(p, given)["Y"], evaluate(p, given)["Y"], interpret(p, given)["Y"]]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("sum[j] X[i, j] * X[i, j]", lambda x: (x * x).sum(1)), ("prod[j] X[i, j]", lambda x: x.prod(1)),
        ("min[j] X[i, j]", lambda x: x.min(1)), ("max[j] X[i, j]", lambda x: x.max(1)),
        ("argmax[j] X[i, j]", lambda x: x.argmax(1)),
    ],
)  # fmt: skip
def test_reductions(value: str, expected: Callable[[Array], Array]) -> None:
    x = np.random.default_rng(1).integers(0, TURN, (5, 9), np.uint64)
    text = f"compute c(X: u64[M, N]) -> Y: u64[M] {{ Y[i] = {value} }}"
    for found in everywhere(text, {"X": x}, M=5, N=9):
        np.testing.assert_array_equal(found, expected(x).astype(np.uint64))


def test_a_number_beyond_all_indices_is_above_every_bound() -> None:
    """Its bits as an index would be negative: it is clamped to the high end, and matches no position."""
    k = np.array([0, 3, 9, 2**63 - 1, 2**63, TURN - 1, 1], np.uint64)
    w = np.arange(10, 15, dtype=np.float32)
    text = "compute c(W: f32[V], K: u64[N]) -> Y: f32[N] { Y[i] = W[clamp(K[i], 0, V - 1)] }"
    for found in everywhere(text, {"W": w, "K": k}, V=5, N=7):
        assert found.tolist() == [10, 13, 14, 14, 14, 14, 11]
    text = "compute c(K: u64[N]) -> Y: i32[V] where V = 4 { Y[v] = sum[i] (1 if K[i] == u64(v) else 0) }"
    for found in everywhere(text, {"K": k}, N=7):
        assert found.tolist() == [1, 1, 0, 1]
    text = "compute c(X: f32[T], L: u64[N]) -> Y: f32[N] { Y[i] = sum[t] (X[t] if u64(t) < L[i] else 0.0) }"
    for found in everywhere(text, {"X": np.ones(6, np.float32), "L": k}, T=6, N=7):
        assert found.tolist() == [0, 3, 6, 6, 6, 6, 1]
