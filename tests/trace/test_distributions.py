"""Rules that hold for every distribution."""

import math
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, below
from tensorc_dsl.schedule.trace.draws import DRAWS
from tensorc_dsl.schedule.trace.factors import divisors, factorize, tilings

TESTS = sorted((Path(__file__).parent / "draws").glob("test_*.py"))
EXAMPLES: list[Distribution] = [d for file in TESTS for d in import_module(f"tests.trace.draws.{file.stem}").EXAMPLES]
"""Each kind of draw has some in its own test."""


def reached(d: Distribution, start: Decision) -> set[tuple[str, Decision]]:
    """All decisions that moves lead to."""
    seen = {(type(start).__name__, start)}
    waiting = [start]
    while waiting:
        for m in d.moves(waiting.pop()):
            if (type(m).__name__, m) not in seen:
                seen.add((type(m).__name__, m))
                waiting.append(m)
    return seen


def heirs(c: type) -> set[type]:
    """All classes that inherit from one."""
    return {s for own in c.__subclasses__() for s in {own, *heirs(own)}}


def test_there_is_an_example_of_every_kind() -> None:
    # A slotted dataclass is made twice, so classes are told apart by name.
    kinds = {c.__name__ for c in heirs(Distribution) if c.__module__.startswith("tensorc_dsl.schedule.trace.draws.")}
    assert {type(d).__name__ for d in EXAMPLES} == kinds
    sources = "".join(f.read_text("utf-8") for f in TESTS)
    assert all(name in sources for name in DRAWS)


@pytest.mark.parametrize("d", EXAMPLES, ids=lambda d: type(d).__name__)
def test_the_laws(d: Distribution) -> None:
    rng = np.random.Generator(np.random.Philox(5))
    drawn = [d.sample(rng) for _ in range(300)]
    everything = reached(d, drawn[0])
    assert len(everything) == d.size()
    assert {(type(x).__name__, x) for x in drawn} <= everything
    assert math.isclose(sum(math.exp(d.log_prob(x)) for _, x in everything), 1.0)
    assert len({len(d.features(x)) for _, x in everything}) == 1
    assert all(math.isfinite(f) for _, x in everything for f in d.features(x))
    assert len({d.features(x) for _, x in everything}) == d.size()
    for _, x in everything:
        assert d.contains(x)
        assert all(d.contains(m) and m != x for m in d.moves(x) if type(m) is type(x))
    for alien in ("nothing of the kind", -999, (9, 9), None, 3.25, []):
        assert not d.contains(alien)  # type: ignore[arg-type]
        if not isinstance(alien, list) and alien is not None:
            assert d.log_prob(alien) == -math.inf
    assert d.describe()
    assert hash(d) == hash(d)
    assert hash(d.meaning()) == hash(d.meaning())


@pytest.mark.parametrize("d", EXAMPLES, ids=lambda d: type(d).__name__)
def test_the_same_luck_gives_the_same_decisions(d: Distribution) -> None:
    one, other = (np.random.Generator(np.random.Philox(9)) for _ in range(2))
    assert [d.sample(one) for _ in range(20)] == [d.sample(other) for _ in range(20)]


@pytest.mark.parametrize(
    ("n", "primes"),
    [
        (1, ()), (2, ((2, 1),)), (360, ((2, 3), (3, 2), (5, 1))), (2**61 - 1, ((2**61 - 1, 1),)),
        (65537**3, ((65537, 3),)), ((2**31 - 1) * (2**29 - 3), ((536870909, 1), (2147483647, 1))),
    ],
)  # fmt: skip
def test_numbers_are_factorized_however_large(n: int, primes: tuple[tuple[int, int], ...]) -> None:
    assert factorize(n) == primes


def test_divisors_and_tilings() -> None:
    assert divisors(60, 12) == [1, 2, 3, 4, 5, 6, 10, 12]
    assert tilings(60, 2) == 12
    assert tilings(1, 5) == 1
    assert tilings(1, 0) == 1
    assert tilings(7, 0) == 0


def test_large_counts_are_drawn_from_evenly() -> None:
    rng = np.random.Generator(np.random.Philox(2))
    many = 3 << 70
    drawn = [below(many, rng) for _ in range(400)]
    assert all(0 <= x < many for x in drawn)
    assert 160 < sum(x < many // 2 for x in drawn) < 240
