"""Expansion ends soon, with a readable error: everything that grows or repeats has a bound."""

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.interp.evaluate import MAX_DEPTH, MAX_STEPS
from tests.interp.spaces import rng, schedule, space
from tests.steps import calls

ENOUGH = 30 * MAX_STEPS
"""Calls of functions in the longest expansion: a step makes about twenty."""


def lines(first: str, line: str, count: int) -> list[str]:
    return [first, *[line] * count]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (["for a in range(1000) { for b in range(1000) { let c = 1 } }"], "E0532"),
        (["let x = for a in range(40000) { for b in range(40000) { yield b } }"], "E0532"),
        (["let x = range(50001)"], "E0529"),
        (["let x = range(-9000000000000000000, 9000000000000000000)"], "E0529"),
        (lines("let x = [1, 2]", "let x = x + x", 40), "E0529"),
        (lines("let x = [1, 2]", "let x = concat(x, x, x)", 40), "E0529"),
        (lines("let x = [1, 2]", "let x = [x, x]", 40), "E0529"),
        (lines("let x = [1, 2]", "let x = for a in x { yield x }", 40), "E0529"),
        (lines("let x = 1", "let x = [x]", 40), "E0529"),
        (lines('let x = "ab"', "let x = x + x", 40), "E0529"),
        (lines("let x = 3", "let x = x * x", 40), "E0524"),
        (lines("let x ~ sample_int(1..2)", "let x = x + x - x", 40), "E0529"),
        (lines("let x ~ sample_int(1..2)", "let x = min(x, x)", 40), "E0529"),
        (["let x = range(30000)", "for a in range(1000) { let y = x == x }"], "E0532"),
        (["let x = range(30000)", "for a in range(1000) { let y = x.count(a) }"], "E0532"),
        (["let x = range(30000)", "for a in range(1000) { let y = len(x) }"], "E0532"),
        (['for a in range(6000) { annotate(root, "x", a) }'], "E0532"),
        (["for a in range(6000) { let x ~ sample_categorical([1, 2]) }"], "E0532"),
        (["for a in range(100) { split(C.loops[0], [_, 1]) }"], "E0532"),
        (["for a in range(40000) { try { parallel(C.loops[2]) } }"], "E0532"),
        (
            ['for a in range(300) { try { for b in range(300) { annotate(C, "x", b) }; parallel(C.loops[2]) } }'],
            "E0532",
        ),
        (["let x = 1e308 * 10 - 1e308 * 10"], "E0524"),
        (["let x = 1.0 / 0"], "E0524"),
        (["let x = 5 % 0"], "E0524"),
    ],
)
def test_what_grows_is_bounded_and_told_soon(text: list[str], code: str) -> None:
    def sample() -> None:
        with pytest.raises(TschedError) as problem:
            schedule(*text).sample(rng())
        (d,) = problem.value.diagnostics
        assert d.code == code
        assert d.span is not None

    assert calls(sample) < ENOUGH


def test_modules_cannot_recurse() -> None:
    text = "module a(b: Block) { c(b) }\nmodule c(b: Block) { a(b) }\nspace s for llvm { a }"
    with pytest.raises(TschedError, match="a > c > a"):
        space(text).sample(rng())


def test_a_long_chain_of_modules_is_told_and_not_a_crash() -> None:
    count = 400
    text = "".join(f"module m{n}(b: Block) {{ m{n + 1}(b) }}\n" for n in range(count))
    text += f"module m{count}(b: Block) {{ }}\n"
    with pytest.raises(TschedError, match=f"more than {MAX_DEPTH} deep"):
        space(text + "space s for llvm { m0 }").sample(rng())
    space(text + f"space s for llvm {{ m{count - 30} }}").sample(rng())


def test_modules_that_call_each_other_twice_are_steps_like_others() -> None:
    text = "".join(f"module m{n}(b: Block) {{ m{n + 1}(b); m{n + 1}(b) }}\n" for n in range(30))
    with pytest.raises(TschedError, match="E0532"):
        space(text + "module m30(b: Block) { }\nspace s for llvm { m0 }").sample(rng())


def test_deep_expressions_are_told() -> None:
    deep = "1" + " + (1" * 90 + ")" * 90
    text = f"module m(b: Block) {{ if {deep} > 0 {{ for x in [1] {{ n(b) }} }} }}\n"
    text += f"module n(b: Block) {{ if {deep} > 0 {{ o(b) }} }}\nmodule o(b: Block) {{ let x = {deep} }}\n"
    trace = space(text + "space s for llvm { m }").sample(rng())
    assert trace.lines == ()


def test_large_schedules_are_no_problem() -> None:
    trace = schedule(
        'for a in range(1500) { annotate(root, "x", a) }', "let x = for a in range(9000) { yield a * 2 }"
    ).sample(rng())
    assert len(trace.lines) == 1500


def test_names_that_every_schedule_has_are_kept_free() -> None:
    with pytest.raises(TschedError, match="E0546"):
        _named("root")
    with pytest.raises(TschedError, match="E0546"):
        _named("target")
    assert "let [root_1, j] = Y.loops" in _named("Y", index="root")


def _named(output: str, index: str = "i") -> str:
    from tensorc_dsl.base.source import Source
    from tensorc_dsl.elaborate.compute import elaborate
    from tensorc_dsl.interp.space import Space
    from tensorc_dsl.syntax import tree
    from tensorc_dsl.syntax.parse import parse
    from tests.interp.spaces import TARGET

    text = (
        f"compute c(A: f32[4, 4]) -> {output}: f32[4, 4] {{ {output}[{index}, j] = A[{index}, j] }}\n"
        'module m(b: Block) { parallel(b.loops[0]); annotate(root, "x", 1) }\nspace s for llvm { m }'
    )
    compute, module, definition = parse(Source("x", text)).items
    assert isinstance(compute, tree.ComputeDef)
    assert isinstance(module, tree.ModuleDef)
    assert isinstance(definition, tree.SpaceDef)
    return Space(definition, "c", elaborate(compute, {}), TARGET, {"m": module}).sample(rng()).text
