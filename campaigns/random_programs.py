"""The computes of `schedules.tsched` at random sizes: small, and mostly such that nothing divides them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.ir.program import Program

FILE = Path(__file__).with_name("schedules.tsched")

Sizes = Mapping[str, int]


@cache
def computes() -> CheckedFile:
    return load_source(Source.read(FILE))


def _size(rng: random.Random) -> int:
    return rng.choice([1, 2, 3, 3, 4, 5, 5, 7])


def _plain(*names: str) -> Callable[[random.Random], Sizes]:
    return lambda rng: {n: _size(rng) for n in names}


def _conv(rng: random.Random, **fixed: int) -> Sizes:
    kernel = {"KH": rng.choice([1, 2, 3]), "KW": rng.choice([1, 3])}
    sizes = {"N": 1, "CI": rng.choice([1, 2]), "CO": rng.choice([1, 3]), **kernel, **fixed}
    dilation, pad = sizes.get("dilation", 1), sizes.get("pad", 0)
    for side, k in (("H", "KH"), ("W", "KW")):
        least = dilation * (kernel[k] - 1) + 1 - 2 * pad
        sizes[side] = max(1, least) + rng.choice([0, 1, 2, 3])
    return sizes


def _transposed(rng: random.Random) -> Sizes:
    return {
        "H": rng.choice([2, 3]), "W": rng.choice([2, 3]), "CI": rng.choice([1, 2]), "CO": rng.choice([1, 3]), "KH": 3,
        "KW": rng.choice([2, 3]), "stride": rng.choice([1, 2]),
    }  # fmt: skip


SIZES: dict[str, tuple[str, Callable[[random.Random], Sizes]]] = {
    "matmul": ("matmul", _plain("M", "N", "K")),
    "dense": ("dense", _plain("M", "N", "K")),
    "quantized": ("quantized", _plain("M", "N", "K")),
    "bytes": ("quantized", lambda rng: {"M": rng.choice([1, 2]), "N": 16, "K": rng.choice([4, 4, 8])}),
    "biased": ("biased", _plain("M", "N", "K")),
    "capped": ("capped", _plain("M", "N")),
    "strided": ("conv2d_nhwc", lambda rng: _conv(rng, stride=2)),
    "dilated": ("conv2d_nhwc", lambda rng: _conv(rng, dilation=2)),
    "padded": ("conv2d_nhwc", lambda rng: _conv(rng, pad=1)),
    "depthwise": ("conv2d_nhwc", lambda rng: _conv(rng, CI=3, CO=3, groups=3)),
    "transposed": ("transposed", _transposed),
    "softmax": ("softmax", _plain("M", "N")),
    "layer_norm": ("layer_norm", _plain("M", "N")),
    "attention": ("attention", lambda rng: {n: rng.choice([1, 2, 3, 5]) for n in ("M", "N", "D", "E")}),
    "cumsum": ("cumsum", _plain("N", "M")),
    "argmax": ("argmax", _plain("M", "N")),
    "log_sum_exp": ("log_sum_exp", _plain("M", "N")),
    "chain": ("chain", lambda rng: {**_plain("M", "N")(rng), "pad": rng.choice([1, 1, 2])}),
    "counts": ("counts", lambda rng: {**_plain("N", "M")(rng), "V": rng.choice([2, 3, 5])}),
    "gather": ("gather", _plain("V", "D", "N")),
    "bags": ("bags", _plain("V", "D", "N", "L")),
    "swept": ("swept", _plain("N", "M")),
    "windows": ("windows", lambda rng: {"T": rng.choice([3, 5, 8, 11]), "N": rng.choice([1, 2, 3, 5])}),
}
"""By name: a compute of the file, and sizes for it."""


def random_program(rng: random.Random, name: str | None = None) -> tuple[Program, str]:
    """A program, and the line of a task that has these sizes."""
    name = rng.choice(sorted(SIZES)) if name is None else name
    compute, sizes = SIZES[name]
    bound = sizes(rng)
    file = computes()
    line = f"task it = {compute}({', '.join(f'{k}={v}' for k, v in bound.items())})"
    program = elaborate(file.computes[compute], bound, compute, file.library)
    return replace(program, intrinsics=file.instructions), line
