"""Tensor cores for bytes and for f64, and operands that lie in each way: kernels are exact, and the assembler takes them.

`make gpu DRAWS=20` draws more schedules of each case.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.backend.cuda.sass import assemble, tool
from tests.gpu.kernels import emulated, ptx
from tests.gpu.test_swizzles import SWIZZLES, traffic
from tests.gpu.test_tensor_cores import DRAWS, drawn, whole_numbers
from tests.stdlib.gpu_checks import task

CASES = {
    "both turned": ("any_turned(M=32, N=16, K=40, T=f16, Acc=f32)", "m16n8k16.row.col.f32.f16.f16.f32"),
    "i8": ("any_product(M=32, N=24, K=64, T=i8, Acc=i32)", "m16n8k32.row.col.s32.s8.s8.s32"),
    "u8 turned and odd": ("any_turned(M=17, N=9, K=33, T=u8, Acc=i32)", "m16n8k32.row.col.s32.u8.u8.s32"),
    "f64": ("any_product(M=16, N=24, K=16, T=f64, Acc=f64)", "m8n8k4.row.col.f64.f64.f64.f64"),
    "f64 turned and odd": ("any_turned(M=9, N=17, K=6, T=f64, Acc=f64)", "m8n8k4.row.col.f64.f64.f64.f64"),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_are_exact_in_each_type(case: str, tmp_path: Path) -> None:
    text, instruction = CASES[case]
    t = task(tmp_path, text, "tensor_core")
    inputs, (a, b) = whole_numbers(t.program)
    expected = a.T @ b.T if "turned" in text else a @ b
    for program, found in drawn(t, DRAWS, {"tensor_core": True, **SWIZZLES}):
        code = ptx(found, "sm_80")
        assert instruction in code and ".local" not in code
        if tool("ptxas") is not None:
            said = assemble(code, "sm_80", tmp_path / "k.cubin")
            assert re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)[-3:] == ["0", "0", "0"]
        fault, outputs = emulated(found, program, inputs)
        assert fault == ""
        for out in outputs:
            np.testing.assert_array_equal(out["C"], expected)
        # Copies that turn bytes on the way store them one by one, and so do not come to all banks alike.
        fills = [x for x in traffic(found, program, inputs) if not x.write or "f64" in text]
        assert [x for x in fills if x.moves != x.least] == []
