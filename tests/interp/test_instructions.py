"""Rules query the requirements and operands of an instruction instead of repeating them."""

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file, load_source
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import ScheduleRefusal
from tests.interp.spaces import rng

HEAD = """
use std.intrinsics.x86
use std.intrinsics.cuda.{mma_m16n8k16_f16}
compute bytes(A: u8[M, K], B: i8[K, N]) -> C: i32[M, N] { C[i, j] = sum[k] i32(A[i, k]) * i32(B[k, j]) }
compute floats(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }
module say(b: Block, what: bool, name: str) { annotate(b, name, what) }
"""
VNNI = Target(features="+avx512vnni")


def annotations(steps: str, target: Target = VNNI, compute: str = "bytes") -> str:
    text = f"{HEAD}schedule s for {compute} {{\n{steps}\n}}\ntask t = {compute}(M=4, N=32, K=8) with s\n"
    return task_space(load_source(Source("t.tsched", text)), "t", target).sample(rng(0)).text


@pytest.mark.parametrize(
    ("target", "compute", "runs", "fits"),
    [
        (VNNI, "bytes", "true", "true"),
        (VNNI, "floats", "true", "false"),
        (Target(), "bytes", "false", "false"),
        (Target(features="-avx512vnni"), "bytes", "false", "false"),
        (Target(kind="cuda", features="+avx512vnni"), "bytes", "false", "false"),
    ],
)
def test_an_instruction_runs_where_its_features_are_and_fits_what_it_computes(
    target: Target, compute: str, runs: str, fits: str
) -> None:
    text = annotations(
        'annotate(C, "runs", vnni_dot_16x4.runs); annotate(C, "fits", vnni_dot_16x4.fits(C))', target, compute
    )
    assert f'"runs", {runs}' in text
    assert f'"fits", {fits}' in text


def test_a_target_must_have_all_that_an_instruction_requires() -> None:
    item = (
        "intrinsic both desc (A: f32[8], B: f32[8]) { B[i] = A[i] } "
        'lower llvm requires "fma", "avx2" call "<8 x float> llvm.floor.v8f32(<8 x float> A)"\n'
    )
    for features, expected in (("+fma", "false"), ("+avx2,+fma", "true")):
        text = f'{item}{HEAD}schedule s for bytes {{ annotate(C, "runs", both.runs) }}\n'
        text += "task t = bytes(M=4, N=4, K=4) with s\n"
        space = task_space(load_source(Source("t.tsched", text)), "t", Target(features=features))
        assert f'"runs", {expected}' in space.sample(rng(0)).text


def test_its_mappings_are_those_that_can_be_used() -> None:
    steps = """
    let all = C.tensor_mappings(vnni_dot_16x4)
    annotate(C, "found", vnni_dot_16x4.mappings(C)[0])
    annotate(C, "same", vnni_dot_16x4.mappings(C) == (for m in all if not m.contains("*") { yield m }))
    """
    text = annotations(steps)
    assert '"found", "i=vj, k=vk"' in text or '"found", "k=vk, i=vj"' in text
    assert '"same", true' in text


def test_shapes_and_scopes_are_those_of_the_operands() -> None:
    text = annotations(
        'annotate(C, "shapes", mma_m16n8k16_f16.shapes == [[16, 16], [16, 8], [16, 8]]); '
        'annotate(C, "scopes", mma_m16n8k16_f16.scopes == ["mma.a", "mma.b", "mma.c"])'
    )
    assert '"shapes", true' in text
    assert '"scopes", true' in text


@pytest.mark.parametrize("given", ["vnni_dot_16x4", '"vnni_dot_16x4"', "picked"])
def test_a_parameter_takes_an_instruction_or_its_name(given: str) -> None:
    text = (
        f"{HEAD}module use_it(b: Block, dot: Instruction)\nwhen dot.fits(b)\n{{\n"
        "    let [_, j, k] = b.loops\n    let [_, j1] = split(j, [_, 16]); let [k0, k1] = split(k, [_, 4])\n"
        "    reorder(k0, j1, k1)\n    decompose_reduction(b, b.loops[0])\n    tensorize(j1, dot)\n}\n"
        "schedule s for bytes {\n    let picked ~ sample_categorical([vnni_dot_16x4])\n"
        "    transform_layout(cache_read(C, B), (k, j) -> (j / 16, k / 4, j % 16, k % 4))\n"
        f"    use_it(C, {given})\n}}\ntask t = bytes(M=4, N=32, K=8) with s\n"
    )
    found = task_space(load_source(Source("t.tsched", text)), "t", VNNI).sample(rng(0)).text
    assert ("tensorize(j_1, picked)" if given == "picked" else 'tensorize(j_1, "vnni_dot_16x4")') in found


def test_names_of_instructions_are_still_strings() -> None:
    """Modules of before have `instruction: str` parameters, and compare them."""
    text = annotations('annotate(C, "is", vnni_dot_16x4); annotate(C, "same", vnni_dot_16x4 == "vnni_dot_16x4")')
    assert '"is", "vnni_dot_16x4"' in text
    assert '"same", true' in text


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    text = (
        f"{HEAD}module ask(b: Block, dot: Instruction)\nwhen dot.runs\n{{ unroll(b.loops[0]) }}\n"
        'schedule s for bytes { ask(C, "no_dot") }\ntask t = bytes(M=4, N=4, K=4) with s\n'
    )
    with pytest.raises(ScheduleRefusal, match="E0680: there is no instruction `no_dot`"):
        task_space(load_source(Source("t.tsched", text)), "t", VNNI).sample(rng(0))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("if dot.fits { unroll(b.loops[0]) }", "E0226"),
        ("if dot.fits(3) { unroll(b.loops[0]) }", "E0240"),
        ("if dot.runs(b) { unroll(b.loops[0]) }", "E0226"),
        ("if dot.lanes > 3 { unroll(b.loops[0]) }", "E0226"),
        ("unroll(dot)", "E0240"),
    ],
)
def test_wrong_questions_are_told(body: str, code: str) -> None:
    found = load_file(Source("t.tsched", f"module m(b: Block, dot: Instruction) {{ {body} }}")).errors
    assert [d.code for d in found] == [code]


def test_the_old_call_with_the_features_says_what_is_wrong() -> None:
    text = (
        "use std.cpu.tensorize\nuse std.intrinsics.x86.{vnni_dot_16x4}\n"
        'space s for llvm { multi_level_tiling_with_intrin(vnni_dot_16x4, "avx512vnni") }\n'
    )
    with pytest.raises(TschedError, match="takes an int for `max_unrolled`; this is a string"):
        load_source(Source("t.tsched", text))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("<8 x i32> add(<8 x i32> A, <8 x i32> -3)", []),
        ("<8 x i32> add(<8 x i32> llvm.abs.v8i32(<8 x i32> A, i1 0), <8 x i32> A)", []),
        ("<8 x i32> add(<8 x i32> llvm.abs.v8i32(<8 x i32> A, i1 0))", ["E0673"]),
        ("<8 x i32> add(<8 x i32> A, <8 x i64> A)", ["E0673"]),
        ("<8 x i32> add(<8 x i32> A, <8 x i32> splat(i32 3))", []),
        ("<8 x i32> add(<8 x i32> A, <8 x i32> splat(i16 3))", ["E0673"]),
        ("<8 x i32> udiv(<8 x i32> A, <8 x i32> A)", ["E0673"]),
        ("<8 x i32> add(<8 x i32> A, <8 x i32> llvm.abs)", ["E0673"]),
        ("<8 x i32> add(<8 x i32> A, <8 x i32> A) + 1", ["E0673"]),
        ("<8 x i32> A", ["E0673"]),
        ("<8 x i32> add(<8 x i32> A, <8 x i32> Q)", ["E0673"]),
        ("<8 x i32> add(<8 x i32> 1, <8 x i32> 2)", ["E0673"]),
    ],
)
def test_calls_have_calls_as_arguments(code: str, found: list[str]) -> None:
    item = f'intrinsic x desc (A: i32[8], B: i32[8]) {{ B[i] = A[i] }} lower llvm call "{code}"\n'
    assert [d.code for d in load_file(Source("t.tsched", item)).diagnostics] == found
