"""How well the times of recorded tables are predicted: `python -m bench.search.errors FOLDER [--trained FOLDER…]`.

For each task: the model of the processor by itself (`model`), with trees on what it misses on the other tasks (`trees`),
and a search's own process and trees after so many rows of the task, on its features alone and with the model as mean. Each
line has the rank correlation with the measured times, the share of the best known speed of the first choice and of the best
of eight, the median error of the logarithm, and that among the rows within twice the best time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.search.tables import FOLDER, Array, Table, read_all
from tensorc_dsl.processes.machine import one_blas_thread
from tensorc_dsl.tuning.search.model import Forest, Memory, Model

AFTER = (64, 160)
"""So many rows of the task are known."""

SEEDS = 2
"""Choices of those rows."""

CLOSE, SLOW = np.log(2.0), 3.0
"""Rows within this of the best are told by themselves; those beyond the second count as that slow in fits."""


@dataclass(frozen=True, slots=True)
class Score:
    rank: float
    first: float
    of_eight: float
    error: float
    close: float


def scored(predicted: Array, times: Array) -> Score:
    """What a prediction of logarithms of times is worth; errors are beside the median of both, as only order counts."""
    order = np.argsort(predicted, kind="stable")
    apart = predicted - times
    near = times < times.min() + CLOSE
    return Score(
        float(np.corrcoef(_ranks(predicted), _ranks(times))[0, 1]),
        float(np.exp(times.min() - times[order[0]])),
        float(np.exp(times.min() - times[order[:8]].min())),
        float(np.median(np.abs(apart - np.median(apart)))),
        float(np.median(np.abs(apart[near] - np.median(apart[near])))),
    )


def _ranks(x: Array) -> Array:
    return np.argsort(np.argsort(x, kind="stable"), kind="stable").astype(np.float64)


def known(table: Table) -> tuple[Array, Array]:
    """Features, and logarithms of times, of the rows that ran."""
    rows = [n for n, s in enumerate(table.seconds) if s is not None]
    return table.features[rows], np.log([s for s in table.seconds if s is not None])


def cycles_of(features: Array) -> Array:
    """The logarithm of the model's cycles, which the first column has to base 2."""
    return features[:, 0] * np.log(2.0)


def by_trees(features: Array, others: Mapping[str, tuple[Array, Array]]) -> Array:
    """The model, and what trees expect it to miss after the other tasks."""
    rows, missed, weights = list[Array](), list[Array](), list[Array]()
    for x, y in others.values():
        apart = y - cycles_of(x)
        value = np.clip(apart - np.median(apart), -SLOW, SLOW)
        worth = np.exp(-0.5 * np.minimum(y - y.min(), SLOW))
        rows.append(x)
        missed.append(value)
        weights.append(worth / worth.sum())
    w = np.concatenate(weights)
    forest = Forest.fit(
        np.vstack(rows), np.concatenate(missed), trees=150, share=0.3, weights=w * len(w) / w.sum(), shrink=4.0
    )
    return cycles_of(features) + forest.at(features)


def learnt(features: Array, times: Array, count: int, seed: int, *, mean: bool) -> dict[str, Score]:
    """What is predicted of the other rows after some."""
    order = np.random.default_rng(seed).permutation(len(times))
    mine, rest = order[:count], order[count:]
    prior = -cycles_of(features) if mean else np.zeros(len(times))
    process = Model.of(features[mine], list(np.exp(times[mine])), prior[mine], Memory())
    said, _ = process.log_speed(features[rest], prior[rest])
    apart = np.clip(times[mine] + prior[mine] - np.median(times[mine] + prior[mine]), -SLOW, SLOW)
    forest = Forest.fit(features[mine], apart)
    grown = forest.at(features[rest]) - prior[rest]
    by = {"process": -said, "trees": grown, "both": (-said + grown - np.median(grown + said)) / 2}
    return {name: scored(p, times[rest]) for name, p in by.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--trained", nargs="*", type=Path, help="folders whose other tasks trees learn from; this one")
    parser.add_argument("--no-curves", action="store_true", help="nothing is learnt from rows of the task")
    parser.add_argument("--old", action="store_true", help="the first column is no model's: learning only")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    tables = {n: known(t) for n, t in read_all(chosen.folder).items()}
    past = [{n: known(t) for n, t in read_all(f).items()} for f in chosen.trained or [chosen.folder]]
    found: dict[str, dict[str, list[Score]]] = {}
    with one_blas_thread():
        for task, (x, y) in tables.items():
            mine = found.setdefault(task, {})
            if not chosen.old:
                others = {f"{k} {n}": one for k, p in enumerate(past) for n, one in p.items() if n != task}
                mine["model"] = [scored(cycles_of(x), y)]
                mine["model, trees on other tasks"] = [scored(by_trees(x, others), y)]
            for count in () if chosen.no_curves else AFTER:
                for seed in range(SEEDS) if count < 0.8 * len(y) else ():
                    for mean in (False,) if chosen.old else (False, True):
                        for name, score in learnt(x, y, count, seed, mean=mean).items():
                            mine.setdefault(f"{name} after {count}{', model as mean' * mean}", []).append(score)
    means = {
        task: {name: Score(*np.mean([list(asdict(s).values()) for s in some], axis=0)) for name, some in mine.items()}
        for task, mine in found.items()
    }
    if chosen.json:
        print(json.dumps({task: {n: asdict(s) for n, s in mine.items()} for task, mine in means.items()}))
        return
    names = list(dict.fromkeys(n for mine in means.values() for n in mine))
    for name in names:
        print(f"\n{name:<34}{'rank':>7}{'first':>7}{'of 8':>7}{'error':>7}{'close':>7}")
        rows = {task: list(asdict(mine[name]).values()) for task, mine in means.items() if name in mine}
        for task, row in rows.items():
            print(f"{task:<34}" + "".join(f"{v:7.2f}" for v in row))
        print(f"{'median':<34}" + "".join(f"{v:7.2f}" for v in np.median(list(rows.values()), axis=0)))


if __name__ == "__main__":
    main()
