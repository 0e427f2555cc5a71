"""Whole-program validation: right pairs of programs, and pairs broken by hand with the facts that refute them."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.proof.equivalence.validate import Invalid, Report, Unproved, Valid, validate


def program(text: str) -> Program:
    made = parse_program(Source("test", text))
    verify(made)
    return made


def compared(original: str, scheduled: str) -> Report:
    return validate(program(original), program(scheduled))


def edited(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def assert_valid(original: str, scheduled: str) -> None:
    report = compared(original, scheduled)
    assert not isinstance(report, Invalid | Unproved), render(report.diagnostic)


def assert_reported(original: str, scheduled: str, kind: type[Invalid | Unproved], said: str) -> None:
    report = compared(original, scheduled)
    assert isinstance(report, kind), report
    assert said in render(report.diagnostic)


MATMUL = """
program mm(A: f32[10, 6], B: f32[6, 8], C: f32[10, 8]) {
    for i in 10, j in 8, k in 6 {
        block C {
            spatial vi in 10 = i
            spatial vj in 8 = j
            reduce vk in 6 = k
            init { C[vi, vj] = 0.0 }
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        }
    }
}
"""

TILED = """
program mm(A: f32[10, 6], B: f32[6, 8], C: f32[10, 8]) {
    buffer L: f32[10, 8] in "local"
    buffer P: f32[2, 6, 4]
    for p0 in 2, p1 in 6, p2 in 4 {
        block P { spatial v0 in 2 = p0; spatial v1 in 6 = p1; spatial v2 in 4 = p2
            P[v0, v1, v2] = B[v1, v0 * 4 + v2]
        }
    }
    parallel for i0 in 3 {
        for j0 in 2 {
            for i1 in 4 {
                vectorized for j1 in 4 {
                    block Z {
                        spatial vi in 10 = i0 * 4 + i1
                        spatial vj in 8 = j0 * 4 + j1
                        where i0 * 4 + i1 < 10
                        L[vi, vj] = 0.0
                    }
                }
            }
            for k0 in 3 {
                for i2 in 4, k1 in 2 {
                vectorized for j2 in 4 {
                    block C {
                        spatial vi in 10 = i0 * 4 + i2
                        spatial vj in 8 = j0 * 4 + j2
                        reduce vk in 6 = k0 * 2 + k1
                        where i0 * 4 + i2 < 10
                        L[vi, vj] = L[vi, vj] + A[vi, vk] * P[vj / 4, vk, vj % 4]
                    }
                }
                }
            }
            for i3 in 4 {
                vectorized for j3 in 4 {
                    block W {
                        spatial vi in 10 = i0 * 4 + i3
                        spatial vj in 8 = j0 * 4 + j3
                        where i0 * 4 + i3 < 10
                        C[vi, vj] = L[vi, vj]
                    }
                }
            }
        }
    }
}
"""

BREAKS: dict[str, tuple[str, str, str]] = {
    "guard of the update dropped": (
        "k0 * 2 + k1\n                        where i0 * 4 + i2 < 10\n",
        "k0 * 2 + k1\n",
        "E0801]: the scheduled program, iterator `vi` of block C at i0=2,",
    ),
    "guard of the result too narrow": ("where i0 * 4 + i3 < 10", "where i0 * 4 + i3 < 9", "E0804"),
    "guard of the init too narrow": ("where i0 * 4 + i1 < 10", "where i0 * 4 + i1 < 9", "reads `L[9, "),
    "guard of the update too narrow": ("where i0 * 4 + i2 < 10", "where i0 * 4 + i2 < 9", "a term is missing"),
    "index shifted": ("A[vi, vk] * P", "A[vi, (vk + 1) % 6] * P", "a term is missing"),
    "layout read wrongly": ("P[vj / 4, vk, vj % 4]", "P[vj % 2, vk, vj % 4]", "a term is missing"),
    "packed wrongly": ("B[v1, v0 * 4 + v2]", "B[v1, v2 * 2 + v0]", "a term is missing"),
    "packed too little": ("p0 in 2, p1 in 6", "p0 in 2, p1 in 5", "reads `P[0, 5, "),
    "a term less": ("for k0 in 3", "for k0 in 2", "block C at i=0, j=7, k=5"),
    "terms twice, others missing": ("vk in 6 = k0 * 2 + k1", "vk in 6 = k0 * 2", "a term is missing"),
    "update run twice": ("for i2 in 4", "for again in 2, i2 in 4", "a term comes more than once"),
    "wrong identity": ("L[vi, vj] = 0.0", "L[vi, vj] = 1.0", "there is a term too many"),
    "wrong operation": ("A[vi, vk] * P", "A[vi, vk] + P", "a term is missing"),
    "wrong reduction": ("L[vi, vj] + A", "L[vi, vj] * A", "E080"),
    "wrong result": ("C[vi, vj] = L[vi, vj]", "C[vi, vj] = L[vi, vj] + 1.0", "there is a term too many"),
    "rescaled result": ("C[vi, vj] = L[vi, vj]", "C[vi, vj] = L[vi, vj] * 2.0", "E080"),
    "mirrored result": ("C[vi, vj] = L[vi, vj]", "C[vi, 7 - vj] = L[vi, vj]", "a term is missing"),
    "race on a reduction": (
        "for k0 in 3 {\n                for i2",
        "parallel for k0 in 3 {\n                for i2",
        "E0802]: the scheduled",
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("name", BREAKS)
def test_broken_product(name: str) -> None:
    old, new, said = BREAKS[name]
    assert old in TILED
    text = TILED.replace(old, new)
    if name == "race on a reduction":
        text = text.replace("reduce vk", "spatial vk")
    report = compared(MATMUL, text)
    assert isinstance(report, Invalid)
    assert said in render(report.diagnostic)


def test_tiled_product() -> None:
    assert compared(MATMUL, TILED) == Valid()
    assert compared(TILED, TILED) == Valid()


ATTENTION = """
program attention(Q: f32[2, 3], K: f32[4, 3], O: f32[2]) {
    buffer S: f32[2, 4]
    buffer m: f32[2]
    for i in 2, j in 4, d in 3 {
        block S {
            spatial vi in 2 = i; spatial vj in 4 = j; reduce vd in 3 = d
            init { S[vi, vj] = 0.0 }
            S[vi, vj] = S[vi, vj] + Q[vi, vd] * K[vj, vd]
        }
    }
    for i_1 in 2, j_1 in 4 {
        block m {
            spatial vi in 2 = i_1; reduce vj in 4 = j_1
            init { m[vi] = -inf }
            m[vi] = max(m[vi], S[vi, vj])
        }
    }
    for i_2 in 2 { block O { spatial vi in 2 = i_2; O[vi] = exp(m[vi]) } }
}
"""


def test_terms_of_a_maximum_that_are_reductions_are_matched_by_their_iterators() -> None:
    assert compared(ATTENTION, ATTENTION) == Valid()


SUMS = ATTENTION.replace("-inf", "0.0").replace("max(m[vi], S[vi, vj])", "m[vi] + exp(S[vi, vj])")


def test_terms_made_of_reductions_may_come_in_any_order() -> None:
    assert compared(SUMS, SUMS.replace("exp(S[vi, vj])", "exp(S[vi, 3 - vj])")) == Valid()


def test_terms_made_of_reductions_are_told_apart_without_their_names() -> None:
    """As after `transform_block_layout` and `rfactor`, here both: two partial sums, one of even terms, one of odd ones."""
    start = SUMS.index("    for i_1 in 2")
    parts = f"""{SUMS[:start]}
    for i_3 in 2, h in 2, q in 2 {{
        block p {{
            spatial vi in 2 = i_3; spatial vh in 2 = h; reduce vq in 2 = q
            init {{ p[vi, vh] = 0.0 }}
            p[vi, vh] = p[vi, vh] + exp(S[vi, vq * 2 + vh])
        }}
    }}
{SUMS[start:]}""".replace("buffer m: f32[2]", "buffer m: f32[2]; buffer p: f32[2, 2]")
    for old, new in (("j_1 in 4", "h_1 in 2"), ("vj in 4 = j_1", "vh in 2 = h_1"), ("exp(S[vi, vj])", "p[vi, vh]")):
        parts = parts.replace(old, new)
    assert compared(SUMS, parts) == Valid()
    assert compared(parts, SUMS) == Valid()

    for old, new in (
        ("h_1 in 2 {", "h_1 in 1 {"), ("h in 2, q in 2", "h in 2, q in 1"), ("K[vj, vd]", "K[vj, 2 - vd]"),
        ("vq * 2 + vh", "vq + vh"), ("exp(S", "sqrt(S"),
    ):  # fmt: skip
        assert old in parts
        assert compared(SUMS, parts.replace(old, new)) != Valid()


def test_zeros_stay_neutral_when_their_type_changes() -> None:
    product = """
program p(A: u8[5], B: i8[5], C: i32[1]) {{
    {padding}
    for k in {n} {{
        block C {{
            spatial v in 1 = 0; reduce vk in {n} = k
            init {{ C[v] = 0 }}
            C[v] = C[v] + i32({a}) * i32({b})
        }}
    }}
}}
"""
    pads = """
    buffer P: u8[6]
    buffer Q: i8[6]
    for i in 6 { block P { spatial v in 6 = i; P[v] = A[v] if v < 5 else 0 } }
    for j in 6 { block Q { spatial v in 6 = j; Q[v] = B[v] if v < 5 else 0 } }
    """
    plain = product.format(padding="", n=5, a="A[vk]", b="B[vk]")
    padded = product.format(padding=pads, n=6, a="P[vk]", b="Q[vk]")
    assert compared(plain, padded) == Valid()


PIPELINED = """
program p(A: f32[6], B: f32[6]) {
    buffer S: f32[6] in "shared"
    pipelined for i in 6 @("pipeline.order", "0, 1") @("pipeline.stages", "0, 1") {
        block S { spatial v in 6 = i; S[v] = A[v] * 2.0 }
        block B { spatial v in 6 = i; B[v] = S[v] + 1.0 }
    }
}
"""


def test_a_pipeline_keeps_what_its_stages_keep() -> None:
    plain = PIPELINED.replace("pipelined for i in 6 @", "for i in 6 @")
    assert compared(plain, PIPELINED) == Valid()
    same_stage = PIPELINED.replace('stages", "0, 1"', 'stages", "0, 0"')
    assert compared(plain, same_stage) == Valid()


@pytest.mark.parametrize(("stages", "order"), [("1, 0", "0, 1"), ("1, 0", "1, 0"), ("0, 0", "1, 0"), ("2, 0", "0, 1")])
def test_a_pipeline_whose_stages_are_swapped_is_refuted(stages: str, order: str) -> None:
    plain = PIPELINED.replace("pipelined for i in 6 @", "for i in 6 @")
    wrong = PIPELINED.replace('stages", "0, 1"', f'stages", "{stages}"').replace('order", "0, 1"', f'order", "{order}"')
    report = compared(plain, wrong)
    assert isinstance(report, Invalid)
    assert "E0802]: the scheduled program, the pipeline of `i` lets the later" in render(report.diagnostic)
