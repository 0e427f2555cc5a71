"""`...` in index maps: it stands for the indices without a name, whatever the rank; a trace spells them out."""

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tests.interp.spaces import rng

RANKS = ["N", "K, N", "G, K, N", "H, G, K, N"]


def expand(steps: str, shape: str = "G, K, N") -> Trace:
    """What becomes of the steps in a schedule of a copy, over a buffer of that shape."""
    indices = shape.lower()
    text = (
        f"compute copy(A: f32[{shape}]) -> B: f32[{shape}] {{ B[{indices}] = A[{indices}] }}\n"
        f"schedule s for copy {{\n{steps}\n}}\ntask t = copy(H=2, G=3, K=4, N=8) with s\n"
    )
    unused = [f"{n}=" for n in "HGKN" if n not in shape]
    for start in unused:
        text = text.replace(f"{start}{'2348'['HGKN'.index(start[0])]}, ", "").replace(f", {start}8", "")
    file = load_source(Source("t.tsched", text))
    assert not file.diagnostics, file.diagnostics
    return task_space(file, "t", Target()).sample(rng(0))


@pytest.mark.parametrize(
    ("shape", "spelled"),
    [
        ("N", "(j) -> (j / 4, j % 4)"),
        ("K, N", "(a, j) -> (j / 4, a, j % 4)"),
        ("H, G, K, N", "(a, b, c, j) -> (j / 4, a, b, c, j % 4)"),
    ],
)
def test_a_trace_spells_the_rest_out(shape: str, spelled: str) -> None:
    found = expand("let p = cache_read(B, A)\ntransform_layout(p, (..., j) -> (j / 4, ..., j % 4))", shape)
    assert f"transform_layout(A_global, {spelled})" in found.text
    assert expand("\n".join(found.text.splitlines()[1:-1]), shape).program == found.program


@pytest.mark.parametrize(
    ("layout", "spelled"),
    [
        ("(..., k, j) -> (..., j, k)", "(a, k, j) -> (a, j, k)"),
        ("(g, ..., j) -> (..., j, g)", "(g, a, j) -> (a, j, g)"),
        ("(g, ...) -> (..., g)", "(g, a, b) -> (a, b, g)"),
        ("(...) -> (...)", "(a, b, c) -> (a, b, c)"),
        ("(a, ...) -> (..., a)", "(a, b, c) -> (b, c, a)"),
        ("(g, k, j, ...) -> (..., j, k, g)", "(g, k, j) -> (j, k, g)"),
    ],
)
def test_it_stands_anywhere_for_any_number_of_indices(layout: str, spelled: str) -> None:
    by_rest = expand(f"let p = cache_read(B, A)\ntransform_layout(p, {layout})")
    assert by_rest.text == expand(f"let p = cache_read(B, A)\ntransform_layout(p, {spelled})").text


def test_iterators_of_blocks_have_a_rest_too() -> None:
    found = expand("transform_block_layout(B, (..., j) -> (j, ...))")
    assert "transform_block_layout(B, (a, b, j) -> (j, a, b))" in found.text
    copied = expand("reindex_cache_read(B, A, (..., j) -> (j, ...))")
    assert "reindex_cache_read(B, A, (a, b, j) -> (j, a, b))" in copied.text


def test_a_block_stands_for_the_buffer_that_it_writes() -> None:
    """The rank is that of the buffer: `C` has two dimensions, its block three iterators."""
    text = (
        'use std.ops.{matmul}\nschedule s for matmul {\n    cache_write(C, "local")\n'
        "    transform_layout(C, (..., j) -> (j, ...), reorder_block=false)\n}\n"
        "task t = matmul(M=4, N=4, K=4) with s\n"
    )
    found = task_space(load_source(Source("t.tsched", text)), "t", Target()).sample(rng(0))
    assert "transform_layout(C_local, (a, j) -> (j, a)" in found.text or "(C, (a, j)" in found.text


def test_drawn_sizes_stay_in_the_map_by_name() -> None:
    found = expand(
        "let a ~ sample_categorical([2, 4]) := 2\nlet p = cache_read(B, A)\n"
        "transform_layout(p, (..., j) -> (j / a, ..., j % a))"
    )
    assert "(b, c, j) -> (j / a, b, c, j % a)" in found.text


def test_the_rest_is_not_called_as_a_draw_that_has_another_name_here() -> None:
    text = (
        "module cut(x: Buffer, n: int) { transform_layout(x, (..., j) -> (j / n, ..., j % n)) }\n"
        "compute copy(A: f32[K, N]) -> B: f32[K, N] { B[k, n] = A[k, n] }\n"
        "schedule s for copy {\n    let a ~ sample_categorical([2])\n    cut(cache_read(B, A), a)\n}\n"
        "task t = copy(K=4, N=8) with s\n"
    )
    found = task_space(load_source(Source("t.tsched", text)), "t", Target()).sample(rng(0)).text
    assert "(b, j) -> (j / a, b, j % a)" in found


def test_a_map_can_be_named_and_used_at_two_ranks() -> None:
    text = (
        "compute two(A: f32[K, N], D: f32[G, K, N]) -> B: f32[G, K, N] { B[g, k, n] = A[k, n] * D[g, k, n] }\n"
        "schedule s for two {\n    let turned = (..., k, j) -> (..., j, k)\n"
        "    transform_layout(cache_read(B, A), turned)\n    transform_layout(cache_read(B, D), turned)\n}\n"
        "task t = two(G=2, K=4, N=8) with s\n"
    )
    found = task_space(load_source(Source("t.tsched", text)), "t", Target()).sample(rng(0)).text
    assert "(k, j) -> (j, k)" in found
    assert "(a, k, j) -> (a, j, k)" in found


@pytest.mark.parametrize("shape", RANKS[:1])
def test_a_buffer_with_fewer_indices_than_names_is_refused(shape: str) -> None:
    with pytest.raises(ScheduleRefusal, match=r"it takes \(k, j\), the buffer has 1 indices") as e:
        expand("let p = cache_read(B, A)\ntransform_layout(p, (..., k, j) -> (..., j, k))", shape)
    assert e.value.span is not None
    assert e.value.span.text == "(..., k, j) -> (..., j, k)"


@pytest.mark.parametrize(
    ("layout", "code"),
    [("(..., j) -> (..., k)", "E0220"), ("(..., j, j) -> (..., j)", "E0238"), ("(..., j) -> (..., target)", "E0528")],
)
def test_what_is_wrong_with_other_maps_is_wrong_with_these(layout: str, code: str) -> None:
    with pytest.raises((TschedError, AssertionError), match=code):
        expand(f"let p = cache_read(B, A)\ntransform_layout(p, {layout})")


def test_a_map_of_any_rank_is_no_value_of_an_annotation() -> None:
    with pytest.raises((TschedError, AssertionError), match="an index map"):
        expand('annotate(B, "note", (..., j) -> (j, ...))')
