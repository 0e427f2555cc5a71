"""The reference, the interpreter and the kernel, compared with an evaluator written from the language's pages (`meaning`).

`make computes COUNT=5000` runs as many random computes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.elaborate.bindings import dimensions
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.elaborate.names import Library
from tensorc_dsl.ir.arrays import Array, widen
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.syntax import tree
from tensorc_dsl.tuning.measure.check import compare
from tests.codegen.native import run
from tests.compute.meaning import meaning
from tests.compute.random_computes import random_compute
from tests.compute.random_features import random_features
from tests.compute.texts import parsed
from tests.examples import FIRST

COUNT = int(os.environ.get("COMPUTE_FUZZ", "20"))
GROUP = 10
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.tsched"))
STD = load_source(Source("t.tsched", "use std.ops\n"))


def hold(defn: tree.ComputeDef, library: Library, sizes: Mapping[str, Any], seed: int = 0) -> None:
    """Fails unless all that run the compute make of random inputs what it means."""
    check_program(elaborate(defn, sizes, library=library), defn, library, sizes, seed)


def check_program(
    p: Program,
    defn: tree.ComputeDef,
    library: Library,
    sizes: Mapping[str, Any],
    seed: int,
    inputs: Mapping[str, Array] | None = None,
) -> None:
    given = inputs or make_inputs(p, seed)
    defined = library.seen_by(defn)
    wide = {b.name: widen(given[b.name], b.dtype) for b in p.inputs}
    with np.errstate(all="ignore"):
        meant = {
            n: t.array() for n, t in meaning(defn, defined.computes, defined.reducers, sizes, wide).outputs().items()
        }
    reference, allowed = bounded(p, given)
    compiled = {n: widen(a, p.buffer(n).dtype) for n, a in run(p, given).items()}
    ways: dict[str, dict[str, Array]] = {
        "the reference": reference, "the interpreter": interpret(p, given), "the kernel": compiled,
    }  # fmt: skip
    for how, found in ways.items():
        for name, want in meant.items():
            fault = compare(name, found[name], want, allowed[name]).fault
            assert not fault, f"{how}: {fault}\n{defn.span.text}\n{dict(sizes)}\n{format_program(p)}"


def fitting(defn: tree.ComputeDef, library: Library, seed: int) -> tuple[dict[str, int], Program]:
    """Small sizes, most of them odd, for which the compute has a meaning, and its program."""
    rng = random.Random(f"{defn.name} {seed}")
    names = [*dimensions(defn), *(a.name for a in defn.attributes if a.default is None and str(a.type) != "dtype")]
    for most in (3, 5, 7, 9, 5, 7, 9, 12, 16) * 60:
        sizes = {n: rng.choice([x for x in (1, 2, 3, 4, 5, 7, 9, 12, 16) if x <= most]) for n in names}
        try:
            p = elaborate(defn, sizes, library=library)
        except TschedError:
            continue
        work = [np.prod([it.extent.value for it in b.iters], dtype=int) for b in blocks(p)]  # type: ignore[union-attr]
        if all(work) and sum(work) < 20_000:
            return sizes, p
    raise AssertionError(f"no sizes found for {defn.name}")


def blocks(p: Program) -> list[Any]:
    from tensorc_dsl.ir.program import Block, walk

    return [s for _, s in walk(p.body) if isinstance(s, Block)]


@pytest.mark.corpus
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", sorted(n for n in STD.computes))
def test_library(name: str, seed: int) -> None:
    defn = STD.computes[name]
    sizes, p = fitting(defn, STD.library, seed)
    check_program(p, defn, STD.library, sizes, seed)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples(path: Path) -> None:
    file = load_source(Source.read(path, path.name))
    own = [c for c in file.computes.values() if c.span.source.name == path.name]
    for defn in own:
        sizes, p = fitting(defn, file.library, 0)
        check_program(p, defn, file.library, sizes, 0)


@pytest.mark.corpus
@pytest.mark.parametrize("group", range(-(-COUNT // GROUP)))
@pytest.mark.parametrize("drawn", [random_compute, random_features])
def test_random_computes(drawn: Callable[[int], tuple[str, dict[str, int]]], group: int) -> None:
    for seed in range(FIRST + group * GROUP, FIRST + min(COUNT, (group + 1) * GROUP)):
        text, sizes = drawn(seed)
        hold(*parsed(text), sizes, seed)
