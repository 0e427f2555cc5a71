"""What `assume` says of inputs: drawn so, kept by all that draws inputs, and refused where no array is so."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.ir.arrays import widen
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.proof.equivalence.validate import trial_inputs
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import Special, make_inputs, special_inputs
from tests.compute.texts import build, checked, codes, errors

TEXT = "compute f(X: {0}[M, N], Z: f32[M, N]) -> Y: {0}[M, N]\nassume {1}\n{{ Y[i, j] = X[i, j] }}"


def compute(dtype: str, says: str, m: int = 7, n: int = 7) -> Program:
    return build(TEXT.format(dtype, says), M=m, N=n)


def drawn(p: Program) -> list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """X as everything draws it: checks of kernels, and proofs, also where special values are tried."""
    again = parse_program(Source("p", format_program(p)))  # as a child process reads it
    every = [make_inputs(again, seed) for seed in range(6)]
    every += [*trial_inputs(p, p, 6), special_inputs(p, 1, 1.0, [*Special])]
    return [widen(x["X"], p.params[0].dtype) for x in every]


@pytest.mark.corpus
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("n", [0, 1, 2, 13, 64])
def test_a_positive_definite_matrix_is(dtype: str, n: int) -> None:
    for x in drawn(compute(dtype, "X positive_definite", n, n)):
        assert (x == x.T).all()
        assert (np.linalg.eigvalsh(x) > 0.1).all()


@pytest.mark.parametrize("dtype", ["f32", "i8", "u16", "bf16"])
def test_rows_are_sorted_symmetric_positive(dtype: str) -> None:
    assert all((np.diff(x, axis=-1) >= 0).all() for x in drawn(compute(dtype, "X sorted", 3, 20)))
    assert all((x == x.T).all() for x in drawn(compute(dtype, "X symmetric")))
    assert all((x > 0).all() for x in drawn(compute(dtype, "X positive")))
    assert len({x.tobytes() for x in drawn(compute(dtype, "X positive"))}) > 5


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("dtype", "n"), [("f32", 1000), ("f16", 100), ("i32", 1000), ("i8", 200), ("u8", 256), ("bf16", 16)]
)
@pytest.mark.parametrize("says", ["X distinct", "X distinct, X sorted", "X distinct, X positive"])
def test_rows_are_distinct(dtype: str, n: int, says: str) -> None:
    if "positive" in says and dtype in ("i8", "u8"):
        assert "no" in errors(TEXT.format(dtype, says), M=3, N=n)[0]
        return
    for x in drawn(compute(dtype, says, 3, n)):
        assert all(len(np.unique(row)) == n for row in x)
        assert "positive" not in says or (x > 0).all()
        assert "sorted" not in says or (np.diff(x, axis=-1) > 0).all()


@pytest.mark.parametrize(
    ("dtype", "says", "low", "high"),
    [("i32", "0..N - 1", 0, 6), ("f32", "-2.5..-2", -2.5, -2), ("u8", "3..3", 3, 3),
     ("f64", "0..1e300", 0, 1e300), ("i8", "-128..127", -128, 127)],
)  # fmt: skip
def test_numbers_are_in_their_range(dtype: str, says: str, low: float, high: float) -> None:
    for x in drawn(compute(dtype, f"X in {says}", 20, 7)):
        assert (x >= low).all()
        assert (x <= high).all()
    assert all((np.diff(x, axis=-1) >= 0).all() for x in drawn(compute(dtype, f"X sorted, X in {says}", 20, 7)))


def test_a_range_of_open_sizes_is_what_all_sizes_have_in_common() -> None:
    p = bind(build(TEXT.format("i32", "X in 0..N - 1"), M=4, N=OpenRange(5, 90)), {"N": 50})
    assert all(0 <= x.min() <= x.max() == 4 for x in drawn(p))
    assert "no numbers for all sizes" in errors(TEXT.format("i32", "X in N..9"), M=4, N=OpenRange(5, 90))[0]


def test_subscripts_that_are_distinct_are_a_permutation() -> None:
    p = build("compute f(X: f32[N], I: i32[N]) -> Y: f32[N]\nassume I distinct\n{ Y[i] = X[I[i] % N] }", N=33)
    assert all(sorted(make_inputs(p, seed)["I"]) == list(range(33)) for seed in range(5))


@pytest.mark.parametrize(
    "says",
    [
        "W sorted", "Y sorted", "X positiv", "X positive_definite", "X symmetric", "X sorted, X sorted",
        "X in 1..2, X in 3..4", "X in 5..4", "X in 0.5..1", "X in 0..300", "X distinct, X in 0..3", "X positive, X in -4..0",
        "Z positive_definite, Z sorted",
    ],
)  # fmt: skip
def test_what_no_input_is_cannot_be_assumed(says: str) -> None:
    assert codes(TEXT.format("u8", says), M=5, N=6) == ["E0445"]


def test_typing_errors_are_found_before_sizes_are_bound() -> None:
    assert "did you mean `sorted`?" in checked(TEXT.format("f32", "X sortd"))[0]
    assert checked(TEXT.format("f32", "X positive_definite, Z in -N..N")) == []


CHOLESKY = """compute cholesky(A: f64[N, N]) -> L: f64[N, N]
ASSUME{
    let c[j, i] = scan[j]
        init A[i, 0] / sqrt(A[0, 0])
        step (A[i, j] - (sum[k in N] (c[k, i] * c[k, j] if k < j else 0.0)))
            / sqrt(A[j, j] - (sum[k in N] (c[k, j] * c[k, j] if k < j else 0.0)))
    L[i, j] = c[j, i] if i >= j else 0.0
}"""


def test_a_cholesky_factor_is_of_numbers() -> None:
    plain = build(CHOLESKY.replace("ASSUME", ""), N=24)
    assert np.isnan(evaluate(plain, make_inputs(plain, 0))["L"]).any()
    p = build(CHOLESKY.replace("ASSUME", "assume A positive_definite\n"), N=24)
    inputs = make_inputs(p, 0)
    factor = evaluate(p, inputs)["L"]
    np.testing.assert_allclose(factor @ factor.T, inputs["A"], rtol=1e-9)


def test_inputs_that_are_passed_on_are_what_the_called_computes_assume() -> None:
    text = """
compute root(A: f32[N, N]) -> Y: f32[N, N]
assume A positive_definite
{{ Y[i, j] = A[i, j] }}
compute middle(B: f32[M, M]) -> Y: f32[M, M]
assume B {inner}
{{
    let R = root(B)
    Y[i, j] = R[i, j]
}}
compute outer(C: f32[K, K], D: f32[K, K]) -> Y: f32[K, K]{outer}
{{
    let E[i, j] = D[i, j] * 2.0
    let R = root(E)
    let S = {called}(C)
    Y[i, j] = R[i, j] + S[i, j]
}}
"""

    def assumed(inner: str, called: str, outer: str = "\n") -> dict[str, object]:
        return dict(build(text.format(inner=inner, called=called, outer=outer), K=4).annotations)

    assert assumed("sorted", "root") == {"assume.C": "positive_definite"}
    assert assumed("symmetric", "middle") == {"assume.C": "symmetric"}
    assert assumed("symmetric", "middle", "\nassume C in 0..1\n") == {"assume.C": "0..1"}
