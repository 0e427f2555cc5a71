"""From computes to programs: structure, names, ranges, types, guards."""

from __future__ import annotations

import pytest

from tensorc_dsl.elaborate.compute import check, elaborate
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import blocks
from tests.compute.native import everywhere
from tests.compute.texts import build, checked, compute, made, std


def body(text: str, **bindings: int | str) -> list[str]:
    """The lines of the program that store something outside `init`."""
    lines = format_program(build(text, **bindings)).splitlines()
    return [
        line.strip() for line in lines if " = " in line and line.split()[0] not in ("init", "spatial", "reduce", "scan")
    ]


def test_matmul_is_one_nest_over_one_block() -> None:
    assert format_program(made(std("matmul"), M=3, N=5, K=7)) == (
        "program matmul(A: f32[3, 7], B: f32[7, 5], C: f32[3, 5]) {\n"
        "    for i in 3, j in 5, k in 7 {\n"
        "        block C {\n"
        "            spatial vi in 3 = i\n"
        "            spatial vj in 5 = j\n"
        "            reduce vk in 7 = k\n"
        "            init { C[vi, vj] = 0.0 }\n"
        "            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n"
        "        }\n"
        "    }\n"
        "}\n"
    )


def test_the_name_can_be_given() -> None:
    assert elaborate(std("matmul"), {"M": 1, "N": 1, "K": 1}, "mm").name == "mm"


def test_loops_of_later_stages_get_names_of_their_own() -> None:
    text = format_program(made(std("softmax"), M=2, N=3))
    for header in ("for i in 2, j in 3", "for i_1 in 2, j_1 in 3", "for i_2 in 2, j_2 in 3", "for i_3 in 2, j_3 in 3"):
        assert header in text
    assert "init { m[vi] = -inf }" in text


def test_iterators_do_not_take_the_names_of_loops_or_buffers() -> None:
    text = format_program(build("compute f(v: f32[M]) -> C: f32[M, M] { C[i, vi] = v[i] + v[vi] }", M=2))
    assert "spatial vi_1 in 2 = i\n" in text
    assert "spatial vvi in 2 = vi\n" in text


def test_a_plain_convolution_is_affine_and_unguarded() -> None:
    sizes = {"N": 1, "H": 5, "W": 5, "CI": 4, "CO": 8, "KH": 3, "KW": 3}
    text = format_program(made(std("conv2d"), **sizes))
    assert "P[vn, vh, vw, vc] = X[vn, vh, vw, vc]\n" in text
    assert "P[vn, vkh + voh, vkw + vow, vci] * F[vkh, vkw, vci, vco]" in text
    assert "if" not in text


def test_padding_strides_and_groups_appear_only_where_asked_for() -> None:
    sizes = {"N": 1, "H": 6, "W": 6, "CI": 4, "CO": 8, "KH": 3, "KW": 3}
    text = format_program(made(std("conv2d"), **sizes, pad=1, stride=2, groups=2))
    assert "X[vn, vh - 1, vw - 1, vc] if vh >= 1 and vh < 7 and (vw >= 1 and vw < 7) else 0.0" in text
    assert "vco / 4 * 2 + vci" in text
    assert made(std("conv2d"), **sizes, pad=1, stride=2).params[2].shape[1].value == 3  # type: ignore[union-attr]


def test_dtype_attributes_and_no_op_casts() -> None:
    sizes = {"N": 1, "H": 3, "W": 3, "CI": 1, "CO": 1, "KH": 1, "KW": 1}
    assert "f32(" not in format_program(made(std("conv2d"), **sizes))
    text = format_program(made(std("conv2d"), **sizes, T="i8", Acc="i32"))
    assert "i32(P[" in text and "Y: i32[" in text and "init { Y[vn, voh, vow, vco] = 0 }" in text


@pytest.mark.parametrize("name", ["matmul", "softmax", "conv2d"])
def test_the_library_is_right_for_all_sizes(name: str) -> None:
    assert check(std(name)) == []


def test_literals_adapt_and_indices_convert() -> None:
    assert body("compute f(A: f32[M]) -> C: f32[M] { C[i] = (1/2) * A[i] + f32(i) + f32(M) }", M=3) == [
        "C[vi] = 1.0 / 2.0 * A[vi] + f32(vi) + 3.0"
    ]
    assert body("compute f(A: i16[M]) -> C: i16[M] { C[i] = -A[i] / 3 + max(A[i], -2) }", M=3) == [
        "C[vi] = (0 - A[vi]) / 3 + max(A[vi], -2)"
    ]


def test_float_attributes_are_literals_and_infinity_has_a_name() -> None:
    text = "compute f(A: f32[M]; eps: float = 1e-5) -> C: f32[M] { C[i] = A[i] + eps if A[i] < inf else -inf }"
    assert body(text, M=3) == ["C[vi] = A[vi] + 1e-05 if A[vi] < inf else -inf"]


def test_chained_comparisons_and_conditions_decided_by_ranges() -> None:
    text = "compute f(A: f32[M]) -> C: f32[M] {{ C[i] = A[i - 1] if {} else A[i] }}"
    assert body(text.format("1 <= i < M"), M=5) == ["C[vi] = A[vi - 1] if vi >= 1 else A[vi]"]
    assert body(text.format("i < 0"), M=5) == ["C[vi] = A[vi]"]  # the branch that never runs needs no bounds
    assert body(text.format("not (i == 0)"), M=5) == ["C[vi] = A[vi - 1] if vi != 0 else A[vi]"]


def test_reducers_start_from_their_identities() -> None:
    def init(reducer: str, dtype: str) -> float | int | bool:
        program = build(f"compute f(A: {dtype}[M]) -> C: {dtype} {{ C = {reducer}[i] A[i] }}", M=4)
        value = blocks(program)[0].init[0].value
        return value.value  # type: ignore[union-attr]

    assert (init("max", "f32"), init("min", "f64")) == (float("-inf"), float("inf"))
    assert (init("max", "i8"), init("min", "i8"), init("max", "u8"), init("min", "u16")) == (-128, 127, 0, 65535)
    assert (init("sum", "f32"), init("prod", "i32")) == (0.0, 1)
    assert (init("any", "bool"), init("all", "bool")) == (False, True)


def test_nested_reductions_become_stages_over_what_they_depend_on() -> None:
    text = "compute f(A: f32[M, N]) -> C: f32[M, N] { C[i, j] = exp(A[i, j]) / sum[k] exp(A[i, k]) * max[l] A[l, 0] }"
    program = build(text, M=2, N=3)
    shapes = {b.name: [constant(e) for e in b.shape] for b in program.buffers}
    assert shapes == {"sum_k": [2], "max_l": []}
    assert [b.name for b in blocks(program)] == ["max_l", "sum_k", "C"]


def test_a_nested_reduction_may_read_at_an_index_of_one_value() -> None:
    text = """compute f(A: f32[M, N], B: f32[N]) -> Y: i32[M] {
        Y[i] = i32(argmin[j] (0.5 if A[i, j] < 0.25 else B[j]))
    }"""
    for m, n in ((1, 1), (1, 3), (2, 1)):
        everywhere(build(text, M=m, N=n))


def test_a_reduction_below_a_conversion_keeps_its_own_type() -> None:
    text = "compute f(A: i8[M]) -> C: f32 { C = f32(sum[k] i32(A[k])) }"
    assert body(text, M=3) == ["sum_k = sum_k + i32(A[vk])", "C = f32(sum_k)"]


def test_an_empty_reduction_is_its_identity() -> None:
    assert body("compute f(A: f32[M, K]) -> C: f32[M] { C[i] = max[k] A[i, k] }", M=3, K=0) == ["C[vi] = -inf"]


def test_huge_sizes_are_quick_or_refused() -> None:
    build("compute f(A: f32[M]) -> C: f32[M] { C[i] = A[M - 1 - i] if i % 3 != 1 else A[i / 2] }", M=2**60)
    build("compute f(A: f32[M, N]) -> C: f32[M, N] { C[i, j] = A[i, j] }", M=2**60, N=0)


def test_checks_before_binding_hold_for_all_sizes() -> None:
    (error,) = checked("compute f(A: f32[M]) -> C: f32[N] { C[i] = A[i + 1] }")
    assert "subscript 1 of `A` can be 1, but the dimension is 0" in error
    assert checked("compute f(A: f32[M]; s: int) -> C: f32[O] where O = M / s { C[i] = A[i * s] }") == []
    assert len(checked("compute f(A: f32[M, K], B: f32[L]) -> C: f32[M] { C[i] = sum[k] A[i, k] * B[k] }")) == 1
    assert check(compute("compute f(A: T[M]; T: dtype) -> C: T[M] { C[i] = A[i] * 2 }")) == []


def test_an_output_can_be_read_by_a_later_stage() -> None:
    text = "compute f(A: f32[M]) -> B: f32[M], C: f32[M] { B[i] = A[i] + 1; C[i] = B[i] * 2 }"
    assert [b.name for b in build(text, M=2).outputs] == ["B", "C"]


def test_scalar_parameters() -> None:
    text = "compute f(A: f32[M], alpha: f32) -> C: f32[M] { C[i] = A[i] * alpha }"
    assert body(text, M=2) == ["C[vi] = A[vi] * alpha"]


def test_annotations_of_a_stage_stand_on_its_block() -> None:
    value = "argmax[j] X[i, j] + (sum[k] X[i, k])"
    inner = f'compute rows(X: f32[M, N]) -> Y: i64[M] {{ Y[i] @("b", true) @("a", 1) = {value} }}'
    outer = 'compute f(X: f32[M, N]) -> Z: i64[M] { let W = rows(X)\n Z[i] @("c", "x") = W[i] + W[i] }'
    text = format_program(build(f"{inner}\n{outer}", M=2, N=3))
    assert 'block W @("a", 1) @("b", true) @("reducer", "argmax") {' in text
    assert 'block Z @("c", "x") {' in text
    assert text.count("@(") == 4  # the sum inside is a stage of its own, without them
