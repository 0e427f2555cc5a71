"""The computes of this folder's files at their sizes, with inputs and what their references make of them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.ir.arrays import Array, narrow, widen
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.reference.evaluate import shape_of
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
FILES = {**FULL, **SHORT, **BRIEF}
CASES = [(file, name) for file, known in FILES.items() for name in known]
CAMPAIGN = "FOREIGN_DRAWS" in os.environ
ALL = FILES if CAMPAIGN else FULL
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


def with_open_size(file: str, name: str, opened: str) -> Program | None:
    """A compute at the first of its sizes with one of them open; None where that has to be a number."""
    lib = library(file)
    sizes = {**FILES[file][name].sizes[0], opened: OpenRange(1, 64)}
    try:
        return elaborate(lib.computes[name], sizes, name, lib.library)
    except TschedError:
        assert opened in NOT_OPEN.get(name, "").split()
        return None
