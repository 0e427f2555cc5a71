"""Comparison, guarded memory and the choice of how often to time."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from tensorc_dsl.ir.dtypes import BF16, F32
from tensorc_dsl.tuning.measure.check import ALIGNMENT, CHUNK, Guarded, compare, poison, read_only
from tensorc_dsl.tuning.measure.outcome import (
    AGREE,
    ENOUGH_SECONDS,
    LEAST,
    LONGER,
    MOST,
    Taken,
    interval,
    seconds_of,
    take_times,
    weighted_times,
)

NAN, INF = float("nan"), float("inf")


def one(got: float, expected: float, tolerance: float = 0.1) -> float:
    return compare("C", np.array([got]), np.array([expected]), np.array([tolerance])).max_error


def test_errors_are_shares_of_the_tolerance() -> None:
    assert one(1.05, 1.0) == pytest.approx(0.5)
    assert one(0.8, 1.0) == pytest.approx(2.0)
    assert one(3.0, 3.0, 0.0) == 0.0
    assert one(3.0, 4.0, 0.0) == INF


@pytest.mark.parametrize(
    ("got", "expected", "right"),
    [
        (NAN, NAN, True),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (INF, INF, True),
        (-INF, INF, False),
        (INF, 1.0, False),
        (1e300, INF, False),
    ],
)
def test_what_is_not_finite_must_match(got: float, expected: float, right: bool) -> None:
    assert (one(got, expected, 1e300) <= 1.0) == right


@pytest.mark.parametrize(
    ("got", "expected", "right"),
    [
        (INF, 3.5e38, True),
        (-INF, -1e300, True),
        (-INF, 3.5e38, False),
        (INF, 3.3e38, False),
        (INF, 3.4028235e38, True),
        (3.4028234e38, 3.5e38, False),
    ],
)
def test_a_result_too_large_for_its_type_is_infinite(got: float, expected: float, right: bool) -> None:
    verdict = compare("C", np.array([got]), np.array([expected]), np.array([1e32]), F32)
    assert (verdict.fault == "") == right


def test_the_fault_names_the_first_wrong_element() -> None:
    expected = np.zeros((3, 4))
    got = expected.copy()
    got[1, 2] = 5.0
    got[2, 0] = -7.0
    verdict = compare("C", got, expected, np.full((3, 4), 1e-3))
    assert verdict.fault == "C[1, 2] is 5, not 0 within 0.001 (2 of 12 elements are wrong)"
    assert verdict.max_error == pytest.approx(7000)
    assert compare("C", expected, expected, np.zeros((3, 4))).fault == ""


def test_wrong_elements_of_a_large_array_are_counted_from_the_first() -> None:
    expected = np.zeros((7, CHUNK // 2))
    got = expected.astype(np.float32)
    got[3, 1], got[5, 2], got[6, 3] = 2.0, np.nan, -4.0
    verdict = compare("C", got, expected, np.ones(expected.shape), F32)
    assert verdict.fault == "C[3, 1] is 2, not 0 within 1 (3 of 229376 elements are wrong)"
    assert verdict.max_error == np.inf
    got[5, 2] = 0.0
    assert compare("C", got, expected, np.ones(expected.shape), F32).max_error == 4.0


def test_an_array_is_compared_as_its_type_stores_it() -> None:
    stored = np.array([[0x3F80, 0x4000]], np.uint16)  # 1 and 2 as bf16
    assert compare("C", stored, np.array([[1.0, 2.0]]), np.zeros((1, 2)), BF16).fault == ""
    assert compare("C", stored, np.array([[1.0, 3.0]]), np.zeros((1, 2)), BF16).fault.startswith("C[0, 1] is 2, not 3")


def test_scalars_empty_arrays_integers_and_bools() -> None:
    assert compare("s", np.array(1.0), np.array(2.0), np.array(0.5)).fault.startswith("s is 1, not 2")
    assert compare("e", np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3))).fault == ""
    big = np.array([2**62 + 1])
    assert compare("i", big, big, np.zeros(1)).fault == ""
    assert compare("i", big, big + 1, np.zeros(1)).fault != ""
    yes = np.array([True, False])
    assert compare("b", yes, yes, np.zeros(2)).fault == ""
    assert compare("b", yes, ~yes, np.zeros(2)).fault != ""


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (16,), (1024,), (0,), (7, 331)])
def test_guarded_arrays_are_aligned_and_hold_values(shape: tuple[int, ...]) -> None:
    g = Guarded(shape, np.dtype(np.float32))
    assert g.array.ctypes.data % ALIGNMENT == 0
    assert g.array.shape == shape
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    g.array[...] = values
    np.testing.assert_array_equal(g.array, values)
    assert g.trespassed() is None


def test_writing_beside_a_guarded_array_shows() -> None:
    for offset, side in ((-1, "before"), (-64, "before"), (12, "after"), (63, "after")):
        g = Guarded((3,), np.dtype(np.float32))
        around = g._pages[len(g._before) + offset :]
        around[0] = 1
        assert g.trespassed() == side


def test_frozen_arrays_cannot_be_written() -> None:
    values = np.arange(6.0).reshape(2, 3)
    kept = read_only(values)
    np.testing.assert_array_equal(kept, values)
    with pytest.raises(ValueError, match="read-only"):
        kept[0, 0] = 1.0


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int8", "uint16", "int64"])
def test_poison_is_nothing_a_kernel_computes(name: str) -> None:
    a = np.zeros((4, 3), np.dtype(name))
    poison(a)
    assert np.isnan(a).all() if a.dtype.kind == "f" else (a == a[0, 0]).all() and a[0, 0] != 0


class Clock:
    """A kernel with given times, the last repeated; counts its calls."""

    def __init__(self, *times: float) -> None:
        self.times = times
        self.calls = 0

    def __call__(self, count: int) -> list[float]:
        out = [self.times[min(self.calls + i, len(self.times) - 1)] for i in range(count)]
        self.calls += count
        return out


def taken(clock: Clock, best: float | None = None) -> tuple[float, ...]:
    return take_times(clock, best).times


def test_steady_kernels_are_timed_until_they_agree() -> None:
    clock = Clock(5e-3, 1e-3)
    times = taken(clock)
    assert set(times) == {1e-3} and LEAST <= len(times) < 60
    assert clock.calls == len(times) + 1


NOISE = np.random.default_rng(0).random(500)


@pytest.mark.parametrize(
    ("best", "seconds"),
    [(None, LONGER * ENOUGH_SECONDS), (1.2e-3, LONGER * ENOUGH_SECONDS), (0.95e-3, ENOUGH_SECONDS)],
)
def test_noisy_kernels_are_timed_for_long_enough(best: float | None, seconds: float) -> None:
    """One that cannot be the best is not worth more; the noise is one that no number of calls of that time overcomes."""
    times = taken(Clock(*(2e-3 * (1 + NOISE)) if best is None else 1.2e-3 * (1 + NOISE / 4)), best)
    assert seconds <= sum(times) < seconds + 0.03


def test_noise_is_overcome_by_more_times() -> None:
    few, many = (taken(Clock(*(1e-3 * (1 + share * NOISE)))) for share in (0.01, 0.05))
    assert len(few) < len(many) < MOST
    low, high = interval(many)
    assert high - low <= AGREE * seconds_of(many)


def test_the_interval_of_the_quartile_covers_it() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(2000):
        low, high = interval(list(rng.exponential(size=40)))
        hits += low <= -math.log(0.75) <= high
    assert 0.94 < hits / 2000 < 0.995
    assert interval([1.0]) == (0.0, math.inf)


def test_tiny_kernels_are_timed_a_bounded_number_of_times() -> None:
    assert len(taken(Clock(1e-7))) <= MOST
    assert len(taken(Clock(0.0))) <= MOST


def test_slow_kernels_get_a_few_runs() -> None:
    assert len(taken(Clock(0.5))) == 1
    assert len(taken(Clock(0.15))) == 3
    assert len(taken(Clock(0.05))) >= LEAST


def test_losers_are_given_up_and_say_so() -> None:
    clock = Clock(1.0)
    assert take_times(clock, 1e-3) == Taken((1.0,), censored=True)
    assert clock.calls == 1
    assert take_times(Clock(0.02), 0.01) == Taken((0.02,), censored=True)
    close = take_times(Clock(0.012), 0.01)
    assert len(close.times) >= LEAST and not close.censored
    assert len(taken(Clock(1.0, 1e-3), 1e-3)) == 1  # a first call as slow as that is no warm-up
    interrupted = take_times(Clock(1e-4, 1e-6), 1e-6)
    assert not interrupted.censored and min(interrupted.times) == 1e-6
    assert take_times(Clock(1e-4, 9e-5), 1e-6) == Taken((9e-5,), censored=True)


@pytest.mark.parametrize("slices", [(4e-3,), (9e-3,), (1e-4, 12e-3), (1e-3, 4e-3), (0.09,)])
def test_a_call_that_was_interrupted_does_not_make_a_fast_kernel_slow(slices: tuple[float, ...]) -> None:
    """Another process has the core for some milliseconds, in the first call or in the next one."""
    found = take_times(Clock(*slices, 1e-4), 1e-4)
    assert not found.censored and seconds_of(found.times) == 1e-4


def test_a_kernel_that_is_slow_twice_is_given_up() -> None:
    clock = Clock(4e-3)
    assert take_times(clock, 1e-4) == Taken((4e-3,), censored=True)
    assert clock.calls <= 3


def test_the_lower_quartile_stands_for_the_times() -> None:
    assert seconds_of((1.0, 2.0, 3.0, 4.0, 100.0)) == 2.0
    assert seconds_of((1.0,)) == 1.0


@pytest.mark.parametrize(
    "slow", [(8.0,), (8.0, 9.0), tuple(8.0 + n for n in range(7)), tuple(8.0 + n for n in range(60))]
)
def test_the_mean_of_sizes_is_summarised_as_each_of_them_is(slow: tuple[float, ...]) -> None:
    """However few times a slow size has, one that was interrupted at a fast one does not count."""
    fast = (*(1.0 + n / 1000 for n in range(99)), 500.0)
    times = weighted_times([fast, slow], [0.75, 0.25])
    assert seconds_of(times) == pytest.approx(0.75 * seconds_of(fast) + 0.25 * seconds_of(slow))
    assert list(times) == sorted(times) and weighted_times([slow], [1.0]) == slow


@pytest.mark.skipif(sys.platform != "linux", reason="the controls are found in /proc")
def test_blas_runs_on_one_thread_inside_and_as_before_outside() -> None:
    """Also that of SciPy, which may be loaded inside; a process of its own has loaded nothing before."""
    program = """
import numpy
from tensorc_dsl.processes.machine import _controls, one_blas_thread
from tensorc_dsl.tuning.search.gp import Hyper, Posterior
def counts(): return [get() for get, _ in _controls().values()]
before = counts()
with one_blas_thread():
    inside = counts()
    Posterior.of(numpy.eye(2), numpy.ones(2), Hyper.initial(2))
    loaded = counts()
after = counts()
with one_blas_thread():
    again = counts()
print(before, inside, loaded, after, again)
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    many = min(2, len(os.sched_getaffinity(0)))
    assert done.stdout == f"[{many}] [1] [1, 1] [{many}, {many}] [1, 1]\n"
