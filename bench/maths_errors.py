"""Searches for the largest errors of the maths functions of kernels.

    python -m bench.maths_errors                             of float32, half a minute a function
    python -m bench.maths_errors --type f64                  of float64
    python -m bench.maths_errors --effort 64 --functions exp of float32: all 2**32 arguments

The error is in ulps, units in the last place of the exact result. Arguments are cut into cells by their sign, exponent and
the upper bits of their fraction: in a cell the terms of an error are about the same, and what is left are roundings. The
first step draws arguments from all cells, each later one from parts of the cells whose errors were the largest; the last
step takes all float32 of a cell. With `--effort E` there are E times as many arguments in the first step, and E times as many
cells after it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.exact import exact
from bench.maths import FORMATS, FUNCTIONS, LANES, compiled, ulps
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.ir.maths import MATHS

Array = NDArray[Any]

BLOCK = 2**16
"""The arguments of a call, few enough for a cache."""

FIRST = 16
"""The bits of an argument that number the cells of the first step."""

PAIRS = 2**18
"""The cells of the first step of a function of two arguments."""


@dataclass(frozen=True, slots=True)
class Step:
    """The `cells` of the largest errors before are cut by `bits` more bits, and from each part `samples` arguments are drawn;
    of one float32, all are taken with `samples` 0."""

    cells: int
    bits: int
    samples: int


def steps(t: str, count: int, effort: int) -> tuple[Step, ...]:
    if count == 1 and t == "f32":
        return (Step(2**FIRST, 0, 256), Step(1024 * effort, 0, 0))
    later = (Step(512 * effort, 4, 64), Step(512 * effort, 4, 64), Step(512 * effort, 4, 256))
    return (Step(PAIRS, 0, 16 * effort), *later) if count > 1 else (Step(2**FIRST, 0, 64 * effort), *later)


@dataclass(frozen=True, slots=True)
class Found:
    """The largest error in ulps, the arguments that have it, and how many were looked at."""

    error: float
    at: tuple[float, ...]
    arguments: int


def search(function: str, t: str = "f32", effort: int = 1, seed: int = 0) -> Found:
    """The largest error that the steps of a search find."""
    count, bits, rng = MATHS[function].count, 8 * np.dtype(FORMATS[t][0]).itemsize, np.random.default_rng(seed)
    kernel, kept = load(compiled(function, BLOCK, LANES, t=t)), FIRST
    out = np.empty(BLOCK, FORMATS[t][0])
    cells = np.arange(2**FIRST, dtype=np.uint64)[:, None] if count == 1 else _pairs(function, t, rng)
    worst = Found(-1.0, (), 0)
    for step in steps(t, count, effort):
        cells, kept = _parts(cells[: step.cells], step.bits, rng), kept + step.bits
        largest = np.full(len(cells), -1.0)
        for some, x in _arguments(cells, bits - kept, step.samples, rng):
            given = [np.resize(a.astype(f"u{bits // 8}"), BLOCK).view(out.dtype) for a in x.T]
            kernel(*given, out)
            error = np.asarray(ulps(out, exact(function, *given), t), np.float64)[: len(x)]
            k = int(np.argmax(error))
            at = tuple(float(a[k]) for a in given)
            worst = Found(*max((worst.error, worst.at), (float(error[k]), at)), worst.arguments + len(x))
            np.maximum.at(largest, some, error)
        cells = cells[np.argsort(-largest, kind="stable")]
    return worst


def _parts(cells: Array, bits: int, rng: np.random.Generator) -> Array:
    """The cells, each cut into parts by so many more bits: all parts of one argument, as many pairs of two."""
    if not bits:
        return cells
    each = np.arange(2**bits, dtype=np.uint64)
    more = np.stack([each, *(rng.permutation(each) for _ in range(cells.shape[1] - 1))], axis=1)
    return ((cells[:, None, :] << np.uint64(bits)) | more).reshape(-1, cells.shape[1])


def _arguments(cells: Array, free: int, samples: int, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Arguments of the cells, at most `BLOCK` at a time, as the numbers of their cells and their bits."""
    count = samples or 2**free
    together = max(1, BLOCK // count)
    for start in range(0, len(cells), together):
        some = np.arange(start, min(start + together, len(cells)))
        for begin in range(0, count, BLOCK):
            n = min(count, BLOCK)
            shape = (len(some), n, cells.shape[1])
            all_of = np.arange(begin, begin + n, dtype=np.uint64)[None, :, None]
            low = rng.integers(0, 2**free, shape, dtype=np.uint64) if samples else np.broadcast_to(all_of, shape)
            yield np.repeat(some, n), ((cells[some][:, None, :] << np.uint64(free)) | low).reshape(-1, cells.shape[1])


def _pairs(function: str, t: str, rng: np.random.Generator) -> Array:
    """Cells of two arguments: of all bits, around 0 and 1, and up to where `exp` ends; the second argument is as large as the
    first, any other, or gives a finite power, which may be whole."""
    stored, wide, least, largest, fraction = FORMATS[t]
    word = np.dtype(f"u{np.dtype(stored).itemsize}")
    n = PAIRS // 4
    with np.errstate(all="ignore"):
        every = rng.integers(0, np.iinfo(word).max, n, dtype=word, endpoint=True).view(stored)
        sizes = rng.standard_normal(n) * 2.0 ** rng.integers(-40, 8, n)
        around = 1 + rng.uniform(-1, 1, n) * 2.0 ** rng.integers(-40, 1, n)
        x = np.concatenate([every.astype(wide), sizes, around, rng.uniform(-760, 760, n)])
        limit = np.log2(np.abs(x))
        power = rng.uniform(least - fraction, largest + 1, PAIRS) / np.where(limit == 0, 1, limit)
        near = power if function == "pow" else x
        y = np.where(rng.random(PAIRS) < 0.7, near * rng.uniform(0.1, 1, PAIRS), rng.permutation(x))
        y = np.where((rng.random(PAIRS) < 0.3) & (function == "pow"), np.rint(y), y)
        both = (a.astype(stored).view(word).astype(np.uint64) for a in (x, y))
        return np.stack([a >> np.uint64(8 * word.itemsize - FIRST) for a in both], axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", choices=tuple(FORMATS), default="f32")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=FUNCTIONS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for function in arguments.functions:
        found = search(function, arguments.type, arguments.effort, arguments.seed)
        at = ", ".join(map(repr, found.at))
        print(f"{function:<8} {arguments.type} {found.error:.4f} ulp at {at} of {found.arguments:,}", flush=True)


if __name__ == "__main__":
    main()
