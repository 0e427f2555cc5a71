"""Every operator of `stdlib/ops` gives NumPy's and SciPy's result: evaluated, interpreted and compiled."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api.schedules import sample
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.arrays import widen
from tensorc_dsl.ir.dtypes import nearest
from tensorc_dsl.ir.expr import Const
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.tuning.machine.host import host_target
from tests.codegen.native import run
from tests.compute.native import everywhere
from tests.compute.texts import literals
from tests.examples import FIRST
from tests.stdlib.cases import case, library
from tests.stdlib.references import CASES, OPERATORS

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "stdlib" / "ops").glob("*.tsched"))
DRAWS = int(os.environ.get("FOREIGN_DRAWS", "1"))
"""Schedules of each operator; more in `make foreign DRAWS=20`."""


def test_there_is_a_reference_for_every_operator() -> None:
    assert set(OPERATORS) == set(library().computes)


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{name}-{number}" for name, number in CASES])
def test_an_operator_is_what_its_reference_is(name: str, number: int) -> None:
    c = case(name, number)
    (output,) = c.program.outputs
    allowed = 1e-6 if any(map(is_rounded, literals(c.program))) else 1e-11
    np.testing.assert_allclose(evaluate(c.program, c.inputs)[output.name], c.expected, rtol=allowed, atol=allowed)
    c.check(everywhere(c.program, c.inputs))


def is_rounded(c: Const) -> bool:
    """Whether a literal is not the number that is written, but the nearest of its type."""
    return c.dtype.is_float and nearest(c.value, c.dtype) != c.value


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(FIRST, FIRST + DRAWS))
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_under_the_default_space_is_what_its_reference_is(name: str, seed: int) -> None:
    c = case(name, -1)
    space = Space(library().spaces["default"], name, c.program, host_target(2), library().modules)
    trace = sample(space, name, seed)
    assert trace.refused == ()
    scheduled = trace.program
    found = run(scheduled, c.inputs)
    c.check({output: widen(array, scheduled.buffer(output).dtype) for output, array in found.items()})


def test_the_page_lists_every_operator_with_its_file() -> None:
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    defined = [(name, f.stem) for f in FILES for name in re.findall(r"^compute (\w+)", f.read_text(), re.MULTILINE)]
    assert sorted(listed) == sorted(defined)


def test_the_suite_has_four_sizes_of_each_operator() -> None:
    suite = load_source(Source.read(ROOT / "bench" / "suite.tsched"))
    count = Counter(name.rpartition("_")[0] for name in suite.tasks)
    assert count.pop("win") == 2
    assert set(count.values()) == {4}
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    letters = re.findall(r"\b[A-Z\d]{3}\b(?=[ ,|])", "".join(re.findall(r"[^|]+\|$", page, re.MULTILINE)))
    assert {n.upper() for n in count} == set(letters)
