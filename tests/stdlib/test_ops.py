"""Every operator of `stdlib/ops` is what NumPy and SciPy make of the same inputs: evaluated, interpreted and compiled."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.check.compute import elaborate
from tensorc_dsl.check.scope import CheckedFile, load_file, load_source
from tensorc_dsl.ir.arrays import Array, narrow
from tensorc_dsl.ir.evaluate import evaluate, shape_of
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.source import Source
from tests.compute.native import everywhere
from tests.stdlib.references import CASES, OPERATORS, Sizes

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "stdlib" / "ops").glob("*.tsched"))


@cache
def library() -> CheckedFile:
    return load_source(Source("t.tsched", "use std.ops\n"))


def made(name: str, sizes: Sizes) -> Program:
    file = library()
    return elaborate(file.computes[name], sizes, name, file.library)


def values(rng: np.random.Generator, b: Buffer) -> Array:
    """Random values that the buffer's type holds exactly."""
    match b.dtype.name:
        case "f16" | "bf16":
            return rng.integers(-64, 65, shape_of(b)) / 8
        case "f32":
            return rng.standard_normal(shape_of(b)).astype(np.float32).astype(np.float64)
        case "u8":
            return rng.integers(0, 256, shape_of(b))
        case "i8":
            return rng.integers(-128, 128, shape_of(b))
        case other:
            raise AssertionError(f"no operator takes {other}")


def test_there_is_a_reference_for_every_operator() -> None:
    assert set(OPERATORS) == set(library().computes)


@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{name}-{number}" for name, number in CASES])
def test_an_operator_is_what_its_reference_is(name: str, number: int) -> None:
    operator = OPERATORS[name]
    sizes = operator.sizes[number]
    program = made(name, sizes)
    rng = np.random.default_rng(number)
    given = operator.prepare({b.name: values(rng, b) for b in program.inputs})
    inputs = {b.name: narrow(given[b.name], b.dtype) for b in program.inputs}
    numbers = {a.name for a in library().computes[name].attributes if a.type != "dtype"}
    expected = operator.reference(*given.values(), **{k: v for k, v in sizes.items() if k in numbers})

    (output,) = program.outputs
    np.testing.assert_allclose(evaluate(program, inputs)[output.name], expected, rtol=1e-11, atol=1e-11)
    found = everywhere(program, inputs)[output.name]
    largest = np.abs(expected[np.isfinite(expected)]).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=operator.loss * largest)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_a_file_has_no_findings(file: Path) -> None:
    assert load_file(Source.read(file)).diagnostics == ()


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
