"""How often open sizes occur: the sizes that stand for others, their weights, and texts that keep them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl import load
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.cases import geometric, narrowed, representatives
from tensorc_dsl.ir.expr import Dim
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.reference.work import sizing

TEXT = """
const lengths = {1: 60, 2: 20, 16: 10, 64: 10}
compute scale(X: f32[M, N]) -> Y: f32[M, N] {
    Y[i, j] = X[i, j] * 2.0
}
schedule plain for scale {
    vectorize(Y.loops[1])
}
task some = scale(M=1..64 like LIKE, N=8)
"""


def file(tmp_path: Path, like: str) -> str:
    path = tmp_path / "like.tsched"
    path.write_text(TEXT.replace("LIKE", like))
    return str(path)


@pytest.mark.parametrize("like", ["lengths", "{1: 60, 2: 20, 16: 10, 64: 10}"])
def test_sizes_are_timed_with_their_weights(tmp_path: Path, like: str) -> None:
    program = load(file(tmp_path, like))["some"].program
    found = sizing(program)
    assert [x["M"] for x in found.timed] == [1, 2, 16, 64]
    assert found.weights == pytest.approx((0.6, 0.2, 0.1, 0.1))
    assert parse_program(Source("t", format_program(program))) == program


def test_a_part_of_the_range_has_its_own_sizes(tmp_path: Path) -> None:
    program = load(file(tmp_path, "lengths"))["some"].program
    assert narrowed(program, ["M"], ((2, 20),)).dims == (Dim("M", 2, 20, (2, 16), (20.0, 10.0)),)


def test_the_file_of_a_schedule_needs_no_constant(tmp_path: Path) -> None:
    task = load(file(tmp_path, "lengths"))["some"]
    kept = tmp_path / "kept" / "best.tsched"
    kept.parent.mkdir()
    task.replay(task.sample(0)).save(kept)
    assert sizing(load(str(kept))["some"].program) == sizing(task.program)


@pytest.mark.parametrize("seed", range(50))
def test_few_sizes_stand_for_many(seed: int) -> None:
    rng = random.Random(seed)
    counts = {rng.randint(1, 500): rng.choice([1.0, 3.0, 50.0]) for _ in range(rng.randint(1, 60))}
    found = representatives(counts, 5)
    assert set(found) <= set(counts) and len(found) <= 5
    assert sum(found.values()) == pytest.approx(sum(counts.values()))
    if len(counts) <= 5:
        assert found == {n: counts[n] for n in sorted(counts)}
    assert list(found) == sorted(found)


@pytest.mark.parametrize(("mean", "low", "high"), [(1.5, 1, 64), (20, 1, 512), (40, 3, 60), (5000, 1, 4096), (9, 7, 7)])
def test_a_geometric_distribution_has_sizes_at_its_quantiles(mean: float, low: int, high: int) -> None:
    sizes = np.arange(low, high + 1)
    mass = (1 - 1 / mean) ** (sizes - low)
    passed = np.cumsum(mass) / mass.sum()
    wanted = [int(sizes[np.searchsorted(passed, (k + 0.5) / 5, side="right")]) for k in range(5)]
    found = geometric(mean, low, high)
    assert sum(found.values()) == pytest.approx(1.0)
    assert list(found) == sorted(set(wanted))


def test_counts_of_another_file_and_geometric_ones(tmp_path: Path) -> None:
    (tmp_path / "day.tsched").write_text("const lengths = {1: 60, 2: 20, 16: 10, 64: 10}\n")
    text = TEXT.replace("const lengths = {1: 60, 2: 20, 16: 10, 64: 10}", "use day.{lengths}")
    path = tmp_path / "like.tsched"
    path.write_text(text.replace("LIKE", "lengths"))
    assert [x["M"] for x in sizing(load(str(path))["some"].program).timed] == [1, 2, 16, 64]
    path.write_text(text.replace("LIKE", "geometric(10)"))
    found = sizing(load(str(path))["some"].program)
    assert [x["M"] for x in found.timed] == [*geometric(10.0, 1, 64)]
    assert found.weights == pytest.approx((0.2,) * 5)


@pytest.mark.parametrize(
    ("like", "code"),
    [
        ("geometric(1)", "E0254"),
        ("geometric(20, 3)", "E0254"),
        ("geometric(mean=20)", "E0254"),
        ('geometric("a")', "E0254"),
        ("[1, 2]", "E0254"),
        ("{1: 0}", "E0254"),
        ("{1: 2, 1: 3}", "E0254"),
        ('{"a": 2}', "E0254"),
        ("nothing", "E0254"),
        ("{65: 1}", "E0247"),
    ],
)
def test_what_says_nothing_of_sizes(tmp_path: Path, like: str, code: str) -> None:
    with pytest.raises(TschedError, match=code):
        load(file(tmp_path, like))
