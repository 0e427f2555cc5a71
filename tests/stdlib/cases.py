"""The operators of `stdlib/ops` at the sizes of their references: programs, inputs, and expected results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.ir.arrays import Array, narrow
from tensorc_dsl.ir.program import Buffer, Program
from tensorc_dsl.reference.evaluate import shape_of
from tests.stdlib.numerics import Operator
from tests.stdlib.references import OPERATORS


@cache
def library() -> CheckedFile:
    """All operators, and the default space."""
    return load_source(Source("t.tsched", "use std.ops\nuse std.cpu.{default}\n"))


@dataclass(frozen=True)
class Case:
    """An operator at one size, with what its outputs should be; their errors may be `allowed`."""

    program: Program
    inputs: dict[str, Array]
    results: tuple[Array, ...]
    allowed: float

    @property
    def expected(self) -> Array:
        """Its one output."""
        (result,) = self.results
        return result

    @property
    def largest(self) -> float:
        return max(np.abs(r[np.isfinite(r)]).max(initial=0) for r in self.results)

    def check(self, found: Mapping[str, Array]) -> None:
        """Fails unless the outputs of a kernel are what the reference says."""
        for output, result in zip(self.program.outputs, self.results, strict=True):
            np.testing.assert_allclose(found[output.name], result, rtol=0, atol=self.allowed)


def case(name: str, number: int) -> Case:
    """That operator at that one of its sizes, with random inputs."""
    return case_of(OPERATORS[name], library(), name, number)


def case_of(operator: Operator, file: CheckedFile, name: str, number: int) -> Case:
    """A compute of a file at that one of the sizes of its reference, with random inputs."""
    defn, sizes = file.computes[name], operator.sizes[number]
    program = elaborate(defn, sizes, name, file.library)
    rng = np.random.default_rng(number % len(operator.sizes))
    given = operator.prepare({b.name: _values(rng, b) for b in program.inputs})
    attributes = {a.name for a in defn.attributes if str(a.type) != "dtype"}
    expected = operator.reference(*given.values(), **{k: v for k, v in sizes.items() if k in attributes})
    inputs = {b.name: narrow(given[b.name], b.dtype) for b in program.inputs}
    made = Case(program, inputs, expected if isinstance(expected, tuple) else (expected,), 0)
    return replace(made, allowed=operator.loss * made.largest)


def _values(rng: np.random.Generator, b: Buffer) -> Array:
    """Random values that the buffer's type holds exactly."""
    match b.dtype.name:
        case "f16" | "bf16":
            return rng.integers(-64, 65, shape_of(b)) / 8
        case "f32":
            return rng.standard_normal(shape_of(b)).astype(np.float32).astype(np.float64)
        case "u8":
            return rng.integers(0, 256, shape_of(b))
        case "u16":
            return rng.integers(0, 1024, shape_of(b))
        case "i8":
            return rng.integers(-128, 128, shape_of(b))
        case "i32":
            return rng.integers(-4, 16, shape_of(b))
        case other:
            raise AssertionError(f"no operator takes {other}")
