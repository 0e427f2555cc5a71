"""The Gaussian process against closed forms, finite differences and a function it should learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensorc_dsl.tuning.search.gp import Hyper, Posterior, Prior, fit, kernel, objective


def matern(r: float) -> float:
    s = math.sqrt(5) * r
    return (1 + s + s * s / 3) * math.exp(-s)


def test_one_observation_in_closed_form() -> None:
    hyper = Hyper(np.log([2.0, 0.5]), math.log(1.7), math.log(0.3))
    x, y = np.array([[0.2, -0.1]]), np.array([1.4])
    point = np.array([[1.0, 0.3]])
    c = 1.7 * matern(math.hypot(0.8 / 2.0, 0.4 / 0.5))
    beliefs = Posterior.of(x, y, hyper).at(point)
    assert beliefs.mean[0] == pytest.approx(c * 1.4 / 2.0, rel=1e-6)
    assert beliefs.variance[0] == pytest.approx(1.7 - c * c / 2.0, rel=1e-6)


def test_against_the_dense_formulas() -> None:
    rng = np.random.default_rng(0)
    x, y, points = rng.normal(size=(9, 3)), rng.normal(size=9), rng.normal(size=(5, 3))
    hyper = Hyper(rng.normal(size=3) * 0.3, 0.4, -2.0)
    noisy = kernel(x, x, hyper) + math.exp(-2.0) * np.eye(9)
    cross = kernel(x, points, hyper)
    beliefs = Posterior.of(x, y, hyper).at(points)
    np.testing.assert_allclose(beliefs.mean, cross.T @ np.linalg.solve(noisy, y), rtol=1e-5, atol=1e-7)
    covariance = kernel(points, points, hyper) - cross.T @ np.linalg.solve(noisy, cross)
    np.testing.assert_allclose(beliefs.variance, np.diag(covariance), rtol=1e-5, atol=1e-7)


def test_noise_of_each_value_against_the_dense_formulas() -> None:
    rng = np.random.default_rng(4)
    x, y, points, known = rng.normal(size=(9, 3)), rng.normal(size=9), rng.normal(size=(5, 3)), rng.random(9)
    hyper = Hyper(rng.normal(size=3) * 0.3, 0.4, -2.0)
    noisy = kernel(x, x, hyper) + np.diag(math.exp(-2.0) + known)
    cross = kernel(x, points, hyper)
    beliefs = Posterior.of(x, y, hyper, known).at(points)
    np.testing.assert_allclose(beliefs.mean, cross.T @ np.linalg.solve(noisy, y), rtol=1e-5, atol=1e-7)
    prior, v = Prior.of_dimension(3), rng.normal(size=5) * 0.5
    _, gradient = objective(v, x, y, prior, known=known)
    for k in range(5):
        step = np.eye(5)[k] * 1e-5
        ends = [objective(v + sign * step, x, y, prior, known=known)[0] for sign in (1, -1)]
        assert gradient[k] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-3, abs=1e-4)


def test_a_noisy_value_pulls_the_mean_less() -> None:
    """Two values at one place, of which one was measured with far more noise: the mean is near the other one."""
    x, y = np.zeros((2, 1)), np.array([1.0, -1.0])
    hyper = Hyper(np.zeros(1), 0.0, math.log(1e-2))
    even = Posterior.of(x, y, hyper).at(x[:1]).mean[0]
    first = Posterior.of(x, y, hyper, np.array([0.0, 1.0])).at(x[:1]).mean[0]
    assert even == pytest.approx(0.0, abs=1e-6) and first > 0.9


def test_believing_is_observing_the_mean() -> None:
    rng = np.random.default_rng(1)
    x, y, points = rng.normal(size=(7, 2)), rng.normal(size=7), rng.normal(size=(6, 2))
    hyper = Hyper(np.zeros(2), 0.2, -2.5)
    before = Posterior.of(x, y, hyper).at(points)
    after = before.believing(3).believing(5)
    x2 = np.concatenate([x, points[[3, 5]]])
    y2 = np.concatenate([y, before.mean[[3, 5]]])
    again = Posterior.of(x2, y2, hyper).at(points)
    np.testing.assert_allclose(after.mean, again.mean, atol=1e-6)
    np.testing.assert_allclose(after.variance, again.variance, atol=1e-6)
    assert after.variance[3] < before.variance[3]


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 3), (12, 5)])
def test_the_gradient_is_that_of_the_objective(n: int, d: int, rough: bool) -> None:
    rng = np.random.default_rng(n * 10 + d)
    x, y = rng.normal(size=(n, d)), rng.normal(size=n)
    prior = Prior.of_dimension(d)
    v = rng.normal(size=d + 2) * 0.5
    _, gradient = objective(v, x, y, prior, rough=rough)
    for i in range(d + 2):
        step = np.zeros(d + 2)
        step[i] = 1e-5
        numeric = (
            objective(v + step, x, y, prior, rough=rough)[0] - objective(v - step, x, y, prior, rough=rough)[0]
        ) / 2e-5
        assert gradient[i] == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def test_the_objective_in_closed_form() -> None:
    v = np.array([0.3, -0.2, -1.0])
    prior = Prior.of_dimension(1)
    s = math.exp(-0.2) + math.exp(-1.0)
    likelihood = -0.5 * 1.5**2 / s - 0.5 * math.log(s) - 0.5 * math.log(2 * math.pi)
    t = [0.3 - prior.length[0], -0.2 - prior.signal[0], (-1.0 - prior.noise[0]) / prior.noise[1]]
    value, _ = objective(v, np.array([[0.7]]), np.array([1.5]), prior)
    assert value == pytest.approx(-likelihood + 0.5 * sum(a * a for a in t), rel=1e-6)


def test_it_learns_which_features_matter() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(80, 8))
    y = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1]
    y = (y - y.mean()) / y.std()
    hyper = fit(x[:60], y[:60])
    assert hyper.log_lengths[0] + 1.0 < hyper.log_lengths[2:].min()
    beliefs = Posterior.of(x[:60], y[:60], hyper).at(x[60:])
    assert np.corrcoef(beliefs.mean, y[60:])[0, 1] > 0.9


def test_equal_inputs_and_constant_targets_are_no_trouble() -> None:
    x = np.zeros((6, 3))
    hyper = fit(x, np.zeros(6))
    beliefs = Posterior.of(x, np.zeros(6), hyper).at(np.ones((2, 3)))
    assert np.isfinite(beliefs.mean).all() and (beliefs.variance >= 0).all()


def test_no_features_at_all() -> None:
    beliefs = Posterior.of(
        np.zeros((3, 0)), np.array([1.0, 0.0, -1.0]), fit(np.zeros((3, 0)), np.array([1.0, 0.0, -1.0]))
    )
    assert abs(beliefs.at(np.zeros((1, 0))).mean[0]) < 1e-9
