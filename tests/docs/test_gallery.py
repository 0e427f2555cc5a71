"""The pictures of docs/gallery.md are those that its programs make."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from docs.generate.gallery import PAGE, PICTURES, png, read_png, shown, task
from tensorc_dsl.reference.evaluate import evaluate


def close(found: np.ndarray, picture: np.ndarray) -> None:
    """They differ by no more than the rounding of a byte."""
    assert found.shape == picture.shape
    assert np.abs(found.astype(int) - picture).max() <= 1


@pytest.mark.parametrize("name", [*shown()])
def test_a_picture_is_what_its_program_makes(name: str, tmp_path: Path) -> None:
    given, made = shown()[name], task(name, tmp_path)
    close(read_png((PICTURES / f"{name}-in.png").read_bytes()), given.picture)
    (result,) = evaluate(made.program, dict(given.inputs)).values()
    close(read_png((PICTURES / f"{name}-out.png").read_bytes()), result)


def test_every_picture_is_on_the_page_and_they_are_small() -> None:
    files = sorted(PICTURES.glob("*.png"))
    assert sorted(re.findall(r"\(gallery/([\w-]+\.png)\)", PAGE.read_text(encoding="utf-8"))) == [f.name for f in files]
    assert sum(f.stat().st_size for f in files) < 300_000


def test_a_file_of_a_picture_is_read_back() -> None:
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (3, 5), (4, 2, 3)):
        picture = rng.integers(0, 256, shape).astype(np.uint8)
        np.testing.assert_array_equal(read_png(png(picture)), picture)
