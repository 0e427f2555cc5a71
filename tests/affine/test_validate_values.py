"""Validation of rewrites that primitives make or may make, written by hand."""

from __future__ import annotations

import pytest

from tensorc_dsl.proof.equivalence.validate import Invalid, Unproved
from tests.affine.test_validate import assert_reported, assert_valid, edited

SUM = """
program total(A: f32[8, 12], S: f32[8]) {
    for i in 8, k in 12 {
        block S { spatial vi in 8 = i; reduce vk in 12 = k
            init { S[vi] = 0.0 }
            S[vi] = S[vi] + A[vi, vk]
        }
    }
}
"""

RFACTOR = """
program total(A: f32[8, 12], S: f32[8]) {
    buffer R: f32[8, 4]
    parallel for i in 8 {
        for k1 in 4, k0 in 3 {
            block R { spatial vi in 8 = i; spatial v1 in 4 = k1; reduce v0 in 3 = k0
                init { R[vi, v1] = 0.0 }
                R[vi, v1] = R[vi, v1] + A[vi, v0 * 4 + v1]
            }
        }
    }
    for i_1 in 8, r in 4 {
        block S { spatial vi in 8 = i_1; reduce vr in 4 = r
            init { S[vi] = 0.0 }
            S[vi] = S[vi] + R[vi, vr]
        }
    }
}
"""

CHAIN = """
program chain(A: f32[9], Y: f32[7]) {
    buffer E: f32[9]
    for i in 9 { block E { spatial vi in 9 = i
        E[vi] = exp(A[vi]) } }
    for j in 7 { block Y { spatial vj in 7 = j
        Y[vj] = E[vj] + E[vj + 2] } }
}
"""

OVERLAPPING = """
program chain(A: f32[9], Y: f32[7]) {
    buffer E: f32[9]
    for t in 3 {
        for i in 5 { block E { spatial vi in 9 = t * 3 + i
            where t * 3 + i < 9
            E[vi] = exp(A[vi]) } }
        for j in 3 { block Y { spatial vj in 7 = t * 3 + j
            where t * 3 + j < 7
            Y[vj] = E[vj] + E[vj + 2] } }
    }
}
"""

INLINED = """
program chain(A: f32[9], Y: f32[7]) {
    for j in 7 { block Y { spatial vj in 7 = j
        Y[vj] = exp(A[vj]) + exp(A[vj + 2]) } }
}
"""

ROLLING = """
program chain(A: f32[9], Y: f32[7]) {
    buffer E: f32[3]
    for i in 9 {
        block E { spatial vi in 9 = i
            E[vi % 3] = exp(A[vi]) }
        block Y { spatial vj in 9 = i
            where i >= 2
            Y[vj - 2] = E[(vj - 2) % 3] + E[vj % 3] }
    }
}
"""

ONES = """
program ones(A: f32[6], Y: f32[6]) {
    for i in 6, k in 5 { block Y { spatial vi in 6 = i; reduce vk in 5 = k
        init { Y[vi] = 0.0 }
        Y[vi] = Y[vi] + A[vi] } }
}
"""

OPEN = """
program grow(A: f32[N, 4], S: f32[N]) where N in 1..4096 {
    for i in N, k in 4 { block S { spatial vi in N = i; reduce vk in 4 = k
        init { S[vi] = 0.0 }
        S[vi] = S[vi] + A[vi, vk] } }
}
"""

OPEN_TILED = """
program grow(A: f32[N, 4], S: f32[N]) where N in 1..4096 {
    parallel for f in (N + 7) / 8 * 2 { for k in 4, i1 in 4 { block S {
        spatial vi in N = f / 2 * 8 + f % 2 * 4 + i1; reduce vk in 4 = k
        where f / 2 * 8 + f % 2 * 4 + i1 < N
        init { S[vi] = 0.0 }
        S[vi] = S[vi] + A[vi, vk] } } }
}
"""

PADDED = """
program pad(A: f32[5, 7], B: f32[7], S: f32[5]) {
    for i in 5, k in 7 { block S { spatial vi in 5 = i; reduce vk in 7 = k
        init { S[vi] = 0.0 }
        S[vi] = S[vi] + A[vi, vk] * B[vk] } }
}
"""

PADDED_TO_8 = """
program pad(A: f32[5, 7], B: f32[7], S: f32[5]) {
    buffer P: f32[5, 8]
    buffer Q: f32[8]
    for i in 5, k in 8 { block P { spatial vi in 5 = i; spatial vk in 8 = k
        P[vi, vk] = A[vi, vk] if vk < 7 else 0.0 } }
    for k_1 in 8 { block Q { spatial vk in 8 = k_1
        Q[vk] = B[vk] if vk < 7 else 0.0 } }
    for i_1 in 5, k_2 in 8 { block S { spatial vi in 5 = i_1; reduce vk in 8 = k_2
        init { S[vi] = 0.0 }
        S[vi] = S[vi] + P[vi, vk] * Q[vk] } }
}
"""


PEELED = """
program total(A: f32[8, 12], S: f32[8]) {
    for z in 8 { block Z { spatial vi in 8 = z
        S[vi] = 0.0 } }
    for i in 8, k in 7 { block S { spatial vi in 8 = i; reduce vk in 12 = k
        S[vi] = S[vi] + A[vi, vk] } }
    for i_1 in 8, k_1 in 5 { block T { spatial vi in 8 = i_1; reduce vk in 12 = k_1 + 7
        S[vi] = S[vi] + A[vi, vk] } }
}
"""

MOVED_INIT = """
program total(A: f32[8, 12], S: f32[8]) {
    for i in 8 {
        for k in 12 { block S { spatial vi in 8 = i; reduce vk in 12 = k
            init { S[vi] = 0.0 }
            S[vi] = S[vi] + A[vi, vk] } }
        block Z { spatial vi in 8 = i
            S[vi] = 0.0 }
    }
}
"""

MEAN = """
program mean(A: f32[8, 12], M: f32[8]) {
    buffer S: f32[8]
    for i in 8, k in 12 { block S { spatial vi in 8 = i; reduce vk in 12 = k
        init { S[vi] = 0.0 }
        S[vi] = S[vi] + A[vi, vk] } }
    for j in 8 { block M { spatial vj in 8 = j
        M[vj] = S[vj] / 12.0 } }
}
"""

EARLY = """
program mean(A: f32[8, 12], M: f32[8]) {
    buffer S: f32[8]
    for i in 8, k in 12 {
        block S { spatial vi in 8 = i; reduce vk in 12 = k
            init { S[vi] = 0.0 }
            S[vi] = S[vi] + A[vi, vk] }
        block M { spatial vj in 8 = i
            where k == 10
            M[vj] = S[vj] / 12.0 }
    }
}
"""

AT_THE_END = EARLY.replace("k == 10", "k == 11")
ALWAYS = EARLY.replace("            where k == 10\n", "")


def _best(index: str, value: str, position: str, new: str) -> str:
    """The update of an `argmax` of pairs, and where it starts."""
    better = f"not {new} <= {value} and {value} == {value}"
    tie = f"({new} == {value} or {new} != {new}) and {position} < {index}"
    return f"""init {{ {index} = 2147483647; {value} = -inf }}
            {index} = {position} if {better} or {tie} else {index}
            {value} = max({value}, {new})"""


ARGMAX = f"""
program best(A: f32[5, 12], I: i32[5]) {{
    buffer V: f32[5]
    for i in 5, k in 12 {{
        block I @("reducer", "argmax") {{ spatial vi in 5 = i; reduce vk in 12 = k
            {_best("I[vi]", "V[vi]", "i32(vk)", "A[vi, vk]")} }} }}
}}
"""

ARGMAX_PARTS = f"""
program best(A: f32[5, 12], I: i32[5]) {{
    buffer V: f32[5]
    buffer PI: i32[5, 3]
    buffer PV: f32[5, 3]
    for i in 5, h in 3, k in 4 {{
        block P @("reducer", "argmax") {{ spatial vi in 5 = i; spatial vh in 3 = h; reduce vk in 4 = k
            {_best("PI[vi, vh]", "PV[vi, vh]", "i32(vh * 4 + vk)", "A[vi, vh * 4 + vk]")} }} }}
    for i_1 in 5, r in 3 {{
        block I @("reducer", "argmax") {{ spatial vi in 5 = i_1; reduce vr in 3 = r
            {_best("I[vi]", "V[vi]", "PI[vi, vr]", "PV[vi, vr]")} }} }}
}}
"""

IN_PLACE = """
program relu(A: f32[8, 12], S: f32[8]) {
    for i in 8, k in 12 { block S { spatial vi in 8 = i; reduce vk in 12 = k
        init { S[vi] = 0.0 }
        S[vi] = S[vi] + A[vi, vk] } }
    for j in 8 { block R { spatial vj in 8 = j
        S[vj] = max(S[vj], 0.0) } }
}
"""

MIRRORED = """
program mirrored(A: f32[9], Y: f32[12]) {
    buffer E: f32[9]
    for i in 9 { block E { spatial vi in 9 = i
        E[vi] = exp(A[vi]) } }
    for j in 12 { block Y { spatial vj in 12 = j
        Y[vj] = E[min((vj * 3 / 2 + 17) % 18, 17 - (vj * 3 / 2 + 17) % 18)] * 2.0 } }
}
"""

MIRRORED_IN_PARTS = """
program mirrored(A: f32[9], Y: f32[12]) {
    buffer E: f32[9]
    for t in 3 {
        for i in 9 { block E { spatial vi in 9 = i
            E[vi] = exp(A[vi]) } }
        for j in 4 { block Y { spatial vj in 12 = t * 4 + j
            Y[vj] = E[min((vj * 3 / 2 + 17) % 18, 17 - (vj * 3 / 2 + 17) % 18)] * 2.0 } }
    }
}
"""

MIRRORED_BEFORE = MIRRORED_IN_PARTS.replace(
    "for t in 3 {\n        for i in 9 {", "for t in 3 {\n        for i in 0 {"
).replace("* 2.0 } }", "* 2.0 } }\n for k in 9 { block E_2 { spatial vi in 9 = k\n E[vi] = exp(A[vi]) } }")

EQUAL = """
program equal(A: f32[6, 9], S: f32[6]) {
    buffer M: f32[6]
    for i in 6, k in 9 { block M { spatial vi in 6 = i; reduce vk in 9 = k
        init { M[vi] = -inf }
        M[vi] = max(M[vi], A[vi, vk]) } }
    for i_1 in 6, k_1 in 8 { block S { spatial vi in 6 = i_1; reduce vk in 8 = k_1
        init { S[vi] = 0.0 }
        S[vi] = S[vi] + exp(1.0 - M[vi]) } }
}
"""
"""Each term of a sum is the same, and has a maximum in it."""

EQUAL_IN_PARTS = """
program equal(A: f32[6, 9], S: f32[6]) {
    buffer M: f32[6]
    buffer P: f32[6, 2]
    for k in 9, i in 6 { block M { spatial vi in 6 = i; reduce vk in 9 = k
        init { M[vi] = -inf }
        M[vi] = max(M[vi], A[vi, vk]) } }
    for i_1 in 6, h in 2, l in 4 { block P { spatial vi in 6 = i_1; spatial vh in 2 = h; reduce vl in 4 = l
        init { P[vi, vh] = 0.0 }
        P[vi, vh] = P[vi, vh] + exp(1.0 - M[vi]) } }
    for i_2 in 6, h_1 in 2 { block S { spatial vi in 6 = i_2; reduce vh in 2 = h_1
        init { S[vi] = 0.0 }
        S[vi] = S[vi] + P[vi, vh] } }
}
"""

RIGHT = {
    "mirrored": (MIRRORED, MIRRORED_IN_PARTS),
    "argmax": (ARGMAX, ARGMAX.replace("i in 5, k in 12", "k in 12, i in 5")),
    "argmax of parts": (ARGMAX, ARGMAX_PARTS),
    "an update of another kind at the end": (IN_PLACE, IN_PLACE.replace("i in 8, k in 12", "k in 12, i in 8")),
    "rfactor": (SUM, RFACTOR),
    "the other way around": (RFACTOR, SUM),
    "recomputed in overlapping windows": (CHAIN, OVERLAPPING),
    "inlined": (CHAIN, INLINED),
    "rolling buffer": (CHAIN, ROLLING),
    "equal terms with a maximum in them": (EQUAL, EQUAL_IN_PARTS),
    "a sum of equal terms": (ONES, ONES.replace("i in 6, k in 5", "k in 5, i in 6")),
    "open size": (OPEN, OPEN_TILED),
    "padded with zeros": (PADDED, PADDED_TO_8),
    "peeled": (SUM, PEELED),
    "read at the last step": (MEAN, AT_THE_END),
    "stored at every step": (MEAN, ALWAYS),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    assert_valid(*RIGHT[name])


WRONG: dict[str, tuple[str, str, tuple[tuple[str, str], ...], str]] = {
    "argmax of parts, of which one is left out": (ARGMAX, ARGMAX_PARTS, (("r in 3 {", "r in 2 {"),), "a term is missing"),
    "argmax of parts, positions within the part": (
        ARGMAX, ARGMAX_PARTS, (("i32(vh * 4 + vk)", "i32(vk)"),), "a term is missing",
    ),
    "the update of another kind too early": (
        IN_PLACE, IN_PLACE[: IN_PLACE.index("    for j")],
        (("A[vi, vk] } }", "A[vi, vk] }\n block R { spatial vj in 8 = i\n S[vj] = max(S[vj], 0.0) } } }"),), "E080",
    ),
    "partial results left out": (SUM, RFACTOR, (("r in 4 {", "r in 3 {"),), "a term is missing"),
    "partial results twice": (
        SUM, RFACTOR, (("r in 4 {", "r in 8 {"), ("in 4 = r", "in 4 = r / 2")), "a term comes more than once",
    ),
    "partial starts are not neutral": (SUM, RFACTOR, (("R[vi, v1] = 0.0", "R[vi, v1] = 1.0"),), "a term too many"),
    "mirrored, an element too few": (MIRRORED, MIRRORED_IN_PARTS, (("for i in 9", "for i in 8"),), "E0803"),
    "mirrored, written afterwards": (MIRRORED, MIRRORED_BEFORE, (), "E0803"),
    "window too narrow": (CHAIN, OVERLAPPING, (("i in 5", "i in 4"),), "E080"),
    "race on a rolling buffer": (CHAIN, ROLLING, (("for i in 9", "parallel for i in 9"),), "E0802"),
    "rolling buffer too short": (CHAIN, ROLLING, (("f32[3]", "f32[2]"), ("% 3", "% 2")), "E0805"),
    "wrong open guard": (OPEN, OPEN_TILED, (("i1 < N", "i1 < N - 1"),), "with N="),
    "peeled wrongly": (SUM, PEELED, (("k_1 + 7", "k_1 + 6"),), "E0806"),
    "cleared at the end": (SUM, MOVED_INIT, (), "a term is missing"),
    "read too early": (MEAN, EARLY, (), "a term is missing"),
    "padded with ones": (PADDED, PADDED_TO_8, (("else 0.0", "else 1.0"),), "too many"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    original, scheduled, changes, said = WRONG[name]
    assert_reported(original, edited(scheduled, *changes), Invalid, said)


UNDECIDED = {
    "equal terms, one too few": (EQUAL, EQUAL_IN_PARTS.replace("l in 4", "l in 3"), "told apart"),
    "equal terms of which some have another maximum": (
        EQUAL, EQUAL_IN_PARTS.replace("exp(1.0 - M[vi])", "exp(1.0 - (M[vi] if vl < 3 else M[5 - vi]))"),
        "matched by a guess",
    ),
    "equal terms whose maximum leaves out an element": (
        EQUAL, EQUAL_IN_PARTS.replace("k in 9,", "k in 8,"), "matched by a guess",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDECIDED)
def test_undecided(name: str) -> None:
    original, scheduled, said = UNDECIDED[name]
    assert_reported(original, scheduled, Unproved, said)
