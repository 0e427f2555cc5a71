"""Lists that loops compute are kept with the program: what is kept is what would be computed, and costs as many steps.

An expansion that is watched keeps none, so it is what the others are compared with.
"""

from dataclasses import replace

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.interp.expand import Expansion
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.schedule.trace.trace import Trace, prior
from tensorc_dsl.syntax import tree
from tests.interp.spaces import TARGET, rng, space

EXTENTS = """
module note(b: Block, name: str) {
    annotate(b, name, product(for l in b.loops { yield l.extent + 1 }))
}
schedule twice for matmul {
    note(C, "before")
    note(C, "again")
    split(C.loops[0], [_, 4])
    note(C, "after")
}
"""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tree.ForList]:
    """The loops whose rounds were run, in order."""
    found: list[tree.ForList] = []
    run = Expansion.rounds

    def rounds(self: Expansion, loop: tree.ForList, env: dict[str, object]) -> object:
        found.append(loop)
        return run(self, loop, env)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Expansion, "rounds", rounds)
    return found


def expanded(s: Space) -> tuple[Trace, int]:
    """A trace, and how many steps the expansion took."""
    run = Expansion(s.program, s.target, s.modules, prior(rng()))
    assert isinstance(s.definition, tree.ScheduleDef)
    trace = run.schedule(s.definition)
    return trace, run.budget.steps


def watched(s: Space) -> Trace:
    found = s.watch(prior(rng())).trace
    assert found is not None
    return found


def notes(program: Program) -> dict[str, object]:
    """The annotations of the only block."""
    (block,) = blocks(program)
    return {str(key): value for key, value in block.annotations}


def test_a_list_is_computed_once_for_a_program_and_its_inputs(runs: list[tree.ForList]) -> None:
    s = space(EXTENTS)
    trace, steps = expanded(s)
    # The annotations and the split made other programs.
    assert len(runs) == 3
    assert expanded(s) == (trace, steps)
    assert len(runs) == 3
    assert notes(trace.program) == {"before": 33 * 49 * 25, "again": 33 * 49 * 25, "after": 9 * 5 * 49 * 25}
    assert watched(s) == trace


@pytest.mark.parametrize(("one", "other"), [("1", "true"), ("1", "1.0"), ("0.0", "-0.0"), ('"1"', "1")])
@pytest.mark.parametrize("listed", ["v", "[[v]]"])
def test_values_that_are_equal_in_python_are_told_apart(one: str, other: str, listed: str) -> None:
    element = {"v": "x[0]", "[[v]]": "x[0][0][0]"}[listed]
    # The loop with a map is not kept, and the one in it is, for both values and one program.
    s = space(f"""
schedule s for matmul {{
    let made = for v in [{one}, {other}, {one}] {{
        let same = (i) -> (i)
        let x = for n in [{listed}] {{ yield n }}
        yield {element}
    }}
    annotate(C, "one", made[0])
    annotate(C, "other", made[1])
    annotate(C, "again", made[2])
}}""")
    found = notes(expanded(s)[0].program)
    assert [repr(v) for v in found.values()] == [repr(v) for v in notes(watched(s).program).values()]
    assert repr(found["one"]) == repr(found["again"]) != repr(found["other"])


def test_a_value_from_another_draw_has_the_name_of_its_own() -> None:
    s = space("""
schedule s for matmul {
    let a ~ sample_categorical([4])
    let b ~ sample_categorical([4])
    let [i, j, k] = C.loops
    let sizes = for v in [a, b] {
        let same = (i) -> (i)
        let twice = for x in [1, 2] { yield v * x }
        yield twice[1]
    }
    split(i, [_, sizes[0]])
    split(j, [_, sizes[1]])
}""")
    text = expanded(s)[0].text
    assert "[_, a * 2]" in text
    assert "[_, b * 2]" in text
    assert text == watched(s).text


def test_a_list_for_another_target_is_another_one() -> None:
    s = space("""
schedule s for matmul {
    let counts = for n in [1] { yield n * target.cores }
    annotate(C, "x", counts[0])
}""")
    assert notes(expanded(s)[0].program) == {"x": 2}
    assert notes(expanded(replace(s, target=replace(TARGET, cores=3)))[0].program) == {"x": 3}


def test_lists_of_steps_are_run_each_time(runs: list[tree.ForList]) -> None:
    s = space("schedule s for matmul { for l in C.loops { yield split(l, [_, 2]) } }")
    trace, steps = expanded(s)
    assert len(runs) == 1
    assert expanded(s) == (trace, steps)
    assert len(runs) == 2
    assert sum("split" in line for line in trace.lines) == 3


def test_a_list_over_what_was_yielded_so_far_depends_on_the_loop_around() -> None:
    s = space("""
schedule s for matmul {
    let counts = for n in [5, 6, 7] {
        let same = (i) -> (i)
        let before = for x in so_far() { yield x }
        yield len(before)
    }
    annotate(C, "n", counts[2])
}""")
    assert notes(expanded(s)[0].program) == {"n": 2}
    assert expanded(s)[0] == watched(s)


def test_rounds_are_watched_each_time() -> None:
    s = space("schedule s for matmul { let x = for l in C.loops {\n let n = l.extent\n yield n\n } }")
    expanded(s)
    first, second = (s.watch(prior(rng())) for _ in range(2))
    assert [stand.span for stand in first.stands] == [stand.span for stand in second.stands]
    assert len(first.stands) > 6


def test_kept_lists_count_against_the_bounds_of_an_expansion() -> None:
    calls = "long()\n" * 80
    s = space(f"module long() {{ let x = for n in range(3000) {{ yield n }} }} schedule s for matmul {{ {calls} }}")
    messages: list[str] = []
    for _ in range(2):
        with pytest.raises(TschedError) as error:
            expanded(s)
        messages.append(str(error.value))
    seen = s.watch(prior(rng()))
    assert [*messages, str(seen.failure)] == 3 * [messages[0]]
