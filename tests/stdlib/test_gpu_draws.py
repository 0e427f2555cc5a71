"""Most draws of the spaces for GPUs fit the machine, and no schedule that fits is excluded."""

from __future__ import annotations

from contextlib import suppress
from math import prod
from pathlib import Path

import pytest

import tensorc_dsl as td
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.draws.tiles import PerfectTile
from tensorc_dsl.schedule.trace.factors import Factors, random_factors
from tensorc_dsl.schedule.trace.trace import Site
from tensorc_dsl.tuning.search.expansion import stream
from tests.gpu.kernels import DRAWS
from tests.stdlib.gpu_checks import task

COUNT = max(4, DRAWS)
"""Draws of each task."""

TASKS = [
    ("default", "matmul(M=1024, N=1024, K=512)"),
    ("default", "matmul(M=4096, N=4096, K=4096)"),
    ("default", "matmul(M=1000, N=777, K=513)"),
    ("default", "conv2d_nhwc(N=1, H=56, W=56, CI=64, KH=3, KW=3, CO=64, pad=1)"),
    ("default", "conv2d_nhwc(N=1, H=7, W=7, CI=512, KH=3, KW=3, CO=512, pad=1)"),
    ("default", "softmax(M=256, N=1024)"),
    ("tensor_core", "half_matmul(M=1024, N=1024, K=512)"),
    ("tensor_core", "half_matmul(M=4096, N=4096, K=4096)"),
    ("tensor_core", "half_matmul(M=1000, N=777, K=513)"),
    ("tensor_core", "conv2d_nhwc(N=1, H=56, W=56, CI=64, KH=3, KW=3, CO=64, pad=1, T=f16, Acc=f32)"),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("space", "text"), TASKS)
def test_most_draws_fit_the_machine(space: str, text: str, tmp_path: Path) -> None:
    t, fit = task(tmp_path, text, space), 0
    rng = stream(1, t.name, "gpu")
    for _ in range(COUNT):
        with suppress(ScheduleRefusal):
            t.model.sample(rng)
            fit += 1
    assert 2 * fit >= COUNT


@pytest.mark.corpus
def test_every_tile_that_fits_can_be_drawn(tmp_path: Path) -> None:
    """Tiles of a product are drawn without limits; those that fit by a count of its own are all in the supports."""
    threads, shared, registers = 8, 48, 280
    (tmp_path / "small.tsched").write_text(
        "use std.ops.{matmul}\nuse std.gpu.default\n"
        f"target small = cuda(threads={threads}, shared_memory={shared}, registers={registers})\n"
        "task t = matmul(M=4, N=4, K=4)\n"
    )
    t = td.load(tmp_path / "small.tsched")["t"]
    rng = stream(0, t.name, "tiles")
    names = [d.name for d in t.sample(0).draws if isinstance(d.distribution, PerfectTile)]
    assert len(names) == 3
    fit = 0
    for _ in range(150):
        i, j, k = random_factors(4, 5, rng), random_factors(4, 5, rng), random_factors(4, 3, rng)
        count, sums = i[2] * j[2], prod((i[1], i[3], i[4], j[1], j[3], j[4]))
        if count > threads or count * (sums + 32) > registers:
            continue
        if 4 * (prod(i[1:]) + prod(j[1:])) * prod(k[1:]) > shared:
            continue
        fit += 1
        wanted = dict(zip(names, (i, j, k), strict=True))
        asked: list[str] = []

        def decide(site: Site, wanted: dict[str, Factors] = wanted, asked: list[str] = asked) -> Decision:
            if site.name not in wanted:
                return site.distribution.sample(rng)
            asked.append(site.name)
            assert site.distribution.contains(wanted[site.name]), wanted
            return wanted[site.name]

        with suppress(ScheduleRefusal):  # of boxes that are larger than what is touched
            t.model.expand(decide)
        assert asked == names
    assert fit >= 20


@pytest.mark.corpus
def test_draws_go_up_to_the_limits(tmp_path: Path) -> None:
    """Some use a warp, some most of the threads that a block can have."""
    t = task(tmp_path, "matmul(M=512, N=512, K=64)")
    rng = stream(3, t.name, "limits")
    used: list[int] = []
    for _ in range(24):
        with suppress(ScheduleRefusal):
            draws = t.model.sample(rng).draws
            tiles = [d.decision for d in draws if isinstance(d.distribution, PerfectTile)]
            used.append(prod(x[2] for x in tiles[:2]))  # type: ignore[index]
    assert min(used) == 32 and max(used) >= 512
