"""The bench of open sizes: a task for each size, and what is made of the times."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.shapes import OPEN, SIZES, document, mean_and_least, row_of, size_of, text_with
from bench.shapes import Report as ShapesReport
from bench.shapes import Summary as ShapesSummary
from tensorc_dsl import load


@pytest.mark.parametrize("op", SIZES)
def test_each_size_has_a_task(op: str, tmp_path: Path) -> None:
    path = tmp_path / "shapes.tsched"
    path.write_text(text_with(op))
    file = load(path)
    dims = {d.name: d for d in file[f"{op}_open"].program.dims}
    for sizes in SIZES[op]:
        assert not file[f"{op}_{size_of(sizes)}"].program.dims
        assert all(dims[n].low <= size <= (dims[n].high or size) for n, size in sizes.items())


def test_ratios_are_of_times_to_the_open_kernel() -> None:
    from bench.against.turns import Reading

    def at(seconds: float) -> Reading:
        return Reading(seconds, seconds, seconds)

    row = row_of(
        "op", "M1", {"ours": at(1.0), OPEN.name: at(2.0), "numpy": at(6.0), "openvino": at(3.0), "torch": "no"}
    )
    assert (row.ratio("ours"), row.best_peer) == (0.5, 1.5)
    assert mean_and_least([0.5, 2.0, None]) == (1.0, 0.5) and mean_and_least([None]) is None
    report = ShapesReport((row,), (ShapesSummary("op", 8, 48, 1.0, 2, (1.0, 0.5), None),), {}, {"x": "y"}, "cpu", 2)
    text = document(report)
    assert "8 trials beside 48, 2 kernels; each / open 1.000 in the mean, 0.500 at least" in text
    assert "| op | M1 | 1,000,000.0 |" in text and "x is absent" in text
