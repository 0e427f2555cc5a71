"""Expansion: draws, pins, modules, `either`; a trace expands to itself; errors have their places."""

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import prior
from tests.interp.spaces import again, rng, space

TILED = """
module tile(b: Block, parts: int = 2, limit: int = 16)
when b.has_reuse
{
    let kinds = for l in b.loops { yield l.kind }
    let tiles = for l in b.loops {
        let factors ~ sample_perfect_tile(l, parts=parts, max_innermost=limit)
        yield split(l, factors)
    }
    reorder(interleave("SSRR", tiles, kinds))
    either(3) { vectorize(b.spatial_loops[-1]) } or { unroll(b.loops[-1]) }
}

module steps(p: Program, choices = [0, 16, 64]) {
    let step ~ sample_categorical(choices)
    let vec ~ sample_categorical({4: 0.25, 8: 0.75})
    annotate(p.root, "unroll.max_step", step * vec + 1)
}

space cpu for llvm {
    tile(limit=8)
    steps
}
"""


def test_a_space_expands_its_rules_and_lists_every_draw():
    trace = space(TILED).sample(rng(3))
    assert [d.name for d in trace.draws] == ["factors", "factors_1", "factors_2", "branch", "step", "vec"]
    verify(trace.program)
    assert trace.text.startswith("schedule cpu for matmul {\n")
    assert ":=" in trace.text


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_trace():
    s = space(TILED)
    assert s.sample(rng(5)).text == s.sample(rng(5)).text
    assert len({s.sample(rng(n)).text for n in range(20)}) > 10


@pytest.mark.parametrize("n", range(12))
def test_a_trace_expands_to_itself(n: int):
    s = space(TILED)
    trace = s.sample(rng(n))
    back = again(s, trace.text)()
    assert back.text == trace.text
    assert back.program == trace.program
    assert all(d.pinned for d in back.draws)
    assert back.open_draws == ()


def test_deleting_a_pin_reopens_what_followed_from_the_draw():
    s = space("""
schedule blocked for matmul {
    let [i, j, k] = C.loops
    let nr ~ sample_categorical([4, 8])
    let [j0, j1] = split(j, [_, nr * 2])
    annotate(root, "x", nr + 1)
}""")
    trace = next(t for n in range(9) if (t := s.sample(rng(n))).decisions["nr"] == 4)
    assert "split(j, [_, nr * 2])" in trace.text
    opened = again(s, trace.text.replace(" := 4", ""))
    assert "[_, 16]" not in trace.text
    other = opened.expand(lambda _site: 8)
    assert "in 16" in format_program(other.program)


def test_a_pin_decides_and_an_illegal_pin_lists_the_legal_values():
    text = "schedule s for matmul {{\n let k = C.loops[2]\n let t ~ sample_perfect_tile(k, parts=2) := {}\n split(k, t)\n}}"
    assert "k_1 in 6" in format_program(space(text.format("[4, 6]")).sample(rng()).program)
    with pytest.raises(TschedError) as problem:
        space(text.format("[5, 7]")).sample(rng())
    (d,) = problem.value.diagnostics
    assert d.code == "E0504"
    assert "product 24" in d.notes[-1].text


def test_conditions_that_fit_are_used_and_the_rest_is_drawn():
    s = space(TILED)
    trace = s.replay({"factors": (4, 8), "factors_1": (5, 7), "vec": 8}, rng())
    assert trace.decisions["factors"] == (4, 8)
    assert trace.decisions["factors_1"] != (5, 7)
    assert trace.decisions["vec"] == 8


def test_a_rule_whose_when_is_false_leaves_the_block_alone():
    trace = space('module m(b: Block) when b.is_injective { annotate(b, "x", 1) }\nspace s for llvm { m }').sample(
        rng()
    )
    assert trace.lines == ()


def test_a_refusal_knows_its_line_and_the_steps_before_it():
    s = space("schedule s for matmul {\n let [i, j, k] = C.loops\n let [a, b] = split(i, [_, 4])\n split(j, [_, 7])\n}")
    with pytest.raises(ScheduleRefusal) as refusal:
        s.sample(rng())
    assert refusal.value.span is not None
    assert refusal.value.span.text == "[_, 7]"
    assert refusal.value.steps[-1] == "let [i_0, i_1] = split(i, [_, 4])"


@pytest.mark.parametrize(
    ("body", "code", "where"),
    [
        ("let x = nothing", "E0520", "nothing"),
        ("let [a, b] = C.loops", "E0535", "[a, b]"),
        ("split(C, [_, 4])", "E0543", "C"),
        ("split()", "E0542", "split()"),
        ("let t ~ sample_perfect_tile(C.loops[0])", "E0502", "sample_perfect_tile(C.loops[0])"),
        ("let t ~ sample_categorical([])", "E0503", "sample_categorical([])"),
        ("let t ~ sample_categorical([1, 1])", "E0503", "sample_categorical([1, 1])"),
        ("let t = C[1:]", "E0526", "C[1:]"),
        ("let t = C.loops[C:]", "E0526", "C"),
        ("let t = C.loops[1:annotate(root, \"x\", 1)]", "E0526", "annotate(root, \"x\", 1)"),
        ("let t = C.loops[7]", "E0527", "C.loops[7]"),
        ("let t = C.lops", "E0525", "C.lops"),
        ("let t = 1 / 0", "E0524", "1 / 0"),
        ("let t = range(1000000000)", "E0529", "range(1000000000)"),
        ("let t = 1 + \"a\"", "E0523", "1 + \"a\""),
        ("let t = any([true, 1])", "E0530", "any([true, 1])"),
        ("let t = all(true)", "E0530", "all(true)"),
        ("let t = for l in C.loops if l.extent { yield l }", "E0522", "l.extent"),
        ("again()", "E0539", "again()"),
        ("let t ~ sample_perfect_tile(C.loops[0], 2, 0)", "E0503", "sample_perfect_tile(C.loops[0], 2, 0)"),
    ],
)  # fmt: skip
def test_mistakes_have_a_code_and_a_place(body: str, code: str, where: str):
    text = f"module again() {{ again() }}\nschedule s for matmul {{\n {body}\n}}"
    with pytest.raises(TschedError) as problem:
        space(text).sample(rng())
    (d,) = problem.value.diagnostics
    assert d.code == code
    assert d.span is not None
    assert d.span.text == where


def test_expansion_is_bounded():
    nested = "for a in range(1000) { for b in range(1000) { let c = 1 } }"
    with pytest.raises(TschedError, match="E0532"):
        space(f"schedule s for matmul {{\n let x = {nested}\n}}").expand(prior(rng()))
