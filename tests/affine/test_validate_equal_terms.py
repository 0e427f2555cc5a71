"""Validation of reductions with terms that are all equal: outside of a mask, or made without the reduction's iterator."""

from __future__ import annotations

import random

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.proof.equivalence.terms import counts
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.proof.sets import isl
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, LoopRef
from tests.affine.test_validate import compared
from tests.compute.texts import build

MASKED = """
program masked(A: f32[5, 9], Z: f32[5]) {
    buffer m: f32[5]
    for i in 5, j in 9 {
        block m { spatial vi in 5 = i; reduce vj in 9 = j
            init { m[vi] = -inf }
            m[vi] = max(m[vi], A[vi, vj] if vj <= vi else -inf) }
    }
    for i_1 in 5, j_1 in 9 {
        block Z { spatial vi in 5 = i_1; reduce vj in 9 = j_1
            init { Z[vi] = 0.0 }
            Z[vi] = Z[vi] + exp((A[vi, vj] if vj <= vi else -inf) - m[vi]) }
    }
}
"""

MASKED_IN_PARTS = """
program masked(A: f32[5, 9], Z: f32[5]) {
    buffer m: f32[5]
    buffer P: f32[5, 3]
    for i in 5, j in 9 {
        block m { spatial vi in 5 = i; reduce vj in 9 = j
            init { m[vi] = -inf }
            m[vi] = max(m[vi], A[vi, vj] if vj <= vi else -inf) }
    }
    for i_1 in 5, j_0 in 3, j_1 in 4 {
        block P { spatial vi in 5 = i_1; spatial v0 in 3 = j_0; reduce v1 in 4 = j_1
            where j_0 * 4 + j_1 < 9
            init { P[vi, v0] = 0.0 }
            P[vi, v0] = P[vi, v0] + exp((A[vi, v0 * 4 + v1] if v0 * 4 + v1 <= vi else -inf) - m[vi]) }
    }
    for i_2 in 5, p in 3 {
        block Z { spatial vi in 5 = i_2; reduce vp in 3 = p
            init { Z[vi] = 0.0 }
            Z[vi] = Z[vi] + P[vi, vp] }
    }
}
"""

REPEATED = """
program repeated(A: f32[6], Y: f32[6]) {
    for i in 6, k in 8 { block Y { spatial vi in 6 = i; reduce vk in 8 = k
        init { Y[vi] = 0.0 }
        Y[vi] = Y[vi] + A[vi] } }
}
"""

REPEATED_IN_PARTS = """
program repeated(A: f32[6], Y: f32[6]) {
    buffer P: f32[2, 6]
    for i in 6, k0 in 2, k1 in 4 { block P { spatial vi in 6 = i; spatial v0 in 2 = k0; reduce v1 in 4 = k1
        init { P[v0, vi] = 0.0 }
        P[v0, vi] = P[v0, vi] + A[vi] } }
    for i_1 in 6, r in 2 { block Y { spatial vi in 6 = i_1; reduce vr in 2 = r
        init { Y[vi] = 0.0 }
        Y[vi] = Y[vi] + P[vr, vi] } }
}
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MASKED, MASKED_IN_PARTS),
        (MASKED_IN_PARTS, MASKED),
        (REPEATED, REPEATED_IN_PARTS),
        (REPEATED_IN_PARTS, REPEATED),
        (REPEATED, REPEATED.replace("vk", "vq")),
    ],
)
def test_equal_terms_are_matched(one: str, other: str) -> None:
    assert compared(one, other) == Valid()


@pytest.mark.parametrize(
    ("one", "other", "old", "new"),
    [
        (REPEATED, REPEATED_IN_PARTS, "k1 in 4 {", "k1 in 3 {"),
        (
            REPEATED,
            REPEATED_IN_PARTS,
            "k0 in 2, k1 in 4 { block P {",
            "k0 in 2, k1 in 4 { block P { where k0 + k1 > 0;",
        ),
        (REPEATED, REPEATED, "vk in 8 = k", "vk in 8 = k; where k + 5 - i > 0"),
        (MASKED, MASKED_IN_PARTS, "< 9", "< 8"),
        (MASKED, MASKED_IN_PARTS, "where j_0 * 4 + j_1 < 9", ""),
        (MASKED, MASKED_IN_PARTS, "v0 * 4 + v1 <= vi", "v0 * 4 + v1 < vi"),
    ],
)
def test_equal_terms_of_another_number_are_not(one: str, other: str, old: str, new: str) -> None:
    assert old in other
    assert compared(one, other.replace(old, new)) != Valid()


def test_equal_terms_are_counted_where_their_number_differs_between_results() -> None:
    triangle = REPEATED.replace("vk in 8 = k", "vk in 8 = k; where k <= i")
    turned = triangle.replace("vk", "vq").replace("i in 6, k in 8", "k in 8, i in 6")
    assert compared(triangle, turned) == Valid()
    assert compared(triangle, turned.replace("k <= i", "k < i")) != Valid()
    assert compared(triangle, turned.replace("k <= i", "k <= i or k == 7")) != Valid()


STEPPED = """
program stepped(Y: i32[12]) {
    for i in 12, k in 12 { block Y { spatial vi in 12 = i; reduce vk in 12 = k; where k <= i
        init { Y[vi] = 0 }
        Y[vi] = Y[vi] + 1 } }
}
"""

STEPPED_IN_ROWS = """
program stepped(Y: i32[12]) {
    for i in 12, r in 3, k in 4 { block Y { spatial vi in 12 = i; reduce vr in 3 = r; reduce vk in 4 = k; where r * 4 + k <= i
        init { Y[vi] = 0 }
        Y[vi] = Y[vi] + 1 } }
}
"""


def test_rows_of_several_lengths_are_not_counted_as_one() -> None:
    """Each piece of a function may be a number, and not the same one: rows of 3 and of 4 terms were counted as 4 each."""
    assert compared(STEPPED, STEPPED_IN_ROWS) == Valid()
    shorter = STEPPED_IN_ROWS.replace("r * 4 + k <= i", "r * 4 + k <= i and r + k > 0")
    assert compared(STEPPED, shorter) != Valid()


@pytest.mark.parametrize("seed", range(40))
def test_counts_are_right(seed: int) -> None:
    rng = random.Random(seed)
    limits = [
        f"{rng.randint(-3, 3)}*n + {rng.randint(-2, 2)}*a + {rng.randint(-2, 2)}*b <= {rng.randint(0, 9)}"
        for _ in range(3)
    ]
    inside = f"0 <= n <= 6 and 0 <= a <= {rng.randint(1, 6)} and 0 <= b <= {rng.randint(1, 4)}"
    terms = isl.Map(f"{{ [n] -> [a, b] : {inside} and ({limits[0]} and {limits[1]} or {limits[2]}) }}")
    found = counts(terms)
    if found is None:
        return
    for n in range(7):
        points = int(terms.intersect_domain(isl.Set(f"{{ [{n}] }}")).range().count_val().to_python())
        there = found.intersect_domain(isl.Set(f"{{ [{n}] }}"))
        assert points == (0 if there.domain().is_empty() else there.max_val().to_python())


CATALAN = """
program catalan(one: f64, C: f64[5]) {
    buffer s: f64[5]
    for n in 5 {
        for k in 5 {
            block s { scan vn in 5 = n; reduce vk in 5 = k
                init { s[vn] = 0.0 }
                s[vn] = s[vn] + (0.0 if vn < 1 else C[vk] * C[vn - vk - 1] if vk < vn else 0.0) }
        }
        block C { scan vn in 5 = n
            C[vn] = one if vn < 1 else s[vn] }
    }
}
"""
IN_PARTS = """
program catalan(one: f64, C: f64[5]) {
    buffer s: f64[5]
    buffer P: f64[5, 2]
    for n in 5 {
        for j in 2, k in 3 {
            block P { scan vn in 5 = n; spatial vj in 2 = j; reduce vk in 3 = k
                init { P[vn, vj] = 0.0 }
                P[vn, vj] = P[vn, vj]
                    + ((0.0 if vn < 1 else C[vk * 2 + vj] * C[vn - vk * 2 - vj - 1] if vk * 2 + vj < vn else 0.0)
                       if vk * 2 + vj < 5 else 0.0) }
        }
        for q in 2 {
            block s { scan vn in 5 = n; reduce vq in 2 = q
                init { s[vn] = 0.0 }
                s[vn] = s[vn] + P[vn, vq] }
        }
        block C { scan vn in 5 = n
            C[vn] = one if vn < 1 else s[vn] }
    }
}
"""


def test_terms_that_read_earlier_steps_are_matched_by_what_they_read() -> None:
    """Nothing but their places tells products of earlier elements apart, and a part of a sum has other iterators."""
    assert isinstance(compared(CATALAN, IN_PARTS), Valid)
    for old, new in (
        ("- vj - 1] if", "- vj - 1] if 1 <"),
        ("* C[vn -", "+ C[vn -"),
        ("vj < vn else", "vj < vn - 1 else"),
    ):
        assert IN_PARTS.count(old) == 1
        assert not isinstance(compared(CATALAN, IN_PARTS.replace(old, new)), Valid)


POOLED = """
program pooled(X: f32[8], W: f32[4], Y: f32[1]) {{
    buffer P: f32[4]
    {pool}
    for y in 1, h in 4 {{
        block Y {{ spatial vy in 1 = y; reduce vh in 4 = h
            init {{ Y[vy] = 0.0 }}
            Y[vy] = Y[vy] + P[vh] * W[vh] }}
    }}
}}
"""
LOOP = """for i in 4, r in 2 { block P { spatial vi in 4 = i; reduce vr in 2 = r
        init { P[vi] = IDENTITY }
        P[vi] = OP(P[vi], max(X[vi * 2 + vr], 0.5)) } }"""
OUT = """for i in 4 { block P { spatial vi in 4 = i
        P[vi] = OP(max(X[vi * 2], 0.5), max(X[vi * 2 + 1], 0.5)) } }"""


def pooled(text: str, op: str) -> str:
    identity = {"max": "-inf", "min": "inf"}[op]
    return POOLED.format(pool=text.replace("OP", op).replace("IDENTITY", identity))


@pytest.mark.parametrize("op", ["max", "min"])
def test_a_sum_reads_a_reduction_that_is_written_out(op: str) -> None:
    assert isinstance(compared(pooled(LOOP, op), pooled(OUT, op)), Valid)
    for wrong in (pooled(OUT, "min" if op == "max" else "max"), pooled(OUT, op).replace("vi * 2]", "vi * 2 + 1]")):
        assert not isinstance(compared(pooled(LOOP, op), wrong), Valid)


COUNTED = """
program counted(A: f32[2], c: f32[2]) {{
    buffer S: f32[5, 2]
    {scan}
    for n in 2, q in 5 {{
        block c {{ spatial vn in 2 = n; reduce vq in 5 = q
            init {{ c[vn] = 0.0 }}
            c[vn] = c[vn] + (1.0 if S[vq, vn] > 1.0 else 0.5) }}
    }}
}}
"""
STEP = "for t in {count}, i in 2 {{ block {name} {{ scan vt in 5 = {t}; spatial vi in 2 = i\n{body} }} }}\n"
BODY = "S[vt, vi] = A[vi] if vt < 1 else 1.0 if S[vt - 1, vi] <= 1.0 else S[vt - 1, vi] * 0.5"


def test_a_sum_reads_a_scan_whose_loop_is_cut() -> None:
    whole = STEP.format(count=5, name="S", t="t", body=BODY)
    first = STEP.format(count=2, name="S", t="t", body=BODY)
    rest = STEP.format(count=3, name="S_1", t="t + 2", body=BODY)
    assert isinstance(compared(COUNTED.format(scan=whole), COUNTED.format(scan=first + rest)), Valid)
    wrong = first + rest.replace("<= 1.0", "< 1.0").replace("* 0.5", "* 0.25")
    assert not isinstance(compared(COUNTED.format(scan=whole), COUNTED.format(scan=wrong)), Valid)


def test_terms_with_other_powers_of_one_factor_are_told_apart() -> None:
    """An element enters a running sum twice, and the number of factors in front of it differs."""
    text = """compute f(X: f32[N]) -> R: f32[N] {
        R[n] = scan[n] init X[0] step R[n - 1] * 3.0 + (X[n] + (X[n - 4] if n >= 4 else 0.0))
    }"""
    program = build(text, N=9)
    scheduled = apply(program, "split_scan", BlockRef("R"), 4).program
    assert isinstance(validate(program, scheduled), Valid)
    text = format_program(scheduled)
    assert "* 3.0" in text
    wrong = parse_program(Source("p.tsched", text.replace("* 3.0", "* 2.0", 1)))
    assert not isinstance(validate(program, wrong), Valid)


QUOTIENTS = """compute f(X: f32[M, N], W: f32[N]) -> T: f32[M], y: f32 {
    let p[i] = sum[j] X[i, j] * W[j]
    let q[i] = sum[j] X[i, j] * X[i, j]
    T[i] = p[i] / (q[i] + 2.0)
    y = sum[i] T[i]
}"""


def test_terms_of_a_stage_that_is_written_out_are_matched_by_its_elements() -> None:
    """A sum in parts has other iterators, and its terms are made of reductions that one side has written out."""
    program = scheduled = build(QUOTIENTS, M=7, N=3)
    for name in ("p", "q"):
        scheduled = apply(scheduled, "expand_reduction", BlockRef(name)).program
        scheduled = apply(scheduled, "compute_inline", BlockRef(name)).program
    scheduled = apply(scheduled, "split", LoopRef("i_3"), (None, 3), partial=True).program
    scheduled = apply(scheduled, "rfactor", BlockRef("y"), LoopRef("i_3_0")).program
    assert isinstance(validate(program, scheduled), Valid)
    text = format_program(scheduled)
    for old, new in (("+ 2.0", "+ 2.5"), ("< 7 else 0.0", "< 7 else 1.0"), ("< 7 else 0.0", "< 6 else 0.0")):
        assert old in text
        wrong = parse_program(Source("p.tsched", text.replace(old, new, 1)))
        assert not isinstance(validate(program, wrong), Valid)
