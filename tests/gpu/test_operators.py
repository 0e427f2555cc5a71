"""Every operator has kernels for GPUs: PTX is made, and their emulation gives NumPy's and SciPy's result.

`make gpu DRAWS=20` draws more schedules of each.
"""

from __future__ import annotations

import os

import pytest

from tensorc_dsl.api.drawing import sample
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tests.gpu.kernels import emulated, gpu_space, ptx
from tests.stdlib.cases import case
from tests.stdlib.references import OPERATORS

DRAWS = int(os.environ.get("GPU_DRAWS", "1"))

TARGETS = ("sm_80", "sm_90")


@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_of_an_operator_give_its_reference(name: str) -> None:
    c = case(name, -1)
    for seed in range(DRAWS):
        target = TARGETS[(seed + len(name)) % len(TARGETS)]
        trace = sample(gpu_space(c.program, target), name, seed)
        kernels = lower_device(trace.program)
        assert f".target {target}" in ptx(kernels, target)
        fault, found = emulated(kernels, c.program, c.inputs)
        assert fault == "", trace.text
        for outputs in found:
            c.check(outputs)
