"""Gradient-boosted regression trees on binned features (Friedman, Annals of Statistics 29, 2001; the binning of LightGBM).

A forest is a sum of trees of one depth, each fitted to the residuals of those before it. Features need no scaling; only
the order of the values of a column counts. Fitting is deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bins = NDArray[np.uint8]
Nodes = NDArray[np.intp]

BINS = 32
"""The most ranges of values of a feature that are distinguished."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """Splits by level: node n of a level goes to 2n where the feature's bin is at most the threshold, else to 2n + 1."""

    features: tuple[Nodes, ...]
    thresholds: tuple[Nodes, ...]
    leaves: Array

    def over(self, columns: Nodes) -> _Tree:
        """The tree over all columns, grown on some of them."""
        return _Tree(tuple(columns[f] for f in self.features), self.thresholds, self.leaves)

    def at(self, bins: Bins) -> Array:
        rows = np.arange(len(bins))
        node = np.zeros(len(bins), dtype=np.intp)
        for feature, threshold in zip(self.features, self.thresholds, strict=True):
            node = 2 * node + (bins[rows, feature[node]] > threshold[node])
        return self.leaves[node]


@dataclass(frozen=True, slots=True)
class Forest:
    """Boosted trees, fitted by `Forest.fit`."""

    edges: tuple[Array, ...]
    base: float
    rate: float
    trees: tuple[_Tree, ...]

    @staticmethod
    def fit(
        x: Array,
        y: Array,
        *,
        trees: int = 80,
        depth: int = 4,
        rate: float = 0.15,
        shrink: float = 1.0,
        share: float = 1.0,
        weights: Array | None = None,
    ) -> Forest:
        """Trees for rows of features `x` (n, d) and values `y` (n), by squared error.

        `shrink` is the L2 penalty on the values of the leaves, in rows. Each tree is grown on a random `share` of the
        columns. `weights` are those of the rows, 1 by default.
        """
        edges = tuple(_edges(column) for column in x.T)
        bins = _binned(x, edges)
        w = np.ones(len(y)) if weights is None else weights
        base = float((w * y).sum() / w.sum())
        left = y - base
        grown: list[_Tree] = []
        rng = np.random.Generator(np.random.Philox(key=0))
        first: dict[bytes, int] = {}
        group = np.array([first.setdefault(c.tobytes(), n) for n, c in enumerate(np.ascontiguousarray(bins.T))])
        for _ in range(trees if x.shape[1] else 0):
            columns = np.sort(rng.permutation(x.shape[1])[: max(1, round(share * x.shape[1]))])
            # Of equal columns the first would be chosen. Many are: draws of one branch are made together, or not at all.
            columns = columns[np.sort(np.unique(group[columns], return_index=True)[1])]
            tree = _grow(bins[:, columns], left, w, depth, shrink).over(columns)
            left = left - rate * tree.at(bins)
            grown.append(tree)
        return Forest(edges, base, rate, tuple(grown))

    def at(self, x: Array) -> Array:
        """The values of rows of features."""
        bins = _binned(x, self.edges)
        return self.base + self.rate * sum((t.at(bins) for t in self.trees), np.zeros(len(x)))


def _edges(column: Array) -> Array:
    """Midway between neighbouring values, or between quantiles where there are many."""
    values = np.unique(column)
    if len(values) > BINS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, BINS)))
    return (values[1:] + values[:-1]) / 2


def _binned(x: Array, edges: tuple[Array, ...]) -> Bins:
    out = np.empty(x.shape, dtype=np.uint8)
    for j, e in enumerate(edges):
        out[:, j] = np.searchsorted(e, x[:, j])
    return out


def _grow(bins: Bins, left: Array, w: Array, depth: int, shrink: float) -> _Tree:
    count, width = bins.shape
    most = int(bins.max(initial=0)) + 1
    node = np.zeros(count, dtype=np.intp)
    # A number for each value of each feature.
    cells: Nodes = bins.astype(np.intp) + most * np.arange(width, dtype=np.intp)
    values, weights = np.repeat(w * left, width), np.repeat(w, width)
    features: list[Nodes] = []
    thresholds: list[Nodes] = []
    for level in range(depth):
        nodes = 1 << level
        where: Nodes = (cells + (node * width * most)[:, None]).reshape(-1)
        size = nodes * width * most
        sums = np.bincount(where, values, size).reshape(nodes, width, most)
        counts = np.bincount(where, weights, size).reshape(nodes, width, most)
        low, low_count = sums.cumsum(2), counts.cumsum(2)
        total, total_count = low[:, :, -1:], low_count[:, :, -1:]
        # Twice the fall of the squared error, after Chen & Guestrin (KDD 2016), eq. 7, for squared loss.
        gain = low**2 / (low_count + shrink) + (total - low) ** 2 / (total_count - low_count + shrink)
        gain = np.where((low_count > 0) & (low_count < total_count), gain, -np.inf).reshape(nodes, -1)
        best = gain.argmax(1)
        feature, threshold = best // most, best % most
        features.append(feature)
        thresholds.append(threshold)
        node = 2 * node + (bins[np.arange(count), feature[node]] > threshold[node])
    leaves = np.bincount(node, w * left, 1 << depth) / (np.bincount(node, w, 1 << depth) + shrink)
    return _Tree(tuple(features), tuple(thresholds), leaves)
