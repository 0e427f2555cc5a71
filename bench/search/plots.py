"""Draws the log of a long search: `python -m bench.search.plots FOLDER --into FILE`.

Three plots over the trials: the latency of the network with the best programs so far; the error of the model (root mean
square, of the log speed) on trials that it predicted before they were measured, beside what it stated; and the share of the
time that went into choosing and learning. The first two are those of Rocke's poster. Needs matplotlib, of the extra `bench`.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from bench.search.long import LOG, Batch, read
from bench.search.tables import Array

WINDOW = 500
"""Trials over which an error and a share are taken."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Values after so many trials."""

    trials: Array
    values: Array

    @staticmethod
    def of(points: Sequence[tuple[float, float]]) -> Curve:
        rows = np.array(points, dtype=np.float64).reshape(-1, 2)
        return Curve(rows[:, 0], rows[:, 1])


def latency(batches: Sequence[Batch]) -> Curve:
    """Seconds of the network, once each layer has a time."""
    return Curve.of([(b.trials, b.latency) for b in batches if b.latency is not None])


def errors(batches: Sequence[Batch], window: int = WINDOW) -> tuple[Curve, Curve]:
    """The error of the predictions of the last trials, and what the model stated it to be, both by root mean square."""
    at: list[int] = []
    squares: list[tuple[float, float]] = []
    for b in batches:
        for t in b.tried:
            if t.seconds is not None and t.mean is not None and t.deviation is not None:
                at.append(b.trials)
                squares.append(((-float(np.log(t.seconds)) - t.mean) ** 2, t.deviation**2))
    ends = [n for n in range(len(at)) if n + 1 == len(at) or at[n + 1] != at[n]]
    rows: Array = np.array([(0.0, 0.0), *squares])
    sums: Array = np.cumsum(rows, axis=0)
    last = [(n, max(0, n + 1 - window)) for n in ends]
    roots = [np.sqrt((sums[n + 1] - sums[since]) / (n + 1 - since)) for n, since in last]
    error, stated = ([(at[n], float(r[k])) for n, r in zip(ends, roots, strict=True)] for k in (0, 1))
    return Curve.of(error), Curve.of(stated)


def choosing(batches: Sequence[Batch], window: int = WINDOW) -> tuple[Curve, Curve]:
    """The share of the time that went into choosing and learning: lately, and in all. Resumed batches have no time."""
    timed = [b for b in batches if not b.recorded]
    asked: Array = np.cumsum([0.0, *(b.asking + b.learning for b in timed)])
    took: Array = np.cumsum([0.0, *(b.elapsed for b in timed)])
    made = list(accumulate((len(b.tried) for b in timed), initial=0))
    lately: list[tuple[float, float]] = []
    in_all: list[tuple[float, float]] = []
    for n, b in enumerate(timed, 1):
        since = bisect_left(made, made[n] - window)
        lately.append((b.trials, (asked[n] - asked[since]) / (took[n] - took[since])))
        in_all.append((b.trials, asked[n] / took[n]))
    return Curve.of(lately), Curve.of(in_all)


def drawn(batches: Sequence[Batch], into: Path) -> None:
    """The three plots are in the file, whose ending says its format."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tensorc-dsl"  # equal logs make equal files
    plt: Any = import_module("matplotlib.pyplot")
    figure, (above, middle, below) = plt.subplots(3, 1, figsize=(8, 10), sharex=True, layout="constrained")
    tasks = len({b.task for b in batches})
    figure.suptitle(f"{batches[-1].trials:,} trials of {tasks} layers of MobileNet-V2")
    one = latency(batches)
    above.step(one.trials, 1e3 * one.values, where="post")
    above.set_ylabel("latency of the network (ms)")
    above.set_ylim(0, 2e3 * float(np.median(one.values)))  # the first best times are many times as long
    measured, stated = errors(batches)
    middle.plot(measured.trials, measured.values, label="measured")
    middle.plot(stated.trials, stated.values, linestyle="--", label="stated by the model")
    middle.set_ylabel("RMSE of the log speed")
    middle.set_title(f"error of the model on the last {WINDOW} trials it predicted", fontsize="medium")
    lately, in_all = choosing(batches)
    below.plot(lately.trials, 100 * lately.values, label=f"last {WINDOW} trials")
    below.plot(in_all.trials, 100 * in_all.values, linestyle="--", label="all trials")
    below.set_ylabel("choosing and learning (% of the time)")
    below.set_xlabel("trials")
    for axes in (middle, below):
        axes.set_ylim(bottom=0)
        axes.legend()
    for axes in (above, middle, below):
        axes.grid(alpha=0.3, which="both")
        axes.set_xlim(left=0)
    into.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(into, metadata={"Date": None} if into.suffix == ".svg" else None, dpi=120)
    plt.close(figure)


def summary(batches: Sequence[Batch]) -> str:
    """A table: after so many trials, the latency, the error, the share of choosing, and the memory."""
    (error, stated), (lately, in_all) = errors(batches), choosing(batches)
    lines = [
        "| trials | latency, ms | error | stated | choosing, lately | in all | memory, MB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    last = batches[-1].trials
    marks = [n for n in (500, 1000, 2000, 5000, 10_000) if n < last]
    for n in (*marks, last):
        b = max((b for b in batches if b.trials <= n), key=lambda b: b.trials)
        ms = "" if b.latency is None else f"{1e3 * b.latency:.3f}"
        parts = [
            f"{_at(error, n, '.2f')}",
            f"{_at(stated, n, '.2f')}",
            f"{_at(lately, n, '.0%')}",
            f"{_at(in_all, n, '.0%')}",
        ]
        lines.append(f"| {b.trials} | {ms} | {' | '.join(parts)} | {b.memory / 1e6:.0f} |")
    return "\n".join(lines)


def _at(curve: Curve, trials: int, form: str) -> str:
    """The last value after at most so many trials."""
    known = int(np.searchsorted(curve.trials, trials, side="right"))
    return format(float(curve.values[known - 1]), form) if known else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="that of bench.search.long")
    parser.add_argument("--into", type=Path, default=Path("build/long-search.svg"), help="an .svg or .png")
    chosen = parser.parse_args()
    batches = read(chosen.folder / LOG)
    if not batches:
        raise SystemExit(f"{chosen.folder / LOG} has no batches")
    drawn(batches, chosen.into)
    print(summary(batches))


if __name__ == "__main__":
    main()
