"""Which decisions are expected to make a program that is known."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from itertools import islice, product

import numpy as np

from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.tuning.search.space import KEPT, Twins


def program(decisions: Mapping[str, Decision]) -> str:
    """`step` never matters, `order` only where `tiles` is 1 and it is not (0, 1), and `size` always does."""
    order = decisions.get("order")
    return f"{decisions['size']} {order if order != (0, 1) else None}"


def some(seed: int, count: int) -> list[dict[str, Decision]]:
    rng = np.random.default_rng(seed)
    out: list[dict[str, Decision]] = []
    for _ in range(count):
        one: dict[str, Decision] = {"size": int(rng.integers(12)), "step": int(rng.choice([0, 16, 64]))}
        one["tiles"] = int(rng.integers(2))
        if one["tiles"]:
            one["order"] = ((0, 1), (1, 0))[int(rng.integers(2))]
        out.append(one)
    return out


def taught(count: int) -> Twins:
    twins = Twins()
    for one in some(0, count):
        twins.add(one, program(one))
    return twins


def test_nothing_is_expected_at_first() -> None:
    assert not any(Twins().expected(one) for one in some(1, 50))
    assert not taught(1).expected({"size": 99, "step": 0, "tiles": 0})


def test_what_does_not_matter_is_learnt() -> None:
    twins = taught(60)
    known = {program(one) for one in some(0, 60)}
    new = some(1, 200)
    right = [twins.expected(one) for one in new if program(one) in known]
    assert sum(right) > 0.9 * len(right) > 100
    for size in (97, 98, 99):  # none of these programs is known
        assert not twins.expected({"size": size, "step": 0, "tiles": 1, "order": (1, 0)})
    twins.add({"size": 99, "step": 0, "tiles": 0}, "99 None")
    assert twins.expected({"size": 99, "step": 16, "tiles": 0})
    assert twins.expected({"size": 99, "step": 0, "tiles": 1, "order": (0, 1)})
    assert not twins.expected({"size": 99, "step": 0, "tiles": 1, "order": (1, 0)})


def test_what_was_expected_leads_on() -> None:
    twins = taught(60)
    twins.add({"size": 99, "step": 0, "tiles": 0}, "99 None")
    assert not twins.expected({"size": 99, "step": 16, "tiles": 2, "order": (0, 1)})
    far: dict[str, Decision] = {"size": 99, "step": 16, "tiles": 1, "order": (0, 1)}
    assert not taught(60).expected(far)  # three draws away from nothing that is known
    assert twins.expected({"size": 99, "step": 16, "tiles": 0})
    assert twins.expected(far)


def test_a_draw_that_matters_is_never_expected_to_be_idle() -> None:
    twins = Twins()
    wrong = 0
    every: list[dict[str, Decision]] = [{"a": a, "b": b, "c": c} for a, b, c in product(range(8), range(8), range(8))]
    order = np.random.default_rng(3).permutation(len(every)).tolist()
    for n in order:
        wrong += twins.expected(every[n])
        twins.add(every[n], str(every[n]))
    assert wrong == 0


def test_only_the_latest_are_kept() -> None:
    twins = Twins()
    for n in range(5 * KEPT):
        twins.add({"a": n, "b": n, "c": n}, str(n))
        assert len(twins.latest) < 2 * KEPT
    assert len(twins.near) <= 6 * 2 * KEPT


def test_a_copy_expects_the_same() -> None:
    twins = taught(60)
    copy = pickle.loads(pickle.dumps(twins))
    assert [twins.expected(one) for one in islice(some(2, 99), 99)] == [copy.expected(one) for one in some(2, 99)]
