"""The underlined part of a refusal, and the step, module and draws that it names."""

from __future__ import annotations

import string

import pytest

from tensorc_dsl.interp.space import Space
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.step import ScheduleRefusal
from tests.interp.spaces import rng, schedule, space


def refusal_of(s: Space) -> ScheduleRefusal:
    with pytest.raises(ScheduleRefusal) as caught:
        s.sample(rng())
    return caught.value


@pytest.mark.parametrize(
    ("step", "where"),
    [
        ("split(i, [5, _])", "[5, _]"),
        ("split(factors=[5, _], loop=i)", "[5, _]"),
        ("split(loop=gone, factors=[5, _])", "gone"),
        ("fuse(i, gone)", "gone"),
        ("reorder([i, gone], k)", "gone"),
        ("reorder(concat([i], [gone]), k)", "concat([i], [gone])"),
        ("reorder(i, k, i)", "i"),
        ("parallel(k)", "k"),
        ('annotate(gone, "x", 1)', "gone"),
        ("reorder(i, j_1)", "reorder(i, j_1)"),
    ],
)
def test_the_argument_at_fault_is_underlined(step: str, where: str):
    s = schedule(
        "let [i, gone, k] = C.loops", "let [j, j_1] = split(gone, [_, 4])", "parallel(j)", step.replace("\n", "")
    )
    refusal = refusal_of(s)
    assert refusal.span is not None
    assert refusal.span.text == where


def test_of_a_loop_named_twice_the_second_is_underlined():
    refusal = refusal_of(schedule("let [i, j, k] = C.loops", "reorder(i, k, i)"))
    assert refusal.span is not None
    assert refusal.span.source.text[: refusal.span.start].endswith("reorder(i, k, ")


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_what_a_refusal_underlines_is_a_parameter_or_a_fact(name: str):
    for r in PRIMITIVES[name].refusals:
        fields = {f for text in (r.message, r.help) for _, f, _, _ in string.Formatter().parse(text)}
        assert not r.at or r.at in fields | set(PRIMITIVES[name].signature.parameters), (r.code, r.at)


MODULES = """
module inner(b: Block) { parallel(b.loops[-1]) }
module cut(b: Block) {
    let [i, j, k] = b.loops
    let factors ~ sample_perfect_tile(i, parts=2)
    let n ~ sample_categorical([5])
    split(i, factors)
    unroll(j)
    CALL
}
space s for llvm { cut }
"""


@pytest.mark.parametrize(
    ("call", "origin"),
    [
        ("split(k, [_, n])", "step 3 of cut, where `n` drew 5"),
        ("split(k, [_, n * 2 + factors[0] * 0])", "step 3 of cut, where `factors` drew [1, 32] and `n` drew 5"),
        ("unroll(j)", "step 3 of cut"),
        ("inner(b)", "step 1 of inner"),
        ("unroll(k); parallel(b.loops[0]); inner(b)", "step 1 of inner"),
        ("annotate(b, \"x\", n); unroll(j)", "step 4 of cut"),
    ],
)  # fmt: skip
def test_a_step_of_a_module_says_which_one_it_was(call: str, origin: str):
    (refused,) = space(MODULES.replace("CALL", call)).sample(rng()).refused
    assert refused.refusal.origin == origin


def test_a_step_of_a_schedule_says_what_it_drew():
    lines = ("let [i, j, k] = C.loops", "let n ~ sample_categorical([5])", "split(k, [_, n])")
    assert refusal_of(schedule(*lines)).origin == "`n` drew 5"
    assert refusal_of(schedule("let [i, j, k] = C.loops", "split(k, [_, 5])")).origin == ""


def test_a_draw_is_no_function_of_its_name():
    lines = ("let min ~ sample_categorical([3])", "let n ~ sample_categorical([5])", "split(k, [_, min(n, 9)])")
    assert refusal_of(schedule("let [i, j, k] = C.loops", *lines)).origin == "`n` drew 5"


@pytest.mark.parametrize("name", ["b.name", "b.iters[0]", "b.loops[0].name", "b.writes[0].name", "root.name"])
def test_a_name_of_the_program_is_a_mere_string(name: str):
    trace = space(
        "module m(b: Block) { let x ~ sample_categorical([" + name + ']); annotate(b, "n", ' + name + ") }\n"
        "space s for llvm { m }"
    ).sample(rng())
    assert {type(d) for d in trace.decisions.values()} == {str}
