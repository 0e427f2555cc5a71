"""Rules that leave a program alone are kept with it: what is kept is what would be found, and costs as many steps.

An expansion that is watched keeps none, so it is what the others are compared with.
"""

from dataclasses import replace

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.interp.expand import Expansion
from tensorc_dsl.interp.space import Space
from tensorc_dsl.schedule.trace.trace import Trace, prior
from tensorc_dsl.syntax import tree
from tests.interp.spaces import TARGET, rng, space

RULES = """
module wide(b: Block, least: int = 8) when b.loops[0].extent >= least { annotate(b, "wide", b.loops[0].extent) }
module cores(b: Block) when target.cores > 2 { annotate(b, "cores", target.cores) }
module cut(b: Block) when b.loops[0].extent > 8 {
    let size ~ sample_categorical([2, 4])
    split(b.loops[0], [_, size])
}

space rules for llvm { wide(least=64); cores; cut; wide(least=9); wide(least=8) }
"""


@pytest.fixture
def scopes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules whose parameters were computed, in order."""
    found: list[str] = []
    compute = Expansion._scope  # pyright: ignore[reportPrivateUsage]

    def scope(self: Expansion, module: tree.ModuleDef, *args: object) -> object:
        found.append(str(module.name))
        return compute(self, module, *args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Expansion, "_scope", scope)
    return found


def expanded(s: Space, n: int = 0) -> tuple[Trace, int]:
    """A trace, and how many steps the expansion took."""
    run = Expansion(s.program, s.target, s.modules, prior(rng(n)))
    assert isinstance(s.definition, tree.SpaceDef)
    trace = run.space(s.definition, s.compute)
    return trace, run.budget.steps


def watched(s: Space, n: int = 0) -> Trace:
    found = s.watch(prior(rng(n))).trace
    assert found is not None
    return found


def test_a_rule_is_asked_once_for_a_program_and_its_subject(scopes: list[str]) -> None:
    s = space(RULES, compute="chain")
    first = expanded(s)
    asked = len(scopes)
    assert scopes.count("cores") == 2
    scopes.clear()
    assert expanded(s) == first
    assert "cores" not in scopes
    assert len(scopes) < asked
    for n in range(4):
        assert expanded(s, n)[0] == watched(s, n)


def test_it_is_asked_again_where_options_the_program_or_the_target_are_others() -> None:
    s = space(RULES, compute="chain")
    trace, _ = expanded(s)
    assert "wide" in trace.text
    assert "cores" not in trace.text
    assert "cores" in expanded(replace(s, target=replace(TARGET, cores=3)))[0].text
    assert expanded(s)[0] == trace


def test_a_condition_that_is_refused_is_a_refusal_of_its_rule() -> None:
    condition = "b.working_set(root.blocks[0].loops[0]) > 0"
    rule = f'module asked(b: Block) when {condition} {{ annotate(b, "asked", 1) }}'
    s = space(f"{rule} space rules for llvm {{ asked }}", compute="chain")
    for _ in range(2):
        (refused,) = expanded(s)[0].refused
        assert (refused.rule, refused.subject) == ("asked", "Y")
        assert [str(refused.refusal)] == [str(r.refusal) for r in watched(s).refused]


def test_rules_that_are_kept_count_against_the_bounds_of_an_expansion() -> None:
    long = 'module long(p: Program) when len(range(6000)) < 1 { annotate(root.blocks[0], "x", 1) }'
    s = space(f"{long} space r for llvm {{ {'; '.join(['long'] * 80)} }}")
    messages: list[str] = []
    for _ in range(2):
        with pytest.raises(TschedError) as error:
            expanded(s)
        messages.append(str(error.value))
    seen = s.watch(prior(rng()))
    assert [*messages, str(seen.failure)] == 3 * [messages[0]]
