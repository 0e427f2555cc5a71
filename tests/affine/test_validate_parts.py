"""Open sizes in a number of parts: products of a loop and an open size are told exactly, in proofs and in distances."""

from __future__ import annotations

from itertools import product

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.proof.equivalence.loop_encodings import parts_as_loops
from tensorc_dsl.proof.equivalence.validate import Invalid, Unproved, Valid, validate
from tensorc_dsl.proof.sets.accesses import accesses, written
from tensorc_dsl.proof.sets.dependence import distances
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tests.affine.test_simplify import value


def program(text: str) -> Program:
    return parse_program(Source("parts.tsched", text))


def copy(parts: int, size: str, where: str = "where x * ({size}) + y < N", extent: str = "{size}") -> Program:
    return program(
        f"""program copy(A: i32[N], B: i32[N]) where N in 1..40 {{
            for x in {parts}, y in {extent.format(size=size)} {{
                block B {{
                    spatial v in N = x * ({size}) + y
                    {where.format(size=size)}
                    B[v] = A[v]
                }}
            }}
        }}"""
    )


WHOLE = program(
    """program copy(A: i32[N], B: i32[N]) where N in 1..40 {
        for i in N { block B { spatial v in N = i; B[v] = A[v] } }
    }"""
)


@pytest.mark.parametrize("parts", [1, 2, 5, 16])
def test_parts_of_all_elements_are_proved(parts: int) -> None:
    assert validate(WHOLE, copy(parts, f"(N + {parts - 1}) / {parts}")) == Valid()


def test_parts_that_leave_elements_out_are_refuted() -> None:
    assert isinstance(validate(WHOLE, copy(2, "N / 2")), Invalid)


def test_a_part_that_is_longer_than_the_size_of_a_part_is_proved_too() -> None:
    assert validate(WHOLE, copy(2, "(N + 1) / 2", extent="{size} + 1")) == Valid()


def test_more_parts_than_are_written_out_are_unproved() -> None:
    assert isinstance(validate(WHOLE, copy(17, "(N + 16) / 17")), Unproved)


SUMS = program(
    """program sums(A: i32[K], S: i32[1]) where K in 1..20 {
        for i in 1, k in K { block S { spatial vi in 1 = i; reduce vk in K = k; init { S[vi] = 0 }; S[vi] = S[vi] + A[vk] } }
    }"""
)
PARTS = """program sums(A: i32[K], S: i32[1]) where K in 1..20 {{
    buffer P: i32[2, 1]
    for x in 2, i in 1, y in {extent} {{
        block P {{
            spatial vx in 2 = x
            spatial vi in 1 = i
            reduce vy in {extent} = y
            where x * ((K + 1) / 2) + y < K
            init {{ P[vx, vi] = 0 }}
            P[vx, vi] = P[vx, vi] + A[vx * ((K + 1) / 2) + vy]
        }}
    }}
    for j in 1, z in 2 {{
        block S {{
            spatial vi in 1 = j
            reduce vz in 2 = z
            where z * ((K + 1) / 2) < K
            init {{ S[vi] = 0 }}
            S[vi] = S[vi] + P[vz, vi]
        }}
    }}
}}"""


def test_sums_of_parts_are_proved() -> None:
    assert validate(SUMS, program(PARTS.format(extent="(K + 1) / 2"))) == Valid()


def test_sums_of_parts_that_overlap_are_not() -> None:
    assert isinstance(validate(SUMS, program(PARTS.format(extent="(K + 1) / 2 + 1"))), Invalid | Unproved)


@pytest.mark.parametrize("size", range(1, 12))
def test_a_program_with_parts_as_loops_computes_the_same(size: int) -> None:
    for p in (copy(3, "(N + 2) / 3"), copy(5, "(N + 4) / 5")):
        changed = parts_as_loops(p)
        assert changed != p
        inputs = make_inputs(bind(p, {"N": size}), size)
        want, got = (interpret(bind(x, {"N": size}), inputs)["B"] for x in (p, changed))
        assert (want == got).all()


FORMS = (
    ("for x in 4, y in (N + 3) / 4", "x * ((N + 3) / 4) + y", True),
    ("for y in (N + 3) / 4, x in 4", "((N + 3) / 4) * x + y", True),
    ("for f in 8, y in (N + 3) / 4", "f / 2 * ((N + 3) / 4) + y", False),
    ("for x in 4, y in (N + 3) / 4 + 1", "x * ((N + 3) / 4) + y", False),
    ("for x in 4, y in N / 4", "x * ((N + 3) / 4) + 2 * y", False),
    ("for x in 4, y in (N + 3) / 4, z in 2", "x * ((N + 3) / 4) + y + z", False),
)


@pytest.mark.parametrize(("loops", "subscript", "apart"), FORMS)
def test_distances_contain_all_between_accesses_of_one_element(loops: str, subscript: str, apart: bool) -> None:
    p = program(
        f"""program p(C: f32[N], A: f32[1000]) where N in 1..9 {{
            {loops} {{ block A {{ spatial v in 1000 = {subscript}; A[v] = 1.0 }} }}
        }}"""
    )
    (a,) = accesses((), p.body, written(p.body))
    found = distances(a, a, 0)
    assert found is not None
    assert (found == ((0, 0),) * len(a.loops)) is apart
    for size in range(1, 10):
        body = bind(p, {"N": size}).body
        (b,) = accesses((), body, written(body))
        names = [x.var for x in b.loops]
        points = list(product(*(range(value(x.extent, {})) for x in b.loops)))
        at = {q: value(b.indices[0], dict(zip(names, q, strict=True))) for q in points}
        for q, r in product(points, points):
            if at[q] == at[r]:
                inside = zip(q, r, found, strict=True)
                assert all(
                    (low is None or low <= j - i) and (high is None or j - i <= high) for i, j, (low, high) in inside
                )
