"""Operators and kernels written after the library's rules: their results, and schedules of the default space for each.

`make foreign COUNT=1000 DRAWS=20` draws schedules of as many random computes, and as many of each operator. In tests some of
them have one schedule, at their first size, and some are compared with their references alone.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.arrays import Array, widen
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.syntax.fmt import format_text
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.check import compare
from tensorc_dsl.tuning.search.expansion import stream
from tests.codegen.native import run
from tests.examples import FIRST
from tests.foreign.cases import ALL, BRIEF, CAMPAIGN, CASES, EXPANDED, FILES, HERE, library, made, with_open_size
from tests.foreign.random_stages import random_stages

DRAWN = (
    "spmv", "toeplitz_band", "own", "wkv", "seam", "fnv", "cic", "number_theoretic", "cg", "sketches", "radix_sort", "sinks",
    "block_sparse", "gauss_jordan",
)  # fmt: skip
"""Computes of these that have schedules in tests, too: findings."""
COUNT = int(os.environ.get("FOREIGN_FUZZ", "10"))
GROUP = 5


@pytest.mark.corpus
@pytest.mark.parametrize("file", FILES)
def test_a_file_has_no_findings_and_a_reference_for_each_compute(file: str) -> None:
    assert load_source(source := Source.read(HERE / f"{file}.tsched")).diagnostics == ()
    assert format_text(source) == source.text
    computes = library(file).computes.values()
    assert {c.name for c in computes if c.span.source.name == source.name} == FILES[file].keys()


def require_schedules(space: Space, name: str, inputs: dict[str, Array], count: int) -> dict[str, Array]:
    """Draws of a space exist, none of its rules is refused, and what the first of them computes is right: the reference's
    outputs.
    """
    want, allowed = bounded(space.program, inputs)
    for n in range(count):
        trace = space.sample(stream(FIRST + n, name, "foreign"))
        assert trace.refused == ()
        verify(trace.program)
        if n == 0:
            for output, array in run(trace.program, inputs).items():
                wide = widen(array, space.program.buffer(output).dtype)
                fault = compare(output, wide, want[output], allowed[output]).fault
                assert not fault, f"{fault}\n{trace.text}"
    return want


@pytest.mark.corpus
@pytest.mark.parametrize(("file", "name"), CASES, ids=[name for _, name in CASES])
def test_a_compute_has_schedules_and_is_what_its_reference_is(file: str, name: str) -> None:
    lib = library(file)
    for number in range(len(FILES[file][name].sizes) if file in ALL else 1):
        program, inputs, expected = made(file, name, number)
        # Its schedules are drawn at one size, of a campaign at all.
        if CAMPAIGN or (number == 0 and (file not in BRIEF or name in DRAWN)):
            space = Space(lib.spaces["default"], name, program, host_target(2), lib.modules)
            want = require_schedules(space, name, inputs, EXPANDED)
        else:
            want = evaluate(program, inputs)
        for output, array in expected.items():
            assert want[output].shape == array.shape
            if want[output].dtype.kind == "f":
                np.testing.assert_allclose(want[output], array, rtol=1e-9, atol=1e-9)
            else:
                np.testing.assert_array_equal(want[output], array)


SIZED = [(file, name) for file, name in CASES if file in ALL and FILES[file][name].sizes[0]]
"""Those with a size that can be left open."""


@pytest.mark.corpus
@pytest.mark.parametrize(("file", "name"), SIZED, ids=[name for _, name in SIZED])
def test_a_compute_with_an_open_size_has_schedules(file: str, name: str) -> None:
    lib = library(file)
    sizes = FILES[file][name].sizes[0]
    drawn = False  # of one open size in tests, of each in campaigns
    first = len(name) % len(sizes)
    for n, opened in [*enumerate(sizes)][first:] + [*enumerate(sizes)][:first]:
        if (program := with_open_size(file, name, opened)) is None:
            continue
        if drawn and not CAMPAIGN:
            continue
        drawn = True
        space = Space(lib.spaces["default"], name, program, host_target(2), lib.modules)
        trace = space.sample(stream(n, name, "foreign/open"))
        assert trace.refused == ()
        verify(trace.program)


@pytest.mark.corpus
@pytest.mark.parametrize("group", range(-(-COUNT // GROUP)))
def test_random_computes_have_schedules(group: int) -> None:
    rules = library("onnx")
    for seed in range(FIRST + group * GROUP, FIRST + min(COUNT, (group + 1) * GROUP)):
        text = random_stages(seed)
        found = load_source(Source("random.tsched", text))
        program = elaborate(found.computes["f"], {}, "f", found.library)
        space = Space(rules.spaces["default"], "f", program, host_target(2), rules.modules)
        try:
            require_schedules(space, f"random {seed}", make_inputs(program, seed), 2)
        except Exception as e:
            e.add_note(f"seed {seed}\n{text}")
            raise
