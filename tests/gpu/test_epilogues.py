"""Statements that take the elements of a fragment from the registers of the lanes that have them: fused epilogues."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.lower.flat import LowerError
from tests.gpu.kernels import ptx
from tests.gpu.tensor_cores import DRAWS, drawn, hand, whole_numbers
from tests.stdlib.gpu_checks import task

STORED = """        bound("warp") for w_2 in 2 {
            tensorized for i_4 in 16 @("intrinsic", "mma_store") {
                tensorized for j_4 in 8 {
                    block C { spatial vi in 32 = w_2 * 16 + i_4; spatial vj in 8 = j_4; C[vi, vj] = Cf[vi, vj] }
                }
            }
        }
"""

BY_LANES = """        bound("warp") for w_2 in 2 {
            bound("lane") for l in 32 {
                for r in 2 {
                    vectorized for v in 2 {
                        block C {
                            spatial vi in 32 = w_2 * 16 + r * 8 + ROW; spatial vj in 8 = COLUMN
                            C[vi, vj] = max(Cf[vi, vj] + D[vj], 0.0)
                        }
                    }
                }
            }
        }
"""

PARAMS = ("B: f16[16, 8], C: f32[32, 8]", "B: f16[16, 8], D: f32[8], C: f32[32, 8]")


def by_lanes(row: str, column: str) -> tuple[str, str]:
    return STORED, BY_LANES.replace("ROW", row).replace("COLUMN", column)


def test_lanes_add_and_choose_before_they_store() -> None:
    program = hand(PARAMS, by_lanes("l / 4", "l % 4 * 2 + v"))
    found = lower_device(program)
    inputs, (a, b, d) = whole_numbers(program)
    code = ptx(found, "sm_80")
    assert ".local" not in code and "st.global.v2" in code and "ld.global.nc.v2" in code
    fault, outputs = emulated(found, program, inputs)
    assert fault == ""
    for out in outputs:
        np.testing.assert_array_equal(out["C"], np.maximum(a @ b + d, 0))


@pytest.mark.parametrize(
    ("row", "column"), [("l % 8", "l / 8 * 2 + v"), ("l / 4", "l % 4 + 4 * v"), ("7 - l / 4", "l % 4 * 2 + v")]
)
def test_what_another_lane_has_is_refused(row: str, column: str) -> None:
    with pytest.raises(LowerError, match=r"element of `Cf`, which is in a fragment, where lane"):
        lower_device(hand(PARAMS, by_lanes(row, column)))


def test_a_fragment_outside_of_lanes_is_refused() -> None:
    text = (
        BY_LANES.replace('bound("lane") for l in 32', "for l in 32")
        .replace("ROW", "l / 4")
        .replace("COLUMN", "l % 4 * 2 + v")
    )
    with pytest.raises(LowerError, match=r"`Cf` is in a fragment"):
        lower_device(hand(PARAMS, (STORED, text)))


def _relu(a: Array, b: Array, d: Array) -> Array:
    return np.maximum(a @ b + d, 0)


def _gelu(a: Array, b: Array, d: Array) -> Array:
    z = a @ b.T + d
    return 0.5 * z * (1 + np.vectorize(erf)(z / np.sqrt(2)))


CASES: dict[str, tuple[str, Callable[..., Array], float]] = {
    "whole tiles": ("half_biased(M=32, N=32, K=32)", _relu, 0.0),
    "odd": ("half_biased(M=17, N=9, K=18)", _relu, 0.0),
    "two stages": ("half_gelu(M=16, N=40, K=24)", _gelu, 1e-3),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_bias_and_activation_are_in_the_kernel_of_the_product(case: str, tmp_path: Path) -> None:
    """Sums are never stored: a kernel reads the bias, and writes the result."""
    text, reference, error = CASES[case]
    t = task(tmp_path, text, "tensor_core")
    inputs, wide = whole_numbers(t.program)
    for program, found in drawn(t, DRAWS, {"tensor_core": True}):
        (k,) = (k for k in found.kernels if "Y" in k.written)
        assert "D" in k.params and found.kernels[-1] is k and ".local" not in ptx(found, "sm_80")
        fault, outputs = emulated(found, program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_allclose(out["Y"], reference(*wide), rtol=error, atol=error)
