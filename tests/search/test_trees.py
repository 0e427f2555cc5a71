"""Boosted trees: what they fit, what they ignore, and that they are the same each time."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.tuning.search.model import BINS, Forest


def test_steps_and_products_are_fitted() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((400, 6))
    y = 3.0 * (x[:, 0] > 0.4) + x[:, 1] * x[:, 2]
    found = Forest.fit(x[:300], y[:300]).at(x[300:])
    assert np.square(found - y[300:]).mean() < 0.05 * y.var()


def test_one_row_and_constant_columns_are_no_split() -> None:
    assert Forest.fit(np.zeros((1, 3)), np.array([2.0])).at(np.ones((2, 3))) == pytest.approx([2.0, 2.0])
    assert Forest.fit(np.zeros((3, 0)), np.arange(3.0)).at(np.zeros((2, 0))) == pytest.approx([1.0, 1.0])
    flat = Forest.fit(np.ones((5, 2)), np.arange(5.0))
    assert flat.at(np.array([[-7.0, 1.0], [9.0, 1.0]])) == pytest.approx([2.0, 2.0])


def test_columns_that_say_the_same_count_once() -> None:
    """Where a forest sees all columns, copies and columns of one value change nothing: the first of equal ones is chosen."""
    rng = np.random.default_rng(2)
    x, y, at = rng.integers(0, 3, (80, 5)).astype(float), rng.random(80), rng.random((20, 5))
    more = np.hstack([x, np.ones((80, 2)), x[:, ::-1], 2.0 * x])
    assert (Forest.fit(x, y).at(at) == Forest.fit(more, y).at(np.hstack([at, np.zeros((20, 12))]))).all()


def test_heavy_rows_count_for_more() -> None:
    x = np.zeros((2, 1))
    found = Forest.fit(x, np.array([0.0, 1.0]), weights=np.array([1.0, 3.0])).at(x[:1])
    assert found[0] == pytest.approx(0.75)


def test_a_split_is_the_one_that_counting_all_rows_finds() -> None:
    """Of two nodes only the smaller one is counted; each split must still be the best of all of its rows."""
    rng = np.random.default_rng(3)
    x, y, w = rng.integers(0, 9, (150, 4)).astype(float), rng.normal(size=150), rng.exponential(size=150)
    forest = Forest.fit(x, y, trees=3, shrink=2.0, weights=w)
    left = y - forest.base
    for tree in forest.trees:
        node = np.zeros(150, dtype=np.intp)
        for features, thresholds in zip(tree.features, tree.thresholds, strict=True):
            for n, (feature, threshold) in enumerate(zip(features, thresholds, strict=True)):
                rows = np.flatnonzero(node == n)
                gains = {
                    (f, t): sum((w[r] @ left[r]) ** 2 / (w[r].sum() + 2.0) for r in (rows[low], rows[~low]))
                    for f in range(4)
                    for t in range(8)
                    if 0 < (low := x[rows, f] <= t).sum() < len(rows)
                }
                assert not gains or gains[feature, threshold] == pytest.approx(max(gains.values()))
            node = 2 * node + (x[np.arange(150), features[node]] > thresholds[node])
        left = left - forest.rate * tree.at(x.astype(np.uint8))


def test_a_fit_is_a_function_of_its_rows() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.random((60, 9)), rng.random(60)
    assert (Forest.fit(x, y).at(x) == Forest.fit(x.copy(), y.copy()).at(x)).all()


def test_as_many_ranges_as_there_are_bins() -> None:
    x = np.arange(1000.0)[:, None]
    forest = Forest.fit(x, x[:, 0])
    assert len(forest.edges[0]) == BINS - 1
    assert np.corrcoef(forest.at(x), x[:, 0])[0, 1] > 0.99
    assert (np.diff(forest.at(x)) >= 0).all()
