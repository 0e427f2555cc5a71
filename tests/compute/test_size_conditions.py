"""Conditions on sizes, behind `where`: proofs rely on them, tasks and calls have to keep them."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.program import blocks
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.schedule.primitives.split import split
from tensorc_dsl.schedule.step import LoopRef
from tests.codegen.native import compiled
from tests.compute.native import everywhere
from tests.compute.texts import build, checked, codes, errors

LAST = """compute last(X: f32[N]) -> Y: f32, Z: f32
where {0}
{{
    Y = X[N - 3]
    Z = X[N / 2 + 1]
}}"""


@pytest.mark.parametrize(
    "sizes", ["N >= 3", "3 <= N", "N > 2 and N < 1000", "not N < 3", "N >= 1, N != 1, 2 != N", "H = N / 3, H >= 1"]
)
def test_accesses_are_proved_by_what_is_said_of_sizes(sizes: str) -> None:
    assert checked(LAST.format("M = N")) != []
    assert checked(LAST.format(sizes)) == []
    everywhere(build(LAST.format(sizes), N=3), seed=0)


@pytest.mark.parametrize("sizes", ["N >= 2", "N >= 3 or N == 1", "N != 2", "N % 3 == 0"])
def test_what_is_not_enough_is_refuted(sizes: str) -> None:
    assert "E0411" in "".join(checked(LAST.format(sizes)))


def test_remainders_are_facts_of_proofs() -> None:
    text = """compute pairs(X: f32[D]) -> Y: f32[H]
    where {0}H = (D + 1) / 2
    {{
        Y[i] = X[2 * i + 1]
    }}"""
    assert "E0411" in "".join(checked(text.format("")))
    assert checked(text.format("D % 2 == 0, ")) == []
    assert codes(text.format("D % 2 == 0, "), D=7) == ["E0444"]
    everywhere(build(text.format("D % 2 == 0, "), D=10), seed=0)


def test_tasks_have_sizes_for_which_it_holds() -> None:
    text = LAST.format("N >= 3, N % 4 == 0 or N == 3")
    assert codes(text, N=2) == ["E0444"]
    assert "`last` is for sizes with `N >= 3`" in errors(text, N=2)[0]
    assert "^^^^^^ here N = 2" in errors(text, N=2)[0]
    assert codes(text, N=6) == ["E0444"]
    build(text, N=8)
    build(LAST.format("N >= 3"), N=OpenRange(3, 90))
    assert "here N = 2" in errors(LAST.format("N >= 3"), N=OpenRange(2, 90))[0]
    assert "here N = 4" in errors(LAST.format("N >= 3, N % 2 == 1"), N=OpenRange(3, 90))[0]


@pytest.mark.parametrize(("low", "high"), [(1, 21), (2, 20)])
def test_open_sizes_are_the_multiples_that_it_says(low: int, high: int) -> None:
    text = """compute pairs(X: f32[D]) -> Y: f32[H]
    where D % 2 == 0, H = (D + 1) / 2
    {
        Y[i] = X[2 * i + 1]
    }"""
    p = build(text, D=OpenRange(low, high, (2, 7, 16)))
    assert p.dims == (Dim("D_by_2", 1, 10, (1, 8)),)
    everywhere(bind(p, {"D_by_2": 5}), seed=0)
    kernel = load(compiled(p))
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(kernel(x), x[1::2])
    for n in (5, 22):
        with pytest.raises(ValueError, match="X"):
            kernel(np.zeros(n, np.float32))


def test_open_sizes_are_multiples_of_attributes() -> None:
    text = """compute rows(X: f32[N]; by: int = 4) -> Y: f32[N]
    where N >= 1 and N % by == 0, N % 6 == 0
    {
        Y[i] = X[i]
    }"""
    p = build(text, N=OpenRange(1, 100))
    assert p.dims == (Dim("N_by_12", 1, 8),)
    made = split(p, LoopRef("i"), (None, 12)).program
    assert not any(b.where for b in blocks(made))
    assert build(text, N=OpenRange(1, 100), by=1).dims == (Dim("N_by_6", 1, 16),)


def test_calls_have_sizes_for_which_it_holds() -> None:
    text = """compute only(X: f32[N]) -> Y: f32
    where N >= 3
    {
        Y = X[N - 3]
    }
    compute user(X: f32[M]) -> Y: f32[2] {
        let a[i in M + 1] = X[min(i, M - 1)] if M >= 1 else 0.0
        let b = only(a)
        Y[i] = b
    }"""
    build(text, M=2)
    assert codes(text, M=1) == ["E0444"]
    assert "`only` is for sizes with `N >= 3`" in errors(text, M=1)[0]
    assert "^^^^^^^ here N = M + 1, M = 1" in errors(text, M=OpenRange(1, 8))[0]
    build(text, M=OpenRange(2, 8))


def test_what_is_no_condition_on_sizes_is_refused() -> None:
    text = "compute f(X: f32[N]) -> Y: f32[N]\nwhere {0}\n{{ Y[i] = X[i] }}"
    assert "`N + 1` is no condition on sizes" in checked(text.format("N + 1"))[0]
    assert "E0415" in checked(text.format("X >= 1"))[0] or "E0405" in checked(text.format("X >= 1"))[0]
    assert checked(text.format("M = N, M >= 1")) == []


@pytest.mark.parametrize(("subscript", "condition"), [("N - 1", "N - 1 >= 0"), ("3", "3 < N")])
def test_an_access_that_sizes_decide_has_a_condition_as_its_repair(subscript: str, condition: str) -> None:
    text = "compute f(X: f32[N]) -> Y: f32[4]\n{0}{{\n    Y[i] = X[{1}]\n}}"
    assert f"`where {condition}`" in checked(text.format("", subscript))[0]
    assert checked(text.format(f"where {condition}\n", subscript)) == []
