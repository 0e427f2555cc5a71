"""Operators and kernels written after the library's rules: their results, and schedules of the default space for each.

`make foreign COUNT=1000 DRAWS=20` draws schedules of as many random computes, and as many of each operator. In tests some of
them have one schedule, at their first size, and some are compared with their references alone.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.api import TaskFile
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.diagnostic import TschedError
from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.arrays import Array, narrow, widen
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.machine.host import host_target
from tensorc_dsl.measure.check import compare
from tensorc_dsl.reference.evaluate import evaluate, shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.search.streams import stream
from tensorc_dsl.source import Source
from tensorc_dsl.syntax.fmt import format_text
from tests.codegen.native import run
from tests.foreign.apps import APPS
from tests.foreign.bits import BITS
from tests.foreign.blas import BLAS
from tests.foreign.contractions import CONTRACTIONS
from tests.foreign.decoding import DECODING
from tests.foreign.fields import FIELDS
from tests.foreign.filters import FILTERS
from tests.foreign.functions import FUNCTIONS
from tests.foreign.hlo import HLO
from tests.foreign.learners import LEARNERS
from tests.foreign.loops import LOOPS
from tests.foreign.models import MODELS
from tests.foreign.networks import NETWORKS
from tests.foreign.npbench import NPBENCH
from tests.foreign.onnx import ONNX
from tests.foreign.orders import ORDERS
from tests.foreign.pictures import PICTURES
from tests.foreign.polybench import POLYBENCH
from tests.foreign.random_stages import random_stages
from tests.foreign.references import Foreign
from tests.foreign.sequences import SEQUENCES
from tests.foreign.shapes import SHAPES
from tests.foreign.signals import SIGNALS
from tests.foreign.solvers import SOLVERS
from tests.foreign.sparse import SPARSE
from tests.foreign.tables import TABLES
from tests.foreign.topi import TOPI
from tests.foreign.torch import TORCH
from tests.foreign.vision import VISION
from tests.foreign.widths import WIDTHS
from tests.foreign.words import WORDS

HERE = Path(__file__).parent
FULL = {"onnx": ONNX, "polybench": POLYBENCH, "contractions": CONTRACTIONS, "models": MODELS}
SHORT = {"topi": TOPI, "npbench": NPBENCH, "apps": APPS, "sequences": SEQUENCES, "functions": FUNCTIONS, "bits": BITS}
"""Files whose computes have one schedule in tests, at their first size, and the rest in campaigns."""
BRIEF = {
    "blas": BLAS, "loops": LOOPS, "signals": SIGNALS, "tables": TABLES, "sparse": SPARSE, "networks": NETWORKS,
    "words": WORDS, "pictures": PICTURES, "widths": WIDTHS, "hlo": HLO, "torch": TORCH, "decoding": DECODING,
    "vision": VISION, "filters": FILTERS, "fields": FIELDS, "solvers": SOLVERS, "orders": ORDERS, "shapes": SHAPES,
    "learners": LEARNERS,
}  # fmt: skip
"""Files whose computes are compared with their references in tests, and drawn in campaigns."""
DRAWN = (
    "spmv", "toeplitz_band", "own", "wkv", "seam", "fnv", "cic", "number_theoretic", "cg", "sketches", "radix_sort", "sinks",
    "block_sparse", "gauss_jordan",
)  # fmt: skip
"""Computes of these that have schedules in tests, too: findings."""
FILES = {**FULL, **SHORT, **BRIEF}
CASES = [(file, name) for file, known in FILES.items() for name in known]
CAMPAIGN = "FOREIGN_DRAWS" in os.environ
ALL = FILES if CAMPAIGN else FULL
COUNT = int(os.environ.get("FOREIGN_FUZZ", "10"))
GROUP = 5
NOT_OPEN = {
    "qlinear_conv": "H R S", "grouped_conv": "W R S", "seidel_2d": "N", "conv2d_nchwc": "H W R S CI", "block_scaled": "K",
    "median_of_nine": "H W", "cholesky_in_rows": "N", "pooled_dense": "H",
}  # fmt: skip
"""Sizes that have to be numbers: otherwise an access is not proved, or a result may have a negative size."""
EXPANDED = int(os.environ.get("FOREIGN_DRAWS", "1"))
"""Schedules that are drawn and verified for each size; the first of them runs."""


@cache
def library(file: str) -> CheckedFile:
    """The computes of a file and the default space."""
    source = Source.read(HERE / f"{file}.tsched")
    return load_source(Source(source.name, f"{source.text}\nuse std.cpu.{{default}}\n"))


def values(rng: np.random.Generator, b: Buffer) -> Array:
    """Random values that the buffer's type holds exactly."""
    match b.dtype.name:
        case "bool":
            return rng.random(shape_of(b)) < 0.5
        case "f16" | "bf16":
            return rng.integers(-64, 65, shape_of(b)) / 8
        case "f8e4m3" | "f8e5m2":
            return rng.integers(-8, 9, shape_of(b)) / 2
        case "f32":
            return rng.standard_normal(shape_of(b)).astype(np.float32).astype(np.float64)
        case "f64":
            return rng.standard_normal(shape_of(b))
        case name:
            low, high = (0, 256) if name.startswith("u") else (-128, 128)
            return np.asarray(rng.integers(low, high, shape_of(b)))


def made(file: str, name: str, number: int) -> tuple[Program, dict[str, Array], dict[str, Array]]:
    """A compute at one of its sizes, its inputs, and what its reference makes of them."""
    case: Foreign = FILES[file][name]
    lib = library(file)
    program = elaborate(lib.computes[name], case.sizes[number], name, lib.library)
    rng = np.random.default_rng(number)
    given = case.prepare({b.name: values(rng, b) for b in program.inputs})
    inputs = {b.name: narrow(given[b.name], b.dtype) for b in program.inputs}
    found = case.reference(*(widen(inputs[b.name], b.dtype) for b in program.inputs))
    outputs = found if isinstance(found, tuple) else (found,)
    return program, inputs, {b.name: np.asarray(x) for b, x in zip(program.outputs, outputs, strict=True)}


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
        trace = space.sample(stream(n, name, "foreign"))
        assert trace.refused == ()
        verify(trace.program)
        if n == 0:
            for output, array in run(trace.program, inputs).items():
                wide = widen(array, space.program.buffer(output).dtype)
                fault = compare(output, wide, want[output], allowed[output]).fault
                assert not fault, f"{fault}\n{trace.text}"
    return want


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


@pytest.mark.parametrize(("file", "name"), SIZED, ids=[name for _, name in SIZED])
def test_a_compute_with_an_open_size_has_schedules(file: str, name: str) -> None:
    lib = library(file)
    sizes = FILES[file][name].sizes[0]
    drawn = False  # of one open size in tests, of each in campaigns
    first = len(name) % len(sizes)
    for n, opened in [*enumerate(sizes)][first:] + [*enumerate(sizes)][:first]:
        try:
            program = elaborate(lib.computes[name], {**sizes, opened: OpenRange(1, 64)}, name, lib.library)
        except TschedError:
            assert opened in NOT_OPEN.get(name, "").split()
            continue
        if drawn and not CAMPAIGN:
            continue
        drawn = True
        space = Space(lib.spaces["default"], name, program, host_target(2), lib.modules)
        trace = space.sample(stream(n, name, "foreign/open"))
        assert trace.refused == ()
        verify(trace.program)


GPU = """
use std.gpu.default
target machine = cuda(threads=1024, shared_memory=49152, registers=65536)
"""


@pytest.mark.parametrize("file", ALL)
def test_the_space_for_gpus_has_schedules(file: str) -> None:
    text = (HERE / f"{file}.tsched").read_text("utf-8")
    for name, case in FILES[file].items():
        sizes = ", ".join(f"{n}={size}" for n, size in case.sizes[0].items())
        text += f"task t_{name} = {name}({sizes})\n"
    tasks = TaskFile(load_source(Source("gpu.tsched", text + GPU)), host_target(2))
    for name in tasks:
        trace = tasks[name].space.sample(stream(0, name, "foreign/gpu"))
        assert trace.refused == ()
        verify(trace.program)


@pytest.mark.parametrize("group", range(-(-COUNT // GROUP)))
def test_random_computes_have_schedules(group: int) -> None:
    rules = library("onnx")
    for seed in range(group * GROUP, min(COUNT, (group + 1) * GROUP)):
        text = random_stages(seed)
        found = load_source(Source("random.tsched", text))
        program = elaborate(found.computes["f"], {}, "f", found.library)
        space = Space(rules.spaces["default"], "f", program, host_target(2), rules.modules)
        try:
            require_schedules(space, f"random {seed}", make_inputs(program, seed), 2)
        except Exception as e:
            e.add_note(f"seed {seed}\n{text}")
            raise
