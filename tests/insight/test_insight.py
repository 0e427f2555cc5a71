"""What the records of a task teach about its draws, on spaces whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.draws.choices import Branch, Categorical
from tensorc_dsl.schedule.trace.draws.tiles import PerfectTile
from tensorc_dsl.schedule.trace.trace import Draw, Trace
from tensorc_dsl.tuning.insight import (
    Importance,
    Learnt,
    Structures,
    Study,
    TooFew,
    decisions_of,
    importance,
    pins,
    posterior,
    slices,
    study,
)
from tests.insight.known import trial_of, trials_of
from tests.search.landscape import DOES_NOT_FIT, TileSpace, make_trace, seconds


@dataclass
class Conditional:
    """`size` limits the tiles that `cut` may have; `extra` is drawn only where `more` is true. `cut` of 8 is refused."""

    def sample(self, rng: np.random.Generator) -> Trace:
        return self.replay({}, rng)

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        draws: list[Draw] = []

        def draw(name: str, d: Branch | Categorical | PerfectTile) -> Decision:
            known = name in decisions and d.contains(decisions[name])
            draws.append(Draw(name, d, decisions[name] if known else d.sample(rng)))
            return draws[-1].decision

        size = draw("size", Categorical((16, 32, 64), (2.0, 1.0, 1.0)))
        cut = draw("cut", PerfectTile(int(str(size)), 2, 64))
        draw("idle", Categorical(("a", "b", "c", "d"), (1.0, 1.0, 1.0, 1.0)))
        if draw("more", Branch((0.5, 0.5), (True, False))):
            draw("extra", Categorical((1, 2, 4, 8), (1.0, 1.0, 1.0, 1.0)))
        draws.append(Draw("fixed", Categorical((1, 2), (1.0, 1.0)), 2, pinned=True))
        if isinstance(cut, tuple) and cut[1] == 8:
            raise DOES_NOT_FIT(Program("p", (), (), ()))
        return make_trace(draws)


def conditional_seconds(trace: Trace) -> float:
    """`extra` decides nearly everything, if it is drawn; 32 is a good size."""
    got = trace.decisions
    slow = 0.4 * abs(math.log2(int(str(got["size"]))) - 5)
    slow += 0.0 if got.get("extra") == 4 else 1.5
    return 1e-3 * math.exp(slow)


@pytest.fixture(scope="module")
def tiles() -> Study:
    found = study(TileSpace(), "p", trials_of(TileSpace(), seconds, 150))
    assert isinstance(found, Study)
    return found


@pytest.fixture(scope="module")
def conditional() -> Study:
    found = study(Conditional(), "p", trials_of(Conditional(), conditional_seconds, 120))
    assert isinstance(found, Study)
    return found


@dataclass
class Rare:
    """`extra` is drawn once in a million schedules."""

    def sample(self, rng: np.random.Generator) -> Trace:
        return self.replay({}, rng)

    def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
        sizes = Categorical(tuple(range(1, 17)), (1.0,) * 16)
        draws = [Draw("size", sizes, decisions.get("size", sizes.sample(rng)))]
        more = Branch((0.999999, 1e-6), (False, True))
        draws.append(Draw("more", more, decisions.get("more", more.sample(rng))))
        if draws[-1].decision:
            draws.append(Draw("extra", Categorical((1, 2), (1.0, 1.0)), decisions.get("extra", 1)))
        return make_trace(draws)


def test_a_draw_that_slow_trials_alone_made_has_a_posterior() -> None:
    """Neither the points from the prior nor the fast ones have it: those with it are known to be slow."""
    trials = trials_of(Rare(), lambda t: 1e-3 * int(str(t.decisions["size"])), 40)
    rng = np.random.default_rng(0)
    rare = [Rare().replay({"size": s, "more": True, "extra": e}, rng) for s in range(1, 17) for e in (1, 2)]
    found = study(Rare(), "p", [*trials, *(trial_of(t, 1.0, 40 + n) for n, t in enumerate(rare))])
    assert isinstance(found, Study)
    extra = learnt(posterior(found), "extra")
    assert extra.made_prior == extra.made == 0.0 and extra.values == ()
    assert of(importance(found), "extra").made == 0.0


def of(found: tuple[Importance, ...], name: str) -> Importance:
    return next(i for i in found if i.name == name)


def learnt(found: tuple[Learnt, ...], name: str) -> Learnt:
    return next(i for i in found if i.name == name)


def test_the_draws_whose_decisions_change_others_are_found(tiles: Study, conditional: Study) -> None:
    assert tiles.structures.influential == {"cache"}
    assert conditional.structures.influential == {"size", "more"}


def test_a_point_is_one_that_the_space_has(conditional: Study) -> None:
    points = conditional.structures.prior(400, "test")
    assert len(points) >= 400
    for point in points:
        got = decisions_of(point)
        assert all(d.distribution.contains(d.decision) for d in point)
        cut = got["cut"]
        assert isinstance(cut, tuple) and cut[0] * cut[1] == got["size"]
        assert ("extra" in got) == (got["more"] is True)
        assert "fixed" not in got
    sizes = [decisions_of(p)["size"] for p in points]
    assert 0.4 < sizes.count(16) / len(sizes) < 0.6


def test_the_surrogate_says_how_much_it_explains(tiles: Study) -> None:
    assert 0.8 < tiles.surrogate.explained <= 1.0
    rng = np.random.default_rng(7)
    noise = [replace(t, seconds=float(rng.uniform(1e-3, 2e-3))) for t in trials_of(TileSpace(), lambda _: 1.0, 80)]
    found = study(TileSpace(), "p", noise)
    assert isinstance(found, Study) and found.surrogate.explained < 0.3


def test_what_decides_the_time_is_important_and_what_does_not_is_not(tiles: Study, conditional: Study) -> None:
    found = importance(tiles)
    assert found[0].name == "j" and found[0].alone > 0.5
    assert of(found, "cache").total < 0.05
    found = importance(conditional)
    # `extra` where it is drawn, and `more`, which says whether it is.
    assert {found[0].name, found[1].name} == {"extra", "more"}
    assert of(found, "idle").total < 0.02
    assert 0.4 < of(found, "extra").made < 0.6 and of(found, "more").made == 1.0
    assert all(0.0 <= i.alone <= i.total <= 1.0 for i in found)


def test_a_draw_that_is_not_made_counts_as_a_value(conditional: Study) -> None:
    """With `extra` known, much is known, although half of the schedules lack it."""
    assert of(importance(conditional), "extra").alone > 0.5


@pytest.mark.corpus
def test_the_posterior_is_where_the_fast_ones_are(conditional: Study) -> None:
    found = posterior(conditional)
    extra = learnt(found, "extra")
    assert extra.made > 0.95 and 0.4 < extra.made_prior < 0.6
    assert extra.values[0].decision == 4 and extra.values[0].posterior > 0.9 and extra.values[0].prior == 0.25
    more = learnt(found, "more")
    assert more.values[0].decision is True and more.values[0].posterior > 0.95 and more.values[0].prior == 0.5
    size = learnt(found, "size")
    assert size.values[0].decision == 32 and size.values[0].posterior > 0.8 and size.values[0].prior == 0.25
    # What does not matter keeps its prior.
    assert all(0.15 < v.posterior < 0.35 for v in learnt(found, "idle").values)
    for one in found:
        assert math.isclose(sum(v.posterior for v in one.values), 1.0)
        assert sum(v.prior for v in one.values) <= 1.0 + 1e-9


@pytest.mark.corpus
def test_failures_are_no_fast_schedules() -> None:
    """`bad` would be the fastest by the trend of the others, and never works."""

    def fails(trace: Trace) -> float | None:
        return None if trace.decisions["idle"] == "a" else conditional_seconds(trace)

    found = study(Conditional(), "p", trials_of(Conditional(), fails, 160))
    assert isinstance(found, Study)
    idle = learnt(posterior(found), "idle")
    assert next((v.posterior for v in idle.values if v.decision == "a"), 0.0) < 0.05


def test_a_slice_is_the_best_schedule_with_one_decision_changed(conditional: Study) -> None:
    found = {s.name: s for s in slices(conditional)}
    assert decisions_of(conditional.best)["extra"] == 4
    extra = found["extra"]
    assert min(extra.steps, key=lambda s: s.middle).decision == 4 and extra.whole
    assert all(s.low < s.middle < s.high for s in extra.steps)
    more = {s.decision: s for s in found["more"].steps}
    assert more[False].others == ("extra",) and more[False].middle > 2 * more[True].middle
    refused = [s for s in found["cut"].steps if s.refused]
    assert [str(s.decision)[-3:] for s in refused] == [" 8)"]
    assert all(math.isnan(s.middle) for s in refused)


@pytest.mark.corpus
def test_what_is_settled_or_does_not_matter_is_proposed_as_a_pin(conditional: Study) -> None:
    found = {p.name: p for p in pins(conditional, importance(conditional), posterior(conditional))}
    assert found["extra"].why == "settled" and found["extra"].decision == 4
    assert found["more"].why == "settled"
    assert found["idle"].why == "no matter"


@pytest.mark.corpus
def test_it_is_the_same_each_time(conditional: Study) -> None:
    again = study(Conditional(), "p", trials_of(Conditional(), conditional_seconds, 120))
    assert isinstance(again, Study)
    assert importance(again) == importance(conditional)
    assert posterior(again) == posterior(conditional)
    assert slices(again) == slices(conditional) or repr(slices(again)) == repr(slices(conditional))


def test_the_last_word_of_the_finalists_says_which_is_best() -> None:
    trials = trials_of(Conditional(), conditional_seconds, 60)
    order = sorted(trials, key=lambda t: t.seconds or 1.0)
    finals = [replace(order[0], seconds=2e-4, phase="final"), replace(order[1], seconds=1e-4, phase="final")]
    found = study(Conditional(), "p", [*trials, *finals])
    assert isinstance(found, Study)
    assert found.winner.program_key == order[1].program_key and found.winner.seconds == 1e-4


def test_what_was_measured_again_counts() -> None:
    trials = trials_of(Conditional(), conditional_seconds, 60)
    lucky = replace(trials[0], seconds=1e-9)
    found = study(Conditional(), "p", [lucky, *trials[1:], replace(trials[0], phase="again")])
    assert isinstance(found, Study) and found.reference > math.log(1e-4)


def test_trials_of_another_version_of_the_space_are_left_out() -> None:
    trials = trials_of(Conditional(), conditional_seconds, 40)
    old = [trial_of(make_trace([Draw("gone", Categorical((n,), (1.0,)), n)]), 1e-6, n) for n in range(9)]
    found = study(Conditional(), "p", [*old, *trials])
    assert isinstance(found, Study) and found.left_out == 9
    assert study(Conditional(), "p", old) == TooFew(0, 9)


def test_too_few_trials_say_nothing() -> None:
    trials = trials_of(Conditional(), conditional_seconds, 5)
    assert study(Conditional(), "p", trials) == TooFew(5, 0)
    assert study(Conditional(), "p", []) == TooFew(0, 0)


def test_a_space_without_draws_has_nothing_to_say() -> None:
    trace = make_trace([])

    class Fixed:
        def sample(self, rng: np.random.Generator) -> Trace:
            return trace

        def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
            return trace

    trials = [replace(trial_of(trace, 1e-3 + n * 1e-5, n), program_key=str(n)) for n in range(9)]
    found = study(Fixed(), "p", trials)
    assert isinstance(found, Study)
    assert importance(found) == () and posterior(found) == () and slices(found) == ()


def test_expansions_are_bounded() -> None:
    """However many trials there are, and however many combinations of draws that change others."""

    class Counted(Conditional):
        count = 0

        def replay(self, decisions: Mapping[str, Decision], rng: np.random.Generator) -> Trace:
            Counted.count += 1
            return super().replay(decisions, rng)

    found = Structures(Counted(), "p")
    found.prior(2000, "test")
    assert Counted.count < 120
