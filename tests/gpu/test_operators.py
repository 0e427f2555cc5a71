"""Operators and computes for images have kernels for GPUs: PTX is made, and their emulation gives NumPy's and SciPy's result.

`make gpu DRAWS=20` draws more schedules of each, and takes all computes for images, not only those whose kernels differ most.
"""

from __future__ import annotations

import os

import pytest

from tensorc_dsl.api.drawing import sample
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tests.gpu.kernels import emulated, gpu_space, ptx
from tests.stdlib.cases import Case, case, case_of
from tests.stdlib.images import COMPUTES, LIBRARY
from tests.stdlib.references import OPERATORS

DRAWS = int(os.environ.get("GPU_DRAWS", "0"))

IMAGES = [*COMPUTES] if DRAWS else [
    "box", "demosaiced", "equalized", "framed", "from_rest", "gray_u8", "greatest_below", "histogram", "sliced_cells",
    "unsharp_u8",
]  # fmt: skip

TARGETS = ("sm_80", "sm_90")


@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_of_an_operator_give_its_reference(name: str) -> None:
    require_kernels(case(name, -1), name)


@pytest.mark.parametrize("name", IMAGES)
def test_kernels_of_a_compute_for_images_give_its_reference(name: str) -> None:
    require_kernels(case_of(COMPUTES[name], LIBRARY, name, min(1, len(COMPUTES[name].sizes) - 1)), name)


def require_kernels(c: Case, name: str) -> None:
    """Draws are compiled, and compute what they should in every order of threads."""
    for seed in range(max(DRAWS, 1)):
        target = TARGETS[(seed + len(name)) % len(TARGETS)]
        trace = sample(gpu_space(c.program, target), name, seed)
        kernels = lower_device(trace.program)
        assert f".target {target}" in ptx(kernels, target)
        fault, found = emulated(kernels, c.program, c.inputs)
        assert fault == "", trace.text
        for outputs in found:
            c.check(outputs)
