"""Kernels with roles for tests: a product by hand, drawn ones, and what stands in them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram, format_device
from tensorc_dsl.ir.program import Program
from tests.gpu.tensor_cores import whole_numbers
from tests.gpu.test_hopper import drawn, hopper

STAGES = '@("pipeline.stages", "0, 0, 2")'


def roles(
    ahead: int = 2, rounds: int = 5, names: str = "fetch, fetch, use", registers: str = ""
) -> tuple[tuple[str, str], ...]:
    """The changes by which the product of `hand` has roles, and TMA loads run so far ahead in so many rounds."""
    notes = f'@("specialize.roles", "{names}")' + (f' @("specialize.registers", "{registers}")' if registers else "")
    return (
        (STAGES, f'@("pipeline.stages", "0, 0, {ahead}") {notes}'),
        ("in 5 @", f"in {rounds} @"),
        ("vs in 5", f"vs in {rounds}"),
        ("STEPS", str(rounds)),
    )


def lines(found: DeviceProgram, of_interest: tuple[str, ...]) -> list[str]:
    every = (x.strip() for x in format_device(found).splitlines())
    return [x.split("_m64")[0] for x in every if x.startswith(of_interest)]


WORDS = ("mbarrier.", "one", "barrier", "for s", "for t", "if", "role ")


@cache
def product(rows: int, rounds: int, ahead: int) -> tuple[Program, DeviceProgram]:
    """A product of `rows` rows by one warpgroup for each 64, whose factors TMA loads."""
    with TemporaryDirectory() as folder:
        t = hopper(Path(folder), f"half_transposed(M={rows}, N=64, K={64 * rounds})")
        both = {"copied": "tma", "copied_1": "tma", "beside": True, "cluster": -1, "ahead": ahead}
        (found,) = drawn(t, {"warpgroups": True, "inner": (1, rows // 64, 1, 64), **both})[:1]
        return found


def exact(program: Program, found: DeviceProgram) -> tuple[str, bool]:
    inputs, (a, b) = whole_numbers(program)
    fault, outputs = emulated(found, program, inputs)
    return fault, all(np.array_equal(x["C"], a @ b.T) for x in outputs)
