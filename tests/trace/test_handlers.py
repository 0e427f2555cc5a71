"""Handlers: they nest, they never replace a decision, and a search cannot change what they pin."""

import pytest

from tensorc_dsl import handlers as from_the_package
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace import handlers
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Trace
from tests.interp.spaces import rng, schedule

SPACE = schedule(
    "let [i, j, k] = C.loops",
    "let a ~ sample_categorical([1, 2, 4, 8])",
    "let t ~ sample_perfect_tile(k, parts=2)",
    'either { let b ~ sample_int(1..100) := 7; annotate(root, "b", b) } or { let c ~ sample_int(1..100); unroll(j) }',
    "split(k, t)",
    'annotate(root, "a", a)',
)


def opened(trace: Trace) -> list[str]:
    return [d.name for d in trace.open_draws]


def decisions(trace: Trace, *names: str) -> list[Decision]:
    return [trace.decisions[n] for n in names]


def test_they_are_in_the_package() -> None:
    assert from_the_package is handlers


def test_a_seed_draws_the_same_in_every_call() -> None:
    assert handlers.seed(SPACE, 3)().text == handlers.seed(SPACE, 3)().text
    assert len({handlers.seed(SPACE, n)().text for n in range(10)}) > 5


def test_a_model_that_nobody_decides_says_which_draw_is_open() -> None:
    with pytest.raises(TschedError) as problem:
        SPACE()
    (d,) = problem.value.diagnostics
    assert d.code == "E0507"
    assert "`a`" in d.message
    assert "one of 1, 2, 4, 8" in d.notes[-1].text


def test_condition_pins_and_the_rest_is_drawn() -> None:
    model = handlers.condition(SPACE, {"a": 4, "t": (4, 6), "nowhere": 1})
    for n in range(5):
        trace = model.sample(rng(n))
        assert decisions(trace, "a", "t") == [4, (4, 6)]
        assert not {"a", "t"} & set(opened(trace))
        assert "branch" in opened(trace)


def test_an_illegal_condition_is_refused_with_what_is_legal_and_never_bent() -> None:
    for bad in ((5, 7), 4, (24,)):
        with pytest.raises(ScheduleRefusal) as refusal:
            handlers.condition(SPACE, {"t": bad}).sample(rng())
        assert refusal.value.refusal.code == "E0506"
        assert "2 factors with product 24" in refusal.value.help
        assert refusal.value.span is not None
        assert refusal.value.span.text.startswith("let t ~")


def test_a_pin_in_the_text_goes_before_any_handler() -> None:
    for value in (7, 9):
        model = handlers.condition(SPACE, {"branch": 0, "b": value})
        if value == 7:
            assert model.sample(rng()).decisions["b"] == 7
        else:  # a condition without effect is never silent
            with pytest.raises(ScheduleRefusal, match="E0560: `b` is pinned to 7: it cannot be 9"):
                model.sample(rng())


def test_replay_takes_all_of_a_trace_and_draws_nothing() -> None:
    first = SPACE.sample(rng(2))
    assert handlers.replay(SPACE, first)().text == first.text
    assert opened(handlers.replay(SPACE, first.decisions)()) == []
    partly = {k: v for k, v in first.decisions.items() if k != "t"}
    with pytest.raises(TschedError, match="E0507"):
        handlers.seed(handlers.replay(SPACE, partly), 0)()


def test_block_hides_a_draw_from_the_search_but_not_from_the_seed() -> None:
    model = handlers.block(SPACE, ["a"])
    trace = model.sample(rng(1))
    assert "a" in trace.decisions
    assert "a" not in opened(trace)
    seen = {model.replay({"a": 8, "t": (4, 6)}, rng(n)).decisions["a"] for n in range(30)}
    assert seen == {1, 2, 4, 8}
    assert all(model.replay({"t": (4, 6)}, rng(n)).decisions["t"] == (4, 6) for n in range(5))
    outside = handlers.condition(model, {"a": 8})
    assert {outside.sample(rng(n)).decisions["a"] for n in range(30)} == {1, 2, 4, 8}
    inside = handlers.block(handlers.condition(SPACE, {"a": 8}), ["a"])
    assert {inside.sample(rng(n)).decisions["a"] for n in range(5)} == {8}


def test_they_nest_in_any_order() -> None:
    fixed = {"a": 2}
    one = handlers.seed(handlers.condition(SPACE, fixed), 5)()
    other = handlers.condition(handlers.seed(SPACE, 5), fixed)()
    assert one.decisions["a"] == other.decisions["a"] == 2
    assert handlers.condition(handlers.condition(SPACE, {"a": 1}), {"a": 1}).sample(rng()).decisions["a"] == 1
    with pytest.raises(ScheduleRefusal, match="E0560"):
        handlers.condition(handlers.condition(SPACE, {"a": 1}), {"a": 8}).sample(rng())


def test_trace_keeps_the_last_trace() -> None:
    recorded = handlers.trace(handlers.seed(SPACE, 0))
    assert recorded.last is None
    trace = recorded.get_trace()
    assert recorded.last is trace
    assert trace.text == handlers.seed(SPACE, 0)().text
