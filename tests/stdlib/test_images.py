"""Every compute of `stdlib/image` gives SciPy's or NumPy's result: evaluated, and under draws of the default space."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import ndimage

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api.schedules import sample
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.arrays import widen
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen.native import run
from tests.stdlib.cases import case_of
from tests.stdlib.images import COMPUTES, LIBRARY
from tests.stdlib.numerics import Operator, each

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "stdlib" / "image").glob("*.tsched"))


def test_there_is_a_reference_for_every_compute() -> None:
    assert set(COMPUTES) == set(LIBRARY.computes)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "number"), [(name, n) for name, o in COMPUTES.items() for n in range(len(o.sizes))], ids=str
)
def test_a_compute_is_what_its_reference_is(name: str, number: int) -> None:
    c = case_of(COMPUTES[name], LIBRARY, name, number)
    close = replace(c, allowed=1e-6 * max(1, c.largest))  # `0.299` is the nearest number of its type
    close.check(evaluate(c.program, c.inputs))


@pytest.mark.corpus
@pytest.mark.parametrize("name", COMPUTES)
def test_a_compute_under_the_default_space_is_what_its_reference_is(name: str) -> None:
    c = case_of(COMPUTES[name], LIBRARY, name, 0)
    space = Space(LIBRARY.spaces["default"], name, c.program, host_target(2), LIBRARY.modules)
    trace = sample(space, name, 0)
    assert trace.refused == ()
    found = run(trace.program, c.inputs)
    c.check({output: widen(array, trace.program.buffer(output).dtype) for output, array in found.items()})


BOXED = """
use std.image
compute boxed(X: f32[H, W]; r: int = 1) -> Y: f32[H, W] {{
    let P = {border}(X, r=r)
    Y = box_valid(P, r=r)
}}
"""


@pytest.mark.corpus
@pytest.mark.parametrize("size", [(1, 1, 2), (2, 1, 1), (2, 5, 7), (9, 14, 3)])
@pytest.mark.parametrize(
    ("border", "mode"),
    [("extended", "nearest"), ("reflected", "reflect"), ("mirrored", "mirror"), ("wrapped", "grid-wrap")],
)
def test_a_filter_takes_the_border_that_it_is_given(border: str, mode: str, size: tuple[int, int, int]) -> None:
    c = case_of(
        Operator(lambda x, r: ndimage.uniform_filter(x, 2 * r + 1, mode=mode), each("H W r", size)),
        load_source(Source("t.tsched", BOXED.format(border=border))),
        "boxed",
        0,
    )
    c.check(evaluate(c.program, c.inputs))


def test_the_page_lists_every_compute_with_its_file() -> None:
    page = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
    lines = re.findall(r"^- (\w+): (`.*)$", page, re.MULTILINE)
    listed = [(name, file) for file, names in lines for name in re.findall(r"`(\w+)`", names)]
    defined = [(name, f.stem) for f in FILES for name in re.findall(r"^compute (\w+)", f.read_text(), re.MULTILINE)]
    assert sorted(listed) == sorted(defined)
