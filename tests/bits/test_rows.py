"""Rows whose bits do not depend on the batch."""

from __future__ import annotations

import numpy as np
import pytest

from campaigns.rounding import kernel_of
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.proof.equivalence.rows import same_rows
from tensorc_dsl.proof.equivalence.validate import Unproved, Valid
from tensorc_dsl.schedule.trace.trace import Trace

FILE = """\
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}

compute centred(A: f32[M, K]) -> S: f32[M, K] {
    let T[k] = sum[m] A[m, k]
    S[m, k] = A[m, k] - T[k]
}

compute backwards(A: f32[M, K]) -> S: f32[M, K] {
    S[m, k] = A[M - 1 - m, k]
}

compute columns(A: f32[M, K]) -> S: f32[K] {
    S[k] = sum[m] A[m, k]
}

schedule plain for matmul {}
schedule plain_centred for centred {}
schedule plain_backwards for backwards {}
schedule plain_columns for columns {}

task product = matmul(M=1..64, N=9, K=16)
task fixed = matmul(M=4, N=9, K=16)
task centred = centred(M=1..64, K=5)
task backwards = backwards(M=1..64, K=5)
task columns = columns(M=1..64, K=5)
"""

PARTS = """\
let [i, j, k] = C.loops
let [k0, k1] = split(k, [4, _])
rfactor(C, k0)
let [i0, i1] = split(i, [_, 4], partial=true)
keep_order()
"""


def task(name: str) -> Task:
    return loads(FILE, threads=1)[name]


def expanded(one: Task, steps: str) -> Trace:
    return one.expand(Source("steps", f"schedule steps for {one.space.compute} {{\n{steps}\n}}"))


@pytest.mark.parametrize("steps", ["", PARTS, "let [i, j, k] = C.loops\nreorder(k, i, j)\nparallel(j)"])
def test_rows_of_a_product_do_not_depend_on_the_batch(steps: str) -> None:
    one = task("product")
    trace = expanded(one, steps)
    assert isinstance(one.verify_rows(trace, "M"), Valid)
    kernel = kernel_of(trace.program)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((11, 16), (16, 9)))
    whole = np.zeros((11, 9), np.float32)
    kernel(A=a, B=b, C=whole)
    for m in (1, 3, 4, 7):
        first = np.zeros((m, 9), np.float32)
        kernel(A=np.ascontiguousarray(a[:m]), B=b, C=first)
        assert first.tobytes() == whole[:m].tobytes()


@pytest.mark.parametrize("name", ["centred", "backwards"])
def test_rows_that_depend_on_others_are_not_proved(name: str) -> None:
    one = task(name)
    found = one.verify_rows(one.sample(0), "M")
    assert isinstance(found, Unproved)
    assert found.diagnostic.code == "E0811"


@pytest.mark.parametrize(
    ("name", "dim", "reason"),
    [
        ("columns", "M", "`S` has none"),
        ("fixed", "M", "its open dimensions are none"),
        ("product", "K", "its open dimensions are M"),
    ],
)
def test_what_counts_no_rows_is_told(name: str, dim: str, reason: str) -> None:
    one = task(name)
    found = one.verify_rows(one.sample(0), dim)
    assert isinstance(found, Unproved)
    assert reason in found.diagnostic.message
    with pytest.raises(TschedError, match="E0811"):
        one.keeping(rows=dim)


def test_cases_of_a_dispatch_are_compared_with_each_other() -> None:
    one = task("product")
    plain, parts = (expanded(one, steps).program for steps in ("keep_order()", PARTS))
    assert isinstance(same_rows(plain, plain, "M"), Valid)
    assert isinstance(same_rows(parts, parts, "M"), Valid)
    assert isinstance(same_rows(plain, parts, "M"), Unproved)


def test_only_such_schedules_are_drawn() -> None:
    one = task("product").over_space(task("product").space).keeping(rows="M")
    trace = one.sample(0)
    assert trace.lines[-1] == "keep_order()"
    assert isinstance(one.verify_rows(trace, "M"), Valid)
    assert one.expand(Source("again", trace.text)).program == trace.program


SELECT = """\
let [i, j, k] = C.loops
select M {
    1 => { reorder(k, i, j); keep_order() }
    2..7 => { keep_order() }
    12 => { let [j0, j1] = split(j, [_, 3]); keep_order() }
    _ => { OTHER }
}
"""

BY_ROWS = "let [i0, i1] = split(i, [_, 4], partial=true); parallel(i0); keep_order()"


def test_a_row_has_the_same_bits_in_all_cases_of_a_dispatch() -> None:
    one = task("product")
    trace = expanded(one, SELECT.replace("OTHER", BY_ROWS))
    assert len(trace.program.cases) == 4
    assert isinstance(one.verify_rows(trace, "M"), Valid)
    kernel = kernel_of(trace.program)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((64, 16), (16, 9)))
    whole = np.zeros((64, 9), np.float32)
    kernel(A=a, B=b, C=whole)
    for m in (*range(1, 16), 63):
        first = np.zeros((m, 9), np.float32)
        kernel(A=np.ascontiguousarray(a[:m]), B=b, C=first)
        assert first.tobytes() == whole[:m].tobytes()


def test_a_case_with_another_order_is_named() -> None:
    one = task("product")
    trace = expanded(one, SELECT.replace("OTHER", "let [k0, k1] = split(k, [4, _]); rfactor(C, k0); keep_order()"))
    found = one.verify_rows(trace, "M")
    assert isinstance(found, Unproved) and found.diagnostic.code == "E0811"
    assert "for M = 1 and for M = 8..11, " in found.diagnostic.message
    # Two cases that are alike in themselves differ from each other, and really do.
    kernel = kernel_of(trace.program)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((64, 16), (16, 9)))
    whole, first = np.zeros((64, 9), np.float32), np.zeros((5, 9), np.float32)
    kernel(A=a, B=b, C=whole)
    kernel(A=np.ascontiguousarray(a[:5]), B=b, C=first)
    assert first.tobytes() != whole[:5].tobytes()


def test_cases_of_two_dimensions() -> None:
    two = loads(FILE + "task two = matmul(M=1..64, N=1..9, K=16)\n", threads=1)["two"]
    steps = """\
let [i, j, k] = C.loops
select M, N {
    1, _ => { keep_order() }
    2..8, 1..4 => { reorder(k, i, j); keep_order() }
    _, 3..9 => { CASE }
    _, _ => { reorder(j, i, k); keep_order() }
}
"""
    right = expanded(two, steps.replace("CASE", "parallel(i); keep_order()"))
    assert isinstance(two.verify_rows(right, "M"), Valid)
    wrong = expanded(two, steps.replace("CASE", "let [k0, k1] = split(k, [4, _]); rfactor(C, k0); keep_order()"))
    assert isinstance(two.verify_rows(wrong, "M"), Unproved)
